//! Swarm: random faults of a seed, within what the deployment claims to survive (`spec/simulation.md` 5.4).
//!
//! For each family of faults a coin decides whether it takes part in the seed at all, and then a rate is drawn
//! log-uniformly from its range. Every draw is keyed by the family or by the id of the fault, so that switching one
//! family off leaves every fault of the others as it was; it can only let faults through that the guards had refused.

use std::time::Duration;

use crate::{
    disk::{DiskError, Hits, Media},
    points::BUGGIFY,
    scenario::{
        Back, ClockFault, ConsumerGroup, Extreme, Fault, FaultKind, Kind, Lasting, Link, LinkFault, MOST_QUEUES,
        Members, Nemesis, ProducerGroup, Scenario, Shape, When, units::Span,
    },
    seed::{Domain, Draws, Seed, name_hash},
};

const FAMILY: Domain = Domain::named("swarm.family");
const FAULT: Domain = Domain::named("swarm.fault");
const DEAD: Domain = Domain::named("swarm.dead");

/// How often a family takes part, in parts per million.
const COIN_PPM: u32 = 500_000;

/// The least rate of a family is this part of the greatest, unless the file says otherwise.
const RATE_RANGE: u64 = 16;

/// The most faults of one family in a seed.
const FAULTS_MAX: u64 = 200;

/// How often a place of the product takes part in a fault that makes it behave unusually, in parts per million.
const BUGGIFY_PLACE_PPM: u32 = 250_000;

/// The length of an effect that has none.
const MOMENT: (u64, u64) = (0, 0);

/// A family of faults.
pub struct Family {
    /// Its name in `[nemesis]`.
    pub name: &'static str,
    /// The greatest rate: faults per minute, in thousandths (`spec/simulation.md` 5.1).
    most: u64,
    aim: Aim,
    guard: Guard,
    /// The shortest and the longest effect, in milliseconds; drawn log-uniformly. [`MOMENT`] if it has no length.
    lasts_ms: (u64, u64),
    build: fn(&mut Target<'_>) -> FaultKind,
}

/// Whom a family hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aim {
    Servers,
    Brokers,
    Clients,
    Consumers,
    Everyone,
}

/// What limits a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guard {
    Free,
    /// A node is down meanwhile: of servers at most `max-down` at a time.
    Down,
    /// As `Down`, and only if the claim names this kind.
    DownClaimed,
    /// Only if the claim names this kind.
    Claimed,
}

