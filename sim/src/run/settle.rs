//! Whether a cluster with nothing left to do is at rest: no task spins, nothing grows, and nobody has more connections
//! than he needs (`spec/simulation.md` 5.6).

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::stand::{OpenStream, Stand};

use super::cluster::{Cluster, PROBE};

/// How many looks in a row show whether something grows.
const LOOKS: usize = 3;

/// More polls of one node in a second, while there is nothing to do, are a task that spins.
const POLLS_PER_SECOND_MAX: u64 = 5_000;

/// The last looks at a cluster.
#[derive(Default)]
pub(super) struct Rest {
    looks: VecDeque<Look>,
}

/// Figures of one moment.
struct Look {
    at: Duration,
    /// Polls so far, by node.
    polls: BTreeMap<String, u64>,
    /// What must not grow, by what messages call it.
    sizes: BTreeMap<String, u64>,
    /// More than one connection from a process to a service.
    doubled: Vec<String>,
}

impl Rest {
    /// Something is left to do: what grows now may well grow.
    pub fn forget(&mut self) {
        self.looks.clear();
    }

    /// Takes a look, and tells what is not at rest, and what grows.
    pub fn look(&mut self, cluster: &Cluster) -> (Vec<String>, Vec<String>) {
        self.looks.push_back(Look::take(cluster));
        if self.looks.len() < LOOKS {
            return (vec!["the cluster has only just come to rest".to_owned()], Vec::new());
        }
        if self.looks.len() > LOOKS {
            self.looks.pop_front();
        }
        let (before, last) = (&self.looks[LOOKS - 2], &self.looks[LOOKS - 1]);
        let mut grown = last.doubled.clone();
        grown.extend(growing(&self.looks));
        (spinning(before, last), grown)
    }
}

impl Look {
    fn take(cluster: &Cluster) -> Look {
        let stand = &cluster.stand;
        let streams = stand.open_streams();
        let mut sizes = BTreeMap::from([
            ("open connections".to_owned(), streams.len() as u64),
            ("bytes on their way".to_owned(), streams.iter().map(|stream| stream.buffered).sum()),
        ]);
        let mut polls = BTreeMap::new();
        for (name, id) in cluster.ids() {
            sizes.insert(format!("tasks of {name}"), stand.tasks(*id) as u64);
            polls.insert(name.clone(), stand.polls(*id));
        }
        Look { at: stand.now(), polls, sizes, doubled: doubled(stand, &streams) }
    }
}

/// Processes with more than one connection to the same service. The stand's own client has one for each question.
fn doubled(stand: &Stand, streams: &[OpenStream]) -> Vec<String> {
    let mut counts = BTreeMap::new();
    for stream in streams {
        *counts.entry((stream.client, stream.server, stream.port)).or_insert(0_u32) += 1;
    }
    let several = counts.into_iter().filter(|((client, ..), count)| *count > 1 && &*stand.name(*client) != PROBE);
    several
        .map(|((client, server, port), count)| {
            let (client, server) = (stand.name(client), stand.name(server));
            format!("{client} has {count} connections to port {port} of {server}")
        })
        .collect()
}

fn spinning(before: &Look, last: &Look) -> Vec<String> {
    let millis = u64::try_from((last.at - before.at).as_millis()).unwrap_or(u64::MAX).max(1);
    let rate = |node: &String, polls: &u64| (polls - before.polls.get(node).copied().unwrap_or(0)) * 1000 / millis;
    let rates = last.polls.iter().map(|(node, polls)| (node, rate(node, polls)));
    rates
        .filter(|(_, rate)| *rate > POLLS_PER_SECOND_MAX)
        .map(|(node, rate)| format!("{node} polls tasks {rate} times a second with nothing to do"))
        .collect()
}

fn growing(looks: &VecDeque<Look>) -> Vec<String> {
    let series = |what: &str| looks.iter().map(|look| look.sizes.get(what).copied().unwrap_or(0)).collect::<Vec<_>>();
    let names = looks.back().into_iter().flat_map(|look| look.sizes.keys());
    names
        .map(|what| (what, series(what)))
        .filter(|(_, series)| series.windows(2).all(|pair| pair[0] < pair[1]))
        .map(|(what, series)| format!("{what} grow: {series:?}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at: u64, polls: u64, tasks: u64) -> Look {
        Look {
            at: Duration::from_secs(at),
            polls: BTreeMap::from([("broker-a/0".to_owned(), polls)]),
            sizes: BTreeMap::from([("tasks of broker-a/0".to_owned(), tasks)]),
            doubled: Vec::new(),
        }
    }

    #[test]
    fn what_grows_in_every_look_is_named() {
        let looks = |sizes: [u64; 3]| (0..3).map(|at| look(at, 0, sizes[at as usize])).collect();
        assert_eq!(growing(&looks([3, 4, 5])), ["tasks of broker-a/0 grow: [3, 4, 5]"]);
        assert!(growing(&looks([3, 5, 5])).is_empty());
        assert!(growing(&looks([3, 4, 3])).is_empty());
    }

    #[test]
    fn a_node_that_spins_is_named() {
        let told = spinning(&look(1, 1_000, 0), &look(3, 13_000, 0));
        assert_eq!(told, ["broker-a/0 polls tasks 6000 times a second with nothing to do"]);
        assert!(spinning(&look(1, 1_000, 0), &look(3, 11_000, 0)).is_empty());
    }
}
