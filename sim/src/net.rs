//! The simulated network.
//!
//! Links carry segments with latency, bandwidth and impairments, one entry per direction of a pair of nodes. On them
//! run TCP connections: ordered byte streams with bounded buffers, so that a slow reader stops its writer. Nothing is
//! ever lost or reordered inside a stream; what a link loses arrives late. Source: `spec/simulation.md` 3.

use std::{
    collections::{BTreeMap, VecDeque},
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    task::Waker,
    time::Duration,
};

use crate::{
    seed::{Domain, Draw, Seed, name_hash},
    side::Side,
    stand::NodeId,
    world::{Io, nanos},
};

mod backlog;
mod connection;
mod handshake;
mod link;
mod socket;
mod transfer;

use backlog::Rider;
use connection::{App, Conn, End, Kernel};
use link::{Links, Path, Route};

pub(crate) use connection::{ConnId, EndId, NetEvent};
pub(crate) use socket::{connect, listen};

/// How long a segment travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Latency {
    /// Always this long.
    Fixed(Duration),
    /// Each value from the first to the second equally likely.
    Uniform(Duration, Duration),
    /// At least `min`, and exponentially distributed beyond it, with `mean` over all.
    Exponential {
        /// The shortest.
        min: Duration,
        /// The mean of all, `min` included.
        mean: Duration,
    },
    /// Mostly `fast`, sometimes `slow`.
    Bimodal {
        /// The usual time.
        fast: Duration,
        /// The other time.
        slow: Duration,
        /// How often the other, in parts per million.
        slow_ppm: u32,
    },
}

impl Latency {
    /// Nanoseconds, as the draw decides.
    pub(crate) fn pick(self, draw: Draw) -> u64 {
        match self {
            Latency::Fixed(always) => nanos(always),
            Latency::Uniform(low, high) => draw.within(nanos(low)..=nanos(high).max(nanos(low))),
            Latency::Exponential { min, mean } => {
                nanos(min).saturating_add(draw.exponential(nanos(mean.saturating_sub(min))))
            }
            Latency::Bimodal { slow, slow_ppm, .. } if draw.chance(slow_ppm) => nanos(slow),
            Latency::Bimodal { fast, .. } => nanos(fast),
        }
    }
}

/// What the network is like when nothing is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetConfig {
    /// Latency of every link, per segment and direction. Inside a node it is 5 to 20 us.
    pub latency: Latency,
    /// Each direction of each pair of nodes is slower by a fixed time of its own, drawn once, at most this.
    pub extra_max: Duration,
    /// Bytes per second and direction of a link; 0 means no limit.
    pub bandwidth: u64,
    /// Size of each send buffer and of each receive buffer, in bytes.
    pub buffer: usize,
    /// After how long a connect over a silent link fails. Counted as 10 s if shorter: the product's own limit should
    /// act first.
    pub connect_timeout: Duration,
    /// After how long a connection whose bytes get no answer fails.
    pub retransmit_timeout: Duration,
}

impl Default for NetConfig {
    fn default() -> NetConfig {
        NetConfig {
            latency: Latency::Exponential { min: Duration::from_micros(150), mean: Duration::from_micros(500) },
            extra_max: Duration::from_micros(300),
            bandwidth: 125_000_000,
            buffer: 256 * 1024,
            connect_timeout: Duration::from_secs(127),
            retransmit_timeout: Duration::from_secs(120),
        }
    }
}

/// Something wrong with one direction of one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Impairment {
    /// The sender.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// Only connections to a listener of this port, on either end; all if `None`.
    pub port: Option<u16>,
    /// What is wrong.
    pub kind: ImpairmentKind,
}

/// See [`Impairment`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImpairmentKind {
    /// Segments are lost; TCP sends them again until the link is back, after pauses that double from 200 ms on.
    Drop,
    /// Segments are held up, and all arrive when the link is back.
    Hold,
    /// Segments travel longer by this.
    Latency(Latency),
    /// Bytes per second, if that is less than the link has.
    Bandwidth(u64),
    /// Segments travel so many times as long, and keep the wire busy for as much longer.
    Slow(u32),
    /// What would open a connection is lost; connections that are open go on.
    NoConnects,
    /// So many of a million segments are lost, and arrive 200 ms later (or 400 ms more, if lost again, and so on).
    Loss(u32),
}

impl ImpairmentKind {
    /// Whether it makes the link slower for everyone behind a segment, not only for that segment.
    fn slows(self) -> bool {
        matches!(self, ImpairmentKind::Bandwidth(_) | ImpairmentKind::Slow(_))
    }
}

