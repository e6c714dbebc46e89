//! A producer against brokers that misbehave.

mod fake;

use std::time::Duration;

use fake::{Fate, cluster, on_node};
use remoting::ResponseCode;
use staticfire_client::{BatchSplitter, ClientConfig, ClientError, Message, Producer, SendStatus};

fn config(name_servers: &[String]) -> ClientConfig {
    ClientConfig::builder().name_servers(name_servers).build().unwrap()
}

async fn producer(name_servers: &[String]) -> Producer {
    Producer::builder("pg", config(name_servers)).start().await.unwrap()
}

#[test]
fn a_refused_send_goes_to_another_broker() {
    on_node(|_| async {
        let (brokers, _servers, name_servers) = cluster(&["a", "b"], 2).await;
        brokers[0].always(Fate::Refuse(ResponseCode::SYSTEM_BUSY));
        let producer = producer(&name_servers).await;
        for _ in 0..4 {
            let receipt = producer.send(Message::new("t", "x")).await.unwrap();
            assert_eq!((&*receipt.queue.broker, receipt.status), ("b", SendStatus::SendOk));
        }
        assert_eq!((brokers[0].stored("t"), brokers[1].stored("t")), (0, 4));
        producer.shutdown(Duration::from_secs(1)).await;
    });
}

#[test]
fn a_broker_that_swallows_a_send_leaves_time_for_another() {
    on_node(|_| async {
        let (brokers, _servers, name_servers) = cluster(&["a", "b"], 1).await;
        brokers[0].always(Fate::Swallow);
        let producer = producer(&name_servers).await;
        let first = producer.send(Message::new("t", "x")).await.unwrap();
        let second = producer.send(Message::new("t", "y")).await.unwrap();
        assert_eq!((&*first.queue.broker, &*second.queue.broker), ("b", "b"));
        // At least one of the two went to the silent broker first, which stored it all the same.
        assert!((1..=2).contains(&brokers[0].stored("t")));
        producer.shutdown(Duration::from_secs(1)).await;
    });
}

#[test]
fn an_error_says_whether_the_message_may_have_been_stored() {
    on_node(|_| async {
        let (brokers, servers, name_servers) = cluster(&["a"], 1).await;
        let producer = Producer::builder("pg", config(&name_servers))
            .send_timeout(Duration::from_millis(600))
            .start()
            .await
            .unwrap();

        brokers[0].always(Fate::Refuse(ResponseCode::MESSAGE_ILLEGAL));
        let error = producer.send(Message::new("t", "x")).await.unwrap_err();
        assert!(matches!(error.cause, ClientError::Broker { code: ResponseCode::MESSAGE_ILLEGAL, .. }), "{error:?}");
        assert_eq!((error.attempts, error.may_have_been_stored()), (1, false));

        brokers[0].always(Fate::Swallow);
        let error = producer.send(Message::new("t", "x")).await.unwrap_err();
        assert!(matches!(error.cause, ClientError::Timeout { .. }), "{error:?}");
        assert_eq!((error.attempts, error.may_have_been_stored()), (3, true));

        let error = producer.send(Message::new("unknown", "x")).await.unwrap_err();
        assert!(matches!(error.cause, ClientError::NoRoute { .. }), "{error:?}");
        assert!(!error.may_have_been_stored());

        servers[0].shutdown().await;
        // The first send may still take the old connection for a living one; then nobody knows.
        drop(producer.send(Message::new("t", "x")).await);
        let error = producer.send(Message::new("t", "x")).await.unwrap_err();
        assert!(matches!(error.cause, ClientError::Connect { .. }), "{error:?}");
        assert!(!error.may_have_been_stored());
        producer.shutdown(Duration::ZERO).await;
    });
}

#[test]
fn a_stored_message_tells_how_safely() {
    on_node(|_| async {
        let (brokers, _servers, name_servers) = cluster(&["a"], 1).await;
        let producer = producer(&name_servers).await;
        for (code, status) in [
            (ResponseCode::FLUSH_DISK_TIMEOUT, SendStatus::FlushDiskTimeout),
            (ResponseCode::FLUSH_SLAVE_TIMEOUT, SendStatus::FlushSlaveTimeout),
            (ResponseCode::SLAVE_NOT_AVAILABLE, SendStatus::SlaveNotAvailable),
        ] {
            brokers[0].next(Fate::Store(code));
            assert_eq!(producer.send(Message::new("t", "x")).await.unwrap().status, status);
        }
        producer.shutdown(Duration::from_secs(1)).await;
    });
}

#[test]
fn a_batch_is_split_and_every_message_gets_its_receipt() {
    on_node(|_| async {
        let (brokers, _servers, name_servers) = cluster(&["a"], 1).await;
        let producer = Producer::builder("pg", config(&name_servers))
            .splitter(BatchSplitter { limit_bytes: 300 })
            .start()
            .await
            .unwrap();
        let messages: Vec<Message> = (0..10).map(|n| Message::new("t", format!("{n}").repeat(50))).collect();
        let receipts = producer.send_batch(messages).await.unwrap();
        let offsets: Vec<u64> = receipts.iter().map(|receipt| receipt.queue_offset.0).collect();
        assert_eq!(offsets, (0..10).collect::<Vec<_>>());
        assert!(brokers[0].sends().len() > 1);
        assert!(brokers[0].sends().iter().all(|header| header.batch == Some(true)));

        brokers[0].next(Fate::Store(ResponseCode::SUCCESS));
        brokers[0].always(Fate::Refuse(ResponseCode::MESSAGE_ILLEGAL));
        let messages: Vec<Message> = (0..10).map(|n| Message::new("t", format!("{n}").repeat(50))).collect();
        let error = producer.send_batch(messages).await.unwrap_err();
        assert_eq!(error.failed.start, error.acknowledged.len());
        assert!(!error.source.may_have_been_stored());
        producer.shutdown(Duration::from_secs(1)).await;
    });
}

#[test]
fn large_bodies_travel_compressed_and_ids_are_given_once() {
    on_node(|_| async {
        let (brokers, _servers, name_servers) = cluster(&["a"], 4).await;
        let producer = producer(&name_servers).await;
        producer.send(Message::new("t", "z".repeat(4095))).await.unwrap();
        let receipt = producer.send_ordered(Message::new("t", "z".repeat(4096)), "order-1001").await.unwrap();
        assert_eq!(receipt.queue.id, 3); // 708180863 mod 4.
        assert_eq!(receipt.message_id.len(), 32);
        producer.send_oneway(Message::new("t", "y")).await.unwrap();
        let flags: Vec<i32> = brokers[0].sends().iter().map(|header| header.sys_flag).collect();
        assert_eq!(flags[..2], [0, 0x301]);
        producer.shutdown(Duration::from_secs(1)).await;
    });
}
