//! Reads TOML strictly: every key must be asked for, every value must have the type asked for, and whatever is wrong
//! is one [`ScenarioError`] that points at the place.

use std::{fmt, ops::Range, sync::Arc, time::Duration};

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceSpan};
use toml::{
    Spanned,
    de::{DeString, DeTable, DeValue},
};

use super::units::{self, Rate, Span};

/// A scenario file that cannot be used: one message, and where in the file.
#[derive(Debug, Clone)]
pub struct ScenarioError {
    message: String,
    help: Option<String>,
    label: &'static str,
    file: Arc<NamedSource<String>>,
    at: Range<usize>,
}

impl ScenarioError {
    /// Line and column of the place, both from 1; the column counts characters.
    #[must_use]
    pub fn position(&self) -> (usize, usize) {
        let before = &self.file.inner()[..self.at.start.min(self.file.inner().len())];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }

    /// What is wrong, without the place.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do about it, if that is known.
    #[must_use]
    pub fn advice(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// File, line and column, message and advice in one line, as compilers write it.
    #[must_use]
    pub fn one_line(&self) -> String {
        let (line, column) = self.position();
        let advice = self.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
        format!("{}:{line}:{column}: {}{advice}", self.file.name(), self.message)
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> ScenarioError {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ScenarioError {}

impl Diagnostic for ScenarioError {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn miette::SourceCode> {
        Some(&*self.file)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span = SourceSpan::from(self.at.clone());
        Some(Box::new(std::iter::once(LabeledSpan::new_with_span(Some(self.label.to_owned()), span))))
    }
}

/// The most characters of a name in a message.
const NAME_MAX: usize = 80;

/// A message with every name in back quotes cut to a readable length: it is told where the whole of it stands.
fn shorten_names(message: &str) -> String {
    let cut = |(number, part): (usize, &str)| match part.char_indices().nth(NAME_MAX) {
        Some((end, _)) if number % 2 == 1 => format!("{}…", &part[..end]),
        _ => part.to_owned(),
    };
    message.split('`').enumerate().map(cut).collect::<Vec<_>>().join("`")
}

/// A value and where it stands in the file.
#[derive(Debug, Clone)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Bytes of the file that spell it.
    pub at: Range<usize>,
}

/// Keys with their values, each with its place.
pub(crate) type Entries<T> = Vec<(At<String>, At<T>)>;

/// The file being read.
#[derive(Clone)]
pub(crate) struct Source(Arc<NamedSource<String>>);

impl Source {
    pub fn new(name: &str, text: &str) -> Source {
        Source(Arc::new(NamedSource::new(name, text.to_owned())))
    }

    pub fn error(&self, at: &Range<usize>, message: impl Into<String>) -> ScenarioError {
        let message = shorten_names(&message.into());
        ScenarioError { message, help: None, label: "here", file: Arc::clone(&self.0), at: at.clone() }
    }

    /// Parses the text into the outermost table.
    pub fn parse(&self) -> Result<Table<'_>, ScenarioError> {
        let parsed = DeTable::parse(self.0.inner()).map_err(|error| {
            let at = error.span().unwrap_or(0..0);
            self.error(&at, format!("not TOML: {}", error.message().lines().collect::<Vec<_>>().join(", ")))
        })?;
        let at = parsed.span();
        Ok(Table::new(self, "the file", at, parsed.into_inner()))
    }
}

/// One table of the file. Keys are taken out one by one; what is left at [`finish`](Table::finish) is unknown.
pub(crate) struct Table<'a> {
    source: &'a Source,
    /// How messages call it, such as `[[broker]]`.
    pub name: String,
    /// Where it stands.
    pub at: Range<usize>,
    left: DeTable<'a>,
    asked: Vec<&'static str>,
}

impl<'a> Table<'a> {
    fn new(source: &'a Source, name: impl Into<String>, at: Range<usize>, content: DeTable<'a>) -> Table<'a> {
        Table { source, name: name.into(), at, left: content, asked: Vec::new() }
    }

    /// The value of `key`, if it is there.
    pub fn optional<T: Value>(&mut self, key: &'static str) -> Result<Option<At<T>>, ScenarioError> {
        self.asked.push(key);
        self.left.remove(key).map(|value| read(self.source, key, value)).transpose()
    }

    /// The value of `key`. If a key that looks like it stands in its place, the error is about that one.
    pub fn required<T: Value>(&mut self, key: &'static str) -> Result<At<T>, ScenarioError> {
        if let Some(found) = self.optional(key)? {
            return Ok(found);
        }
        let misspelt = self.left.iter().find(|(written, _)| nearest(written.get_ref(), &[key]).is_some());
        Err(match misspelt {
            Some((written, _)) => self.unknown(written),
            None => self.source.error(&self.at, format!("{} lacks `{key}`, {}", self.name, T::EXPECTED)),
        })
    }

