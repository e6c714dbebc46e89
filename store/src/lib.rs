//! Messages on disk: commit log, consume queues, index, checkpoint, recovery, retention.
//!
//! The files are those of Apache RocketMQ; either opens what the other wrote. This crate knows no sockets, no clients
//! and no consumer groups. It takes clock, tasks and files from its [`host::Host`].
//!
//! What must always hold:
//! - a message is visible to readers only as a whole, and stays as it was: bytes handed out are never written again;
//! - `flushed <= written`, both only grow, and under sync flush nobody sees what is not on disk;
//! - entry `i` of a consume queue points at the message with queue offset `i`, or at none;
//! - nothing beyond the end of the log ever comes back;
//! - a failed sync ends all writing until a restart has found out what is left.

pub mod audit;
mod checkpoint;
mod checkpointer;
mod commit_log;
mod config;
pub mod config_file;
mod consume_queue;
mod copied;
mod dirs;
mod dispatch;
mod entry;
mod error;
mod flush;
mod follow;
mod gate;
mod get;
mod index;
mod load;
mod log_file;
mod markers;
mod pool;
mod put;
mod query;
mod queues;
mod recovery;
mod retention;
mod stats;
mod store;
mod warm_up;

pub use config::{FlushDiskType, StoreConfig};
pub use error::{CopyError, PutError, StoreError, WriteBlock};
pub use get::{GetRequest, GetResult, GetStatus, MessageFilter, TimeBoundary};
pub use put::{BatchPut, Durability, Flushed, Put};
pub use query::{KeyQuery, KeyResult};
pub use stats::{Counters, Figures, Rates};
pub use store::{DiskUse, Store};
