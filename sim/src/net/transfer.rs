//! How bytes move along a connection, how it ends, and what happens if a link or a machine does not answer.

use std::{
    io::{Error, ErrorKind, IoSlice, Result},
    task::{Context, Poll},
};

use bytes::{Buf, BytesMut};
use tokio::io::ReadBuf;

use crate::{
    net::{
        Arrival, Net, Path,
        backlog::Rider,
        connection::{App, Conn, ConnId, EndId, Fin, Flight, Kernel, NetEvent, SEGMENT_MAX},
        handshake::NOTE_RESET,
    },
    side::Side,
    world::Io,
};

/// One call in so many takes or gives less than it could.
const SHORT_CALLS: u64 = 32;

impl Net {
    // ---- calls of applications ----

    /// Takes bytes for sending: as many as the send buffer has room for, now and then fewer.
    pub(super) fn poll_write(
        &mut self,
        (id, end): (ConnId, EndId),
        slices: &[IoSlice<'_>],
        cx: &mut Context<'_>,
        io: &mut Io<'_>,
    ) -> Poll<Result<usize>> {
        let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
        let Some(conn) = self.conn(id) else { return Poll::Ready(Err(super::socket::ended())) };
        if conn[end].fin != Fin::No {
            return Poll::Ready(Err(ErrorKind::BrokenPipe.into()));
        }
        let state = conn.end_mut(end);
        if state.kernel == Kernel::Gone {
            return Poll::Ready(Err(state.error.take().unwrap_or(ErrorKind::BrokenPipe).into()));
        }
        if wanted == 0 {
            return Poll::Ready(Ok(0));
        }
        let out = &mut conn[end];
        let mut taken = wanted.min(out.space());
        if taken == 0 {
            out.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let draw = out.call_draws.at(out.calls);
        out.calls += 1;
        if taken > 1 && draw.below(SHORT_CALLS) == 0 {
            taken = 1 + (draw.0 as usize % (taken - 1));
        }
        let mut left = taken;
        for slice in slices {
            let part = &slice[..slice.len().min(left)];
            left -= part.len();
            self.enqueue((id, end), part, io);
        }
        self.transmit(id, end, io);
        Poll::Ready(Ok(taken))
    }

    /// Gives bytes that arrived; at the end of the direction nothing, without an error.
    pub(super) fn poll_read(
        &mut self,
        (id, end): (ConnId, EndId),
        buf: &mut ReadBuf<'_>,
        cx: &mut Context<'_>,
        io: &mut Io<'_>,
    ) -> Poll<Result<()>> {
        let from = end.other();
        let Some(conn) = self.conn(id) else { return Poll::Ready(Err(super::socket::ended())) };
        let back = conn.route(end);
        let incoming = &mut conn[from];
        if buf.remaining() == 0 || (incoming.unread == 0 && incoming.fin == Fin::Arrived) {
            return Poll::Ready(Ok(()));
        }
        if incoming.unread == 0 {
            if conn.end(end).kernel == Kernel::Gone {
                return Poll::Ready(conn.end_mut(end).error.take().map_or(Ok(()), |kind| Err(kind.into())));
            }
            conn[from].reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let mut read = 0;
        while let Some(chunk) = incoming.inbox.front_mut()
            && buf.remaining() > 0
        {
            let part = chunk.len().min(buf.remaining());
            buf.put_slice(&chunk[..part]);
            chunk.advance(part);
            read += part;
            if chunk.is_empty() {
                incoming.inbox.pop_front();
            }
        }
        incoming.unread -= read;
        incoming.withheld += read;
        incoming.check();
        self.announce(id, from, self.links.path(back) == Path::Open, io);
        Poll::Ready(Ok(()))
    }

    /// Ends the outgoing direction, behind what was written.
    pub(super) fn shut_down(&mut self, id: ConnId, end: EndId, io: &mut Io<'_>) -> Result<()> {
        let Some(conn) = self.conn(id) else { return Err(super::socket::ended()) };
        if conn[end].fin != Fin::No {
            return Ok(());
        }
        if conn.end(end).kernel == Kernel::Gone {
            return Err(Error::from(ErrorKind::NotConnected));
        }
        conn[end].fin = Fin::Wanted;
        self.transmit(id, end, io);
        Ok(())
    }

    /// The application lets go of an end, or died: FIN, or a reset if bytes were left unread.
    pub(super) fn release(&mut self, id: ConnId, end: EndId, io: &mut Io<'_>) {
        let Some(conn) = self.conn(id) else { return };
        let was = std::mem::replace(&mut conn.end_mut(end).app, App::Released);
        if was == App::Released || was == App::Nobody {
            conn.end_mut(end).app = was;
            return;
        }
        conn[end.other()].reader = None;
        conn[end].writer = None;
        match conn.end(end).kernel {
            Kernel::Gone => {}
            Kernel::Opening => conn.forget(end, None, io),
            Kernel::Open if was == App::Backlog || conn[end.other()].unread > 0 => {
                conn.forget(end, None, io);
                self.send_reset(id, end, io);
            }
            Kernel::Open => {
                // It cannot fail: the end is open.
                let _ = self.shut_down(id, end, io);
            }
        }
        self.free_if_released(id);
    }

    /// The application of an end gives the connection up: what was not delivered is forgotten, and RST goes out.
    pub(super) fn abort(&mut self, id: ConnId, end: EndId, io: &mut Io<'_>) {
        let Some(conn) = self.conn(id) else { return };
        if conn.end(end).kernel != Kernel::Gone {
            conn.forget(end, None, io);
            self.send_reset(id, end, io);
        }
    }

    /// The machine of an end is without power: it knows nothing any more, and says nothing.
    pub(super) fn vanish(&mut self, id: ConnId, end: EndId, io: &mut Io<'_>) {
        let limit = self.retransmit_timeout;
        let Some(conn) = self.conn(id) else { return };
        if conn.end(end).app == App::Nobody {
            return;
        }
        conn.forget(end, None, io);
        conn.end_mut(end).app = App::Released;
        // What the peer has sent will be missed at its arrival. What it could not send yet is probed for.
        let peer = &conn[end.other()];
        let open = conn.end(end.other()).kernel == Kernel::Open;
        if open && peer.queued > 0 && peer.flight.is_empty() && peer.stall.is_none() {
            conn.stall(end.other(), limit, io);
        }
        self.free_if_released(id);
    }

    // ---- sending ----

    fn enqueue(&mut self, (id, end): (ConnId, EndId), part: &[u8], io: &mut Io<'_>) {
        let Some(conn) = self.conns[id.slot as usize].as_deref_mut() else { return };
        let route = conn.route(end);
        let out = &mut conn[end];
        // Writes within one instant join one segment.
        if out.queue.is_empty()
            && out.granted >= part.len()
            && let Some(Flight { sent_at, bytes: Some(bytes), .. }) = out.flight.back_mut()
            && *sent_at == io.now
            && bytes.len() + part.len() <= SEGMENT_MAX
        {
            bytes.extend_from_slice(part);
            out.in_flight += part.len();
            out.granted -= part.len();
            self.links.lengthen(route, part.len(), io.now);
            return;
        }
        let mut rest = part;
        while !rest.is_empty() {
            let last = out.queue.back_mut().filter(|chunk| chunk.len() < SEGMENT_MAX);
            let room = last.as_ref().map_or(SEGMENT_MAX, |chunk| SEGMENT_MAX - chunk.len());
            let (now, later) = rest.split_at(rest.len().min(room));
            match last {
                Some(chunk) => chunk.extend_from_slice(now),
                None => out.queue.push_back(BytesMut::from(now)),
            }
            out.queued += now.len();
            rest = later;
        }
    }

    /// Sends what is queued, as far as the window allows.
    fn transmit(&mut self, id: ConnId, from: EndId, io: &mut Io<'_>) {
        let Some(conn) = self.conns[id.slot as usize].as_deref_mut().filter(|conn| conn.id == id) else { return };
        if conn.end(from).kernel != Kernel::Open || conn[from].stall.is_some() {
            return;
        }
        while conn[from].granted > 0
            && let Some(mut chunk) = conn[from].queue.pop_front()
        {
            let out = &mut conn[from];
            if chunk.len() > out.granted {
                let rest = chunk.split_off(out.granted);
                out.queue.push_front(rest);
            }
            out.queued -= chunk.len();
            out.granted -= chunk.len();
            out.in_flight += chunk.len();
            send(&mut self.links, conn, from, Some(chunk), io);
        }
        if conn[from].queue.is_empty() && conn[from].fin == Fin::Wanted {
            conn[from].fin = Fin::Sent;
            send(&mut self.links, conn, from, None, io);
        }
    }

    /// Sends something that is not part of the stream.
    pub(super) fn send_control(&mut self, id: ConnId, from: EndId, event: NetEvent, io: &mut Io<'_>) {
        let Some(conn) = self.conns[id.slot as usize].as_deref_mut().filter(|conn| conn.id == id) else { return };
        let route = conn.route(from);
        let out = &mut conn[from];
        let journey = self.links.travel(route, 0, io.now, (&mut out.travel_draws, out.travels));
        out.travels += 1;
        let not_before = out.last_arrival;
        out.last_arrival = journey.arrival().max(not_before);
        let number = io.agenda.at(out.last_arrival, event);
        let rider = Rider::Event(id, from, number, event);
        self.links.board(route, (journey, Some(rider)), (out.last_arrival, not_before), io.now);
    }

    /// Tells the other end that nobody is here. At most one reset is on its way at a time.
    pub(super) fn send_reset(&mut self, id: ConnId, from: EndId, io: &mut Io<'_>) {
        let Some(conn) = self.conn(id) else { return };
        if !std::mem::replace(&mut conn[from].resetting, true) {
            self.send_control(id, from, NetEvent::Reset(id, from), io);
        }
    }

    // ---- arriving ----

    pub(super) fn arrive(&mut self, id: ConnId, from: EndId, event: NetEvent, io: &mut Io<'_>) {
        let limit = self.retransmit_timeout;
        let Some(conn) = self.conn(id) else { return };
        let route = conn.route(from);
        let arrival = self.arrives(route, event);
        let answers = self.links.path(route.back()) == Path::Open;
        let Some(conn) = self.conns[id.slot as usize].as_deref_mut() else { return };
        match arrival {
            Arrival::Held => return,
            Arrival::Lost => {
                conn[from].lose_flight();
                if conn.end(from).kernel == Kernel::Open {
                    conn.stall(from, limit, io);
                } else {
                    conn[from].queue.clear();
                    conn[from].queued = 0;
                }
                return;
            }
            Arrival::Now => conn[from].armed = None,
        }
        let to = from.other();
        if from == EndId::Server && conn.end(to).kernel == Kernel::Opening {
            // The handshake's answer was lost, and this says as much.
            self.opened(id, io);
        }
        while let Some(conn) = self.conns[id.slot as usize].as_deref_mut()
            && conn[from].flight.front().is_some_and(|head| head.arrives_at <= io.now)
        {
            let head = conn[from].flight.pop_front().expect("just seen");
            let length = head.bytes.as_ref().map_or(0, BytesMut::len);
            io.side.add(io.now, Side::Segment, route.to, u64::from(id.number), length as u64);
            self.segments += 1;
            conn[from].in_flight -= length;
            let end = conn.end(to);
            let unwanted = end.kernel == Kernel::Gone || (end.app == App::Released && head.bytes.is_some());
            if answers {
                io.wake(&mut conn[from].writer);
            } else {
                conn[from].unacked += length;
            }
            if unwanted {
                conn[from].granted += length;
                conn.forget(to, None, io);
                self.send_reset(id, to, io);
            } else {
                deliver(conn, from, head.bytes, io);
            }
        }
        self.after_arrival(id, from, answers, io);
    }

    fn after_arrival(&mut self, id: ConnId, from: EndId, answers: bool, io: &mut Io<'_>) {
        let limit = self.retransmit_timeout;
        let Some(conn) = self.conn(id) else { return };
        let out = &mut conn[from];
        out.check();
        if let Some(next) = out.flight.front()
            && out.armed.is_none()
        {
            out.armed = Some(io.agenda.at(next.arrives_at, NetEvent::Arrive(id, from)));
        }
        if answers && out.stall.is_some() {
            out.answered(io);
        } else if !answers && out.stall.is_none() && conn.end(from).kernel == Kernel::Open {
            conn.stall(from, limit, io);
        }
        self.transmit(id, from, io);
    }

    /// Tells the sender of a direction how much the receiver can take now, if anything gets through to it.
    fn announce(&mut self, id: ConnId, from: EndId, answers: bool, io: &mut Io<'_>) {
        let limit = self.retransmit_timeout;
        let Some(conn) = self.conn(id) else { return };
        if answers && conn[from].stall.is_none() {
            let out = &mut conn[from];
            out.granted += std::mem::take(&mut out.withheld);
            self.transmit(id, from, io);
        } else if conn[from].queued > 0 && conn[from].stall.is_none() {
            // Nobody else would notice that the sender could go on.
            conn.stall(from, limit, io);
        }
    }

    pub(super) fn reset_arrives(&mut self, id: ConnId, from: EndId, event: NetEvent, io: &mut Io<'_>) {
        let Some(conn) = self.conn(id) else { return };
        let route = conn.route(from);
        let arrival = self.arrives(route, event);
        let Some(conn) = self.conns[id.slot as usize].as_deref_mut() else { return };
        if arrival == Arrival::Held {
            return;
        }
        conn[from].resetting = false;
        let to = from.other();
        if arrival == Arrival::Lost || conn.end(to).kernel != Kernel::Open {
            return;
        }
        io.side.add(io.now, Side::Connection, route.to, u64::from(id.number), NOTE_RESET);
        conn.forget(to, Some(ErrorKind::ConnectionReset), io);
    }

    // ---- silence ----

    pub(super) fn retry(&mut self, id: ConnId, from: EndId, epoch: u32, io: &mut Io<'_>) {
        let limit = self.retransmit_timeout;
        let Some(conn) = self.conn(id) else { return };
        if !conn[from].is_current(epoch) {
            return;
        }
        if !conn[from].is_outstanding() {
            return conn[from].answered(io);
        }
        let route = conn.route(from);
        let open = |net: &Net, route| net.links.path(route) == Path::Open;
        let answers = open(self, route) && open(self, route.back()) && self.is_powered(route.to);
        let conn = self.conn(id).expect("it was found above");
        let out = &mut conn[from];
        let stall = out.stall.expect("checked by is_current");
        if answers {
            let nothing_left = out.unacked > 0 && conn.end(from.other()).kernel == Kernel::Gone;
            conn[from].answered(io);
            if nothing_left {
                // What is sent again meets a machine that has never heard of it.
                self.send_reset(id, from.other(), io);
            }
            self.transmit(id, from, io);
        } else if io.now >= stall.since.saturating_add(limit) {
            conn.forget(from, Some(ErrorKind::TimedOut), io);
        } else {
            conn.stall(from, limit, io);
        }
    }
}

/// Puts a segment on the wire.
fn send(links: &mut super::Links, conn: &mut Conn, from: EndId, bytes: Option<BytesMut>, io: &mut Io<'_>) {
    let (id, route) = (conn.id, conn.route(from));
    let out = &mut conn[from];
    let length = bytes.as_ref().map_or(0, BytesMut::len);
    let number = out.travels;
    let journey = links.travel(route, length, io.now, (&mut out.travel_draws, number));
    out.travels += 1;
    let not_before = out.last_arrival;
    out.last_arrival = journey.arrival().max(not_before);
    out.flight.push_back(Flight { number, sent_at: io.now, arrives_at: out.last_arrival, bytes });
    links.board(route, (journey, Some(Rider::Segment(id, from, number))), (out.last_arrival, not_before), io.now);
    if out.armed.is_none() {
        out.armed = Some(io.agenda.at(out.last_arrival, NetEvent::Arrive(id, from)));
    }
}

/// A segment has reached an end that wants it.
fn deliver(conn: &mut Conn, from: EndId, bytes: Option<BytesMut>, io: &mut Io<'_>) {
    let incoming = &mut conn[from];
    match bytes {
        Some(bytes) => {
            incoming.unread += bytes.len();
            incoming.inbox.push_back(bytes);
        }
        None => incoming.fin = Fin::Arrived,
    }
    io.wake(&mut incoming.reader);
}
