//! TCP sockets of the operating system.

use std::{future::Future, io, net::SocketAddr, pin::Pin};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};

use super::check_allowed;
use crate::machine::{Listener, Stream};

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

    fn into_split(self: Box<Self>) -> (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>) {
        let (read, write) = (*self).into_split();
        (Box::new(read), Box::new(write))
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
