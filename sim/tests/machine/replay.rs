//! One seed, one run: in any process, in any surroundings, with logs or without.

use std::{net::SocketAddr, process::Command, time::Duration};

use host::Host;
use sim::{
    net::{Impairment, ImpairmentKind},
    seed::{Domain, Seeds},
    stand::{self, Stamp, Stand, StandConfig},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{add, address, finished, ms, secs};

/// Names the seed in the environment of a child.
const SEED: &str = "SF_TEST_REPLAY_SEED";
/// Tells a child to log everything.
const LOG: &str = "SF_TEST_REPLAY_LOG";
const CHILD: &str = "replay::a_child_prints_the_hash_of_its_run";

#[test]
fn equal_seeds_give_equal_hashes_in_different_processes_and_other_seeds_do_not() {
    let first = child(7, |_| {});
    let again = child(7, |command| {
        // Other addresses, another folder, another environment, and logs on.
        command.current_dir("/").env("SF_TEST_PADDING", "x".repeat(5_000)).env(LOG, "1");
    });
    assert_eq!(first, again);
    assert_ne!(first, child(8, |_| {}));
}

#[test]
fn equal_seeds_give_equal_hashes_in_one_process_too_if_no_product_code_runs() {
    assert_eq!(hash_of(7), hash_of(7));
}

/// Runs a child of this test binary, and gives the line it printed.
fn child(seed: u64, prepare: impl FnOnce(&mut Command)) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", CHILD, "--nocapture"]).env(SEED, seed.to_string());
    prepare(&mut command);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    // A wrong test name exits with 0 as well.
    let line = text.lines().find(|line| line.contains("hash="));
    line.unwrap_or_else(|| panic!("no result in {text}")).to_owned()
}

#[test]
fn a_child_prints_the_hash_of_its_run() {
    let Ok(seed) = std::env::var(SEED) else { return };
    if std::env::var(LOG).is_ok() {
        tracing_subscriber::fmt()
            .with_timer(Stamp)
            .with_max_level(tracing::Level::TRACE)
            .with_writer(std::io::stderr)
            .init();
    }
    println!("{}", hash_of(seed.parse().unwrap()));
}

fn hash_of(seed: u64) -> String {
    let run = stand::run(StandConfig::new(Seeds::from_root(seed)), std::sync::Arc::new(()), busy_minute);
    let (hash, count) = (run.side.hash, run.side.count);
    assert!(count > 1_000 && run.segments > 500, "{count} events, {} segments", run.segments);
    finished(run);
    format!("hash={hash:032x} count={count}")
}

/// Clients and servers under faults for a virtual minute.
async fn busy_minute(stand: Stand) {
    const FAULTS: Domain = Domain::named("test.faults");
    let servers = ["s0", "s1", "s2"].map(|name| (name, name.as_bytes()[1] - b'0' + 1));
    let nodes = servers.map(|(name, last)| {
        let node = add(&stand, name, last);
        stand.start(node, move |host, _| serve(host, address(last, 9_876)));
        node
    });
    for (name, last) in [("c0", 10), ("c1", 11)] {
        let node = add(&stand, name, last);
        stand.start(node, |host, _| async move {
            ask(host).await;
            Ok(())
        });
    }
    let mut draws = stand.seeds().plan.draws(FAULTS, 0);
    for round in 0..20 {
        stand.sleep(draws.at(round * 3).duration(ms(500)..=secs(5))).await;
        let node = nodes[draws.at(round * 3 + 1).below(3) as usize];
        match draws.at(round * 3 + 2).below(5) {
            0 => stand.kill(node),
            1 => drop(stand.power_loss(&[node], None, round)),
            2 => stand.pause(node),
            3 => {
                let (from, to) = (node, nodes[0]);
                stand.impair(Impairment { from, to, port: None, kind: ImpairmentKind::Drop });
            }
            _ => stand.set_drift(node, 20_000),
        }
        stand.sleep(ms(300)).await;
        stand.lift_all();
        stand.resume(node);
        if !matches!(stand.status(node), sim::stand::NodeStatus::Up { .. }) {
            stand.restart(node);
        }
    }
}

async fn serve(host: Host, on: SocketAddr) -> Result<(), String> {
    let listener = host.bind(on).await.map_err(|error| error.to_string())?;
    loop {
        let (mut stream, _) = listener.accept().await.map_err(|error| error.to_string())?;
        host.spawn("echo", async move {
            let mut bytes = [0; 512];
            while let Ok(length @ 1..) = stream.read(&mut bytes).await {
                tracing::info!(length, "echo");
                if stream.write_all(&bytes[..length]).await.is_err() {
                    return;
                }
            }
        });
    }
}

async fn ask(host: Host) {
    let mut rng = host.rng("ask");
    loop {
        let server = address(1 + rng.below(3) as u8, 9_876);
        let Ok(Ok(mut stream)) = host.timeout(secs(3), host.connect(server)).await else { continue };
        for _ in 0..rng.below(50) {
            let question = vec![1; 1 + rng.below(2_000) as usize];
            let mut answer = vec![0; question.len()];
            let asked = async {
                stream.write_all(&question).await?;
                stream.read_exact(&mut answer).await
            };
            if !matches!(host.timeout(secs(1), asked).await, Ok(Ok(_))) {
                break;
            }
            host.sleep(Duration::from_micros(rng.below(20_000))).await;
        }
    }
}