/// All families. One line each; the rates are those of `spec/simulation.md` 5.1.
pub const FAMILIES: &[Family] = &[
    family("kill", 4_000, Aim::Servers, Guard::Down, (200, 30_000), |at| FaultKind::Kill { node: at.node() }),
    family("panic", 4_000, Aim::Servers, Guard::Down, (200, 30_000), |at| FaultKind::Panic { node: at.node() }),
    family("rebalance-storm", 6_000, Aim::Consumers, Guard::Free, (1_000, 30_000), |at| {
        let (least, spread) = (at.millis(200, 4_000), at.millis(1, 4_000));
        let node = at.node();
        let group = node.rsplit_once('/').map_or(node.as_str(), |(group, _)| group).to_owned();
        FaultKind::RebalanceStorm { group, every: Span { least, most: least + spread } }
    }),
    family("config-change", 2_000, Aim::Brokers, Guard::Free, MOMENT, |at| {
        let (choice, more) = (at.number(1, 1 << 20) as usize, at.number(1, 8));
        let (topic, queues) = &at.topics[choice % at.topics.len()];
        FaultKind::ConfigChange { topic: topic.clone(), queues: (queues + more).min(MOST_QUEUES) }
    }),
    family("drain", 2_000, Aim::Brokers, Guard::Free, (5_000, 60_000), |at| {
        let (choice, node) = (at.number(1, 1 << 20) as usize, at.node());
        FaultKind::Drain { node, topic: at.topics[choice % at.topics.len()].0.clone() }
    }),
    family("buggify", 1_000, Aim::Everyone, Guard::Free, (10_000, 300_000), |at| at.buggify()),
    family("stop", 2_000, Aim::Servers, Guard::Down, (200, 30_000), |at| FaultKind::Stop { node: at.node() }),
    family("power-loss", 2_000, Aim::Brokers, Guard::DownClaimed, (500, 30_000), |at| FaultKind::PowerLoss {
        node: at.node(),
        style: None,
        garbage: at.chance(COIN_PPM),
    }),
    family("pause", 6_000, Aim::Servers, Guard::Free, (10, 60_000), |at| FaultKind::Pause { node: at.node() }),
    family("cut", 6_000, Aim::Servers, Guard::Free, (100, 30_000), |at| FaultKind::Cut {
        link: at.link(),
        port: None,
        hold: at.chance(300_000),
    }),
    family("latency", 4_000, Aim::Servers, Guard::Free, (1_000, 30_000), |at| FaultKind::Latency {
        link: at.link(),
        extra: Span { least: Duration::from_millis(1), most: at.millis(5, 500) },
    }),
    family("loss", 4_000, Aim::Servers, Guard::Free, (1_000, 30_000), |at| {
        let chance_ppm = at.number(1_000, 300_000);
        at.on_link(LinkFault::Loss(chance_ppm))
    }),
    family("bandwidth", 4_000, Aim::Servers, Guard::Free, (1_000, 30_000), |at| {
        let bytes_per_second = at.number(4 << 10, 4 << 20);
        at.on_link(LinkFault::Bandwidth(bytes_per_second.into()))
    }),
    family("slow-link", 4_000, Aim::Servers, Guard::Free, (1_000, 30_000), |at| {
        let factor = at.number(2, 200);
        at.on_link(LinkFault::Slow(factor))
    }),
    family("flap", 6_000, Aim::Servers, Guard::Free, (1_000, 30_000), |at| {
        let (up, down) = (Span::exactly(at.millis(50, 5_000)), Span::exactly(at.millis(50, 5_000)));
        at.on_link(LinkFault::Flap { up, down })
    }),
    family("conn-reset", 10_000, Aim::Servers, Guard::Free, MOMENT, |at| at.on_link(LinkFault::Reset)),
    family("partition", 6_000, Aim::Everyone, Guard::Free, (100, 30_000), |at| at.partition()),
    family("accept-full", 2_000, Aim::Servers, Guard::Free, (500, 30_000), |at| FaultKind::AcceptFull {
        node: at.node(),
    }),
    family("connect-hang", 2_000, Aim::Everyone, Guard::Free, (500, 30_000), |at| FaultKind::ConnectHang {
        node: at.node(),
    }),
    family("disk-slow", 4_000, Aim::Brokers, Guard::Free, (500, 30_000), |at| FaultKind::DiskSlow {
        node: at.node(),
        factor: at.number(2, 200),
    }),
    family("disk-stall", 4_000, Aim::Brokers, Guard::Free, (100, 20_000), |at| FaultKind::DiskStall {
        node: at.node(),
    }),
    family("disk-replaced", 200, Aim::Brokers, Guard::DownClaimed, (500, 30_000), |at| FaultKind::DiskReplaced {
        node: at.node(),
    }),
    family("restore-backup", 200, Aim::Brokers, Guard::DownClaimed, (500, 30_000), |at| FaultKind::RestoreBackup {
        node: at.node(),
        taken: at.earlier(),
    }),
    family("disk-gone", 2_000, Aim::Brokers, Guard::Claimed, (100, 30_000), |at| FaultKind::DiskGone {
        node: at.node(),
    }),
    family("eio-read", 4_000, Aim::Brokers, Guard::Claimed, (500, 30_000), |at| at.disk_error(DiskError::Read)),
    family("eio-write", 4_000, Aim::Brokers, Guard::Claimed, (500, 30_000), |at| at.disk_error(DiskError::Write)),
    family("eio-flush", 4_000, Aim::Brokers, Guard::Claimed, (500, 30_000), |at| at.disk_error(DiskError::Flush)),
    family("short-write", 4_000, Aim::Brokers, Guard::Claimed, (500, 30_000), |at| {
        at.disk_error(DiskError::ShortWrite)
    }),
    family("short-read", 4_000, Aim::Brokers, Guard::Claimed, (500, 30_000), |at| at.disk_error(DiskError::ShortRead)),
    family("torn-flush", 2_000, Aim::Brokers, Guard::DownClaimed, (500, 30_000), |at| {
        let (within, (path, hits)) = (at.millis(500, 10_000), at.calls());
        FaultKind::TornFlush { node: at.node(), path, hits, within: Some(within) }
    }),
    family("lost-write", 2_000, Aim::Brokers, Guard::Claimed, (500, 30_000), |at| at.disk_error(DiskError::LostWrite)),
    family("misdirected-write", 2_000, Aim::Brokers, Guard::Claimed, (500, 30_000), |at| {
        at.disk_error(DiskError::MisdirectedWrite)
    }),
    family("lying-flush", 2_000, Aim::Brokers, Guard::Claimed, (500, 30_000), |at| {
        at.disk_error(DiskError::LyingFlush)
    }),
    family("bit-rot", 2_000, Aim::Brokers, Guard::Claimed, (500, 30_000), |at| at.media(Media::BitRot)),
    family("latent-sector", 2_000, Aim::Brokers, Guard::Claimed, (500, 30_000), |at| at.media(Media::LatentSector)),
    family("disk-fill", 1_000, Aim::Brokers, Guard::Free, (2_000, 30_000), |at| FaultKind::DiskFill {
        node: at.node(),
        percent: at.percent(60, 100),
        ramp: Duration::ZERO,
    }),
    family("skew", 2_000, Aim::Servers, Guard::Free, (1_000, 60_000), |at| FaultKind::Clock {
        node: at.node(),
        what: ClockFault::Skew(at.signed(5_000)),
        back: Back::Step,
    }),
    family("drift", 2_000, Aim::Everyone, Guard::Free, (1_000, 60_000), |at| {
        let (ppm, is_slow) = (at.number(1, 200).cast_signed(), at.chance(500_000));
        at.clock(ClockFault::Drift(if is_slow { -ppm } else { ppm }))
    }),
    family("step", 2_000, Aim::Everyone, Guard::Free, (1_000, 60_000), |at| {
        let (by_ms, is_back) = (i64::from(at.number(10, 600_000)), at.chance(500_000));
        at.clock(ClockFault::Step(if is_back { -by_ms } else { by_ms }))
    }),
    family("strobe", 2_000, Aim::Everyone, Guard::Free, (1_000, 30_000), |at| {
        let (by_ms, is_back) = (i64::from(at.number(10, 600_000)), at.chance(500_000));
        let every = Span { least: Duration::from_millis(50), most: Duration::from_millis(500) };
        at.clock(ClockFault::Strobe { by_ms: if is_back { -by_ms } else { by_ms }, every })
    }),
    family("clock-extreme", 100, Aim::Everyone, Guard::Free, (1_000, 60_000), |at| {
        let to = if at.chance(500_000) { Extreme::Before1970 } else { Extreme::After2038 };
        at.clock(ClockFault::Extreme(to))
    }),
    family("client-crash", 6_000, Aim::Clients, Guard::Down, (200, 30_000), |at| FaultKind::Kill { node: at.node() }),
    family("client-pause", 6_000, Aim::Clients, Guard::Free, (10, 60_000), |at| FaultKind::Pause { node: at.node() }),
];

