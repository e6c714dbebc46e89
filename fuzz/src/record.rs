//! A stored record: garbage is an error, and what is taken for a record lies inside the bytes that were given, has the
//! size it claims, and survives a second reading of those bytes alone.

use message::{Frame, RecordView, peek};

/// Checks one input.
pub fn check(data: &[u8]) {
    let Ok(record) = RecordView::parse(data) else { return };
    let Ok(Frame::Record { size_bytes, .. }) = peek(data) else {
        panic!("parsed as a record, but does not begin like one: {record:?}");
    };
    let whole = &data[..size_bytes as usize];
    assert_eq!(RecordView::parse(whole).as_ref(), Ok(&record), "reads differently without what follows");
    for end in 0..whole.len() {
        assert!(RecordView::parse(&whole[..end]).is_err(), "a record cut to {end} bytes is still taken for one");
    }
}
