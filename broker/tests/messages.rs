//! Sending and pulling through the wire.

mod stage;

use std::{os::unix::fs::FileExt, path::Path, time::Duration};

use message::{Message, StoredMessage, SysFlag, encode_batch_item};
use remoting::{
    ConsumerSendMsgBackRequestHeader, QueryMessageRequestHeader, QueryMessageResponseHeader, Request, Response,
    ResponseCode, SendMessageRequestHeader, SendMessageResponseHeader, ViewMessageRequestHeader,
};
use stage::{Caller, TIMEOUT, config, pull_from, run, send_to, waiting, with_broker};
use staticfire_broker::Broker;

#[test]
fn sent_message_is_pulled_with_everything_it_had() {
    with_broker("", |_, caller| async move {
        let header = SendMessageRequestHeader { flag: 7, ..send_to("t", &[("TAGS", "a"), ("WAIT", "false")]) };
        let sent = caller.send(header, "hello").await;
        assert_eq!(sent.code, ResponseCode::SUCCESS, "{sent:?}");
        let told: SendMessageResponseHeader = sent.decode().unwrap();
        assert_eq!((told.queue_id, told.queue_offset), (0, 0));
        assert_eq!(told.msg_region.as_deref(), Some("DefaultRegion"));

        let pulled = caller.pull(waiting(pull_from("t", 0), TIMEOUT)).await;
        assert_eq!(pulled.response.code, ResponseCode::SUCCESS);
        assert_eq!(pulled.response.remark.as_deref(), Some("FOUND"));
        assert_eq!(pulled.bodies(), ["hello"]);
        let message = &pulled.messages[0];
        assert_eq!(message.message.flag, 7);
        assert_eq!(message.message.tags(), Some("a"));
        assert_eq!(message.message.unique_id(), told.transaction_id.as_deref());
        assert_eq!(message.message.properties.get("CLUSTER"), Some("DefaultCluster"));
        assert_eq!(message.message.properties.get("WAIT"), None);
        assert_eq!(message.offset_message_id().to_string(), told.msg_id);
        assert_eq!(message.store_host, caller.address);
        let header = pulled.header.unwrap();
        assert_eq!((header.next_begin_offset, header.min_offset, header.max_offset), (1, 0, 1));

        let view = ViewMessageRequestHeader { topic: None, offset: i64::try_from(message.phy.0).unwrap() };
        let viewed = caller.ask(Request::ViewMessageById(view), "").await;
        assert_eq!(viewed.body_bytes(), pulled.response.body_bytes());
    });
}

#[test]
fn batch_becomes_consecutive_messages() {
    with_broker("flushDiskType=SYNC_FLUSH", |_, caller| async move {
        let mut body = Vec::new();
        for text in ["one", "two", "three"] {
            encode_batch_item(&Message::new("t", text).with_tags(text).unwrap(), &mut body).unwrap();
        }
        let header = SendMessageRequestHeader { batch: Some(true), ..send_to("t", &[]) };
        let sent = caller.ask(Request::SendBatchMessage(header.clone()), body).await;
        assert_eq!(sent.code, ResponseCode::SUCCESS, "{sent:?}");
        let told: SendMessageResponseHeader = sent.decode().unwrap();
        assert_eq!(told.msg_id.split(',').count(), 3);
        for offset in 0..3 {
            caller.pull(waiting(pull_from("t", offset), TIMEOUT)).await;
        }
        let pulled = caller.pull(pull_from("t", 1)).await;
        assert_eq!(pulled.bodies(), ["two", "three"]);
        assert_eq!(pulled.messages[0].message.tags(), Some("two"));

        let garbage = caller.ask(Request::SendBatchMessage(header.clone()), "garbage").await;
        assert_eq!(garbage.code, ResponseCode::MESSAGE_ILLEGAL);
        let empty = caller.ask(Request::SendBatchMessage(header), "").await;
        assert_eq!(empty.code, ResponseCode::SYSTEM_ERROR);
    });
}

#[test]
fn one_way_send_is_stored_without_an_answer() {
    with_broker("", |_, caller| async move {
        let request = Request::SendMessageV2(send_to("t", &[]));
        caller.client.send_one_way(&caller.address.to_string(), request, "quiet".to_owned()).unwrap();
        // The topic may not exist yet when the pull arrives, and a pull makes none.
        loop {
            let pulled = caller.pull(waiting(pull_from("t", 0), TIMEOUT)).await;
            if pulled.response.code != ResponseCode::TOPIC_NOT_EXIST {
                break assert_eq!(pulled.bodies(), ["quiet"]);
            }
        }
    });
}

