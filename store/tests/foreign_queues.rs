//! What the reference may have beside its consume queues.

mod support;

use std::{fs, path::Path};

use message::{RecordView, tags_code};
use staticfire_store::{GetRequest, MessageFilter, Store, StoreError};
use support::{Text, config, on_machine, settle, snapshot};

/// Lets one tag pass.
struct OneTag(&'static str);

impl MessageFilter for OneTag {
    fn matches_tags_code(&self, code: i64) -> bool {
        code == tags_code(Some(self.0))
    }

    fn matches_record(&self, record: &RecordView<'_>) -> bool {
        record.property(message::property::TAGS) == Some(self.0)
    }
}

/// Turns the store into one that the reference left with `enableConsumeQueueExt`: each entry has an address in place of
/// its tags code, and the code stands in a unit of the extension file.
fn extend(dir: &Path, count: u32) {
    let queue = dir.join("consumequeue/orders/0/00000000000000000000");
    let mut entries = fs::read(&queue).unwrap();
    let mut units = Vec::new();
    for entry in entries.chunks_exact_mut(20).take(count as usize) {
        let address = i64::MIN + units.len() as i64;
        units.extend_from_slice(&36_i16.to_be_bytes());
        units.extend_from_slice(&entry[12..]);
        units.extend_from_slice(&1_i64.to_be_bytes());
        units.extend_from_slice(&16_i16.to_be_bytes());
        units.extend_from_slice(&[0xFF; 16]);
        entry[12..].copy_from_slice(&address.to_be_bytes());
    }
    fs::write(&queue, entries).unwrap();
    units.resize(64 << 10, 0);
    let extension = dir.join("consumequeue_ext/orders/0");
    fs::create_dir_all(&extension).unwrap();
    fs::write(extension.join("00000000000000000000"), units).unwrap();
    // The reference's checkpoint says nothing of what staticfire adds to it.
    fs::remove_file(dir.join("checkpoint")).unwrap();
}

/// Entries are made again from the log, so that addresses in them are never needed; the extension stays for whoever can
/// use it.
#[test]
fn messages_of_a_queue_with_an_extension_are_filtered_by_their_tags_and_it_is_kept() {
    on_machine(|dir| async move {
        const COUNT: u32 = 80;
        let store = Store::open(config(&dir)).await.unwrap();
        for number in 0..COUNT {
            store.put_when_ready(&Text::new("orders", 0, number).draft()).await.unwrap();
        }
        settle(&store).await;
        store.shutdown().await.unwrap();
        extend(&dir, COUNT);
        let extension = snapshot(&dir.join("consumequeue_ext"));
        for _ in 0..2 {
            let store = Store::open(config(&dir)).await.unwrap();
            let filter = OneTag("t3");
            let result = store.get(&GetRequest {
                topic: "orders",
                queue_id: 0,
                offset: message::QueueOffset(0),
                max_count: COUNT,
                max_bytes: 1 << 20,
                filter: Some(&filter),
            });
            assert_eq!((result.count, result.next.0), (COUNT / 4, u64::from(COUNT)));
            store.shutdown().await.unwrap();
            assert_eq!(snapshot(&dir.join("consumequeue_ext")), extension);
        }
    });
}

#[test]
fn a_store_with_queues_of_inner_batches_is_refused_and_left_alone() {
    on_machine(|dir| async move {
        let store = Store::open(config(&dir)).await.unwrap();
        store.put(&Text::new("orders", 0, 1).draft()).unwrap();
        store.shutdown().await.unwrap();
        let queue = dir.join("batchconsumequeue/batches/0");
        fs::create_dir_all(&queue).unwrap();
        fs::write(queue.join("00000000000000000000"), [0; 46]).unwrap();
        let before = snapshot(&dir);
        let error = Store::open(config(&dir)).await.unwrap_err();
        assert!(matches!(error, StoreError::Unsupported { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("batchconsumequeue/batches") && text.contains("queue.type=BatchCQ"), "{text}");
        assert_eq!(snapshot(&dir), before);
        fs::remove_dir_all(dir.join("batchconsumequeue/batches")).unwrap();
        Store::open(config(&dir)).await.unwrap().shutdown().await.unwrap();
    });
}
