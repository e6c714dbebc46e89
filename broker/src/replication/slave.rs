//! The slave's side: it connects to its master and follows its log.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use host::{
    Host,
    net::WriteHalf,
    worker::{Stop, stopped},
};
use message::PhyOffset;
use store::{CopyError, FlushDiskType, Flushed, Store};
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::{
    first_file::{BEHIND_FIRST_BYTE, complete},
    link::{LinkError, Reader, send},
    wire::{FrameHeader, HEADER_BYTES, WireError, encode_report},
};
use crate::{
    config::{BrokerConfig, SyncFrom, WhenAhead},
    group_master::GroupMaster,
};

/// How long connecting may take. Source: `spec/replication.md` 2.1.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause before the first attempt to connect again; it doubles up to the longest one (HO03).
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// A connection that lasted so long was a good one (HO03).
const HEALTHY_AFTER: Duration = Duration::from_secs(10);

/// Heartbeats at a place that the slave has something behind, until it believes that the master has nothing there. The
/// reference may send one although it has.
const IDLE_HEARTBEATS: u32 = 2;

/// How a slave stands to its master.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlaveState {
    /// It knows no master.
    NoMaster,
    /// It is connecting, or comparing what both have.
    Connecting,
    /// It follows; all it has is the master's, as far back as was looked.
    Following,
    /// Both logs differ at this position (HO04). Both are kept, and it does not follow.
    Diverged {
        /// The first byte that differs.
        at: PhyOffset,
    },
    /// The master's log ends here, before its own (HO05). Both are kept, and it does not follow.
    Ahead {
        /// Its end, or the first byte that it does not have.
        master_end: PhyOffset,
    },
    /// The master's log begins here, behind its own end (HO08): it must be copied anew.
    TooOld {
        /// The first byte that it has.
        master_start: PhyOffset,
    },
    /// It could not take what the master sent (HO10).
    Failed {
        /// Why.
        problem: String,
    },
}

/// How a slave stands to its master, for those who ask.
pub(crate) struct SlaveStatus {
    /// Leaf lock.
    state: Mutex<SlaveState>,
    /// Where its log is to be cut, once nobody uses it.
    cut_at: watch::Sender<Option<PhyOffset>>,
}

impl SlaveStatus {
    pub(crate) fn new() -> SlaveStatus {
        SlaveStatus { state: Mutex::new(SlaveState::NoMaster), cut_at: watch::Sender::new(None) }
    }

    pub(crate) fn get(&self) -> SlaveState {
        self.lock().clone()
    }

    /// True if that is a change.
    fn set(&self, state: SlaveState) -> bool {
        let mut known = self.lock();
        let is_new = *known != state;
        *known = state;
        is_new
    }

    /// Ends when the log has to be cut, and says where.
    pub(crate) async fn cut_wanted(&self) -> PhyOffset {
        let mut cut_at = self.cut_at.subscribe();
        let wanted = cut_at.wait_for(Option::is_some).await.ok().and_then(|cut_at| *cut_at);
        match wanted {
            Some(at) => at,
            None => std::future::pending().await, // Nobody is left who could want it.
        }
    }

