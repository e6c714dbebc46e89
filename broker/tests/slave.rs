//! What a slave answers, and how it follows its master. Its log is one that it kept from a life as a master.

mod stage;

use std::{path::Path, time::Duration};

use host::Host;
use remoting::{
    ConsumerSendMsgBackRequestHeader, CreateTopicRequestHeader, EndTransactionRequestHeader,
    GetAllSubscriptionGroupRequestHeader, GetAllTopicConfigRequestHeader, NoHeader, PullMessageRequestHeader,
    QueryConsumerOffsetRequestHeader, QueryConsumerOffsetResponseHeader, Request, ResponseCode,
    UpdateConsumerOffsetRequestHeader,
    body::{Body, ConsumerOffsetTable},
};
use stage::{Caller, Names, Pulled, config, copy_dir, pull_from, run, send_to, waiting};
use staticfire_broker::{Broker, BrokerConfig};

const COUNT: i64 = 5;

/// Leaves a store with [`COUNT`] messages in queue 0 of topic `t`, and with the group `g`.
async fn prime(folder: &Path) {
    let broker = Broker::start(config(folder, "")).await.unwrap();
    let caller = Caller::new(broker.local_addr());
    for number in 0..COUNT {
        let sent = caller.send(send_to("t", &[]), &number.to_string()).await;
        assert_eq!(sent.code, ResponseCode::SUCCESS);
    }
    caller.pull(waiting(pull_from("t", COUNT - 1), stage::TIMEOUT)).await;
    broker.shutdown().await.unwrap();
}

fn slave(folder: &Path, more: &str) -> BrokerConfig {
    config(folder, &format!("brokerRole=SLAVE\nbrokerId=1\n{more}"))
}

async fn start(folder: &Path, more: &str) -> (Broker, Caller) {
    let broker = Broker::start(slave(folder, more)).await.unwrap();
    let caller = Caller::new(broker.local_addr());
    (broker, caller)
}

/// Code, next offset and suggested broker of an answer to a pull.
fn told(pulled: &Pulled) -> (ResponseCode, i64, i64) {
    let header = pulled.header.as_ref().unwrap();
    (pulled.response.code, header.next_begin_offset, header.suggest_which_broker_id)
}

fn commit(offset: i64) -> Request {
    Request::UpdateConsumerOffset(UpdateConsumerOffsetRequestHeader {
        consumer_group: "g".to_owned(),
        topic: "t".to_owned(),
        queue_id: Some(0),
        commit_offset: Some(offset),
        broker_name: None,
        sf_log_epoch: None,
    })
}

fn query() -> Request {
    Request::QueryConsumerOffset(QueryConsumerOffsetRequestHeader {
        consumer_group: "g".to_owned(),
        topic: "t".to_owned(),
        queue_id: 0,
        set_zero_if_not_found: None,
        broker_name: None,
    })
}

#[test]
fn slave_takes_no_messages_and_no_changes_and_is_not_read() {
    run(|_, folder| async move {
        prime(folder.path()).await;
        let (broker, caller) = start(folder.path(), "").await;
        let sent = caller.send(send_to("t", &[]), "x").await;
        assert_eq!(sent.code, ResponseCode::SYSTEM_BUSY);
        assert!(sent.remark.unwrap().starts_with("[REJECTREQUEST]"));
        assert_eq!(caller.pull(pull_from("t", 0)).await.response.code, ResponseCode::SYSTEM_BUSY);
        let back = ConsumerSendMsgBackRequestHeader {
            offset: 0,
            group: "g".to_owned(),
            delay_level: 0,
            origin_msg_id: None,
            origin_topic: None,
            unit_mode: None,
            max_reconsume_times: None,
            broker_name: None,
        };
        assert_eq!(caller.ask(Request::ConsumerSendMsgBack(back), "").await.code, ResponseCode::SYSTEM_BUSY);
        let end = EndTransactionRequestHeader { producer_group: "p".to_owned(), ..end_of_transaction() };
        assert_eq!(caller.ask(Request::EndTransaction(end), "").await.code, ResponseCode::SLAVE_NOT_AVAILABLE);
        let topic = Request::UpdateAndCreateTopic(new_topic("u"));
        assert_eq!(caller.ask(topic, "").await.code, ResponseCode::SYSTEM_ERROR);
        // Where a group is, its consumers may tell and ask.
        assert_eq!(caller.ask(commit(3), "").await.code, ResponseCode::SUCCESS);
        assert_eq!(caller.ask(query(), "").await.code, ResponseCode::SUCCESS);
        broker.shutdown().await.unwrap();
    });
}

