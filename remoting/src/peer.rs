//! The other side of one connection.

use std::{
    fmt,
    future::poll_fn,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicI32, AtomicU8, Ordering},
    },
    task::{Poll, Waker},
    time::Duration,
};

use futures_util::task::AtomicWaker;
use host::Host;
use indexmap::IndexMap;
use tokio::sync::{Notify, oneshot};

use crate::{
    command::{RemotingCommand, Response, SerializeType},
    frame::FrameError,
    language::{Language, Version},
    outbox::Outbox,
    payload::Payload,
    request::{Request, RequestCode},
};

/// Requests of this side on one connection that wait for their answers.
const IN_FLIGHT_MAX: usize = 65_535;
/// Bytes of frames that wait for the task of their connection.
const OUTBOX_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The other side closed it.
    #[error("closed by the other side")]
    Remote,
    /// This side closed it.
    #[error("closed by this side")]
    Local,
    /// This side gave it up because an answer did not come in time.
    #[error("given up by this side: no answer in time")]
    GivenUp,
    /// Nothing was read or written for too long.
    #[error("idle for too long")]
    Idle,
    /// The other side sent something that is no frame.
    #[error("received a malformed frame: {0}")]
    Malformed(FrameError),
    /// It sent a part of a long frame while such parts, of all connections together, took too much memory.
    #[error("too much memory is taken by frames that are not complete")]
    TooMuch,
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Socket(io::ErrorKind),
}

/// Why there is no answer to a request.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum InvokeError {
    /// There is no connection to the address.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// `host:port`.
        address: String,
        /// What the machine says; `TimedOut` if the other side said nothing.
        source: Arc<io::Error>,
    },
    /// The connection ended before the answer came; the request may or may not have been carried out.
    #[error("connection with {address} lost: {reason}")]
    Closed {
        /// `host:port`.
        address: String,
        /// Why it ended.
        reason: CloseReason,
    },
    /// The answer did not come in time; the request may or may not have been carried out.
    #[error("no answer from {address} to {code} within {after:?}")]
    Timeout {
        /// `host:port`.
        address: String,
        /// What was asked.
        code: RequestCode,
        /// How long it was waited for.
        after: Duration,
    },
    /// Too much is on its way to this address. Nothing was sent.
    #[error("too many requests on their way to {address}")]
    Busy {
        /// `host:port`.
        address: String,
    },
    /// The request is longer than a frame may be. Nothing was sent.
    #[error("request not sent: {0}")]
    TooLong(FrameError),
    /// The client was shut down. Nothing was sent.
    #[error("the client is shut down")]
    Stopped,
}

/// The other side of one connection: requests can be sent to it. Cheap to clone; two are equal if they are the same
/// connection.
#[derive(Clone)]
pub struct Peer {
    shared: Arc<Shared>,
}

struct Shared {
    host: Host,
    id: u64,
    listener: usize,
    address: String,
    /// Set when the connection stands.
    remote: OnceLock<SocketAddr>,
    serialize_type: SerializeType,
    /// What the last request said.
    version: AtomicI32,
    language: AtomicU8,
    /// Leaf lock: nothing else is locked while it is held.
    state: Mutex<State>,
    /// The task of the connection.
    task: AtomicWaker,
    ended: Notify,
}

/// What both the task of the connection and everyone who sends on it touch.
struct State {
    outbox: Outbox,
    /// By opaque.
    pending: IndexMap<i32, oneshot::Sender<Result<Response, InvokeError>>>,
    next_opaque: i32,
    /// Why it shall end.
    close_asked: Option<CloseReason>,
    ended: Option<Ended>,
}

/// How a connection ended.
#[derive(Debug, Clone)]
pub(crate) enum Ended {
    NoConnection(Arc<io::Error>),
    Closed(CloseReason),
}

/// No language has this code.
const NO_LANGUAGE: u8 = u8::MAX;

impl Peer {
    /// A connection that may send at once, though it does not stand yet.
    pub(crate) fn new(host: &Host, id: u64, listener: usize, address: String, serialize_type: SerializeType) -> Peer {
        let state = State {
            outbox: Outbox::default(),
            pending: IndexMap::new(),
            next_opaque: 0,
            close_asked: None,
            ended: None,
        };
        Peer {
            shared: Arc::new(Shared {
                host: host.clone(),
                id,
                listener,
                address,
                remote: OnceLock::new(),
                serialize_type,
                version: AtomicI32::new(0),
                language: AtomicU8::new(NO_LANGUAGE),
                state: Mutex::new(state),
                task: AtomicWaker::new(),
                ended: Notify::new(),
            }),
        }
    }

