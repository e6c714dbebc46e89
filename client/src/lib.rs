//! Clients: producers, push consumers, and a little administration.
//!
//! A client is built from a [`ClientConfig`], takes its host where it is started, and speaks with name servers and
//! brokers over `remoting` only. It owns retries, routes, heartbeats, rebalancing, the pull loops and the offsets that a
//! group commits. It knows neither how a broker stores messages nor that it may run in a simulation.

mod admin;
mod config;
mod consumer;
mod core;
mod error;
mod message_view;
mod producer;
mod queue;

pub use admin::{Admin, TopicSpec};
pub use config::{ClientConfig, ClientConfigBuilder, ClientTiming};
pub use consumer::{
    PushConsumer, PushConsumerBuilder, ShutdownReport, StartFrom,
    allocation::{AllocationStrategy, Averagely, AveragelyByCircle, ByConfig, MachineRoom},
    listener::{ConcurrentBatch, ConcurrentListener, ConcurrentOutcome, RetryDelay},
    owned_queue::QueueProgress,
    process_queue::CacheLimits,
    subscription::Filter,
};
pub use error::{ClientError, SendError};
pub use message::{Message, QueueOffset};
pub use message_view::MessageView;
pub use producer::{
    Producer, ProducerBuilder, SendReceipt, SendStatus,
    batch::{BatchError, BatchSplitter},
    selector::{Fnv1a32, JavaHash, QueueSelector, ShardingKey},
};
pub use queue::MessageQueue;