fn end_of_transaction() -> EndTransactionRequestHeader {
    EndTransactionRequestHeader {
        topic: None,
        producer_group: String::new(),
        tran_state_table_offset: 0,
        commit_log_offset: 0,
        commit_or_rollback: 8,
        from_transaction_check: None,
        msg_id: String::new(),
        transaction_id: None,
        broker_name: None,
    }
}

fn new_topic(name: &str) -> CreateTopicRequestHeader {
    CreateTopicRequestHeader {
        topic: name.to_owned(),
        default_topic: "TBW102".to_owned(),
        read_queue_nums: 1,
        write_queue_nums: 1,
        perm: 6,
        topic_filter_type: "SINGLE_TAG".to_owned(),
        topic_sys_flag: None,
        order: false,
        attributes: None,
        force: None,
    }
}

/// Neither the group of a heartbeat nor its retry topic: both come from the master.
#[test]
fn slave_makes_no_groups_and_no_topics() {
    run(|_, folder| async move {
        prime(folder.path()).await;
        let (broker, caller) = start(folder.path(), "slaveReadEnable=true").await;
        assert_eq!(caller.beat("c1", "new", "t").await.code, ResponseCode::SUCCESS);
        let pull = PullMessageRequestHeader { consumer_group: "new".to_owned(), sys_flag: 0, ..pull_from("t", 0) };
        assert_eq!(caller.pull(pull).await.bodies(), ["0", "1", "2", "3", "4"]);
        broker.shutdown().await.unwrap();
        let table = |name: &str| std::fs::read_to_string(folder.path().join("config").join(name)).unwrap();
        assert!(!table("topics.json").contains("%RETRY%new"));
        assert!(!table("subscriptionGroup.json").contains("\"new\""));
    });
}

/// The master died before its tables could be copied.
#[test]
fn slave_serves_a_topic_that_came_with_the_log_alone() {
    run(|_, folder| async move {
        prime(folder.path()).await;
        for name in ["topics.json", "topics.json.bak"] {
            let _ = std::fs::remove_file(folder.path().join("config").join(name));
        }
        let (broker, caller) = start(folder.path(), "slaveReadEnable=true").await;
        assert_eq!(caller.pull(pull_from("t", 0)).await.bodies(), ["0", "1", "2", "3", "4"]);
        assert_eq!(caller.ask(commit(5), "").await.code, ResponseCode::SUCCESS);
        let other = caller.pull(PullMessageRequestHeader { queue_id: 1, ..pull_from("t", 0) }).await;
        assert_eq!(other.response.code, ResponseCode::TOPIC_NOT_EXIST, "of that queue nothing came");
        broker.shutdown().await.unwrap();
    });
}

#[test]
fn slave_without_a_master_serves_what_it_has_and_corrects_no_offset() {
    run(|host, folder| async move {
        prime(folder.path()).await;
        let (broker, caller) = start(folder.path(), "slaveReadEnable=true").await;
        let found = caller.pull(pull_from("t", 1)).await;
        assert_eq!(told(&found), (ResponseCode::SUCCESS, COUNT, 0));
        assert_eq!(found.bodies(), ["1", "2", "3", "4"]);
        let end = caller.pull(pull_from("t", COUNT)).await;
        assert_eq!(told(&end), (ResponseCode::PULL_NOT_FOUND, COUNT, 0));
        // A master would send the client to the end of the queue.
        let beyond = caller.pull(pull_from("t", COUNT + 7)).await;
        assert_eq!(told(&beyond), (ResponseCode::PULL_RETRY_IMMEDIATELY, COUNT + 7, 0));
        let began = host.now();
        let beyond = caller.pull(waiting(pull_from("t", COUNT + 7), Duration::from_millis(300))).await;
        assert_eq!(told(&beyond), (ResponseCode::PULL_RETRY_IMMEDIATELY, COUNT + 7, 0));
        assert!(host.now().since(began) >= Duration::from_millis(300), "whoever asks at once again is held");
        broker.shutdown().await.unwrap();
        let (broker, caller) = start(folder.path(), "slaveReadEnable=true\noffsetCheckInSlave=true").await;
        let beyond = caller.pull(pull_from("t", COUNT + 7)).await;
        assert_eq!(told(&beyond), (ResponseCode::PULL_OFFSET_MOVED, COUNT, 0));
        broker.shutdown().await.unwrap();
    });
}

