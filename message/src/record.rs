//! The stored record: the bytes of one message in the commit log, and in the body of a pull answer.
//!
//! | field | bytes | field | bytes |
//! |---|---|---|---|
//! | total size | 4 | store time, ms | 8 |
//! | magic (V1 or V2) | 4 | store host, port | 4 or 16, 4 |
//! | CRC of the body | 4 | reconsume times | 4 |
//! | queue id | 4 | prepared transaction offset | 8 |
//! | flag | 4 | body length, body | 4, n |
//! | queue offset | 8 | topic length, topic | 1 (V1) or 2 (V2), n |
//! | physical offset | 8 | properties length, properties | 2, n |
//! | sys flag | 4 | | |
//! | born time, ms | 8 | | |
//! | born host, port | 4 or 16, 4 | | |
//!
//! All numbers are big-endian. Source: `spec/store.md` 2.1 to 2.4, `spec/protocol.md` 15.1.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::{PhyOffset, QueueOffset, SysFlag};

/// Size of a record without body, topic and properties, both hosts IPv4, version 1.
pub const RECORD_MIN_BYTES: usize = 91;
/// What a blank record needs at the end of a file.
pub const BLANK_BYTES: usize = 8;
/// Most bytes of a property string.
pub const PROPERTIES_MAX_BYTES: usize = i16::MAX as usize;

const MAGIC_V1: u32 = 0xDAA3_20A7;
const MAGIC_V2: u32 = 0xDAA3_20AB;
const MAGIC_BLANK: u32 = 0xCBD4_3194;
/// Longest topic whose length fits the signed byte of version 1.
const V1_TOPIC_MAX_BYTES: usize = 127;
const QUEUE_OFFSET_AT: usize = 20;
const PHY_AT: usize = 28;
const SYS_FLAG_AT: usize = 36;
const BORN_HOST_AT: usize = 48;

/// Why bytes are not a record, or why a message cannot become one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The bytes end before the record does.
    #[error("record needs {needed} bytes, {available} are there")]
    Truncated {
        /// Bytes it claims or needs at least.
        needed: usize,
        /// Bytes that are there.
        available: usize,
    },
    /// Not the start of a record.
    #[error("unknown magic {0:#010x}")]
    Magic(u32),
    /// The total size is not the sum of the parts.
    #[error("record says {stated} bytes, its parts need {computed}")]
    Size {
        /// What it says.
        stated: usize,
        /// What follows from its parts.
        computed: usize,
    },
    /// A blank record, where a message was expected.
    #[error("a blank record")]
    Blank,
    /// A field that cannot have this value.
    #[error("{field} is {value}")]
    Field {
        /// Which one.
        field: &'static str,
        /// Its value.
        value: i64,
    },
    /// Topic or properties are not UTF-8.
    #[error("{0} is not UTF-8")]
    Text(&'static str),
    /// A part is longer than its length field can say, or than the format allows.
    #[error("{part} has {bytes} bytes, at most {limit} are allowed")]
    TooLong {
        /// Which one.
        part: &'static str,
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        limit: usize,
    },
}

/// What stands at some place of a log, judged by its first eight bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// A message of so many bytes in all.
    Record {
        /// Size of the whole record.
        size_bytes: u32,
    },
    /// The end of a file; so many bytes are left in it.
    Blank {
        /// Bytes up to the end of the file, these eight included.
        size_bytes: u32,
    },
}

/// Looks at size and magic only. The size may be larger than what is there.
///
/// # Errors
/// Fewer than eight bytes, an unknown magic, or a size that no record has.
pub fn peek(bytes: &[u8]) -> Result<Frame, RecordError> {
    let (Some(size), Some(magic)) = (bytes.get(..4), bytes.get(4..8)) else {
        return Err(RecordError::Truncated { needed: BLANK_BYTES, available: bytes.len() });
    };
    let (size, magic) = (u32::from_be_bytes(array(size)), u32::from_be_bytes(array(magic)));
    let least = match magic {
        MAGIC_V1 | MAGIC_V2 => RECORD_MIN_BYTES,
        MAGIC_BLANK => BLANK_BYTES,
        other => return Err(RecordError::Magic(other)),
    };
    if (size as usize) < least || i32::try_from(size).is_err() {
        return Err(RecordError::Field { field: "total size", value: i64::from(size as i32) });
    }
    Ok(if magic == MAGIC_BLANK { Frame::Blank { size_bytes: size } } else { Frame::Record { size_bytes: size } })
}

