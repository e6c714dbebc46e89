//! The small notations of scenario files: sizes `64KiB`, times `250ms`, rates `40/s`, ranges `5ms..20ms`.
//!
//! Each has a parser and a printer, and printing what was parsed parses back to the same value. Numbers are integers or
//! have a decimal fraction, and are exact: a time is a whole number of nanoseconds, a size a whole number of bytes.

use std::{fmt::Write as _, time::Duration};

/// The units of a time, longest first, in nanoseconds.
const TIME_UNITS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// The units of a size, largest first, in bytes.
const SIZE_UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// From the least to the most, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span<T> {
    /// The least value.
    pub least: T,
    /// The greatest value; not below `least`.
    pub most: T,
}

impl<T: Copy + PartialEq> Span<T> {
    /// A range of one value.
    pub fn exactly(value: T) -> Span<T> {
        Span { least: value, most: value }
    }

    /// Whether it holds one value only.
    pub fn is_exact(&self) -> bool {
        self.least == self.most
    }
}

/// Operations per time; kept as a fraction so that `40/s` and `2400/m` are the same and exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many.
    pub count: u32,
    /// In which time; not zero.
    pub per: Duration,
}

impl Rate {
    /// The time between the starts of two operations.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.per / self.count.max(1)
    }

    /// How many operations begin in a time.
    #[must_use]
    pub fn count_in(&self, time: Duration) -> u32 {
        let count = time.as_nanos() * u128::from(self.count) / self.per.as_nanos();
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

/// Reads a time such as `250ms`, `2m` or `1.5s`. The error says what is wrong with it, ready to be shown.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    parse_scaled(text, &TIME_UNITS, "a time", "250ms, 30s or 2m", "nanoseconds").map(Duration::from_nanos)
}

/// Reads a size in bytes, such as `64KiB` or `100B`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    parse_scaled(text, &SIZE_UNITS, "a size", "100B, 64KiB or 2GiB", "bytes")
}

/// Reads a rate such as `40/s`, `5/ms` or `90/m`.
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    let wrong = || format!("`{text}` is not a rate: write a count and a time, as in 40/s or 90/m");
    let (count, unit) = text.split_once('/').ok_or_else(wrong)?;
    let count: u32 = count.trim().parse().map_err(|_| wrong())?;
    let unit = unit.trim();
    let per = TIME_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, nanos)| Duration::from_nanos(*nanos));
    match (count, per) {
        (0, _) => Err(format!("`{text}`: a rate of 0 never does anything, leave the table out instead")),
        (_, None) => Err(wrong()),
        (count, Some(per)) => Ok(Rate { count, per }),
    }
}

/// Reads a percentage such as `92%`, from 0 to 100.
pub fn parse_percent(text: &str) -> Result<u8, String> {
    text.strip_suffix('%')
        .and_then(|number| number.trim().parse::<u8>().ok())
        .filter(|percent| *percent <= 100)
        .ok_or_else(|| format!("`{text}` is not a percentage: write 0% to 100%"))
}

/// Reads a chance such as `2.5%` in parts per million: above 0%, at most 100%.
pub fn parse_chance(text: &str) -> Result<u32, String> {
    let wrong = || format!("`{text}` is not a chance: write a percentage such as 2.5%");
    let number = text.strip_suffix('%').ok_or_else(wrong)?;
    let ppm = parse_scaled(number.trim(), &[("", 10_000)], "a chance", "2.5%", "millionths").map_err(|_| wrong())?;
    match u32::try_from(ppm) {
        Ok(0) => Err(format!("`{text}` never happens: write more than 0%")),
        Ok(ppm) if ppm <= 1_000_000 => Ok(ppm),
        _ => Err(format!("`{text}` is more than always: write at most 100%")),
    }
}

/// The strongest drift of a clock, in parts per million.
const DRIFT_MAX: u64 = 50_000;

/// Reads the drift of a clock such as `200ppm`, `-200ppm` or `2.5%` in parts per million: not 0, at most 5% either way.
pub fn parse_drift(text: &str) -> Result<i32, String> {
    let (negative, magnitude) = match text.trim().strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.trim().strip_prefix('+').unwrap_or(text.trim())),
    };
    match parse_scaled(magnitude, &[("ppm", 1), ("%", 10_000)], "a drift", "200ppm or -2%", "ppm")? {
        0 => Err(format!("`{text}` is the right rate: leave the fault out")),
        ppm if ppm > DRIFT_MAX => Err(format!("`{text}` is more than any clock drifts: write at most 5%")),
        ppm => {
            let ppm = i32::try_from(ppm).expect("it was compared with the most");
            Ok(if negative { -ppm } else { ppm })
        }
    }
}

