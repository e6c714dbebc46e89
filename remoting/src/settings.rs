//! Settings of a role: RocketMQ's key names, read from properties files or from pairs, checked one by one.
//!
//! A key is supported, known without effect (one warning that names it), or unknown (an error with the nearest name).
//! What a role supports is data: a [`Keys`] table of [`Key`] rows, from which reading, printing and the page of all
//! keys follow. Numbers stand in the unit of their key, as in the reference; `64KiB` and `250ms` are read as well, so
//! that scenario files and `broker.conf` share one reader.

use std::{collections::BTreeMap, fmt::Write as _, ops::RangeInclusive, path::PathBuf, time::Duration};

mod properties;

pub use properties::read_properties;

/// One setting as somebody wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The key, such as `listenPort`.
    pub key: String,
    /// The value, without the blanks around it.
    pub value: String,
    /// Where it stands, for messages: `broker.conf:12`.
    pub at: String,
}

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The text does not follow the properties format.
    #[error("{at}: {problem}")]
    Syntax {
        /// Where.
        at: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// Nobody knows this key.
    #[error("{at}: unknown key `{key}`{}", suggestion(.nearest.as_deref()))]
    Unknown {
        /// Where.
        at: String,
        /// The key.
        key: String,
        /// A key that looks like it.
        nearest: Option<String>,
    },
    /// A value that does not go together with the others.
    #[error("{at}: {key} = `{value}`: {problem}")]
    Refused {
        /// Where.
        at: String,
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The value is not of the key's form or outside its range.
    #[error("{at}: {key} = `{value}`: expected {expected}")]
    Value {
        /// Where.
        at: String,
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// What it should be.
        expected: String,
    },
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

/// A setting that changes nothing: its key does nothing here, or stands once more further down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithoutEffect {
    /// The key.
    pub key: String,
    /// Where it stands.
    pub at: String,
    /// Where the setting stands that counts instead, if one does.
    pub replaced_at: Option<String>,
}

impl std::fmt::Display for WithoutEffect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: `{}` has no effect here", self.at, self.key)?;
        self.replaced_at.as_ref().map_or(Ok(()), |at| write!(f, ": the one at {at} counts"))
    }
}

/// All keys of one role whose configuration is a `C`.
#[derive(Debug)]
pub struct Keys<C: 'static> {
    /// Keys that do something.
    pub supported: &'static [Key<C>],
    /// Keys of the reference that do nothing here.
    pub without_effect: &'static [&'static str],
}

/// One supported key.
#[derive(Debug)]
pub struct Key<C> {
    /// Its name, as RocketMQ spells it.
    pub name: &'static str,
    /// Where its value goes.
    pub field: Field<C>,
}

/// The form of a value and its place in the configuration.
#[derive(Debug, Clone)]
pub enum Field<C> {
    /// `true` or `false`.
    Flag(fn(&mut C) -> &mut bool),
    /// A TCP port; 0 lets the machine choose.
    Port(fn(&mut C) -> &mut u16),
    /// A number within bounds.
    Count(fn(&mut C) -> &mut u32, RangeInclusive<u32>),
    /// Bytes, within bounds. A bare number counts bytes.
    Size(fn(&mut C) -> &mut u64, RangeInclusive<u64>),
    /// A span of time. A bare number counts the unit.
    Time(fn(&mut C) -> &mut Duration, TimeUnit),
    /// Any text.
    Text(fn(&mut C) -> &mut String),
    /// Addresses `host:port`, separated by semicolons, at least one; not shown if there is none.
    Addresses(fn(&mut C) -> &mut Vec<String>),
    /// A path.
    Path(fn(&mut C) -> &mut PathBuf),
    /// Something else, read and shown by functions of its own.
    Other {
        /// Stores the value, or says what was expected.
        read: fn(&mut C, &str) -> Result<(), String>,
        /// Gives it back in the form that `read` takes.
        show: fn(&C) -> String,
    },
}

/// What a bare number of a time key counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    /// Thousandths of a second.
    Millis,
    /// Seconds.
    Seconds,
    /// Hours.
    Hours,
}

impl TimeUnit {
    const fn in_millis(self) -> u64 {
        match self {
            TimeUnit::Millis => 1,
            TimeUnit::Seconds => 1000,
            TimeUnit::Hours => 3_600_000,
        }
    }

    const fn plural(self) -> &'static str {
        match self {
            TimeUnit::Millis => "milliseconds",
            TimeUnit::Seconds => "seconds",
            TimeUnit::Hours => "hours",
        }
    }
}

