//! `[nemesis]`: random faults, drawn from the plan seed, on top of those that the file spells out.

use std::collections::BTreeMap;

use super::{
    ScenarioError,
    reader::{At, Source, Table, Value},
    tables::{Places, choice, unknown},
    units::Span,
};
use crate::plan::swarm;

/// How many server nodes may be down at a time, unless the file says otherwise.
const MAX_DOWN_DEFAULT: u32 = 1;

/// What may differ from seed to seed, besides the faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vary {
    /// Sizes of the files of stores, and what their file systems promise.
    Files,
    /// Settings of brokers and clients that the file does not make.
    Settings,
    /// Rates, bodies and batches of producers, and how many members consumer groups have.
    Load,
}

impl Vary {
    /// All of them with their names in files.
    pub const NAMES: [(&'static str, Vary); 3] =
        [("files", Vary::Files), ("settings", Vary::Settings), ("load", Vary::Load)];

    /// Its name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        Vary::NAMES.iter().find(|(_, vary)| *vary == self).expect("the list holds all of them").0
    }
}

/// A swarm: each family of faults is off in half of the seeds, and has a rate of its own in the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nemesis {
    /// How many servers may be down at a time, faults of the file included.
    pub max_down: u32,
    /// Nodes or groups that it leaves alone.
    pub spare: Vec<String>,
    /// Rates that differ from those of the table of families: faults per minute, in thousandths; 0 is off.
    pub rates: BTreeMap<String, Span<u64>>,
    /// What differs from seed to seed besides.
    pub vary: Vec<Vary>,
}

pub(super) fn read(
    source: &Source,
    mut table: Table<'_>,
    places: &mut Places,
) -> Result<Option<Nemesis>, ScenarioError> {
    let mode = table.required::<String>("mode")?;
    match mode.value.as_str() {
        "off" | "swarm" => {}
        other => return Err(unknown(source, &mode.at, "mode", other, &["off", "swarm"])),
    }
    let max_down = table.or("max-down", MAX_DOWN_DEFAULT)?;
    let spare = table.or::<Vec<At<String>>>("spare", Vec::new())?;
    places.ends.extend(spare.iter().cloned());
    let mut rates = BTreeMap::new();
    if let Some(written) = table.table("rates")? {
        let families: Vec<&str> = swarm::FAMILIES.iter().map(|family| family.name).collect();
        for (family, rate) in written.rest::<PerMinute>()? {
            if !families.contains(&family.value.as_str()) {
                return Err(unknown(source, &family.at, "family of faults", &family.value, &families));
            }
            rates.insert(family.value, rate.value.0);
        }
    }
    let mut vary = Vec::new();
    for part in table.or::<Vec<At<String>>>("vary", Vec::new())? {
        let at = part.at.clone();
        let part = choice(source, Some(part), "part that may vary", &Vary::NAMES)?.expect("a part was given");
        if vary.contains(&part) {
            return Err(source.error(&at, format!("`{}` stands twice in `vary`", part.name())));
        }
        vary.push(part);
    }
    table.finish()?;
    let spare = spare.into_iter().map(|node| node.value).collect();
    Ok((mode.value == "swarm").then_some(Nemesis { max_down, spare, rates, vary }))
}

/// `off`, `2/m` or `0.5..4/m`, in thousandths per minute.
struct PerMinute(Span<u64>);

impl Value for PerMinute {
    const EXPECTED: &'static str = "a rate per minute such as \"0.5..4/m\", or \"off\"";

    fn from_toml(value: &toml::de::DeValue<'_>) -> Option<Result<PerMinute, String>> {
        value.as_str().map(|text| parse(text).map(PerMinute))
    }
}

fn parse(text: &str) -> Result<Span<u64>, String> {
    if text == "off" {
        return Ok(Span::exactly(0));
    }
    let wrong = || format!("`{text}` is not a rate of faults: write 2/m, 0.5..4/m or off");
    let (numbers, unit) = text.rsplit_once('/').ok_or_else(wrong)?;
    if unit.trim() != "m" {
        return Err(wrong());
    }
    let span = super::units::parse_span(numbers.trim(), |number| thousandths(number).ok_or_else(wrong))?;
    if span.least == 0 || span.most > 1_000_000 {
        return Err(format!("`{text}`: a rate lies above 0 and not above 1000/m"));
    }
    Ok(span)
}

/// Reads `0.25` as 250.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    if fraction.len() > 3 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let fraction: u64 = format!("{fraction:0<3}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(fraction)
}

/// Writes a rate so that it reads back.
pub(super) fn print_rate(rate: Span<u64>) -> String {
    let number = |value: u64| match (value / 1000, value % 1000) {
        (whole, 0) => whole.to_string(),
        (whole, rest) => format!("{whole}.{}", format!("{rest:03}").trim_end_matches('0')),
    };
    match rate {
        Span { most: 0, .. } => "off".to_owned(),
        rate if rate.is_exact() => format!("{}/m", number(rate.most)),
        rate => format!("{}..{}/m", number(rate.least), number(rate.most)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_read_back() {
        for text in ["off", "2/m", "0.5..4/m", "0.125..0.25/m", "10..1000/m"] {
            assert_eq!(print_rate(parse(text).unwrap()), text);
        }
        assert_eq!(parse("0.5..4/m"), Ok(Span { least: 500, most: 4_000 }));
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in ["", "2", "2/s", "x/m", "4..0.5/m", "0/m", "0..4/m", "0.1234/m", "1001/m", "-1/m", "1./2/m"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
