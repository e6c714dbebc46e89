//! The headers of all requests and responses, by the role that sends the request.

mod broker;
mod client;
mod consumer;
mod controller;
mod namesrv;
mod pop;
mod producer;
mod session;
mod topic;

pub use broker::*;
pub use client::*;
pub use consumer::*;
pub use controller::*;
pub use namesrv::*;
pub use pop::*;
pub use producer::*;
pub use session::*;
pub use topic::*;