    fn lock(&self) -> MutexGuard<'_, SlaveState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows a master as long as it lives. Owned by its task.
pub(crate) struct Slave {
    pub(crate) host: Host,
    pub(crate) store: Arc<Store>,
    pub(crate) config: Arc<BrokerConfig>,
    pub(crate) status: Arc<SlaveStatus>,
    pub(crate) group: Arc<GroupMaster>,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the master sent bytes from {at}, those from {wanted} are next")]
    Gap { at: PhyOffset, wanted: PhyOffset },
    #[error("what was copied cannot be made durable")]
    NotDurable,
    #[error("the master does not say where its log begins, which haSyncFrom=first-file needs; is there a name server?")]
    NoStart,
    /// `agreed` is the end of the last record that was found to be the same, if one was.
    #[error("both logs differ at {at}")]
    Diverged { at: PhyOffset, agreed: Option<PhyOffset> },
    #[error("the log of the master ends at {master_end}, this one at {end}")]
    Ahead { master_end: PhyOffset, end: PhyOffset, agreed: Option<PhyOffset> },
    #[error("the log of the master begins at {master_start}, this one ends at {end}")]
    TooOld { master_start: PhyOffset, end: PhyOffset },
    #[error(transparent)]
    Copy(#[from] CopyError),
}

/// Where both logs are compared from, after nothing before their parting was found to be the same.
#[derive(Debug, Clone, Copy)]
struct LookBack {
    from: PhyOffset,
    distance: u64,
}

impl Slave {
    /// Connects again and again until it is stopped. `master` says where the master listens for slaves, as far as known; when
    /// nobody knows any more, the last address counts.
    pub(crate) async fn run(self, mut master: watch::Receiver<Option<String>>, mut stop: Stop) {
        let mut pause = RETRY_MIN;
        let mut was_good = true;
        let mut back = None;
        let mut address = host::select! {
            () = stopped(&mut stop) => return,
            address = other(&mut master, None) => address,
        };
        loop {
            let begun = self.host.now();
            let ended = host::select! {
                () = stopped(&mut stop) => return,
                moved = other(&mut master, Some(&address)) => Err(moved),
                ended = self.follow(&address, back) => Ok(ended),
            };
            self.store.drop_partial_record().await;
            let ended = match ended {
                Ok(ended) => ended,
                Err(moved) => {
                    info!(from = address, to = moved, "following another master");
                    (address, pause, was_good, back) = (moved, RETRY_MIN, true, None);
                    self.status.set(SlaveState::Connecting);
                    continue;
                }
            };
            if self.host.now().since(begun) >= HEALTHY_AFTER {
                (pause, was_good) = (RETRY_MIN, true);
            }
            self.note(&address, &ended, was_good);
            was_good = false;
            if let Some(at) = self.cut(&ended) {
                warn!(master = address, at = at.0, "this slave gives up what its master does not have (haWhenAhead)");
                self.status.cut_at.send_replace(Some(at));
                return stopped(&mut stop).await;
            }
            if let Some(further) = self.look_back(&ended, back) {
                (back, pause) = (Some(further), RETRY_MIN);
            } else if self.status.get() == SlaveState::Following {
                back = None;
            }
            if matches!(ended, Ended::Link(LinkError::Silent(_))) {
                continue;
            }
            host::select! {
                () = stopped(&mut stop) => return,
                moved = other(&mut master, Some(&address)) => {
                    (address, pause, was_good, back) = (moved, RETRY_MIN, true, None);
                }
                () = self.host.sleep(pause) => pause = RETRY_MAX.min(pause * 2),
            }
        }
    }

    /// Takes note of the end of a connection, and tells of it once.
    fn note(&self, master: &str, ended: &Ended, was_good: bool) {
        let state = match ended {
            Ended::Link(_) | Ended::Wire(_) | Ended::Gap { .. } | Ended::NotDurable | Ended::NoStart => {
                // What was found out stays true until a connection shows something else.
                if was_good {
                    warn!(master, reason = %ended, "not connected to the master, trying again");
                    self.status.set(SlaveState::Connecting);
                }
                return;
            }
            Ended::Diverged { at, .. } => SlaveState::Diverged { at: *at },
            Ended::Ahead { master_end, .. } => SlaveState::Ahead { master_end: *master_end },
            Ended::TooOld { master_start, .. } => SlaveState::TooOld { master_start: *master_start },
            Ended::Copy(problem) => SlaveState::Failed { problem: problem.to_string() },
        };
        match ended {
            Ended::Diverged { at, .. } => host::point!("ha.diverged", at.0),
            Ended::Ahead { master_end, .. } => host::point!("ha.ahead", master_end.0),
            Ended::TooOld { master_start, .. } => host::point!("ha.too-old", master_start.0),
            _ => {}
        }
        if let Ended::Diverged { at, agreed } | Ended::Ahead { master_end: at, agreed, .. } = ended {
            // Nobody reads what may be another message at the master.
            self.store.hide_from(Some(agreed.unwrap_or(*at)));
        }
        if self.status.set(state) {
            error!(master, problem = %ended, "this slave does not follow its master, both logs are kept");
        }
    }

    /// Where to cut the log, if that is wanted and known: both have the record that ends there.
    fn cut(&self, ended: &Ended) -> Option<PhyOffset> {
        match ended {
            Ended::Diverged { agreed, .. } | Ended::Ahead { agreed, .. } => {
                agreed.filter(|_| self.config.replication.when_ahead == WhenAhead::Truncate)
            }
            _ => None,
        }
    }

