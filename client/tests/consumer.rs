//! A push consumer against a broker in memory.

mod fake;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use fake::{SentBack, cluster, on_node, until};
use staticfire_client::{
    ClientConfig, ConcurrentBatch, ConcurrentOutcome, Filter, PushConsumer, PushConsumerBuilder, RetryDelay, StartFrom,
};

/// Bodies that a listener got, and how often.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<String, usize>>>);

impl Seen {
    fn note(&self, batch: &ConcurrentBatch) {
        for message in &batch.messages {
            let body = String::from_utf8(message.body().to_vec()).unwrap();
            *self.0.lock().unwrap().entry(body).or_default() += 1;
        }
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn times(&self) -> usize {
        self.0.lock().unwrap().values().sum()
    }

    fn listener(
        &self,
        outcome: ConcurrentOutcome,
    ) -> impl Fn(ConcurrentBatch) -> std::future::Ready<ConcurrentOutcome> + use<> {
        let seen = self.clone();
        move |batch| {
            seen.note(&batch);
            std::future::ready(outcome)
        }
    }
}

const SUCCESS: ConcurrentOutcome = ConcurrentOutcome::Success;

fn consumer(name_servers: &[String], instance: &str) -> PushConsumerBuilder {
    let config = ClientConfig::builder().name_servers(name_servers).instance_name(instance).build().unwrap();
    PushConsumer::builder("g", config).subscribe("t", Filter::All).start_from(StartFrom::Earliest)
}

#[test]
fn every_message_is_delivered_once_and_committed_at_shutdown() {
    on_node(|host| async move {
        let (brokers, _servers, name_servers) = cluster(&["a"], 2).await;
        for n in 0..50 {
            brokers[0].put("t", n % 2, &format!("m{n}"), None);
        }
        let seen = Seen::default();
        let consumer = consumer(&name_servers, "one").start_concurrent(seen.listener(SUCCESS)).await.unwrap();
        until(&host, "all messages", || seen.len() == 50).await;
        brokers[0].put("t", 0, "late", None);
        until(&host, "a message that comes while a pull is held", || seen.len() == 51).await;
        let report = consumer.shutdown(Duration::from_secs(5)).await;
        assert_eq!((report.listeners_ended, report.not_committed), (true, 0));
        assert_eq!((brokers[0].offset("g", "t", 0), brokers[0].offset("g", "t", 1)), (Some(26), Some(25)));
        assert_eq!(seen.times(), 51);
        assert!(brokers[0].members("g").is_empty());
    });
}

#[test]
fn a_member_that_leaves_hands_its_queues_to_the_others() {
    on_node(|host| async move {
        let (brokers, _servers, name_servers) = cluster(&["a", "b"], 4).await;
        let seen = Seen::default();
        let start = |name| consumer(&name_servers, name).start_concurrent(seen.listener(SUCCESS));
        let (one, two) = (start("one").await.unwrap(), start("two").await.unwrap());
        let owned = |consumer: &PushConsumer| {
            consumer.progress().iter().filter(|progress| &*progress.queue.topic == "t").count()
        };
        until(&host, "four queues each", || owned(&one) == 4 && owned(&two) == 4).await;
        for n in 0..40 {
            brokers[n % 2].put("t", (n / 2 % 4) as i32, &format!("m{n}"), None);
        }
        until(&host, "all messages", || seen.len() == 40).await;
        one.shutdown(Duration::from_secs(5)).await;
        until(&host, "all queues at one member", || owned(&two) == 8).await;
        for n in 40..80 {
            brokers[n % 2].put("t", (n / 2 % 4) as i32, &format!("m{n}"), None);
        }
        until(&host, "all messages again", || seen.len() == 80).await;
        assert_eq!(seen.times(), 80);
        two.shutdown(Duration::from_secs(5)).await;
    });
}

#[test]
fn a_failed_message_goes_back_to_the_broker() {
    on_node(|host| async move {
        let (brokers, _servers, name_servers) = cluster(&["a"], 1).await;
        brokers[0].put("t", 0, "m0", None);
        brokers[0].put("t", 0, "m1", None);
        let seen = Seen::default();
        let later = ConcurrentOutcome::Later { delay: RetryDelay::Level(2) };
        let consumer = consumer(&name_servers, "one").start_concurrent(seen.listener(later)).await.unwrap();
        until(&host, "both sent back", || brokers[0].sent_back().len() == 2).await;
        let mut back = brokers[0].sent_back();
        back.sort_by_key(|back| back.phy);
        assert_eq!(back, [SentBack { phy: 0, level: 2 }, SentBack { phy: 1000, level: 2 }]);
        consumer.shutdown(Duration::from_secs(5)).await;
        assert_eq!(brokers[0].offset("g", "t", 0), Some(2));
    });
}

#[test]
fn a_listener_that_panics_does_not_stop_the_consumer() {
    on_node(|host| async move {
        let (brokers, _servers, name_servers) = cluster(&["a"], 1).await;
        brokers[0].put("t", 0, "bad", None);
        brokers[0].put("t", 0, "good", None);
        let seen = Seen::default();
        let listener = {
            let seen = seen.clone();
            move |batch: ConcurrentBatch| {
                let seen = seen.clone();
                async move {
                    assert!(&batch.messages[0].body()[..] != b"bad", "the listener of this test panics on purpose");
                    seen.note(&batch);
                    ConcurrentOutcome::Success
                }
            }
        };
        let consumer = consumer(&name_servers, "one").start_concurrent(listener).await.unwrap();
        until(&host, "the good one", || seen.len() == 1 && brokers[0].sent_back().len() == 1).await;
        consumer.shutdown(Duration::from_secs(5)).await;
        assert_eq!(brokers[0].offset("g", "t", 0), Some(2));
    });
}

#[test]
fn a_message_that_is_not_taken_back_is_copied_to_the_retry_topic() {
    on_node(|host| async move {
        let (brokers, _servers, name_servers) = cluster(&["a"], 1).await;
        brokers[0].refuse_send_back();
        brokers[0].put("t", 0, "m0", None);
        let seen = Seen::default();
        let once = seen.clone();
        let listener = move |batch: ConcurrentBatch| {
            once.note(&batch);
            let is_retry = batch.queue.topic.starts_with("%RETRY%");
            let later = ConcurrentOutcome::Later { delay: RetryDelay::Schedule };
            std::future::ready(if is_retry { ConcurrentOutcome::Success } else { later })
        };
        let consumer = consumer(&name_servers, "one").start_concurrent(listener).await.unwrap();
        until(&host, "the copy", || brokers[0].retry_copies().len() == 1).await;
        let copy = &brokers[0].retry_copies()[0];
        assert_eq!((&*copy.topic, copy.reconsume_times, copy.max_reconsume_times), ("%RETRY%g", Some(1), Some(16)));
        let properties = message::Properties::from_encoded(copy.properties.clone().unwrap());
        assert_eq!((properties.get("RETRY_TOPIC"), properties.get("DELAY")), (Some("t"), Some("3")));
        consumer.shutdown(Duration::from_secs(5)).await;
        assert_eq!(brokers[0].offset("g", "t", 0), Some(1));
    });
}

#[test]
fn a_position_outside_the_queue_is_corrected_and_committed() {
    on_node(|host| async move {
        let (brokers, _servers, name_servers) = cluster(&["a"], 1).await;
        brokers[0].put("t", 0, "old", None);
        brokers[0].set_offset("g", "t", 0, 100);
        let seen = Seen::default();
        let consumer = consumer(&name_servers, "one").start_concurrent(seen.listener(SUCCESS)).await.unwrap();
        until(&host, "the corrected commit", || brokers[0].offset("g", "t", 0) == Some(1)).await;
        brokers[0].put("t", 0, "new", None);
        until(&host, "the next message", || seen.len() == 1).await;
        consumer.shutdown(Duration::from_secs(5)).await;
        assert_eq!(brokers[0].offset("g", "t", 0), Some(2));
    });
}

#[test]
fn a_live_consumer_reads_what_took_the_place_of_lost_messages() {
    on_node(|host| async move {
        let (brokers, _servers, name_servers) = cluster(&["a"], 1).await;
        brokers[0].begin_epoch(1);
        for n in 0..5 {
            brokers[0].put("t", 0, &format!("old{n}"), None);
        }
        let seen = Seen::default();
        let consumer = consumer(&name_servers, "one").start_concurrent(seen.listener(SUCCESS)).await.unwrap();
        until(&host, "the old messages", || seen.len() == 5).await;
        // The position of the consumer is 5, where another message lies now.
        brokers[0].lose_and_fill("t", 0, 3, 2, &["new3", "new4", "new5", "new6"]);
        until(&host, "all new messages", || seen.len() == 9).await;
        consumer.shutdown(Duration::from_secs(5)).await;
        assert_eq!(brokers[0].offset("g", "t", 0), Some(7));
        assert_eq!(brokers[0].epochs().last(), Some(&Some(2)));
        assert_eq!(seen.times(), 9, "nothing that was finished and kept comes again");
    });
}

#[test]
fn an_offset_that_was_read_before_the_loss_is_not_trusted_after_it() {
    on_node(|host| async move {
        let (brokers, _servers, name_servers) = cluster(&["a"], 1).await;
        brokers[0].begin_epoch(1);
        for n in 0..5 {
            brokers[0].put("t", 0, &format!("old{n}"), None);
        }
        brokers[0].set_offset("g", "t", 0, 5);
        let seen = Seen::default();
        let consumer = consumer(&name_servers, "one").start_concurrent(seen.listener(SUCCESS)).await.unwrap();
        // The first pull comes half a second later.
        until(&host, "the question for the offset", || brokers[0].queries() > 0).await;
        brokers[0].lose_and_fill("t", 0, 3, 2, &["new3", "new4", "new5"]);
        until(&host, "all new messages", || seen.len() == 3).await;
        consumer.shutdown(Duration::from_secs(5)).await;
        assert_eq!(brokers[0].offset("g", "t", 0), Some(6));
    });
}

#[test]
fn a_corrected_position_that_cannot_be_committed_does_not_stop_the_consumer() {
    on_node(|host| async move {
        let (brokers, _servers, name_servers) = cluster(&["a"], 1).await;
        brokers[0].begin_epoch(1);
        brokers[0].put("t", 0, "old", None);
        brokers[0].set_offset("g", "t", 0, 100);
        brokers[0].refuse_commit();
        let seen = Seen::default();
        let consumer = consumer(&name_servers, "one").start_concurrent(seen.listener(SUCCESS)).await.unwrap();
        until(&host, "a commit with a pull", || brokers[0].offset("g", "t", 0) == Some(1)).await;
        brokers[0].put("t", 0, "new", None);
        until(&host, "the next message", || seen.len() == 1).await;
        consumer.shutdown(Duration::from_secs(5)).await;
    });
}

#[test]
fn tags_are_compared_by_text() {
    on_node(|host| async move {
        let (brokers, _servers, name_servers) = cluster(&["a"], 1).await;
        for (body, tag) in [("1", Some("Aa")), ("2", Some("BB")), ("3", None), ("4", Some("Aa"))] {
            brokers[0].put("t", 0, body, tag);
        }
        let seen = Seen::default();
        let consumer = consumer(&name_servers, "one")
            .subscribe("t", Filter::tags("Aa").unwrap())
            .start_concurrent(seen.listener(SUCCESS))
            .await
            .unwrap();
        until(&host, "the last message", || seen.len() == 2).await;
        let bodies: Vec<String> = seen.0.lock().unwrap().keys().cloned().collect();
        assert_eq!(bodies, ["1", "4"]);
        consumer.shutdown(Duration::from_secs(5)).await;
    });
}

#[test]
fn the_offset_waits_for_the_slowest_message() {
    on_node(|host| async move {
        let (brokers, _servers, name_servers) = cluster(&["a"], 1).await;
        for n in 0..10 {
            brokers[0].put("t", 0, &format!("m{n}"), None);
        }
        let seen = Seen::default();
        let listener = {
            let (seen, host) = (seen.clone(), host.clone());
            move |batch: ConcurrentBatch| {
                let (seen, host) = (seen.clone(), host.clone());
                async move {
                    if &batch.messages[0].body()[..] == b"m3" {
                        host.sleep(Duration::from_secs(3600)).await;
                    }
                    seen.note(&batch);
                    ConcurrentOutcome::Success
                }
            }
        };
        let consumer = consumer(&name_servers, "one").start_concurrent(listener).await.unwrap();
        until(&host, "all but one", || seen.len() == 9).await;
        let report = consumer.shutdown(Duration::from_millis(500)).await;
        assert!(!report.listeners_ended);
        assert!(brokers[0].commits().iter().all(|offset| *offset <= 3), "{:?}", brokers[0].commits());
    });
}

/// Where the magic of a record stands, and the last byte of a body behind which come a topic of one letter with its
/// length, and no properties with theirs.
const MAGIC_AT: isize = 4;
const BODY_END_AT: isize = -5;

#[test]
fn messages_that_cannot_be_read_are_passed_over_and_those_around_them_are_not() {
    on_node(|host| async move {
        let (brokers, _servers, name_servers) = cluster(&["a"], 1).await;
        for n in 0..4 {
            brokers[0].put("t", 0, &format!("m{n}"), None);
        }
        brokers[0].put_not_compressed("t", 0, "m4");
        brokers[0].put("t", 0, "m5", None);
        assert_eq!(brokers[0].spoil("t", 0, 0, BODY_END_AT, b'x'), b'0');
        brokers[0].spoil("t", 0, 2, MAGIC_AT, 0);
        let seen = Seen::default();
        let consumer = consumer(&name_servers, "one").start_concurrent(seen.listener(SUCCESS)).await.unwrap();
        until(&host, "the last message", || seen.len() == 3).await;
        consumer.shutdown(Duration::from_secs(5)).await;
        let bodies: Vec<String> = seen.0.lock().unwrap().keys().cloned().collect();
        assert_eq!(bodies, ["m1", "m3", "m5"]);
        assert_eq!((seen.times(), brokers[0].offset("g", "t", 0)), (3, Some(6)));
    });
}

#[test]
fn a_message_that_can_be_read_after_all_is_delivered() {
    on_node(|host| async move {
        let (brokers, _servers, name_servers) = cluster(&["a"], 1).await;
        brokers[0].put("t", 0, "m0", None);
        brokers[0].put("t", 0, "m1", None);
        brokers[0].spoil("t", 0, 1, BODY_END_AT, b'x');
        let seen = Seen::default();
        let consumer = consumer(&name_servers, "one").start_concurrent(seen.listener(SUCCESS)).await.unwrap();
        until(&host, "the first message", || seen.len() == 1).await;
        brokers[0].spoil("t", 0, 1, BODY_END_AT, b'1');
        until(&host, "the second one", || seen.len() == 2).await;
        consumer.shutdown(Duration::from_secs(5)).await;
        assert!(seen.0.lock().unwrap().contains_key("m1"));
    });
}
