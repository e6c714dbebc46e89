//! A name server: the directory in which brokers announce themselves and clients find topics.
//!
//! This crate owns the route table, the liveness of brokers and the key-value configuration. It knows nothing of
//! messages or stores, and talks to nobody of its own accord. Nothing but the key-value configuration survives a
//! restart: every broker registers again within 30 seconds.
//!
//! What must always hold: a topic is listed only for broker names that have a live address, and a broker whose
//! registering connection closed is not listed.

mod config;
mod kv_configs;
mod namesrv;
mod requests;
mod route_table;

pub use config::NamesrvConfig;
pub use namesrv::{Namesrv, StartError};
