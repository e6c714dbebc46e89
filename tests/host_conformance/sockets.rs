//! TCP, within one node. What happens between nodes (cuts, power loss) is tested with the stand's network.

use std::{io::ErrorKind, net::SocketAddr, path::PathBuf, time::Duration};

use host::{
    Host,
    net::{TcpListener, TcpStream},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const LOCAL: &str = "127.0.0.1:0";

fn local() -> SocketAddr {
    LOCAL.parse().unwrap()
}

async fn pair(host: &Host) -> (TcpStream, TcpStream, TcpListener) {
    let listener = host.bind(local()).await.unwrap();
    let client = host.connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    (client, server, listener)
}

pub async fn a_connection_carries_bytes_both_ways(host: Host, _dir: PathBuf) {
    let (mut client, mut server, _listener) = pair(&host).await;
    client.write_all(b"question").await.unwrap();
    let mut question = [0; 8];
    server.read_exact(&mut question).await.unwrap();
    assert_eq!(&question, b"question");
    server.write_all(b"answer").await.unwrap();
    server.flush().await.unwrap();
    let mut answer = [0; 6];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"answer");
    // Many small writes arrive as one stream, in order.
    for number in 0..1000_u32 {
        client.write_all(&number.to_be_bytes()).await.unwrap();
    }
    for number in 0..1000_u32 {
        assert_eq!(server.read_u32().await.unwrap(), number);
    }
}

pub async fn both_ends_know_both_addresses(host: Host, _dir: PathBuf) {
    let listener = host.bind(local()).await.unwrap();
    let client = host.connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, from) = listener.accept().await.unwrap();
    assert_eq!(client.peer_addr().unwrap(), listener.local_addr().unwrap());
    assert_eq!(server.local_addr().unwrap(), listener.local_addr().unwrap());
    assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
    assert_eq!(from, client.local_addr().unwrap());
    assert_ne!(client.local_addr().unwrap().port(), 0);
}

pub async fn a_closed_end_is_read_as_the_end(host: Host, _dir: PathBuf) {
    let (mut client, server, _listener) = pair(&host).await;
    client.write_all(b"last words").await.unwrap();
    drop(client);
    let mut server = server;
    let mut all = Vec::new();
    server.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, b"last words");
    assert_eq!(server.read(&mut [0; 8]).await.unwrap(), 0, "the end stays the end");
}

pub async fn half_a_connection_can_be_closed(host: Host, _dir: PathBuf) {
    let (mut client, mut server, _listener) = pair(&host).await;
    client.write_all(b"ping").await.unwrap();
    client.shutdown().await.unwrap();
    client.write_all(b"more").await.unwrap_err();
    let mut all = Vec::new();
    server.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, b"ping");
    server.write_all(b"pong").await.unwrap();
    let mut pong = [0; 4];
    client.read_exact(&mut pong).await.unwrap();
    assert_eq!(&pong, b"pong", "the other direction goes on");
    drop(server);
    assert_eq!(client.read(&mut pong).await.unwrap(), 0);
}

pub async fn dropping_the_write_half_closes_it(host: Host, _dir: PathBuf) {
    let (client, server, _listener) = pair(&host).await;
    let (mut read, mut write) = client.into_split();
    let (mut server_read, mut server_write) = server.into_split();
    write.write_all(b"ping").await.unwrap();
    let writer = host.spawn("writer", async move { drop(write) });
    writer.await.unwrap();
    let mut all = Vec::new();
    server_read.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, b"ping");
    server_write.write_all(b"pong").await.unwrap();
    let mut pong = [0; 4];
    read.read_exact(&mut pong).await.unwrap();
    assert_eq!(&pong, b"pong");
}