const fn family(
    name: &'static str,
    most: u64,
    aim: Aim,
    guard: Guard,
    lasts_ms: (u64, u64),
    build: fn(&mut Target<'_>) -> FaultKind,
) -> Family {
    Family { name, most, aim, guard, lasts_ms, build }
}

/// Who is hit, and how hard: draws of one fault, each with a number of its own.
struct Target<'a> {
    draws: Draws,
    /// Those whom the family may hit.
    nodes: &'a [String],
    /// Names of the groups of all nodes.
    groups: &'a [String],
    /// The topics that may get more queues, with how many they have.
    topics: &'a [(String, u32)],
    /// When the fault happens.
    time: Duration,
    next: u64,
}

impl Target<'_> {
    fn number(&mut self, least: u64, most: u64) -> u32 {
        self.next += 1;
        u32::try_from(self.draws.at(self.next).log_uniform(least..=most)).unwrap_or(u32::MAX)
    }

    fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.number(least, most).into())
    }

    fn percent(&mut self, least: u64, most: u64) -> u8 {
        self.next += 1;
        u8::try_from(self.draws.at(self.next).within(least..=most)).unwrap_or(100)
    }

    /// A time before the fault, each equally likely.
    fn earlier(&mut self) -> Duration {
        self.next += 1;
        let most = u64::try_from(self.time.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.draws.at(self.next).within(0..=most))
    }

    fn signed(&mut self, most: u64) -> i64 {
        self.next += 1;
        i64::try_from(self.draws.at(self.next).within(0..=2 * most)).unwrap_or(0) - most.cast_signed()
    }

    fn chance(&mut self, ppm: u32) -> bool {
        self.next += 1;
        self.draws.at(self.next).chance(ppm)
    }

    fn node(&mut self) -> String {
        self.next += 1;
        self.nodes[self.draws.at(self.next).below(self.nodes.len() as u64) as usize].clone()
    }

    /// Each place with a quarter's chance, but at least one.
    fn buggify(&mut self) -> FaultKind {
        let chance_ppm = self.number(10_000, 500_000);
        let one = self.number(1, BUGGIFY.len() as u64) as usize - 1;
        let places = BUGGIFY.into_iter().enumerate();
        let drawn = places.filter(|(number, _)| self.chance(BUGGIFY_PLACE_PPM) || *number == one);
        FaultKind::Buggify { names: drawn.map(|(_, name)| name.to_owned()).collect(), chance_ppm }
    }

    fn media(&mut self, what: Media) -> FaultKind {
        let count = self.number(1, 8);
        FaultKind::Media { node: self.node(), path: "commitlog/*".to_owned(), what, count }
    }

    fn disk_error(&mut self, error: DiskError) -> FaultKind {
        let (path, hits) = self.calls();
        FaultKind::DiskError { node: self.node(), path, error, hits }
    }

    /// Which calls on which files go wrong.
    fn calls(&mut self) -> (String, Hits) {
        const PATHS: [&str; 4] = ["*", "commitlog/*", "consumequeue/*", "config/*"];
        let (once, nth, ppm) = (self.chance(500_000), self.number(1, 30), self.number(10_000, 1_000_000));
        self.next += 1;
        let path = PATHS[self.draws.at(self.next).below(PATHS.len() as u64) as usize].to_owned();
        (path, if once { Hits::Nth(nth) } else { Hits::Chance(ppm) })
    }

    fn clock(&mut self, what: ClockFault) -> FaultKind {
        let back = if self.chance(500_000) { Back::Slew } else { Back::Step };
        FaultKind::Clock { node: self.node(), what, back }
    }

    fn on_link(&mut self, what: LinkFault) -> FaultKind {
        FaultKind::OnLink { link: self.link(), port: None, what }
    }

    /// Any shape that there are nodes enough for.
    fn partition(&mut self) -> FaultKind {
        self.next += 1;
        let others = |shape: Shape| self.nodes.len() - usize::from(shape.has_node()).min(self.nodes.len());
        let shapes: Vec<Shape> = Shape::NAMES.map(|(_, shape)| shape).to_vec();
        let possible: Vec<Shape> = shapes.into_iter().filter(|shape| others(*shape) >= shape.members_min()).collect();
        let shape = possible[self.draws.at(self.next).below(possible.len() as u64) as usize];
        let node = shape.has_node().then(|| self.node());
        let members = (shape.members_min() > 0).then(|| Members::Among(self.nodes.to_vec()));
        FaultKind::Partition { shape, node, members }
    }

    /// From a server to everyone, to one group, or both ways.
    fn link(&mut self) -> Link {
        let from = self.node();
        self.next += 1;
        let choice = self.draws.at(self.next).below(self.groups.len() as u64 + 1) as usize;
        let to = self.groups.get(choice).cloned().unwrap_or_else(|| "*".to_owned());
        if self.chance(700_000) {
            return Link { from, to, both: true };
        }
        let (from, to) = if self.chance(500_000) { (from, to) } else { (to, from) };
        Link { from, to, both: false }
    }
}

