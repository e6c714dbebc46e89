//! Sockets as the host sees them: handles of connections and listeners, each tied to one life of a node.

use std::{
    future::Future,
    io::{self, Error, ErrorKind, IoSlice},
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use host::machine::{Listener, Stream, StreamWriter};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    net::connection::{ConnId, EndId},
    stand::node::Life,
    world::World,
};

/// What a socket of a life that is over answers.
pub(super) fn ended() -> Error {
    Error::new(ErrorKind::ConnectionAborted, "the process that held this socket has ended")
}

fn check(life: &Life) -> io::Result<()> {
    if life.is_alive() { Ok(()) } else { Err(ended()) }
}

/// Opens a connection.
pub(crate) async fn connect(world: Arc<World>, life: Life, to: SocketAddr) -> io::Result<Box<dyn Stream>> {
    check(&life)?;
    let conn = world.with(|core, now| {
        let (net, mut io) = core.net(now);
        net.begin_connect(life.node.id, to, &mut io)
    })?;
    // Dropped half-way, this gives the attempt up.
    let mut end = End { world, life, conn, end: EndId::Client, local: to, peer: to };
    let (local, peer) =
        std::future::poll_fn(|cx| end.world.with(|core, now| core.net(now).0.poll_connect(conn, cx))).await?;
    (end.local, end.peer) = (local, peer);
    Ok(Box::new(SimStream { end }))
}

/// Listens.
pub(crate) fn listen(world: Arc<World>, life: Life, on: SocketAddr) -> io::Result<Box<dyn Listener>> {
    check(&life)?;
    let (id, local) = world.with(|core, now| core.net(now).0.open_listener(life.node.id, on))?;
    Ok(Box::new(SimListener { world, life, id, local }))
}

/// One end of a connection. Dropping it closes the end.
struct End {
    world: Arc<World>,
    life: Life,
    conn: ConnId,
    end: EndId,
    local: SocketAddr,
    peer: SocketAddr,
}

impl End {
    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        check(&self.life)?;
        self.world.with(|core, now| {
            let (net, mut io) = core.net(now);
            net.poll_read((self.conn, self.end), buf, cx, &mut io)
        })
    }

    fn poll_write(&self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        check(&self.life)?;
        self.world.with(|core, now| {
            let (net, mut io) = core.net(now);
            net.poll_write((self.conn, self.end), slices, cx, &mut io)
        })
    }

    fn shut_down(&self) -> io::Result<()> {
        check(&self.life)?;
        self.world.with(|core, now| {
            let (net, mut io) = core.net(now);
            net.shut_down(self.conn, self.end, &mut io)
        })
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // At the death of a process its kernel has closed everything already.
        if self.life.is_alive() {
            self.world.with(|core, now| {
                let (net, mut io) = core.net(now);
                net.release(self.conn, self.end, &mut io);
            });
        }
    }
}

struct SimStream {
    end: End,
}

struct ReadHalf {
    end: Arc<End>,
}

struct WriteHalf {
    end: Arc<End>,
}

impl Stream for SimStream {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        check(&self.end.life)?;
        Ok(self.end.local)
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        check(&self.end.life)?;
        Ok(self.end.peer)
    }

    fn into_split(self: Box<Self>) -> (Box<dyn AsyncRead + Send + Unpin>, Box<dyn StreamWriter>) {
        let end = Arc::new(self.end);
        (Box::new(ReadHalf { end: Arc::clone(&end) }), Box::new(WriteHalf { end }))
    }
}

impl StreamWriter for WriteHalf {
    fn abort(&mut self) {
        if self.end.life.is_alive() {
            self.end.world.with(|core, now| {
                let (net, mut io) = core.net(now);
                net.abort(self.end.conn, self.end.end, &mut io);
            });
        }
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        // An end that is closed or dead already needs no FIN.
        let _ = self.end.shut_down();
    }
}

macro_rules! read_through_end {
    ($type:ty) => {
        impl AsyncRead for $type {
            fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
                self.end.poll_read(cx, buf)
            }
        }
    };
}

macro_rules! write_through_end {
    ($type:ty) => {
        impl AsyncWrite for $type {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                self.end.poll_write(cx, &[IoSlice::new(buf)])
            }

            fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(check(&self.end.life))
            }

            fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(self.end.shut_down())
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.end.poll_write(cx, slices)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }
        }
    };
}

read_through_end!(SimStream);
read_through_end!(ReadHalf);
write_through_end!(SimStream);
write_through_end!(WriteHalf);

struct SimListener {
    world: Arc<World>,
    life: Life,
    id: u64,
    local: SocketAddr,
}

impl Listener for SimListener {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        check(&self.life)?;
        Ok(self.local)
    }

    fn accept(&self) -> Pin<Box<dyn Future<Output = io::Result<(Box<dyn Stream>, SocketAddr)>> + Send + '_>> {
        Box::pin(std::future::poll_fn(move |cx| {
            check(&self.life)?;
            let accepted = self.world.with(|core, now| core.net(now).0.poll_accept(self.id, cx));
            accepted.map_ok(|(conn, local, peer)| {
                let (world, life) = (Arc::clone(&self.world), self.life.clone());
                let end = End { world, life, conn, end: EndId::Server, local, peer };
                (Box::new(SimStream { end }) as Box<dyn Stream>, peer)
            })
        }))
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        if self.life.is_alive() {
            self.world.with(|core, now| {
                let (net, mut io) = core.net(now);
                net.close_listener(self.id, &mut io);
            });
        }
    }
}