/// The longest time a key may name: a hundred years.
const TIME_MAX_MS: u64 = 100 * 365 * 24 * 3_600_000;

impl<C: Clone> Keys<C> {
    /// Puts settings into `config`, in their order, so that the last of several with one key counts.
    ///
    /// Gives back the settings that do nothing, for the caller to warn of: keys without effect, and those that stand
    /// again in the same text. A setting of another origin, such as a flag, replaces one of a file as it should.
    ///
    /// # Errors
    /// At the first setting that is unknown or has a value of a wrong form; `config` has the earlier ones then.
    pub fn apply(
        &self,
        config: &mut C,
        settings: impl IntoIterator<Item = Setting>,
    ) -> Result<Vec<WithoutEffect>, SettingsError> {
        let mut idle = Vec::new();
        let mut seen: BTreeMap<&'static str, String> = BTreeMap::new();
        for Setting { key, value, at } in settings {
            if let Some(known) = self.supported.iter().find(|known| known.name == key) {
                known.field.read(config, value.trim()).map_err(|expected| SettingsError::Value {
                    at: at.clone(),
                    key: known.name,
                    value,
                    expected,
                })?;
                if let Some(before) = seen.insert(known.name, at.clone()).filter(|before| is_of_one_text(before, &at)) {
                    idle.push(WithoutEffect { key, at: before, replaced_at: Some(at) });
                }
            } else if self.without_effect.contains(&key.as_str()) {
                idle.push(WithoutEffect { key, at, replaced_at: None });
            } else {
                let nearest = self.nearest(&key).map(str::to_owned);
                return Err(SettingsError::Unknown { at, key, nearest });
            }
        }
        Ok(idle)
    }

    /// The effective configuration as properties text: one `key=value` line for every supported key that has a value,
    /// sorted by key.
    #[must_use]
    pub fn show(&self, config: &C) -> String {
        let mut copy = config.clone();
        let mut keys: Vec<&Key<C>> = self.supported.iter().collect();
        keys.sort_by_key(|key| key.name);
        keys.iter().fold(String::new(), |mut text, key| {
            if let Some(value) = key.field.show(&mut copy) {
                writeln!(text, "{}={value}", key.name).expect("a string takes any text");
            }
            text
        })
    }

    /// The known key that looks most like `key`, if one looks like it at all.
    fn nearest(&self, key: &str) -> Option<&'static str> {
        let lower = key.to_lowercase();
        let names = self.supported.iter().map(|key| key.name).chain(self.without_effect.iter().copied());
        names
            .map(|name| (strsim::jaro_winkler(&lower, &name.to_lowercase()), name))
            .filter(|(likeness, _)| *likeness > 0.85)
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, name)| name)
    }
}

impl<C> Field<C> {
    /// Stores `text`, or says what was expected.
    fn read(&self, config: &mut C, text: &str) -> Result<(), String> {
        match self {
            Field::Flag(at) => *at(config) = read_flag(text).ok_or("true or false")?,
            Field::Port(at) => *at(config) = text.parse().map_err(|_| "a port, 0 to 65535")?,
            Field::Count(at, range) => {
                *at(config) = text
                    .parse()
                    .ok()
                    .filter(|count| range.contains(count))
                    .ok_or_else(|| format!("a number from {} to {}", range.start(), range.end()))?;
            }
            Field::Size(at, range) => {
                *at(config) = read_size(text).filter(|size| range.contains(size)).ok_or_else(|| {
                    format!("a size from {} to {} bytes, such as 65536 or 64KiB", range.start(), range.end())
                })?;
            }
            Field::Time(at, unit) => {
                *at(config) = read_time(text, *unit)
                    .ok_or_else(|| format!("a time in {}, or one such as 250ms or 30s", unit.plural()))?;
            }
            Field::Text(at) => text.clone_into(at(config)),
            Field::Addresses(at) => *at(config) = read_addresses(text)?,
            Field::Path(at) => {
                if text.is_empty() {
                    return Err("a path".to_owned());
                }
                *at(config) = PathBuf::from(text);
            }
            Field::Other { read, .. } => read(config, text)?,
        }
        Ok(())
    }

    /// The value in the form that `read` takes, bare numbers in the unit of the key; `None` if there is none.
    fn show(&self, config: &mut C) -> Option<String> {
        Some(match self {
            Field::Flag(at) => at(config).to_string(),
            Field::Port(at) => at(config).to_string(),
            Field::Count(at, _) => at(config).to_string(),
            Field::Size(at, _) => at(config).to_string(),
            Field::Time(at, unit) => (at(config).as_millis() / u128::from(unit.in_millis())).to_string(),
            Field::Text(at) => at(config).clone(),
            Field::Addresses(at) => return Some(at(config).join(";")).filter(|all| !all.is_empty()),
            Field::Path(at) => at(config).display().to_string(),
            Field::Other { show, .. } => show(config),
        })
    }
}

