//! Questions and answers of 256 bytes over a link of 1 ms: over our streams, and with `--features rivals` over madsim's
//! own network and turmoil's, in turns.

use crate::{costs, in_turns, nanos_each, table};

/// Rounds of one turn; each is two messages.
const ROUNDS: u64 = 20_000;

pub fn print() {
    let ours: Box<dyn FnMut()> = Box::new(|| costs::ping_pong(ROUNDS));
    #[cfg(not(feature = "rivals"))]
    let all = [("staticfire", ours)];
    #[cfg(feature = "rivals")]
    let all = [
        ("staticfire", ours),
        ("madsim", Box::new(|| rivals::madsim(ROUNDS)) as Box<dyn FnMut()>),
        ("turmoil", Box::new(|| rivals::turmoil(ROUNDS)) as Box<dyn FnMut()>),
    ];
    let (names, mut measurements): (Vec<&str>, Vec<_>) = all.into_iter().unzip();
    let times = in_turns(&mut measurements);
    let mut shown = table(&["ping-pong over", "each message", "of ours"]);
    for (name, time) in names.into_iter().zip(&times) {
        let each = format!("{:.0} ns", nanos_each(*time, 2 * ROUNDS));
        let share = format!("{:.2}", time.as_secs_f64() / times[0].as_secs_f64());
        shown.add_row([name, &each, &share]);
    }
    println!("{shown}");
    if !cfg!(feature = "rivals") {
        println!("(with `--features rivals` beside madsim's own network and turmoil)");
    }
}

#[cfg(feature = "rivals")]
mod rivals {
    use std::{
        net::{IpAddr, Ipv4Addr, SocketAddr},
        time::Duration,
    };

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const BYTES: usize = 256;
    const PORT: u16 = 9_876;
    const LATENCY: Duration = Duration::from_millis(1);

    pub fn madsim(rounds: u64) {
        let mut config = madsim::Config::default();
        config.net.send_latency = LATENCY..LATENCY + Duration::from_nanos(1);
        let runtime = madsim::runtime::Runtime::with_seed_and_config(7, config);
        let address = SocketAddr::from(([10, 0, 0, 1], PORT));
        let server = runtime.create_node().ip(address.ip()).build();
        let client = runtime.create_node().ip(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))).build();
        server.spawn(async move {
            let listener = madsim::net::TcpListener::bind(address).await.expect("the port is free");
            let (mut stream, _) = listener.accept().await.expect("the client comes");
            let mut question = [0; BYTES];
            while stream.read_exact(&mut question).await.is_ok() {
                stream.write_all(&question).await.expect("the client waits");
                stream.flush().await.expect("the client waits");
            }
        });
        let asked = client.spawn(async move {
            madsim::time::sleep(LATENCY).await;
            let mut stream = madsim::net::TcpStream::connect(address).await.expect("the server listens");
            let mut answer = [0; BYTES];
            for _ in 0..rounds {
                stream.write_all(&[1; BYTES]).await.expect("the server is there");
                stream.flush().await.expect("the server is there");
                stream.read_exact(&mut answer).await.expect("the server answers");
            }
        });
        runtime.block_on(asked).expect("the client does not panic");
    }

    pub fn turmoil(rounds: u64) {
        let mut sim = turmoil::Builder::new()
            .rng_seed(7)
            .tick_duration(LATENCY)
            .min_message_latency(LATENCY)
            .max_message_latency(LATENCY)
            .simulation_duration(Duration::from_secs(1_000_000))
            .build();
        sim.host("server", || async {
            let listener = turmoil::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await?;
            let (mut stream, _) = listener.accept().await?;
            let mut question = [0; BYTES];
            while stream.read_exact(&mut question).await.is_ok() {
                stream.write_all(&question).await?;
            }
            Ok(())
        });
        sim.client("client", async move {
            let mut stream = turmoil::net::TcpStream::connect(("server", PORT)).await?;
            let mut answer = [0; BYTES];
            for _ in 0..rounds {
                stream.write_all(&[1; BYTES]).await?;
                stream.read_exact(&mut answer).await?;
            }
            Ok(())
        });
        sim.run().expect("the client comes to its end");
    }
}
