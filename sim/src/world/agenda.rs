//! What will happen when: timers and network events, by true time.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeSet, BinaryHeap},
    task::Waker,
};

use crate::{net::NetEvent, stand::NodeId};

/// The slot of a timer; valid until [`Agenda::cancel`].
pub(crate) type TimerSlot = u32;

/// Something that has become due.
pub(crate) enum Due {
    /// A timer; `None` if nobody waits for it at the moment.
    Timer(Option<Waker>),
    /// The network has something to do.
    Net(NetEvent),
    /// The run has lasted long enough.
    Limit,
}

/// A heap of moments, with timers that can be cancelled and moved: their old entries stay behind as dead ones, and the
/// heap is rebuilt when most of it is dead. Equal moments come in the order in which they were entered.
#[derive(Default)]
pub(crate) struct Agenda {
    heap: BinaryHeap<Reverse<Entry>>,
    slots: Vec<Slot>,
    free: Vec<TimerSlot>,
    next_seq: u64,
    dead: usize,
    /// Events of the network that are not to happen, and still stand in the heap.
    called_off: BTreeSet<u64>,
    /// Wake-ups ordered from the executor, the earliest last. They cannot be cancelled; a needless one does no harm.
    armed: Vec<u64>,
    /// A moment earlier than all of `armed`, for which a wake-up must be ordered.
    wanted: Option<u64>,
}

struct Slot {
    /// Counts what happened to the slot: an entry with an older number is dead.
    generation: u32,
    /// Whether a live entry stands in the heap.
    queued: bool,
    waker: Option<Waker>,
    /// The node by whose monotonic clock it runs, and the deadline there.
    clock: Option<(NodeId, u64)>,
}

#[derive(Clone, Copy)]
enum What {
    Timer { slot: TimerSlot, generation: u32 },
    Net(NetEvent),
    Limit,
}

struct Entry {
    at: u64,
    seq: u64,
    what: What,
}

impl Agenda {
    /// Enters an event of the network. Its number is for [`call_off`](Agenda::call_off).
    pub(crate) fn at(&mut self, at: u64, event: NetEvent) -> u64 {
        self.push(at, What::Net(event));
        self.next_seq - 1
    }

    /// Forgets an event of the network, which must not have come yet.
    pub(crate) fn call_off(&mut self, number: u64) {
        if self.called_off.insert(number) {
            self.dead += 1;
            self.rebuild_if_dead();
        }
    }

    /// Enters the end of the run.
    pub(crate) fn limit(&mut self, at: u64) {
        self.push(at, What::Limit);
    }

