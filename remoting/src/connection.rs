//! The task of one connection: reads, answers and writes, for servers and clients alike.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::BytesMut;
use futures_util::stream::{FuturesUnordered, StreamExt};
use host::{
    machine::BoxFuture,
    net::{ReadHalf, TcpStream, WriteHalf},
    time::{Mono, Sleep},
};
use tokio::io::AsyncReadExt;

use crate::{
    command::{RemotingCommand, Response, SerializeType},
    handler::{Handler, Inbound, Reply},
    intake::{Intake, Share},
    outbox::Outbox,
    peer::{CloseReason, Ended, Peer},
    request::{Request, RequestCode},
    response_code::ResponseCode,
};

/// Room that is made for reads.
const READ_BYTES: usize = 32 * 1024;
/// With less room than this, more is made.
const READ_BYTES_MIN: usize = 4 * 1024;
/// Rounds of reading and writing before other tasks get their turn.
const ROUNDS_MAX: usize = 16;
/// Answers that are still to come; with more, nothing is read until some are given.
const DEFERRED_MAX: usize = 65_536;

/// What a connection may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Without traffic for so long, it is closed.
    pub idle: Duration,
    /// With more bytes waiting to be written, nothing is read.
    pub write_high_bytes: usize,
}

pub(crate) struct Connection {
    peer: Peer,
    /// Whoever waits must learn of the end even if the task is dropped.
    _end: EndOnDrop,
    handler: Arc<dyn Handler>,
    limits: Limits,
    read: ReadHalf,
    write: WriteHalf,
    input: BytesMut,
    /// Of `input`, while a frame longer than one read is not complete.
    share: Share,
    /// `input` has memory that only a long frame needed.
    has_grown: bool,
    output: Outbox,
    deferred: FuturesUnordered<Deferred>,
    /// Fires when the connection may have been idle for too long.
    idle: Sleep,
    traffic_at: Mono,
}

impl Connection {
    pub fn new(
        peer: Peer,
        handler: Arc<dyn Handler>,
        limits: Limits,
        intake: Arc<Intake>,
        stream: TcpStream,
    ) -> Connection {
        let (read, write) = stream.into_split();
        let now = peer.host().now();
        Connection {
            idle: peer.host().sleep_until(now + limits.idle),
            _end: EndOnDrop(peer.clone()),
            peer,
            handler,
            limits,
            read,
            write,
            input: BytesMut::new(),
            share: Share::new(intake),
            has_grown: false,
            output: Outbox::default(),
            deferred: FuturesUnordered::new(),
            traffic_at: now,
        }
    }

    /// Serves the connection until it ends.
    pub async fn run(mut self) {
        self.handler.opened(&self.peer);
        let reason = poll_fn(|cx| self.poll(cx)).await;
        self.tell_end(&reason);
        self.peer.end(&Ended::Closed(reason));
        self.handler.closed(&self.peer);
    }

    fn tell_end(&self, reason: &CloseReason) {
        let peer = self.peer.address();
        if matches!(reason, CloseReason::Malformed(_) | CloseReason::TooMuch)
            && let Some(kept_back) = self.share.intake().broken.may_tell(self.peer.host().now())
        {
            tracing::warn!(peer, %reason, kept_back, "connection closed");
        } else {
            tracing::debug!(peer, %reason, "connection ended");
        }
    }

