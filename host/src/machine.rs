//! What a machine must provide. The real one is in [`crate::real`]; a stand implements these traits with simulated
//! clocks, networks and disks.
//!
//! Every object handed out belongs to one incarnation of one node. When that life ends, the machine drops its tasks,
//! and whatever is still called on its objects (from destructors, or through handles that leaked to another node) must
//! do nothing and report an error.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    ops::Range,
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    fs::{Advice, DirEntry, Metadata, OpenOptions, Space},
    region::Region,
    time::Mono,
};

/// A boxed future, as trait objects need it.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// One life of one node on some machine.
pub trait Machine: Send + Sync + 'static {
    /// The name of the node.
    fn node(&self) -> &str;

    /// The life of the node, from 1.
    fn incarnation(&self) -> u32;

    /// See [`crate::Host::process_id`].
    fn process_id(&self) -> u32;

    /// Starts a task. `future` already enters its host around polls and drop and never panics.
    fn spawn(&self, name: &'static str, future: BoxFuture<()>) -> Box<dyn TaskControl>;

    /// A task panicked: record it and stop the node. Called on the thread of the task, before its handle is told.
    fn panicked(&self, task: &'static str, message: &str);

    /// Monotonic time since the node booted.
    fn mono(&self) -> Mono;

    /// Monotonic time as of a moment ago, if that costs less.
    fn mono_coarse(&self) -> Mono {
        self.mono()
    }

    /// Wall-clock milliseconds since 1970, UTC.
    fn wall_ms(&self) -> i64;

    /// A timer that fires at `deadline`.
    fn timer(&self, deadline: Mono) -> Box<dyn Timer>;

    /// Connects to a listener.
    fn connect(&self, to: SocketAddr) -> BoxFuture<io::Result<Box<dyn Stream>>>;

    /// Listens on an address of this node.
    fn listen(&self, on: SocketAddr) -> BoxFuture<io::Result<Box<dyn Listener>>>;

    /// The addresses of a host name, IPv4 first.
    fn lookup(&self, host: String, port: u16) -> BoxFuture<io::Result<Vec<SocketAddr>>>;

    /// Opens or creates a file.
    fn open(&self, path: PathBuf, options: OpenOptions) -> BoxFuture<io::Result<Box<dyn RawFile>>>;

    /// The entries of a directory, sorted by name.
    fn read_dir(&self, path: PathBuf) -> BoxFuture<io::Result<Vec<DirEntry>>>;

    /// What stands under a name.
    fn metadata(&self, path: PathBuf) -> BoxFuture<io::Result<Metadata>>;

    /// Creates a directory and its missing parents.
    fn create_dir_all(&self, path: PathBuf) -> BoxFuture<io::Result<()>>;

    /// Renames a file or directory; an existing file under the new name is replaced atomically.
    fn rename(&self, from: PathBuf, to: PathBuf) -> BoxFuture<io::Result<()>>;

    /// Gives a file a second name. Fails with `AlreadyExists` if it is taken.
    fn hard_link(&self, from: PathBuf, to: PathBuf) -> BoxFuture<io::Result<()>>;

    /// Removes the name of a file.
    fn remove_file(&self, path: PathBuf) -> BoxFuture<io::Result<()>>;

    /// Removes an empty directory.
    fn remove_dir(&self, path: PathBuf) -> BoxFuture<io::Result<()>>;

    /// Makes the entries of a directory durable.
    fn sync_dir(&self, path: PathBuf) -> BoxFuture<io::Result<()>>;

    /// Space of the file system that holds `path`.
    fn space(&self, path: &Path) -> io::Result<Space>;

    /// See [`crate::Host::open_files_max`]. The default knows no limit.
    fn open_files_max(&self) -> Option<u64> {
        None
    }

    /// Keeps memory of this process from being swapped out. The default has no such memory, and does nothing.
    fn lock_memory(&self, region: Region) -> BoxFuture<io::Result<()>> {
        drop(region);
        Box::pin(async { Ok(()) })
    }

    /// The process that this one runs in got no memory for so many bytes. A machine that is simulated in it ends here:
    /// what it does must not depend on that.
    fn refused_memory(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Number `counter` of the stream `stream`.
    fn draw(&self, stream: u64, counter: u64) -> u64;

    /// See [`crate::point!`].
    fn point(&self, name: &'static str, value: i64, about: i64);

    /// See [`crate::gate!`]: passes a point, and tells what to wait for there. The default is a point that holds nobody.
    fn gate(&self, name: &'static str, value: i64) -> Option<BoxFuture<()>> {
        self.point(name, value, 0);
        None
    }

    /// See [`crate::sometimes!`]: the case has come. The default takes no note.
    fn sometimes(&self, name: &'static str) {
        let _ = name;
    }

    /// See [`crate::always!`]. The default takes no note.
    fn always(&self, name: &'static str, holds: bool) {
        let _ = (name, holds);
    }

    /// See [`crate::buggify!`].
    fn buggify(&self, name: &'static str) -> bool;

    /// See [`crate::mutant!`].
    fn mutant(&self, name: &'static str) -> bool;
}

/// Ends a task from outside.
pub trait TaskControl: Send + Sync {
    /// Drops the future of the task soon, unless it has ended.
    fn abort(&self);
}

/// One timer. Dropping it cancels it.
pub trait Timer: Send {
    /// Ready from the deadline on.
    fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Moves the deadline, earlier or later, also after it has fired.
    fn reset(&mut self, deadline: Mono);
}

/// Both directions of a TCP connection. `poll_shutdown` sends FIN behind what was written; dropping it closes the
/// connection, with RST if bytes that arrived were not read.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {
    /// The address of this end.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// The address of the other end.
    fn peer_addr(&self) -> io::Result<SocketAddr>;

    /// Gives up the connection as two halves that may live in different tasks. Dropping the write half sends FIN;
    /// the connection ends when both are gone.
    fn into_split(self: Box<Self>) -> (Box<dyn AsyncRead + Send + Unpin>, Box<dyn StreamWriter>);
}

/// The writing half of a TCP connection.
pub trait StreamWriter: AsyncWrite + Send + Unpin {
    /// Ends the connection without delivering what the other end has not acknowledged: nothing of it is sent again, and
    /// RST goes out in place of FIN, at the latest when both halves are dropped. Nothing can be written afterwards.
    fn abort(&mut self);
}

/// A listening socket. Dropping it frees the port; connections that wait to be accepted are reset.
pub trait Listener: Send + Sync {
    /// The address it listens on, with the real port.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// The next connection and the address of its other end. Cancel-safe.
    #[expect(clippy::type_complexity, reason = "unlike a `BoxFuture` it borrows the listener")]
    fn accept(&self) -> Pin<Box<dyn Future<Output = io::Result<(Box<dyn Stream>, SocketAddr)>> + Send + '_>>;
}

/// An open file.
#[expect(clippy::len_without_is_empty, reason = "nobody asks whether a file is empty")]
pub trait RawFile: Send + Sync {
    /// Its length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Reads at most `buf.len()` bytes from `at`; 0 at or past the end, and only there if any were asked for. Fewer than
    /// asked for do not mean that the file ends.
    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize>;

    /// The first stretch at or behind `at` that may hold anything but zeros; `None` if up to the end none does. Reads
    /// nothing.
    fn next_data(&self, at: u64) -> io::Result<Option<Range<u64>>>;

    /// Writes into the page cache; may be short. Extends the file if it ends beyond the length.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize>;

    /// Sets the length; new bytes read as zeros.
    fn set_len(&self, len: u64) -> BoxFuture<io::Result<()>>;

    /// Reserves blocks for `0..len` and extends the file to it, so that later writes there cannot lack space.
    fn allocate(&self, len: u64) -> BoxFuture<io::Result<()>>;

    /// Makes the content durable, and with `data_only == false` the rest of the metadata too.
    fn sync(&self, data_only: bool) -> BoxFuture<io::Result<()>>;

    /// Takes the exclusive advisory lock of the file, without waiting; false if another process has it. Held until
    /// the process dies or every handle of this file is dropped.
    fn try_lock(&self) -> io::Result<bool>;

    /// Maps `0..len`, which must not reach beyond the length of the file.
    fn map(&self, len: u64) -> BoxFuture<io::Result<Box<dyn RawMapping>>>;
}

/// A mapped file. It stays usable when the file has lost its name.
#[expect(clippy::len_without_is_empty, reason = "an empty mapping cannot exist")]
pub trait RawMapping: Send + Sync {
    /// Its length in bytes.
    fn len(&self) -> u64;

    /// Stores bytes. Panics outside the mapping, or below a position that [`slice`](RawMapping::slice) has frozen.
    /// If the device cannot take them (full, damaged), the node dies as a process dies of SIGBUS.
    fn write(&self, at: u64, bytes: &[u8]);

    /// Shows a range to `look` without freezing it; writers wait meanwhile. Panics outside the mapping.
    fn with(&self, from: u64, to: u64, look: &mut dyn FnMut(&[u8]));

    /// Hands out `from..to` without a copy and freezes `0..to`: nothing there is ever written again. The bytes stay as
    /// they are until the last of them is dropped, whatever happens to file, mapping and node.
    fn slice(&self, from: u64, to: u64) -> Bytes;

    /// Brings `from..to` into memory, ready to be stored to; the bytes stay as they are. Where the device cannot take the
    /// pages, the node dies as in [`write`](RawMapping::write).
    fn touch(&self, from: u64, to: u64) -> BoxFuture<io::Result<()>>;

    /// Keeps all of it in memory until `unlock`, or until mapping and handed-out bytes are gone.
    fn lock(&self) -> BoxFuture<io::Result<()>>;

    /// Ends `lock`.
    fn unlock(&self) -> io::Result<()>;

    /// Tells how all of it will be read. May do nothing.
    fn advise(&self, advice: Advice) -> io::Result<()>;

    /// Makes `from..to` durable.
    fn sync(&self, from: u64, to: u64) -> BoxFuture<io::Result<()>>;

    /// Gives the file a new body of the same length: `0..keep` copied, zeros behind, nothing frozen. The new body is
    /// durable and stands under the file's name when this returns; this mapping keeps the old bytes.
    fn rewind(&self, keep: u64) -> BoxFuture<io::Result<Box<dyn RawMapping>>>;
}
