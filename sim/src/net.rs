//! The simulated network: what a link is and what can be wrong with it.

use std::time::Duration;

use crate::stand::NodeId;

/// How long a segment travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Latency {
    /// Always this long.
    Fixed(Duration),
    /// Each value between the two equally likely.
    Uniform(Duration, Duration),
    /// At least `min`, and exponentially distributed beyond it with `mean` over all.
    Exponential {
        /// The shortest.
        min: Duration,
        /// The mean of all, `min` included.
        mean: Duration,
    },
    /// Mostly `fast`, sometimes `slow`.
    Bimodal {
        /// The usual time.
        fast: Duration,
        /// The other time.
        slow: Duration,
        /// How often the other, in parts per million.
        slow_ppm: u32,
    },
}

/// What the network is like when nothing is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetConfig {
    /// Latency of every link, per segment and direction.
    pub latency: Latency,
    /// Each direction of each pair of nodes is slower by an own fixed time, drawn once, at most this.
    pub extra_max: Duration,
    /// Bytes per second and direction of a link; 0 means no limit.
    pub bandwidth: u64,
    /// Size of each send buffer and each receive buffer, in bytes.
    pub buffer: usize,
    /// After how long a connect over a silent link fails. At least 10 s, so that the product's own limit acts first.
    pub connect_timeout: Duration,
    /// After how long a connection whose bytes get no answer fails.
    pub retransmit_timeout: Duration,
}

impl Default for NetConfig {
    fn default() -> NetConfig {
        NetConfig {
            latency: Latency::Exponential { min: Duration::from_micros(150), mean: Duration::from_micros(500) },
            extra_max: Duration::from_micros(300),
            bandwidth: 125_000_000,
            buffer: 256 * 1024,
            connect_timeout: Duration::from_secs(127),
            retransmit_timeout: Duration::from_secs(120),
        }
    }
}

/// Something wrong with one direction of one link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impairment {
    /// The sender.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// Only connections to a listener of this port, on either end; all if `None`. Counts for cuts only.
    pub port: Option<u16>,
    /// What is wrong.
    pub kind: ImpairmentKind,
}

/// See [`Impairment`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImpairmentKind {
    /// Segments are lost; TCP sends them again until the link is back.
    Drop,
    /// Segments are held up, and all arrive when the link is back.
    Hold,
    /// Segments travel longer by this.
    Latency(Latency),
    /// Bytes per second, if that is less than the link has.
    Bandwidth(u64),
    /// So many of a million segments are lost and arrive 200 ms (or twice, four times ...) later.
    Loss(u32),
}

/// Names an impairment that is in effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImpairmentId(u64);
