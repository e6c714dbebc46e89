//! The two ids of a message: one by the place where it is stored, one given by its producer.

use std::{
    fmt,
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::atomic::{AtomicU16, Ordering},
};

use crate::PhyOffset;

/// Why a text is no offset message id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no offset message id: {reason}")]
pub struct IdError {
    /// The text, shortened for display.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// The id that says where a message is stored: broker address and position in its commit log.
///
/// Its text is 32 (IPv4) or 56 (IPv6) hexadecimal digits: address, port as 4 bytes, position as 8 bytes.
/// Source: `spec/protocol.md` 15.6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetMessageId {
    /// Address of the broker that stored it.
    pub store_host: SocketAddr,
    /// Where its record starts.
    pub phy: PhyOffset,
}

impl OffsetMessageId {
    /// Reads the text form, in either case.
    ///
    /// # Errors
    /// A wrong length, something that is no hexadecimal digit, or a port or position out of range.
    pub fn parse(text: &str) -> Result<OffsetMessageId, IdError> {
        let error = |reason| IdError { text: text.chars().take(64).collect(), reason };
        let raw = from_hex(text).ok_or_else(|| error("not all hexadecimal digits"))?;
        let (ip, rest) = match raw.len() {
            16 => (IpAddr::V4(Ipv4Addr::from(array::<4>(&raw[..4]))), &raw[4..]),
            28 => (IpAddr::V6(Ipv6Addr::from(array::<16>(&raw[..16]))), &raw[16..]),
            _ => return Err(error("it must have 32 or 56 digits")),
        };
        let port = u16::try_from(u32::from_be_bytes(array(&rest[..4]))).map_err(|_| error("the port is too large"))?;
        let phy = u64::from_be_bytes(array(&rest[4..12]));
        if i64::try_from(phy).is_err() {
            return Err(error("the position is negative"));
        }
        Ok(OffsetMessageId { store_host: SocketAddr::new(ip, port), phy: PhyOffset(phy) })
    }
}

impl fmt::Display for OffsetMessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = [0; 56];
        let (ip, port) = (self.store_host.ip(), u32::from(self.store_host.port()));
        let ip_end = match ip {
            IpAddr::V4(ip) => put_hex(&mut digits, 0, &ip.octets()),
            IpAddr::V6(ip) => put_hex(&mut digits, 0, &ip.octets()),
        };
        let port_end = put_hex(&mut digits, ip_end, &port.to_be_bytes());
        let end = put_hex(&mut digits, port_end, &self.phy.0.to_be_bytes());
        f.write_str(std::str::from_utf8(&digits[..end]).expect("digits are ASCII"))
    }
}

/// Gives out the ids that producers put on their messages (`UNIQ_KEY`).
///
/// Layout, in hexadecimal: address, process number (2 bytes), instance (4), milliseconds since the start of the month
/// (4), counter (2). Two ids of one generator differ unless 65,536 are made in one millisecond.
/// Source: `spec/protocol.md` 15.6, reference `MessageClientIDSetter`.
#[derive(Debug)]
pub struct UniqueIds {
    /// Address, process and instance in hexadecimal.
    prefix: String,
    counter: AtomicU16,
}

impl UniqueIds {
    /// A generator for one client. The reference takes the hash of its class loader for `instance`; any number that
    /// differs between clients of one process serves.
    #[must_use]
    pub fn new(ip: IpAddr, process_id: u32, instance: u32) -> UniqueIds {
        let address = match ip {
            IpAddr::V4(ip) => format!("{:08X}", u32::from(ip)),
            IpAddr::V6(ip) => format!("{:032X}", u128::from(ip)),
        };
        UniqueIds { prefix: format!("{address}{:04X}{instance:08X}", process_id & 0xFFFF), counter: AtomicU16::new(0) }
    }

