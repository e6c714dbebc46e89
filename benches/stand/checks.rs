//! How long the checkers take for a long history.

use sim::{
    checkers,
    history::{Event, History, Look, MessageId, Queue, Recorder},
    scenario::Scenario,
};

use crate::{in_turns, table};

/// Records of each message: invoke, append, flush, ok, deliver, ack, commit.
const RECORDS_PER_MESSAGE: u32 = 7;

const QUEUES: u32 = 8;

pub fn print() {
    let mut shown = table(&["history", "checked in", "bound"]);
    for (records, bound) in [(100_000, "1 s"), (1_000_000, "2 s")] {
        let (scenario, history) = healthy(records / RECORDS_PER_MESSAGE);
        let count = history.records.len();
        let time = in_turns(&mut [Box::new(move || {
            let findings = checkers::check(&scenario, &history);
            assert!(findings.reports.iter().all(|report| report.count == 0), "a healthy history is accused");
        })]);
        shown.add_row([format!("{count} records"), format!("{:.3} s", time[0].as_secs_f64()), bound.to_owned()]);
    }
    println!("{shown}");
}

/// A history in which every message takes its way, over several queues of two brokers.
fn healthy(messages: u32) -> (Scenario, History) {
    let text = "format = 1\nactive = \"60s\"\n[[broker]]\nname = \"broker-a\"\n[[broker]]\nname = \"broker-b\"\n\
                [[topic]]\nname = \"orders\"\n[[producer]]\ngroup = \"checkout\"\ntopic = \"orders\"\nrate = \"1/s\"\n\
                [[consumer]]\ngroup = \"billing\"\nsubscribe = \"orders\"\n";
    let scenario = Scenario::parse("bench.toml", text).expect("the text is right");
    let recorder = Recorder::new(None);
    for node in ["broker-a/0", "broker-b/0", "checkout/0", "billing/0"] {
        recorder.record(0, Some((node, 1)), |_| Event::NodeUp);
    }
    for n in 0..messages {
        let broker = ["broker-a", "broker-b"][n as usize % 2];
        let node = ["broker-a/0", "broker-b/0"][n as usize % 2];
        let queue = Queue { topic: "orders".into(), broker: broker.into(), id: n / 2 % (QUEUES / 2) };
        let (offset, end) = (u64::from(n / QUEUES), u64::from(n / 2) * 100 + 100);
        let message = MessageId { producer: 0, n };
        let look = Look { topic: "orders".into(), body_bytes: 100, crc: n, tag: String::new() };
        let at = u64::from(n) * 1_000_000;
        let by = |node: &'static str, build: &dyn Fn(&mut History) -> Event| {
            recorder.record(at, Some((node, 1)), |history| build(history));
        };
        by("checkout/0", &|_| Event::SendInvoke(message, look.clone()));
        by(node, &|_| Event::Append(end));
        by(node, &|_| Event::Flush(end));
        by("checkout/0", &|history| {
            Event::SendOk(message, history.intern_queue(queue.clone()), offset, Some(end - 100))
        });
        by("billing/0", &|history| Event::Deliver {
            message: Some(message),
            queue: history.intern_queue(queue.clone()),
            offset,
            look: look.clone(),
            times: 0,
        });
        by("billing/0", &|history| Event::Ack(Some(message), history.intern_queue(queue.clone()), offset));
        by("probe/0", &|history| Event::Commit {
            group: "billing".into(),
            queue: history.intern_queue(queue.clone()),
            offset: Some(offset + 1),
        });
    }
    let (history, _) = recorder.finish().expect("it is kept in memory");
    (scenario, history)
}
