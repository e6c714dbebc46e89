//! The master's side: it listens, and streams its log to every slave that connects.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use host::{
    Host,
    net::{TcpListener, TcpStream, WriteHalf},
    task::TaskGroup,
    worker::{Stop, Worker, stopped},
};
use message::PhyOffset;
use remoting::ListenError;
use store::Store;
use tokio::{io::AsyncWriteExt as _, sync::oneshot};
use tracing::{info, warn};

use super::{
    copies::{BadReport, Copies, LinkId, LogBounds},
    link::{LinkError, Reader, send},
    pace::Pace,
    wire::{FrameHeader, HEADER_BYTES, REPORT_BYTES, WireError, decode_report},
};
use crate::config::BrokerConfig;

/// Pause after a failure to accept, which is usually a lack of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Connections beyond these are closed at once: a group has few replicas, and the port asks nobody who he is.
const LINKS_MAX: usize = 64;

/// How long a slave that is refused may take to be told.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves slaves as long as it lives.
pub(crate) struct Master {
    address: SocketAddr,
    acceptor: Worker,
}

/// What all connections share.
struct Source {
    host: Host,
    store: Arc<Store>,
    config: Arc<BrokerConfig>,
    copies: Arc<Copies>,
}

/// Why a slave is not served any more.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Wire(#[from] WireError),
    /// Its first report tells the slave nothing about the master; `hint` does.
    #[error("{bad}")]
    Refused { bad: BadReport, hint: Option<PhyOffset> },
    #[error("the log from {0} on was deleted before it was sent")]
    Deleted(PhyOffset),
}

impl Master {
    /// Listens on `address`.
    ///
    /// # Errors
    /// If that is not possible.
    pub(crate) async fn start(
        host: &Host,
        address: SocketAddr,
        config: &Arc<BrokerConfig>,
        store: &Arc<Store>,
        copies: &Arc<Copies>,
    ) -> Result<Master, ListenError> {
        let failed = |source| ListenError { address, source };
        let listener = host.bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let source = Source {
            host: host.clone(),
            store: Arc::clone(store),
            config: Arc::clone(config),
            copies: Arc::clone(copies),
        };
        let acceptor = Worker::start(host, "broker.accept-slaves", |stop| accept(Arc::new(source), listener, stop));
        Ok(Master { address, acceptor })
    }

    /// The address it listens on, with the real port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes all connections and leaves no task behind.
    pub(crate) async fn stop(self) {
        self.acceptor.stop().await;
    }
}

async fn accept(source: Arc<Source>, listener: TcpListener, mut stop: Stop) {
    let links = TaskGroup::new(&source.host);
    loop {
        host::select! {
            () = stopped(&mut stop) => break,
            accepted = listener.accept() => match accepted {
                Ok((_, from)) if source.copies.status().len() >= LINKS_MAX => {
                    warn!(%from, max = LINKS_MAX, "too many slaves: closed");
                }
                Ok((stream, from)) => {
                    let source = Arc::clone(&source);
                    let id = source.copies.connected(from);
                    links.spawn("broker.serve-slave", async move { source.serve(id, stream, from).await });
                }
                Err(error) => {
                    warn!(%error, "cannot accept a slave");
                    source.host.sleep(ACCEPT_RETRY).await;
                }
            },
        }
    }
    drop(listener);
    links.shutdown().await;
}

impl Source {
    async fn serve(&self, id: LinkId, stream: TcpStream, from: SocketAddr) {
        info!(slave = %from, "a slave connected");
        let (read, mut write) = stream.into_split();
        let patience = self.config.replication.housekeeping_interval;
        let mut reader = Reader { host: self.host.clone(), half: read, patience };
        let (tell, first) = oneshot::channel();
        let ended = host::select! {
            ended = self.take_reports(id, &mut reader, tell) => ended,
            ended = self.send_frames(id, &mut write, first) => ended,
        };
        self.copies.disconnected(id);
        match &ended {
            Ended::Refused { bad, hint } => {
                warn!(slave = %from, problem = %bad, "a slave is refused: its log does not go with this one");
                host::point!("ha.report-refused");
                if let Some(hint) = *hint {
                    self.tell_bound(&mut write, hint).await;
                    return;
                }
            }
            Ended::Deleted(_) | Ended::Wire(_) => {
                warn!(slave = %from, problem = %ended, "a slave is not served any more")
            }
            Ended::Link(_) => info!(slave = %from, reason = %ended, "a slave is gone"),
        }
        write.abort();
    }

