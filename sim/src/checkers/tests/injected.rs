//! Generated legal histories, and the same with one violation put in: it must be found, and nothing else
//! (`spec/simulation.md` 10.7).

use proptest::{prelude::*, sample::Index};

use super::*;

/// What happens, one after the other.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A message is sent, stored, flushed and acknowledged.
    Send,
    /// Two messages are on their way at a time, and the second one is stored first.
    Overlap,
    /// The group takes what there is and commits.
    Consume,
    /// A member takes a message and dies; the other one takes it again.
    MemberDies,
    /// The broker dies, and finds all it had flushed.
    BrokerDies(Down),
    /// Nothing, for so many seconds.
    Wait(u64),
}

/// One thing that must not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Injected {
    /// A message that was flushed is cut off by the recovery.
    Lost,
    /// A message is left out by the group, which commits beyond it.
    Unread,
    /// A message arrives with another body.
    Phantom,
    /// A message that was committed long ago comes again.
    DupDeliver,
    /// A message that was acknowledged before another one was sent stands behind it.
    OrderStore,
    /// A committed offset goes back.
    CommitRegress,
    /// A message whose send failed arrives.
    Aborted,
    /// A message arrives at a group of another topic.
    Filter,
    /// A message is acknowledged at the offset of another one.
    TwoAtOffset,
    /// A message arrives before it is flushed.
    VisibleBeforeSafe,
    /// A refused message comes again at once.
    Early,
    /// A message is stored again.
    DupStore,
    /// A member reads on behind a message.
    Skip,
    /// A member reads again what it has had.
    Backwards,
    /// A delayed message is let go a minute after its time.
    Late,
    /// A message comes again and says that it was refused twice.
    Retry,
    /// A dead broker is still named.
    Route,
    /// Tasks grow.
    Leak,
    /// A queue has a hole at the end.
    StoreAudit,
    /// The log of a slave is not its master's.
    ReplicaEqual,
    /// Something is pending when the time is over.
    Stuck,
}

/// All of them.
const ALL: [Injected; 21] = [
    Injected::Lost,
    Injected::Unread,
    Injected::Phantom,
    Injected::DupDeliver,
    Injected::OrderStore,
    Injected::CommitRegress,
    Injected::Aborted,
    Injected::Filter,
    Injected::TwoAtOffset,
    Injected::VisibleBeforeSafe,
    Injected::Early,
    Injected::DupStore,
    Injected::Skip,
    Injected::Backwards,
    Injected::Late,
    Injected::Retry,
    Injected::Route,
    Injected::Leak,
    Injected::StoreAudit,
    Injected::ReplicaEqual,
    Injected::Stuck,
];

impl Injected {
    fn checker(self) -> &'static str {
        match self {
            Injected::Lost => "lost",
            Injected::Unread => "unread",
            Injected::Phantom => "phantom",
            Injected::DupDeliver => "dup-deliver",
            Injected::OrderStore => "order-store",
            Injected::CommitRegress => "commit-regress",
            Injected::Aborted => "aborted",
            Injected::Filter => "filter",
            Injected::TwoAtOffset => "two-at-offset",
            Injected::VisibleBeforeSafe => "visible-before-safe",
            Injected::Early => "early",
            Injected::DupStore => "dup-store",
            Injected::Skip => "skip",
            Injected::Backwards => "backwards",
            Injected::Late => "late",
            Injected::Retry => "retry",
            Injected::Route => "route",
            Injected::Leak => "leak",
            Injected::StoreAudit => "store-audit",
            Injected::ReplicaEqual => "replica-equal",
            Injected::Stuck => "stuck",
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::Send),
        2 => Just(Step::Overlap),
        4 => Just(Step::Consume),
        1 => Just(Step::MemberDies),
        1 => Just(Step::BrokerDies(Down::Kill)),
        1 => Just(Step::BrokerDies(Down::PowerLoss)),
        2 => (1..90_u64).prop_map(Step::Wait),
    ]
}

fn injected() -> impl Strategy<Value = Injected> {
    prop::sample::select(&ALL[..])
}

