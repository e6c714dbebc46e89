//! A whole cluster on the real machine: name server, brokers, producer and consumers over loopback.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use broker::{Broker, BrokerConfig, ReplicationStatus, SlaveState, StartError};
use client::{
    Admin, ClientConfig, ClientTiming, ConcurrentBatch, ConcurrentOutcome, Filter, Message, MessageQueue, Producer,
    PushConsumer, PushConsumerBuilder, RetryDelay, SendStatus, StartFrom, TopicSpec,
};
use host::Host;
use namesrv::{Namesrv, NamesrvConfig};
use remoting::settings::read_properties;

const DEADLINE: Duration = Duration::from_secs(5);

/// A name server, which keeps nothing on disk here.
async fn name_server(folder: &Path) -> Namesrv {
    let config = NamesrvConfig { port: 0, kv_config_path: folder.join("kv.json"), ..NamesrvConfig::default() };
    Namesrv::start(config).await.unwrap()
}

/// A broker with small files. Port 0 lets the machine choose.
async fn start_broker(folder: &Path, name: &str, port: u16, namesrv: SocketAddr) -> Broker {
    let more = format!("brokerName={name}\nlistenPort={port}");
    Broker::start(broker_config(&folder.join(name), namesrv, &more)).await.unwrap()
}

/// The machine's disk may be as full as it is.
const ANY_DISK: &str =
    "cleanFileForciblyEnable=false\ndiskMaxUsedSpaceRatio=100\nrocketmq.broker.diskSpaceWarningLevelRatio=1";

/// Settings of a broker with small files, and `more` lines.
fn broker_config(root: &Path, namesrv: SocketAddr, more: &str) -> BrokerConfig {
    let text = format!(
        "namesrvAddr={namesrv}\nstorePathRootDir={}\n\
         mappedFileSizeCommitLog=1MiB\nmappedFileSizeConsumeQueue=20000\n\
         maxHashSlotNum=1000\nmaxIndexNum=4000\n{ANY_DISK}\n{more}\n",
        root.display()
    );
    BrokerConfig::read(read_properties(&text, "broker").unwrap()).unwrap().0
}

fn config(namesrv: SocketAddr) -> ClientConfig {
    ClientConfig::builder().name_servers([namesrv.to_string()]).build().unwrap()
}

fn consumer(namesrv: SocketAddr, instance: &str) -> PushConsumerBuilder {
    let config = ClientConfig::builder().name_servers([namesrv.to_string()]).instance_name(instance).build().unwrap();
    PushConsumer::builder("billing", config).subscribe("orders", Filter::All).start_from(StartFrom::Earliest)
}

/// Creates the topic once all brokers are registered.
async fn create_topic(host: &Host, admin: &Admin, queues: u32, brokers: usize) {
    let spec = TopicSpec::new("orders", queues);
    for _ in 0..1000 {
        if admin.create_topic(&spec).await.is_ok()
            && admin.route("orders").await.is_ok_and(|route| route.broker_datas.len() == brokers)
        {
            return;
        }
        host.sleep(Duration::from_millis(10)).await;
    }
    panic!("the brokers did not register");
}

/// How often each body was delivered.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<String, usize>>>);

impl Seen {
    fn note(&self, batch: &ConcurrentBatch) {
        for message in &batch.messages {
            let body = String::from_utf8(message.body().to_vec()).unwrap();
            *self.0.lock().unwrap().entry(body).or_default() += 1;
        }
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn listener(&self) -> impl Fn(ConcurrentBatch) -> std::future::Ready<ConcurrentOutcome> + use<> {
        let seen = self.clone();
        move |batch| {
            seen.note(&batch);
            std::future::ready(ConcurrentOutcome::Success)
        }
    }
}

async fn until(host: &Host, what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        host.sleep(Duration::from_millis(10)).await;
    }
    panic!("not within thirty seconds: {what}");
}

fn on_node<F>(test: impl FnOnce(Host, tempfile::TempDir) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let folder = tempfile::tempdir().unwrap();
    host::real::run("cluster", |host| test(host, folder)).unwrap();
}