/// Adds the faults of a seed to those of the scenario, which must have their times already.
pub(super) fn add(scenario: &mut Scenario, nemesis: &Nemesis, seed: Seed) {
    let mut drawn: Vec<(Guard, Fault)> =
        FAMILIES.iter().flat_map(|family| of_family(scenario, nemesis, family, seed)).collect();
    let dead = dead_for_good(scenario, nemesis, seed);
    // Those who never come back take their places among those who are down before all others.
    let mut windows: Vec<Window> =
        scenario.faults.iter().chain(&dead).flat_map(|fault| Window::all_of(scenario, fault)).collect();
    drawn.extend(dead.into_iter().map(|fault| (Guard::Free, fault)));
    drawn.sort_by(|(_, one), (_, other)| (start(one), &one.id).cmp(&(start(other), &other.id)));
    for (guard, fault) in drawn {
        if matches!(guard, Guard::Down | Guard::DownClaimed) {
            let Some(window) = Window::of(scenario, &fault).filter(|window| window.fits(scenario, nemesis, &windows))
            else {
                continue;
            };
            windows.push(window);
        }
        scenario.faults.push(fault);
    }
}

/// The faults that one family wants in this seed, in order of time.
fn of_family(scenario: &Scenario, nemesis: &Nemesis, family: &Family, seed: Seed) -> Vec<(Guard, Fault)> {
    let default = Span { least: family.most / RATE_RANGE, most: family.most };
    let range = nemesis.rates.get(family.name).copied().unwrap_or(default);
    let claimed = scenario.claim.iter().any(|claim| claim.kind == family.name);
    let nodes = targets(scenario, nemesis, family.aim);
    let needs_claim = matches!(family.guard, Guard::DownClaimed | Guard::Claimed);
    let may_grow = scenario.topics.iter().filter(|topic| topic.queues < MOST_QUEUES);
    let topics: Vec<(String, u32)> = may_grow.map(|topic| (topic.name.clone(), topic.queues)).collect();
    let is_possible = !matches!(family.name, "config-change" | "drain") || !topics.is_empty();
    let allowed = !nodes.is_empty() && (claimed || !needs_claim) && is_possible;
    let Some(per_minute) = rate(seed, family.name, range).filter(|_| allowed) else { return Vec::new() };
    let mean_gap = 60_000_000_000_000 / per_minute;
    let groups = groups(scenario);
    let mut at = Duration::ZERO;
    let mut faults = Vec::new();
    for number in 1..=FAULTS_MAX {
        let id = format!("{}-{number}", family.name);
        let draws = seed.draws(FAULT, name_hash(&id));
        let mut target = Target { draws, nodes: &nodes, groups: &groups, topics: &topics, time: at, next: 1 };
        at += Duration::from_micros(target.draws.at(0).exponential(mean_gap) / 1_000);
        if at >= scenario.active {
            break;
        }
        target.time = at;
        let lasts = (family.lasts_ms != MOMENT).then(|| {
            let lasts_ms = target.draws.at(1).log_uniform(family.lasts_ms.0..=family.lasts_ms.1);
            // Beyond the end of the run there is nothing to last for, and no file may say so.
            Span::exactly(Duration::from_millis(lasts_ms).min(scenario.active + scenario.settle))
        });
        let kind = (family.build)(&mut target);
        if kind.link().is_some_and(|link| scenario.only_node_of(link).is_some()) {
            continue; // From a node to itself nothing passes that could be kept back.
        }
        if !scenario.has_whom(&kind) {
            continue;
        }
        faults.push((family.guard, Fault { id: unique(scenario, id), when: When::At(Span::exactly(at)), kind, lasts }));
    }
    faults
}

