//! The checkpoint of a store at rest.
//!
//! It may be missing, empty or zeros: then the next start reads the whole log. It may lag behind log and queues. It may
//! not lead them, or that start would begin too late. Source: `spec/store.md` 4.6.

use std::{io, path::PathBuf};

use crate::checkpoint::{BASE_BYTES, Base, FILE_BYTES, Found, Known, SLOT_BYTES, SLOTS_AT, Slot, decode, slot_at};

use super::{AuditSource, Extent, Finding, Finds};

/// The file, below the root.
const CHECKPOINT: &str = "checkpoint";

/// What the log shows.
pub(super) struct Shown<'a> {
    pub(super) extent: &'a Extent,
    pub(super) is_clean: bool,
    /// The latest store time of a record; `None` without any.
    pub(super) newest_ms: Option<i64>,
}

/// Compares the checkpoint with the log.
pub(super) fn check(source: &impl AuditSource, shown: &Shown<'_>, finds: &mut Finds) -> io::Result<()> {
    if !source.list("".as_ref())?.iter().any(|entry| entry.name == CHECKPOINT && !entry.is_dir) {
        return Ok(());
    }
    let content = source.read(CHECKPOINT.as_ref())?;
    if content.len != FILE_BYTES {
        // Its length is metadata of its own: a loss of power may leave it empty.
        if content.len > 0 || shown.is_clean {
            let what = format!("{} bytes long, not {FILE_BYTES}", content.len);
            finds.add(Finding::of_file(PathBuf::from(CHECKPOINT), what));
        }
        return Ok(());
    }
    let mut page = content.bytes.to_vec();
    page.resize(FILE_BYTES as usize, 0);
    let mut add = |at: u64, what: String| {
        finds.add(Finding { path: PathBuf::from(CHECKPOINT), at: Some(at), what });
    };
    check_page(&page, &mut add);
    let (_, Found { base, known }) = decode(&page);
    check_times(base, shown.newest_ms, &mut add);
    if let Some(known) = known {
        check_known(known, shown, &mut add);
    }
    Ok(())
}

/// Slots are whole or were never written, and nothing stands between them.
fn check_page(page: &[u8], add: &mut impl FnMut(u64, String)) {
    for at in SLOTS_AT {
        if matches!(slot_at(page, at), Slot::Damaged) {
            add(at, "a slot that is neither whole nor empty".to_owned());
        }
    }
    let is_used = |at: usize| {
        at < BASE_BYTES || SLOTS_AT.iter().any(|slot| (*slot as usize..*slot as usize + SLOT_BYTES).contains(&at))
    };
    if let Some(at) = (0..page.len()).find(|&at| page[at] != 0 && !is_used(at)) {
        add(at as u64, "bytes where nothing belongs".to_owned());
    }
}

/// Each time is that of a message.
fn check_times(base: Base, newest_ms: Option<i64>, add: &mut impl FnMut(u64, String)) {
    let times = [("log", base.physic_ms), ("queues", base.logics_ms), ("index", base.index_ms)];
    for (at, (what, time_ms)) in (0..).step_by(8).zip(times) {
        if time_ms < 0 {
            add(at, format!("the time of the {what} is {time_ms}"));
        } else if let Some(newest_ms) = newest_ms.filter(|newest_ms| time_ms > *newest_ms) {
            add(at, format!("the time of the {what} is {time_ms}, the newest message is of {newest_ms}"));
        }
    }
    // Positions of replication; -1 if there is none.
    for (at, what, phy) in [(24, "flushed by the master", base.master_flushed), (32, "confirmed", base.confirm_phy)] {
        if phy < -1 {
            add(at, format!("the position that is {what} is {phy}"));
        }
    }
}

/// What was on disk is still there.
fn check_known(known: Known, shown: &Shown<'_>, add: &mut impl FnMut(u64, String)) {
    let end = shown.extent.end;
    if known.flushed > end {
        add(0, format!("the log was on disk up to {}, it ends at {end}", known.flushed));
    } else if known.clean && shown.is_clean && known.flushed < end {
        add(0, format!("the log was closed at {}, it ends at {end}", known.flushed));
    }
}
