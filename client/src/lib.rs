//! Clients: producers, push consumers, and a little administration.
//!
//! A client is built from a [`ClientConfig`], takes its host where it is started, and speaks with name servers and
//! brokers over `remoting` only. It owns retries, routes, heartbeats, rebalancing, the pull loops and the offsets that a
//! group commits. It knows neither how a broker stores messages nor that it may run in a simulation.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use staticfire_client::*;
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let config = ClientConfig::builder().name_servers(["127.0.0.1:9876"]).build()?;
//! let consumer = PushConsumer::builder("billing", config.clone())
//!     .subscribe("orders", Filter::tags("paid || refund")?)
//!     .start_from(StartFrom::Earliest)
//!     .start_concurrent(|batch: ConcurrentBatch| async move {
//!         println!("{:?}", batch.messages[0].body());
//!         ConcurrentOutcome::Success
//!     })
//!     .await?;
//! let producer = Producer::builder("checkout", config).start().await?;
//! match producer.send(Message::new("orders", "one book").with_tags("paid")?).await {
//!     Ok(receipt) => println!("{} at offset {}", receipt.queue, receipt.queue_offset.0),
//!     Err(error) if error.may_have_been_stored() => println!("perhaps sent: {error}"),
//!     Err(error) => println!("not sent: {error}"),
//! }
//! producer.shutdown(Duration::from_secs(3)).await;
//! consumer.shutdown(Duration::from_secs(30)).await;
//! # Ok(())
//! # }
//! ```

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
