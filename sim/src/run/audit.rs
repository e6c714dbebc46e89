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
        let Some(config) =
            cluster.plan.scenario.broker(group_of(&node)).and_then(|group| broker_config(cluster, group, &node).ok())
        else {
            continue;
        };
        let image = cluster.stand.disk(cluster.id(&node)).sparse_image();
        let mut options = AuditOptions { dispatched: converged, ..AuditOptions::default() };
        options.index_shape = Some((config.store.index_slots, config.store.index_entries));
        options.delay_levels = config.store.delay_levels;
        options.commit_log_dir = config.store.commit_log_dir.unwrap_or(options.commit_log_dir);
        let found = audit(&StoreFiles(&image), &options).expect("an image is in memory");
        cluster.record(&node, |_| Event::Audited { records: found.records, entries: found.entries });
        dead_letters(cluster, &node, &StoreFiles(&image), &options.commit_log_dir);
        for finding in found.findings.into_iter().take(TOLD_MAX) {
            cluster.record(&node, |_| Event::Unsound(finding.path.display().to_string(), finding.at, finding.what));
        }
    }
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
