//! What all clients have in common: name servers, identity, periods.

use std::{net::IpAddr, time::Duration};

use crate::error::ClientError;

/// Settings of a client; made by [`ClientConfig::builder`].
#[derive(Debug, Clone)]
pub struct ClientConfig {
    pub(crate) name_servers: Vec<String>,
    pub(crate) instance_name: Option<String>,
    pub(crate) unit_name: Option<String>,
    pub(crate) client_ip: Option<IpAddr>,
    pub(crate) timing: ClientTiming,
}

/// Periods and time limits of a client. The defaults are those of the reference. Source: `spec/client.md` 1.3, 1.9.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientTiming {
    /// Between two refreshes of all routes. 30 s.
    pub route_poll: Duration,
    /// Between two heartbeats to all brokers. 30 s; the first after [`first_heartbeat`](ClientTiming::first_heartbeat).
    pub heartbeat: Duration,
    /// From the start of the client to its first periodic heartbeat. 1 s.
    pub first_heartbeat: Duration,
    /// Between two commits of consumer offsets. 5 s.
    pub persist_offsets: Duration,
    /// Between two rebalance rounds of a balanced consumer. 20 s.
    pub rebalance: Duration,
    /// Between two rebalance rounds at least; an unbalanced consumer tries again after it. 1 s.
    pub rebalance_gap: Duration,
    /// For one request to a name server or a broker that has no limit of its own. 3 s.
    pub request: Duration,
    /// For opening a connection. 3 s.
    pub connect: Duration,
    /// Until a failed pull is tried again. 1 s.
    pub pull_retry: Duration,
}

impl Default for ClientTiming {
    fn default() -> ClientTiming {
        ClientTiming {
            route_poll: Duration::from_secs(30),
            heartbeat: Duration::from_secs(30),
            first_heartbeat: Duration::from_secs(1),
            persist_offsets: Duration::from_secs(5),
            rebalance: Duration::from_secs(20),
            rebalance_gap: Duration::from_secs(1),
            request: Duration::from_secs(3),
            connect: Duration::from_secs(3),
            pull_retry: Duration::from_secs(1),
        }
    }
}

/// Collects settings; made by [`ClientConfig::builder`].
#[derive(Debug, Clone)]
pub struct ClientConfigBuilder {
    config: ClientConfig,
}

impl ClientConfig {
    /// Starts with the defaults and no name server.
    #[must_use]
    pub fn builder() -> ClientConfigBuilder {
        ClientConfigBuilder {
            config: ClientConfig {
                name_servers: Vec::new(),
                instance_name: None,
                unit_name: None,
                client_ip: None,
                timing: ClientTiming::default(),
            },
        }
    }
}

impl ClientConfigBuilder {
    /// Adds name servers, each `host:port`; an entry may hold several, separated by `;`.
    #[must_use]
    pub fn name_servers<I, A>(mut self, addrs: I) -> Self
    where
        I: IntoIterator<Item = A>,
        A: AsRef<str>,
    {
        for addr in addrs {
            let parts = addr.as_ref().split(';').map(str::trim).filter(|part| !part.is_empty());
            self.config.name_servers.extend(parts.map(str::to_owned));
        }
        self
    }

    /// The second part of the client id. Two live clients with one id break the balance of their group. Without it the
    /// id is made of the process id and the start time, and so differs for every client.
    #[must_use]
    pub fn instance_name(mut self, name: impl Into<String>) -> Self {
        self.config.instance_name = Some(name.into());
        self
    }

    /// The last part of the client id. Default none.
    #[must_use]
    pub fn unit_name(mut self, name: impl Into<String>) -> Self {
        self.config.unit_name = Some(name.into());
        self
    }

    /// The first part of the client id. Default: the local address of a connection to a name server.
    #[must_use]
    pub fn client_ip(mut self, ip: IpAddr) -> Self {
        self.config.client_ip = Some(ip);
        self
    }

    /// Other periods and time limits.
    #[must_use]
    pub fn timing(mut self, timing: ClientTiming) -> Self {
        self.config.timing = timing;
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// [`ClientError::NoNameServer`]; [`ClientError::Invalid`] for an address that is not `host:port`, for a blank
    /// name, and for a period of zero.
    pub fn build(self) -> Result<ClientConfig, ClientError> {
        let config = self.config;
        if config.name_servers.is_empty() {
            return Err(ClientError::NoNameServer);
        }
        for addr in &config.name_servers {
            let port = addr.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
            if !matches!(port, Some(Ok(1..))) {
                return Err(ClientError::Invalid(format!("name server `{addr}` is not host:port")));
            }
        }
        for (what, name) in [("instance name", &config.instance_name), ("unit name", &config.unit_name)] {
            if name.as_ref().is_some_and(|name| name.trim().is_empty() || name.contains('@')) {
                return Err(ClientError::Invalid(format!("the {what} is blank or contains `@`")));
            }
        }
        check_periods(&config.timing)?;
        Ok(config)
    }
}

fn check_periods(timing: &ClientTiming) -> Result<(), ClientError> {
    let periods = [
        ("route_poll", timing.route_poll),
        ("heartbeat", timing.heartbeat),
        ("persist_offsets", timing.persist_offsets),
        ("rebalance", timing.rebalance),
        ("rebalance_gap", timing.rebalance_gap),
        ("request", timing.request),
        ("connect", timing.connect),
        ("pull_retry", timing.pull_retry),
    ];
    match periods.iter().find(|(_, period)| period.is_zero()) {
        Some((name, _)) => Err(ClientError::Invalid(format!("`{name}` is zero"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_may_be_joined_by_semicolons() {
        let config = ClientConfig::builder().name_servers(["a:1; b:2;", "c:3"]).build().unwrap();
        assert_eq!(config.name_servers, ["a:1", "b:2", "c:3"]);
    }

    #[test]
    fn bad_settings_are_named() {
        let error = |builder: ClientConfigBuilder| builder.build().unwrap_err().to_string();
        let some = || ClientConfig::builder().name_servers(["a:1"]);
        assert_eq!(error(ClientConfig::builder()), "no name server configured");
        assert_eq!(error(some().name_servers(["b"])), "name server `b` is not host:port");
        assert_eq!(error(some().name_servers(["b:0"])), "name server `b:0` is not host:port");
        assert_eq!(error(some().instance_name(" ")), "the instance name is blank or contains `@`");
        let timing = ClientTiming { heartbeat: Duration::ZERO, ..ClientTiming::default() };
        assert_eq!(error(some().timing(timing)), "`heartbeat` is zero");
    }
}
