//! Starting, stopping and restarting a broker.

mod stage;

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use remoting::{
    Handler, Inbound, NoHeader, Peer, QueryConsumerOffsetRequestHeader, Reply, Request, Response, ResponseCode, Server,
    ServerConfig, UpdateConsumerOffsetRequestHeader, Version,
    body::{Body, KvTable, RegisterBrokerBody},
};
use stage::{Caller, TIMEOUT, config, pull_from, run, send_to, waiting};
use staticfire_broker::{Broker, BrokerConfig, Role, StartError};

#[test]
fn messages_topics_groups_and_offsets_survive_a_restart() {
    run(|_, folder| async move {
        let broker = Broker::start(config(folder.path(), "")).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        for body in ["0", "1", "2"] {
            assert_eq!(caller.send(send_to("t", &[]), body).await.code, ResponseCode::SUCCESS);
        }
        caller.pull(waiting(pull_from("t", 2), TIMEOUT)).await;
        let commit = UpdateConsumerOffsetRequestHeader {
            consumer_group: "g".to_owned(),
            topic: "t".to_owned(),
            queue_id: Some(0),
            commit_offset: Some(2),
            broker_name: None,
            sf_log_epoch: None,
        };
        caller.ask(Request::UpdateConsumerOffset(commit), "").await;
        broker.shutdown().await.unwrap();
        assert!(folder.path().join("config/consumerOffset.json").exists());

        let broker = Broker::start(config(folder.path(), "autoCreateTopicEnable=false")).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        let query = QueryConsumerOffsetRequestHeader {
            consumer_group: "g".to_owned(),
            topic: "t".to_owned(),
            queue_id: 0,
            set_zero_if_not_found: None,
            broker_name: None,
        };
        let answer = caller.ask(Request::QueryConsumerOffset(query), "").await;
        assert_eq!(answer.fields.get("offset"), Some("2"));
        assert_eq!(caller.pull(pull_from("t", 2)).await.bodies(), ["2"]);
        assert_eq!(caller.send(send_to("t", &[]), "3").await.code, ResponseCode::SUCCESS);
        broker.shutdown().await.unwrap();
    });
}

#[test]
fn offsets_beyond_the_log_are_lowered_at_the_start() {
    run(|_, folder| async move {
        std::fs::create_dir_all(folder.path().join("config")).unwrap();
        let stored = "{\"offsetTable\":{\"t@g\":{0:77},\"no separator\":{0:1}}}";
        std::fs::write(folder.path().join("config/consumerOffset.json"), stored).unwrap();
        let broker = Broker::start(config(folder.path(), "")).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        let query = QueryConsumerOffsetRequestHeader {
            consumer_group: "g".to_owned(),
            topic: "t".to_owned(),
            queue_id: 0,
            set_zero_if_not_found: None,
            broker_name: None,
        };
        assert_eq!(caller.ask(Request::QueryConsumerOffset(query), "").await.fields.get("offset"), Some("0"));
        broker.shutdown().await.unwrap();
    });
}

/// Every file below a folder with its content.
fn content(folder: &std::path::Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { all.push((path.clone(), std::fs::read(path).unwrap())) }
        }
    }
    all.sort();
    all
}

#[test]
fn second_broker_on_a_store_is_refused_and_touches_nothing() {
    run(|host, folder| async move {
        let seldom = "flushIntervalCommitLog=1h\nflushIntervalConsumeQueue=1h\ncleanResourceInterval=1h";
        let broker = Broker::start(config(folder.path(), seldom)).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        caller.send(send_to("t", &[]), "x").await;
        // What the first broker itself still has to write.
        host.sleep(Duration::from_millis(500)).await;
        let before = content(folder.path());
        let error = Broker::start(config(folder.path(), "")).await.err().expect("the store is in use");
        let expected = format!("the store `{}` is in use by another broker", folder.path().display());
        assert_eq!(error.to_string(), expected);
        assert!(content(folder.path()) == before, "files changed");
        assert_eq!(caller.send(send_to("t", &[]), "y").await.code, ResponseCode::SUCCESS);
        broker.shutdown().await.unwrap();
    });
}

#[test]
fn taken_port_is_a_clear_error_and_the_store_is_closed_cleanly() {
    run(|host, folder| async move {
        let taken = host.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.unwrap();
        let address = taken.local_addr().unwrap();
        let settings = format!("listenPort={}", address.port());
        let error = Broker::start(config(folder.path(), &settings)).await.err().expect("the port is taken");
        assert!(matches!(error, StartError::Listen(_)));
        assert_eq!(error.to_string(), format!("cannot listen on {address}"));
        assert!(!folder.path().join("abort").exists(), "the exit counts as clean");
        drop(taken);
        Broker::start(config(folder.path(), "")).await.unwrap().shutdown().await.unwrap();
    });
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    run(|_, folder| async move {
        let refused = async |change: fn(&mut BrokerConfig)| {
            let mut config = config(folder.path(), "");
            change(&mut config);
            Broker::start(config).await.err().expect("the settings are wrong").to_string()
        };
        assert_eq!(
            refused(|config| config.role = Role::Slave).await,
            "brokerId = `0`: 0 is the master's, a slave needs a number of its own from 1 on"
        );
        assert_eq!(
            refused(|config| config.bind = Ipv4Addr::UNSPECIFIED.into()).await,
            "bindAddress = `0.0.0.0`: clients need an address and this is none: set brokerIP1"
        );
        assert!(content(folder.path()).is_empty());
    });
}

