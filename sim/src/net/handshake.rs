//! How a connection begins: SYN, the answers to it, and silence.

use std::{
    io::{Error, ErrorKind, Result},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    task::{Context, Poll},
};

use crate::{
    net::{
        Arrival, BACKLOG, CONNECTION, Net,
        connection::{App, Conn, ConnId, Direction, End, EndId, Kernel, NetEvent},
    },
    seed::Domain,
    side::Side,
    stand::NodeId,
    world::Io,
};

const TRAVEL: Domain = Domain::named("net.travel");
const CALL: Domain = Domain::named("net.call");
const SECOND: u64 = 1_000_000_000;

/// Codes of [`Side::Connection`].
pub(super) const NOTE_OPENING: u64 = 1;
const NOTE_ACCEPTABLE: u64 = 2;
const NOTE_OPEN: u64 = 3;
const NOTE_FAILED: u64 = 4;
pub(super) const NOTE_RESET: u64 = 5;

impl Net {
    /// Begins a connect; [`poll_connect`](Net::poll_connect) tells how it went.
    pub(super) fn begin_connect(&mut self, node: NodeId, to: SocketAddr, io: &mut Io<'_>) -> Result<ConnId> {
        let (target, to) = self.target(node, to)?;
        let own = if to.ip().is_loopback() { Ipv4Addr::LOCALHOST } else { self.hosts[node.0 as usize].ip };
        let from = SocketAddr::new(IpAddr::V4(own), self.ephemeral_port(node));
        let id = self.add_conn(node, from, target, to, io.now);
        io.side.add(io.now, Side::Connection, node, u64::from(id.number), NOTE_OPENING);
        self.send_syn(id, 0, io);
        Ok(id)
    }

