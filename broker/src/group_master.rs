//! Where the master of a slave's group is, as the name servers say.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use tokio::sync::watch;
use tracing::info;

/// The master of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Master {
    /// Where it answers requests, `host:port`.
    pub(crate) address: String,
    /// Where it serves replicas, `host:port`, if it says so.
    pub(crate) replication: Option<String>,
}

/// What a slave knows of its master. Every registration of the slave brings one name server's word; the copy of the log
/// and the copy of the tables follow it.
///
/// A name server names the master only while that is registered with it. With several, the latest that names one is
/// believed; while none can be reached, the last word counts.
#[derive(Debug)]
pub(crate) struct GroupMaster {
    /// The replication port to use whatever name servers say (`haMasterAddress`).
    fixed: Option<String>,
    /// Leaf lock: nothing else is locked while it is held.
    told: Mutex<Told>,
    master: watch::Sender<Option<Master>>,
    replication: watch::Sender<Option<String>>,
}

#[derive(Debug, Default)]
struct Told {
    /// The last word of each name server that answered last time, with its turn.
    words: BTreeMap<String, (u64, Option<Master>)>,
    turn: u64,
}

impl GroupMaster {
    pub(crate) fn new(fixed: Option<String>) -> GroupMaster {
        GroupMaster {
            told: Mutex::default(),
            master: watch::Sender::new(None),
            replication: watch::Sender::new(fixed.clone()),
            fixed,
        }
    }

    /// The master as it changes.
    pub(crate) fn watch(&self) -> watch::Receiver<Option<Master>> {
        self.master.subscribe()
    }

    /// Whether there is a master.
    pub(crate) fn is_known(&self) -> bool {
        self.master.borrow().is_some()
    }

    /// Where the master serves replicas, as far as known.
    pub(crate) fn watch_replication(&self) -> watch::Receiver<Option<String>> {
        self.replication.subscribe()
    }

    /// A name server answered.
    pub(crate) fn told(&self, namesrv: &str, master: Option<Master>) {
        self.change(|told| {
            told.turn += 1;
            told.words.insert(namesrv.to_owned(), (told.turn, master));
        });
    }

    /// A name server did not answer.
    pub(crate) fn unreachable(&self, namesrv: &str) {
        self.change(|told| {
            told.words.remove(namesrv);
        });
    }

    fn change(&self, change: impl FnOnce(&mut Told)) {
        let now = {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut told);
            if told.words.is_empty() {
                return;
            }
            let named = told.words.values().filter_map(|(turn, master)| Some((turn, master.as_ref()?)));
            named.max_by_key(|(turn, _)| **turn).map(|(_, master)| master.clone())
        };
        let replication = self.fixed.clone().or_else(|| now.as_ref().and_then(|master| master.replication.clone()));
        let is_new = |known: &mut Option<Master>| {
            let is_new = *known != now;
            known.clone_from(&now);
            is_new
        };
        if self.master.send_if_modified(is_new) {
            info!(master = now.as_ref().map(|master| &*master.address), "the master of the group changed");
            host::point!("broker.master-changed", usize::from(now.is_some()));
        }
        self.replication.send_if_modified(|known| {
            let is_new = *known != replication;
            *known = replication;
            is_new
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn master(name: &str) -> Option<Master> {
        Some(Master { address: format!("{name}:1"), replication: Some(format!("{name}:2")) })
    }

    #[test]
    fn latest_name_server_that_names_a_master_is_believed() {
        let known = GroupMaster::new(None);
        assert!(!known.is_known());
        known.told("n1", master("a"));
        known.told("n2", None);
        assert_eq!(*known.master.borrow(), master("a"), "n2 lost it, n1 has it");
        known.told("n2", master("b"));
        assert_eq!(*known.master.borrow(), master("b"));
        known.told("n2", None);
        assert_eq!(*known.master.borrow(), master("a"));
        known.told("n1", None);
        assert_eq!(*known.master.borrow(), None);
    }

    #[test]
    fn last_word_counts_while_no_name_server_answers() {
        let known = GroupMaster::new(None);
        known.told("n1", master("a"));
        known.told("n2", None);
        known.unreachable("n1");
        assert_eq!(*known.master.borrow(), None, "who can be reached knows of none");
        known.told("n1", master("a"));
        known.unreachable("n2");
        known.unreachable("n1");
        assert_eq!(*known.master.borrow(), master("a"));
    }

    #[test]
    fn fixed_address_is_used_before_and_against_any_word() {
        let known = GroupMaster::new(Some("fixed:9".to_owned()));
        let mut replication = known.replication.subscribe();
        assert_eq!(replication.borrow_and_update().as_deref(), Some("fixed:9"));
        known.told("n1", master("a"));
        assert_eq!(*known.master.borrow(), master("a"));
        assert!(!replication.has_changed().unwrap());
        let free = GroupMaster::new(None);
        let mut replication = free.replication.subscribe();
        free.told("n1", master("a"));
        assert_eq!(replication.borrow_and_update().as_deref(), Some("a:2"));
        free.told("n1", None);
        assert_eq!(*replication.borrow_and_update(), None);
    }
}