/// The eight bytes that end a log file in which `size_bytes` are left.
///
/// # Panics
/// If they do not fit.
#[must_use]
pub fn encode_blank(size_bytes: u32) -> [u8; BLANK_BYTES] {
    assert!(size_bytes as usize >= BLANK_BYTES, "a blank record needs 8 bytes, {size_bytes} are left");
    let mut out = [0; BLANK_BYTES];
    out[..4].copy_from_slice(&size_bytes.to_be_bytes());
    out[4..].copy_from_slice(&MAGIC_BLANK.to_be_bytes());
    out
}

/// CRC-32 (IEEE) of some bytes.
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// CRC-32 of a stored body, without the sign bit.
#[must_use]
pub fn body_crc(body: &[u8]) -> u32 {
    crc32(body) & 0x7FFF_FFFF
}

/// What a message is before the store has given it a place.
#[derive(Debug, Clone, Copy)]
pub struct Draft<'a> {
    /// Its topic.
    pub topic: &'a str,
    /// Its queue.
    pub queue_id: u32,
    /// The user's flag.
    pub flag: i32,
    /// The system's flag. The two host bits are set from the hosts.
    pub sys_flag: SysFlag,
    /// When its producer made it, wall-clock milliseconds.
    pub born_ms: i64,
    /// Where its producer is.
    pub born_host: SocketAddr,
    /// Where its broker is.
    pub store_host: SocketAddr,
    /// How often a consumer failed with it.
    pub reconsume_times: i32,
    /// The half message that it completes; 0 otherwise.
    pub prepared_phy: PhyOffset,
    /// The body as it is stored.
    pub body: &'a [u8],
    /// The property string, written as it is.
    pub properties: &'a str,
}

/// What the store decides at the moment of appending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Position in the queue.
    pub queue_offset: QueueOffset,
    /// Position in the commit log.
    pub phy: PhyOffset,
    /// Wall-clock milliseconds.
    pub store_ms: i64,
}

impl Draft<'_> {
    /// Size of the record.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let topic_length = if self.topic.len() > V1_TOPIC_MAX_BYTES { 2 } else { 1 };
        74 + host_bytes(self.born_host)
            + host_bytes(self.store_host)
            + topic_length
            + self.body.len()
            + self.topic.len()
            + self.properties.len()
    }

    /// Appends the record to `out`, with zeros where [`stamp`] writes. Version 2 is used for topics of more than 127
    /// bytes only, because old readers do not know it.
    ///
    /// # Errors
    /// A topic, body or property string that is too long, or a queue id above 2^31.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), RecordError> {
        let check = |part, bytes, limit| {
            if bytes > limit { Err(RecordError::TooLong { part, bytes, limit }) } else { Ok(()) }
        };
        check("topic", self.topic.len(), i16::MAX as usize)?;
        check("properties", self.properties.len(), PROPERTIES_MAX_BYTES)?;
        let size = self.size_bytes();
        check("record", size, i32::MAX as usize)?;
        if i32::try_from(self.queue_id).is_err() {
            return Err(RecordError::Field { field: "queue id", value: i64::from(self.queue_id) });
        }
        let long_topic = self.topic.len() > V1_TOPIC_MAX_BYTES;
        let sys_flag = self
            .sys_flag
            .with(SysFlag::BORN_HOST_V6, self.born_host.is_ipv6())
            .with(SysFlag::STORE_HOST_V6, self.store_host.is_ipv6());
        let start = out.len();
        out.reserve(size);
        out.extend_from_slice(&(size as u32).to_be_bytes());
        out.extend_from_slice(&(if long_topic { MAGIC_V2 } else { MAGIC_V1 }).to_be_bytes());
        out.extend_from_slice(&body_crc(self.body).to_be_bytes());
        out.extend_from_slice(&self.queue_id.to_be_bytes());
        out.extend_from_slice(&self.flag.to_be_bytes());
        out.extend_from_slice(&[0; 16]); // Queue offset and physical offset, stamped later.
        out.extend_from_slice(&sys_flag.0.to_be_bytes());
        out.extend_from_slice(&self.born_ms.to_be_bytes());
        write_host(out, self.born_host);
        out.extend_from_slice(&[0; 8]); // Store time, stamped later.
        write_host(out, self.store_host);
        out.extend_from_slice(&self.reconsume_times.to_be_bytes());
        out.extend_from_slice(&self.prepared_phy.0.to_be_bytes());
        out.extend_from_slice(&(self.body.len() as u32).to_be_bytes());
        out.extend_from_slice(self.body);
        if long_topic {
            out.extend_from_slice(&(self.topic.len() as u16).to_be_bytes());
        } else {
            out.push(self.topic.len() as u8);
        }
        out.extend_from_slice(self.topic.as_bytes());
        out.extend_from_slice(&(self.properties.len() as u16).to_be_bytes());
        out.extend_from_slice(self.properties.as_bytes());
        assert_eq!(out.len() - start, size, "the computed size of a record must be right");
        Ok(())
    }
}