/// Reads bytes per second such as `64KiB/s`, above 0.
pub fn parse_bytes_per_second(text: &str) -> Result<u64, String> {
    let size = text.strip_suffix("/s").map(|size| parse_size(size.trim_end()));
    match size {
        Some(Ok(0)) => Err(format!("`{text}` lets nothing through: write a cut instead")),
        Some(Ok(bytes)) => Ok(bytes),
        _ => Err(format!("`{text}` is not a bandwidth: write a size and a second, as in 64KiB/s")),
    }
}

/// Reads `least..most`, both included, or one value, with the parser of a value.
pub fn parse_span<T: Copy + PartialOrd>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Span<T>, String> {
    let Some((least, most)) = text.split_once("..") else {
        return parse(text).map(|value| Span { least: value, most: value });
    };
    let span = Span { least: parse(least.trim())?, most: parse(most.trim())? };
    if span.least > span.most {
        return Err(format!("`{text}` goes down: write the smaller value first"));
    }
    Ok(span)
}

/// A number and a unit, in the smallest unit.
fn parse_scaled(text: &str, units: &[(&str, u64)], what: &str, example: &str, smallest: &str) -> Result<u64, String> {
    let text = text.trim();
    if text.contains("..") {
        return Err(format!("`{text}` is a range, and {what} is wanted here: write one, as in {example}"));
    }
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, unit) = (text[..split].replace('_', ""), text[split..].trim());
    let known = || units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    if number.is_empty() {
        return Err(format!("`{text}` is not {what}: write a number and a unit, as in {example}"));
    }
    if unit.is_empty() && !units.iter().any(|(name, _)| name.is_empty()) {
        return Err(format!("`{text}` has no unit: {what} is written as {example}"));
    }
    let Some((_, scale)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("`{unit}` is not a unit of {what}: use one of {}", known()));
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    let too_large = || format!("`{text}` is too large");
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| too_large())? };
    if fraction.len() > 18 || fraction.contains('.') {
        return Err(format!("`{text}` is not {what}: write a number and a unit, as in {example}"));
    }
    let whole = whole.checked_mul(*scale).ok_or_else(too_large)?;
    let digits: u128 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| too_large())? };
    let (scaled, divisor) = (digits * u128::from(*scale), 10u128.pow(fraction.len() as u32));
    if scaled % divisor != 0 {
        return Err(format!("`{text}` is not a whole number of {smallest}"));
    }
    let fraction = u64::try_from(scaled / divisor).map_err(|_| too_large())?;
    whole.checked_add(fraction).ok_or_else(too_large)
}

/// Writes a time exactly: in the largest unit that keeps it a whole number, or as seconds with a fraction.
#[must_use]
pub fn print_time(time: Duration) -> String {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    if nanos > 1_000_000_000 && nanos % 1_000_000 != 0 {
        let text = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
        return format!("{}s", text.trim_end_matches('0'));
    }
    print_scaled(nanos, &TIME_UNITS, "0s")
}

/// Writes a size in the largest unit that keeps it a whole number.
#[must_use]
pub fn print_size(bytes: u64) -> String {
    print_scaled(bytes, &SIZE_UNITS, "0B")
}

/// Writes a chance of parts per million.
#[must_use]
pub fn print_chance(ppm: u32) -> String {
    match ppm % 10_000 {
        0 => format!("{}%", ppm / 10_000),
        rest => format!("{}.{}%", ppm / 10_000, format!("{rest:04}").trim_end_matches('0')),
    }
}

/// Writes a rate.
#[must_use]
pub fn print_rate(rate: Rate) -> String {
    let nanos = u64::try_from(rate.per.as_nanos()).unwrap_or(u64::MAX);
    let unit = TIME_UNITS.iter().find(|(_, scale)| *scale == nanos).map_or("s", |(name, _)| name);
    format!("{}/{unit}", rate.count)
}

/// Writes a range, or one value if it holds only one.
#[must_use]
pub fn print_span<T: Copy + PartialEq>(span: Span<T>, print: impl Fn(T) -> String) -> String {
    let mut text = print(span.least);
    if !span.is_exact() {
        let _ = write!(text, "..{}", print(span.most)); // Writing into a string cannot fail.
    }
    text
}

