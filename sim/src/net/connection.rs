//! One connection: two ends, and a direction out of each.

use std::{
    collections::VecDeque,
    io::ErrorKind,
    net::SocketAddr,
    ops::{Index, IndexMut},
    task::Waker,
};

use bytes::BytesMut;

use crate::{
    net::link::{RETRANSMIT_FIRST, RETRANSMIT_LONGEST, Route},
    seed::Draws,
    stand::NodeId,
    world::Io,
};

/// The longest segment, in bytes.
pub(super) const SEGMENT_MAX: usize = 64 * 1024;

/// A connection. `number` is never used again in a run, so an id of a forgotten connection finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnId {
    pub(crate) slot: u32,
    pub(crate) number: u32,
}

/// One of the two ends, and the direction that leads out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EndId {
    Client = 0,
    Server = 1,
}

impl EndId {
    pub(super) const BOTH: [EndId; 2] = [EndId::Client, EndId::Server];

    pub(super) fn other(self) -> EndId {
        match self {
            EndId::Client => EndId::Server,
            EndId::Server => EndId::Client,
        }
    }
}

/// What the network has entered into the agenda. An end names the one that something left.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NetEvent {
    /// A connect reaches the server.
    Syn(ConnId),
    /// The answer reaches the client.
    SynAck(ConnId),
    /// The answer that nobody listens reaches the client.
    Refusal(ConnId),
    /// The client gets no answer; so many attempts were made.
    SynTimer(ConnId, u8),
    /// The first segment in flight arrives.
    Arrive(ConnId, EndId),
    /// Time to try again; valid for one stall only.
    Retry(ConnId, EndId, u32),
    /// A reset arrives at the other end.
    Reset(ConnId, EndId),
}

pub(super) struct Conn {
    pub(super) id: ConnId,
    /// The port that the server listens on: what port filters look at.
    pub(super) port: u16,
    pub(super) opened_at: u64,
    ends: [End; 2],
    directions: [Direction; 2],
}

/// One end as its kernel sees it.
pub(super) struct End {
    pub(super) node: NodeId,
    pub(super) address: SocketAddr,
    pub(super) kernel: Kernel,
    pub(super) app: App,
    /// What the next call of the application reports.
    pub(super) error: Option<ErrorKind>,
}

/// What the kernel of an end knows of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    /// The client waits for the answer; the server has not heard of it.
    Opening,
    Open,
    /// Nothing any more: whatever arrives is answered by a reset.
    Gone,
}

/// Who holds an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum App {
    /// Nobody yet: the connect has not reached the server.
    Nobody,
    /// The backlog of a listener.
    Backlog,
    Held,
    Released,
}

/// The way from one end to the other.
///
/// A byte is first `queued` at its sender, then in flight, then in the inbox of the receiver. The receiver grants so
/// many bytes that the inbox never overflows: `granted + in flight + unread + withheld` is the size of its buffer.
pub(super) struct Direction {
    buffer: usize,
    pub(super) queue: VecDeque<BytesMut>,
    pub(super) queued: usize,
    pub(super) flight: VecDeque<Flight>,
    pub(super) in_flight: usize,
    /// Arrived, but the way back is cut, so that the sender must keep them.
    pub(super) unacked: usize,
    /// What the sender may still send.
    pub(super) granted: usize,
    /// What the receiver would grant if the way back were open.
    pub(super) withheld: usize,
    pub(super) inbox: VecDeque<BytesMut>,
    pub(super) unread: usize,
    pub(super) fin: Fin,
    pub(super) last_arrival: u64,
    /// The event for the head of the flight, by its number in the agenda, while it is there or held by its link.
    pub(super) armed: Option<u64>,
    /// Whether a reset is on its way.
    pub(super) resetting: bool,
    pub(super) stall: Option<Stall>,
    epoch: u32,
    /// Numbers the draws for segments, resets and handshakes.
    pub(super) travels: u64,
    pub(super) travel_draws: Draws,
    pub(super) calls: u64,
    pub(super) call_draws: Draws,
    /// Waits at the receiving end.
    pub(super) reader: Option<Waker>,
    /// Waits at the sending end, the connect of a client included.
    pub(super) writer: Option<Waker>,
}

/// How far the end of a direction has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fin {
    No,
    /// Behind what is queued.
    Wanted,
    Sent,
    Arrived,
}

/// A segment on the wire.
pub(super) struct Flight {
    /// Grows with every segment of its direction.
    pub(super) number: u64,
    pub(super) sent_at: u64,
    pub(super) arrives_at: u64,
    /// `None` for a FIN.
    pub(super) bytes: Option<BytesMut>,
}

/// The sender gets no answer, and tries again after pauses that double.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stall {
    pub(super) since: u64,
    pause: u64,
}

impl Conn {
    pub(super) fn new(id: ConnId, port: u16, opened_at: u64, ends: [End; 2], directions: [Direction; 2]) -> Conn {
        Conn { id, port, opened_at, ends, directions }
    }

    pub(super) fn end(&self, end: EndId) -> &End {
        &self.ends[end as usize]
    }

    pub(super) fn end_mut(&mut self, end: EndId) -> &mut End {
        &mut self.ends[end as usize]
    }

    pub(super) fn route(&self, from: EndId) -> Route {
        Route { from: self.end(from).node, to: self.end(from.other()).node, port: self.port }
    }

