//! One end of a connection between master and slave.

use std::{io, time::Duration};

use host::{
    Host,
    net::{ReadHalf, WriteHalf},
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Why a connection ended, on either side.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("the other end closed the connection")]
    Closed,
    #[error("nothing came for {} ms", .0.as_millis())]
    Silent(Duration),
    #[error("the connection broke")]
    Io(#[from] io::Error),
}

/// Reads, and gives up after some silence (HO09: by the monotonic clock).
pub(super) struct Reader {
    pub(super) host: Host,
    pub(super) half: ReadHalf,
    pub(super) patience: Duration,
}

impl Reader {
    /// Fills `buf`. Each read may take as long as the patience lasts.
    pub(super) async fn read_exact(&mut self, mut buf: &mut [u8]) -> Result<(), LinkError> {
        while !buf.is_empty() {
            let read = self.host.timeout(self.patience, self.half.read(buf)).await;
            match read.map_err(|_| LinkError::Silent(self.patience))?? {
                0 => return Err(LinkError::Closed),
                count => buf = &mut buf[count..],
            }
        }
        Ok(())
    }
}

/// Sends all of `bytes` and then of `body`. How long that takes is up to the other end, whose silence ends it.
pub(super) async fn send(half: &mut WriteHalf, bytes: &[u8], body: &[u8]) -> io::Result<()> {
    let mut both = bytes::Buf::chain(bytes, body);
    half.write_all_buf(&mut both).await
}