/// Writes what the store decided into an encoded record.
///
/// # Panics
/// If `record` does not start with one.
pub fn stamp(record: &mut [u8], stamp: Stamp) {
    assert!(record.len() >= RECORD_MIN_BYTES, "{} bytes are no record", record.len());
    let sys_flag = SysFlag(i32::from_be_bytes(array(&record[SYS_FLAG_AT..SYS_FLAG_AT + 4])));
    let born_host = if sys_flag.has(SysFlag::BORN_HOST_V6) { 20 } else { 8 };
    let store_time_at = BORN_HOST_AT + born_host;
    record[QUEUE_OFFSET_AT..QUEUE_OFFSET_AT + 8].copy_from_slice(&stamp.queue_offset.0.to_be_bytes());
    record[PHY_AT..PHY_AT + 8].copy_from_slice(&stamp.phy.0.to_be_bytes());
    record[store_time_at..store_time_at + 8].copy_from_slice(&stamp.store_ms.to_be_bytes());
}

/// A record as it lies in memory, with its fields read and its parts borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordView<'a> {
    /// Size of the whole record.
    pub size_bytes: u32,
    /// CRC of the body as it was written; compare with [`body_crc`] where damage matters.
    pub body_crc: u32,
    /// Its queue.
    pub queue_id: u32,
    /// The user's flag.
    pub flag: i32,
    /// Position in the queue.
    pub queue_offset: QueueOffset,
    /// Position in the commit log, as the record says it.
    pub phy: PhyOffset,
    /// The system's flag.
    pub sys_flag: SysFlag,
    /// When its producer made it, wall-clock milliseconds.
    pub born_ms: i64,
    /// Where its producer was.
    pub born_host: SocketAddr,
    /// When it was stored, wall-clock milliseconds.
    pub store_ms: i64,
    /// Where it was stored first.
    pub store_host: SocketAddr,
    /// How often a consumer failed with it.
    pub reconsume_times: i32,
    /// The half message that it completes, as the record says it; 0 otherwise.
    pub prepared_phy: PhyOffset,
    /// The body as stored.
    pub body: &'a [u8],
    /// The topic.
    pub topic: &'a str,
    /// The property string.
    pub properties: &'a str,
}