/// Whether two places are lines of one text.
fn is_of_one_text(one: &str, other: &str) -> bool {
    let text = |at: &str| at.rsplit_once(':').map(|(text, _)| text.to_owned());
    text(one).is_some() && text(one) == text(other)
}

/// Addresses `host:port` or `[v6]:port`, separated by semicolons; one may follow the last.
fn read_addresses(text: &str) -> Result<Vec<String>, String> {
    let text = text.strip_suffix(';').unwrap_or(text);
    let mut addresses = Vec::new();
    for address in text.split(';').map(str::trim) {
        let address =
            read_address(address).map_err(|what| format!("addresses host:port, separated by semicolons; {what}"))?;
        addresses.push(address);
    }
    Ok(addresses)
}

/// One address `host:port` or `[v6]:port`.
///
/// # Errors
/// What is wrong with it, for people.
pub fn read_address(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("one is empty".to_owned());
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(|| format!("`{text}` has no port"))?;
    if !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err(format!("the port of `{text}` is not 1 to 65535"));
    }
    if !is_host(host) {
        return Err(format!("`{host}` is not the name or IP address of a host"));
    }
    Ok(text.to_owned())
}

/// A host name, an IPv4 address, or an IPv6 address in brackets.
fn is_host(text: &str) -> bool {
    match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_')),
    }
}

fn read_flag(text: &str) -> Option<bool> {
    if text.eq_ignore_ascii_case("true") {
        Some(true)
    } else if text.eq_ignore_ascii_case("false") {
        Some(false)
    } else {
        None
    }
}

