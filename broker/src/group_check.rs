//! What a master finds out about its group before it serves.
//!
//! A master that comes back may not be the master any more, and its slaves may know more than it does: offsets that
//! groups committed to them meanwhile, and messages that its own disk lost. Nobody else would tell it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use host::Host;
use remoting::{
    Client, InvokeError, NoHeader, Request, Response,
    body::{Body, ClusterInfo, ConsumerOffsetTable, HaRuntimeInfo},
};
use store::Store;
use tracing::{info, warn};

use crate::{config::BrokerConfig, offsets::ConsumerOffsets};

/// How long a name server or another broker may take for one answer. Whoever is silent for so long is taken as absent.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A live broker that is the master of the group already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rival {
    /// Where it answers.
    pub(crate) address: String,
}

/// The questions of a master that starts.
pub(crate) struct GroupCheck {
    pub(crate) host: Host,
    pub(crate) config: Arc<BrokerConfig>,
    pub(crate) store: Arc<Store>,
    pub(crate) offsets: Arc<ConsumerOffsets>,
    pub(crate) client: Client,
}

impl GroupCheck {
    /// Asks the name servers who is in the group, then those who are. Takes over what the slaves know of consumers, and
    /// tells of slaves that have more of the log. `own` is the address of this broker, if it is known yet.
    ///
    /// A name server or broker that does not answer keeps nobody from starting.
    ///
    /// # Errors
    /// Another broker lives that is registered as the master. Source: `spec/replication.md` 7, rows 25 and 26.
    pub(crate) async fn run(self, own: &str) -> Result<(), Rival> {
        let members = self.members().await;
        let rival = self.rival(&members, own).await;
        if rival.is_none() {
            for (id, address) in members.iter().filter(|(id, _)| *id > 0) {
                self.compare_log(*id, address).await;
                self.take_offsets(address).await;
            }
        }
        self.client.shutdown().await;
        rival.map_or(Ok(()), Err)
    }

    /// Whoever is registered as the master at another address, answers, and does not say that it is none.
    async fn rival(&self, members: &BTreeSet<(i64, String)>, own: &str) -> Option<Rival> {
        for (_, address) in members.iter().filter(|(id, address)| *id == 0 && address != own) {
            let Ok(answer) = self.ask(address, Request::GetBrokerHaStatus(NoHeader)).await else {
                info!(address, "the broker that is registered as the master does not answer");
                continue;
            };
            // One of 4.x does not know the question.
            let status = HaRuntimeInfo::decode(&answer.body_bytes());
            if !answer.code.is_success() || status.is_ok_and(|status| status.master) {
                return Some(Rival { address: address.clone() });
            }
        }
        None
    }

    /// The members of the group by id, as all name servers together know them.
    async fn members(&self) -> BTreeSet<(i64, String)> {
        let mut asked = Vec::new();
        for namesrv in self.config.namesrv.clone() {
            let client = self.client.clone();
            asked.push(self.host.spawn("broker.ask-name-server", async move {
                let request = Request::GetBrokerClusterInfo(NoHeader);
                client.invoke(&namesrv, request, Bytes::new(), TIMEOUT).await
            }));
        }
        let mut members = BTreeSet::new();
        for answer in asked {
            // A panic has stopped the node already.
            let Ok(Ok(answer)) = answer.await else { continue };
            let Ok(mut info) = ClusterInfo::decode(&answer.body_bytes()) else { continue };
            let group = info.broker_addr_table.remove(&self.config.name);
            members.extend(group.into_iter().flat_map(|group| group.broker_addrs));
        }
        members
    }

    /// Tells of a slave that has bytes which this master lacks: its power failed, or its disk is an older one.
    ///
    /// The state of replication (907) says where the slave's log ends. Every broker of 5.x answers it and changes nothing
    /// by it, other than an exchange of addresses (906).
    async fn compare_log(&self, id: i64, address: &str) {
        let Ok(answer) = self.ask(address, Request::GetBrokerHaStatus(NoHeader)).await else { return };
        let Ok(status) = HaRuntimeInfo::decode(&answer.body_bytes()) else { return };
        let (theirs, ours) = (status.ha_client_runtime_info.max_offset, self.store.max_phy().0);
        let more_bytes = u64::try_from(theirs).unwrap_or(0).saturating_sub(ours);
        if more_bytes > 0 {
            warn!(
                id,
                address,
                more_bytes,
                end = ours,
                "a slave has more of the log than this master, which lost its end"
            );
            host::point!("broker.slave-ahead", more_bytes);
        }
    }

    /// Takes over the offsets that groups committed to a slave while there was no master, as far as they are larger, and
    /// no further than the queues reach here. Source: `spec/replication.md` HO11.
    async fn take_offsets(&self, address: &str) {
        let Ok(answer) = self.ask(address, Request::GetAllConsumerOffset(NoHeader)).await else { return };
        let Ok(table) = ConsumerOffsetTable::decode(&answer.body_bytes()) else { return };
        let end = |topic: &str, queue| self.store.max_offset(topic, queue);
        let raised = self.offsets.take_alone(table, self.host.wall_ms(), end);
        if raised > 0 {
            info!(address, raised, "offsets that were committed to a slave meanwhile are taken over");
        }
    }

    async fn ask(&self, address: &str, request: Request) -> Result<Response, InvokeError> {
        self.client.invoke(address, request, Bytes::new(), TIMEOUT).await
    }
}
