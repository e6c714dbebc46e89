//! Whether messages are found by their ids, where index files were lost.

use std::{collections::BTreeSet, net::SocketAddr};

use client::Admin;
use message::{OffsetMessageId, PhyOffset};

use super::cluster::{Cluster, group_of};
use crate::{
    history::{Event, Queue},
    scenario::{FaultKind, Port},
};

/// Most messages with one id that are looked at: a producer may have stored one twice.
const COPIES_MAX: u32 = 32;

/// What was found already.
#[derive(Debug, Default)]
pub(super) struct Search {
    found: BTreeSet<(Queue, u64)>,
}

impl Search {
    /// Asks the brokers that lost index files for each acknowledged message that they still have, by its unique id. Tells
    /// what is not found.
    pub(super) async fn look(&mut self, cluster: &Cluster, admin: &Admin) -> Vec<String> {
        let faults = cluster.plan.scenario.faults.iter();
        let lost_from = faults.filter_map(|fault| match &fault.kind {
            FaultKind::FilesLost { node, path } if path.starts_with("index/") => Some(group_of(node)),
            _ => None,
        });
        let brokers: BTreeSet<&str> = lost_from.collect();
        let mut pending = Vec::new();
        for (queue, phy) in acknowledged(cluster, &brokers) {
            if self.found.contains(&(queue.clone(), phy)) {
                continue;
            }
            let addr: SocketAddr =
                cluster.address(&format!("{}/0", queue.broker), Port::Client).parse().expect("nodes have addresses");
            let place = OffsetMessageId { store_host: addr, phy: PhyOffset(phy) };
            // Whether it must still be there is for the checkers to say.
            let Ok(stored) = admin.view_message(&queue.topic, &place.to_string()).await else { continue };
            let id = stored.message.unique_id().unwrap_or_default();
            match admin.query_message(&queue.topic, id, COPIES_MAX).await {
                Ok(messages) if messages.iter().any(|one| one.phy.0 == phy && one.store_host == addr) => {
                    self.found.insert((queue, phy));
                }
                Ok(messages) => {
                    pending
                        .push(format!("the message at {phy} of {queue} is not among the {} of its id", messages.len()));
                }
                Err(error) => pending.push(format!("a search at {queue}: {error}")),
            }
        }
        pending
    }
}

/// Queues and places of the messages that these brokers have acknowledged.
fn acknowledged(cluster: &Cluster, brokers: &BTreeSet<&str>) -> Vec<(Queue, u64)> {
    if brokers.is_empty() {
        return Vec::new();
    }
    cluster.recorder.with(|history| {
        let sent = history.records.iter().filter_map(|record| match &record.event {
            Event::SendOk(_, queue, _, Some(phy)) => Some((history.queue(*queue).clone(), *phy)),
            _ => None,
        });
        sent.filter(|(queue, _)| brokers.contains(queue.broker.as_str())).collect()
    })
}