/// Bytes from `65536`, `64KiB`, `1MiB`, `2GiB` or `512B`.
fn read_size(text: &str) -> Option<u64> {
    let (digits, unit) = split_unit(text);
    let factor = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// Time from a bare number of `unit`s, or a number with `ms`, `s`, `m` or `h`.
fn read_time(text: &str, unit: TimeUnit) -> Option<Duration> {
    let (digits, suffix) = split_unit(text);
    let millis = match suffix {
        "" => unit.in_millis(),
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    let millis = digits.parse::<u64>().ok()?.checked_mul(millis)?;
    (millis <= TIME_MAX_MS).then(|| Duration::from_millis(millis))
}

/// The digits at the start, and the rest without blanks in front.
fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Default, PartialEq)]
    struct Sample {
        port: u16,
        flush: Duration,
        file: u64,
        auto: bool,
        queues: u32,
        namesrv: Vec<String>,
    }

    const KEYS: Keys<Sample> = Keys {
        supported: &[
            Key { name: "listenPort", field: Field::Port(|c| &mut c.port) },
            Key { name: "flushIntervalCommitLog", field: Field::Time(|c| &mut c.flush, TimeUnit::Millis) },
            Key { name: "mappedFileSizeCommitLog", field: Field::Size(|c| &mut c.file, 4096..=1 << 30) },
            Key { name: "autoCreateTopicEnable", field: Field::Flag(|c| &mut c.auto) },
            Key { name: "defaultTopicQueueNums", field: Field::Count(|c| &mut c.queues, 1..=1024) },
            Key { name: "namesrvAddr", field: Field::Addresses(|c| &mut c.namesrv) },
        ],
        without_effect: &["useEpollNativeSelector"],
    };

    fn apply(text: &str) -> (Sample, Result<Vec<WithoutEffect>, SettingsError>) {
        let mut sample = Sample::default();
        let settings = read_properties(text, "broker.conf").expect("well-formed");
        let result = KEYS.apply(&mut sample, settings);
        (sample, result)
    }

    #[test]
    fn bare_numbers_and_units_give_the_same_configuration() {
        let bare = apply(
            "listenPort = 1\nflushIntervalCommitLog=2000\nmappedFileSizeCommitLog=65536\ndefaultTopicQueueNums=8",
        );
        let units =
            apply("listenPort:1\nflushIntervalCommitLog 2s\nmappedFileSizeCommitLog=64KiB\ndefaultTopicQueueNums=8");
        assert_eq!(bare, units);
        assert_eq!(bare.0.flush, Duration::from_secs(2));
        assert_eq!(bare.0.file, 65536);
    }

    #[test]
    fn unknown_key_names_place_and_nearest() {
        let error = apply("listenPort=1\nmapedFileSizeCommitlog=1").1.unwrap_err();
        assert_eq!(
            error.to_string(),
            "broker.conf:2: unknown key `mapedFileSizeCommitlog`; did you mean `mappedFileSizeCommitLog`?"
        );
        assert_eq!(apply("zzz=1").1.unwrap_err().to_string(), "broker.conf:1: unknown key `zzz`");
    }

    #[test]
    fn bad_values_say_what_was_expected() {
        let message = |text: &str| apply(text).1.unwrap_err().to_string();
        assert_eq!(message("listenPort=70000"), "broker.conf:1: listenPort = `70000`: expected a port, 0 to 65535");
        assert_eq!(
            message("defaultTopicQueueNums=0"),
            "broker.conf:1: defaultTopicQueueNums = `0`: expected a number from 1 to 1024"
        );
        assert_eq!(
            message("flushIntervalCommitLog=-5"),
            "broker.conf:1: flushIntervalCommitLog = `-5`: expected a time in milliseconds, or one such as 250ms or 30s"
        );
        assert_eq!(
            message("autoCreateTopicEnable=yes"),
            "broker.conf:1: autoCreateTopicEnable = `yes`: expected true or false"
        );
        assert!(apply("mappedFileSizeCommitLog=99999999999999999999").1.is_err());
        assert!(apply("flushIntervalCommitLog=999999999999999h").1.is_err());
    }

    #[test]
    fn addresses_are_checked_one_by_one() {
        let good = apply("namesrvAddr=10.0.0.1:9876; ns-1.example:1;[::1]:65535;").0;
        assert_eq!(good.namesrv, ["10.0.0.1:9876", "ns-1.example:1", "[::1]:65535"]);
        for (bad, says) in [
            ("", "one is empty"),
            (";;", "one is empty"),
            ("a:1;;b:2", "one is empty"),
            ("foo", "`foo` has no port"),
            ("127.0.0.1", "`127.0.0.1` has no port"),
            ("127.0.0.1:99999", "the port of `127.0.0.1:99999` is not 1 to 65535"),
            ("a:0", "the port of `a:0` is not 1 to 65535"),
            (":9876", "`` is not the name or IP address of a host"),
            ("http://a:1", "`http://a` is not the name or IP address of a host"),
            ("a:1,b:2", "`a:1,b` is not the name or IP address of a host"),
            ("::1:9876", "`::1` is not the name or IP address of a host"),
        ] {
            let error = apply(&format!("namesrvAddr={bad}")).1.unwrap_err().to_string();
            assert!(error.starts_with(&format!("broker.conf:1: namesrvAddr = `{bad}`: expected ")), "{error}");
            assert!(error.ends_with(says), "{bad}: {error}");
        }
        assert!(!KEYS.show(&Sample::default()).contains("namesrvAddr"));
    }

    #[test]
    fn the_last_of_equal_keys_counts_and_the_others_are_reported() {
        let (sample, idle) = apply("listenPort=1\nlistenPort=2\nlistenPort=3");
        let told: Vec<String> = idle.unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(sample.port, 3);
        assert_eq!(
            told,
            [
                "broker.conf:1: `listenPort` has no effect here: the one at broker.conf:2 counts",
                "broker.conf:2: `listenPort` has no effect here: the one at broker.conf:3 counts",
            ]
        );
        // A flag is there to replace what a file says.
        let mut settings = read_properties("listenPort=1", "broker.conf").unwrap();
        settings.push(Setting { key: "listenPort".to_owned(), value: "2".to_owned(), at: "-p".to_owned() });
        assert_eq!(KEYS.apply(&mut Sample::default(), settings).unwrap(), []);
    }

    #[test]
    fn key_without_effect_is_reported_once_with_its_place() {
        let idle = apply("\nuseEpollNativeSelector=true").1.unwrap();
        assert_eq!(idle[0].to_string(), "broker.conf:2: `useEpollNativeSelector` has no effect here");
        assert_eq!(idle.len(), 1);
    }

    #[test]
    fn shown_configuration_reads_back() {
        let (sample, _) = apply("listenPort=10911\nflushIntervalCommitLog=250ms\nmappedFileSizeCommitLog=1MiB");
        let mut again = Sample::default();
        KEYS.apply(
            &mut again,
            read_properties(&KEYS.show(&sample), "shown").unwrap().into_iter().filter(|setting| {
                setting.key != "defaultTopicQueueNums" // 0 is the sample's default, not a legal value
            }),
        )
        .unwrap();
        assert_eq!(again, sample);
    }
}
