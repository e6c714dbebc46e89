//! What a put waits for before it is acknowledged: its own disk, and copies on slaves, both at the same time.

use std::{sync::Arc, time::Duration};

use message::PhyOffset;
use remoting::ResponseCode;
use store::{Durability, Flushed, Store};

use super::copies::{Copied, Copies, CopyWait};
use crate::{config::BrokerConfig, failure};

/// Starts the wait for puts, by the role and the settings of the broker.
pub(crate) struct Confirms {
    store: Arc<Store>,
    copies: Arc<Copies>,
    /// How many slaves must have a put.
    slaves: u32,
    timeout: Duration,
}

/// The wait for one put. It has begun.
pub(crate) struct Confirmation {
    flushed: Durability,
    copied: CopyWait,
}

impl Confirms {
    pub(crate) fn new(config: &BrokerConfig, store: &Arc<Store>, copies: &Arc<Copies>) -> Confirms {
        Confirms {
            store: Arc::clone(store),
            copies: Arc::clone(copies),
            slaves: config.replication.copies(config.role) - 1,
            timeout: config.replication.copy_timeout,
        }
    }

    /// Waits for everything before `end`.
    pub(crate) fn confirm(&self, end: PhyOffset) -> Confirmation {
        let flushed = self.store.durability(end);
        Confirmation { flushed, copied: self.copies.wait(end, self.slaves, self.timeout) }
    }
}

impl Confirmation {
    /// Whether there is nothing to wait for, and nothing went wrong.
    pub(crate) fn is_done(&self) -> bool {
        self.flushed.now() == Some(Flushed::Done) && self.copied.now() == Some(Copied::Done)
    }

    /// The code for a put that was stored with less than was asked for; that of the slaves counts more. `None` if all is
    /// there.
    pub(crate) async fn outcome(self) -> Option<ResponseCode> {
        let flushed = self.flushed.await;
        failure::copied(self.copied.outcome().await).or_else(|| failure::flushed(flushed))
    }
}