#[test]
fn a_table_of_things_that_cannot_be_is_refused() {
    run(|_, folder| async move {
        std::fs::create_dir(folder.path().join("config")).unwrap();
        let topics = folder.path().join("config/topics.json");
        let groups = folder.path().join("config/subscriptionGroup.json");
        let topic =
            |name: &str, more: &str| format!(r#"{{"topicConfigTable":{{"{name}":{{"topicName":"{name}"{more}}}}}}}"#);
        for (table, says) in [
            (topic("a", r#","writeQueueNums":-1"#), "topic a cannot have -1 queues, only 0 to 65536"),
            (topic("a", r#","readQueueNums":2147483647"#), "topic a cannot have 2147483647 queues, only 0 to 65536"),
            (topic("a", r#","perm":999"#), "perm 999 of topic a is not from 0 to 7"),
            (topic("../x", ""), "the topic name `../x` holds `.`, allowed are `%|a-zA-Z0-9_-`"),
            (r#"{"topicConfigTable":{"a":{"topicName":"b"}}}"#.to_owned(), "topic a is called `b` inside"),
        ] {
            std::fs::write(&topics, &table).unwrap();
            let error = Broker::start(config(folder.path(), "")).await.err().expect("the table is wrong").to_string();
            assert_eq!(error, format!("`{}`: {says}", topics.display()));
            assert_eq!(std::fs::read_to_string(&topics).unwrap(), table, "nothing was written");
        }
        std::fs::remove_file(&topics).unwrap();
        std::fs::write(&groups, r#"{"subscriptionGroupTable":{"../g":{"groupName":"../g"}}}"#).unwrap();
        let error = Broker::start(config(folder.path(), "")).await.err().expect("the table is wrong").to_string();
        assert_eq!(error, format!("`{}`: the group name `../g` is not legal", groups.display()));
        std::fs::remove_file(&groups).unwrap();
        Broker::start(config(folder.path(), "")).await.unwrap().shutdown().await.unwrap();
    });
}

/// A name server that accepts everything and keeps what it was told.
#[derive(Default)]
struct Told(Mutex<Vec<(Request, RegisterBrokerBody)>>);

impl Handler for Told {
    fn handle(&self, _: &Peer, inbound: Inbound) -> Reply {
        let body = RegisterBrokerBody::decode_any(&inbound.body, Version::CURRENT).unwrap_or_default();
        self.0.lock().unwrap().push((inbound.request, body));
        Response::success().into()
    }
}

#[test]
fn broker_registers_at_the_start_and_with_new_topics_and_takes_its_leave() {
    run(|host, folder| async move {
        let told = Arc::new(Told::default());
        let listen = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
        let handler = Arc::clone(&told) as Arc<dyn Handler>;
        let namesrv = Server::start(ServerConfig::new(listen), handler).await.unwrap();
        // The second name server does not exist, which must not hold up the first.
        let settings = format!("namesrvAddr={};127.0.0.1:1\nbrokerPermission=4", namesrv.local_addrs()[0]);
        let broker = Broker::start(config(folder.path(), &settings)).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        let registered = async |topic: &str| {
            loop {
                let last = told.0.lock().unwrap().last().cloned();
                if let Some((Request::RegisterBroker(header), body)) = last
                    && let Some(topic) = body.topic_config_serialize_wrapper.topic_config_table.get(topic)
                {
                    break (header, topic.clone());
                }
                host.sleep(Duration::from_millis(10)).await;
            }
        };
        let (header, topic) = host.timeout(TIMEOUT, registered("TBW102")).await.unwrap();
        assert_eq!(header.broker_addr, broker.local_addr().to_string());
        assert_eq!((header.broker_name.as_str(), header.broker_id), ("broker-a", 0));
        assert_eq!(topic.perm, 5, "what the broker does not allow, its topics do not");
        caller.send(send_to("fresh", &[]), "x").await;
        host.timeout(TIMEOUT, registered("fresh")).await.unwrap();
        broker.shutdown().await.unwrap();
        let last = told.0.lock().unwrap().last().cloned().unwrap();
        assert!(matches!(last.0, Request::UnregisterBroker(_)));
        namesrv.shutdown().await;
    });
}

#[test]
fn unknown_requests_are_answered_as_the_reference_does() {
    run(|_, folder| async move {
        let broker = Broker::start(config(folder.path(), "")).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        let answer = caller.ask(Request::GetBrokerClusterInfo(NoHeader), "").await;
        assert_eq!(answer.code, ResponseCode::REQUEST_CODE_NOT_SUPPORTED);
        assert_eq!(answer.remark.as_deref(), Some(" request type 106 not supported"));
        let runtime = caller.ask(Request::GetBrokerRuntimeInfo(NoHeader), "").await;
        let table = KvTable::decode(&runtime.body_bytes()).unwrap().table;
        assert_eq!(table["brokerActive"], "true");
        assert!(table.contains_key("commitLogMaxOffset"));
        broker.shutdown().await.unwrap();
    });
}