fn print_scaled(value: u64, units: &[(&str, u64)], zero: &str) -> String {
    if value == 0 {
        return zero.to_owned();
    }
    let (name, scale) = units.iter().find(|(_, scale)| value.is_multiple_of(*scale)).unwrap_or(&units[units.len() - 1]);
    format!("{}{name}", value / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_fractions() {
        assert_eq!(parse_time("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_time("0.000000001s"), Ok(Duration::from_nanos(1)));
        assert_eq!(parse_time("0s"), Ok(Duration::ZERO));
    }

    #[test]
    fn a_wrong_time_says_what_is_wrong() {
        assert_eq!(parse_time("30"), Err("`30` has no unit: a time is written as 250ms, 30s or 2m".to_owned()));
        assert_eq!(
            parse_time("30 sec"),
            Err("`sec` is not a unit of a time: use one of h, m, s, ms, us, ns".to_owned())
        );
        assert_eq!(
            parse_time("1s..4s"),
            Err("`1s..4s` is a range, and a time is wanted here: write one, as in 250ms, 30s or 2m".to_owned())
        );
        assert_eq!(
            parse_time("soon"),
            Err("`soon` is not a time: write a number and a unit, as in 250ms, 30s or 2m".to_owned())
        );
        assert!(parse_time("1.2.3s").is_err());
        assert!(parse_time("99999999999999h").is_err());
    }

    #[test]
    fn sizes_are_whole_bytes() {
        assert_eq!(parse_size("64KiB"), Ok(65536));
        assert_eq!(parse_size("1.5KiB"), Ok(1536));
        assert_eq!(parse_size("100B"), Ok(100));
        assert!(parse_size("64KB").unwrap_err().contains("GiB, MiB, KiB, B"));
        assert!(parse_size("0.3B").unwrap_err().contains("whole number of bytes"));
    }

    #[test]
    fn rates_ranges_and_percentages() {
        assert_eq!(parse_rate("40/s").unwrap().interval(), Duration::from_millis(25));
        assert!(parse_rate("40").is_err());
        assert!(parse_rate("0/s").is_err());
        let span = parse_span("5ms..20ms", parse_time).unwrap();
        assert_eq!((span.least, span.most), (Duration::from_millis(5), Duration::from_millis(20)));
        assert!(parse_span("20ms..5ms", parse_time).unwrap_err().contains("goes down"));
        assert_eq!(parse_percent("92%"), Ok(92));
        assert!(parse_percent("101%").is_err());
        assert_eq!((parse_chance("2.5%"), parse_chance("100%")), (Ok(25_000), Ok(1_000_000)));
        for wrong in ["0%", "101%", "2.5", "x%", "%", "0.00001%", "-1%"] {
            assert!(parse_chance(wrong).is_err(), "{wrong}");
        }
        assert_eq!([parse_drift("200ppm"), parse_drift("-2.5%"), parse_drift("+1ppm")], [Ok(200), Ok(-25_000), Ok(1)]);
        for wrong in ["0ppm", "6%", "50001ppm", "200", "fast", "-", "0.5ppm"] {
            assert!(parse_drift(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_bytes_per_second("64KiB/s"), Ok(65_536));
        for wrong in ["64KiB", "0B/s", "64/s", "64KiB/m"] {
            assert!(parse_bytes_per_second(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn printing_parses_back() {
        for nanos in [0, 1, 999, 1_000, 1_500_000, 1_234_567_000, 90_000_000_000, 7_200_000_000_000] {
            let time = Duration::from_nanos(nanos);
            assert_eq!(parse_time(&print_time(time)), Ok(time));
        }
        for bytes in [0, 1, 1023, 1024, 1 << 20, 3 << 29] {
            assert_eq!(parse_size(&print_size(bytes)), Ok(bytes));
        }
        for ppm in [1, 10, 500, 5_000, 10_000, 123_400, 999_999, 1_000_000] {
            assert_eq!(parse_chance(&print_chance(ppm)), Ok(ppm));
        }
        assert_eq!(print_rate(parse_rate("90/m").unwrap()), "90/m");
        assert_eq!(print_span(Span { least: 1, most: 9 }, |n: u32| n.to_string()), "1..9");
    }
}
