//! Who a broker is to others.

use std::{
    net::{IpAddr, SocketAddr},
    sync::OnceLock,
};

/// The address under which clients reach this broker. It stands in every record and message id.
///
/// The port is known at once if the configuration names one, else as soon as the broker listens.
#[derive(Debug)]
pub(crate) struct Identity {
    ip: IpAddr,
    port: OnceLock<u16>,
    replication_port: OnceLock<u16>,
}

impl Identity {
    /// `port` is 0 if the machine chooses it.
    pub(crate) fn new(ip: IpAddr, port: u16) -> Identity {
        let chosen = OnceLock::new();
        if port != 0 {
            chosen.get_or_init(|| port);
        }
        Identity { ip, port: chosen, replication_port: OnceLock::new() }
    }

    /// The broker listens on this port.
    pub(crate) fn listening(&self, port: u16) {
        self.port.get_or_init(|| port);
    }

    /// The broker serves replicas on this port.
    pub(crate) fn replicating(&self, port: u16) {
        self.replication_port.get_or_init(|| port);
    }

    /// The port for replicas, which is the one behind its own, unless the machine chose both.
    pub(crate) fn replication_port(&self) -> u16 {
        self.replication_port.get().copied().unwrap_or_else(|| self.address().port().saturating_add(1))
    }

    /// Where clients reach it.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.ip, self.port.get().copied().unwrap_or(0))
    }
}