/// The rate of a family in this seed, in thousandths per minute; `None` if it does not take part.
fn rate(seed: Seed, family: &str, range: Span<u64>) -> Option<u64> {
    let mut draws = seed.draws(FAMILY, name_hash(family));
    let takes_part = range.most > 0 && draws.at(0).chance(COIN_PPM);
    takes_part.then(|| draws.at(1).log_uniform(range.least.max(1)..=range.most))
}

/// Name servers that die and stay dead: in half of the seeds a minority of them, if the claim has kills.
fn dead_for_good(scenario: &mut Scenario, nemesis: &Nemesis, seed: Seed) -> Vec<Fault> {
    let mut draws = seed.draws(DEAD, 0);
    let claims_kill = scenario.claim.iter().any(|claim| claim.kind == "kill");
    // Those that stay dead by the file count.
    let dead = scenario.permanent.iter().filter(|node| node.starts_with("namesrv/")).count() as u32;
    let minority = (scenario.namesrvs.saturating_sub(1) / 2).saturating_sub(dead).min(nemesis.max_down);
    if !claims_kill || minority == 0 || !draws.at(0).chance(COIN_PPM) {
        return Vec::new();
    }
    let mut nodes: Vec<String> = targets(scenario, nemesis, Aim::Servers);
    nodes.retain(|node| node.starts_with("namesrv/") && !scenario.permanent.contains(node));
    let count = draws.at(1).within(1..=minority.into()).min(nodes.len() as u64);
    let mut faults = Vec::new();
    for number in 1..=count {
        let node = nodes.swap_remove(draws.at(2 * number).below(nodes.len() as u64) as usize);
        let at = draws.at(2 * number + 1).within(0..=u64::try_from(scenario.active.as_micros()).unwrap_or(u64::MAX));
        // A fault at the very end of the active phase would not happen.
        let at = Duration::from_micros(at).min(scenario.active.saturating_sub(Duration::from_micros(1)));
        scenario.permanent.push(node.clone());
        faults.push(Fault {
            id: unique(scenario, format!("dead-{number}")),
            when: When::At(Span::exactly(at)),
            kind: FaultKind::Kill { node },
            lasts: None,
        });
    }
    scenario.permanent.sort();
    faults
}