#[test]
fn refused_sends_say_why() {
    with_broker("autoCreateTopicEnable=false\nmaxMessageSize=100", |_, caller| async move {
        let code = async |header: SendMessageRequestHeader, body: &str| caller.send(header, body).await.code;
        assert_eq!(code(send_to("t", &[]), "x").await, ResponseCode::TOPIC_NOT_EXIST);
        assert_eq!(code(send_to("a b", &[]), "x").await, ResponseCode::INVALID_PARAMETER);
        assert_eq!(code(send_to(&"x".repeat(200), &[]), "x").await, ResponseCode::MESSAGE_ILLEGAL);
        assert_eq!(code(send_to("SCHEDULE_TOPIC_XXXX", &[]), "x").await, ResponseCode::NO_PERMISSION);
        assert_eq!(code(send_to("BenchmarkTest", &[]), "").await, ResponseCode::SYSTEM_ERROR);
        assert_eq!(code(send_to("BenchmarkTest", &[]), &"x".repeat(101)).await, ResponseCode::MESSAGE_ILLEGAL);
        let header = SendMessageRequestHeader { queue_id: 1024, ..send_to("BenchmarkTest", &[]) };
        assert_eq!(code(header, "x").await, ResponseCode::INVALID_PARAMETER);
        let long = "v".repeat(40_000);
        assert_eq!(code(send_to("BenchmarkTest", &[("k", &long)]), "x").await, ResponseCode::MESSAGE_ILLEGAL);
        let transaction = send_to("BenchmarkTest", &[("TRAN_MSG", "true")]);
        assert_eq!(code(transaction, "x").await, ResponseCode::NO_PERMISSION);
        let header = SendMessageRequestHeader { queue_id: -1, ..send_to("BenchmarkTest", &[]) };
        assert_eq!(code(header, "x").await, ResponseCode::SUCCESS);
        let refused = caller.send(send_to("t", &[]), "x").await;
        assert_eq!(refused.fields.get("MSG_REGION"), Some("DefaultRegion"));
    });
}

#[test]
fn held_pull_is_woken_by_a_message() {
    with_broker("", |host, caller| async move {
        caller.send(send_to("t", &[]), "first").await;
        caller.pull(waiting(pull_from("t", 0), TIMEOUT)).await;
        let puller = caller.clone();
        let held = host.spawn("held", async move { puller.pull(waiting(pull_from("t", 1), TIMEOUT)).await });
        host.sleep(Duration::from_millis(100)).await;
        let sent_at = host.now();
        caller.send(send_to("t", &[]), "second").await;
        let pulled = held.await.unwrap();
        assert_eq!(pulled.bodies(), ["second"]);
        assert!(host.now().since(sent_at) < Duration::from_secs(2));
    });
}

#[test]
fn held_pull_gives_up_after_its_time() {
    with_broker("", |host, caller| async move {
        caller.send(send_to("t", &[]), "first").await;
        caller.pull(waiting(pull_from("t", 0), TIMEOUT)).await;
        let asked_at = host.now();
        let pulled = caller.pull(waiting(pull_from("t", 1), Duration::from_millis(300))).await;
        assert!(host.now().since(asked_at) >= Duration::from_millis(300));
        assert_eq!(pulled.response.code, ResponseCode::PULL_NOT_FOUND);
        assert_eq!(pulled.header.unwrap().next_begin_offset, 1);
    });
}

#[test]
fn held_pull_passes_by_what_its_filter_does_not_want() {
    with_broker("", |host, caller| async move {
        caller.send(send_to("t", &[("TAGS", "a")]), "0").await;
        caller.pull(waiting(pull_from("t", 0), TIMEOUT)).await;
        let mut header = waiting(pull_from("t", 1), Duration::from_millis(500));
        header.subscription = Some("b || c".to_owned());
        let puller = caller.clone();
        let held = host.spawn("held", async move { puller.pull(header).await });
        host.sleep(Duration::from_millis(100)).await;
        caller.send(send_to("t", &[("TAGS", "a")]), "1").await;
        let pulled = held.await.unwrap();
        assert_eq!(pulled.response.code, ResponseCode::PULL_RETRY_IMMEDIATELY);
        assert_eq!(pulled.header.unwrap().next_begin_offset, 2);
        assert!(pulled.messages.is_empty());
    });
}

