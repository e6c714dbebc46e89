//! What the macros `point!`, `gate!`, `sometimes!`, `always!`, `buggify!` and `mutant!` expand to.

use crate::Host;

/// Whether marks reach a machine in this build.
pub const ENABLED: bool = cfg!(feature = "stand");

/// Whether planted bugs exist in this build.
pub const MUTANTS: bool = cfg!(feature = "mutants");

/// Tells the machine of the running task that it passed `name`. Outside a node it does nothing.
pub fn point(name: &'static str, value: i64, about: i64) {
    if let Some(host) = Host::try_current() {
        host.machine().point(name, value, about);
    }
}

/// Tells the machine of the running task that it passed `name`, and waits as long as the machine holds it there.
pub async fn gate(name: &'static str, value: i64) {
    if !ENABLED {
        return;
    }
    let held = Host::try_current().and_then(|host| host.machine().gate(name, value));
    if let Some(held) = held {
        held.await;
    }
}

/// Tells the machine that a case which many runs must come to has come.
pub fn sometimes(name: &'static str) {
    if let Some(host) = Host::try_current() {
        host.machine().sometimes(name);
    }
}

/// Tells the machine whether what must always hold does.
pub fn always(name: &'static str, holds: bool) {
    if let Some(host) = Host::try_current() {
        host.machine().always(name, holds);
    }
}

/// Asks the machine whether to behave unusually here. Outside a node the answer is no.
#[must_use]
pub fn buggify(name: &'static str) -> bool {
    Host::try_current().is_some_and(|host| host.machine().buggify(name))
}

/// Asks the machine whether the planted bug `name` is switched on. Outside a node the answer is no.
#[must_use]
pub fn mutant(name: &'static str) -> bool {
    Host::try_current().is_some_and(|host| host.machine().mutant(name))
}