    /// Enters a timer. `clock` tells node and deadline if it must move with the clock of a node.
    pub(crate) fn add_timer(&mut self, at: u64, waker: Waker, clock: Option<(NodeId, u64)>) -> TimerSlot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, queued: false, waker: None, clock: None });
            TimerSlot::try_from(self.slots.len() - 1).expect("fewer than 2^32 timers fit into memory")
        });
        let entry = &mut self.slots[slot as usize];
        entry.waker = Some(waker);
        entry.clock = clock;
        self.queue(slot, at);
        slot
    }

    /// Replaces the waker of a timer, and enters it again if it has fired too early for its clock.
    pub(crate) fn wait_again(&mut self, slot: TimerSlot, waker: &Waker, (at, clock): (u64, Option<(NodeId, u64)>)) {
        let entry = &mut self.slots[slot as usize];
        match &mut entry.waker {
            Some(old) => old.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        if !entry.queued {
            self.move_timer(slot, at, clock);
        }
    }

    /// Moves a timer, whether it has fired or not.
    pub(crate) fn move_timer(&mut self, slot: TimerSlot, at: u64, clock: Option<(NodeId, u64)>) {
        self.unqueue(slot);
        self.slots[slot as usize].clock = clock;
        self.queue(slot, at);
    }

    /// Forgets a timer.
    pub(crate) fn cancel(&mut self, slot: TimerSlot) {
        self.unqueue(slot);
        self.slots[slot as usize].waker = None;
        self.free.push(slot);
        self.rebuild_if_dead();
    }

    /// The timers that wait by the clock of a node: their slots and deadlines there.
    pub(crate) fn timers_of(&self, node: NodeId) -> Vec<(TimerSlot, u64)> {
        let waiting = self.slots.iter().enumerate().filter(|(_, slot)| slot.queued);
        waiting
            .filter_map(|(index, slot)| match slot.clock {
                Some((owner, deadline)) if owner == node => Some((index as TimerSlot, deadline)),
                _ => None,
            })
            .collect()
    }

    /// Takes the next entry that is due, with its number in the run.
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<(u64, Due)> {
        while self.heap.peek().is_some_and(|Reverse(entry)| entry.at <= now) {
            let Reverse(entry) = self.heap.pop().expect("just seen");
            match entry.what {
                What::Timer { slot, generation } if !self.is_live(slot, generation) => self.dead -= 1,
                What::Timer { slot, .. } => {
                    let slot = &mut self.slots[slot as usize];
                    slot.queued = false;
                    slot.generation = slot.generation.wrapping_add(1);
                    return Some((entry.seq, Due::Timer(slot.waker.take())));
                }
                What::Net(_) if self.called_off.remove(&entry.seq) => self.dead -= 1,
                What::Net(event) => return Some((entry.seq, Due::Net(event))),
                What::Limit => return Some((entry.seq, Due::Limit)),
            }
        }
        None
    }

    /// Whether nothing is left to happen.
    pub(crate) fn is_empty(&self) -> bool {
        self.heap.len() == self.dead
    }

    /// To be called when a wake-up has come and everything due was taken: makes sure that another will.
    pub(crate) fn after_wake(&mut self, now: u64) {
        while self.armed.last().is_some_and(|&at| at <= now) {
            self.armed.pop();
        }
        if let Some(Reverse(first)) = self.heap.peek() {
            self.want(first.at);
        }
    }

    /// The wake-up that must be ordered now, if any; it counts as ordered from here on.
    pub(crate) fn take_wanted(&mut self) -> Option<u64> {
        let at = self.wanted.take()?;
        self.armed.push(at);
        Some(at)
    }

    fn want(&mut self, at: u64) {
        if self.armed.last().is_none_or(|&armed| at < armed) && self.wanted.is_none_or(|wanted| at < wanted) {
            self.wanted = Some(at);
        }
    }

    fn push(&mut self, at: u64, what: What) {
        let seq = self.next_seq;
        self.next_seq += 1;
        self.heap.push(Reverse(Entry { at, seq, what }));
        self.want(at);
    }

    fn queue(&mut self, slot: TimerSlot, at: u64) {
        let entry = &mut self.slots[slot as usize];
        entry.queued = true;
        let generation = entry.generation;
        self.push(at, What::Timer { slot, generation });
    }

    fn unqueue(&mut self, slot: TimerSlot) {
        let slot = &mut self.slots[slot as usize];
        if slot.queued {
            slot.queued = false;
            slot.generation = slot.generation.wrapping_add(1);
            self.dead += 1;
        }
    }

    fn is_live(&self, slot: TimerSlot, generation: u32) -> bool {
        let slot = &self.slots[slot as usize];
        slot.queued && slot.generation == generation
    }

    fn rebuild_if_dead(&mut self) {
        if self.dead <= 64 || self.dead * 2 <= self.heap.len() {
            return;
        }
        let mut entries = std::mem::take(&mut self.heap).into_vec();
        let called_off = std::mem::take(&mut self.called_off);
        entries.retain(|Reverse(entry)| match entry.what {
            What::Timer { slot, generation } => self.is_live(slot, generation),
            What::Net(_) => !called_off.contains(&entry.seq),
            What::Limit => true,
        });
        self.heap = entries.into();
        self.dead = 0;
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        (self.at, self.seq).cmp(&(other.at, other.seq))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, task::Wake};

    use super::*;
    use crate::net::{ConnId, EndId};

    struct Nobody;

    impl Wake for Nobody {
        fn wake(self: Arc<Self>) {}
    }

    fn waker() -> Waker {
        Arc::new(Nobody).into()
    }

    fn fired(agenda: &mut Agenda, now: u64) -> Vec<u64> {
        std::iter::from_fn(|| agenda.pop_due(now)).map(|(seq, _)| seq).collect()
    }

    #[test]
    fn equal_moments_come_in_the_order_of_entering() {
        let mut agenda = Agenda::default();
        for at in [30, 10, 20, 10, 30, 10] {
            agenda.add_timer(at, waker(), None);
        }
        assert_eq!(fired(&mut agenda, 10), [1, 3, 5]);
        assert_eq!(fired(&mut agenda, 100), [2, 0, 4]);
        assert!(agenda.is_empty());
    }

    #[test]
    fn a_cancelled_timer_never_fires_and_leaves_nothing_behind() {
        let mut agenda = Agenda::default();
        for _ in 0..100_000 {
            let slot = agenda.add_timer(1_000_000, waker(), None);
            agenda.cancel(slot);
        }
        assert!(agenda.heap.len() < 200, "{} entries left", agenda.heap.len());
        assert_eq!(agenda.slots.len(), 1);
        assert!(agenda.is_empty());
        assert_eq!(fired(&mut agenda, u64::MAX), [0; 0]);
    }

    #[test]
    fn a_moved_timer_fires_once_at_its_new_moment() {
        let mut agenda = Agenda::default();
        let slot = agenda.add_timer(10, waker(), None);
        agenda.move_timer(slot, 30, None);
        agenda.move_timer(slot, 20, None);
        assert_eq!(fired(&mut agenda, 19), [0; 0]);
        assert_eq!(fired(&mut agenda, 20), [2]);
        agenda.move_timer(slot, 40, None);
        assert_eq!(fired(&mut agenda, 100), [3]);
    }

    #[test]
    fn an_event_that_was_called_off_never_comes_and_leaves_nothing_behind() {
        let event = NetEvent::Arrive(ConnId { slot: 0, number: 0 }, EndId::Client);
        let mut agenda = Agenda::default();
        let numbers: Vec<u64> = (0..1_000).map(|at| agenda.at(at, event)).collect();
        for number in &numbers[..999] {
            agenda.call_off(*number);
        }
        assert!(agenda.heap.len() < 200, "{} entries left", agenda.heap.len());
        assert!(!agenda.is_empty());
        assert_eq!(fired(&mut agenda, u64::MAX), [999]);
        assert!(agenda.is_empty() && agenda.called_off.is_empty());
    }

    #[test]
    fn a_wake_up_is_ordered_for_each_new_earliest_moment_only() {
        let mut agenda = Agenda::default();
        agenda.add_timer(100, waker(), None);
        assert_eq!(agenda.take_wanted(), Some(100));
        agenda.add_timer(200, waker(), None);
        assert_eq!(agenda.take_wanted(), None);
        agenda.add_timer(50, waker(), None);
        assert_eq!(agenda.take_wanted(), Some(50));
        assert_eq!(fired(&mut agenda, 50), [2]);
        agenda.after_wake(50);
        assert_eq!(agenda.take_wanted(), None, "100 is still ordered");
        assert_eq!(fired(&mut agenda, 100), [0]);
        agenda.after_wake(100);
        assert_eq!(agenda.take_wanted(), Some(200));
    }
}