    /// A heartbeat with the end of the log that the slave has run over. Nothing was sent before it.
    async fn tell_bound(&self, write: &mut WriteHalf, bound: PhyOffset) {
        let header = FrameHeader::heartbeat(bound).encode();
        let told = async {
            send(write, &header, &[]).await?;
            write.shutdown().await
        };
        // It will connect again and be told again.
        let _ = self.host.timeout(REFUSAL_TIMEOUT, told).await;
    }

    /// Takes reports until one is bad. The first one says where to begin.
    async fn take_reports(&self, id: LinkId, reader: &mut Reader, tell: oneshot::Sender<PhyOffset>) -> Ended {
        let mut tell = Some(tell);
        loop {
            let mut raw = [0; REPORT_BYTES];
            if let Err(error) = reader.read_exact(&mut raw).await {
                return error.into();
            }
            let report = match decode_report(raw) {
                Ok(report) => report,
                Err(error) => return error.into(),
            };
            host::gate!("ha.slave-ack", report.0).await;
            let bounds = LogBounds { min: self.store.min_phy(), max: self.store.max_phy() };
            if let Err(bad) = self.copies.report(id, report, bounds) {
                let hint = tell.is_some().then_some(match bad {
                    BadReport::AboveMax { max, .. } => max,
                    BadReport::BelowMin { min, .. } => min,
                    BadReport::Back { last, .. } => last,
                });
                return Ended::Refused { bad, hint };
            }
            if let Some(tell) = tell.take() {
                // It waits for this, in the same task.
                let _ = tell.send(report);
            }
        }
    }

    /// Sends what the slave lacks, and what is written from then on.
    async fn send_frames(&self, id: LinkId, write: &mut WriteHalf, first: oneshot::Receiver<PhyOffset>) -> Ended {
        let Ok(report) = first.await else { return LinkError::Closed.into() };
        let settings = &self.config.replication;
        let mut next = self.begin(report);
        let mut pace = Pace::new(settings.flow_control.then_some(settings.flow_max_bytes), self.host.now());
        let mut spoke = self.host.now();
        loop {
            let grown = self.store.log_grown();
            let sent = match self.store.log_bytes(next) {
                Some(bytes) => {
                    let allowed = match pace.allowed(self.host.now()) {
                        Ok(allowed) => allowed,
                        Err(at) => {
                            self.host.sleep_until(at).await;
                            continue;
                        }
                    };
                    // Of what is allowed in a second the header is the smaller part, unless nothing is.
                    let allowed = allowed.saturating_sub(HEADER_BYTES as u64).max(1).min(settings.batch_max_bytes);
                    let body = bytes.slice(..bytes.len().min(allowed as usize));
                    let header = FrameHeader { at: next, body_bytes: body.len() as u32 };
                    host::point!("ha.frame-sent", next.0);
                    next = PhyOffset(next.0 + body.len() as u64);
                    pace.sent((HEADER_BYTES + body.len()) as u64);
                    send(write, &header.encode(), &body).await
                }
                None if next < self.store.min_phy() => return Ended::Deleted(next),
                None => {
                    host::select! {
                        () = grown => continue,
                        () = self.host.sleep_until(spoke + settings.heartbeat_interval) => {}
                    }
                    send(write, &FrameHeader::heartbeat(next).encode(), &[]).await
                }
            };
            if let Err(error) = sent {
                return LinkError::from(error).into();
            }
            spoke = self.host.now();
            self.copies.sent(id, next);
        }
    }

    /// Where to begin for a first report: a slave without anything gets the last file. Source: `spec/replication.md` 2.4.
    fn begin(&self, report: PhyOffset) -> PhyOffset {
        if report.0 > 0 {
            return report;
        }
        let max = self.store.max_phy().0;
        let file_bytes = self.config.store.commit_log_file_bytes;
        PhyOffset((max / file_bytes * file_bytes).max(self.store.min_phy().0))
    }
}
