//! Links: what lies between two nodes, per direction.

use std::collections::BTreeMap;

use crate::{
    net::{
        Impairment, ImpairmentId, ImpairmentKind, Latency, NetConfig,
        backlog::{Backlog, Journey, Pace, Passage, Rider},
    },
    seed::{Domain, Draws, Seed},
    stand::NodeId,
    world::nanos,
};

const EXTRA: Domain = Domain::named("net.extra");
/// The first pause before a lost segment is sent again; each further one is twice as long.
pub(super) const RETRANSMIT_FIRST: u64 = 200_000_000;
/// The longest pause.
pub(super) const RETRANSMIT_LONGEST: u64 = 120_000_000_000;
/// Where the draws of a direction for other things than its usual latency begin. They lie far apart, so that the usual
/// ones, one per segment, are drawn in a row.
const ADDED: u64 = 1 << 60;
const LOST: u64 = 2 << 60;
const LOST_AGAIN: u64 = 3 << 60;
/// Latency inside a node, in nanoseconds.
const LOOPBACK: std::ops::RangeInclusive<u64> = 5_000..=20_000;

/// All links, as a matrix over nodes.
pub(super) struct Links {
    seed: Seed,
    latency: Latency,
    extra_max: u64,
    bandwidth: u64,
    hosts: Vec<u64>,
    /// By sender, then receiver.
    links: Vec<Vec<Link>>,
    next_impairment: u64,
}

#[derive(Default)]
struct Link {
    /// Added to every latency.
    extra: u64,
    impairments: Vec<InEffect>,
    /// What connections share.
    wire: Wire,
    /// The connections of a port that something slows which leaves other ports alone, and as long as what they have sent
    /// then is under way.
    lanes: BTreeMap<u16, Wire>,
}

/// What segments keep busy one after another.
#[derive(Default)]
struct Wire {
    /// When it is free for the next segment.
    next_free: u64,
    /// What it has taken on while something made it slower; empty while nothing does.
    backlog: Backlog,
}

impl Link {
    fn is_slowed(&self, port: Option<u16>) -> bool {
        let touches = |only: Option<u16>| only.is_none() || only == port;
        self.impairments.iter().any(|other| other.it.kind.slows() && touches(other.it.port))
    }

    /// What a segment of a port that is sent now keeps busy.
    fn wire_mut(&mut self, port: u16, now: u64) -> &mut Wire {
        let is_apart = self.impairments.iter().any(|other| other.it.kind.slows() && other.it.port == Some(port));
        if !is_apart && self.lanes.get(&port).is_none_or(|lane| lane.next_free <= now) {
            self.lanes.remove(&port);
            return &mut self.wire;
        }
        let next_free = self.wire.next_free;
        self.lanes.entry(port).or_insert_with(|| Wire { next_free, backlog: Backlog::default() })
    }

    /// The wire of a lane, or the one that connections share.
    fn lane_mut(&mut self, lane: Option<u16>) -> Option<&mut Wire> {
        match lane {
            None => Some(&mut self.wire),
            Some(port) => self.lanes.get_mut(&port),
        }
    }
}

/// An impairment, and how many segments it has touched.
struct InEffect {
    id: ImpairmentId,
    it: Impairment,
    touched: u64,
}

/// One direction of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    /// The port that the server of the connection listens on.
    pub(super) port: u16,
}

impl Route {
    pub(super) fn back(self) -> Route {
        Route { from: self.to, to: self.from, port: self.port }
    }
}

/// Whether a link lets segments through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Path {
    Open,
    Dropped,
    Held,
}

impl Links {
    pub(super) fn new(seed: Seed, config: &NetConfig) -> Links {
        Links {
            seed,
            latency: config.latency,
            extra_max: nanos(config.extra_max),
            bandwidth: config.bandwidth,
            hosts: Vec::new(),
            links: Vec::new(),
            next_impairment: 0,
        }
    }

    pub(super) fn add_host(&mut self, name_hash: u64) {
        for (from, row) in self.hosts.iter().zip(&mut self.links) {
            row.push(new_link(self.seed, self.extra_max, *from, name_hash));
        }
        self.hosts.push(name_hash);
        let row = self.hosts.iter().map(|&to| new_link(self.seed, self.extra_max, name_hash, to)).collect();
        self.links.push(row);
    }