    /// The next id, at wall-clock time `now_ms`.
    pub fn next(&self, now_ms: i64) -> String {
        let since_month_start = now_ms.wrapping_sub(month_start_ms(now_ms)) as u32;
        let counter = self.counter.fetch_add(1, Ordering::Relaxed);
        let mut id = String::with_capacity(self.prefix.len() + 12);
        id.push_str(&self.prefix);
        write!(id, "{since_month_start:08X}{counter:04X}").expect("writing to a string cannot fail");
        id
    }
}

/// Start of the month (UTC) that holds a wall-clock time.
fn month_start_ms(now_ms: i64) -> i64 {
    const DAY_MS: i64 = 86_400_000;
    let days = now_ms.div_euclid(DAY_MS);
    // Days since 0000-03-01, in eras of 400 years: then a month starts at a fixed day of a year that ends in February.
    let shifted = days + 719_468;
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5;
    (days - day_of_month) * DAY_MS
}

/// Writes the digits of `bytes` into `out` from `at` on; gives their end. Every answer to a send holds such an id, and
/// `{:X}` takes many times as long.
fn put_hex(out: &mut [u8], at: usize, bytes: &[u8]) -> usize {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for (pair, byte) in out[at..].chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    at + 2 * bytes.len()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    let digits: Vec<u8> =
        text.chars().map(|digit| digit.to_digit(16).map(|value| value as u8)).collect::<Option<_>>()?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("the slice was cut to this length")
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

    use proptest::prelude::*;

    use super::{OffsetMessageId, UniqueIds, month_start_ms};
    use crate::PhyOffset;

    #[test]
    fn the_worked_example_of_the_protocol_page() {
        let id = OffsetMessageId { store_host: "10.0.0.1:10911".parse().unwrap(), phy: PhyOffset(4096) };
        assert_eq!(id.to_string(), "0A00000100002A9F0000000000001000");
        assert_eq!(OffsetMessageId::parse("0a00000100002a9f0000000000001000"), Ok(id));
    }

    #[test]
    fn bad_ids_are_refused() {
        for text in ["", "0A", "zz00000100002A9F0000000000001000", "0A000001FFFF2A9F0000000000001000"] {
            assert!(OffsetMessageId::parse(text).is_err(), "{text}");
        }
        assert!(OffsetMessageId::parse("0A00000100002A9FF000000000001000").is_err());
    }

    #[test]
    fn months_start_where_the_calendar_says() {
        assert_eq!(month_start_ms(0), 0);
        assert_eq!(month_start_ms(1_709_210_096_789), 1_706_745_600_000); // 2024-02-29 -> 2024-02-01
        assert_eq!(month_start_ms(1_798_761_599_999), 1_796_083_200_000); // 2026-12-31 -> 2026-12-01
        assert_eq!(month_start_ms(-1), -2_678_400_000); // 1969-12-31
    }

    #[test]
    fn unique_ids_have_the_shape_of_the_reference_and_differ() {
        let ids = UniqueIds::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1)), 0x1_0002, 0x1432_3094);
        let (first, second) = (ids.next(1_700_000_000_000), ids.next(1_700_000_000_000));
        assert!(first.starts_with("7F000001000214323094"));
        assert_eq!(first.len(), 32);
        assert_ne!(first, second);
        assert_eq!(UniqueIds::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 1, 2).next(5).len(), 56);
    }

    proptest! {
        #[test]
        fn offset_ids_round_trip(v6: bool, ip: u128, port: u16, phy in 0..=i64::MAX as u64) {
            let ip = if v6 { IpAddr::V6(Ipv6Addr::from(ip)) } else { IpAddr::V4(Ipv4Addr::from(ip as u32)) };
            let id = OffsetMessageId { store_host: SocketAddr::new(ip, port), phy: PhyOffset(phy) };
            prop_assert_eq!(OffsetMessageId::parse(&id.to_string()), Ok(id));
        }

        #[test]
        fn garbage_never_panics(text: String) {
            drop(OffsetMessageId::parse(&text));
        }
    }
}