    /// Ready when the connection is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CloseReason> {
        self.peer.register(cx.waker());
        for _ in 0..ROUNDS_MAX {
            match self.round(cx) {
                Ok(true) => {}
                Ok(false) => return self.poll_idle(cx),
                Err(CloseReason::GivenUp) => {
                    self.write.abort();
                    return Poll::Ready(CloseReason::GivenUp);
                }
                Err(reason) => {
                    // Answers that the socket takes at once still go out; the rest is lost with the connection.
                    let _ = self.output.poll_write(&mut self.write, cx);
                    return Poll::Ready(reason);
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads once, answers what came, writes once. False if there was nothing to do, and everything that could change
    /// that will wake the task.
    fn round(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        self.peer.collect(&mut self.output)?;
        let may_read = self.output.len() <= self.limits.write_high_bytes && self.deferred.len() < DEFERRED_MAX;
        let has_read = may_read && self.read_some(cx)?;
        let has_answered = self.answer_deferred(cx);
        let written = match self.output.poll_write(&mut self.write, cx) {
            Poll::Ready(Ok(bytes)) => bytes,
            Poll::Ready(Err(error)) => return Err(CloseReason::Socket(error.kind())),
            Poll::Pending => 0,
        };
        if has_read || written > 0 {
            self.traffic_at = self.peer.host().now();
        }
        if !may_read {
            host::point!("remoting.read-held-back", self.output.len());
        }
        Ok(has_read || (!may_read && (written > 0 || has_answered)))
    }

    /// One read, and all frames that are complete then. False if there is nothing to read.
    fn read_some(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        if self.input.capacity() - self.input.len() < READ_BYTES_MIN {
            self.input.reserve(READ_BYTES);
        }
        let polled = {
            let read = std::pin::pin!(self.read.read_buf(&mut self.input));
            read.poll(cx)
        };
        match polled {
            Poll::Pending => return Ok(false),
            Poll::Ready(Ok(0)) => return Err(CloseReason::Remote),
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => return Err(CloseReason::Socket(error.kind())),
        }
        self.has_grown |= self.input.len() > 2 * READ_BYTES;
        loop {
            match RemotingCommand::decode(&mut self.input) {
                Ok(Some(command)) if command.is_response() => self.peer.resolve(command),
                Ok(Some(command)) => self.serve(command),
                Ok(None) => return self.keep_rest(),
                Err(error) => {
                    host::point!("remoting.malformed");
                    return Err(CloseReason::Malformed(error));
                }
            }
        }
    }

    /// What is left begins a frame that is not complete: it counts if it is long, and else takes no more room than it
    /// needs.
    fn keep_rest(&mut self) -> Result<bool, CloseReason> {
        let is_long = self.input.len() > READ_BYTES;
        if !self.share.set(if is_long { self.input.len() } else { 0 }) {
            return Err(CloseReason::TooMuch);
        }
        if self.has_grown && !is_long {
            self.input = BytesMut::from(&self.input[..]);
            self.has_grown = false;
        }
        Ok(true)
    }

    fn serve(&mut self, command: RemotingCommand) {
        self.peer.saw(command.language, command.version);
        let to = Addressee {
            opaque: (!command.is_one_way()).then_some(command.opaque),
            serialize_type: command.serialize_type,
        };
        let reply = match RequestCode::from_number(command.code) {
            None => Response::not_supported(command.code).into(),
            Some(code) => match Request::decode(code, &command.fields) {
                Err(error) => Response::failure(ResponseCode::SYSTEM_ERROR, format!("{code}: {error}")).into(),
                Ok(request) => self.handler.handle(
                    &self.peer,
                    Inbound {
                        request,
                        language: command.language,
                        version: command.version,
                        one_way: command.is_one_way(),
                        opaque: command.opaque,
                        body: command.body.into_bytes(),
                    },
                ),
            },
        };
        match reply {
            Reply::Now(response) => self.answer(to, response),
            Reply::Later(answer) => self.deferred.push(Deferred { to, answer }),
            Reply::None => {}
        }
    }

    /// True if an answer has come.
    fn answer_deferred(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while let Poll::Ready(Some((to, response))) = self.deferred.poll_next_unpin(cx) {
            self.answer(to, response);
            any = true;
        }
        any
    }

    fn answer(&mut self, to: Addressee, response: Response) {
        let Some(opaque) = to.opaque else { return };
        // What was sent before the answer was given goes first, as with the reference: a notice, say, which tells a
        // member of a change, is written before the answer to the heartbeat that made it.
        self.peer.collect_sent(&mut self.output);
        let command = RemotingCommand::response(response, opaque, to.serialize_type);
        if let Err(error) = self.output.push(&command) {
            let failure = Response::failure(ResponseCode::SYSTEM_ERROR, format!("answer not sent: {error}"));
            let short = RemotingCommand::response(failure, opaque, to.serialize_type);
            self.output.push(&short).expect("a header with one remark fits into a frame");
        }
    }

    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<CloseReason> {
        loop {
            ready!(Pin::new(&mut self.idle).poll(cx));
            let closes_at = self.traffic_at + self.limits.idle;
            if self.peer.host().now() >= closes_at {
                return Poll::Ready(CloseReason::Idle);
            }
            self.idle.reset(closes_at);
        }
    }
}

/// Where an answer goes.
#[derive(Clone, Copy)]
struct Addressee {
    /// `None`: nobody waits.
    opaque: Option<i32>,
    serialize_type: SerializeType,
}

/// An answer that is still to come.
struct Deferred {
    to: Addressee,
    answer: BoxFuture<Response>,
}

impl Future for Deferred {
    type Output = (Addressee, Response);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<(Addressee, Response)> {
        let to = self.to;
        self.answer.as_mut().poll(cx).map(|response| (to, response))
    }
}

/// Tells everyone who waits on a connection that it is gone.
pub(crate) struct EndOnDrop(pub Peer);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end(&Ended::Closed(CloseReason::Local));
    }
}