    pub(super) fn impair(&mut self, impairment: Impairment) -> ImpairmentId {
        let id = ImpairmentId(self.next_impairment);
        self.next_impairment += 1;
        let in_effect = InEffect { id, it: impairment, touched: 0 };
        self.link_mut(impairment.from, impairment.to).impairments.push(in_effect);
        id
    }

    /// Ends an impairment, and tells what it was and how many segments it has touched.
    pub(super) fn lift(&mut self, id: ImpairmentId) -> Option<(Impairment, u64)> {
        self.links.iter_mut().flatten().find_map(|link| {
            let at = link.impairments.iter().position(|other| other.id == id)?;
            let lifted = link.impairments.remove(at);
            Some((lifted.it, lifted.touched))
        })
    }

    pub(super) fn impairments(&self) -> Vec<ImpairmentId> {
        self.links.iter().flatten().flat_map(|link| &link.impairments).map(|other| other.id).collect()
    }

    /// A cut that drops wins over one that holds: what is lost cannot be held.
    pub(super) fn path(&self, route: Route) -> Path {
        let mut path = Path::Open;
        for kind in self.kinds(route) {
            match kind {
                ImpairmentKind::Drop => return Path::Dropped,
                ImpairmentKind::Hold => path = Path::Held,
                _ => {}
            }
        }
        path
    }

    /// How a segment of `bytes` that is sent now travels. Number `counter` of the direction's draws decides.
    pub(super) fn travel(
        &mut self,
        route: Route,
        bytes: usize,
        now: u64,
        (draws, counter): (&mut Draws, u64),
    ) -> Journey {
        let Route { from, to, port } = route;
        if from == to {
            let pace = Pace { busy: 0, slowness: 1 };
            return Journey::new((port, bytes), pace, now, (draws.at(counter).within(LOOPBACK), 0));
        }
        let usual = self.latency.pick(draws.at(counter)) + self.link(from, to).extra;
        let (mut extra, mut loss_ppm) = (0_u64, 0);
        if !self.link(from, to).impairments.is_empty() {
            let added = draws.at(ADDED + counter);
            for kind in self.kinds(route) {
                match kind {
                    ImpairmentKind::Latency(latency) => extra = extra.saturating_add(latency.pick(added)),
                    ImpairmentKind::Loss(ppm) => loss_ppm = loss_ppm.max(ppm),
                    ImpairmentKind::Bandwidth(_)
                    | ImpairmentKind::Slow(_)
                    | ImpairmentKind::NoConnects
                    | ImpairmentKind::Drop
                    | ImpairmentKind::Hold => {}
                }
            }
        }
        let mut losses = 0;
        if loss_ppm > 0 {
            // A second loss of the same segment is as likely again; a third is not worth a draw of its own.
            for (lost, pause) in [(LOST, RETRANSMIT_FIRST), (LOST_AGAIN, RETRANSMIT_FIRST * 2)] {
                if !draws.at(lost + counter).chance(loss_ppm) {
                    break;
                }
                extra = extra.saturating_add(pause);
                losses += 1;
            }
        }
        self.count_touched(route, losses);
        let pace = self.pace(route, bytes);
        let wire = self.link_mut(from, to).wire_mut(port, now);
        let journey = Journey::new((port, bytes), pace, now.max(wire.next_free), (usual, extra));
        wire.next_free = journey.end;
        journey
    }

    /// Someone arrives at the end of a journey at `arrives_at`, and not before `not_before`. That is kept while the link is
    /// slower than usual.
    pub(super) fn board(
        &mut self,
        route: Route,
        (journey, rider): (Journey, Option<Rider>),
        (arrives_at, not_before): (u64, u64),
        now: u64,
    ) {
        let link = self.link_mut(route.from, route.to);
        if route.from != route.to && link.is_slowed(Some(route.port)) {
            let passage = Passage { journey, rider, arrives_at, not_before };
            link.wire_mut(route.port, now).backlog.push(now, passage);
        }
    }

    /// What of a link can be slow by itself: what connections share, and ports that were slowed apart.
    pub(super) fn lanes(&self, from: NodeId, to: NodeId) -> Vec<Option<u16>> {
        [None].into_iter().chain(self.link(from, to).lanes.keys().copied().map(Some)).collect()
    }