    pub(super) fn is_released(&self) -> bool {
        self.ends.iter().all(|end| matches!(end.app, App::Released | App::Nobody))
    }

    /// The kernel of an end forgets the connection. What was sent travels on; what was not is lost.
    pub(super) fn forget(&mut self, end: EndId, error: Option<ErrorKind>, io: &mut Io<'_>) {
        let state = self.end_mut(end);
        state.kernel = Kernel::Gone;
        state.error = error;
        let out = &mut self[end];
        out.queue.clear();
        out.queued = 0;
        out.stall = None;
        io.wake(&mut out.writer);
        io.wake(&mut self[end.other()].reader);
    }

    /// Begins (or goes on with) waiting for an answer to what `from` sent.
    pub(super) fn stall(&mut self, from: EndId, limit: u64, io: &mut Io<'_>) {
        let id = self.id;
        let out = &mut self[from];
        let stall = match out.stall {
            None => Stall { since: io.now, pause: RETRANSMIT_FIRST },
            Some(stall) => Stall { pause: (stall.pause * 2).min(RETRANSMIT_LONGEST), ..stall },
        };
        out.stall = Some(stall);
        out.epoch = out.epoch.wrapping_add(1);
        let next = (io.now + stall.pause).min(stall.since.saturating_add(limit)).max(io.now + 1);
        io.agenda.at(next, NetEvent::Retry(id, from, out.epoch));
    }

    /// A segment in flight arrives earlier than it was to.
    pub(super) fn segment_moved(&mut self, from: EndId, number: u64, arrives_at: u64, io: &mut Io<'_>) {
        let id = self.id;
        let out = &mut self[from];
        // It may have been lost meanwhile.
        let Ok(at) = out.flight.binary_search_by_key(&number, |flight| flight.number) else { return };
        out.flight[at].arrives_at = arrives_at;
        if let (0, Some(armed)) = (at, out.armed) {
            io.agenda.call_off(armed);
            out.armed = Some(io.agenda.at(arrives_at, NetEvent::Arrive(id, from)));
        }
    }

    /// Tries again now if a stall may have been caused by this direction of a link.
    pub(super) fn retry_now(&mut self, from: NodeId, to: NodeId, io: &mut Io<'_>) {
        for end in EndId::BOTH {
            let route = self.route(end);
            let concerned = (route.from, route.to) == (from, to) || (route.to, route.from) == (from, to);
            let id = self.id;
            let out = &mut self[end];
            if concerned && out.stall.is_some() {
                out.epoch = out.epoch.wrapping_add(1);
                io.agenda.at(io.now, NetEvent::Retry(id, end, out.epoch));
            }
        }
    }
}

impl Index<EndId> for Conn {
    type Output = Direction;

    /// The direction that leads out of an end.
    fn index(&self, from: EndId) -> &Direction {
        &self.directions[from as usize]
    }
}

impl IndexMut<EndId> for Conn {
    fn index_mut(&mut self, from: EndId) -> &mut Direction {
        &mut self.directions[from as usize]
    }
}

impl Direction {
    pub(super) fn new(buffer: usize, travel_draws: Draws, call_draws: Draws) -> Direction {
        Direction {
            buffer,
            queue: VecDeque::new(),
            queued: 0,
            flight: VecDeque::new(),
            in_flight: 0,
            unacked: 0,
            granted: buffer,
            withheld: 0,
            inbox: VecDeque::new(),
            unread: 0,
            fin: Fin::No,
            last_arrival: 0,
            armed: None,
            resetting: false,
            stall: None,
            epoch: 0,
            travels: 0,
            travel_draws,
            calls: 0,
            call_draws,
            reader: None,
            writer: None,
        }
    }

    /// How many bytes the send buffer still takes.
    pub(super) fn space(&self) -> usize {
        self.buffer.saturating_sub(self.queued + self.in_flight + self.unacked)
    }

    /// Whether the sender waits for an answer.
    pub(super) fn is_outstanding(&self) -> bool {
        self.queued + self.in_flight + self.unacked > 0 || matches!(self.fin, Fin::Wanted | Fin::Sent)
    }

    pub(super) fn is_current(&self, epoch: u32) -> bool {
        self.stall.is_some() && self.epoch == epoch
    }

    /// Everything in flight was lost: the sender has it still, in front of what is queued.
    pub(super) fn lose_flight(&mut self) {
        self.armed = None;
        while let Some(lost) = self.flight.pop_back() {
            match lost.bytes {
                Some(bytes) => {
                    self.in_flight -= bytes.len();
                    self.granted += bytes.len();
                    self.queued += bytes.len();
                    self.queue.push_front(bytes);
                }
                None => self.fin = Fin::Wanted,
            }
        }
        self.check();
    }

    /// An answer came through: everything that arrived is acknowledged, and the window is as the receiver wants it.
    pub(super) fn answered(&mut self, io: &mut Io<'_>) {
        self.stall = None;
        self.unacked = 0;
        self.granted += std::mem::take(&mut self.withheld);
        self.check();
        if self.space() > 0 {
            io.wake(&mut self.writer);
        }
    }

    pub(super) fn check(&self) {
        let known = self.granted + self.in_flight + self.unread + self.withheld;
        assert_eq!(known, self.buffer, "each byte of the receiver's buffer is in one place");
    }
}
