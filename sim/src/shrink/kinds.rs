//! Simpler forms of faults.

use std::time::Duration;

use crate::{
    disk::{Hits, Survival},
    scenario::{Back, ClockFault, FaultKind, Gate, Link, LinkFault, USUAL_FILL_PERCENT, units::Span},
};

use super::edits::round_time;

/// The least delay of a link, in microseconds.
const DELAY_US_MIN: u64 = 1_000;

/// Simpler forms of a fault, the simplest first. Each is simpler than the fault by an order in which nothing is simpler
/// than itself, so that taking one after the other comes to an end.
pub(super) fn simpler(kind: &FaultKind) -> Vec<FaultKind> {
    let mut simpler = match kind.clone() {
        FaultKind::PowerLoss { node, style, garbage } => {
            let with = |(style, garbage)| FaultKind::PowerLoss { node: node.clone(), style, garbage };
            simpler_outages(style, garbage).map(with).collect()
        }
        FaultKind::DomainPowerLoss { domain, style, garbage } => {
            let with = |(style, garbage)| FaultKind::DomainPowerLoss { domain: domain.clone(), style, garbage };
            simpler_outages(style, garbage).map(with).collect()
        }
        FaultKind::Panic { node } | FaultKind::FilesLost { node, .. } => vec![FaultKind::Kill { node }],
        FaultKind::RebalanceStorm { group, every } => {
            vec![FaultKind::RebalanceStorm { group, every: Span::exactly(every.most) }]
        }
        FaultKind::Cut { .. } | FaultKind::Latency { .. } | FaultKind::OnLink { .. } => simpler_network(kind),
        FaultKind::RestoreBackup { node, taken } => {
            let half = Duration::from_millis(u64::try_from(taken.as_millis()).unwrap_or(u64::MAX) / 2);
            let with = |taken| FaultKind::RestoreBackup { node: node.clone(), taken };
            [Duration::ZERO, half].map(with).into()
        }
        FaultKind::DiskFill { .. }
        | FaultKind::DiskError { .. }
        | FaultKind::TornFlush { .. }
        | FaultKind::Media { .. }
        | FaultKind::DiskSlow { .. } => simpler_disk(kind),
        FaultKind::Hold { gate, until } => {
            let visits = [1, (gate.nth / 2).max(1)];
            visits.map(|nth| FaultKind::Hold { gate: Gate { nth, ..gate.clone() }, until: until.clone() }).into()
        }
        FaultKind::Clock { node, what, back } => {
            let at_once = FaultKind::Clock { node: node.clone(), what, back: Back::Step };
            let less = simpler_clock(what).into_iter();
            [at_once].into_iter().chain(less.map(|what| FaultKind::Clock { node: node.clone(), what, back })).collect()
        }
        FaultKind::Buggify { names, chance_ppm } => simpler_buggify(&names, chance_ppm),
        FaultKind::Kill { .. }
        | FaultKind::Stop { .. }
        | FaultKind::Pause { .. }
        | FaultKind::Partition { .. }
        | FaultKind::ConfigChange { .. }
        | FaultKind::Drain { .. }
        | FaultKind::DeleteExpired { .. }
        | FaultKind::Promote { .. }
        | FaultKind::AcceptFull { .. }
        | FaultKind::ConnectHang { .. }
        | FaultKind::DiskGone { .. }
        | FaultKind::DiskReplaced { .. }
        | FaultKind::DiskStall { .. } => Vec::new(),
    };
    simpler.retain(|other| other != kind);
    simpler.dedup();
    simpler
}

/// Half of the places, then all but one of them, one after the other; then fewer visits.
fn simpler_buggify(names: &[String], chance_ppm: u32) -> Vec<FaultKind> {
    let (front, back) = names.split_at(names.len() / 2);
    let halves = [front.to_vec(), back.to_vec()].into_iter();
    let without = |left_out: usize| {
        let others = names.iter().enumerate().filter(|(number, _)| *number != left_out);
        others.map(|(_, name)| name.clone()).collect::<Vec<_>>()
    };
    let fewer = halves.chain((0..names.len()).map(without)).filter(|names| !names.is_empty());
    let with = |names| FaultKind::Buggify { names, chance_ppm };
    let rarer = FaultKind::Buggify { names: names.to_vec(), chance_ppm: (chance_ppm / 2).max(1) };
    fewer.map(with).chain([rarer]).collect()
}

/// Losses of power that leave zeros, or have a simpler style.
fn simpler_outages(style: Option<Survival>, garbage: bool) -> impl Iterator<Item = (Option<Survival>, bool)> {
    let styles = simpler_styles(style).iter().map(move |style| (Some(*style), garbage));
    garbage.then_some((style, false)).into_iter().chain(styles)
}