#[test]
fn slave_with_a_master_sends_who_is_at_its_end_there() {
    run(|host, folder| async move {
        prime(folder.path()).await;
        let names = Names::start().await;
        names.set_master(Some("127.0.0.1:9"));
        let more = format!("slaveReadEnable=true\n{}", names.setting());
        let (broker, caller) = start(folder.path(), &more).await;
        until_master_known(&host, &caller).await;
        let found = caller.pull(pull_from("t", 0)).await;
        assert_eq!(told(&found), (ResponseCode::SUCCESS, COUNT, 0));
        let began = host.now();
        let end = caller.pull(waiting(pull_from("t", COUNT), stage::TIMEOUT)).await;
        assert_eq!(told(&end), (ResponseCode::PULL_RETRY_IMMEDIATELY, COUNT, 0));
        assert!(host.now().since(began) < stage::TIMEOUT / 2);
        assert!(names.told.registered.lock().unwrap().contains(&(1, caller.address.to_string())));
        broker.shutdown().await.unwrap();
    });
}

/// A slave that knows its master answers a pull at its end with code 20, else with 19.
async fn until_master_known(host: &Host, caller: &Caller) {
    while caller.pull(pull_from("t", COUNT)).await.response.code != ResponseCode::PULL_RETRY_IMMEDIATELY {
        host.sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn slave_notices_that_its_master_is_gone() {
    run(|host, folder| async move {
        prime(folder.path()).await;
        let names = Names::start().await;
        names.set_master(Some("127.0.0.1:9"));
        let more = format!("slaveReadEnable=true\n{}", names.setting());
        let (broker, caller) = start(folder.path(), &more).await;
        until_master_known(&host, &caller).await;
        names.set_master(None);
        names.registered_again(&host, 1).await;
        while caller.pull(pull_from("t", COUNT)).await.response.code != ResponseCode::PULL_NOT_FOUND {
            host.sleep(Duration::from_millis(10)).await;
        }
        broker.shutdown().await.unwrap();
    });
}

/// Offsets that a client read from its master stay what they are, and keep the master's mark.
#[test]
fn slave_leaves_the_epochs_of_its_master_alone() {
    run(|_, folder| async move {
        prime(folder.path()).await;
        let (broker, caller) = start(folder.path(), "slaveReadEnable=true").await;
        for epoch in [None, Some(remoting::LogEpoch(77))] {
            let pulled = caller.pull(PullMessageRequestHeader { sf_log_epoch: epoch, ..pull_from("t", 2) }).await;
            assert_eq!(told(&pulled), (ResponseCode::SUCCESS, COUNT, 0));
            assert_eq!(pulled.header.unwrap().sf_log_epoch, epoch);
        }
        broker.shutdown().await.unwrap();
    });
}

#[test]
fn master_sends_who_lags_far_behind_to_the_slave_that_the_group_names() {
    run(|_, folder| async move {
        prime(folder.path()).await;
        let group = r#"{"groupName":"g","brokerId":0,"whichBrokerWhenConsumeSlowly":2}"#;
        for (memory_bytes, more, suggested) in [
            (u64::from(u32::MAX), "slaveReadEnable=true", 0),
            // 40 % of this is less than what lies behind the first messages.
            (1_000, "slaveReadEnable=true", 2),
            (1_000, "slaveReadEnable=false", 0),
        ] {
            let mut config = config(folder.path(), more);
            config.store.memory_bytes = memory_bytes;
            let broker = Broker::start(config).await.unwrap();
            let caller = Caller::new(broker.local_addr());
            let put = Request::UpdateAndCreateSubscriptionGroup(remoting::NoHeader);
            assert_eq!(caller.ask(put, group).await.code, ResponseCode::SUCCESS);
            let one = PullMessageRequestHeader { max_msg_nums: 1, ..pull_from("t", 0) };
            assert_eq!(told(&caller.pull(one).await), (ResponseCode::SUCCESS, 1, suggested));
            broker.shutdown().await.unwrap();
        }
    });
}

/// What replicas copy, as one broker tells it.
async fn tables(caller: &Caller) -> Vec<bytes::Bytes> {
    let topics = GetAllTopicConfigRequestHeader { topic_seq: None, data_version: None, max_topic_num: None };
    let groups = GetAllSubscriptionGroupRequestHeader { group_seq: None, data_version: None, max_group_num: None };
    let requests = [
        Request::GetAllTopicConfig(topics),
        Request::GetAllConsumerOffset(NoHeader),
        Request::GetAllSubscriptionGroupConfig(groups),
        Request::GetAllMessageRequestMode(NoHeader),
        Request::GetAllDelayOffset(NoHeader),
    ];
    let mut tables = Vec::new();
    for request in requests {
        let answer = caller.ask(request, "").await;
        assert_eq!(answer.code, ResponseCode::SUCCESS);
        tables.push(answer.body_bytes());
    }
    tables
}

/// A master with something in every table: topics, groups, offsets, delayed messages, modes.
async fn busy_master(folder: &Path) -> (Broker, Caller) {
    std::fs::create_dir_all(folder.join("config")).unwrap();
    let mode = r#"{"messageRequestModeMap":{"t":{"g":{"topic":"t","consumerGroup":"g","mode":"POP"}}}}"#;
    std::fs::write(folder.join("config/messageRequestMode.json"), mode).unwrap();
    let broker = Broker::start(config(folder, "messageDelayLevel=1s 1h")).await.unwrap();
    let caller = Caller::new(broker.local_addr());
    assert_eq!(caller.ask(Request::UpdateAndCreateTopic(new_topic("made")), "").await.code, ResponseCode::SUCCESS);
    assert_eq!(caller.beat("c1", "g", "t").await.code, ResponseCode::SUCCESS);
    assert_eq!(caller.send(send_to("t", &[("DELAY", "1")]), "later").await.code, ResponseCode::SUCCESS);
    assert_eq!(caller.pull(waiting(pull_from("t", 0), stage::TIMEOUT)).await.bodies(), ["later"]);
    assert_eq!(caller.ask(commit(1), "").await.code, ResponseCode::SUCCESS);
    (broker, caller)
}

#[test]
fn slave_has_the_tables_of_its_master_and_keeps_them() {
    run(|host, folder| async move {
        let (master, asked) = busy_master(&folder.path().join("master")).await;
        let names = Names::start().await;
        names.set_master(Some(&asked.address.to_string()));
        let empty = folder.path().join("slave");
        let (slave, caller) = start(&empty, &names.setting()).await;
        let of_master = tables(&asked).await;
        while tables(&caller).await[..4] != of_master[..4] {
            host.sleep(Duration::from_millis(10)).await;
        }
        // Its log lacks what was delivered, so the delayed message does not count as delivered here.
        let progress = String::from_utf8(tables(&caller).await[4].to_vec()).unwrap();
        assert!(progress.contains(r#""offsetTable":{}"#), "{progress}");
        slave.shutdown().await.unwrap();
        let offsets = std::fs::read_to_string(empty.join("config/consumerOffset.json")).unwrap();
        assert!(offsets.contains("\"t@g\": {\n      \"0\": 1\n"), "{offsets}");
        names.set_master(None);
        let (slave, caller) = start(&empty, &names.setting()).await;
        assert!(tables(&caller).await[2..4] == of_master[2..4], "they are in its files");
        slave.shutdown().await.unwrap();
        master.shutdown().await.unwrap();
    });
}

#[test]
fn progress_of_delayed_messages_is_taken_when_the_log_is_there() {
    run(|host, folder| async move {
        let at = |name: &str| folder.path().join(name);
        let (master, _) = busy_master(&at("master")).await;
        master.shutdown().await.unwrap();
        copy_dir(&at("master"), &at("slave"));
        std::fs::remove_file(at("slave").join("config/delayOffset.json")).unwrap();
        let _ = std::fs::remove_file(at("slave").join("config/delayOffset.json.bak"));
        let master = Broker::start(config(&at("master"), "messageDelayLevel=1s 1h")).await.unwrap();
        let asked = Caller::new(master.local_addr());
        let names = Names::start().await;
        names.set_master(Some(&asked.address.to_string()));
        let (slave, caller) = start(&at("slave"), &format!("messageDelayLevel=1s 1h\n{}", names.setting())).await;
        while tables(&caller).await != tables(&asked).await {
            host.sleep(Duration::from_millis(10)).await;
        }
        let progress = String::from_utf8(tables(&caller).await[4].to_vec()).unwrap();
        assert!(progress.contains(r#""offsetTable":{1:1}"#), "{progress}");
        slave.shutdown().await.unwrap();
        master.shutdown().await.unwrap();
    });
}

#[test]
fn ho11_slave_keeps_what_was_committed_to_it_without_a_master() {
    run(|host, folder| async move {
        let at = |name: &str| folder.path().join(name);
        prime(&at("slave")).await;
        let names = Names::start().await;
        let (slave, caller) = start(&at("slave"), &names.setting()).await;
        assert_eq!(caller.ask(commit(4), "").await.code, ResponseCode::SUCCESS);
        let (master, asked) = busy_master(&at("master")).await;
        names.set_master(Some(&asked.address.to_string()));
        names.registered_again(&host, 1).await;
        while tables(&caller).await[2] != tables(&asked).await[2] {
            host.sleep(Duration::from_millis(10)).await;
        }
        let kept: QueryConsumerOffsetResponseHeader = caller.ask(query(), "").await.decode().unwrap();
        assert_eq!(kept.offset, 4, "the master has 1");
        let table = caller.ask(Request::GetAllConsumerOffset(NoHeader), "").await;
        let table = ConsumerOffsetTable::decode(&table.body_bytes()).unwrap();
        assert_eq!(table.sf_committed_alone.unwrap()["t@g"], [0]);
        slave.shutdown().await.unwrap();
        master.shutdown().await.unwrap();
    });
}