#[test]
fn messages_pass_from_producer_to_consumers_through_two_brokers() {
    on_node(|host, folder| async move {
        let namesrv = name_server(folder.path()).await;
        let names = namesrv.local_addr();
        let a = start_broker(folder.path(), "broker-a", 0, names).await;
        let b = start_broker(folder.path(), "broker-b", 0, names).await;
        let admin = Admin::connect(config(names)).await.unwrap();
        create_topic(&host, &admin, 4, 2).await;

        let seen = Seen::default();
        let one = consumer(names, "one").start_concurrent(seen.listener()).await.unwrap();
        let two = consumer(names, "two").start_concurrent(seen.listener()).await.unwrap();
        let producer = Producer::builder("checkout", config(names)).start().await.unwrap();
        for n in 0..40 {
            producer.send(Message::new("orders", format!("single {n}"))).await.unwrap();
        }
        for n in 0..10 {
            let message = Message::new("orders", format!("ordered {n}"));
            producer.send_ordered(message, "order-1001").await.unwrap();
        }
        let batch = (0..30).map(|n| Message::new("orders", format!("batch {n}"))).collect();
        let receipts = producer.send_batch(batch).await.unwrap();
        assert_eq!(receipts.len(), 30);
        producer.send(Message::new("orders", "large ".repeat(2000))).await.unwrap();
        producer.send_oneway(Message::new("orders", "one way")).await.unwrap();
        until(&host, "all messages", || seen.count() == 82).await;

        let viewed = admin.view_message("orders", &receipts[7].offset_message_id).await.unwrap();
        assert_eq!(&viewed.message.body[..], b"batch 7");
        for report in [one.shutdown(DEADLINE).await, two.shutdown(DEADLINE).await] {
            assert_eq!((report.listeners_ended, report.not_committed), (true, 0));
        }
        let mut committed = 0;
        for broker in ["broker-a", "broker-b"] {
            for id in 0..4 {
                let queue = MessageQueue::new("orders", broker, id);
                assert_eq!(admin.min_offset(&queue).await.unwrap().0, 0);
                let offset = admin.consumer_offset("billing", &queue).await.unwrap().unwrap_or_default();
                assert_eq!(offset, admin.max_offset(&queue).await.unwrap(), "{queue}");
                committed += offset.0;
            }
        }
        assert_eq!(committed, 82);
        producer.shutdown(DEADLINE).await;
        admin.shutdown().await;
        a.shutdown().await.unwrap();
        b.shutdown().await.unwrap();
        namesrv.shutdown().await;
    });
}

#[test]
fn a_failed_message_comes_back_from_the_retry_topic() {
    on_node(|host, folder| async move {
        let namesrv = name_server(folder.path()).await;
        let names = namesrv.local_addr();
        let broker = start_broker(folder.path(), "broker-a", 0, names).await;
        let admin = Admin::connect(config(names)).await.unwrap();
        create_topic(&host, &admin, 1, 1).await;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let listener = {
            let seen = Arc::clone(&seen);
            move |batch: ConcurrentBatch| {
                let message = &batch.messages[0];
                let times = message.reconsume_times();
                seen.lock().unwrap().push((message.topic().to_owned(), message.unique_id(), times));
                let later = ConcurrentOutcome::Later { delay: RetryDelay::Level(1) };
                std::future::ready(if times == 0 { later } else { ConcurrentOutcome::Success })
            }
        };
        let consumer = consumer(names, "one").start_concurrent(listener).await.unwrap();
        let producer = Producer::builder("checkout", config(names)).start().await.unwrap();
        let receipt = producer.send(Message::new("orders", "again")).await.unwrap();
        until(&host, "the retry", || seen.lock().unwrap().len() == 2).await;
        let id = receipt.message_id;
        assert_eq!(*seen.lock().unwrap(), [("orders".to_owned(), id.clone(), 0), ("orders".to_owned(), id, 1)]);
        consumer.shutdown(DEADLINE).await;
        producer.shutdown(DEADLINE).await;
        admin.shutdown().await;
        broker.shutdown().await.unwrap();
        namesrv.shutdown().await;
    });
}

