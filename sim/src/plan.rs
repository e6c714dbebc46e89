//! A seed turned into an explicit plan: every message and every fault spelt out.
//!
//! The plan of a scenario is a scenario again, one that leaves nothing to be drawn but what the run itself draws by key
//! (latencies, what a power loss keeps, how long a listener works). Printed and read back it runs as the same run.
//! Each time and size is keyed by the seed and by what it belongs to, so that removing one message or one fault leaves
//! all others as they were.

mod shape;
pub mod swarm;

use std::time::Duration;

use crate::{
    disk::Survival,
    scenario::{
        Fault, FaultKind, FileSystem, LinkFault, Load, Members, ProducerGroup, Scenario, SeedPins, Send, SendMode,
        When,
        units::{Rate, Span},
    },
    seed::{Domain, Draws, Seed, Seeds, name_hash},
};

const SENDS: Domain = Domain::named("plan.send");
const TAGS: Domain = Domain::named("plan.tag");
const BODIES: Domain = Domain::named("plan.body");
const FAULTS: Domain = Domain::named("plan.fault");
const FILE_SYSTEM: Domain = Domain::named("plan.file-system");
const MEMBERS: Domain = Domain::named("plan.members");

/// The seed of a run for which none was given.
const DEFAULT_ROOT: u64 = 1;

/// A scenario whose every draw has been made.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The scenario; all loads are [`Load::Planned`], all ranges of faults are single values, all seeds are pinned.
    pub scenario: Scenario,
    /// The seeds of the run.
    pub seeds: Seeds,
}

impl Plan {
    /// Draws the plan of a scenario. `root` takes the place of the root seed of the file; seeds that the file pins one
    /// by one stay as they are.
    #[must_use]
    pub fn draw(mut scenario: Scenario, root: Option<u64>) -> Plan {
        let pins = scenario.seeds;
        let mut seeds = Seeds::from_root(root.or(pins.root).unwrap_or(DEFAULT_ROOT));
        for (seed, pin) in [
            (&mut seeds.plan, pins.plan),
            (&mut seeds.work, pins.work),
            (&mut seeds.net, pins.net),
            (&mut seeds.disk, pins.disk),
            (&mut seeds.clock, pins.clock),
            (&mut seeds.sched, pins.sched),
        ] {
            *seed = pin.map_or(*seed, Seed);
        }
        if let Some(nemesis) = scenario.nemesis.clone() {
            shape::vary(&mut scenario, &nemesis, seeds.plan);
        }
        for group in &mut scenario.producers {
            if matches!(group.load, Load::Drawn { .. }) {
                group.load = Load::Planned(draw_sends(seeds.plan, group));
            }
        }
        for group in &mut scenario.brokers {
            if group.file_system == FileSystem::Any {
                let names = &FileSystem::NAMES[1..];
                let draw = seeds.plan.draw(FILE_SYSTEM, name_hash(&group.name), 0);
                group.file_system = names[draw.below(names.len() as u64) as usize].1;
            }
        }
        draw_faults(seeds.plan, &mut scenario, 0);
        if let Some(nemesis) = scenario.nemesis.take() {
            let spelt_out = scenario.faults.len();
            swarm::add(&mut scenario, &nemesis, seeds.plan);
            draw_faults(seeds.plan, &mut scenario, spelt_out);
        }
        scenario.seeds = SeedPins {
            root: Some(seeds.root.0),
            plan: Some(seeds.plan.0),
            work: Some(seeds.work.0),
            net: Some(seeds.net.0),
            disk: Some(seeds.disk.0),
            clock: Some(seeds.clock.0),
            sched: Some(seeds.sched.0),
        };
        Plan { scenario, seeds }
    }

    /// The plan as a scenario file.
    #[must_use]
    pub fn print(&self) -> String {
        self.scenario.print()
    }
}

/// What a group sends, over all its producers, in order of time.
fn draw_sends(seed: Seed, group: &ProducerGroup) -> Vec<Send> {
    let Load::Drawn { rate, body_bytes, ref tags, start, end } = group.load else { return Vec::new() };
    let mut sends = Vec::new();
    for by in 0..group.instances {
        let entity = name_hash(&format!("{}/{by}", group.group));
        let (mut times, mut bodies) = (seed.draws(SENDS, entity), seed.draws(BODIES, entity));
        let mut tag = seed.draws(TAGS, entity);
        // The messages of one batch leave together, when the first of them does.
        let batch = if let SendMode::Batch { size } = group.mode { size } else { 1 };
        for n in 0..rate.count_in(end - start) {
            sends.push(Send {
                n,
                by,
                at: start + time_in_slot(&mut times, rate, n - n % batch),
                body_bytes: bodies.at(n.into()).within(body_bytes.least..=body_bytes.most),
                tag: (!tags.is_empty()).then(|| tags[tag.at(n.into()).below(tags.len() as u64) as usize].clone()),
            });
        }
    }
    sends.sort_by_key(|send| (send.at, send.by, send.n));
    sends
}