/// A history under way. Message `n` stands at offset `n` unless messages overlapped.
struct Play {
    story: Story,
    /// For each offset its message.
    log: Vec<u32>,
    /// Offsets below have been consumed.
    consumed: usize,
    /// What is wrong with which message.
    wrong: Option<(Injected, u32)>,
}

impl Play {
    fn messages(&self) -> u32 {
        self.log.len() as u32
    }

    fn is_wrong(&self, injected: Injected, n: u32) -> bool {
        self.wrong == Some((injected, n))
    }

    fn send(&mut self) {
        let n = self.messages();
        let at = u64::from(n);
        if self.is_wrong(Injected::OrderStore, n) {
            self.story.invoke(n).append(at).append(at + 1).flush(at + 2).ok(n, at + 1).invoke(n + 1).flush(at + 2);
            self.story.ok(n + 1, at);
            self.log.extend([n + 1, n]);
        } else {
            self.story.send(n, at);
            self.log.push(n);
        }
        self.story.flush(self.log.len() as u64);
    }

    fn overlap(&mut self) {
        let n = self.messages();
        let at = u64::from(n);
        self.story.invoke(n).invoke(n + 1).append(at).append(at + 1).ok(n + 1, at).ok(n, at + 1).flush(at + 2);
        self.log.extend([n + 1, n]);
    }

    fn consume(&mut self) {
        for offset in self.consumed..self.log.len() {
            let n = self.log[offset];
            let at = offset as u64;
            if self.is_wrong(Injected::Unread, n) {
                continue;
            }
            let seen = if self.is_wrong(Injected::Phantom, n) { Look { crc: n + 1, ..look(n) } } else { look(n) };
            self.story.deliver_as("billing/0", n, at, seen).ack("billing/0", n, at);
        }
        self.consumed = self.log.len();
        self.story.commit(self.consumed as u64);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Send => self.send(),
            Step::Overlap => self.overlap(),
            Step::Consume => self.consume(),
            Step::MemberDies => {
                self.consume();
                self.send();
                let (at, n) = (self.consumed as u64, self.log[self.consumed]);
                self.story.deliver("billing/1", n, at).down("billing/1", Down::Kill).restart("billing/1");
            }
            Step::BrokerDies(how) => {
                self.story.down("broker-a/0", how).recover(self.log.len() as u64);
            }
            Step::Wait(seconds) => drop(self.story.later(seconds)),
        }
    }
}