/// Names an impairment that is in effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImpairmentId(pub(crate) u64);

/// A connection that two processes hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenStream {
    /// Who connected.
    pub client: NodeId,
    /// Who accepted.
    pub server: NodeId,
    /// On which port.
    pub port: u16,
    /// Bytes that were written and not read yet, both directions.
    pub buffered: u64,
}

/// Connections that wait to be accepted; a SYN beyond it gets no answer.
const BACKLOG: usize = 128;
/// Where the ports that the kernel chooses begin and end.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32_768..=60_999;
/// Names a connection by its ends, so that leaving out another leaves its draws alone.
const CONNECTION: Domain = Domain::named("net.connection");

/// All of the network. Owned by the world's core, and driven by it.
pub(crate) struct Net {
    seed: Seed,
    buffer: usize,
    connect_timeout: u64,
    retransmit_timeout: u64,
    links: Links,
    hosts: Vec<NetHost>,
    names: BTreeMap<String, Ipv4Addr>,
    conns: Vec<Option<Box<Conn>>>,
    free: Vec<u32>,
    next_conn: u32,
    /// How many connections were opened from one node to a port of another.
    opened: BTreeMap<(NodeId, NodeId, u16), u64>,
    listeners: Vec<ListenerState>,
    next_listener: u64,
    /// Events on links that hold their segments.
    held: Vec<(NodeId, NodeId, NetEvent)>,
    segments: u64,
}

struct NetHost {
    ip: Ipv4Addr,
    name_hash: u64,
    powered: bool,
    next_port: u16,
}

struct ListenerState {
    id: u64,
    node: NodeId,
    on: SocketAddr,
    backlog: VecDeque<ConnId>,
    waiting: Vec<Waker>,
}

impl Net {
    pub(crate) fn new(config: NetConfig, seed: Seed) -> Net {
        Net {
            seed,
            buffer: config.buffer.max(1),
            connect_timeout: nanos(config.connect_timeout.max(Duration::from_secs(10))),
            retransmit_timeout: nanos(config.retransmit_timeout),
            links: Links::new(seed, &config),
            hosts: Vec::new(),
            names: BTreeMap::from([("localhost".to_owned(), Ipv4Addr::LOCALHOST)]),
            conns: Vec::new(),
            free: Vec::new(),
            next_conn: 0,
            opened: BTreeMap::new(),
            listeners: Vec::new(),
            next_listener: 0,
            held: Vec::new(),
            segments: 0,
        }
    }

    /// See [`crate::stand::Stand::open_streams`].
    pub(crate) fn open_streams(&self) -> Vec<OpenStream> {
        let is_held = |end: &End| end.kernel == Kernel::Open && end.app == App::Held;
        let held = self.conns.iter().flatten().filter(|conn| EndId::BOTH.into_iter().all(|end| is_held(conn.end(end))));
        held.map(|conn| {
            let waiting = |end: EndId| conn[end].queued + conn[end].in_flight + conn[end].unread;
            OpenStream {
                client: conn.end(EndId::Client).node,
                server: conn.end(EndId::Server).node,
                port: conn.port,
                buffered: EndId::BOTH.into_iter().map(|end| waiting(end) as u64).sum(),
            }
        })
        .collect()
    }

    // ---- nodes ----

    pub(crate) fn add_host(&mut self, name: &str, ip: Ipv4Addr) {
        let name_hash = name_hash(name);
        self.links.add_host(name_hash);
        self.hosts.push(NetHost { ip, name_hash, powered: true, next_port: *EPHEMERAL.start() });
    }

    pub(crate) fn name_address(&mut self, name: &str, ip: Ipv4Addr) {
        self.names.insert(name.to_owned(), ip);
    }

    pub(crate) fn address_of(&self, name: &str) -> Option<Ipv4Addr> {
        self.names.get(name).copied()
    }

    pub(crate) fn power_on(&mut self, node: NodeId) {
        self.hosts[node.0 as usize].powered = true;
    }

    /// How many segments have arrived so far.
    pub(crate) fn segments(&self) -> u64 {
        self.segments
    }

    /// How many connections exist, those being opened or closed included.
    pub(crate) fn connections(&self) -> usize {
        self.conns.iter().flatten().count()
    }

    /// The process of a node died, and its kernel closes what it held: listeners first, with what waited there.
    pub(crate) fn process_died(&mut self, node: NodeId, io: &mut Io<'_>) {
        while let Some(listener) = self.listeners.iter().find(|listener| listener.node == node) {
            self.close_listener(listener.id, io);
        }
        for (id, end) in self.ends_of(node) {
            self.release(id, end, io);
        }
    }