/// The nodes that a family may hit.
fn targets(scenario: &Scenario, nemesis: &Nemesis, aim: Aim) -> Vec<String> {
    let spared: Vec<String> = nemesis.spare.iter().flat_map(|end| scenario.end_of_link(end)).collect();
    let is_hit = |kind: Kind| match aim {
        Aim::Servers => matches!(kind, Kind::Namesrv | Kind::Broker),
        Aim::Brokers => kind == Kind::Broker,
        Aim::Clients => matches!(kind, Kind::Producer | Kind::Consumer),
        Aim::Consumers => kind == Kind::Consumer,
        Aim::Everyone => true,
    };
    let nodes = scenario.nodes().into_iter().filter(|(name, kind)| is_hit(*kind) && !spared.contains(name));
    nodes.map(|(name, _)| name).collect()
}

fn groups(scenario: &Scenario) -> Vec<String> {
    let servers = std::iter::once("namesrv".to_owned()).chain(scenario.brokers.iter().map(|group| group.name.clone()));
    let producers = scenario.producers.iter().map(|ProducerGroup { group, .. }| group.clone());
    let consumers = scenario.consumers.iter().map(|ConsumerGroup { group, .. }| group.clone());
    servers.chain(producers).chain(consumers).collect()
}

/// The id, made longer if the file uses it itself.
fn unique(scenario: &Scenario, mut id: String) -> String {
    while scenario.faults.iter().any(|fault| fault.id == id) {
        id.push('x');
    }
    id
}

fn start(fault: &Fault) -> Duration {
    match fault.when {
        When::At(at) => at.least,
        When::On { .. } => Duration::ZERO,
    }
}

/// A time in which a fault keeps a node down.
struct Window {
    node: String,
    kind: &'static str,
    is_server: bool,
    from: Duration,
    to: Duration,
}

impl Window {
    /// One for each node that it keeps down; none if nobody knows when.
    fn all_of(scenario: &Scenario, fault: &Fault) -> Vec<Window> {
        let FaultKind::DomainPowerLoss { domain, .. } = &fault.kind else {
            return Window::of(scenario, fault).into_iter().collect();
        };
        let nodes = scenario.nodes_of_domain(domain);
        nodes.iter().filter_map(|node| Window::on(scenario, fault, node)).collect()
    }

    /// `None` if it keeps nobody down, or if nobody knows when.
    fn of(scenario: &Scenario, fault: &Fault) -> Option<Window> {
        let node = fault.kind.node().filter(|_| fault.kind.lasting() == Lasting::Down)?;
        Window::on(scenario, fault, node)
    }

    fn on(scenario: &Scenario, fault: &Fault, node: &str) -> Option<Window> {
        let When::At(at) = fault.when else { return None };
        let of_node = scenario.nodes().into_iter().find(|(name, _)| name == node)?;
        let lasts = fault.lasts.and_then(|lasts| Some(fault.kind.waits()?.saturating_add(lasts.most)));
        let to = lasts.map_or(Duration::MAX, |lasts| at.most.saturating_add(lasts));
        Some(Window {
            node: node.to_owned(),
            kind: fault.kind.name(),
            is_server: matches!(of_node.1, Kind::Namesrv | Kind::Broker),
            from: at.least,
            to,
        })
    }

    fn overlaps(&self, other: &Window) -> bool {
        self.from < other.to && other.from < self.to
    }

    /// Whether the guards allow it beside the others.
    fn fits(&self, scenario: &Scenario, nemesis: &Nemesis, others: &[Window]) -> bool {
        let beside = || others.iter().filter(|other| self.overlaps(other));
        let room = |limit: Option<u32>, down: usize| limit.is_none_or(|limit| down < limit as usize);
        let claimed = scenario.claim.iter().find(|claim| claim.kind == self.kind).and_then(|claim| claim.count);
        !beside().any(|other| other.node == self.node)
            && (!self.is_server
                || room(Some(nemesis.max_down), beside().filter(|other| other.is_server).count())
                    && room(claimed, beside().filter(|other| other.is_server && other.kind == self.kind).count()))
    }
}

#[cfg(test)]
mod tests;