#[test]
fn pull_outside_the_queue_is_moved_to_its_end() {
    with_broker("", |_, caller| async move {
        caller.send(send_to("t", &[]), "x").await;
        caller.pull(waiting(pull_from("t", 0), TIMEOUT)).await;
        let moved = async |offset: i64| {
            let pulled = caller.pull(pull_from("t", offset)).await;
            (pulled.response.code, pulled.header.unwrap().next_begin_offset)
        };
        assert_eq!(moved(9).await, (ResponseCode::PULL_OFFSET_MOVED, 1));
        assert_eq!(moved(-1).await, (ResponseCode::PULL_OFFSET_MOVED, 0));
        assert_eq!(moved(1).await, (ResponseCode::PULL_NOT_FOUND, 1));
        let mut other = pull_from("t", 5);
        other.queue_id = 3;
        let pulled = caller.pull(other).await;
        assert_eq!(pulled.response.code, ResponseCode::PULL_OFFSET_MOVED);
        assert_eq!(pulled.header.unwrap().next_begin_offset, 0);
    });
}

#[test]
fn refused_pulls_say_why() {
    with_broker("", |_, caller| async move {
        caller.send(send_to("t", &[]), "x").await;
        assert_eq!(caller.pull(pull_from("nobody", 0)).await.response.code, ResponseCode::TOPIC_NOT_EXIST);
        let mut header = pull_from("t", 0);
        header.queue_id = 4;
        assert_eq!(caller.pull(header.clone()).await.response.code, ResponseCode::INVALID_PARAMETER);
        header.queue_id = 0;
        header.subscription = Some("||".to_owned());
        assert_eq!(caller.pull(header.clone()).await.response.code, ResponseCode::SUBSCRIPTION_PARSE_FAILED);
        header.expression_type = Some("SQL92".to_owned());
        assert_eq!(caller.pull(header.clone()).await.response.code, ResponseCode::SYSTEM_ERROR);
        header.sys_flag = 0;
        assert_eq!(caller.pull(header.clone()).await.response.code, ResponseCode::SUBSCRIPTION_NOT_EXIST);
        caller.beat("me", "g", "t").await;
        assert_eq!(caller.pull(header.clone()).await.bodies(), ["x"]);
        header.sub_version = 1;
        assert_eq!(caller.pull(header).await.response.code, ResponseCode::SUBSCRIPTION_NOT_LATEST);
    });
}

#[test]
fn delayed_message_arrives_after_its_level() {
    with_broker("messageDelayLevel=1s 2s", |host, caller| async move {
        let sent_at = host.now();
        let sent = caller.send(send_to("t", &[("DELAY", "1")]), "later").await;
        assert_eq!(sent.code, ResponseCode::SUCCESS, "{sent:?}");
        assert!(caller.pull(pull_from("t", 0)).await.messages.is_empty());
        let pulled = caller.pull(waiting(pull_from("t", 0), TIMEOUT)).await;
        assert_eq!(pulled.bodies(), ["later"]);
        assert!(host.now().since(sent_at) >= Duration::from_millis(900));
        assert_eq!(pulled.messages[0].message.delay_level(), None);
        assert_eq!(pulled.messages[0].sys_flag, SysFlag(0));
    });
}

/// Changes the first byte of a body in the log of a broker that runs.
#[expect(clippy::disallowed_types, reason = "it writes behind the back of the broker, into a file that is mapped")]
fn spoil(root: &Path, body: &str) {
    let path = root.join("commitlog").join("0".repeat(20));
    let log = std::fs::read(&path).unwrap();
    let at = log.windows(body.len()).position(|bytes| bytes == body.as_bytes()).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"#", at as u64).unwrap();
}

#[test]
fn a_delayed_message_with_a_spoilt_body_is_passed_over() {
    run(|_, folder| async move {
        let broker = Broker::start(config(folder.path(), "messageDelayLevel=1s")).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        for body in ["spoilt by the disk", "whole"] {
            caller.send(send_to("t", &[("DELAY", "1")]), body).await;
        }
        spoil(folder.path(), "spoilt by the disk");
        assert_eq!(caller.pull(waiting(pull_from("t", 0), TIMEOUT)).await.bodies(), ["whole"]);
        broker.shutdown().await.unwrap();
    });
}

#[test]
fn a_message_with_a_spoilt_body_cannot_be_given_back() {
    run(|_, folder| async move {
        let broker = Broker::start(config(folder.path(), "")).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        caller.send(send_to("t", &[]), "spoilt by the disk").await;
        let pulled = caller.pull(waiting(pull_from("t", 0), TIMEOUT)).await.messages.remove(0);
        spoil(folder.path(), "spoilt by the disk");
        let back = ConsumerSendMsgBackRequestHeader {
            offset: i64::try_from(pulled.phy.0).unwrap(),
            group: "g".to_owned(),
            delay_level: 0,
            origin_msg_id: None,
            origin_topic: None,
            unit_mode: None,
            max_reconsume_times: None,
            broker_name: None,
        };
        let answer = caller.ask(Request::ConsumerSendMsgBack(back), "").await;
        assert_eq!(answer.code, ResponseCode::SYSTEM_ERROR);
        broker.shutdown().await.unwrap();
    });
}

