//! A broker: it takes messages from producers, keeps them, and gives them to consumers.
//!
//! This crate owns topics, groups, consumer offsets, connected clients, held pulls, delayed messages and the
//! registration with name servers. Messages lie in the [`store`]; frames are the business of [`remoting`]. Every
//! request is answered by one part that owns what it needs; the router in front knows which.
//!
//! What must always hold:
//! - a message is acknowledged only after its topic is in `topics.json`, so that it can be read after any crash;
//! - offsets in files, of consumers and of delayed messages, never lie beyond what the log has on disk;
//! - each start begins a new epoch of the log, on disk before the first request is answered;
//! - a send under asynchronous flushing is answered within the task of its connection;
//! - every table has one owner and one lock, which is never held across an await or together with another.

mod admin;
mod broker;
mod clients;
mod commits;
mod config;
mod delayed;
mod failure;
mod group_check;
mod group_master;
mod groups;
mod identity;
mod log_epochs;
mod lookups;
mod offsets;
mod pull;
mod queue_locks;
mod registration;
mod replication;
mod reports;
mod request_modes;
mod router;
mod send;
mod send_back;
mod sessions;
mod slave;
mod stored;
mod system;
mod table_copy;
mod table_file;
mod tag_filter;
mod topics;

pub use broker::{Broker, StartError};
pub use config::{BrokerConfig, ReplicationConfig, Role, SyncFrom, WhenAhead};
pub use replication::{Replica, ReplicationStatus, SlaveState};
pub use stored::{StoredOffset, check_stored};
