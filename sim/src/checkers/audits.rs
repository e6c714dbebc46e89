//! The checkers of the final disks.

use std::collections::BTreeSet;

use crate::history::{Event, History, NodeRef, SPOILS};

use super::Report;

/// `store_audit`: the files of a store were not sound at the end of the run, and no fault of the disk has spoilt the file
/// in question.
pub(super) fn store_audit(history: &History) -> Report {
    let mut report = Report::new("store-audit");
    let mut spoilt: BTreeSet<(NodeRef, &str)> = BTreeSet::new();
    for (index, record) in history.records.iter().enumerate() {
        let Some((node, _)) = record.node else { continue };
        match &record.event {
            Event::DiskError(kind, place) if SPOILS.contains(kind) => {
                let file = place.split_once('@').map_or(place.as_str(), |(file, _)| file);
                spoilt.insert((node, file));
            }
            Event::Audited { records, entries } => report.opportunities += records + entries,
            Event::Unsound(path, _, what) if !spoilt.contains(&(node, path.as_str())) => {
                report.violation(format!("{} holds {path}: {what}", history.node(node)), vec![index]);
            }
            _ => {}
        }
    }
    report
}

/// `replica_equal`: at the end the log of a slave differs from its master's where both have one.
pub(super) fn replica_equal(history: &History) -> Report {
    let mut report = Report::new("replica-equal");
    for (index, record) in history.records.iter().enumerate() {
        let Some((node, _)) = record.node else { continue };
        match &record.event {
            Event::Compared(bytes) => report.opportunities += u64::from(*bytes > 0),
            Event::Differs(from, what) => {
                let what = format!("the log of {} differs from byte {from} on: {what}", history.node(node));
                report.violation(what, vec![index]);
            }
            _ => {}
        }
    }
    report
}