/// Styles of a loss of power: losing everything is the simplest.
fn simpler_styles(style: Option<Survival>) -> &'static [Survival] {
    match style {
        Some(Survival::AllOld) => &[],
        Some(Survival::AllNew | Survival::Prefix) => &[Survival::AllOld],
        Some(Survival::Independent | Survival::Runs) | None => &[Survival::AllOld, Survival::Prefix],
    }
}

fn simpler_network(kind: &FaultKind) -> Vec<FaultKind> {
    match kind.clone() {
        FaultKind::Cut { link, port, hold } => {
            let one_way = one_ways(&link).into_iter().map(|link| FaultKind::Cut { link, port, hold });
            let drops = hold.then(|| FaultKind::Cut { link: link.clone(), port, hold: false });
            drops.into_iter().chain(one_way).collect()
        }
        FaultKind::Latency { link, extra } => {
            let extra = match extra.is_exact() {
                false => extra.most,
                true => half_of(extra.most),
            };
            vec![FaultKind::Latency { link, extra: Span::exactly(extra) }]
        }
        FaultKind::OnLink { link, port, what } => {
            let less = simpler_on_link(what).into_iter().map(|what| (link.clone(), what));
            let one_way = one_ways(&link).into_iter().map(|link| (link, what));
            let all: Vec<(Link, LinkFault)> = less.chain(one_way).collect();
            all.into_iter().map(|(link, what)| FaultKind::OnLink { link, port, what }).collect()
        }
        _ => Vec::new(),
    }
}

fn simpler_disk(kind: &FaultKind) -> Vec<FaultKind> {
    match kind.clone() {
        FaultKind::DiskFill { node, percent, ramp } => {
            let half = USUAL_FILL_PERCENT + percent.saturating_sub(USUAL_FILL_PERCENT) / 2;
            let at_once = FaultKind::DiskFill { node: node.clone(), percent, ramp: Duration::ZERO };
            let less = FaultKind::DiskFill { node, percent: half.min(percent), ramp };
            vec![at_once, less]
        }
        FaultKind::DiskError { node, path, error, hits } => {
            let with = |hits| FaultKind::DiskError { node: node.clone(), path: path.clone(), error, hits };
            fewer_hits(hits).map(with).into()
        }
        FaultKind::TornFlush { node, path, hits, within } => {
            let with = |(hits, within)| FaultKind::TornFlush { node: node.clone(), path: path.clone(), hits, within };
            let [first, fewer] = fewer_hits(hits);
            [(hits, None), (first, within), (fewer, within)].map(with).into()
        }
        FaultKind::Media { node, path, what, count } => {
            let counts = [count.min(1), (count / 2).max(1)];
            let with = |count| FaultKind::Media { node: node.clone(), path: path.clone(), what, count };
            counts.map(with).into()
        }
        FaultKind::DiskSlow { node, factor } => {
            let factors = [factor.min(2), (factor / 2).max(2)];
            factors.map(|factor| FaultKind::DiskSlow { node: node.clone(), factor }).into()
        }
        _ => Vec::new(),
    }
}

/// The first call only, or half as many.
fn fewer_hits(hits: Hits) -> [Hits; 2] {
    let fewer = match hits {
        Hits::Nth(nth) => Hits::Nth((nth / 2).max(1)),
        Hits::Chance(ppm) => Hits::Chance((ppm / 2).max(1)),
    };
    [Hits::Nth(1), fewer]
}

/// A link of both directions, in one of them only.
fn one_ways(link: &Link) -> Vec<Link> {
    let there = Link { both: false, ..link.clone() };
    let back = Link { from: link.to.clone(), to: link.from.clone(), both: false };
    if link.both { vec![there, back] } else { Vec::new() }
}

fn simpler_on_link(what: LinkFault) -> Vec<LinkFault> {
    match what {
        LinkFault::Loss(ppm) => vec![LinkFault::Loss((ppm / 2).max(1))],
        LinkFault::Bandwidth(bytes) => vec![LinkFault::Bandwidth(bytes.saturating_mul(2))],
        LinkFault::Slow(factor) => vec![LinkFault::Slow(factor.min(2)), LinkFault::Slow((factor / 2).max(2))],
        LinkFault::Flap { up, down } if !up.is_exact() || !down.is_exact() => {
            vec![LinkFault::Flap { up: Span::exactly(up.most), down: Span::exactly(down.most) }]
        }
        LinkFault::Flap { .. } | LinkFault::Reset => Vec::new(),
    }
}