    /// The number of the connection at its server or client, from 1 in the order they were opened.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.shared.id
    }

    /// Which of the server's addresses the connection came to, counted from 0 as they were configured.
    #[must_use]
    pub fn listener(&self) -> usize {
        self.shared.listener
    }

    /// The other side as `host:port`: as it was dialled, or where it came from.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// The address of the other side's socket; `None` while the connection is being made.
    #[must_use]
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.shared.remote.get().copied()
    }

    /// The version that its last request carried; [`Version(0)`](Version) before the first.
    #[must_use]
    pub fn version(&self) -> Version {
        Version(self.shared.version.load(Ordering::Relaxed))
    }

    /// The language that its last request carried.
    #[must_use]
    pub fn language(&self) -> Option<Language> {
        Language::from_code(i64::from(self.shared.language.load(Ordering::Relaxed)))
    }

    /// Sends a request that wants no answer. It is on its way when this returns, which says nothing about its arrival.
    ///
    /// # Errors
    /// `Connect` or `Closed` if the connection has ended, `Busy`, `TooLong`.
    pub fn send_one_way(&self, request: Request, body: impl Into<Payload>) -> Result<(), InvokeError> {
        self.send(&mut self.command(request, body.into()).one_way(), None)
    }

    /// Sends a request and waits for its answer, whatever code that has. Dropping the future forgets the answer.
    ///
    /// # Errors
    /// Any [`InvokeError`] but `Stopped`. A connection that ends fails all its requests at once.
    pub async fn invoke(
        &self,
        request: Request,
        body: impl Into<Payload>,
        timeout: Duration,
    ) -> Result<Response, InvokeError> {
        let code = request.code();
        self.invoke_command(&mut self.command(request, body.into()), code, timeout).await
    }

    /// Asks for the end of the connection. What was queued is written if the socket takes it at once.
    pub fn close(&self) {
        self.ask_for_close(CloseReason::Local);
    }

    /// Asks for the end of the connection, and that nothing that waits on it is delivered later: a request that was
    /// tried again elsewhere, or an offset that was committed again since, must not arrive when the network is back.
    pub(crate) fn give_up(&self) {
        self.ask_for_close(CloseReason::GivenUp);
    }

    fn ask_for_close(&self, reason: CloseReason) {
        self.shared.lock().close_asked.get_or_insert(reason);
        self.shared.task.wake();
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.lock().ended.is_some()
    }

    /// Returns when the connection has ended, at once if it has.
    pub async fn closed(&self) {
        loop {
            let mut ended = std::pin::pin!(self.shared.ended.notified());
            ended.as_mut().enable();
            if self.is_closed() {
                return;
            }
            ended.await;
        }
    }

    pub(crate) fn command(&self, request: Request, body: Payload) -> RemotingCommand {
        let code = request.code().number();
        let mut command = RemotingCommand::request(code, 0, request.into_fields(), body);
        command.serialize_type = self.shared.serialize_type;
        command
    }

    /// Sends a frame made by [`command`](Peer::command), which may be sent again elsewhere.
    pub(crate) async fn invoke_command(
        &self,
        command: &mut RemotingCommand,
        code: RequestCode,
        timeout: Duration,
    ) -> Result<Response, InvokeError> {
        let late = self.shared.host.sleep(timeout);
        let (tell, answer) = oneshot::channel();
        self.send(command, Some(tell))?;
        let _forget = Forget { shared: &self.shared, opaque: command.opaque };
        host::select! {
            answer = answer => answer.unwrap_or_else(|_| Err(self.error(&Ended::Closed(CloseReason::Local)))),
            () = late => Err(InvokeError::Timeout { address: self.address().to_owned(), code, after: timeout }),
        }
    }

    fn send(
        &self,
        command: &mut RemotingCommand,
        tell: Option<oneshot::Sender<Result<Response, InvokeError>>>,
    ) -> Result<(), InvokeError> {
        let mut state = self.shared.lock();
        if let Some(ended) = &state.ended {
            return Err(self.error(ended));
        }
        if state.pending.len() >= IN_FLIGHT_MAX || state.outbox.len() + command.body.len() > OUTBOX_BYTES_MAX {
            return Err(InvokeError::Busy { address: self.address().to_owned() });
        }
        command.opaque = state.next_opaque;
        let was_empty = state.outbox.is_empty();
        state.outbox.push(command).map_err(InvokeError::TooLong)?;
        state.next_opaque = state.next_opaque.wrapping_add(1);
        if let Some(tell) = tell {
            let before = state.pending.insert(command.opaque, tell);
            assert!(before.is_none(), "opaque {} is in use", command.opaque);
        }
        drop(state);
        // Otherwise the task has been woken for what lies there already.
        if was_empty {
            self.shared.task.wake();
        }
        Ok(())
    }

    fn error(&self, ended: &Ended) -> InvokeError {
        let address = self.address().to_owned();
        match ended {
            Ended::NoConnection(source) => InvokeError::Connect { address, source: Arc::clone(source) },
            Ended::Closed(reason) => InvokeError::Closed { address, reason: reason.clone() },
        }
    }

    /// Whether the connection has ended or is about to.
    pub(crate) fn is_ending(&self) -> bool {
        let state = self.shared.lock();
        state.close_asked.is_some() || state.ended.is_some()
    }

    // ---- the side of the connection's task ----

    pub(crate) fn host(&self) -> &Host {
        &self.shared.host
    }

    /// The connection stands.
    pub(crate) fn connected(&self, remote: SocketAddr) {
        self.shared.remote.get_or_init(|| remote);
    }

    /// Whom to wake when there is something to send, or when the end is asked for.
    pub(crate) fn register(&self, task: &Waker) {
        self.shared.task.register(task);
    }

    /// Moves what was sent to `output`. An error if the end was asked for.
    pub(crate) fn collect(&self, output: &mut Outbox) -> Result<(), CloseReason> {
        let mut state = self.shared.lock();
        output.take(&mut state.outbox);
        state.close_asked.clone().map_or(Ok(()), Err)
    }

    /// Moves what was sent to `output`, whether or not the end was asked for.
    pub(crate) fn collect_sent(&self, output: &mut Outbox) {
        output.take(&mut self.shared.lock().outbox);
    }

    /// Returns when the end of the connection is asked for. For the time before its task can look for itself.
    pub(crate) async fn close_asked(&self) {
        poll_fn(|cx| {
            self.register(cx.waker());
            if self.shared.lock().close_asked.is_some() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Hands a response to whoever waits for it. Late ones and unknown ones are dropped.
    pub(crate) fn resolve(&self, response: RemotingCommand) {
        let tell = self.shared.lock().pending.swap_remove(&response.opaque);
        match tell {
            // A receiver that is gone has just given up.
            Some(tell) => drop(tell.send(Ok(Response::from_command(response)))),
            None => tracing::debug!(peer = self.address(), opaque = response.opaque, "response without a request"),
        }
    }

    pub(crate) fn saw(&self, language: Option<Language>, version: Version) {
        self.shared.version.store(version.0, Ordering::Relaxed);
        self.shared.language.store(language.map_or(NO_LANGUAGE, Language::code), Ordering::Relaxed);
    }

    /// The connection has ended: everyone who waits is told. Only the first call counts.
    pub(crate) fn end(&self, ended: &Ended) {
        let pending = {
            let mut state = self.shared.lock();
            if state.ended.is_some() {
                return;
            }
            state.ended = Some(ended.clone());
            state.outbox.clear();
            std::mem::take(&mut state.pending)
        };
        for (_, tell) in pending {
            // A receiver that is gone has just given up.
            drop(tell.send(Err(self.error(ended))));
        }
        self.shared.ended.notify_waiters();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a request out of the table when nobody waits for its answer any more.
struct Forget<'a> {
    shared: &'a Shared,
    opaque: i32,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.shared.lock().pending.swap_remove(&self.opaque);
    }
}

impl PartialEq for Peer {
    fn eq(&self, other: &Peer) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for Peer {}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer {} {}", self.id(), self.address())
    }
}