    /// From where to compare next time, if nothing was the same this time and there is more to compare.
    fn look_back(&self, ended: &Ended, last: Option<LookBack>) -> Option<LookBack> {
        let (Ended::Diverged { at, agreed: None } | Ended::Ahead { master_end: at, agreed: None, .. }) = ended else {
            return None;
        };
        let rewind = self.config.replication.rewind_bytes;
        let distance = last.map_or(rewind, |last| last.distance.saturating_mul(2));
        let start = self.store.min_phy();
        let is_done = last.is_some_and(|last| last.distance >= last.from.0 - start.0.min(last.from.0));
        (*at > start && !is_done).then_some(LookBack { from: *at, distance })
    }

    /// One connection, to its end.
    async fn follow(&self, address: &str, back: Option<LookBack>) -> Ended {
        let connected = self.host.timeout(CONNECT_TIMEOUT, async {
            let address = self.host.resolve(address).await?;
            self.host.connect(address).await
        });
        let stream = match connected.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return LinkError::from(error).into(),
            Err(_) => return LinkError::from(std::io::Error::from(std::io::ErrorKind::TimedOut)).into(),
        };
        let begin = match self.begin(back).await {
            Ok(begin) => begin,
            Err(ended) => return ended,
        };
        let (read, mut write) = stream.into_split();
        let patience = self.config.replication.housekeeping_interval;
        let reader = Reader { host: self.host.clone(), half: read, patience };
        let (proved, proof) = watch::channel(None);
        let mut copy = Incoming { slave: self, end: self.store.max_phy(), begin, next: begin, idle: 0, proved };
        let ended = host::select! {
            ended = copy.take_frames(reader) => ended,
            error = self.report(&mut write, begin, proof) => LinkError::from(error).into(),
        };
        write.abort();
        ended
    }

    /// The first report: 0 if there is nothing, else a record some way back, from which on both logs are compared (HO04).
    async fn begin(&self, back: Option<LookBack>) -> Result<PhyOffset, Ended> {
        if self.store.is_log_empty() {
            return match self.config.replication.sync_from {
                SyncFrom::LastFile => Ok(PhyOffset(0)),
                SyncFrom::FirstFile => self.first_file().await.ok_or(Ended::NoStart),
            };
        }
        // What is reported must be on disk, if anything must.
        if self.is_durable() && self.store.flush().await != Flushed::Done {
            return Err(Ended::NotDurable);
        }
        let end = self.store.max_phy();
        if super::believes_all() {
            return Ok(end);
        }
        let further = back.map(|LookBack { from, distance }| (from, self.store.record_before(from.min(end), distance)));
        Ok(match further {
            Some((from, begin)) if begin < from => begin,
            _ => self.store.record_before(end, self.config.replication.rewind_bytes),
        })
    }

    /// Whether only what is on disk counts as copied (HO06).
    fn is_durable(&self) -> bool {
        self.config.store.flush_disk_type == FlushDiskType::Sync
    }

    /// Reports where to begin at once (HO03), then what was copied, as soon as both logs have turned out to be one.
    async fn report(
        &self,
        write: &mut WriteHalf,
        begin: PhyOffset,
        mut proof: watch::Receiver<Option<PhyOffset>>,
    ) -> std::io::Error {
        let mut last = None;
        loop {
            let (grown, synced) = (self.store.log_grown(), self.store.log_synced());
            let proved = *proof.borrow_and_update();
            let report = match proved {
                None => begin,
                Some(proved) if self.is_durable() => self.store.flushed_phy().max(proved),
                Some(proved) => self.store.copied_phy().max(proved),
            };
            if last != Some(report) {
                host::point!("ha.reporting", report.0);
                if let Err(error) = send(write, &encode_report(report), &[]).await {
                    return error;
                }
                last = Some(report);
            }
            host::select! {
                _ = proof.changed() => {}
                () = grown => {}
                () = synced => {}
                () = self.host.sleep(self.config.replication.heartbeat_interval) => last = None,
            }
        }
    }
}

/// Waits until another address than `known` is known.
async fn other(master: &mut watch::Receiver<Option<String>>, known: Option<&String>) -> String {
    let is_other = |address: &Option<String>| address.is_some() && address.as_ref() != known;
    let other = master.wait_for(is_other).await.ok().and_then(|address| address.clone());
    match other {
        Some(address) => address,
        None => std::future::pending().await, // Nobody is left who could know.
    }
}

/// What comes from the master on one connection.
struct Incoming<'a> {
    slave: &'a Slave,
    /// Where the own log ended when the connection began.
    end: PhyOffset,
    /// What was reported first: the start of a record, unless there is none.
    begin: PhyOffset,
    /// The next byte that should come.
    next: PhyOffset,
    /// Heartbeats since the last bytes.
    idle: u32,
    /// Told when everything before `end` was found equal, with that position.
    proved: watch::Sender<Option<PhyOffset>>,
}