#[test]
fn a_restarted_broker_goes_on_where_the_group_was() {
    on_node(|host, folder| async move {
        let namesrv = name_server(folder.path()).await;
        let names = namesrv.local_addr();
        let broker = start_broker(folder.path(), "broker-a", 0, names).await;
        let port = broker.local_addr().port();
        let admin = Admin::connect(config(names)).await.unwrap();
        create_topic(&host, &admin, 2, 1).await;
        let seen = Seen::default();
        let consumer = consumer(names, "one").start_concurrent(seen.listener()).await.unwrap();
        let producer = Producer::builder("checkout", config(names)).start().await.unwrap();
        for n in 0..20 {
            producer.send(Message::new("orders", format!("before {n}"))).await.unwrap();
        }
        until(&host, "the first messages", || seen.count() == 20).await;
        broker.shutdown().await.unwrap();
        drop(broker);

        let broker = start_broker(folder.path(), "broker-a", port, names).await;
        let mut sent = 0;
        for n in 0..100 {
            // The producer may have to find the broker again first.
            sent += usize::from(producer.send(Message::new("orders", format!("after {n}"))).await.is_ok());
            if sent == 20 {
                break;
            }
        }
        assert_eq!(sent, 20);
        until(&host, "the messages after the restart", || seen.count() >= 40).await;
        assert!(consumer.shutdown(DEADLINE).await.listeners_ended);
        producer.shutdown(DEADLINE).await;
        admin.shutdown().await;
        broker.shutdown().await.unwrap();
        namesrv.shutdown().await;
    });
}

/// A master dies, its slave is read, is made the master, and takes messages; the old one may not come back as it was.
#[test]
fn slave_takes_over_reads_and_when_it_is_promoted_writes() {
    on_node(|host, folder| async move {
        let namesrv = name_server(folder.path()).await;
        let names = namesrv.local_addr();
        let group = "brokerName=broker-a\nlistenPort=0\nslaveReadEnable=true\n";
        let at = |name: &str, role: &str| broker_config(&folder.path().join(name), names, &format!("{group}{role}"));
        let master = Broker::start(at("master", "brokerRole=SYNC_MASTER")).await.unwrap();
        let slave = Broker::start(at("slave", "brokerRole=SLAVE\nbrokerId=1")).await.unwrap();
        until(&host, "the slave follows", || slave.replication() == ReplicationStatus::Slave(SlaveState::Following))
            .await;
        let timing = ClientTiming {
            route_poll: Duration::from_millis(200),
            heartbeat: Duration::from_millis(500),
            pull_retry: Duration::from_millis(100),
            ..ClientTiming::default()
        };
        let config = |name: &str| {
            let builder = ClientConfig::builder().name_servers([names.to_string()]).instance_name(name);
            builder.timing(timing).build().unwrap()
        };
        let admin = Admin::connect(config("admin")).await.unwrap();
        create_topic(&host, &admin, 2, 1).await;
        let producer = Producer::builder("checkout", config("producer")).start().await.unwrap();
        for n in 0..20 {
            // Acknowledged when the slave has it, too: without one it would not be `SendOk`.
            let receipt = producer.send(Message::new("orders", format!("before {n}"))).await.unwrap();
            assert_eq!(receipt.status, SendStatus::SendOk);
        }
        drop(master);

        let seen = Seen::default();
        let builder = PushConsumer::builder("billing", config("consumer")).subscribe("orders", Filter::All);
        let consumer = builder.start_from(StartFrom::Earliest).start_concurrent(seen.listener()).await.unwrap();
        until(&host, "what the master acknowledged, from the slave", || seen.count() == 20).await;
        assert!(producer.send(Message::new("orders", "refused")).await.is_err(), "nobody takes messages");

        slave.shutdown().await.unwrap();
        let promoted = Broker::start(at("slave", "brokerRole=ASYNC_MASTER\nbrokerId=0")).await.unwrap();
        let mut sent = 0;
        while sent < 5 {
            match producer.send(Message::new("orders", format!("after {sent}"))).await {
                Ok(_) => sent += 1,
                Err(_) => host.sleep(Duration::from_millis(100)).await,
            }
        }
        until(&host, "what the promoted one took", || seen.count() == 25).await;
        let refused = Broker::start(at("master", "brokerRole=SYNC_MASTER")).await.err();
        assert!(matches!(refused, Some(StartError::MasterLives { .. })), "{refused:?}");

        consumer.shutdown(DEADLINE).await;
        producer.shutdown(DEADLINE).await;
        admin.shutdown().await;
        promoted.shutdown().await.unwrap();
        namesrv.shutdown().await;
    });
}