    /// A node lost its power: everything it knew is gone, and nobody is told.
    pub(crate) fn power_lost(&mut self, node: NodeId, io: &mut Io<'_>) {
        self.hosts[node.0 as usize].powered = false;
        self.listeners.retain(|listener| listener.node != node);
        for (id, end) in self.ends_of(node) {
            self.vanish(id, end, io);
        }
    }

    fn is_powered(&self, node: NodeId) -> bool {
        self.hosts[node.0 as usize].powered
    }

    fn ends_of(&self, node: NodeId) -> Vec<(ConnId, EndId)> {
        let conns = self.conns.iter().flatten();
        conns
            .flat_map(|conn| EndId::BOTH.map(|end| (conn.id, end, conn.end(end).node)))
            .filter(|&(_, _, owner)| owner == node)
            .map(|(id, end, _)| (id, end))
            .collect()
    }

    // ---- impairments ----

    pub(crate) fn impair(&mut self, impairment: Impairment) -> ImpairmentId {
        self.links.impair(impairment)
    }

    /// Ends an impairment. Tells how many segments it has touched; see [`crate::stand::Stand::lift`].
    pub(crate) fn lift(&mut self, id: ImpairmentId, io: &mut Io<'_>) -> u64 {
        let Some((lifted, touched)) = self.links.lift(id) else { return 0 };
        if lifted.kind == ImpairmentKind::Hold {
            self.let_go(lifted.from, lifted.to, io);
        }
        if lifted.kind.slows() {
            self.hasten(lifted.from, lifted.to, io);
        }
        touched
    }

    /// A link is faster now: what it took on before arrives earlier, each direction of a connection in its order. What has
    /// arrived, or waits at the end of a link that holds it, stays as it is.
    fn hasten(&mut self, from: NodeId, to: NodeId, io: &mut Io<'_>) {
        for lane in self.links.lanes(from, to) {
            self.hasten_lane((from, to), lane, io);
        }
    }

    fn hasten_lane(&mut self, link: (NodeId, NodeId), lane: Option<u16>, io: &mut Io<'_>) {
        let mut backlog = self.links.hasten(link, lane, io.now);
        let mut last: BTreeMap<(u32, EndId), u64> = BTreeMap::new();
        for passage in backlog.passages() {
            let Some(rider) = &mut passage.rider else { continue };
            let (id, end) = rider.direction();
            let Some(conn) = self.conns.get_mut(id.slot as usize).and_then(Option::as_deref_mut) else { continue };
            if conn.id != id {
                continue;
            }
            let before = last.entry((id.number, end)).or_insert(passage.not_before);
            passage.not_before = *before;
            *before = passage.journey.arrival().max(*before);
            let arrives_at = *before;
            assert!(arrives_at <= passage.arrives_at, "a faster link makes nothing later");
            if arrives_at < passage.arrives_at {
                passage.arrives_at = arrives_at;
                match rider {
                    Rider::Segment(_, _, number) => conn.segment_moved(end, *number, arrives_at, io),
                    Rider::Event(_, _, number, event) => {
                        io.agenda.call_off(*number);
                        *number = io.agenda.at(arrives_at, *event);
                    }
                }
            }
            conn[end].last_arrival = arrives_at;
        }
        self.links.keep_backlog(link, lane, backlog);
    }

    /// See [`crate::stand::Stand::reset`]. `pairs` is sorted.
    pub(crate) fn reset(&mut self, pairs: &[(NodeId, NodeId)], port: Option<u16>, io: &mut Io<'_>) -> u64 {
        let mut reset = 0;
        for conn in self.conns.iter_mut().flatten().filter(|conn| port.is_none_or(|port| port == conn.port)) {
            let told = EndId::BOTH.map(|end| {
                let (from, to) = (conn.end(end.other()).node, conn.end(end).node);
                from != to && conn.end(end).kernel == Kernel::Open && pairs.binary_search(&(from, to)).is_ok()
            });
            for end in EndId::BOTH.into_iter().filter(|end| told[*end as usize]) {
                let node = conn.end(end).node;
                io.side.add(io.now, Side::Connection, node, u64::from(conn.id.number), handshake::NOTE_RESET);
                conn.forget(end, Some(ErrorKind::ConnectionReset), io);
            }
            reset += u64::from(told.contains(&true));
        }
        reset
    }

    pub(crate) fn impairments(&self) -> Vec<ImpairmentId> {
        self.links.impairments()
    }

