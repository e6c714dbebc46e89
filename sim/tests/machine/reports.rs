//! Faults of simulators that were reported in public, theme 13 of the collection of cases: the machine must not have
//! them. P108 is `closing_with_unread_bytes_resets` of the conformance suite, on both machines; P110 and P111 need the
//! product and stand in the tests of the scenarios.

use std::io::ErrorKind;

use host::{Host, net::TcpListener};
use sim::{net::OpenStream, stand::Stand};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{Seen, add, address, boot, ms, on_stand, process, secs, spawn_on};

const PORT: u16 = 9_876;

/// Answers every byte with the next one.
async fn serve(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let host = Host::current();
        host.spawn("answers", async move {
            while let Ok(byte) = stream.read_u8().await {
                if stream.write_u8(byte.wrapping_add(1)).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// A node whose process serves from its start.
fn server(stand: &Stand, last: u8) -> sim::stand::NodeId {
    let node = add(stand, "server", last);
    spawn_on(stand, node, move |host| async move {
        serve(host.bind(address(last, PORT)).await.expect("a new life finds its port free")).await;
    });
    node
}

async fn ask(client: &Host, byte: u8) -> std::io::Result<u8> {
    let mut stream = client.connect(address(2, PORT)).await?;
    stream.write_u8(byte).await?;
    stream.read_u8().await
}

#[test]
fn p105_the_first_request_after_a_restart_is_answered() {
    on_stand(|stand| async move {
        let (_, client) = boot(&stand, "client", 1).await;
        let node = server(&stand, 2);
        stand.sleep(ms(1)).await;
        assert_eq!(ask(&client, 7).await.unwrap(), 8);
        stand.kill(node);
        stand.sleep(secs(5)).await;
        stand.restart(node);
        // At once: the listener may not be up yet, but nothing may hang.
        match client.timeout(secs(1), ask(&client, 7)).await.expect("answered or refused, within a second") {
            Ok(answer) => assert_eq!(answer, 8),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionRefused),
        }
        stand.sleep(ms(10)).await;
        assert_eq!(client.timeout(secs(1), ask(&client, 7)).await.unwrap().unwrap(), 8);
    });
}

#[test]
fn p106_a_peer_of_a_restarted_node_is_told_within_the_latency_of_the_network() {
    on_stand(|stand| async move {
        let (_, client) = boot(&stand, "client", 1).await;
        let node = server(&stand, 2);
        stand.sleep(ms(1)).await;
        let mut stream = client.connect(address(2, PORT)).await.unwrap();
        stream.write_u8(1).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), 2);
        stand.kill(node);
        stand.restart(node);
        let begin = stand.now();
        let ended = client.timeout(secs(10), stream.read_u8()).await.expect("the reader is told");
        assert!(matches!(ended.unwrap_err().kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset));
        assert!(stand.now() - begin < ms(50), "{:?}", stand.now() - begin);
        // The first bytes may still be taken, as by a real socket; the answer to them ends it.
        let write = async {
            loop {
                stream.write_u8(1).await?;
                client.sleep(ms(1)).await;
            }
        };
        let error: std::io::Error = match client.timeout(secs(1), write).await.expect("writes fail") {
            Ok(()) => unreachable!("the loop ends by an error only"),
            Err(error) => error,
        };
        assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
        assert_eq!(ask(&client, 3).await.unwrap(), 4);
    });
}

/// What may pile up in a run.
#[derive(Debug, PartialEq)]
struct Held {
    tasks: usize,
    connections: usize,
    streams: Vec<OpenStream>,
}

#[test]
fn p107_nothing_is_left_of_connections_and_lives_that_ended() {
    on_stand(|stand| async move {
        let (client_node, client) = boot(&stand, "client", 1).await;
        let node = server(&stand, 2);
        stand.sleep(ms(1)).await;
        let held = || Held {
            tasks: stand.tasks(node) + stand.tasks(client_node),
            connections: stand.connections(),
            streams: stand.open_streams(),
        };
        let mut after_few = None;
        for cycle in 1..=1_000_u32 {
            assert_eq!(ask(&client, 1).await.unwrap(), 2);
            if cycle % 10 == 0 {
                stand.kill(node);
                stand.restart(node);
                stand.sleep(ms(1)).await;
            }
            if cycle == 10 {
                stand.sleep(secs(1)).await;
                after_few = Some(held());
            }
        }
        stand.sleep(secs(1)).await;
        assert_eq!(Some(held()), after_few);
    });
}

#[test]
fn p109_all_nodes_read_one_time_and_it_goes_on_over_a_crash() {
    on_stand(|stand| async move {
        let nodes = [("a", 1), ("b", 2), ("c", 3)].map(|(name, last)| add(&stand, name, last));
        stand.set_skew(nodes[1], 250);
        let offsets = Seen::new();
        for node in nodes {
            let (told, truth) = (offsets.clone(), stand.clone());
            spawn_on(&stand, node, move |host| {
                let (told, truth) = (told.clone(), truth.clone());
                async move {
                    loop {
                        told.add((host.node().to_string(), host.incarnation(), host.wall_ms() - truth.true_wall_ms()));
                        host.sleep(secs(1)).await;
                    }
                }
            });
        }
        stand.sleep(secs(10)).await;
        stand.kill(nodes[2]);
        stand.sleep(secs(1)).await;
        stand.restart(nodes[2]);
        stand.sleep(secs(50)).await;
        let offsets = offsets.all();
        for (node, life, offset, least) in [("a", 1, 0, 60), ("b", 1, 250, 60), ("c", 1, 0, 10), ("c", 2, 0, 50)] {
            let of_life = offsets.iter().filter(|(name, in_life, _)| name == node && *in_life == life);
            let of_life: Vec<i64> = of_life.map(|&(_, _, offset)| offset).collect();
            assert!(of_life.len() >= least, "{node}#{life} read {} times", of_life.len());
            assert!(of_life.iter().all(|&read| read == offset), "{node}#{life}: {of_life:?}");
        }
    });
}

#[test]
fn p112_a_timer_is_never_early_and_late_by_less_than_its_grain() {
    /// Virtual time moves on by some nanoseconds with every poll, and is never rounded.
    const GRAIN_NANOS: u64 = 1_000;
    on_stand(|stand| async move {
        let late = Seen::new();
        let told = late.clone();
        spawn_on(&stand, add(&stand, "a", 1), move |host| {
            let late = told.clone();
            async move {
                for micros in [100, 500, 1_000] {
                    let deadline = host.now() + std::time::Duration::from_micros(micros);
                    host.sleep_until(deadline).await;
                    assert!(host.now() >= deadline, "early");
                    late.add((host.now() - deadline).as_nanos() as u64);
                }
            }
        });
        stand.sleep(secs(1)).await;
        assert_eq!(late.all().len(), 3);
        assert!(late.all().iter().all(|&late| late < GRAIN_NANOS), "{:?}", late.all());
    });
}

#[test]
fn p113_an_end_a_death_and_a_clogged_link_are_told_apart() {
    on_stand(|stand| async move {
        let (near_node, client) = boot(&stand, "client", 1).await;
        let (far_node, far) = boot(&stand, "far", 2).await;
        let listener = far.bind(address(2, PORT)).await.unwrap();
        let connect = async || {
            let (near, far) = tokio::join!(client.connect(address(2, PORT)), listener.accept());
            (near.unwrap(), far.unwrap().0)
        };
        // (a) The rest of the data, then the end.
        let (mut near, mut peer) = connect().await;
        peer.write_all(b"the rest").await.unwrap();
        drop(peer);
        let mut rest = Vec::new();
        near.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"the rest");
        // (c) Nothing while the link is clogged, then everything in order.
        let (mut near, mut peer) = connect().await;
        let cuts = stand.cut(near_node, far_node);
        peer.write_all(b"one ").await.unwrap();
        peer.write_all(b"two").await.unwrap();
        let mut both = [0; 7];
        assert!(client.timeout(secs(60), near.read_u8()).await.is_err(), "no data, no end, no reset");
        for cut in cuts {
            stand.lift(cut);
        }
        client.timeout(secs(61), near.read_exact(&mut both)).await.expect("it is sent again").unwrap();
        assert_eq!(&both, b"one two");
        // (b) A process that is killed with bytes unread: a reset. With none unread its kernel says a clean goodbye.
        near.write_all(b"unread").await.unwrap();
        stand.sleep(ms(50)).await;
        stand.kill(far_node);
        let error = client.timeout(secs(1), near.read_u8()).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        drop(process(&stand, far_node).await);
    });
}
