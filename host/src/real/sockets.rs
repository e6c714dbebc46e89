//! TCP sockets of the operating system.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, tcp::OwnedWriteHalf},
};

use super::check_allowed;
use crate::machine::{Listener, Stream, StreamWriter};

pub(super) async fn connect(to: SocketAddr) -> io::Result<Box<dyn Stream>> {
    check_allowed()?;
    let stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

pub(super) async fn listen(on: SocketAddr) -> io::Result<Box<dyn Listener>> {
    check_allowed()?;
    // Binds with SO_REUSEADDR, so that a restart does not wait for old connections to time out.
    Ok(Box::new(TcpListener::bind(on).await?))
}

pub(super) async fn lookup(host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    check_allowed()?;
    let mut found: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await?.collect();
    found.sort_by_key(|address| !address.is_ipv4());
    Ok(found)
}

impl Stream for TcpStream {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.peer_addr()
    }

    fn into_split(self: Box<Self>) -> (Box<dyn AsyncRead + Send + Unpin>, Box<dyn StreamWriter>) {
        let (read, write) = (*self).into_split();
        (Box::new(read), Box::new(Writer { half: Some(write) }))
    }
}

/// The writing half of a connection; nothing once the connection was given up.
struct Writer {
    half: Option<OwnedWriteHalf>,
}

impl Writer {
    fn half(&mut self) -> io::Result<Pin<&mut OwnedWriteHalf>> {
        self.half.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

impl AsyncWrite for Writer {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.half()?.poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.half()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.half()?.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.half()?.poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }
}

impl StreamWriter for Writer {
    fn abort(&mut self) {
        if let Some(half) = self.half.take() {
            // It fails only for a connection that is gone already.
            half.as_ref().set_zero_linger().ok();
            // Dropped, it would send FIN; closing the socket, when the reading half is dropped too, sends RST.
            half.forget();
        }
    }
}

impl Listener for TcpListener {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }

    fn accept(&self) -> Pin<Box<dyn Future<Output = io::Result<(Box<dyn Stream>, SocketAddr)>> + Send + '_>> {
        Box::pin(async {
            let (stream, peer) = self.accept().await?;
            stream.set_nodelay(true)?;
            Ok((Box::new(stream) as Box<dyn Stream>, peer))
        })
    }
}
