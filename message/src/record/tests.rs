//! Tests of the record codec.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use proptest::prelude::*;

use super::{Draft, Frame, RecordError, RecordView, Stamp, encode_blank, peek, stamp};
use crate::{PhyOffset, QueueOffset, SysFlag};

fn draft<'a>(topic: &'a str, body: &'a [u8], properties: &'a str) -> Draft<'a> {
    Draft {
        topic,
        queue_id: 2,
        flag: 0,
        sys_flag: SysFlag(0),
        born_ms: 1_700_000_000_000,
        born_host: "10.0.0.9:50000".parse().unwrap(),
        store_host: "10.0.0.1:10911".parse().unwrap(),
        reconsume_times: 0,
        prepared_phy: PhyOffset(0),
        body,
        properties,
    }
}

fn encode(draft: &Draft<'_>, at: Stamp) -> Vec<u8> {
    let mut out = Vec::new();
    draft.encode(&mut out).unwrap();
    stamp(&mut out, at);
    out
}

const STAMP: Stamp = Stamp { queue_offset: QueueOffset(3), phy: PhyOffset(4096), store_ms: 1_700_000_000_001 };

#[test]
fn the_worked_example_of_the_protocol_page() {
    let record = encode(&draft("T", b"hello", "TAGS\u{1}TagA\u{2}"), STAMP);
    let hex: String = record.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        hex,
        "0000006bdaa320a73610a6860000000200000000\
         0000000000000003000000000000100000000000\
         0000018bcfe568000a0000090000c350\
         0000018bcfe568010a00000100002a9f\
         000000000000000000000000\
         0000000568656c6c6f0154000a544147530154616741\
         02"
    );
}

#[test]
fn topics_above_127_bytes_use_version_2() {
    let long = "t".repeat(128);
    let record = encode(&draft(&long, b"", ""), STAMP);
    assert_eq!(record[4..8], 0xDAA3_20AB_u32.to_be_bytes());
    assert_eq!(RecordView::parse(&record).unwrap().topic, long);
    let record = encode(&draft(&long[..127], b"", ""), STAMP);
    assert_eq!(record[4..8], 0xDAA3_20A7_u32.to_be_bytes());
}

#[test]
fn a_wrong_total_size_is_refused() {
    let mut record = encode(&draft("T", b"hello", ""), STAMP);
    let size = record.len() as u32 + 1;
    record[..4].copy_from_slice(&size.to_be_bytes());
    record.push(0);
    let size = size as usize;
    assert_eq!(RecordView::parse(&record), Err(RecordError::Size { stated: size, computed: size - 1 }));
}

#[test]
fn blank_records_tell_what_is_left() {
    assert_eq!(peek(&encode_blank(1000)), Ok(Frame::Blank { size_bytes: 1000 }));
    assert_eq!(peek(&[0; 8]), Err(RecordError::Magic(0)));
    assert!(matches!(peek(&[0; 7]), Err(RecordError::Truncated { .. })));
}

#[test]
fn too_long_parts_are_refused() {
    let properties = "x".repeat(32768);
    let error = draft("T", b"", &properties).encode(&mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "properties has 32768 bytes, at most 32767 are allowed");
}

#[test]
fn a_port_above_65535_is_refused() {
    let mut record = encode(&draft("T", b"", ""), STAMP);
    record[52..56].copy_from_slice(&65536_u32.to_be_bytes());
    assert!(matches!(RecordView::parse(&record), Err(RecordError::Field { value: 65536, .. })));
}

fn host(v6: bool, ip: u128, port: u16) -> SocketAddr {
    let ip = if v6 { IpAddr::V6(Ipv6Addr::from(ip)) } else { IpAddr::V4(Ipv4Addr::from(ip as u32)) };
    SocketAddr::new(ip, port)
}

proptest! {
    #[test]
    fn records_round_trip(
        topic in "[a-zA-Z%_-]{1,200}",
        body: Vec<u8>,
        properties in "\\PC{0,40}",
        (queue_id, flag, reconsume_times) in (0..=i32::MAX as u32, any::<i32>(), any::<i32>()),
        (born, store) in ((any::<bool>(), any::<u128>(), any::<u16>()), (any::<bool>(), any::<u128>(), any::<u16>())),
        (queue_offset, phy, prepared) in (0..=i64::MAX as u64, 0..=i64::MAX as u64, 0..=i64::MAX as u64),
        (born_ms, store_ms) in (any::<i64>(), any::<i64>()),
    ) {
        let draft = Draft {
            topic: &topic, queue_id, flag, sys_flag: SysFlag(0x130), born_ms,
            born_host: host(born.0, born.1, born.2), store_host: host(store.0, store.1, store.2),
            reconsume_times, prepared_phy: PhyOffset(prepared), body: &body, properties: &properties,
        };
        let at = Stamp { queue_offset: QueueOffset(queue_offset), phy: PhyOffset(phy), store_ms };
        let mut record = encode(&draft, at);
        let size = record.len();
        record.extend_from_slice(b"more");
        let read = RecordView::parse(&record).unwrap();
        prop_assert_eq!(read.size_bytes as usize, size);
        prop_assert_eq!(size, draft.size_bytes());
        prop_assert_eq!((read.topic, read.body, read.properties), (&topic[..], &body[..], &properties[..]));
        prop_assert_eq!((read.queue_id, read.flag, read.reconsume_times), (queue_id, flag, reconsume_times));
        prop_assert_eq!((read.born_host, read.store_host), (draft.born_host, draft.store_host));
        prop_assert_eq!((read.born_ms, read.store_ms), (born_ms, store_ms));
        prop_assert_eq!((read.queue_offset.0, read.phy.0, read.prepared_phy.0), (queue_offset, phy, prepared));
        prop_assert_eq!(read.body_crc, super::body_crc(&body));
        prop_assert_eq!(read.sys_flag, SysFlag(0x100).with(0x10, born.0).with(0x20, store.0));
    }

    #[test]
    fn truncated_records_are_errors(cut in 0_usize..107) {
        let record = encode(&draft("T", b"hello", "TAGS\u{1}TagA\u{2}"), STAMP);
        let truncated = matches!(RecordView::parse(&record[..cut]), Err(RecordError::Truncated { .. }));
        prop_assert!(truncated);
    }

    #[test]
    fn damaged_records_never_panic(at in 0_usize..107, to: u8, more: Vec<u8>) {
        let mut record = encode(&draft("T", b"hello", "TAGS\u{1}TagA\u{2}"), STAMP);
        record[at] = to;
        drop(RecordView::parse(&record));
        record.extend(more);
        drop(RecordView::parse(&record));
    }
}
