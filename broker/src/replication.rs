//! How a group of brokers keeps copies of one log.
//!
//! Classic master and slave: the slave connects to the port behind the master's own, says which byte it wants next, and
//! the master sends its log from there on. The bytes on the wire are those of the reference, in both directions; what
//! goes beyond it is in what both sides believe (HO01 to HO10 of `spec/replication.md` 2.9, see `docs/replication.md`).
//!
//! A slow or lost slave never holds back a put that does not wait for copies: it only lags.

mod confirm;
mod copies;
mod first_file;
mod link;
mod master;
mod pace;
mod slave;
mod wire;

pub(crate) use confirm::{Confirmation, Confirms};
pub(crate) use copies::Copied;
pub use copies::Replica;
pub use slave::SlaveState;

use std::{net::SocketAddr, sync::Arc};

use host::{Host, worker::Worker};
use message::PhyOffset;
use remoting::ListenError;
use store::Store;

use crate::{config::BrokerConfig, group_master::GroupMaster};
use copies::Copies;
use master::Master;
use slave::{Slave, SlaveStatus};

/// What a broker knows of the others of its group.
pub(crate) struct Replicas {
    /// Whom a slave follows.
    pub(crate) master: Arc<GroupMaster>,
    /// What a put waits for.
    pub(crate) confirms: Arc<Confirms>,
    copies: Arc<Copies>,
    /// `None` in a master.
    slave: Option<Arc<SlaveStatus>>,
}

/// How copying the log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicationStatus {
    /// Of a master: its slaves, in the order in which they connected.
    Master(Vec<Replica>),
    /// Of a slave.
    Slave(SlaveState),
}

/// Copies the log as long as it lives.
pub(crate) enum Stream {
    /// To slaves.
    Out(Master),
    /// From a master.
    In(Worker),
}

impl Replicas {
    pub(crate) fn new(host: &Host, config: &BrokerConfig, store: &Arc<Store>, master: &Arc<GroupMaster>) -> Replicas {
        let copies = Arc::new(Copies::new(host, config.replication.heartbeat_interval));
        Replicas {
            master: Arc::clone(master),
            confirms: Arc::new(Confirms::new(config, store, &copies)),
            copies,
            slave: (!config.role.is_master()).then(|| Arc::new(SlaveStatus::new())),
        }
    }

    /// Begins to copy: a master listens for slaves on `port`, any if that is 0, and a slave connects to its master.
    ///
    /// # Errors
    /// The master cannot listen.
    pub(crate) async fn start(
        &self,
        host: &Host,
        config: &Arc<BrokerConfig>,
        store: &Arc<Store>,
        port: u16,
    ) -> Result<Stream, ListenError> {
        let Some(status) = &self.slave else {
            let port = if config.port == 0 { 0 } else { port };
            let address = SocketAddr::new(config.bind, port);
            return Ok(Stream::Out(Master::start(host, address, config, store, &self.copies).await?));
        };
        let slave = Slave {
            host: host.clone(),
            store: Arc::clone(store),
            config: Arc::clone(config),
            status: Arc::clone(status),
            group: Arc::clone(&self.master),
        };
        let master = self.master.watch_replication();
        Ok(Stream::In(Worker::start(host, "broker.follow-master", |stop| slave.run(master, stop))))
    }

    /// Ends when the log of a slave has to be cut, and says where.
    pub(crate) async fn cut_wanted(&self) -> PhyOffset {
        match &self.slave {
            Some(slave) => slave.cut_wanted().await,
            None => std::future::pending().await,
        }
    }

    pub(crate) fn status(&self) -> ReplicationStatus {
        match &self.slave {
            None => ReplicationStatus::Master(self.copies.status()),
            Some(slave) => ReplicationStatus::Slave(slave.get()),
        }
    }
}

impl Stream {
    /// Where slaves connect.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Stream::Out(master) => Some(master.address()),
            Stream::In(_) => None,
        }
    }

    pub(crate) fn port(&self) -> Option<u16> {
        self.address().map(|address| address.port())
    }

    /// Closes all connections and leaves no task behind.
    pub(crate) async fn stop(self) {
        match self {
            Stream::Out(master) => master.stop().await,
            Stream::In(slave) => slave.stop().await,
        }
    }
}

/// Whether the other side is believed whatever it says: a planted bug, as the reference has it (`spec/replication.md` HW01).
fn believes_all() -> bool {
    host::mutant!("report-beyond-the-end-counts")
}
