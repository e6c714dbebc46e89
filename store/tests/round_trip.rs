//! Writing and reading through the public API, on the real machine.

mod support;

use message::{QueueOffset, StoredMessage};
use staticfire_store::{
    FlushDiskType, Flushed, GetRequest, GetStatus, MessageFilter, PutError, Store, StoreConfig, TimeBoundary,
};
use support::{Text, config, get, on_machine, read_all, settle};

#[test]
fn what_is_put_is_read_in_order_and_after_a_restart() {
    on_machine(|dir| async move {
        let store = Store::open(config(&dir)).await.unwrap();
        for number in 0..500 {
            let put = store.put_when_ready(&Text::new("orders", number % 3, number).draft()).await.unwrap();
            assert_eq!(put.queue_offset, QueueOffset(u64::from(number / 3)));
        }
        settle(&store).await;
        let before: Vec<StoredMessage> = (0..3).flat_map(|queue| read_all(&store, "orders", queue)).collect();
        assert_eq!(before.len(), 500);
        assert_eq!(before[1].message.body, Text::new("orders", 0, 3).body);
        store.shutdown().await.unwrap();
        assert!(!dir.join("abort").exists());
        let store = Store::open(config(&dir)).await.unwrap();
        let after: Vec<StoredMessage> = (0..3).flat_map(|queue| read_all(&store, "orders", queue)).collect();
        assert_eq!(before, after);
        let put = store.put(&Text::new("orders", 1, 7).draft()).unwrap();
        assert_eq!(put.queue_offset, QueueOffset(167));
        store.shutdown().await.unwrap();
    });
}
