//! The body of a batch: garbage is an error, and items that were read are written back as bytes that give the same
//! items.

use bytes::Bytes;
use message::{Message, Properties, decode_batch, encode_batch_item};

/// Checks one input.
pub fn check(data: &[u8]) {
    let Ok(items) = decode_batch(data) else { return };
    let mut encoded = Vec::new();
    for item in &items {
        let mut message = Message::new("topic", Bytes::copy_from_slice(item.body));
        message.flag = item.flag;
        message.properties = Properties::from_encoded(item.properties);
        if encode_batch_item(&message, &mut encoded).is_err() {
            return; // The last separator may be the byte too many.
        }
    }
    let again = decode_batch(&encoded).expect("what was just encoded is a batch");
    assert_eq!(again.len(), items.len());
    for (again, item) in again.iter().zip(&items) {
        assert_eq!((again.flag, again.body), (item.flag, item.body));
        assert_eq!(again.properties.trim_end_matches('\u{2}'), item.properties.trim_end_matches('\u{2}'));
    }
}