    /// The value of `key`, or `default` if it is not there.
    pub fn or<T: Value>(&mut self, key: &'static str, default: T) -> Result<T, ScenarioError> {
        Ok(self.optional(key)?.map_or(default, |found| found.value))
    }

    /// The table under `key`, if there is one.
    pub fn table(&mut self, key: &'static str) -> Result<Option<Table<'a>>, ScenarioError> {
        self.asked.push(key);
        self.left.remove(key).map(|value| self.as_table(format!("[{key}]"), value)).transpose()
    }

    /// Whether a table stands under `key`.
    pub fn holds_table(&self, key: &str) -> bool {
        self.left.get(key).is_some_and(|value| matches!(value.get_ref(), DeValue::Table(_)))
    }

    /// The tables of the array under `key`, in file order; none if it is not there.
    pub fn tables(&mut self, key: &'static str) -> Result<Vec<Table<'a>>, ScenarioError> {
        self.asked.push(key);
        let Some(value) = self.left.remove(key) else { return Ok(Vec::new()) };
        let at = value.span();
        match value.into_inner() {
            DeValue::Array(items) => items.into_iter().map(|item| self.as_table(format!("[[{key}]]"), item)).collect(),
            other => Err(self
                .source
                .error(&at, format!("`{key}` is {}, expected tables", article(&other)))
                .with_help(format!("begin each of them with [[{key}]]"))),
        }
    }

    /// What is left, each key with its place and value; for tables whose keys are names chosen by someone else.
    pub fn rest<T: Value>(mut self) -> Result<Entries<T>, ScenarioError> {
        std::mem::take(&mut self.left)
            .into_iter()
            .map(|(key, value)| {
                let (at, key) = (key.span(), key.into_inner().into_owned());
                let value = read(self.source, &key, value)?;
                Ok((At { value: key, at }, value))
            })
            .collect()
    }

    /// Refuses the first key that nobody asked for.
    pub fn finish(self) -> Result<(), ScenarioError> {
        let first = self.left.iter().min_by_key(|(key, _)| key.span().start);
        first.map_or(Ok(()), |(key, _)| Err(self.unknown(key)))
    }

    fn unknown(&self, key: &Spanned<DeString<'_>>) -> ScenarioError {
        let name = key.get_ref();
        let error = self.source.error(&key.span(), format!("unknown key `{name}` in {}", self.name));
        match nearest(name, &self.asked) {
            Some(near) => error.with_help(format!("did you mean `{near}`?")),
            None => error.with_help(format!("known keys: {}", self.asked.join(", "))),
        }
    }

    fn as_table(&self, name: String, value: Spanned<DeValue<'a>>) -> Result<Table<'a>, ScenarioError> {
        let at = value.span();
        match value.into_inner() {
            DeValue::Table(content) => Ok(Table::new(self.source, name, at, content)),
            other => Err(self.source.error(&at, format!("{name} is {}, expected a table", article(&other)))),
        }
    }
}

/// The name of `known` that looks most like `name`, if any does.
pub(crate) fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let same = |known: &str| known.replace(['-', '_'], "").eq_ignore_ascii_case(&name.replace(['-', '_'], ""));
    known.iter().find(|known| same(known)).copied().or_else(|| {
        let scored = known.iter().map(|known| (strsim::damerau_levenshtein(name, known), *known));
        scored
            .filter(|(distance, known)| *distance <= 1 + known.len() / 4)
            .min_by_key(|(distance, _)| *distance)
            .map(|(_, known)| known)
    })
}

/// A type that a key can have.
pub(crate) trait Value: Sized {
    /// What to write, as part of a message: "a time such as 250ms".
    const EXPECTED: &'static str;

    /// `None` if the value has another type, and a message if it has the type but is wrong.
    fn from_toml(value: &DeValue<'_>) -> Option<Result<Self, String>>;
}

fn read<T: Value>(source: &Source, key: &str, value: Spanned<DeValue<'_>>) -> Result<At<T>, ScenarioError> {
    let at = value.span();
    match T::from_toml(value.get_ref()) {
        Some(Ok(value)) => Ok(At { value, at }),
        Some(Err(message)) => Err(source.error(&at, format!("`{key}`: {message}"))),
        None => {
            let found = article(value.get_ref());
            Err(source.error(&at, format!("`{key}` is {found}, expected {}", T::EXPECTED)))
        }
    }
}

fn article(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a decimal number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

impl Value for String {
    const EXPECTED: &'static str = "a string";

    fn from_toml(value: &DeValue<'_>) -> Option<Result<String, String>> {
        value.as_str().map(|text| Ok(text.to_owned()))
    }
}

impl Value for bool {
    const EXPECTED: &'static str = "true or false";

    fn from_toml(value: &DeValue<'_>) -> Option<Result<bool, String>> {
        value.as_bool().map(Ok)
    }
}

impl Value for u64 {
    const EXPECTED: &'static str = "a number";

    fn from_toml(value: &DeValue<'_>) -> Option<Result<u64, String>> {
        let number = value.as_integer()?;
        let digits = number.as_str().replace('_', "");
        Some(u64::from_str_radix(&digits, number.radix()).map_err(|_| format!("{digits} is not a number from 0 up")))
    }
}

impl Value for u32 {
    const EXPECTED: &'static str = "a number";

    fn from_toml(value: &DeValue<'_>) -> Option<Result<u32, String>> {
        let number = u64::from_toml(value)?;
        Some(number.and_then(|number| u32::try_from(number).map_err(|_| format!("{number} is too large"))))
    }
}

/// Types that are written as a string with a notation of their own.
macro_rules! notation {
    ($type:ty, $expected:literal, $parse:expr) => {
        impl Value for $type {
            const EXPECTED: &'static str = $expected;

            fn from_toml(value: &DeValue<'_>) -> Option<Result<$type, String>> {
                value.as_str().map($parse)
            }
        }
    };
}

/// A number of bytes, written with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub u64);

/// A percentage from 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Percent(pub u8);

/// A chance in parts per million, above 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chance(pub u32);

/// Bytes per second, above 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BytesPerSecond(pub u64);

/// How much too fast a clock runs, in parts per million; too slow if negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Drift(pub i32);

fn size(text: &str) -> Result<Size, String> {
    units::parse_size(text).map(Size)
}

notation!(Duration, "a time such as \"250ms\"", units::parse_time);
notation!(Size, "a size such as \"64KiB\"", size);
notation!(Rate, "a rate such as \"40/s\"", units::parse_rate);
notation!(Percent, "a percentage such as \"92%\"", |text| units::parse_percent(text).map(Percent));
notation!(Chance, "a chance such as \"2.5%\"", |text| units::parse_chance(text).map(Chance));
notation!(Drift, "a drift such as \"200ppm\" or \"-2%\"", |text| units::parse_drift(text).map(Drift));
notation!(BytesPerSecond, "bytes per second such as \"64KiB/s\"", |text| units::parse_bytes_per_second(text)
    .map(BytesPerSecond));
notation!(Span<Duration>, "a time or a range such as \"5ms..20ms\"", |text| units::parse_span(text, units::parse_time));
notation!(Span<Size>, "a size or a range such as \"100B..4KiB\"", |text| units::parse_span(text, size));

impl<T: Value> Value for Vec<At<T>> {
    const EXPECTED: &'static str = "an array";

    fn from_toml(value: &DeValue<'_>) -> Option<Result<Vec<At<T>>, String>> {
        let items = value.as_array()?;
        Some(
            items
                .iter()
                .map(|item| match T::from_toml(item.get_ref()) {
                    Some(Ok(value)) => Ok(At { value, at: item.span() }),
                    Some(Err(message)) => Err(message),
                    None => Err(format!("it holds {}, expected {} each", article(item.get_ref()), T::EXPECTED)),
                })
                .collect(),
        )
    }
}

/// The value of a RocketMQ setting, in the text that a `broker.conf` would hold; the reader of settings knows units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting(pub String);

impl Value for Setting {
    const EXPECTED: &'static str = "a string, a number, or true or false";

    fn from_toml(value: &DeValue<'_>) -> Option<Result<Setting, String>> {
        match value {
            DeValue::String(text) => Some(Ok(Setting(text.to_string()))),
            DeValue::Integer(_) => Some(u64::from_toml(value)?.map(|number| Setting(number.to_string()))),
            DeValue::Boolean(value) => Some(Ok(Setting(value.to_string()))),
            _ => None,
        }
    }
}

/// A seed: a number, or a string in hexadecimal, because the integers of TOML have one bit less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PinnedSeed(pub u64);

impl Value for PinnedSeed {
    const EXPECTED: &'static str = "a number, or a string such as \"0xfeed\"";

    fn from_toml(value: &DeValue<'_>) -> Option<Result<PinnedSeed, String>> {
        if let Some(text) = value.as_str() {
            let digits = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
            return Some(digits.map(PinnedSeed).ok_or_else(|| format!("`{text}` is not a seed such as \"0xfeed\"")));
        }
        Some(u64::from_toml(value)?.map(PinnedSeed))
    }
}

/// A bound on a count: `0`, `12`, or a range `"1..40"`, written `least..most`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound(pub Span<u64>);

impl Value for Bound {
    const EXPECTED: &'static str = "a number or a range such as \"0..40\"";

    fn from_toml(value: &DeValue<'_>) -> Option<Result<Bound, String>> {
        if let Some(text) = value.as_str() {
            let number = |text: &str| text.parse::<u64>().map_err(|_| format!("`{text}` is not a number"));
            return Some(units::parse_span(text, number).map(Bound));
        }
        Some(u64::from_toml(value)?.map(|most| Bound(Span { least: 0, most })))
    }
}
