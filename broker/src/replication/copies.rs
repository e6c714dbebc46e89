//! What a master knows of its slaves, and who waits for them.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, SocketAddr},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use host::{Host, time::Mono};
use message::PhyOffset;
use tokio::sync::oneshot;

/// Several connections of one address are several slaves if each has reported this recently. Source: `spec/replication.md`
/// HO02.
const FRESH: Duration = Duration::from_secs(2);

/// A connection by the order in which they were accepted.
pub(crate) type LinkId = u64;

/// The connections of all slaves with what each has reported, and the puts that wait for reports.
pub(crate) struct Copies {
    host: Host,
    /// A connection that has not reported for longer does not count.
    alive_for: Duration,
    /// Leaf lock.
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    last: LinkId,
    links: BTreeMap<LinkId, Link>,
    /// In the order of their deadlines.
    waiters: VecDeque<Waiter>,
}

struct Link {
    from: SocketAddr,
    /// What it reported last, and when.
    report: Option<(PhyOffset, Mono)>,
    /// What it was sent.
    sent: PhyOffset,
}

struct Waiter {
    end: PhyOffset,
    slaves: u32,
    tell: oneshot::Sender<()>,
}

/// What a report may be: the ends of the master's log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogBounds {
    pub(crate) min: PhyOffset,
    pub(crate) max: PhyOffset,
}

/// Why a report does not count. Its connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadReport {
    #[error("it reports {report}, beyond the end of this log at {max}")]
    AboveMax { report: PhyOffset, max: PhyOffset },
    #[error("it reports {report}, before the start of this log at {min}")]
    BelowMin { report: PhyOffset, min: PhyOffset },
    #[error("it reports {report} after {last}")]
    Back { report: PhyOffset, last: PhyOffset },
}

/// One slave as its master sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// The address it connected from.
    pub from: SocketAddr,
    /// Up to where it has the log; `None` before its first report.
    pub copied: Option<PhyOffset>,
    /// Up to where it was sent the log.
    pub sent: PhyOffset,
    /// Whether its reports count: the last one is not too old.
    pub is_alive: bool,
}

/// How waiting for copies ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copied {
    /// There are as many as are wanted.
    Done,
    /// There were not as many in time.
    TimedOut,
    /// There is no slave.
    NoSlave,
}

/// Waits for copies.
pub(crate) enum CopyWait {
    Known(Copied),
    Waiting { host: Host, told: oneshot::Receiver<()>, deadline: Mono },
}

impl CopyWait {
    /// The outcome, if there is nothing to wait for.
    pub(crate) fn now(&self) -> Option<Copied> {
        match self {
            CopyWait::Known(copied) => Some(*copied),
            CopyWait::Waiting { .. } => None,
        }
    }

    pub(crate) async fn outcome(self) -> Copied {
        match self {
            CopyWait::Known(copied) => copied,
            CopyWait::Waiting { host, told, deadline } => {
                host::select! {
                    told = told => if told.is_ok() { Copied::Done } else { Copied::TimedOut },
                    () = host.sleep_until(deadline) => Copied::TimedOut,
                }
            }
        }
    }
}

impl Copies {
    pub(crate) fn new(host: &Host, heartbeat_interval: Duration) -> Copies {
        Copies { host: host.clone(), alive_for: heartbeat_interval * 2, inner: Mutex::default() }
    }

    pub(crate) fn connected(&self, from: SocketAddr) -> LinkId {
        let mut inner = self.lock();
        inner.last += 1;
        let id = inner.last;
        inner.links.insert(id, Link { from, report: None, sent: PhyOffset(0) });
        id
    }

    pub(crate) fn disconnected(&self, id: LinkId) {
        self.lock().links.remove(&id);
    }

    pub(crate) fn sent(&self, id: LinkId, to: PhyOffset) {
        if let Some(link) = self.lock().links.get_mut(&id) {
            link.sent = to;
        }
    }

