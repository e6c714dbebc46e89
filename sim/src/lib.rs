//! The stand: a whole cluster in one thread, under a seed.
//!
//! It owns the simulated machine (tasks and time on madsim's executor; network, disks and clocks of our own) and, on
//! top of it, scenarios, workload, history and checkers. It sees the product through wire, files and points only, and
//! must not know private state of the roles.
//!
//! One process should run one seed wherever the result counts: statics of the product leak between runs otherwise.

#[cfg(not(madsim))]
compile_error!(
    "the stand needs `--cfg madsim` for the whole build. `.cargo/config.toml` sets it: build inside the workspace, \
     without RUSTFLAGS in the environment (it replaces the flags of that file); or build the servers alone with \
     `cargo build --no-default-features`"
);

pub mod checkers;
pub mod coverage;
pub mod disk;
pub mod fates;
pub mod history;
pub mod life;
pub mod net;
pub mod plan;
pub mod points;
pub mod run;
pub mod scenario;
pub mod seed;
pub mod shrink;
pub mod stand;
pub mod verdict;
pub mod workload;

mod clock;
mod machine;
mod side;
mod timer;
mod world;