fn by_key(topic: &str, key: &str, max_num: i32) -> QueryMessageRequestHeader {
    let (begin_timestamp, end_timestamp) = (0, i64::MAX);
    let (topic, key) = (topic.to_owned(), key.to_owned());
    QueryMessageRequestHeader { topic, key, max_num, begin_timestamp, end_timestamp, unique_key_query: None }
}

#[test]
fn messages_are_found_by_key_and_by_unique_id() {
    with_broker("defaultQueryMaxNum=2", |_, caller| async move {
        let mut sent = Vec::new();
        for number in 0..5 {
            let keys = format!("all n{number}");
            let unique = format!("U{}", number / 3);
            let told = caller.send(send_to("t", &[("KEYS", &keys), ("UNIQ_KEY", &unique)]), &number.to_string()).await;
            sent.push(told.decode::<SendMessageResponseHeader>().unwrap());
            caller.pull(waiting(pull_from("t", number), TIMEOUT)).await;
        }
        caller.send(send_to("other", &[("KEYS", "all")]), "other").await;
        caller.pull(waiting(pull_from("other", 0), TIMEOUT)).await;

        let ask = async |header: QueryMessageRequestHeader| caller.ask(Request::QueryMessage(header), "").await;
        let bodies = |response: &Response| -> Vec<String> {
            let messages = StoredMessage::decode_all(response.body_bytes()).unwrap();
            messages.iter().map(|found| String::from_utf8(found.message.body.to_vec()).unwrap()).collect()
        };
        // A message is indexed a moment after it can be pulled.
        let mut all = ask(by_key("other", "all", 64)).await;
        while all.code == ResponseCode::QUERY_NOT_FOUND {
            all = ask(by_key("other", "all", 64)).await;
        }
        assert_eq!(bodies(&all), ["other"]);
        let all = ask(by_key("t", "all", 64)).await;
        assert_eq!(
            (all.code, bodies(&all)),
            (ResponseCode::SUCCESS, ["0", "1", "2", "3", "4"].map(str::to_owned).to_vec())
        );
        let header: QueryMessageResponseHeader = all.decode().unwrap();
        let messages = StoredMessage::decode_all(all.body_bytes()).unwrap();
        assert!(header.index_last_update_phy_offset > i64::try_from(messages[4].phy.0).unwrap(), "{header:?}");
        assert!(header.index_last_update_timestamp >= messages[4].store_ms, "{header:?}");
        assert_eq!(bodies(&ask(by_key("t", "all", 2)).await), ["3", "4"]);
        assert_eq!(bodies(&ask(by_key("t", "n3", 64)).await), ["3"]);
        assert_eq!(bodies(&ask(by_key("t", "U1", 64)).await), ["3", "4"]);
        let unique = QueryMessageRequestHeader { unique_key_query: Some(true), ..by_key("t", "U0", 64) };
        assert_eq!(bodies(&ask(unique).await), ["1", "2"], "defaultQueryMaxNum bounds a search by unique id");
        let early = QueryMessageRequestHeader { end_timestamp: messages[1].store_ms, ..by_key("t", "all", 64) };
        assert_eq!(
            messages.iter().filter(|found| found.store_ms <= messages[1].store_ms).count(),
            bodies(&ask(early).await).len()
        );
        for nothing in [by_key("t", "n5", 64), by_key("u", "n3", 64), by_key("t", "n3", 0), by_key("t", "n3", -1)] {
            let refused = ask(nothing).await;
            assert_eq!(refused.code, ResponseCode::QUERY_NOT_FOUND);
            assert_eq!(refused.remark.as_deref(), Some("can not find message, maybe time range not correct"));
        }
        // The place that a producer was told leads to the message too.
        let id = message::OffsetMessageId::parse(&sent[3].msg_id).unwrap();
        let view = ViewMessageRequestHeader { topic: Some("t".to_owned()), offset: i64::try_from(id.phy.0).unwrap() };
        assert_eq!(bodies(&caller.ask(Request::ViewMessageById(view), "").await), ["3"]);
        let nowhere = ViewMessageRequestHeader { topic: None, offset: 1 };
        assert_eq!(caller.ask(Request::ViewMessageById(nowhere), "").await.code, ResponseCode::SYSTEM_ERROR);
    });
}