    /// Something that made a link slower is gone: what a lane has taken on meanwhile goes on as fast as it may now. Gives
    /// it away; [`keep_backlog`](Links::keep_backlog) takes it back.
    pub(super) fn hasten(&mut self, (from, to): (NodeId, NodeId), lane: Option<u16>, now: u64) -> Backlog {
        let wire = self.link_mut(from, to).lane_mut(lane);
        let mut backlog = wire.map(|wire| std::mem::take(&mut wire.backlog)).unwrap_or_default();
        backlog.hasten(now, |journey| self.pace(Route { from, to, port: journey.port }, journey.bytes));
        if let (Some(end), Some(wire)) = (backlog.end(), self.link_mut(from, to).lane_mut(lane)) {
            wire.next_free = end;
        }
        backlog
    }

    /// Keeps a backlog, if something else still makes its lane slower.
    pub(super) fn keep_backlog(&mut self, (from, to): (NodeId, NodeId), lane: Option<u16>, backlog: Backlog) {
        let link = self.link_mut(from, to);
        if link.is_slowed(lane)
            && let Some(wire) = link.lane_mut(lane)
        {
            wire.backlog = backlog;
        }
    }

    /// A segment was sent: counts it for what slows it, and its losses for what loses it.
    fn count_touched(&mut self, route: Route, losses: u64) {
        for other in self.touching(route) {
            other.touched += match other.it.kind {
                ImpairmentKind::Loss(_) => losses,
                ImpairmentKind::Latency(_) | ImpairmentKind::Bandwidth(_) | ImpairmentKind::Slow(_) => 1,
                ImpairmentKind::Drop | ImpairmentKind::Hold | ImpairmentKind::NoConnects => 0,
            };
        }
    }

    /// Whether a connect that has arrived is ignored; counted if so.
    pub(super) fn ignores_connect(&mut self, route: Route) -> bool {
        let mut ignored = false;
        for other in self.touching(route).filter(|other| other.it.kind == ImpairmentKind::NoConnects) {
            other.touched += 1;
            ignored = true;
        }
        ignored
    }

    /// What lies on a route.
    fn touching(&mut self, route: Route) -> impl Iterator<Item = &mut InEffect> {
        let here = self.link_mut(route.from, route.to).impairments.iter_mut();
        here.filter(move |other| other.it.port.is_none_or(|only| only == route.port))
    }

    /// How many times as long everything takes.
    fn slowness(&self, route: Route) -> u64 {
        let factors = self.kinds(route).filter_map(|kind| match kind {
            ImpairmentKind::Slow(factor) => Some(u64::from(factor)),
            _ => None,
        });
        factors.fold(1, u64::max)
    }

    /// More bytes joined the segment that was sent last: the wire is busy for longer.
    pub(super) fn lengthen(&mut self, route: Route, bytes: usize, now: u64) {
        if route.from != route.to {
            let pace = self.pace(route, bytes);
            let wire = self.link_mut(route.from, route.to).wire_mut(route.port, now);
            let journey = Journey::new((route.port, bytes), pace, wire.next_free, (0, 0));
            wire.next_free = journey.end;
            self.board(route, (journey, None), (0, 0), now);
        }
    }

    /// How fast so many bytes get over a link.
    fn pace(&self, route: Route, bytes: usize) -> Pace {
        let slowed = self.kinds(route).filter_map(|kind| match kind {
            ImpairmentKind::Bandwidth(limit) => Some(limit.max(1)),
            _ => None,
        });
        let usual = if self.bandwidth == 0 { u64::MAX } else { self.bandwidth };
        let bandwidth = slowed.fold(usual, u64::min);
        let slowness = self.slowness(route);
        // At most 64 KiB each: far from an overflow.
        Pace { busy: (bytes as u64 * 1_000_000_000 / bandwidth).saturating_mul(slowness), slowness }
    }

    fn kinds(&self, route: Route) -> impl Iterator<Item = ImpairmentKind> + '_ {
        let impairments = self.link(route.from, route.to).impairments.iter();
        impairments.filter(move |other| other.it.port.is_none_or(|only| only == route.port)).map(|other| other.it.kind)
    }

    fn link(&self, from: NodeId, to: NodeId) -> &Link {
        &self.links[from.0 as usize][to.0 as usize]
    }

    fn link_mut(&mut self, from: NodeId, to: NodeId) -> &mut Link {
        &mut self.links[from.0 as usize][to.0 as usize]
    }
}

fn new_link(seed: Seed, extra_max: u64, from: u64, to: u64) -> Link {
    // Not symmetric: the two directions of a pair differ.
    let pair = from.rotate_left(17) ^ to;
    Link { extra: seed.draw(EXTRA, pair, 0).within(0..=extra_max), ..Link::default() }
}
