//! The machine a node runs on.
//!
//! Product code (name server, broker, store, client) never asks the operating system for anything. It takes tasks,
//! time, sockets, files and chance from its [`Host`], which is either the real machine ([`real`]) or a simulated one
//! that implements [`machine::Machine`]. Neither the product nor this crate can tell which.
//!
//! `Host::current()` is asked once, by a constructor, and the parts keep the cheap handle. A handle of a dead
//! incarnation stays harmless: the machine behind it refuses every further operation.
//!
//! ```
//! use staticfire_host::{Host, real};
//!
//! let greeting = real::run("example", |host| async move {
//!     let task = host.spawn("greeter", async { format!("hello from {}", Host::current().node()) });
//!     task.await.unwrap()
//! });
//! assert_eq!(greeting.unwrap(), "hello from example");
//! ```
//!
//! This crate knows nothing of RocketMQ and nothing of any simulator. It owns all `unsafe` code of the workspace,
//! in [`region`].

pub mod fs;
pub mod machine;
#[doc(hidden)]
pub mod mark;
pub mod net;
pub mod rand;
pub mod real;
pub mod region;
pub mod task;
pub mod time;
pub mod worker;

mod current;

pub use current::{Entered, Host, Scoped};

#[doc(hidden)]
pub use tokio as __tokio;

/// Waits for the first of several futures, always trying them from top to bottom.
///
/// The syntax is that of `tokio::select!`. The order is fixed because a random one would differ between two runs of
/// one seed; so the rare branches come first and the busy one last, or the busy one starves the others.
///
/// ```
/// # staticfire_host::real::run("example", |host| async move {
/// let (stop, mut stopped) = tokio::sync::watch::channel(false);
/// stop.send(true).unwrap();
/// let first = staticfire_host::select! {
///     _ = stopped.changed() => "stopped",
///     () = host.sleep(std::time::Duration::ZERO) => "slept",
/// };
/// assert_eq!(first, "stopped");
/// # }).unwrap();
/// ```
#[macro_export]
macro_rules! select {
    ($($branches:tt)*) => {
        $crate::__tokio::select! { biased; $($branches)* }
    };
}

/// Marks a place in product code: `point!("store.flushed", offset)`.
///
/// On a stand it feeds coverage and triggers faults; elsewhere, and in a release server build, it is nothing.
/// The name is a string literal, unique in the workspace. The value is anything that `as i64` accepts; default 0. A second
/// one says what the first is about, such as the queue of an offset: `point!("client.pulled", offset, queue.mark())`.
#[macro_export]
macro_rules! point {
    ($name:literal) => {
        $crate::point!($name, 0i64)
    };
    ($name:literal, $value:expr) => {
        $crate::point!($name, $value, 0i64)
    };
    ($name:literal, $value:expr, $about:expr) => {
        if $crate::mark::ENABLED {
            $crate::mark::point($name, ($value) as i64, ($about) as i64);
        }
    };
}

/// A [`point!`] at which a stand can also hold whoever passes: `gate!("store.flush-begins", from).await`.
///
/// It is a future, so it stands where the code can wait; a node that is killed here goes no further, while after a
/// [`point!`] its task runs on to the next await. Elsewhere, and in a release server build, it is ready at once.
/// A stand that holds nobody does not make it wait either, so a gate does not change the order of tasks.
#[macro_export]
macro_rules! gate {
    ($name:literal) => {
        $crate::gate!($name, 0i64)
    };
    ($name:literal, $value:expr) => {
        $crate::mark::gate($name, ($value) as i64)
    };
}

/// True now and then on a stand, if the run chose this name: another behaviour that the real world could choose.
///
/// Never inside a `Drop`, and never to skip a durability step: that is [`mutant!`].
#[macro_export]
macro_rules! buggify {
    ($name:literal) => {
        $crate::mark::ENABLED && $crate::mark::buggify($name)
    };
}

/// States a case that many runs together must come to: `sometimes!("store.log-rolled", file > 0)`.
///
/// Nothing happens to a run in which it does not hold. The condition is looked at on a stand only.
#[macro_export]
macro_rules! sometimes {
    ($name:literal, $holds:expr) => {
        if $crate::mark::ENABLED && $holds {
            $crate::mark::sometimes($name);
        }
    };
}

/// States what must hold whenever the code comes here. On a stand a run in which it does not ends at once, and has
/// failed; elsewhere, and in a release server build, it is nothing, and the condition is not looked at.
#[macro_export]
macro_rules! always {
    ($name:literal, $holds:expr) => {
        if $crate::mark::ENABLED {
            $crate::mark::always($name, $holds);
        }
    };
}

/// True if the planted bug of this name is switched on in this run. Constant false without the feature `mutants`.
#[macro_export]
macro_rules! mutant {
    ($name:literal) => {
        $crate::mark::MUTANTS && $crate::mark::mutant($name)
    };
}
