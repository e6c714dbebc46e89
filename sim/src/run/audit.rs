//! The audit of the stores at the end of a run.

use std::{io, ops::ControlFlow, path::Path};

use host::fs::DirEntry;
use message::Properties;
use store::audit::{AuditOptions, AuditSource, Content, audit, each_record};

use crate::{
    disk::SparseImage,
    history::{Event, MessageId},
    scenario::Kind,
    workload::ID_PROPERTY,
};

use super::cluster::{Cluster, STORE_PATH, broker_config, group_of};

/// The most that is told of one store: one damage may show in many places.
const TOLD_MAX: usize = 20;

/// The store that the image of a disk has in `/store`.
pub struct StoreFiles<'a>(pub &'a SparseImage);

impl AuditSource for StoreFiles<'_> {
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let dir = Path::new(STORE_PATH).join(dir);
        let entry = |path: &Path, is_dir| {
            let below = path.strip_prefix(&dir).ok().filter(|below| below.components().count() == 1)?;
            Some(DirEntry { name: below.to_str()?.to_owned(), is_dir })
        };
        let files = self.0.files.keys().filter_map(|path| entry(path, false));
        let mut entries: Vec<DirEntry> = files.chain(self.0.dirs.iter().filter_map(|path| entry(path, true))).collect();
        entries.sort();
        Ok(entries)
    }

    fn read(&self, file: &Path) -> io::Result<Content> {
        let file = self.0.files.get(&Path::new(STORE_PATH).join(file));
        let (bytes, len) = file.cloned().ok_or(io::ErrorKind::NotFound)?;
        Ok(Content { bytes, len })
    }
}

/// Audits the stores of all brokers that run. One that is down may hold what its next recovery would put in order.
pub(super) fn audit_all(cluster: &Cluster, converged: bool) {
    for node in cluster.of_kind(Kind::Broker).filter(|node| cluster.is_up(node)) {
        let Some(options) = options_of(cluster, &node) else { continue };
        let options = AuditOptions { dispatched: converged, ..options };
        let image = cluster.stand.disk(cluster.id(&node)).sparse_image();
        let found = audit(&StoreFiles(&image), &options).expect("an image is in memory");
        cluster.record(&node, |_| Event::Audited { records: found.records, entries: found.entries });
        dead_letters(cluster, &node, &StoreFiles(&image), &options.commit_log_dir);
        for finding in found.findings.into_iter().take(TOLD_MAX) {
            cluster.record(&node, |_| Event::Unsound(finding.path.display().to_string(), finding.at, finding.what));
        }
    }
}

/// How the store of a broker is to be looked at, by its settings.
fn options_of(cluster: &Cluster, node: &str) -> Option<AuditOptions> {
    let group = cluster.plan.scenario.broker(group_of(node))?;
    Some(AuditOptions::of(&broker_config(cluster, group, node).ok()?.store))
}

/// Compares the log of each slave that runs with its master's.
pub(super) fn compare_all(cluster: &Cluster) {
    let ends = cluster.recorder.with(super::replicas::ends);
    for (slave, master) in super::replicas::followers(cluster) {
        let Some(options) = options_of(cluster, &slave) else { continue };
        let end = |node: &String| ends.get(node).copied().unwrap_or(0);
        let [ours, theirs] = [&slave, &master].map(|node| cluster.stand.disk(cluster.id(node)).sparse_image());
        let end = end(&slave).min(end(&master));
        let (bytes, differs) = compare(&StoreFiles(&ours), &StoreFiles(&theirs), &options.commit_log_dir, end);
        cluster.record(&slave, |_| Event::Compared(bytes));
        if let Some((from, what)) = differs {
            cluster.record(&slave, |_| Event::Differs(from, what));
        }
    }
}

/// Compares two logs up to `end` where both have files: how many bytes that are, and the first that differs.
fn compare(ours: &StoreFiles<'_>, theirs: &StoreFiles<'_>, dir: &Path, end: u64) -> (u64, Option<(u64, String)>) {
    let (mut compared, mut differs) = (0, None);
    for entry in ours.list(dir).expect("an image is in memory") {
        let file = dir.join(&entry.name);
        let (Ok(base), Ok(our), Ok(their)) = (entry.name.parse::<u64>(), ours.read(&file), theirs.read(&file)) else {
            continue;
        };
        let len = our.len.min(their.len).min(end.saturating_sub(base));
        let byte = |content: &Content, at: u64| {
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            content.bytes.get(at).copied().unwrap_or(0)
        };
        compared += len;
        if let Some(at) = (0..len).find(|at| byte(&our, *at) != byte(&their, *at)) {
            let what = format!("{:#04x} where the master has {:#04x}", byte(&our, at), byte(&their, at));
            differs.get_or_insert((base + at, what));
        }
    }
    (compared, differs)
}

/// Records the dead letters in the log of a broker.
fn dead_letters(cluster: &Cluster, node: &str, files: &StoreFiles<'_>, commit_log_dir: &Path) {
    let show = |record: &message::RecordView<'_>, _: &Path, _: u64| {
        if let Some(group) = record.topic.strip_prefix(message::DLQ_PREFIX) {
            let message = Properties::find(record.properties, ID_PROPERTY).and_then(MessageId::parse);
            let (group, offset) = (group.to_owned(), record.queue_offset.0);
            cluster.record(node, |_| Event::DeadLetter { message, group, offset });
        }
        Ok(ControlFlow::Continue(()))
    };
    // What is damaged the audit has told.
    each_record(files, commit_log_dir, show, |_| {}).expect("an image is in memory");
}