impl<'a> RecordView<'a> {
    /// Reads the record at the start of `bytes`; more may follow it. The CRC is not checked, the body not looked at.
    ///
    /// # Errors
    /// Bytes that are no record: too few, a wrong magic, sizes that contradict each other, negative offsets, a port
    /// above 65535, text that is not UTF-8.
    pub fn parse(bytes: &'a [u8]) -> Result<RecordView<'a>, RecordError> {
        let size = match peek(bytes)? {
            Frame::Record { size_bytes } => size_bytes as usize,
            Frame::Blank { .. } => return Err(RecordError::Blank),
        };
        let available = bytes.len();
        let record = bytes.get(..size).ok_or(RecordError::Truncated { needed: size, available })?;
        let mut reader = Reader { rest: &record[4..] };
        let long_topic = reader.u32(size)? == MAGIC_V2;
        let body_crc = reader.u32(size)?;
        let queue_id = non_negative("queue id", i64::from(reader.u32(size)? as i32))? as u32;
        let flag = reader.u32(size)? as i32;
        let queue_offset = QueueOffset(non_negative("queue offset", reader.i64(size)?)?);
        let phy = PhyOffset(non_negative("physical offset", reader.i64(size)?)?);
        let sys_flag = SysFlag(reader.u32(size)? as i32);
        let born_ms = reader.i64(size)?;
        let born_host = reader.host(sys_flag.has(SysFlag::BORN_HOST_V6), size)?;
        let store_ms = reader.i64(size)?;
        let store_host = reader.host(sys_flag.has(SysFlag::STORE_HOST_V6), size)?;
        let reconsume_times = reader.u32(size)? as i32;
        let prepared_phy = PhyOffset(non_negative("prepared transaction offset", reader.i64(size)?)?);
        let body_length = non_negative("body length", i64::from(reader.u32(size)? as i32))?;
        let body = reader.take(body_length as usize, size)?;
        let topic_length = if long_topic { reader.i16(size)? } else { i16::from(reader.take(1, size)?[0] as i8) };
        let topic = reader.text("topic", topic_length, size)?;
        let properties_length = reader.i16(size)?;
        let properties = reader.text("properties", properties_length, size)?;
        if !reader.rest.is_empty() {
            return Err(RecordError::Size { stated: size, computed: size - reader.rest.len() });
        }
        Ok(RecordView {
            size_bytes: size as u32,
            body_crc,
            queue_id,
            flag,
            queue_offset,
            phy,
            sys_flag,
            born_ms,
            born_host,
            store_ms,
            store_host,
            reconsume_times,
            prepared_phy,
            body,
            topic,
            properties,
        })
    }

    /// The value of a property; see [`crate::Properties::get`].
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&'a str> {
        crate::Properties::find(self.properties, name)
    }
}

/// Takes fields off the front of a record; `size` is that of the whole record, for the error.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize, size: usize) -> Result<&'a [u8], RecordError> {
        let missing = count.saturating_sub(self.rest.len());
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(RecordError::Truncated { needed: size.saturating_add(missing), available: size })?;
        self.rest = rest;
        Ok(taken)
    }

    fn u32(&mut self, size: usize) -> Result<u32, RecordError> {
        Ok(u32::from_be_bytes(array(self.take(4, size)?)))
    }

    fn i64(&mut self, size: usize) -> Result<i64, RecordError> {
        Ok(i64::from_be_bytes(array(self.take(8, size)?)))
    }

    fn i16(&mut self, size: usize) -> Result<i16, RecordError> {
        Ok(i16::from_be_bytes(array(self.take(2, size)?)))
    }

    fn host(&mut self, v6: bool, size: usize) -> Result<SocketAddr, RecordError> {
        let ip = if v6 {
            IpAddr::V6(Ipv6Addr::from(array::<16>(self.take(16, size)?)))
        } else {
            IpAddr::V4(Ipv4Addr::from(array::<4>(self.take(4, size)?)))
        };
        let port = self.u32(size)?;
        let port = u16::try_from(port)
            .map_err(|_| RecordError::Field { field: "port of a host", value: i64::from(port as i32) })?;
        Ok(SocketAddr::new(ip, port))
    }

    fn text(&mut self, part: &'static str, length: i16, size: usize) -> Result<&'a str, RecordError> {
        let length = usize::try_from(length)
            .map_err(|_| RecordError::Field { field: "a length of text", value: i64::from(length) })?;
        std::str::from_utf8(self.take(length, size)?).map_err(|_| RecordError::Text(part))
    }
}

fn non_negative(field: &'static str, value: i64) -> Result<u64, RecordError> {
    u64::try_from(value).map_err(|_| RecordError::Field { field, value })
}

fn host_bytes(host: SocketAddr) -> usize {
    if host.is_ipv6() { 20 } else { 8 }
}

fn write_host(out: &mut Vec<u8>, host: SocketAddr) {
    match host.ip() {
        IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
    }
    out.extend_from_slice(&u32::from(host.port()).to_be_bytes());
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("the slice was cut to this length")
}

#[cfg(test)]
mod tests;
