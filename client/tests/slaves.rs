//! Which broker of a group a client speaks to: the master, or a slave if it was told to or there is no other.

mod fake;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use fake::{cluster, on_node, until};
use staticfire_client::{
    ClientConfig, ConcurrentBatch, ConcurrentOutcome, Filter, Message, Producer, PushConsumer, StartFrom,
};

/// The bit of a pull that commits an offset on the way.
const COMMITS: i32 = 1;

fn config(name_servers: &[String], instance: &str) -> ClientConfig {
    ClientConfig::builder().name_servers(name_servers).instance_name(instance).build().unwrap()
}

/// A consumer of `t`, and the bodies that it got.
async fn consume(name_servers: &[String]) -> (PushConsumer, Arc<Mutex<Vec<String>>>) {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let note = Arc::clone(&seen);
    let listener = move |batch: ConcurrentBatch| {
        let bodies = batch.messages.iter().map(|message| String::from_utf8(message.body().to_vec()).unwrap());
        note.lock().unwrap().extend(bodies);
        std::future::ready(ConcurrentOutcome::Success)
    };
    let builder = PushConsumer::builder("g", config(name_servers, "c")).subscribe("t", Filter::All);
    let consumer = builder.start_from(StartFrom::Earliest).start_concurrent(listener).await.unwrap();
    (consumer, seen)
}

#[test]
fn pulls_go_where_the_last_answer_says_and_commits_to_the_master() {
    on_node(|host| async move {
        let (brokers, _servers, name_servers) = cluster(&["a", "a/1"], 1).await;
        let [master, slave] = &brokers[..] else { panic!("two brokers") };
        for n in 0..40 {
            for broker in &brokers {
                broker.put("t", 0, &format!("m{n}"), None);
            }
        }
        for broker in &brokers {
            broker.suggest(1);
        }
        let (consumer, seen) = consume(&name_servers).await;
        until(&host, "all messages", || seen.lock().unwrap().len() == 40).await;
        until(&host, "a pull from the slave", || !slave.pulls().is_empty()).await;
        slave.suggest(0);
        master.put("t", 0, "m40", None);
        slave.put("t", 0, "m40", None);
        until(&host, "the next message", || seen.lock().unwrap().len() == 41).await;
        let asked_again = || master.pulls().iter().any(|pull| pull.topic == "t" && pull.queue_offset == 41);
        until(&host, "a pull from the master again", asked_again).await;
        consumer.shutdown(Duration::from_secs(5)).await;
        assert!(slave.pulls().iter().all(|pull| pull.sys_flag & COMMITS == 0), "its table is a copy");
        assert_eq!(slave.offset("g", "t", 0), None);
        assert_eq!(master.offset("g", "t", 0), Some(41));
    });
}

#[test]
fn group_without_a_master_is_read_and_told_offsets_and_not_written() {
    on_node(|host| async move {
        let (brokers, _servers, name_servers) = cluster(&["a/2", "a/3", "b"], 1).await;
        brokers[0].put("t", 0, "old", None);
        let (consumer, seen) = consume(&name_servers).await;
        until(&host, "the message of the slave", || seen.lock().unwrap().contains(&"old".to_owned())).await;
        let producer = Producer::builder("p", config(&name_servers, "p")).start().await.unwrap();
        for n in 0..4 {
            producer.send(Message::new("t", format!("m{n}"))).await.unwrap();
        }
        until(&host, "all messages", || seen.lock().unwrap().len() == 5).await;
        assert_eq!((brokers[0].sends().len(), brokers[1].sends().len(), brokers[2].sends().len()), (0, 0, 4));
        producer.shutdown(Duration::from_secs(5)).await;
        consumer.shutdown(Duration::from_secs(5)).await;
        assert_eq!(brokers[0].offset("g", "t", 0), Some(1));
        assert!(brokers[1].pulls().is_empty(), "the first of the slaves is enough");
    });
}

#[test]
fn slave_that_may_not_be_read_sends_nobody_into_a_dead_end() {
    on_node(|host| async move {
        let (brokers, _servers, name_servers) = cluster(&["a", "a/1"], 1).await;
        let [master, slave] = &brokers[..] else { panic!("two brokers") };
        master.put("t", 0, "m0", None);
        master.suggest(1);
        slave.refuse_pulls();
        let (consumer, seen) = consume(&name_servers).await;
        until(&host, "a pull that is refused", || !slave.pulls().is_empty()).await;
        master.put("t", 0, "m1", None);
        until(&host, "the next message", || seen.lock().unwrap().len() == 2).await;
        consumer.shutdown(Duration::from_secs(5)).await;
    });
}