    /// Takes a report, and tells those whose wait it ends.
    ///
    /// # Errors
    /// The slave cannot have what it says, or can be of no use (HO01, HO08). Then it counts for nothing.
    pub(crate) fn report(&self, id: LinkId, report: PhyOffset, bounds: LogBounds) -> Result<(), BadReport> {
        let now = self.host.now();
        let told = {
            let mut inner = self.lock();
            let Some(link) = inner.links.get_mut(&id) else { return Ok(()) };
            let last = link.report.map(|(last, _)| last);
            if let Err(bad) = check(report, last, bounds) {
                link.report = None;
                return Err(bad);
            }
            link.report = Some((report, now));
            inner.take_satisfied(now, self.alive_for)
        };
        for waiter in told {
            // Whoever has stopped waiting does not need to know.
            let _ = waiter.tell.send(());
        }
        Ok(())
    }

    /// Waits until `slaves` of them have everything before `end`, at most `timeout`.
    pub(crate) fn wait(&self, end: PhyOffset, slaves: u32, timeout: Duration) -> CopyWait {
        if slaves == 0 || host::mutant!("ack-before-copied") {
            return CopyWait::Known(Copied::Done);
        }
        let now = self.host.now();
        let (tell, told) = oneshot::channel();
        {
            let mut inner = self.lock();
            // Under the lock: a report that comes now finds the waiter, or was counted.
            if inner.count(end, now, self.alive_for) >= slaves {
                return CopyWait::Known(Copied::Done);
            }
            if !inner.links.values().any(|link| link.is_alive(now, self.alive_for)) {
                return CopyWait::Known(Copied::NoSlave);
            }
            while inner.waiters.pop_front_if(|waiter| waiter.tell.is_closed()).is_some() {}
            inner.waiters.push_back(Waiter { end, slaves, tell });
        }
        CopyWait::Waiting { host: self.host.clone(), told, deadline: now + timeout }
    }