impl Incoming<'_> {
    async fn take_frames(&mut self, mut reader: Reader) -> Ended {
        let mut body = Vec::new();
        loop {
            if self.next >= self.end && self.proved.borrow().is_none() {
                self.proved.send_replace(Some(self.next));
                self.slave.store.hide_from(None);
                if self.slave.status.set(SlaveState::Following) {
                    info!(from = self.next.0, "following the master");
                }
                host::point!("ha.following", self.next.0);
            }
            match self.take_frame(&mut reader, &mut body).await {
                Ok(()) => {}
                Err(ended) => return ended,
            }
        }
    }

    async fn take_frame(&mut self, reader: &mut Reader, body: &mut Vec<u8>) -> Result<(), Ended> {
        let mut raw = [0; HEADER_BYTES];
        reader.read_exact(&mut raw).await?;
        let FrameHeader { at, body_bytes } = FrameHeader::decode(raw)?;
        if body_bytes == 0 {
            return self.take_heartbeat(at);
        }
        self.idle = 0;
        if self.slave.store.is_log_empty() {
            self.next = at; // Where an empty slave begins is up to its master.
        }
        if at != self.next {
            return Err(Ended::Gap { at, wanted: self.next });
        }
        body.resize(body_bytes as usize, 0);
        reader.read_exact(body).await?;
        if self.begin == BEHIND_FIRST_BYTE && at == self.begin && self.slave.store.is_log_empty() {
            complete(body);
            self.next = PhyOffset(0);
        }
        host::gate!("ha.frame", at.0).await;
        let known = self.compare(body)?;
        if known < body.len() {
            if host::mutant!("reported-before-copied") {
                self.proved.send_replace(Some(PhyOffset(at.0 + u64::from(body_bytes))));
            }
            self.slave.store.append_copy(self.next, &body[known..]).await?;
            self.next = PhyOffset(self.next.0 + (body.len() - known) as u64);
            host::point!("ha.append", self.next.0);
        }
        Ok(())
    }

    /// The master has nothing to send, or tells a slave that it refuses where its log ends or begins.
    fn take_heartbeat(&mut self, at: PhyOffset) -> Result<(), Ended> {
        let end = self.end;
        if self.slave.store.is_log_empty() || at == self.next && self.next >= end {
            return Ok(());
        }
        self.idle += 1;
        match at.cmp(&self.next) {
            std::cmp::Ordering::Equal if self.idle < IDLE_HEARTBEATS => Ok(()),
            std::cmp::Ordering::Greater => Err(Ended::TooOld { master_start: at, end }),
            _ => Err(Ended::Ahead { master_end: at, end, agreed: self.agreed(self.next.min(at)) }),
        }
    }

    /// Compares what both have, and returns how much of `body` that was.
    fn compare(&mut self, body: &[u8]) -> Result<usize, Ended> {
        let mut known = 0;
        while known < body.len() && self.next < self.end {
            let at = self.next;
            // Files of the own log may have been deleted meanwhile, from the oldest on.
            let Some(own) = self.slave.store.log_bytes(at) else {
                return Err(Ended::TooOld { master_start: self.slave.store.min_phy(), end: self.end });
            };
            let len = own.len().min(body.len() - known).min((self.end.0 - at.0) as usize);
            let pairs = own[..len].iter().zip(&body[known..known + len]);
            if let Some(same) = pairs.clone().position(|(own, masters)| own != masters) {
                let at = PhyOffset(at.0 + same as u64);
                return Err(Ended::Diverged { at, agreed: self.agreed(at) });
            }
            known += len;
            self.next = PhyOffset(at.0 + len as u64);
        }
        Ok(known)
    }

    /// The end of the last record before `to` of those that were compared.
    fn agreed(&self, to: PhyOffset) -> Option<PhyOffset> {
        let end = self.slave.store.last_record_end(self.begin, to);
        (end > self.begin).then_some(end)
    }
}
