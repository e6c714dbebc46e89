//! The name servers, and which of them is asked first.

use std::sync::atomic::{AtomicUsize, Ordering};

use host::rand::Rng;

/// A shuffled list of name servers. One is asked as long as it answers; a question that it does not answer goes on to
/// the next. Source: `spec/client.md` 1.2.
#[derive(Debug)]
pub(crate) struct NameServers {
    addrs: Vec<String>,
    chosen: AtomicUsize,
}

impl NameServers {
    pub(crate) fn new(mut addrs: Vec<String>, rng: &mut Rng) -> NameServers {
        assert!(!addrs.is_empty(), "a configuration without a name server");
        for at in (1..addrs.len()).rev() {
            addrs.swap(at, rng.below(at as u64 + 1) as usize);
        }
        NameServers { addrs, chosen: AtomicUsize::new(0) }
    }

    /// All of them, once each, with their places; the one that answered last comes first.
    pub(crate) fn in_turn(&self) -> impl Iterator<Item = (usize, &str)> {
        let (first, count) = (self.chosen.load(Ordering::Relaxed), self.addrs.len());
        (first..first + count).map(move |at| (at % count, &*self.addrs[at % count]))
    }

    /// Notes which one answered.
    pub(crate) fn answered(&self, at: usize) {
        self.chosen.store(at, Ordering::Relaxed);
    }

    pub(crate) fn len(&self) -> usize {
        self.addrs.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_answered_is_asked_first_next_time() {
        let servers = NameServers { addrs: ["a:1", "b:1", "c:1"].map(str::to_owned).to_vec(), chosen: 0.into() };
        let order = || servers.in_turn().map(|(_, addr)| addr.to_owned()).collect::<Vec<_>>();
        assert_eq!(order(), ["a:1", "b:1", "c:1"]);
        servers.answered(1);
        assert_eq!(order(), ["b:1", "c:1", "a:1"]);
        assert_eq!(servers.len(), 3);
    }
}