/// Operation `n` begins anywhere in its own slot of time, so no draw depends on another. Whole microseconds.
fn time_in_slot(times: &mut Draws, rate: Rate, n: u32) -> Duration {
    let slot_start = rate.per * n / rate.count;
    let within = times.at(n.into()).duration(Duration::ZERO..=rate.interval().saturating_sub(Duration::from_nanos(1)));
    whole_micros(slot_start + within)
}

/// Draws what is open of the faults from number `first` on.
fn draw_faults(seed: Seed, scenario: &mut Scenario, first: usize) {
    let mut faults = std::mem::take(&mut scenario.faults);
    for fault in &mut faults[first..] {
        draw_fault(seed, fault);
        if let FaultKind::Partition { node, members: Some(members @ Members::Among(_)), .. } = &mut fault.kind {
            *members = Members::Order(in_drawn_order(seed, &fault.id, scenario.members(members, node.as_deref())));
        }
    }
    scenario.faults = faults;
}

/// An order that leaves every pair as it is when somebody else is left out.
fn in_drawn_order(seed: Seed, fault: &str, mut nodes: Vec<String>) -> Vec<String> {
    nodes.sort_by_cached_key(|node| seed.draw(MEMBERS, name_hash(fault), name_hash(node)).0);
    nodes
}

fn draw_fault(seed: Seed, fault: &mut Fault) {
    let mut draws = seed.draws(FAULTS, name_hash(&fault.id));
    let mut fix = |counter, span: Span<Duration>| match span.is_exact() {
        true => span,
        false => Span::exactly(whole_micros(draws.at(counter).duration(span.least..=span.most))),
    };
    if let When::At(at) = fault.when {
        fault.when = When::At(fix(0, at));
    }
    fault.lasts = fault.lasts.map(|lasts| fix(1, lasts));
    if let FaultKind::OnLink { what: LinkFault::Flap { up, down }, .. } = &mut fault.kind {
        (*up, *down) = (fix(3, *up), fix(4, *down));
    }
    if let FaultKind::PowerLoss { style: style @ None, .. } | FaultKind::DomainPowerLoss { style: style @ None, .. } =
        &mut fault.kind
    {
        *style = Some(Survival::drawn(draws.at(2)));
    }
}

fn whole_micros(time: Duration) -> Duration {
    Duration::from_micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        format = 1
        active = "10s"
        [[broker]]
        name = "broker-a"
        [[topic]]
        name = "orders"
        [[producer]]
        group = "checkout"
        topic = "orders"
        rate = "20/s"
        tags = ["paid", "refund"]
        instances = 2
        [[fault]]
        id = "f1"
        at = "2s..8s"
        kind = "power-loss"
        node = "broker-a/0"
        down = "1s..2s"
        [[fault]]
        id = "f2"
        at = "1s..9s"
        kind = "kill"
        node = "broker-a/0"
    "#;

    fn plan(seed: u64) -> Plan {
        Plan::draw(Scenario::parse("x.toml", FILE).unwrap(), Some(seed))
    }

    fn sends(plan: &Plan) -> &[Send] {
        match &plan.scenario.producers[0].load {
            Load::Planned(sends) => sends,
            Load::Drawn { .. } => panic!("not planned"),
        }
    }

    #[test]
    fn a_plan_spells_everything_out() {
        let plan = plan(7);
        assert_eq!(sends(&plan).len(), 400);
        assert!(sends(&plan).is_sorted_by_key(|send| send.at));
        assert!(sends(&plan).iter().all(|send| send.tag.is_some() && (100..=1024).contains(&send.body_bytes)));
        assert!(matches!(plan.scenario.faults[0].kind, FaultKind::PowerLoss { style: Some(_), .. }));
        assert!(plan.scenario.faults.iter().all(|fault| matches!(fault.when, When::At(at) if at.is_exact())));
    }

    #[test]
    fn a_printed_plan_is_its_own_plan() {
        let plan = plan(7);
        let again = Plan::draw(Scenario::parse("x.toml", &plan.print()).unwrap(), None);
        assert_eq!(again.seeds, plan.seeds);
        assert_eq!(again.print(), plan.print());
    }

    #[test]
    fn seeds_give_different_plans() {
        assert_ne!(plan(7).print(), plan(8).print());
    }

    #[test]
    fn removing_a_fault_leaves_the_others_as_they_were() {
        let mut scenario = Scenario::parse("x.toml", FILE).unwrap();
        scenario.faults.remove(0);
        let without = Plan::draw(scenario, Some(7));
        assert_eq!(format!("{:?}", without.scenario.faults[0]), format!("{:?}", plan(7).scenario.faults[1]));
        assert_eq!(sends(&without), sends(&plan(7)));
    }
}