pub async fn nobody_listening_refuses(host: Host, _dir: PathBuf) {
    let listener = host.bind(local()).await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    assert_eq!(host.connect(address).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

/// P108 of the collection of cases.
pub async fn closing_with_unread_bytes_resets(host: Host, _dir: PathBuf) {
    let (mut client, server, _listener) = pair(&host).await;
    client.write_all(b"nobody reads this").await.unwrap();
    // Lets it arrive: what is still under way when the end closes is answered by a reset a little later.
    host.sleep(Duration::from_millis(50)).await;
    drop(server);
    let error = client.read(&mut [0; 8]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let error = client.write_all(b"more").await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
}

pub async fn a_connection_given_up_is_reset(host: Host, _dir: PathBuf) {
    let (client, mut server, _listener) = pair(&host).await;
    let (read, mut write) = client.into_split();
    write.write_all(b"ping").await.unwrap();
    let mut ping = [0; 4];
    server.read_exact(&mut ping).await.unwrap();
    write.abort();
    drop((read, write));
    assert_eq!(server.read(&mut ping).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

pub async fn a_reader_that_is_slow_holds_up_the_writer(host: Host, _dir: PathBuf) {
    const MORE_THAN_BUFFERS_HOLD: usize = 64 << 20;
    let (client, mut server, _listener) = pair(&host).await;
    let (_read, mut write) = client.into_split();
    let writer = host.spawn("writer", async move {
        let chunk = vec![9; 1 << 20];
        for _ in 0..MORE_THAN_BUFFERS_HOLD / chunk.len() {
            write.write_all(&chunk).await.unwrap();
        }
    });
    let mut writer = std::pin::pin!(writer);
    assert!(host.timeout(Duration::from_millis(300), writer.as_mut()).await.is_err(), "nobody has read anything");
    let (mut buf, mut total) = (vec![0; 1 << 20], 0);
    loop {
        match server.read(&mut buf).await.unwrap() {
            0 => break,
            count => {
                assert!(buf[..count].iter().all(|&byte| byte == 9));
                total += count;
            }
        }
    }
    writer.await.unwrap();
    assert_eq!(total, MORE_THAN_BUFFERS_HOLD);
}

pub async fn a_port_can_be_taken_once_and_is_freed(host: Host, _dir: PathBuf) {
    let first = host.bind(local()).await.unwrap();
    let address = first.local_addr().unwrap();
    assert_ne!(address.port(), 0);
    assert_eq!(host.bind(address).await.unwrap_err().kind(), ErrorKind::AddrInUse);
    let other = host.bind(local()).await.unwrap();
    assert_ne!(other.local_addr().unwrap().port(), address.port());
    // A connection that is still open does not keep the port from being listened on again.
    let _client = host.connect(address).await.unwrap();
    let (_server, _) = first.accept().await.unwrap();
    drop(first);
    host.bind(address).await.unwrap();
}

pub async fn a_foreign_address_cannot_be_taken(host: Host, _dir: PathBuf) {
    // Reserved for documentation: no machine has it.
    let foreign = "192.0.2.1:0".parse().unwrap();
    assert_eq!(host.bind(foreign).await.unwrap_err().kind(), ErrorKind::AddrNotAvailable);
}

pub async fn a_dropped_accept_loses_no_connection(host: Host, _dir: PathBuf) {
    let listener = host.bind(local()).await.unwrap();
    assert!(host.timeout(Duration::from_millis(10), listener.accept()).await.is_err());
    let mut client = host.connect(listener.local_addr().unwrap()).await.unwrap();
    client.write_all(b"x").await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    assert_eq!(server.read_u8().await.unwrap(), b'x');
}

pub async fn an_address_is_resolved_or_refused(host: Host, _dir: PathBuf) {
    assert_eq!(host.resolve("127.0.0.1:9876").await.unwrap(), "127.0.0.1:9876".parse().unwrap());
    for wrong in ["", "9876", ":9876", "name", "name:", "name:65536", "name:x"] {
        assert_eq!(host.resolve(wrong).await.unwrap_err().kind(), ErrorKind::InvalidInput, "`{wrong}`");
    }
    // A real machine reports it as its resolver does, under no kind that could be relied on.
    host.resolve("no-such-host.invalid:9876").await.unwrap_err();
}