    /// A held link moves again: what waited arrives now, and so do the answers that others wait for.
    fn let_go(&mut self, from: NodeId, to: NodeId, io: &mut Io<'_>) {
        let held = std::mem::take(&mut self.held);
        for (held_from, held_to, event) in held {
            if (held_from, held_to) == (from, to) {
                // Held again at once if another impairment says so.
                io.agenda.at(io.now, event);
            } else {
                self.held.push((held_from, held_to, event));
            }
        }
        for conn in self.conns.iter_mut().flatten() {
            conn.retry_now(from, to, io);
        }
    }

    // ---- listeners ----

    fn open_listener(&mut self, node: NodeId, on: SocketAddr) -> std::io::Result<(u64, SocketAddr)> {
        use std::io::{Error, ErrorKind};
        let own = IpAddr::V4(self.hosts[node.0 as usize].ip);
        if on.ip() != own && !on.ip().is_loopback() && on.ip() != IpAddr::V4(Ipv4Addr::UNSPECIFIED) {
            return Err(Error::new(ErrorKind::AddrNotAvailable, format!("{} is not an address of this node", on.ip())));
        }
        let port = if on.port() == 0 { self.ephemeral_port(node) } else { on.port() };
        let on = SocketAddr::new(on.ip(), port);
        let clash = self.listeners.iter().any(|other| {
            let overlap = other.on.ip() == on.ip() || other.on.ip().is_unspecified() || on.ip().is_unspecified();
            other.node == node && other.on.port() == port && overlap
        });
        if clash {
            return Err(Error::new(ErrorKind::AddrInUse, format!("{on} is in use")));
        }
        let id = self.next_listener;
        self.next_listener += 1;
        self.listeners.push(ListenerState { id, node, on, backlog: VecDeque::new(), waiting: Vec::new() });
        Ok((id, on))
    }

    fn listener(&mut self, id: u64) -> Option<&mut ListenerState> {
        self.listeners.iter_mut().find(|listener| listener.id == id)
    }

    fn close_listener(&mut self, id: u64, io: &mut Io<'_>) {
        let Some(at) = self.listeners.iter().position(|listener| listener.id == id) else { return };
        let listener = self.listeners.remove(at);
        for conn in listener.backlog {
            self.release(conn, EndId::Server, io);
        }
    }

    /// The next free port that the kernel of a node hands out.
    fn ephemeral_port(&mut self, node: NodeId) -> u16 {
        let host = &mut self.hosts[node.0 as usize];
        // Tried at most once around: there are far fewer listeners than ports.
        for _ in EPHEMERAL {
            let port = host.next_port;
            host.next_port = if port == *EPHEMERAL.end() { *EPHEMERAL.start() } else { port + 1 };
            if !self.listeners.iter().any(|listener| listener.node == node && listener.on.port() == port) {
                return port;
            }
        }
        unreachable!("28,000 listeners on one node")
    }

    // ---- connections ----

    fn conn(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.conns.get_mut(id.slot as usize)?.as_deref_mut().filter(|conn| conn.id == id)
    }

    /// Forgets a connection that no application holds any more: what still travels cannot be noticed by anyone.
    fn free_if_released(&mut self, id: ConnId) {
        if self.conn(id).is_some_and(|conn| conn.is_released()) {
            self.conns[id.slot as usize] = None;
            self.free.push(id.slot);
        }
    }

    pub(crate) fn handle(&mut self, event: NetEvent, io: &mut Io<'_>) {
        match event {
            NetEvent::Syn(id) => self.syn_arrives(id, event, io),
            NetEvent::SynAck(id) => self.syn_ack_arrives(id, event, io),
            NetEvent::Refusal(id) => self.refusal_arrives(id, event, io),
            NetEvent::SynTimer(id, attempt) => self.syn_timer(id, attempt, io),
            NetEvent::Arrive(id, from) => self.arrive(id, from, event, io),
            NetEvent::Retry(id, from, epoch) => self.retry(id, from, epoch, io),
            NetEvent::Reset(id, from) => self.reset_arrives(id, from, event, io),
        }
    }

    /// Whether something that travels from `from` to `to` arrives at this moment. If the link holds it, the event is
    /// kept for later.
    fn arrives(&mut self, route: Route, event: NetEvent) -> Arrival {
        match self.links.path(route) {
            Path::Held => {
                self.held.push((route.from, route.to, event));
                Arrival::Held
            }
            Path::Open if self.is_powered(route.to) => Arrival::Now,
            _ => Arrival::Lost,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    Now,
    Held,
    Lost,
}
