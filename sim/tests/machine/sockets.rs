//! TCP connections: each row of the table of `spec/simulation.md` 3.3, and what links do to them.

use std::{io::ErrorKind, time::Duration};

use host::{
    Host,
    net::{TcpListener, TcpStream},
};
use sim::{
    net::{Impairment, ImpairmentId, ImpairmentKind, Latency, NetConfig},
    seed::Seeds,
    stand::{self, NodeId, Stand, StandConfig},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{add, address, boot, finished, ms, on_stand, process, secs};

const PORT: u16 = 10_911;

/// Two nodes with a link of exactly 1 ms, and all they need for a connection from `a` to `b`.
struct Pair {
    stand: Stand,
    a: NodeId,
    b: NodeId,
    client: Host,
    server: Host,
    listener: TcpListener,
}

impl Pair {
    async fn new(stand: Stand) -> Pair {
        let (a, client) = boot(&stand, "a", 1).await;
        let (b, server) = boot(&stand, "b", 2).await;
        let listener = server.bind(address(2, PORT)).await.unwrap();
        Pair { stand, a, b, client, server, listener }
    }

    async fn connect(&self) -> (TcpStream, TcpStream) {
        let (near, far) = tokio::join!(self.client.connect(address(2, PORT)), self.listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    fn impair(&self, from: NodeId, to: NodeId, kind: ImpairmentKind) -> ImpairmentId {
        self.stand.impair(Impairment { from, to, port: None, kind })
    }

    fn heal(&self, cuts: [ImpairmentId; 2]) {
        for cut in cuts {
            self.stand.lift(cut);
        }
    }
}

fn exact() -> NetConfig {
    NetConfig { latency: Latency::Fixed(ms(1)), extra_max: Duration::ZERO, bandwidth: 0, ..NetConfig::default() }
}

/// Runs a test of two nodes whose link takes exactly 1 ms.
fn on_pair<F>(net: NetConfig, test: impl FnOnce(Pair) -> F + Send + 'static)
where
    F: Future<Output = ()> + 'static,
{
    let config = StandConfig { net, ..StandConfig::new(Seeds::from_root(7)) };
    finished(stand::run(config, std::sync::Arc::new(()), move |stand| async move {
        test(Pair::new(stand).await).await;
    }));
}

#[track_caller]
fn assert_about(passed: Duration, expected: Duration) {
    let late = passed.checked_sub(expected);
    assert!(late.is_some_and(|late| late < Duration::from_micros(100)), "{passed:?} instead of {expected:?}");
}

#[test]
fn a_connect_takes_a_round_trip_and_the_server_sees_it_half_a_trip_earlier() {
    on_pair(exact(), |pair| async move {
        let begin = pair.stand.now();
        let accepted = async {
            let accepted = pair.listener.accept().await.unwrap();
            (pair.stand.now(), accepted)
        };
        let connected = async {
            let connected = pair.client.connect(address(2, PORT)).await.unwrap();
            (pair.stand.now(), connected)
        };
        let ((accepted_at, (far, peer)), (connected_at, near)) = tokio::join!(accepted, connected);
        assert_about(accepted_at - begin, ms(1));
        assert_about(connected_at - begin, ms(2));
        assert_eq!(near.peer_addr().unwrap(), address(2, PORT));
        assert_eq!(near.local_addr().unwrap(), peer);
        assert_eq!(far.local_addr().unwrap(), address(2, PORT));
        assert_eq!(peer.ip(), address(1, 0).ip());
    });
}

#[test]
fn without_a_listener_a_connect_is_refused_after_a_round_trip() {
    on_pair(exact(), |pair| async move {
        let begin = pair.stand.now();
        let error = pair.client.connect(address(2, 1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert_about(pair.stand.now() - begin, ms(2));
        pair.stand.kill(pair.b);
        let error = pair.client.connect(address(2, PORT)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "the kernel is still there");
        let error = pair.client.connect(address(99, PORT)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::HostUnreachable);
    });
}

#[test]
fn a_connect_to_a_machine_without_power_times_out_after_127_seconds() {
    on_pair(exact(), |pair| async move {
        pair.stand.power_loss(&[pair.b], None, 1);
        let begin = pair.stand.now();
        let error = pair.client.connect(address(2, PORT)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_about(pair.stand.now() - begin, secs(127));
        assert_eq!(pair.stand.connections(), 0);
    });
}

#[test]
fn a_connect_over_a_cut_link_succeeds_with_the_first_syn_after_the_cut() {
    on_pair(exact(), |pair| async move {
        let _listening = &pair.listener;
        let cuts = pair.stand.cut(pair.a, pair.b);
        let begin = pair.stand.now();
        let lift = async {
            pair.stand.sleep(secs(5)).await;
            pair.heal(cuts);
        };
        let (connected, ()) = tokio::join!(pair.client.connect(address(2, PORT)), lift);
        connected.unwrap();
        assert_about(pair.stand.now() - begin, secs(7) + ms(2));
    });
}

#[test]
fn a_full_backlog_answers_nothing() {
    on_pair(exact(), |pair| async move {
        let mut streams = Vec::new();
        for _ in 0..128 {
            streams.push(pair.client.connect(address(2, PORT)).await.unwrap());
        }
        let connect = pair.client.connect(address(2, PORT));
        assert!(pair.client.timeout(secs(3), connect).await.is_err());
        // There is room again, and the next try gets through.
        drop(pair.listener.accept().await.unwrap());
        pair.client.connect(address(2, PORT)).await.unwrap();
    });
}

#[test]
fn with_the_reply_path_cut_the_server_holds_a_connection_that_nobody_uses() {
    on_pair(exact(), |pair| async move {
        pair.impair(pair.b, pair.a, ImpairmentKind::Drop);
        let connect = pair.client.connect(address(2, PORT));
        assert!(pair.client.timeout(secs(10), connect).await.is_err());
        let (mut half_open, _) = pair.listener.accept().await.unwrap();
        assert!(pair.server.timeout(secs(300), half_open.read_u8()).await.is_err());
    });
}

#[test]
fn a_shutdown_sends_the_end_behind_the_bytes_and_leaves_the_other_direction_open() {
    on_pair(exact(), |pair| async move {
        let (mut near, mut far) = pair.connect().await;
        near.write_all(b"question").await.unwrap();
        near.shutdown().await.unwrap();
        near.shutdown().await.unwrap();
        assert_eq!(near.write(b"more").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        let mut question = Vec::new();
        far.read_to_end(&mut question).await.unwrap();
        assert_eq!(question, b"question");
        far.write_all(b"answer").await.unwrap();
        drop(far);
        let mut answer = Vec::new();
        near.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"answer");
        drop(near);
        pair.stand.sleep(ms(10)).await;
        assert_eq!(pair.stand.connections(), 0);
    });
}

#[test]
fn dropping_the_write_half_sends_the_end_and_the_read_half_goes_on() {
    on_pair(exact(), |pair| async move {
        let (near, mut far) = pair.connect().await;
        let (mut read, write) = near.into_split();
        drop(write);
        assert_eq!(far.read(&mut [0; 8]).await.unwrap(), 0);
        far.write_all(b"still here").await.unwrap();
        drop(far);
        let mut got = Vec::new();
        read.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, b"still here");
    });
}

#[test]
fn closing_with_unread_bytes_resets_the_connection() {
    on_pair(exact(), |pair| async move {
        let (mut near, far) = pair.connect().await;
        near.write_all(b"unwanted").await.unwrap();
        pair.stand.sleep(ms(5)).await;
        drop(far);
        assert_eq!(near.read(&mut [0; 8]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(near.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe, "it is told once");
    });
}

#[test]
fn bytes_that_arrived_before_a_reset_can_still_be_read() {
    on_pair(exact(), |pair| async move {
        let (mut near, mut far) = pair.connect().await;
        near.write_all(b"unwanted").await.unwrap();
        far.write_all(b"last words").await.unwrap();
        pair.stand.sleep(ms(5)).await;
        drop(far);
        pair.stand.sleep(ms(5)).await;
        let mut words = [0; 10];
        near.read_exact(&mut words).await.unwrap();
        assert_eq!(&words, b"last words");
        assert_eq!(near.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn writing_to_a_closed_end_is_answered_by_a_reset() {
    on_pair(exact(), |pair| async move {
        let (mut near, far) = pair.connect().await;
        drop(far);
        pair.stand.sleep(ms(5)).await;
        near.write_all(b"late").await.unwrap();
        pair.stand.sleep(ms(5)).await;
        assert_eq!(near.write(b"later").await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_killed_process_says_goodbye_and_what_it_wrote_still_arrives() {
    on_pair(exact(), |pair| async move {
        let (mut near, mut far) = pair.connect().await;
        far.write_all(b"last words").await.unwrap();
        pair.stand.kill(pair.b);
        let mut words = Vec::new();
        let begin = pair.stand.now();
        near.read_to_end(&mut words).await.unwrap();
        assert_eq!(words, b"last words");
        assert_about(pair.stand.now() - begin, ms(1));
        assert!(far.write(b"x").await.is_err(), "a handle of the dead life does nothing");
    });
}

#[test]
fn the_goodbye_of_a_killed_process_waits_behind_a_cut() {
    on_pair(exact(), |pair| async move {
        let (mut near, _far) = pair.connect().await;
        let cuts = pair.stand.cut(pair.a, pair.b);
        pair.stand.kill(pair.b);
        assert!(pair.client.timeout(secs(20), near.read(&mut [0; 8])).await.is_err());
        pair.heal(cuts);
        let begin = pair.stand.now();
        assert_eq!(near.read(&mut [0; 8]).await.unwrap(), 0);
        // Tries come 0.2, 0.6, 1.4 ... 25.4 s after the first.
        assert!(pair.stand.now() - begin < secs(6));
    });
}

#[test]
fn a_killed_process_with_unread_bytes_resets() {
    on_pair(exact(), |pair| async move {
        let (mut near, _far) = pair.connect().await;
        near.write_all(b"unread").await.unwrap();
        pair.stand.sleep(ms(5)).await;
        pair.stand.kill(pair.b);
        assert_eq!(near.read(&mut [0; 8]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_peer_without_power_is_noticed_by_the_retransmission_limit_only() {
    on_pair(exact(), |pair| async move {
        let (mut near, _far) = pair.connect().await;
        pair.stand.power_loss(&[pair.b], None, 1);
        assert!(pair.client.timeout(secs(200), near.read(&mut [0; 8])).await.is_err(), "silence is no news");
        let begin = pair.stand.now();
        near.write_all(b"anyone there").await.unwrap();
        assert_eq!(near.read(&mut [0; 8]).await.unwrap_err().kind(), ErrorKind::TimedOut);
        assert_about(pair.stand.now() - begin, secs(120) + ms(1));
        assert_eq!(near.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_machine_that_is_back_resets_what_it_does_not_know() {
    on_pair(exact(), |pair| async move {
        let (mut near, _far) = pair.connect().await;
        pair.stand.power_loss(&[pair.b], None, 1);
        pair.stand.sleep(secs(5)).await;
        let _new = process(&pair.stand, pair.b).await;
        let begin = pair.stand.now();
        near.write_all(b"as we were saying").await.unwrap();
        assert_eq!(near.read(&mut [0; 8]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_about(pair.stand.now() - begin, ms(2));
    });
}

#[test]
fn a_paused_reader_stops_its_writer_without_an_error() {
    on_pair(exact(), |pair| async move {
        let (mut near, mut far) = pair.connect().await;
        pair.stand.pause(pair.b);
        let mut written = 0;
        let chunk = [7; 10_000];
        while let Ok(taken) = pair.client.timeout(secs(1), near.write(&chunk)).await {
            written += taken.unwrap();
        }
        assert_eq!(written, 2 * 256 * 1024, "both buffers are full");
        pair.stand.resume(pair.b);
        let mut read = vec![0; 300_000];
        far.read_exact(&mut read).await.unwrap();
        assert!(pair.client.timeout(secs(1), near.write(&chunk)).await.is_ok(), "there is room again");
    });
}

#[test]
fn what_a_cut_link_drops_arrives_late_and_in_order() {
    on_pair(exact(), |pair| async move {
        let (mut near, mut far) = pair.connect().await;
        let cuts = pair.stand.cut(pair.a, pair.b);
        for number in 0..100_u32 {
            near.write_u32(number).await.unwrap();
            pair.stand.sleep(ms(100)).await;
        }
        assert!(pair.server.timeout(ms(10), far.read_u8()).await.is_err());
        pair.heal(cuts);
        for number in 0..100_u32 {
            assert_eq!(far.read_u32().await.unwrap(), number);
        }
        assert!(pair.stand.now() < secs(14), "the try after 12.6 s got through");
    });
}

#[test]
fn what_waits_on_a_connection_given_up_never_arrives() {
    for is_given_up in [false, true] {
        on_pair(exact(), move |pair| async move {
            let (near, mut far) = pair.connect().await;
            let (read, mut write) = near.into_split();
            let cuts = pair.stand.cut(pair.a, pair.b);
            write.write_all(b"late").await.unwrap();
            if is_given_up {
                write.abort();
            }
            drop((read, write));
            pair.stand.sleep(secs(5)).await;
            pair.heal(cuts);
            let mut late = [0; 4];
            let arrived = pair.server.timeout(secs(30), far.read_exact(&mut late)).await;
            assert_eq!(arrived.is_ok_and(|read| read.is_ok()), !is_given_up);
        });
    }
}

#[test]
fn what_a_link_holds_arrives_at_once_when_it_lets_go() {
    on_pair(exact(), |pair| async move {
        let (mut near, mut far) = pair.connect().await;
        let hold = pair.impair(pair.a, pair.b, ImpairmentKind::Hold);
        for number in 0..50_u32 {
            near.write_u32(number).await.unwrap();
            pair.stand.sleep(ms(100)).await;
        }
        drop(near);
        pair.stand.sleep(ms(5)).await;
        pair.stand.lift(hold);
        let begin = pair.stand.now();
        let mut all = Vec::new();
        far.read_to_end(&mut all).await.unwrap();
        assert_eq!(all.len(), 200);
        assert_about(pair.stand.now() - begin, Duration::ZERO);
    });
}

#[test]
fn with_the_way_back_cut_bytes_arrive_but_the_writer_is_stopped_and_gives_up() {
    on_pair(exact(), |pair| async move {
        let (mut near, mut far) = pair.connect().await;
        pair.impair(pair.b, pair.a, ImpairmentKind::Drop);
        near.write_all(b"one way").await.unwrap();
        let mut got = [0; 7];
        far.read_exact(&mut got).await.unwrap();
        near.write_all(b"never sent").await.unwrap();
        assert!(pair.server.timeout(secs(60), far.read_u8()).await.is_err());
        assert_eq!(near.read(&mut [0; 8]).await.unwrap_err().kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn a_window_that_opened_behind_a_cut_is_used_after_it() {
    on_pair(exact(), |pair| async move {
        let (mut near, mut far) = pair.connect().await;
        near.write_all(&vec![1; 256 * 1024]).await.unwrap();
        pair.stand.sleep(ms(10)).await;
        near.write_all(&vec![2; 100_000]).await.unwrap();
        let cut = pair.impair(pair.b, pair.a, ImpairmentKind::Drop);
        let mut first = vec![0; 256 * 1024];
        far.read_exact(&mut first).await.unwrap();
        pair.stand.sleep(secs(1)).await;
        pair.stand.lift(cut);
        let mut rest = vec![0; 100_000];
        pair.server.timeout(secs(3), far.read_exact(&mut rest)).await.unwrap().unwrap();
        assert!(rest.iter().all(|&byte| byte == 2));
    });
}

#[test]
fn a_cut_of_one_port_leaves_the_others_alone() {
    on_pair(exact(), |pair| async move {
        let other = pair.server.bind(address(2, 10_912)).await.unwrap();
        let (near, far) = pair.connect().await;
        for (from, to) in [(pair.a, pair.b), (pair.b, pair.a)] {
            pair.stand.impair(Impairment { from, to, port: Some(10_912), kind: ImpairmentKind::Drop });
        }
        let (mut near, mut far) = (near, far);
        near.write_u8(1).await.unwrap();
        far.read_u8().await.unwrap();
        let connect = pair.client.connect(address(2, 10_912));
        assert!(pair.client.timeout(secs(5), connect).await.is_err());
        pair.stand.lift_all();
        let (connected, accepted) = tokio::join!(pair.client.connect(address(2, 10_912)), other.accept());
        drop((connected.unwrap(), accepted.unwrap()));
    });
}

#[test]
fn a_listener_takes_its_port_and_its_backlog_with_it() {
    on_pair(exact(), |pair| async move {
        let error = pair.server.bind(address(2, PORT)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        let any = format!("0.0.0.0:{PORT}").parse().unwrap();
        assert_eq!(pair.server.bind(any).await.unwrap_err().kind(), ErrorKind::AddrInUse);
        assert_eq!(pair.server.bind(address(1, 5)).await.unwrap_err().kind(), ErrorKind::AddrNotAvailable);
        let mut near = pair.client.connect(address(2, PORT)).await.unwrap();
        drop(pair.listener);
        assert_eq!(near.read(&mut [0; 8]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        let again = pair.server.bind(any).await.unwrap();
        let chosen = pair.server.bind(address(2, 0)).await.unwrap();
        assert_ne!(chosen.local_addr().unwrap().port(), 0);
        let loopback = format!("127.0.0.1:{PORT}").parse().unwrap();
        let (near, accepted) = tokio::join!(pair.server.connect(loopback), again.accept());
        assert!(accepted.unwrap().1.ip().is_loopback());
        drop(near.unwrap());
    });
}

#[test]
fn names_are_known_only_if_the_stand_was_told() {
    on_stand(|stand| async move {
        let (_, host) = boot(&stand, "a", 1).await;
        assert_eq!(host.resolve("localhost:1").await.unwrap(), "127.0.0.1:1".parse().unwrap());
        assert_eq!(host.resolve("a:1").await.unwrap_err().kind(), ErrorKind::NotFound);
        stand.name_address("a", stand.ip(sim::stand::NodeId(0)));
        assert_eq!(host.resolve("a:1").await.unwrap(), address(1, 1));
    });
}

#[test]
fn a_node_talks_to_itself_within_microseconds_whatever_its_links_do() {
    on_stand(|stand| async move {
        let (node, host) = boot(&stand, "a", 1).await;
        let other = add(&stand, "b", 2);
        stand.cut(node, other);
        let listener = host.bind(address(1, PORT)).await.unwrap();
        let begin = stand.now();
        let (near, far) = tokio::join!(host.connect(address(1, PORT)), listener.accept());
        drop((near.unwrap(), far.unwrap()));
        assert!(stand.now() - begin < Duration::from_micros(50));
    });
}

#[test]
fn a_link_is_as_fast_as_its_bandwidth_and_as_slow_as_its_impairment() {
    let net = NetConfig { bandwidth: 10_000_000, ..exact() };
    on_pair(net, |pair| async move {
        let (near, far) = pair.connect().await;
        let (_, mut write) = near.into_split();
        let (mut read, _keep) = far.into_split();
        let mut seconds = Vec::new();
        for limit in [None, Some(1_000_000)] {
            let slow = limit.map(|limit| pair.impair(pair.a, pair.b, ImpairmentKind::Bandwidth(limit)));
            let begin = pair.stand.now();
            let sent = vec![0; 20_000_000];
            let mut received = vec![0; 20_000_000];
            let (sent, received) = tokio::join!(write.write_all(&sent), read.read_exact(&mut received));
            sent.unwrap();
            received.unwrap();
            seconds.push((pair.stand.now() - begin).as_secs_f64());
            if let Some(slow) = slow {
                pair.stand.lift(slow);
            }
        }
        assert!((1.98..2.02).contains(&seconds[0]), "{seconds:?}");
        assert!((19.8..20.2).contains(&seconds[1]), "{seconds:?}");
    });
}

#[test]
fn latencies_are_distributed_as_configured() {
    let latency = Latency::Exponential { min: ms(1), mean: ms(3) };
    on_pair(NetConfig { latency, ..exact() }, |pair| async move {
        let (mut near, mut far) = pair.connect().await;
        let mut travelled = Vec::new();
        for _ in 0..20_000 {
            let begin = pair.stand.now();
            near.write_u8(0).await.unwrap();
            far.read_u8().await.unwrap();
            travelled.push((pair.stand.now() - begin).as_secs_f64() * 1e3);
        }
        travelled.sort_by(f64::total_cmp);
        let mean = travelled.iter().sum::<f64>() / travelled.len() as f64;
        assert!((2.94..3.06).contains(&mean), "mean {mean}");
        assert!(travelled[0] >= 1.0, "min {}", travelled[0]);
        let p50 = travelled[10_000];
        assert!((2.33..2.44).contains(&p50), "p50 {p50}, 1 + 2 ln 2 expected");
    });
}

#[test]
fn a_lossy_link_delays_and_loses_nothing() {
    on_pair(exact(), |pair| async move {
        let (mut near, mut far) = pair.connect().await;
        pair.impair(pair.a, pair.b, ImpairmentKind::Loss(100_000));
        let mut late = 0;
        for number in 0..1_000_u32 {
            let begin = pair.stand.now();
            near.write_u32(number).await.unwrap();
            assert_eq!(far.read_u32().await.unwrap(), number);
            late += u32::from(pair.stand.now() - begin > ms(200));
        }
        assert!((70..130).contains(&late), "{late} of 1000 were late");
    });
}

#[test]
fn a_slower_link_is_slower_by_what_was_asked() {
    on_pair(exact(), |pair| async move {
        let (mut near, mut far) = pair.connect().await;
        let slow = pair.impair(pair.a, pair.b, ImpairmentKind::Latency(Latency::Fixed(ms(49))));
        let begin = pair.stand.now();
        near.write_u8(0).await.unwrap();
        far.read_u8().await.unwrap();
        assert_about(pair.stand.now() - begin, ms(50));
        pair.stand.lift(slow);
        let begin = pair.stand.now();
        far.write_u8(0).await.unwrap();
        near.read_u8().await.unwrap();
        assert_about(pair.stand.now() - begin, ms(1));
    });
}

#[test]
fn a_slow_link_takes_so_many_times_as_long() {
    let net = NetConfig { bandwidth: 1_000_000, ..exact() };
    on_pair(net, |pair| async move {
        let (mut near, mut far) = pair.connect().await;
        let slow = pair.impair(pair.a, pair.b, ImpairmentKind::Slow(30));
        for _ in 0..2 {
            let begin = pair.stand.now();
            near.write_all(&[0; 50_000]).await.unwrap();
            far.read_exact(&mut [0; 50_000]).await.unwrap();
            assert_about(pair.stand.now() - begin, ms(30));
            // The wire is busy with it for 30 times 50 ms.
            pair.stand.sleep(ms(1_500)).await;
        }
        assert!(pair.stand.lift(slow) >= 2, "two segments and perhaps parts of them");
        let begin = pair.stand.now();
        near.write_u8(0).await.unwrap();
        far.read_u8().await.unwrap();
        assert_about(pair.stand.now() - begin, ms(1));
    });
}

#[test]
fn what_waits_for_a_narrow_link_goes_on_at_the_usual_rate_when_that_ends() {
    let net = NetConfig { bandwidth: 1_000_000, ..exact() };
    on_pair(net, |pair| async move {
        let (mut near, mut far) = pair.connect().await;
        let narrow = pair.impair(pair.a, pair.b, ImpairmentKind::Bandwidth(64));
        let begin = pair.stand.now();
        near.write_all(&[1; 100_000]).await.unwrap();
        let lift = async {
            pair.stand.sleep(secs(10)).await;
            pair.stand.lift(narrow);
        };
        let mut received = vec![0; 100_000];
        let (received, ()) = tokio::join!(far.read_exact(&mut received), lift);
        received.unwrap();
        // Segments are cut anywhere. The last of them begins when all bytes before it are on the wire, of which 640 were.
        let after = pair.stand.now() - begin - secs(10);
        assert!((ms(1)..=ms(101)).contains(&after), "{after:?}");
        // The wire is free again when all of them are.
        pair.stand.sleep(ms(101)).await;
        let begin = pair.stand.now();
        near.write_u8(2).await.unwrap();
        assert_eq!(far.read_u8().await.unwrap(), 2);
        assert_about(pair.stand.now() - begin, ms(1));
    });
}

#[test]
fn a_limit_of_one_port_leaves_the_others_at_the_usual_rate() {
    const OTHER: u16 = PORT + 1;
    let net = NetConfig { bandwidth: 1_000_000, ..exact() };
    on_pair(net, |pair| async move {
        let listener = pair.server.bind(address(2, OTHER)).await.unwrap();
        let (mut near, mut far) = pair.connect().await;
        let (other_near, other_far) = tokio::join!(pair.client.connect(address(2, OTHER)), listener.accept());
        let (mut other_near, mut other_far) = (other_near.unwrap(), other_far.unwrap().0);
        let kind = ImpairmentKind::Bandwidth(1_000);
        let narrow = pair.stand.impair(Impairment { from: pair.a, to: pair.b, port: Some(PORT), kind });
        let begin = pair.stand.now();
        // The last byte waits until the wire is free of those before it.
        near.write_all(&[1; 50_000]).await.unwrap();
        pair.stand.sleep(ms(1)).await;
        near.write_u8(1).await.unwrap();
        let slow = async {
            far.read_exact(&mut [0; 50_001]).await.unwrap();
            pair.stand.now() - begin
        };
        let others = async {
            other_near.write_all(&[2; 50_000]).await.unwrap();
            pair.stand.sleep(ms(1)).await;
            other_near.write_u8(2).await.unwrap();
            other_far.read_exact(&mut [0; 50_001]).await.unwrap();
            let passed = pair.stand.now() - begin;
            pair.stand.sleep(secs(10)).await;
            pair.stand.lift(narrow);
            passed
        };
        let (slow, others) = tokio::join!(slow, others);
        // They began after 1 ms; of 50,000 bytes at a million a second the wire is free 50 ms later, and the last byte
        // travels for one.
        assert_about(others, ms(52));
        // About 10,050 were on the narrow wire by then; what is left takes 40 ms.
        assert_about(slow, others + secs(10) + ms(41) - Duration::from_micros(52));
        // The port is back on the wire that all share.
        pair.stand.sleep(ms(51)).await;
        let begin = pair.stand.now();
        near.write_u8(3).await.unwrap();
        assert_eq!(far.read_u8().await.unwrap(), 3);
        assert_about(pair.stand.now() - begin, ms(1));
    });
}

#[test]
fn the_wire_takes_what_is_left_of_the_bytes_and_no_less() {
    let net = NetConfig { bandwidth: 1_000_000, ..exact() };
    on_pair(net, |pair| async move {
        let (mut near, mut far) = pair.connect().await;
        let narrow = pair.impair(pair.a, pair.b, ImpairmentKind::Bandwidth(1_000));
        // The first byte goes at once, the other 50,000 as one segment or as several behind it.
        near.write_u8(0).await.unwrap();
        pair.stand.sleep(ms(1)).await;
        near.write_all(&[1; 50_000]).await.unwrap();
        pair.stand.sleep(secs(10)).await;
        pair.stand.lift(narrow);
        let begin = pair.stand.now();
        near.write_u8(2).await.unwrap();
        far.read_exact(&mut [0; 50_001]).await.unwrap();
        assert_eq!(far.read_u8().await.unwrap(), 2);
        // 10,000 were on the wire; 40,000 take 40 ms, and then the last byte 1 ms.
        assert_about(pair.stand.now() - begin, ms(41));
    });
}

#[test]
fn what_is_on_a_slow_link_goes_on_as_fast_as_usual_when_that_ends() {
    on_pair(exact(), |pair| async move {
        let (mut near, mut far) = pair.connect().await;
        let slow = [(pair.a, pair.b), (pair.b, pair.a)]
            .map(|(from, to)| pair.impair(from, to, ImpairmentKind::Slow(10_000_000)));
        near.write_u8(1).await.unwrap();
        let lift = async {
            pair.stand.sleep(secs(2)).await;
            pair.heal(slow);
            pair.stand.now()
        };
        // What opens a connection is no part of a stream, and moves as well.
        let connect = pair.client.connect(address(2, PORT));
        let read = async {
            let read = far.read_u8().await;
            (pair.stand.now(), read)
        };
        let (connected, (read_at, read), lifted) = tokio::join!(connect, read, lift);
        connected.unwrap();
        assert_eq!(read.unwrap(), 1);
        assert_about(read_at - lifted, ms(1) - Duration::from_micros(1));
        assert_about(pair.stand.now() - lifted, ms(2) - Duration::from_micros(1));
    });
}

#[test]
fn one_of_two_impairments_that_ends_leaves_the_other() {
    let net = NetConfig { bandwidth: 1_000_000, ..exact() };
    on_pair(net, |pair| async move {
        let (mut near, mut far) = pair.connect().await;
        let narrow = [100, 10_000].map(|limit| pair.impair(pair.a, pair.b, ImpairmentKind::Bandwidth(limit)));
        near.write_u8(0).await.unwrap();
        pair.stand.sleep(ms(10)).await;
        near.write_all(&[1; 50_000]).await.unwrap();
        pair.stand.lift(narrow[0]);
        let begin = pair.stand.now();
        // Later than what it must wait for, or it would go with it.
        pair.stand.sleep(ms(1)).await;
        near.write_u8(2).await.unwrap();
        far.read_exact(&mut [0; 50_001]).await.unwrap();
        assert_eq!(far.read_u8().await.unwrap(), 2);
        assert_about(pair.stand.now() - begin, secs(5) + ms(1));
    });
}

#[test]
fn a_lost_segment_is_counted() {
    on_pair(exact(), |pair| async move {
        let (mut near, mut far) = pair.connect().await;
        let always = pair.impair(pair.a, pair.b, ImpairmentKind::Loss(1_000_000));
        for number in 0..10_u32 {
            let begin = pair.stand.now();
            near.write_u32(number).await.unwrap();
            assert_eq!(far.read_u32().await.unwrap(), number);
            assert_about(pair.stand.now() - begin, ms(601));
        }
        assert!(pair.stand.lift(always) >= 20, "each is lost twice");
        assert_eq!(pair.stand.lift(always), 0, "it has ended");
    });
}

#[test]
fn a_reset_from_outside_tells_one_end_and_the_other_finds_out() {
    on_pair(exact(), |pair| async move {
        let (mut near, mut far) = pair.connect().await;
        assert_eq!(pair.stand.reset(vec![(pair.b, pair.a)], Some(PORT + 1)), 0, "no connection has this port");
        assert_eq!(pair.stand.reset(vec![(pair.b, pair.a)], Some(PORT)), 1);
        assert_eq!(near.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        far.write_u8(1).await.unwrap();
        assert_eq!(far.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        let (mut near, mut far) = pair.connect().await;
        assert_eq!(pair.stand.reset(vec![(pair.b, pair.a), (pair.a, pair.b)], None), 1);
        assert_eq!(near.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(far.read_u8().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        let (mut near, mut far) = pair.connect().await;
        near.write_u8(7).await.unwrap();
        assert_eq!(far.read_u8().await.unwrap(), 7, "a new connection works");
    });
}

#[test]
fn ignored_connects_get_through_when_that_ends_and_open_connections_go_on() {
    on_pair(exact(), |pair| async move {
        let (mut near, mut far) = pair.connect().await;
        let ignored = pair.impair(pair.a, pair.b, ImpairmentKind::NoConnects);
        let begin = pair.stand.now();
        let traffic = async {
            near.write_u8(7).await.unwrap();
            assert_eq!(far.read_u8().await.unwrap(), 7);
            assert_about(pair.stand.now() - begin, ms(1));
            pair.stand.sleep_until(begin + secs(5)).await;
            pair.stand.lift(ignored)
        };
        let (connected, ignored) = tokio::join!(pair.client.connect(address(2, PORT)), traffic);
        connected.unwrap();
        assert_about(pair.stand.now() - begin, secs(7) + ms(2));
        assert_eq!(ignored, 3, "after 0, 1 and 3 seconds");
    });
}

#[test]
fn writes_are_short_now_and_then() {
    on_pair(exact(), |pair| async move {
        let (mut near, mut far) = pair.connect().await;
        let mut short = 0;
        for _ in 0..1_000 {
            let taken = near.write(&[0; 100]).await.unwrap();
            short += u32::from(taken < 100);
            far.read_exact(&mut vec![0; taken]).await.unwrap();
        }
        assert!((10..60).contains(&short), "{short} of 1000 were short");
    });
}

/// Byte number `at` of what [`a_stream_is_never_wrong_whatever_its_link_does`] sends.
fn byte(at: usize) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 11) as u8
}

#[test]
fn a_stream_is_never_wrong_whatever_its_link_does() {
    const BYTES: usize = 700_000;
    for seed in 0..16 {
        let config = StandConfig::new(Seeds::from_root(seed));
        finished(stand::run(config, std::sync::Arc::new(()), |stand| async move {
            let pair = Pair::new(stand).await;
            let (near, far) = pair.connect().await;
            let (_keep, mut write) = near.into_split();
            let (mut read, _keep_too) = far.into_split();
            let mut pace = pair.client.rng("writer");
            let writer = async {
                let mut sent = 0;
                while sent < BYTES {
                    let chunk: Vec<u8> = (sent..BYTES.min(sent + 1 + pace.below(9_000) as usize)).map(byte).collect();
                    sent += write.write(&chunk).await.unwrap();
                    pair.client.sleep(Duration::from_micros(pace.below(40_000))).await;
                }
                write.shutdown().await.unwrap();
            };
            let mut pace = pair.server.rng("reader");
            let reader = async {
                let mut got = 0;
                loop {
                    let mut buffer = vec![0; 1 + pace.below(30_000) as usize];
                    let length = read.read(&mut buffer).await.unwrap();
                    if length == 0 {
                        return got;
                    }
                    for (at, &value) in buffer[..length].iter().enumerate() {
                        assert_eq!(value, byte(got + at), "byte {}", got + at);
                    }
                    got += length;
                    pair.server.sleep(Duration::from_micros(pace.below(60_000))).await;
                }
            };
            let faults = hurt(&pair);
            let (got, (), ()) = tokio::join!(reader, writer, faults);
            assert_eq!(got, BYTES);
        }));
    }
}

/// Impairs the link in every way, one after the other and two at a time.
async fn hurt(pair: &Pair) {
    let mut chance = pair.client.rng("faults");
    for _ in 0..12 {
        let ends = if chance.below(2) == 0 { (pair.a, pair.b) } else { (pair.b, pair.a) };
        let kinds = [
            ImpairmentKind::Drop,
            ImpairmentKind::Hold,
            ImpairmentKind::Loss(300_000),
            ImpairmentKind::Latency(Latency::Uniform(ms(1), ms(200))),
            ImpairmentKind::Bandwidth(50_000),
            ImpairmentKind::Bandwidth(64),
            ImpairmentKind::Slow(100_000),
        ];
        let kind = |draw: u64| kinds[draw as usize];
        let first = pair.impair(ends.0, ends.1, kind(chance.below(7)));
        let second = pair.impair(ends.1, ends.0, kind(chance.below(7)));
        let third = pair.impair(ends.0, ends.1, kind(chance.below(7)));
        pair.stand.sleep(Duration::from_micros(chance.below(1_500_000))).await;
        pair.stand.lift(first);
        pair.stand.sleep(Duration::from_micros(chance.below(500_000))).await;
        pair.stand.lift(second);
        pair.stand.sleep(Duration::from_micros(chance.below(500_000))).await;
        pair.stand.lift(third);
    }
}
