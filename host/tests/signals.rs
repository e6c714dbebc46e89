//! The signals that ask a process to stop. This is the only test of its process, which gets them.

use rustix::process::{Signal, getpid, kill_process};
use staticfire_host::real;

#[test]
fn a_signal_to_stop_is_heard_and_does_not_kill() {
    for signal in [Signal::TERM, Signal::INT] {
        let heard = real::run("signalled", |host| async move {
            let waiting = host.spawn("stop", real::stop_signal());
            // The handler is installed at the first poll; a signal before would end the process.
            host.sleep(std::time::Duration::from_millis(100)).await;
            kill_process(getpid(), signal).unwrap();
            waiting.await.unwrap()
        });
        heard.unwrap().unwrap();
    }
}
