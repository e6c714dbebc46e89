//! How often things happened, and which states were reached.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    history::{Down, Event, History},
    scenario::COUNTS,
};

use super::facts::Facts;

/// Kinds of faults that keep everything back between some nodes.
const CUTS: [&str; 9] =
    ["cut", "flap", "isolate", "clog", "halves", "minority", "bridge", "ring-majorities", "swizzle"];

/// Counts by the names of [`COUNTS`], and marks.
pub(super) fn count(
    facts: &Facts<'_>,
    history: &History,
    legally_lost: u64,
) -> (BTreeMap<&'static str, u64>, BTreeSet<String>) {
    let mut counts: BTreeMap<&'static str, u64> = COUNTS.into_iter().map(|name| (name, 0)).collect();
    let mut marks = BTreeSet::new();
    counts.insert("legally-lost", legally_lost);
    for record in &history.records {
        for (name, by) in counted(&record.event) {
            *counts.get_mut(name).expect("only names of the list are counted") += by;
        }
        if let Event::Point(name, _) | Event::Reached(name) = record.event {
            marks.insert(name.to_owned());
        }
    }
    let mut redelivered = 0;
    let mut seen = BTreeSet::new();
    for delivery in &facts.all_deliveries {
        let group = super::facts::group_of(history.node(delivery.node));
        redelivered += u64::from(!seen.insert((group, delivery.message)));
    }
    counts.insert("redelivered", redelivered);
    let implied = [
        ("torn-page", "torn-pages"),
        ("pages-lost", "lost-pages"),
        ("garbage", "garbage-pages"),
        ("rebalance", "rebalances"),
        ("offset-recovered", "offsets-loaded"),
        ("legally-lost", "legally-lost"),
        ("redelivered", "redelivered"),
        ("retried-later", "retried-later"),
        ("truncated", "truncations"),
        ("files-deleted", "files-deleted"),
        ("disk-full", "disk-full"),
        ("refused", "refused"),
        ("send-info", "info"),
    ];
    let reached = implied.into_iter().filter(|(_, count)| counts[count] > 0).map(|(mark, _)| mark.to_owned());
    marks.extend(reached);
    (counts, marks)
}

/// What one record adds to the counts.
fn counted(event: &Event) -> Vec<(&'static str, u64)> {
    match event {
        Event::SendInvoke(..) => vec![("sent", 1)],
        Event::SendOk(..) => vec![("acked", 1)],
        Event::SendInfo(..) => vec![("info", 1)],
        Event::SendFail(..) => vec![("refused", 1)],
        Event::Deliver { .. } => vec![("delivered", 1)],
        Event::Ack(..) => vec![("finished", 1)],
        Event::Nack(..) => vec![("retried-later", 1)],
        Event::NodeDown(Down::Stop, _) => vec![("stops", 1)],
        Event::NodeDown(Down::Panic, _) => vec![("crashes", 1), ("panics", 1)],
        Event::NodeDown(..) => vec![("crashes", 1)],
        Event::DiskCrash { dirty, lost, torn } => {
            vec![("dirty-pages-at-crash", *dirty), ("lost-pages", *lost), ("torn-pages", *torn)]
        }
        Event::FaultBegin(_, "pause") => vec![("pauses", 1)],
        Event::FaultBegin(_, kind) if CUTS.contains(kind) => vec![("cuts", 1)],
        Event::FaultHit(_, what, count) => vec![(what, *count)],
        Event::DiskError(kind, _) => match *kind {
            "eio-read" => vec![("read-errors", 1)],
            "eio-write" => vec![("write-errors", 1)],
            "eio-flush" => vec![("flush-errors", 1)],
            "bit-rot" | "latent-sector" => vec![("damaged-pages", 1)],
            "lost-write" => vec![("lost-writes", 1)],
            "misdirected-write" => vec![("misdirected-writes", 1)],
            "lying-flush" => vec![("lying-flushes", 1)],
            "short-write" => vec![("short-writes", 1)],
            "disk-replaced" => vec![("disks-replaced", 1)],
            "restore-backup" => vec![("backups-restored", 1)],
            "disk-gone" => vec![("disks-gone", 1)],
            "short-read" => vec![("short-reads", 1)],
            "mlock-refused" => vec![("locks-refused", 1)],
            _ => Vec::new(),
        },
        Event::DeadLetter { .. } => vec![("dead-letters", 1)],
        Event::Recover(_) => vec![("recoveries", 1)],
        Event::Promoted => vec![("promotions", 1)],
        Event::Truncate(_) => vec![("truncations", 1)],
        Event::Delete(_) => vec![("files-deleted", 1)],
        Event::Assign(_) | Event::Revoke(_) => vec![("queues-moved", 1)],
        Event::Point("client.rebalanced", _) => vec![("rebalances", 1)],
        Event::Point("broker.offsets-loaded", entries) => {
            vec![("offsets-loaded", u64::try_from(*entries).unwrap_or(0))]
        }
        Event::Point("store.disk-full", _) => vec![("disk-full", 1)],
        _ => Vec::new(),
    }
}
