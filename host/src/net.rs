//! TCP sockets.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    Host,
    machine::{Listener, Stream, StreamWriter},
};

/// A TCP connection. Small writes are sent at once (no Nagle delay).
pub struct TcpStream {
    stream: Box<dyn Stream>,
}

/// The reading half of a [`TcpStream`].
pub struct ReadHalf {
    half: Box<dyn AsyncRead + Send + Unpin>,
}

/// The writing half of a [`TcpStream`]. Dropping it sends FIN.
pub struct WriteHalf {
    half: Box<dyn StreamWriter>,
}

impl TcpStream {
    pub(crate) fn new(stream: Box<dyn Stream>) -> TcpStream {
        TcpStream { stream }
    }

    /// The address of this end.
    ///
    /// # Errors
    /// If the connection is gone.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// The address of the other end.
    ///
    /// # Errors
    /// If the connection is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }

    /// Both halves, which may live in different tasks.
    #[must_use]
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        let (read, write) = self.stream.into_split();
        (ReadHalf { half: read }, WriteHalf { half: write })
    }
}

impl WriteHalf {
    /// Gives the connection up at once: what is still on its way may arrive, but nothing is sent again, so bytes that
    /// waited for a broken network cannot turn up when it works again, behind those of a newer connection. The other
    /// end gets RST if the network lets it through. Takes effect at the latest when both halves are dropped.
    pub fn abort(&mut self) {
        self.half.abort();
    }
}

macro_rules! forward_read {
    ($type:ty, $field:ident) => {
        impl AsyncRead for $type {
            fn poll_read(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                Pin::new(&mut self.$field).poll_read(cx, buf)
            }
        }
    };
}

macro_rules! forward_write {
    ($type:ty, $field:ident) => {
        impl AsyncWrite for $type {
            fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.$field).poll_write(cx, buf)
            }

            fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.$field).poll_flush(cx)
            }

            fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.$field).poll_shutdown(cx)
            }

            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.$field).poll_write_vectored(cx, bufs)
            }

            fn is_write_vectored(&self) -> bool {
                self.$field.is_write_vectored()
            }
        }
    };
}

forward_read!(TcpStream, stream);
forward_write!(TcpStream, stream);
forward_read!(ReadHalf, half);
forward_write!(WriteHalf, half);

impl std::fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TcpStream")
    }
}

/// A listening TCP socket. Dropping it frees the port.
pub struct TcpListener {
    listener: Box<dyn Listener>,
}

impl TcpListener {
    pub(crate) fn new(listener: Box<dyn Listener>) -> TcpListener {
        TcpListener { listener }
    }

    /// The address it listens on, with the port that the machine chose.
    ///
    /// # Errors
    /// If the socket is gone.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next connection and the address of its other end. Safe to drop half-way.
    ///
    /// # Errors
    /// Those of one connection (go on accepting) and those of the process, such as too many open files.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = self.listener.accept().await?;
        Ok((TcpStream::new(stream), peer))
    }
}

impl std::fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TcpListener")
    }
}

pub(crate) async fn resolve(host: &Host, address: &str) -> io::Result<SocketAddr> {
    if let Ok(address) = address.parse() {
        return Ok(address);
    }
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, format!("`{address}` is not host:port"));
    let (name, port) = address.rsplit_once(':').ok_or_else(invalid)?;
    let port: u16 = port.parse().map_err(|_| invalid())?;
    if name.is_empty() {
        return Err(invalid());
    }
    let found = host.machine().lookup(name.to_owned(), port).await?;
    found
        .first()
        .copied()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no address for host name `{name}`")))
}