    /// Which node an address belongs to, as seen from `node`.
    fn target(&self, node: NodeId, to: SocketAddr) -> Result<(NodeId, SocketAddr)> {
        if to.ip().is_loopback() || to.ip().is_unspecified() {
            return Ok((node, SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), to.port())));
        }
        let found = self.hosts.iter().position(|host| IpAddr::V4(host.ip) == to.ip());
        match found {
            Some(at) => Ok((NodeId(at as u32), to)),
            None => Err(Error::new(ErrorKind::HostUnreachable, format!("no node has the address {}", to.ip()))),
        }
    }

    fn add_conn(&mut self, node: NodeId, from: SocketAddr, target: NodeId, to: SocketAddr, now: u64) -> ConnId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.conns.push(None);
            (self.conns.len() - 1) as u32
        });
        let id = ConnId { slot, number: self.next_conn };
        self.next_conn += 1;
        let opened = self.opened.entry((node, target, to.port())).or_default();
        let ordinal = *opened;
        *opened += 1;
        let names = [node, target].map(|node| self.hosts[node.0 as usize].name_hash);
        let pair = self.seed.draw(CONNECTION, names[0].rotate_left(17) ^ names[1] ^ u64::from(to.port()), ordinal).0;
        let directions = EndId::BOTH.map(|from| {
            let entity = pair ^ from as u64;
            Direction::new(self.buffer, self.seed.draws(TRAVEL, entity), self.seed.draws(CALL, entity))
        });
        let ends = [(node, from, App::Held), (target, to, App::Nobody)].map(|(node, address, app)| End {
            node,
            address,
            kernel: Kernel::Opening,
            app,
            error: None,
        });
        self.conns[slot as usize] = Some(Box::new(Conn::new(id, to.port(), now, ends, directions)));
        id
    }

    /// Sends SYN, and sets the timer for the next one: 1, 2, 4 … seconds later, the last time-out excepted.
    fn send_syn(&mut self, id: ConnId, attempt: u8, io: &mut Io<'_>) {
        let give_up = self.connect_timeout;
        let Some(conn) = self.conn(id) else { return };
        let next_at = conn.opened_at + (2_u64.pow(u32::from(attempt) + 1) - 1) * SECOND;
        io.agenda.at(next_at.min(conn.opened_at + give_up), NetEvent::SynTimer(id, attempt + 1));
        self.send_control(id, EndId::Client, NetEvent::Syn(id), io);
    }

    pub(super) fn syn_timer(&mut self, id: ConnId, attempt: u8, io: &mut Io<'_>) {
        let give_up = self.connect_timeout;
        let Some(conn) = self.conn(id) else { return };
        if conn.end(EndId::Client).kernel != Kernel::Opening {
            return;
        }
        if io.now >= conn.opened_at + give_up {
            self.connect_failed(id, ErrorKind::TimedOut, io);
        } else {
            self.send_syn(id, attempt, io);
        }
    }

    pub(super) fn syn_arrives(&mut self, id: ConnId, event: NetEvent, io: &mut Io<'_>) {
        let Some(conn) = self.conn(id) else { return };
        let route = conn.route(EndId::Client);
        let server = conn.end(EndId::Server);
        let (on, kernel) = (server.address, server.kernel);
        if self.arrives(route, event) != Arrival::Now {
            return;
        }
        match kernel {
            Kernel::Opening if self.links.ignores_connect(route) => return,
            Kernel::Opening => {}
            // The answer to the first one was lost.
            Kernel::Open => return self.send_control(id, EndId::Server, NetEvent::SynAck(id), io),
            Kernel::Gone => return self.send_control(id, EndId::Server, NetEvent::Refusal(id), io),
        }
        let listener = self.listeners.iter_mut().find(|listener| {
            let right_ip = listener.on.ip().is_unspecified() || listener.on.ip() == on.ip();
            listener.node == route.to && listener.on.port() == on.port() && right_ip
        });
        match listener {
            None => self.send_control(id, EndId::Server, NetEvent::Refusal(id), io),
            Some(listener) if listener.backlog.len() >= BACKLOG => {}
            Some(listener) => {
                listener.backlog.push_back(id);
                listener.waiting.drain(..).for_each(|waker| io.wake(&mut Some(waker)));
                let conn = self.conn(id).expect("it was found above");
                let end = conn.end_mut(EndId::Server);
                (end.kernel, end.app) = (Kernel::Open, App::Backlog);
                io.side.add(io.now, Side::Connection, route.to, u64::from(id.number), NOTE_ACCEPTABLE);
                self.send_control(id, EndId::Server, NetEvent::SynAck(id), io);
            }
        }
    }

    pub(super) fn syn_ack_arrives(&mut self, id: ConnId, event: NetEvent, io: &mut Io<'_>) {
        let Some(conn) = self.conn(id) else { return };
        let route = conn.route(EndId::Server);
        if self.arrives(route, event) != Arrival::Now {
            return;
        }
        let conn = self.conn(id).expect("it was found above");
        match conn.end(EndId::Client).kernel {
            Kernel::Opening => self.opened(id, io),
            Kernel::Open => {}
            Kernel::Gone => self.send_reset(id, EndId::Client, io),
        }
    }

    /// The client has heard from the server.
    pub(super) fn opened(&mut self, id: ConnId, io: &mut Io<'_>) {
        let Some(conn) = self.conn(id) else { return };
        let client = conn.end_mut(EndId::Client);
        client.kernel = Kernel::Open;
        io.side.add(io.now, Side::Connection, client.node, u64::from(id.number), NOTE_OPEN);
        io.wake(&mut conn[EndId::Client].writer);
    }

    pub(super) fn refusal_arrives(&mut self, id: ConnId, event: NetEvent, io: &mut Io<'_>) {
        let Some(conn) = self.conn(id) else { return };
        let route = conn.route(EndId::Server);
        if self.arrives(route, event) == Arrival::Now {
            self.connect_failed(id, ErrorKind::ConnectionRefused, io);
        }
    }

    fn connect_failed(&mut self, id: ConnId, error: ErrorKind, io: &mut Io<'_>) {
        let Some(conn) = self.conn(id) else { return };
        let client = conn.end(EndId::Client);
        if client.kernel == Kernel::Opening {
            io.side.add(io.now, Side::Connection, client.node, u64::from(id.number), NOTE_FAILED);
            conn.forget(EndId::Client, Some(error), io);
        }
    }

    /// How a connect went: the address of the own end and of the other.
    pub(super) fn poll_connect(&mut self, id: ConnId, cx: &mut Context<'_>) -> Poll<Result<(SocketAddr, SocketAddr)>> {
        let Some(conn) = self.conn(id) else { return Poll::Ready(Err(super::socket::ended())) };
        match conn.end(EndId::Client).kernel {
            Kernel::Open => Poll::Ready(Ok((conn.end(EndId::Client).address, conn.end(EndId::Server).address))),
            Kernel::Opening => {
                conn[EndId::Client].writer = Some(cx.waker().clone());
                Poll::Pending
            }
            Kernel::Gone => {
                let to = conn.end(EndId::Server).address;
                let kind = conn.end_mut(EndId::Client).error.take().unwrap_or(ErrorKind::ConnectionReset);
                Poll::Ready(Err(Error::new(kind, format!("cannot connect to {to}: {kind}"))))
            }
        }
    }

    /// Takes the next connection from a backlog: its id, its own address and that of its peer.
    pub(super) fn poll_accept(
        &mut self,
        listener: u64,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(ConnId, SocketAddr, SocketAddr)>> {
        let Some(listener) = self.listener(listener) else { return Poll::Ready(Err(super::socket::ended())) };
        let Some(id) = listener.backlog.pop_front() else {
            if !listener.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                listener.waiting.push(cx.waker().clone());
            }
            return Poll::Pending;
        };
        let conn = self.conn(id).expect("what a backlog holds is not forgotten");
        conn.end_mut(EndId::Server).app = App::Held;
        Poll::Ready(Ok((id, conn.end(EndId::Server).address, conn.end(EndId::Client).address)))
    }
}
