//! When a fault happens: at a time, or on a point of the program; and gates that hold whoever reaches them.

use std::time::Duration;

use super::super::{
    FaultKind, Gate, ScenarioError, When,
    reader::{At, Source, Table},
    tables::{Places, at_least_one},
    units::Span,
};
use crate::points;

/// Reads `at = "30s"` or `on = { point = "store.flushed", node = "broker-a/0", nth = 40 }`.
pub(super) fn read_when(source: &Source, table: &mut Table<'_>, places: &mut Places) -> Result<When, ScenarioError> {
    let at = table.optional::<Span<Duration>>("at")?;
    let on = table.table("on")?;
    match (at, on) {
        (Some(at), None) => {
            places.fault_times.push(At { value: at.value.most, at: at.at });
            Ok(When::At(at.value))
        }
        (None, Some(mut on)) => {
            let Gate { point, node, nth } = read_visit(source, &mut on, places, points::triggers())?;
            on.finish()?;
            Ok(When::On { point, node, nth })
        }
        (None, None) => Err(source
            .error(&table.at, "[[fault]] says neither when nor where it happens")
            .with_help("write at = \"30s\", or on = { point = \"store.flushed\", node = \"broker-a/0\" }")),
        (Some(at), Some(_)) => Err(source.error(&at.at, "[[fault]] has both `at` and `on`: choose one")),
    }
}

/// Reads `hold = { point = "store.flushing", node = "broker-a/0", until = "f3" }`, which takes the place of a kind. The
/// `hold` of a cut is a flag.
pub(super) fn read_hold(
    source: &Source,
    table: &mut Table<'_>,
    places: &mut Places,
) -> Result<Option<(When, FaultKind)>, ScenarioError> {
    if !table.holds_table("hold") {
        return Ok(None);
    }
    let Some(mut hold) = table.table("hold")? else { return Ok(None) };
    let gate = read_visit(source, &mut hold, places, points::GATES.to_vec())?;
    let until = hold.optional::<String>("until")?;
    places.faults.extend(until.clone());
    hold.finish()?;
    let from = table.optional::<Span<Duration>>("at")?;
    places.fault_times.extend(from.iter().map(|from| At { value: from.value.most, at: from.at.clone() }));
    if let Some(on) = table.table("on")? {
        let error = source.error(&on.at, "a gate has no `on`: it closes at `at`, and holds visit `nth` and later ones");
        return Err(error);
    }
    let from = from.map_or(Span::exactly(Duration::ZERO), |from| from.value);
    Ok(Some((When::At(from), FaultKind::Hold { gate, until: until.map(|fault| fault.value) })))
}

fn read_visit(
    source: &Source,
    table: &mut Table<'_>,
    places: &mut Places,
    names: Vec<&'static str>,
) -> Result<Gate, ScenarioError> {
    let point = table.required::<String>("point")?;
    places.points.push((point.clone(), names));
    let node = table.required::<String>("node")?;
    places.nodes.push(node.clone());
    places.visits.push(At { value: (point.value.clone(), node.value.clone()), at: node.at.clone() });
    let nth = at_least_one(source, table.optional("nth")?, 1, "`nth`")?;
    Ok(Gate { point: point.value, node: node.value, nth })
}