    /// All slaves, in the order in which they connected.
    pub(crate) fn status(&self) -> Vec<Replica> {
        let now = self.host.now();
        let status = |link: &Link| Replica {
            from: link.from,
            copied: link.report.map(|(copied, _)| copied),
            sent: link.sent,
            is_alive: link.is_alive(now, self.alive_for),
        };
        self.lock().links.values().map(status).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A slave without anything reports 0 until it has got something.
fn check(report: PhyOffset, last: Option<PhyOffset>, LogBounds { min, max }: LogBounds) -> Result<(), BadReport> {
    if report > max && !super::believes_all() {
        return Err(BadReport::AboveMax { report, max });
    }
    if let Some(last) = last.filter(|last| report < *last) {
        return Err(BadReport::Back { report, last });
    }
    if report < min && report.0 > 0 {
        return Err(BadReport::BelowMin { report, min });
    }
    Ok(())
}

impl Link {
    fn is_alive(&self, now: Mono, alive_for: Duration) -> bool {
        self.report.is_some_and(|(_, at)| now.since(at) < alive_for)
    }
}

impl Inner {
    /// How many slaves have everything before `end`.
    fn count(&self, end: PhyOffset, now: Mono, alive_for: Duration) -> u32 {
        #[derive(Default)]
        struct OfAddress {
            fresh: u32,
            fresh_with: u32,
            with: u32,
        }
        let mut addresses: BTreeMap<IpAddr, OfAddress> = BTreeMap::new();
        for link in self.links.values().filter(|link| link.is_alive(now, alive_for)) {
            let of = addresses.entry(link.from.ip()).or_default();
            let Some((copied, at)) = link.report else { continue };
            let (has, is_fresh) = (u32::from(copied >= end), u32::from(now.since(at) < FRESH));
            of.fresh += is_fresh;
            of.fresh_with += has * is_fresh;
            of.with += has;
        }
        addresses.values().map(|of| if of.fresh > 1 { of.fresh_with.max(of.with.min(1)) } else { of.with.min(1) }).sum()
    }

    fn take_satisfied(&mut self, now: Mono, alive_for: Duration) -> Vec<Waiter> {
        let waiters = std::mem::take(&mut self.waiters);
        let (told, left): (VecDeque<Waiter>, VecDeque<Waiter>) = waiters
            .into_iter()
            .filter(|waiter| !waiter.tell.is_closed())
            .partition(|waiter| self.count(waiter.end, now, alive_for) >= waiter.slaves);
        self.waiters = left;
        Vec::from(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEARTBEAT: Duration = Duration::from_millis(200);

    fn phy(at: u64) -> PhyOffset {
        PhyOffset(at)
    }

    fn bounds(min: u64, max: u64) -> LogBounds {
        LogBounds { min: phy(min), max: phy(max) }
    }

    /// Runs a test on a node with a table of slaves.
    fn on_node<F: Future<Output = ()> + Send + 'static>(test: impl FnOnce(Host, Copies) -> F) {
        host::real::run("test", |host| test(host.clone(), Copies::new(&host, HEARTBEAT))).unwrap();
    }

    #[test]
    fn ho01_reports_outside_of_the_log_or_backwards_count_for_nothing() {
        on_node(|_, copies| async move {
            let link = copies.connected("10.0.0.2:1".parse().unwrap());
            let report = |at: u64| copies.report(link, phy(at), bounds(100, 200));
            assert_eq!(report(0), Ok(()), "a slave without anything");
            assert_eq!(report(0), Ok(()), "which still has nothing");
            assert_eq!(report(99), Err(BadReport::BelowMin { report: phy(99), min: phy(100) }));
            assert_eq!(report(150), Ok(()));
            assert_eq!(report(201), Err(BadReport::AboveMax { report: phy(201), max: phy(200) }));
            assert_eq!(copies.wait(phy(150), 1, HEARTBEAT).now(), Some(Copied::NoSlave), "nothing counts any more");
            assert_eq!(report(150), Ok(()));
            assert_eq!(report(149), Err(BadReport::Back { report: phy(149), last: phy(150) }));
        });
    }

    #[test]
    fn puts_are_told_as_soon_as_enough_slaves_have_them() {
        on_node(|_, copies| async move {
            let links = ["10.0.0.2:1", "10.0.0.3:1"].map(|from| copies.connected(from.parse().unwrap()));
            assert_eq!(copies.wait(phy(10), 1, HEARTBEAT).now(), Some(Copied::NoSlave));
            for link in links {
                copies.report(link, phy(10), bounds(0, 30)).unwrap();
            }
            assert_eq!(copies.wait(phy(10), 2, HEARTBEAT).now(), Some(Copied::Done));
            let [one, two, late] =
                [(20, 1), (20, 2), (25, 2)].map(|(end, slaves)| copies.wait(phy(end), slaves, HEARTBEAT));
            assert_eq!((one.now(), two.now()), (None, None));
            copies.report(links[0], phy(30), bounds(0, 30)).unwrap();
            assert_eq!(one.outcome().await, Copied::Done);
            copies.report(links[1], phy(24), bounds(0, 30)).unwrap();
            assert_eq!(two.outcome().await, Copied::Done);
            assert_eq!(late.outcome().await, Copied::TimedOut);
            assert_eq!(copies.status().iter().filter(|replica| replica.copied == Some(phy(24))).count(), 1);
        });
    }

    #[test]
    fn ho02_slave_that_has_not_reported_for_two_heartbeats_does_not_count() {
        on_node(|host, copies| async move {
            let link = copies.connected("10.0.0.2:1".parse().unwrap());
            copies.report(link, phy(10), bounds(0, 10)).unwrap();
            assert_eq!(copies.wait(phy(10), 1, HEARTBEAT).now(), Some(Copied::Done));
            host.sleep(HEARTBEAT * 2).await;
            assert_eq!(copies.wait(phy(10), 1, HEARTBEAT).now(), Some(Copied::NoSlave));
            copies.disconnected(link);
            assert!(copies.status().is_empty());
        });
    }
}
