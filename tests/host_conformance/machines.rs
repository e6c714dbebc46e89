//! Running a body on a machine.

use std::{future::Future, path::PathBuf};

use host::Host;

/// Runs a body on the real machine, in a fresh directory.
pub fn on_the_real_machine<F>(body: fn(Host, PathBuf) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    if let Err(error) = host::real::run("real", |host| body(host, path)) {
        panic!("{error}");
    }
}

#[cfg(feature = "sim")]
pub use stand::{alone, on_the_stand};

#[cfg(feature = "sim")]
mod stand {
    use std::{
        net::Ipv4Addr,
        process::Command,
        sync::{Arc, Mutex},
    };

    use sim::{
        disk::{Durability, Timing},
        seed::Seeds,
        stand::{Ended, NodeSpec, Observer, Place, Stand, StandConfig},
    };

    use super::*;

    /// Set in a child, which simulates instead of starting another child.
    const CHILD: &str = "STATICFIRE_CONFORMANCE_CHILD";

    /// Runs `simulate` in a child process that runs nothing but the test `name`.
    pub fn alone(name: &str, simulate: impl FnOnce()) {
        if std::env::var_os(CHILD).is_some() {
            simulate();
            return;
        }
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture", "--test-threads=1"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        // A wrong name runs no test and succeeds.
        let passed = output.status.success() && stdout.contains("1 passed");
        assert!(passed, "`{name}` in its own process: {}\n{stdout}\n{stderr}", output.status);
    }

    /// Keeps the first panic of a node.
    #[derive(Default)]
    struct FirstPanic(Mutex<Option<String>>);

    impl Observer for FirstPanic {
        fn panicked(&self, _stand: &Stand, place: &Place, task: &'static str, message: &str) {
            let text = format!("task `{task}` of {} panicked: {message}", place.name);
            self.0.lock().unwrap().get_or_insert(text);
        }
    }

    pub fn node(name: &str, last: u8) -> NodeSpec {
        NodeSpec {
            name: name.to_owned(),
            ip: Ipv4Addr::new(10, 0, 0, last),
            disk_bytes: 1 << 30,
            durability: Durability::Strict,
            timing: Timing::Ssd,
        }
    }

    /// Runs a body on the one node of a stand, in its own process.
    pub fn on_the_stand<F>(name: &str, body: fn(Host, PathBuf) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        alone(name, || {
            let panics = Arc::new(FirstPanic::default());
            let run = sim::stand::run(StandConfig::new(Seeds::from_root(7)), panics.clone(), move |stand| async move {
                let node = stand.add_node(node("node/0", 1)).unwrap();
                let (done, ended) = tokio::sync::oneshot::channel();
                let done = Arc::new(Mutex::new(Some(done)));
                stand.start(node, move |host, _stop| {
                    let done = done.lock().unwrap().take();
                    async move {
                        let dir = PathBuf::from("/data/test");
                        host.files().create_dir_all(&dir).await.map_err(|error| error.to_string())?;
                        body(host, dir).await;
                        done.expect("the program is started once").send(()).map_err(|()| "nobody waits".to_owned())
                    }
                });
                ended.await.is_ok()
            });
            let panic = panics.0.lock().unwrap().take();
            assert_eq!(panic, None);
            assert_eq!(run.ended, Ended::Finished(true));
        });
    }
}

#[cfg(feature = "sim")]
pub use stand::node;
