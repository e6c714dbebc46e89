//! The body of a batch send: several messages of one topic, each with its own body and properties.

use crate::{Message, PROPERTIES_MAX_BYTES};

/// Bytes of an item without body and properties: size, magic, CRC, flag, and two lengths.
const ITEM_MIN_BYTES: usize = 22;

/// One message of a batch, borrowed from the body of the request.
///
/// Source: `spec/protocol.md` 15.8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchItem<'a> {
    /// The user's flag.
    pub flag: i32,
    /// The body; items are never compressed one by one.
    pub body: &'a [u8],
    /// The property string.
    pub properties: &'a str,
}

/// What is wrong with the body of a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("item {index} of the batch, at byte {at}: {reason}")]
pub struct BatchError {
    /// Which item, from 0.
    pub index: usize,
    /// Where it starts.
    pub at: usize,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// Reads all items of a batch. An empty body holds none.
///
/// # Errors
/// The first item whose sizes contradict each other or whose properties are not UTF-8.
pub fn decode_batch(body: &[u8]) -> Result<Vec<BatchItem<'_>>, BatchError> {
    let mut items = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        let error = |reason| BatchError { index: items.len(), at: body.len() - rest.len(), reason };
        let (item, behind) = decode_item(rest).map_err(error)?;
        items.push(item);
        rest = behind;
    }
    Ok(items)
}

/// Appends one message to the body of a batch.
///
/// # Errors
/// Properties of more than 32,767 bytes, or more than 2 GiB in all.
pub fn encode_batch_item(message: &Message, out: &mut Vec<u8>) -> Result<(), BatchError> {
    let properties = message.properties.as_encoded();
    let error = |reason| BatchError { index: 0, at: out.len(), reason };
    if properties.len() > PROPERTIES_MAX_BYTES {
        return Err(error("the properties have more than 32767 bytes"));
    }
    let size = ITEM_MIN_BYTES + message.body.len() + properties.len();
    let Ok(size) = i32::try_from(size) else { return Err(error("it has more than 2 GiB")) };
    out.reserve(size as usize);
    out.extend_from_slice(&size.to_be_bytes());
    out.extend_from_slice(&[0; 8]); // Magic and CRC, which nobody sets here.
    out.extend_from_slice(&message.flag.to_be_bytes());
    out.extend_from_slice(&(message.body.len() as u32).to_be_bytes());
    out.extend_from_slice(&message.body);
    out.extend_from_slice(&(properties.len() as u16).to_be_bytes());
    out.extend_from_slice(properties.as_bytes());
    Ok(())
}

fn decode_item(rest: &[u8]) -> Result<(BatchItem<'_>, &[u8]), &'static str> {
    let (size, _) = rest.split_first_chunk().ok_or("fewer than four bytes are left")?;
    let size = i32::from_be_bytes(*size);
    let size = usize::try_from(size).ok().filter(|&size| size >= ITEM_MIN_BYTES).ok_or("its size is too small")?;
    let (item, behind) = rest.split_at_checked(size).ok_or("its size is larger than what is left")?;
    let (flag, item) = item[12..].split_first_chunk().ok_or("it ends inside its flag")?;
    let (body_length, item) = item.split_first_chunk().ok_or("it ends inside its body length")?;
    let body_length = usize::try_from(i32::from_be_bytes(*body_length)).map_err(|_| "its body length is negative")?;
    let (body, item) = item.split_at_checked(body_length).ok_or("its body is longer than the item")?;
    let (length, item) = item.split_first_chunk().ok_or("it ends inside its properties length")?;
    let length = usize::try_from(i16::from_be_bytes(*length)).map_err(|_| "its properties length is negative")?;
    if item.len() != length {
        return Err("its size is not the sum of its parts");
    }
    let properties = std::str::from_utf8(item).map_err(|_| "its properties are not UTF-8")?;
    Ok((BatchItem { flag: i32::from_be_bytes(*flag), body, properties }, behind))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BatchItem, decode_batch, encode_batch_item};
    use crate::Message;

    #[test]
    fn the_worked_example_of_the_protocol_page() {
        let message = Message::new("T", "hello").with_tags("TagA").unwrap();
        let mut out = Vec::new();
        encode_batch_item(&message, &mut out).unwrap();
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "000000250000000000000000000000000000000568656c6c6f000a54414753015461674102");
    }

    #[test]
    fn errors_name_the_item_and_the_place() {
        let mut out = Vec::new();
        encode_batch_item(&Message::new("T", "hello"), &mut out).unwrap();
        let size = out.len();
        out.extend_from_slice(&[0, 0, 0, 99]);
        let error = decode_batch(&out).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("item 1 of the batch, at byte {size}: its size is larger than what is left")
        );
        assert_eq!(decode_batch(b"").unwrap(), []);
    }

    proptest! {
        #[test]
        fn batches_round_trip(items in prop::collection::vec((any::<i32>(), any::<Vec<u8>>(), "[a-z]{1,9}"), 0..6)) {
            let mut out = Vec::new();
            let messages: Vec<Message> = items
                .iter()
                .map(|(flag, body, keys)| Message { flag: *flag, ..Message::new("T", body.clone()).with_keys(keys).unwrap() })
                .collect();
            for message in &messages {
                encode_batch_item(message, &mut out).unwrap();
            }
            let read = decode_batch(&out).unwrap();
            prop_assert_eq!(read.len(), messages.len());
            for (item, message) in read.iter().zip(&messages) {
                let expected =
                    BatchItem { flag: message.flag, body: &message.body, properties: message.properties.as_encoded() };
                prop_assert_eq!(item, &expected);
            }
        }

        #[test]
        fn garbage_never_panics(body: Vec<u8>, size in 0_u32..64) {
            drop(decode_batch(&body));
            drop(decode_batch(&[&size.to_be_bytes()[..], &body].concat()));
        }
    }
}