/// Plays the steps, and a violation that concerns message `n` or stands at the end.
fn play(steps: &[Step], wrong: Option<(Injected, u32)>) -> Vec<(&'static str, u64)> {
    let mut play = Play { story: Story::of("SYNC_FLUSH"), log: Vec::new(), consumed: 0, wrong };
    // Whatever the steps are, there is something to consume.
    play.send();
    for &step in steps {
        play.step(step);
    }
    play.send();
    play.consume();
    let (n, at) = (play.messages(), play.log.len() as u64);
    // Nobody is explained by what happened before.
    let story = play.story.later(300);
    match wrong.map(|(injected, _)| injected) {
        Some(Injected::Lost) => {
            story.send(n, at).flush(at + 1).down("broker-a/0", Down::PowerLoss).recover(at);
        }
        Some(Injected::DupDeliver) => drop(story.consume(play.log[0], 0)),
        Some(Injected::CommitRegress) => drop(story.commit(at).later(20).commit(at - 1)),
        Some(Injected::Aborted) => drop(story.invoke(n).append(at).flush(at + 1).fail(n).consume(n, at).commit(at + 1)),
        Some(Injected::Filter) => {
            let other = Look { topic: "refunds".into(), ..look(n) };
            story
                .event("checkout/0", |_| Event::SendInvoke(message(n), other.clone()))
                .append(at)
                .flush(at + 1)
                .ok(n, at);
            story.deliver_as("billing/0", n, at, other).ack("billing/0", n, at).commit(at + 1);
        }
        Some(Injected::TwoAtOffset) => {
            // Nobody reads it there, so it must not be wanted: its sender never learns what became of it.
            story.invoke(n).append(at).deliver("billing/0", n, at - 1).ack("billing/0", n, at - 1);
        }
        Some(Injected::VisibleBeforeSafe) => {
            story.invoke(n).append(at).consume(n, at).flush(at + 1).ok(n, at).commit(at + 1);
        }
        Some(Injected::Early) => {
            story.send(n, at).deliver("billing/0", n, at).nack("billing/0", n, at).commit(at + 1);
            story
                .again("billing/0", n, 0)
                .event("billing/0", |history| Event::Ack(Some(message(n)), history.intern_queue(retry_queue()), 0));
        }
        Some(Injected::DupStore) => drop(story.append(at).flush(at + 1).consume(play.log[0], at).commit(at + 1)),
        Some(Injected::Skip) => {
            // The other member has had it.
            let story = story.send(n, at).flush(at + 1).poll("billing/0", at).poll("billing/0", at + 1);
            story
                .deliver("billing/1", n, at)
                .ack("billing/1", n, at)
                .commit(at + 1)
                .event("probe/0", |_| Event::Converged);
        }
        Some(Injected::Backwards) => drop(story.poll("billing/0", at).poll("billing/0", at - 1)),
        Some(Injected::Late) => drop(story.append(at).flush(at + 1).later(70).due(at, 3)),
        Some(Injected::Retry) => {
            story
                .send(n, at)
                .flush(at + 1)
                .deliver("billing/0", n, at)
                .nack("billing/0", n, at)
                .commit(at + 1)
                .later(10);
            story.event("billing/0", |history| Event::Deliver {
                message: Some(message(n)),
                queue: history.intern_queue(retry_queue()),
                offset: 0,
                look: look(n),
                times: 2,
            });
            story.event("billing/0", |history| Event::Ack(Some(message(n)), history.intern_queue(retry_queue()), 0));
        }
        Some(Injected::Route) => drop(story.down("broker-a/0", Down::PowerLoss).later(140).route(&["broker-a"])),
        Some(Injected::Leak) => drop(story.event("probe/0", |_| Event::Grown("tasks".to_owned()))),
        Some(Injected::StoreAudit) => {
            story
                .audited()
                .event("broker-a/0", |_| Event::Unsound("consumequeue/orders/0".into(), None, "a hole".into()));
        }
        Some(Injected::ReplicaEqual) => {
            let differs = |_: &mut History| Event::Differs(40, "0x00 where the master has 0x41".into());
            story.event("broker-a/1", |_| Event::Compared(100)).event("broker-a/1", differs);
        }
        Some(Injected::Stuck) => drop(story.event("probe/0", |_| Event::Pending("a send".to_owned()))),
        Some(Injected::Unread | Injected::Phantom | Injected::OrderStore) | None => {}
    }
    play.story.found()
}

/// The messages that the steps send one at a time: those that a violation may concern.
fn single_sends(steps: &[Step]) -> Vec<u32> {
    let mut n = 1;
    let mut singles = vec![0];
    for step in steps {
        match step {
            Step::Send => singles.push(n),
            Step::Overlap => n += 1,
            Step::MemberDies => {}
            Step::Consume | Step::BrokerDies(_) | Step::Wait(_) => continue,
        }
        n += 1;
    }
    singles
}

proptest! {
    #[test]
    fn a_legal_history_is_never_accused(steps in prop::collection::vec(step(), 0..60)) {
        prop_assert_eq!(play(&steps, None), []);
    }

    #[test]
    fn one_violation_is_found_and_only_it(
        steps in prop::collection::vec(step(), 0..60),
        injected in injected(),
        which: Index,
    ) {
        let singles = single_sends(&steps);
        // The wrong order takes the numbers of two messages, which would move all later ones: it concerns the first.
        let n = if injected == Injected::OrderStore { 0 } else { singles[which.index(singles.len())] };
        prop_assert_eq!(play(&steps, Some((injected, n))), [(injected.checker(), 1)]);
    }
}
