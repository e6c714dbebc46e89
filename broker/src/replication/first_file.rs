//! A slave without a log that wants all that its master has (`haSyncFrom=first-file`).
//!
//! On the wire 0 means the last file. So the slave asks its master by a request where its log begins, and reports that. If
//! it begins at 0, the slave reports 1 and adds the first byte itself: it is the highest of the four of the size of the
//! first record, and no record has 16 MiB.

use std::time::Duration;

use bytes::Bytes;
use message::PhyOffset;
use remoting::{
    NoHeader, Request,
    body::{Body as _, KvTable},
};

use super::slave::Slave;
use crate::table_copy::TableCopy;

/// How long the master may take to answer.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The first byte of a log that begins at 0.
const FIRST_BYTE: u8 = 0;

/// What to report where the log begins at 0 and is not to be got from its last file on.
pub(super) const BEHIND_FIRST_BYTE: PhyOffset = PhyOffset(1);

impl Slave {
    /// What to report to get the log from its first file on; `None` if the master does not say where that is.
    pub(super) async fn first_file(&self) -> Option<PhyOffset> {
        let master = self.group.watch().borrow().clone()?;
        let client = TableCopy::client();
        let request = Request::GetBrokerRuntimeInfo(NoHeader);
        let answer = client.invoke(&master.address, request, Bytes::new(), TIMEOUT).await;
        client.shutdown().await;
        let table = KvTable::decode(&answer.ok()?.body_bytes()).ok()?.table;
        let position = |key: &str| table.get(key)?.parse::<u64>().ok();
        let (min, max) = (position("commitLogMinOffset")?, position("commitLogMaxOffset")?);
        // Of a log without anything the last file is the first.
        Some(if max == 0 { PhyOffset(0) } else { PhyOffset(min).max(BEHIND_FIRST_BYTE) })
    }
}

/// Adds the byte that was not asked for.
pub(super) fn complete(body: &mut Vec<u8>) {
    body.insert(0, FIRST_BYTE);
}