fn simpler_clock(what: ClockFault) -> Vec<ClockFault> {
    match what {
        ClockFault::Skew(by_ms) => vec![ClockFault::Skew(by_ms / 2)],
        ClockFault::Drift(ppm) => vec![ClockFault::Drift(ppm / 2)],
        ClockFault::Step(by_ms) => vec![ClockFault::Step(by_ms / 2)],
        ClockFault::Strobe { by_ms, every } => {
            let constant = ClockFault::Strobe { by_ms, every: Span::exactly(every.most) };
            vec![constant, ClockFault::Strobe { by_ms: by_ms / 2, every }]
        }
        ClockFault::Extreme(_) => Vec::new(),
    }
}

fn half_of(delay: Duration) -> Duration {
    let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
    let half = round_time(micros / 2, DELAY_US_MIN).max(DELAY_US_MIN);
    Duration::from_micros(half.min(micros))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{DiskError, Media};

    /// Takes the last of the simpler forms again and again: the longest way.
    fn simplest(mut kind: FaultKind) -> (FaultKind, usize) {
        let mut steps = 0;
        while let Some(simpler) = simpler(&kind).pop() {
            kind = simpler;
            steps += 1;
            assert!(steps < 100, "{kind:?} is never simple enough");
        }
        (kind, steps)
    }

    #[test]
    fn every_kind_becomes_simple_in_few_steps() {
        let node = || "broker-a/0".to_owned();
        let link = |both| Link { from: "broker-a".into(), to: "billing".into(), both };
        let back_link = || Link { from: "billing".into(), to: "broker-a".into(), both: false };
        let ms = Duration::from_millis;
        let gate = |nth| Gate { point: "store.flushing".into(), node: node(), nth };
        let error = |hits| FaultKind::DiskError { node: node(), path: "*".into(), error: DiskError::Flush, hits };
        let torn = |hits, within| FaultKind::TornFlush { node: node(), path: "*".into(), hits, within };
        let media = |count| FaultKind::Media { node: node(), path: "*".into(), what: Media::BitRot, count };
        let restored = |taken| FaultKind::RestoreBackup { node: node(), taken };
        let clock = |what, back| FaultKind::Clock { node: node(), what, back };
        let buggify = |names: &[&str], chance_ppm| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            FaultKind::Buggify { names, chance_ppm }
        };
        let on_link = |link, what| FaultKind::OnLink { link, port: None, what };
        let kinds = [
            (FaultKind::Kill { node: node() }, FaultKind::Kill { node: node() }),
            (
                FaultKind::PowerLoss { node: node(), style: Some(Survival::Runs), garbage: true },
                FaultKind::PowerLoss { node: node(), style: Some(Survival::AllOld), garbage: false },
            ),
            (
                FaultKind::Latency { link: link(true), extra: Span { least: ms(5), most: ms(500) } },
                FaultKind::Latency { link: link(true), extra: Span::exactly(ms(1)) },
            ),
            (on_link(link(true), LinkFault::Loss(900_000)), on_link(back_link(), LinkFault::Loss(1))),
            (on_link(link(true), LinkFault::Slow(60)), on_link(back_link(), LinkFault::Slow(2))),
            (
                FaultKind::DiskFill { node: node(), percent: 97, ramp: ms(900) },
                FaultKind::DiskFill { node: node(), percent: 40, ramp: ms(0) },
            ),
            (FaultKind::DiskSlow { node: node(), factor: 60 }, FaultKind::DiskSlow { node: node(), factor: 2 }),
            (media(9), media(1)),
            (restored(ms(12_345)), restored(ms(0))),
            (error(Hits::Nth(40)), error(Hits::Nth(1))),
            (error(Hits::Chance(40)), error(Hits::Nth(1))),
            (torn(Hits::Nth(40), Some(ms(900))), torn(Hits::Nth(1), None)),
            (clock(ClockFault::Skew(-5_000), Back::Slew), clock(ClockFault::Skew(0), Back::Step)),
            (clock(ClockFault::Drift(200), Back::Step), clock(ClockFault::Drift(0), Back::Step)),
            (buggify(&["a", "b", "c"], 250_000), buggify(&["a"], 1)),
            (FaultKind::Hold { gate: gate(40), until: None }, FaultKind::Hold { gate: gate(1), until: None }),
        ];
        for (kind, expected) in kinds {
            assert_eq!(simplest(kind).0, expected);
        }
        let cut = FaultKind::Cut { link: link(true), port: None, hold: true };
        let (simplest, steps) = simplest(cut);
        assert!(simpler(&simplest).is_empty() && steps == 2, "{simplest:?} after {steps}");
    }
}
