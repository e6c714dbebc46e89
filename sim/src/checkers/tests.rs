mod commits;
mod injected;
mod owners;
mod reading;
mod seen;

use super::*;
use crate::{
    history::{Down, Look, Queue, Recorder},
    scenario::Role,
};

const SECOND: u64 = 1_000_000_000;

/// A history written by hand. Time goes on by a millisecond per record, and by more where a test says so.
struct Story {
    scenario: Scenario,
    recorder: Recorder,
    at: std::cell::Cell<u64>,
    lives: std::cell::RefCell<BTreeMap<String, u32>>,
}

fn queue(broker: &str) -> Queue {
    Queue { topic: "orders".into(), broker: broker.into(), id: 0 }
}

fn retry_queue() -> Queue {
    Queue { topic: "%RETRY%billing".into(), ..queue("broker-a") }
}

fn message(n: u32) -> MessageId {
    MessageId { producer: 0, n }
}

fn look(n: u32) -> Look {
    Look { topic: "orders".into(), body_bytes: 100, crc: n, tag: String::new() }
}

impl Story {
    /// One broker of this flush type, up.
    fn of(flush: &str) -> Story {
        Story::with(flush, "")
    }

    /// The same with faults.
    fn with(flush: &str, faults: &str) -> Story {
        let text = format!(
            "format = 1\nactive = \"60s\"\n[[broker]]\nname = \"broker-a\"\n\
             config = {{ flushDiskType = \"{flush}\", mappedFileSizeCommitLog = \"4KiB\" }}\n\
             [[topic]]\nname = \"orders\"\n[[producer]]\ngroup = \"checkout\"\ntopic = \"orders\"\nrate = \"1/s\"\n\
             [[consumer]]\ngroup = \"billing\"\ninstances = 2\nsubscribe = \"orders\"\n{faults}"
        );
        let story = Story {
            scenario: Scenario::parse("x.toml", &text).unwrap(),
            recorder: Recorder::new(None),
            at: 0.into(),
            lives: BTreeMap::new().into(),
        };
        story.up("broker-a/0").up("billing/0").up("billing/1")
    }

    /// With synchronous flush and a fault `f` that freezes a node; when is for the test to say.
    fn with_pause_of(node: &str) -> Story {
        let fault = format!("[[fault]]\nid = \"f\"\nat = \"1s\"\nkind = \"pause\"\nnode = \"{node}\"\nfor = \"1s\"\n");
        Story::with("SYNC_FLUSH", &fault)
    }

    fn event(&self, node: &str, build: impl FnOnce(&mut History) -> Event) -> &Story {
        self.at.set(self.at.get() + 1_000_000);
        let life = self.lives.borrow().get(node).copied().unwrap_or(1);
        self.recorder.record(self.at.get(), Some((node, life)), build);
        self
    }

    fn assign(&self, node: &str) -> &Story {
        self.assign_of(node, "broker-a")
    }

    fn assign_of(&self, node: &str, broker: &str) -> &Story {
        self.event(node, |history| Event::Assign(history.intern_queue(queue(broker))))
    }

    fn revoke(&self, node: &str) -> &Story {
        self.revoke_of(node, "broker-a")
    }

    fn revoke_of(&self, node: &str, broker: &str) -> &Story {
        self.event(node, |history| Event::Revoke(history.intern_queue(queue(broker))))
    }

    fn later(&self, seconds: u64) -> &Story {
        self.at.set(self.at.get() + seconds * SECOND);
        self
    }

    fn up(self, node: &str) -> Story {
        self.restart(node);
        self
    }

    fn restart(&self, node: &str) -> &Story {
        *self.lives.borrow_mut().entry(node.to_owned()).or_default() += 1;
        self.event(node, |_| Event::NodeUp)
    }

    fn invoke(&self, n: u32) -> &Story {
        self.event("checkout/0", |_| Event::SendInvoke(message(n), look(n)))
    }

    /// Acknowledged at this queue offset; its record takes 100 bytes of the log from `offset * 100` on.
    fn ok(&self, n: u32, offset: u64) -> &Story {
        self.event("checkout/0", |history| {
            Event::SendOk(message(n), history.intern_queue(queue("broker-a")), offset, Some(offset * 100))
        })
    }

    fn fail(&self, n: u32) -> &Story {
        self.event("checkout/0", |_| Event::SendFail(message(n), "MESSAGE_ILLEGAL".into()))
    }

    fn append(&self, offset: u64) -> &Story {
        self.event("broker-a/0", |_| Event::Append(offset * 100 + 100))
    }

    fn flush(&self, up_to_offset: u64) -> &Story {
        self.event("broker-a/0", |_| Event::Flush(up_to_offset * 100))
    }

    /// As a broker acknowledges: under synchronous flush what is on disk.
    fn send(&self, n: u32, offset: u64) -> &Story {
        self.invoke(n).append(offset);
        if self.scenario.flushes_before_ack("broker-a") {
            self.flush(offset + 1);
        }
        self.ok(n, offset)
    }

    fn down(&self, node: &str, how: Down) -> &Story {
        self.event(node, |_| Event::NodeDown(how, String::new()))
    }

    /// The broker comes back with its log cut to this offset.
    fn recover(&self, offset: u64) -> &Story {
        self.restart("broker-a/0").event("broker-a/0", |_| Event::Recover(offset * 100))
    }

    fn deliver_as(&self, node: &str, n: u32, offset: u64, look: Look) -> &Story {
        self.event(node, |history| Event::Deliver {
            message: Some(message(n)),
            queue: history.intern_queue(queue("broker-a")),
            offset,
            look,
            times: 0,
        })
    }

    fn deliver(&self, node: &str, n: u32, offset: u64) -> &Story {
        self.deliver_as(node, n, offset, look(n))
    }

    /// The message comes again, from the queue of retries.
    fn again(&self, node: &str, n: u32, offset: u64) -> &Story {
        self.event(node, |history| Event::Deliver {
            message: Some(message(n)),
            queue: history.intern_queue(retry_queue()),
            offset,
            look: look(n),
            times: 1,
        })
    }

    /// A member asks for what stands from this offset on.
    fn poll(&self, node: &str, offset: u64) -> &Story {
        self.event(node, |history| Event::Poll(history.intern_queue(queue("broker-a")), offset))
    }

    /// The broker lets go what it appended as the record of this offset.
    fn due(&self, offset: u64, level: u64) -> &Story {
        self.event("broker-a/0", |_| Event::Due { phy: offset * 100, level })
    }

    /// What a name server says of the topic.
    fn route(&self, brokers: &[&str]) -> &Story {
        let brokers = brokers.iter().map(|broker| format!("{broker}/0")).collect();
        self.event("probe/0", |_| Event::Route { name_server: "namesrv/0".into(), topic: "orders".into(), brokers })
    }

    fn audited(&self) -> &Story {
        self.event("broker-a/0", |_| Event::Audited { records: 2, entries: 2 })
    }

    fn ack(&self, node: &str, n: u32, offset: u64) -> &Story {
        self.event(node, |history| Event::Ack(Some(message(n)), history.intern_queue(queue("broker-a")), offset))
    }

    fn nack(&self, node: &str, n: u32, offset: u64) -> &Story {
        self.event(node, |history| Event::Nack(Some(message(n)), history.intern_queue(queue("broker-a")), offset))
    }

    fn consume(&self, n: u32, offset: u64) -> &Story {
        self.deliver("billing/0", n, offset).ack("billing/0", n, offset)
    }

    fn commit(&self, offset: u64) -> &Story {
        self.event("probe/0", |history| Event::Commit {
            group: "billing".into(),
            queue: history.intern_queue(queue("broker-a")),
            offset: Some(offset),
        })
    }

    fn findings(&self) -> Findings {
        let (history, _) = self.recorder.finish().unwrap();
        check(&self.scenario, &history)
    }

    /// Names of the checkers that found something, with how often.
    fn found(&self) -> Vec<(&'static str, u64)> {
        let reports = self.findings().reports;
        reports.iter().filter(|report| report.count > 0).map(|report| (report.checker, report.count)).collect()
    }
}

#[test]
fn a_legal_history_has_no_violations_and_opportunities_for_all() {
    let story = Story::of("SYNC_FLUSH");
    story.send(0, 0).flush(1).poll("billing/0", 0).consume(0, 0).poll("billing/0", 1).commit(1).send(1, 1).flush(2);
    story.deliver("billing/0", 1, 1).nack("billing/0", 1, 1).commit(2).invoke(2).fail(2).append(2);
    story
        .later(10)
        .due(2, 3)
        .again("billing/1", 1, 0)
        .event("billing/1", |history| Event::Ack(Some(message(1)), history.intern_queue(retry_queue()), 0));
    story.event("probe/0", |_| Event::Converged).audited().event("broker-a/1", |_| Event::Compared(300));
    story.down("broker-a/0", Down::Stop).later(130).route(&[]);
    let findings = story.findings();
    for report in &findings.reports {
        assert_eq!((report.checker, report.count), (report.checker, 0), "{:?}", report.violations);
        assert!(report.opportunities > 0, "{}", report.checker);
    }
    let names: Vec<&str> = findings.reports.iter().map(|report| report.checker).collect();
    assert_eq!(names, crate::scenario::CHECKERS);
}

#[test]
fn a_message_that_is_there_and_was_never_finished_is_unread() {
    let story = Story::of("SYNC_FLUSH");
    story.send(0, 0).deliver("billing/0", 0, 0);
    assert_eq!(story.found(), [("unread", 1)]);
}

#[test]
fn what_a_group_had_not_come_to_when_time_ran_out_is_stuck_and_not_unread() {
    let out_of_time = |story: &Story| {
        story.event("probe/0", |_| Event::Pending("billing/0 works on it".to_owned()));
        story.found()
    };
    assert_eq!(out_of_time(Story::of("SYNC_FLUSH").send(0, 0)), [("stuck", 1)]);
    assert_eq!(out_of_time(Story::of("SYNC_FLUSH").send(0, 0).deliver("billing/0", 0, 0)), [("stuck", 1)]);
    // It is behind the group already: no time would help.
    let passed = out_of_time(Story::of("SYNC_FLUSH").send(0, 0).deliver("billing/0", 0, 0).commit(1));
    assert_eq!(passed, [("unread", 1), ("stuck", 1)]);
}

#[test]
fn a_durable_message_that_a_power_loss_took_is_lost() {
    let story = Story::of("SYNC_FLUSH");
    story.send(0, 0).flush(1).send(1, 1).down("broker-a/0", Down::PowerLoss).recover(1).consume(0, 0);
    let findings = story.findings();
    assert_eq!(findings.reports[0].count, 1, "{:?}", findings.reports);
    assert_eq!(findings.missing, BTreeSet::from([("billing".to_owned(), message(1))]));
    assert!(findings.legally_lost.is_empty());
}

#[test]
fn a_cached_message_that_a_power_loss_took_is_legally_lost() {
    let story = Story::of("ASYNC_FLUSH");
    story.send(0, 0).flush(1).send(1, 1).down("broker-a/0", Down::PowerLoss).recover(1).consume(0, 0);
    let findings = story.findings();
    assert!(findings.reports.iter().all(|report| report.count == 0), "{:?}", findings.reports);
    assert_eq!(findings.legally_lost.len(), 1);
    assert_eq!(findings.counts["legally-lost"], 1);
}

#[test]
fn a_cached_message_that_turned_durable_may_not_be_lost() {
    let story = Story::of("ASYNC_FLUSH");
    story.send(0, 0).send(1, 1).flush(2).down("broker-a/0", Down::PowerLoss).recover(1).consume(0, 0);
    assert_eq!(story.found(), [("lost", 1)]);
}

#[test]
fn a_kill_destroys_nothing() {
    let story = Story::of("ASYNC_FLUSH");
    story.send(0, 0).send(1, 1).down("broker-a/0", Down::Kill).recover(1).consume(0, 0);
    assert_eq!(story.found(), [("lost", 1)]);
}

#[test]
fn with_a_buffer_pool_a_kill_destroys_what_was_not_written_to_the_log() {
    let story = || {
        let story = Story::of("ASYNC_FLUSH\", transientStorePoolEnable = \"true");
        story.send(0, 0).send(1, 1);
        story
    };
    let written = |story: &Story, up_to: i64| {
        story.event("broker-a/0", |_| Event::Point("store.committed", up_to * 100));
    };
    let taken = story();
    written(&taken, 1);
    taken.down("broker-a/0", Down::Kill).recover(1).consume(0, 0);
    let findings = taken.findings();
    assert!(findings.reports.iter().all(|report| report.count == 0), "{:?}", findings.reports);
    assert_eq!(findings.legally_lost.keys().collect::<Vec<_>>(), [&("billing".to_owned(), message(1))]);
    let kept = story();
    written(&kept, 2);
    kept.down("broker-a/0", Down::Kill).recover(1).consume(0, 0);
    assert_eq!(kept.found(), [("lost", 1)]);
}

#[test]
fn what_stands_where_a_lost_message_stood_is_not_lost_with_it() {
    let story = Story::of("ASYNC_FLUSH");
    story.send(0, 0).down("broker-a/0", Down::PowerLoss).recover(0).send(1, 0).consume(1, 0);
    let findings = story.findings();
    assert!(findings.reports.iter().all(|report| report.count == 0), "{:?}", findings.reports);
    assert_eq!(findings.legally_lost.keys().collect::<Vec<_>>(), [&("billing".to_owned(), message(0))]);
}

#[test]
fn what_takes_the_offset_of_a_consumed_and_lost_message_must_be_read() {
    let story = Story::of("ASYNC_FLUSH");
    story.send(0, 0).consume(0, 0).down("broker-a/0", Down::PowerLoss).recover(0).send(1, 0);
    assert_eq!(story.found(), [("unread", 1)]);
    assert!(story.findings().legally_lost.is_empty());
}

#[test]
fn what_stands_where_a_consumed_message_was_lost_is_no_duplicate() {
    let story = Story::of("ASYNC_FLUSH");
    story.send(0, 0).consume(0, 0).later(100).down("broker-a/0", Down::PowerLoss).recover(0).send(1, 0).consume(1, 0);
    assert_eq!(story.found(), []);
}

#[test]
fn an_acknowledgement_that_arrives_after_the_crash_counts_for_the_life_before() {
    let story = Story::of("SYNC_FLUSH");
    story.invoke(0).append(0).flush(1).down("broker-a/0", Down::PowerLoss).ok(0, 0).recover(0);
    assert_eq!(story.found(), [("lost", 1)]);
}

#[test]
fn a_message_of_a_deleted_file_is_legally_lost() {
    let story = Story::of("SYNC_FLUSH");
    story.send(0, 0).event("broker-a/0", |_| Event::Delete(0));
    let findings = story.findings();
    assert!(findings.reports.iter().all(|report| report.count == 0));
    assert_eq!(findings.legally_lost.len(), 1);
}

/// Forced deletion takes whatever stands in a file, messages that wait for their next delivery included (`spec/store.md`
/// 9): what is to come again was stored anew after it was refused.
#[test]
fn a_retry_whose_file_was_deleted_is_legally_lost() {
    let found = |refused_at: u64| {
        let story = Story::of("SYNC_FLUSH");
        // Files have 4 KiB, 40 records of 100 bytes and a part of the next one.
        story.append(refused_at - 1).send(0, refused_at).deliver("billing/0", 0, refused_at);
        story.nack("billing/0", 0, refused_at).append(refused_at + 1).append(60);
        story.event("broker-a/0", |_| Event::Delete(0));
        let pending = story.recorder.with(|history| crate::run::pending::deliveries(&story.scenario, history));
        (story.found(), pending)
    };
    assert_eq!(found(10), (vec![], vec![]));
    // The file was full before the message was refused.
    assert_eq!(found(50), (vec![("unread", 1)], vec!["p0-0000 is to come again to billing".to_owned()]));
}

#[test]
fn a_refused_copy_of_what_the_group_has_finished_need_not_come_again() {
    let pending = |finished_before: bool| {
        let story = Story::of("SYNC_FLUSH");
        story.send(0, 0);
        if finished_before {
            story.consume(0, 0);
        }
        story.deliver("billing/1", 0, 0).nack("billing/1", 0, 0);
        story.recorder.with(|history| crate::run::pending::deliveries(&story.scenario, history))
    };
    assert_eq!(pending(true), Vec::<String>::new());
    assert_eq!(pending(false), ["p0-0000 is to come again to billing"]);
}

#[test]
fn the_retry_that_an_owner_was_promised_and_lost_is_not_owed_because_another_owner_refused_as_well() {
    let found = |lost: bool, gives_up: bool| {
        let story = Story::of("ASYNC_FLUSH");
        story.send(0, 0).flush(1).deliver("billing/0", 0, 0).nack("billing/0", 0, 0).append(1);
        if lost {
            story.down("broker-a/0", Down::PowerLoss).recover(1);
        }
        story.assign("billing/1").deliver("billing/1", 0, 0).nack("billing/1", 0, 0);
        if gives_up {
            story.revoke("billing/1");
        }
        let pending = story.recorder.with(|history| crate::run::pending::deliveries(&story.scenario, history));
        (story.found(), pending)
    };
    let owed = (vec![("unread", 1)], vec!["p0-0000 is to come again to billing".to_owned()]);
    assert_eq!(found(true, true), (vec![], vec![]));
    assert_eq!(found(true, false), owed);
    assert_eq!(found(false, true), owed);
}

#[test]
fn what_lies_at_or_behind_a_spoilt_page_is_legally_lost() {
    let found = |page: u64, is_cut: bool| {
        let story = Story::of("SYNC_FLUSH");
        story.send(0, 0).flush(1);
        story.event("broker-a/0", |_| Event::DiskError("lost-write", format!("commitlog/00000000000000000000@{page}")));
        story.down("broker-a/0", Down::PowerLoss).recover(if is_cut { 0 } else { 1 });
        story.found()
    };
    assert_eq!((found(0, true), found(0, false)), (vec![], vec![]));
    assert_eq!(found(1, true), [("lost", 1)], "a page behind it is no excuse");
    assert_eq!(found(1, false), [("unread", 1)]);
}

#[test]
fn what_a_lying_flush_promised_is_legally_lost_to_a_power_loss_only() {
    let found = |lies: bool, how| {
        let story = Story::of("SYNC_FLUSH");
        story.invoke(0).append(0);
        if lies {
            story.event("broker-a/0", |_| Event::DiskError("lying-flush", "commitlog/00000000000000000000".into()));
        }
        story.flush(1).ok(0, 0).down("broker-a/0", how).recover(0);
        story.found()
    };
    assert_eq!(found(true, Down::PowerLoss), []);
    assert_eq!(found(true, Down::Kill), [("lost", 1)]);
    assert_eq!(found(false, Down::PowerLoss), [("lost", 1)]);
}

/// A message on disk, whose disk is exchanged by this, before or after the message was stored.
fn exchanged(kind: &'static str, claim: &str, before: bool) -> Vec<(&'static str, u64)> {
    let story = Story::with("SYNC_FLUSH", claim);
    let exchange = || {
        story.down("broker-a/0", Down::PowerLoss).event("broker-a/0", |_| Event::DiskError(kind, "/".into()));
    };
    if before {
        exchange();
        story.recover(0);
    }
    story.send(0, 0).flush(1);
    if !before {
        exchange();
    } else {
        story.down("broker-a/0", Down::PowerLoss);
    }
    story.recover(0);
    story.found()
}

#[test]
fn what_was_on_a_replaced_disk_is_legally_lost_and_what_came_after_is_not() {
    assert_eq!(exchanged("disk-replaced", "", false), []);
    assert_eq!(exchanged("disk-replaced", "", true), [("lost", 1)]);
}

#[test]
fn what_a_backup_does_not_hold_is_legally_lost_if_that_is_claimed() {
    let claim = "[claim]\nsurvives = [\"restore-backup\"]\n";
    assert_eq!(exchanged("restore-backup", claim, false), []);
    assert_eq!(exchanged("restore-backup", claim, true), [("lost", 1)]);
    assert_eq!(exchanged("restore-backup", "", false), [("lost", 1)]);
}

#[test]
fn a_backup_brings_back_what_a_replaced_disk_had_taken_along() {
    let found = |is_read: bool| {
        let story = Story::with(
            "SYNC_FLUSH",
            "[claim]\nsurvives = [\"restore-backup\"]\n[[fault]]\nid = \"f\"\nat = \"30s\"\n\
             kind = \"restore-backup\"\nnode = \"broker-a/0\"\ntaken = \"10s\"\n",
        );
        let exchange = |kind| {
            story.down("broker-a/0", Down::PowerLoss).event("broker-a/0", |_| Event::DiskError(kind, "/".into()));
        };
        story.event("probe/0", |_| Event::Phase("active")).send(0, 0).flush(1).later(20);
        exchange("disk-replaced");
        // Takes the offset and the place of the first one.
        story.recover(0).send(1, 0).flush(1);
        story.event("probe/0", |_| Event::FaultBegin("f".into(), "restore-backup"));
        exchange("restore-backup");
        story.recover(1).send(2, 1).consume(2, 1);
        if is_read {
            story.consume(0, 0);
        }
        story.found()
    };
    assert_eq!(found(true), []);
    assert_eq!(found(false), [("unread", 1)]);
}

#[test]
fn a_hole_of_a_disk_that_was_replaced_excuses_nothing_on_the_new_one() {
    let story = Story::of("SYNC_FLUSH");
    story.event("broker-a/0", |_| Event::DiskError("bit-rot", "commitlog/00000000000000000000@0".into()));
    story.down("broker-a/0", Down::PowerLoss).event("broker-a/0", |_| Event::DiskError("disk-replaced", "/".into()));
    story.recover(0).send(0, 0).flush(1).down("broker-a/0", Down::Kill).recover(0);
    assert_eq!(story.found(), [("lost", 1)]);
}

#[test]
fn committed_offsets_go_with_their_disk() {
    let found = |is_replaced: bool| {
        let story = Story::of("SYNC_FLUSH");
        story.send(0, 0).flush(1).consume(0, 0).commit(1).later(30).commit(1);
        story.down("broker-a/0", Down::PowerLoss);
        if is_replaced {
            story.event("broker-a/0", |_| Event::DiskError("disk-replaced", "/".into()));
        }
        story.recover(if is_replaced { 0 } else { 1 }).later(1).commit(0);
        story.found()
    };
    assert_eq!(found(true), []);
    assert_eq!(found(false), [("commit-regress", 1)]);
}

#[test]
fn what_was_not_sent_or_was_changed_is_a_phantom() {
    let story = Story::of("SYNC_FLUSH");
    story.consume(5, 0);
    assert_eq!(story.found(), [("phantom", 1)]);
    let story = Story::of("SYNC_FLUSH");
    let changed = Look { crc: 9, ..look(0) };
    story.send(0, 0).deliver_as("billing/0", 0, 0, changed).ack("billing/0", 0, 0);
    assert_eq!(story.found(), [("phantom", 1)]);
}

#[test]
fn a_second_delivery_needs_a_cause() {
    let story = Story::of("SYNC_FLUSH");
    story.send(0, 0).consume(0, 0).consume(0, 0);
    assert_eq!(story.found(), [("dup-deliver", 1)]);
}

#[test]
fn two_owners_are_explained_for_fifty_two_seconds_after_a_disturbance() {
    let after = |seconds| {
        let story = Story::of("SYNC_FLUSH");
        story.send(0, 0).later(seconds).consume(0, 0).deliver("billing/1", 0, 0).ack("billing/1", 0, 0);
        story.found()
    };
    assert_eq!(after(51), []);
    assert_eq!(after(53), [("dup-deliver", 1)]);
}

#[test]
fn a_move_in_between_leaves_two_owners_explained() {
    let found = |after: u64| {
        let story = Story::of("SYNC_FLUSH");
        story.send(0, 0).later(after).consume(0, 0).commit(1).later(10);
        // The one that heard of the other gives the queue up; the other never knew of it.
        story.revoke("billing/0").later(1).deliver("billing/1", 0, 0).ack("billing/1", 0, 0);
        story.found()
    };
    assert_eq!(found(20), []);
    assert_eq!(found(53), [("dup-deliver", 1)], "their views agree again, and it is below what was committed");
}

#[test]
fn a_long_silence_disturbs_once_more_when_it_is_noticed() {
    let found = |kind, lasts, after| {
        let story = Story::of("SYNC_FLUSH");
        let (id, begin) = ("f".to_owned(), |id| Event::FaultBegin(id, kind));
        story.send(0, 0).event("probe/0", |_| begin(id.clone())).later(after);
        story.consume(0, 0).deliver("billing/1", 0, 0).ack("billing/1", 0, 0);
        story.later(lasts - after).event("probe/0", |_| Event::FaultEnd(id));
        story.found()
    };
    assert_eq!(found("cut", 200, 80), [("dup-deliver", 1)]);
    assert_eq!(found("cut", 200, 100), []);
    // The end comes too early for anybody to be missed, or the kind silences nobody.
    assert_eq!(found("cut", 89, 88), [("dup-deliver", 1)]);
    assert_eq!(found("kill", 200, 100), [("dup-deliver", 1)]);
}

#[test]
fn going_back_after_a_crash_of_the_broker_is_a_cause() {
    let found = |crashes: bool, corrected_to| {
        let story = Story::of("SYNC_FLUSH");
        story.send(0, 0).send(1, 1);
        if crashes {
            story.down("broker-a/0", Down::Kill).recover(2);
        }
        // The consumer was still busy with what it had.
        story.later(100).consume(0, 0).consume(1, 1);
        story.event("billing/0", |_| Event::Point("client.position-corrected", corrected_to)).consume(1, 1);
        story.found()
    };
    assert_eq!(found(true, 1), []);
    assert_eq!(found(true, 2), [("dup-deliver", 1)]);
    assert_eq!(found(false, 1), [("dup-deliver", 1)]);
}

#[test]
fn a_crash_or_a_queue_that_changed_hands_is_a_cause() {
    let story = Story::of("SYNC_FLUSH");
    story.send(0, 0).deliver("billing/0", 0, 0).down("billing/0", Down::Kill);
    story.deliver("billing/1", 0, 0).ack("billing/1", 0, 0);
    assert_eq!(story.found(), []);
    let story = Story::of("SYNC_FLUSH");
    story.send(0, 0).consume(0, 0).assign("billing/1");
    story.deliver("billing/1", 0, 0).ack("billing/1", 0, 0);
    assert_eq!(story.found(), []);
}

#[test]
fn another_queue_that_moves_neither_explains_a_delivery_nor_makes_it_worse() {
    let found = |after: u64| {
        let story = Story::of("SYNC_FLUSH");
        story.send(0, 0).later(after).consume(0, 0).commit(1).later(10);
        // Cut off, it had thought all the time that the queue is its own; what it hears first is of another one.
        story.revoke_of("billing/1", "broker-b").assign_of("billing/1", "broker-b");
        story.deliver("billing/1", 0, 0).ack("billing/1", 0, 0);
        story.found()
    };
    assert_eq!(found(20), []);
    assert_eq!(found(53), [("dup-deliver", 1)]);
}

#[test]
fn no_cause_explains_a_delivery_below_what_was_committed_long_before() {
    let story = Story::of("SYNC_FLUSH");
    story.send(0, 0).consume(0, 0).commit(1).later(20).assign("billing/1");
    story.deliver("billing/1", 0, 0).ack("billing/1", 0, 0);
    assert_eq!(story.found(), [("dup-deliver", 1)]);
}

#[test]
fn a_member_that_was_frozen_goes_on_with_what_it_asked_for_before() {
    let found = |frozen: u64| {
        let story = Story::with_pause_of("billing/1");
        story.send(0, 0).consume(0, 0).event("probe/0", |_| Event::FaultBegin("f".into(), "pause")).commit(1);
        story.later(frozen).event("probe/0", |_| Event::FaultEnd("f".into())).later(10 - frozen);
        story.assign("billing/1").deliver("billing/1", 0, 0).ack("billing/1", 0, 0);
        story.found()
    };
    assert_eq!(found(2), [("dup-deliver", 1)]);
    assert_eq!(found(9), []);
}

#[test]
fn a_disk_that_is_too_slow_may_not_have_saved_what_was_committed_long_before_a_crash() {
    let found = |factor: u32| {
        let slow = format!("kind = \"disk-slow\"\nnode = \"broker-a/0\"\nfactor = {factor}\nfor = \"1s\"\n");
        let story = Story::with("SYNC_FLUSH", &format!("[[fault]]\nid = \"f\"\nat = \"1s\"\n{slow}"));
        story.send(0, 0).consume(0, 0).event("probe/0", |_| Event::FaultBegin("f".into(), "disk-slow")).commit(1);
        story.later(20).down("broker-a/0", Down::Kill).restart("broker-a/0").recover(1).commit(0);
        story.found()
    };
    assert_eq!(found(14), [("commit-regress", 1)]);
    assert_eq!(found(15), []);
}

#[test]
fn a_member_that_started_after_a_commit_knows_it() {
    let found = |committed| {
        let story = Story::of("SYNC_FLUSH");
        story.send(0, 0).consume(0, 0).commit(committed).down("billing/0", Down::Stop).restart("billing/0");
        story.deliver("billing/0", 0, 0).ack("billing/0", 0, 0);
        story.found()
    };
    assert_eq!(found(1), [("dup-deliver", 1)]);
    assert_eq!(found(0), []);
}

#[test]
fn an_owner_that_stands_below_a_commit_takes_it_back() {
    let found = |commits_again: bool| {
        let story = Story::of("SYNC_FLUSH");
        story.send(0, 0).consume(0, 0).commit(1).assign("billing/1");
        // It had asked before the commit, and commits where it stands; nobody has looked since.
        story.deliver("billing/1", 0, 0).ack("billing/1", 0, 0);
        if commits_again {
            story.commit(2);
        }
        story.down("billing/0", Down::Kill).restart("billing/0").deliver("billing/0", 0, 0).ack("billing/0", 0, 0);
        story.found()
    };
    assert_eq!(found(false), []);
    assert_eq!(found(true), [("dup-deliver", 1)]);
}

#[test]
fn a_member_that_was_frozen_takes_a_commit_back_when_it_stops() {
    let found = |is_frozen: bool| {
        let story = Story::with_pause_of("billing/1");
        story.send(0, 0).later(60);
        if is_frozen {
            story.event("probe/0", |_| Event::FaultBegin("f".into(), "pause"));
        }
        story.consume(0, 0).later(1).commit(1).later(1);
        story.revoke("billing/1").down("billing/1", Down::Stop);
        if is_frozen {
            story.event("probe/0", |_| Event::FaultEnd("f".into()));
        }
        story.restart("billing/1").deliver("billing/1", 0, 0).ack("billing/1", 0, 0);
        story.found()
    };
    assert_eq!(found(true), []);
    assert_eq!(found(false), [("dup-deliver", 1)]);
}

#[test]
fn a_commit_that_was_seen_to_be_taken_back_was_not_for_good() {
    let found = |taken_back: bool| {
        let story = Story::of("SYNC_FLUSH");
        story.send(0, 0).consume(0, 0).commit(1).later(60);
        if taken_back {
            // Somebody who was cut off and still thought that the queue was his gives it up, with a commit.
            story.revoke("billing/1").commit(0);
        }
        story.assign("billing/0").deliver("billing/0", 0, 0).ack("billing/0", 0, 0);
        story.found()
    };
    assert_eq!(found(true), []);
    assert_eq!(found(false), [("dup-deliver", 1)]);
}

#[test]
fn a_higher_offset_for_the_earlier_message_breaks_the_order() {
    let story = Story::of("SYNC_FLUSH");
    story.invoke(0).append(0).append(1).flush(2).ok(0, 1).invoke(1).flush(2).ok(1, 0).consume(0, 1).consume(1, 0);
    assert_eq!(story.found(), [("order-store", 1)]);
}

#[test]
fn sends_that_overlap_may_take_any_order() {
    let story = Story::of("SYNC_FLUSH");
    story.invoke(0).invoke(1).append(0).append(1).flush(2).ok(0, 1).ok(1, 0).consume(0, 1).consume(1, 0);
    assert_eq!(story.found(), []);
}

#[test]
fn what_is_pending_at_the_end_is_stuck() {
    let story = Story::of("SYNC_FLUSH");
    story.event("probe/0", |_| Event::Pending("billing: 3 messages behind at orders/broker-a/0".into()));
    assert_eq!(story.found(), [("stuck", 1)]);
}

#[test]
fn a_long_history_is_checked_without_false_alarms() {
    let story = Story::of("SYNC_FLUSH");
    for n in 0..20_000 {
        story.send(n, n.into()).flush(u64::from(n) + 1).consume(n, n.into()).commit(u64::from(n) + 1);
    }
    assert_eq!(story.found(), []);
}

/// A pair whose master dies, with a message that its slave has and one that it has only if `copied`; then the slave is
/// promoted.
fn promoted(role: Role, copied: bool) -> Vec<(&'static str, u64)> {
    let mut story = Story::of("ASYNC_FLUSH");
    story.scenario.brokers[0].replicas = vec![role, Role::Slave];
    let story = story.up("broker-a/1");
    let copy = |end: u64| story.event("broker-a/1", |_| Event::Append(end * 100));
    story.invoke(0).append(0);
    copy(1).ok(0, 0).consume(0, 0).invoke(1).append(1);
    if copied {
        copy(2);
    }
    story
        .ok(1, 1)
        .down("broker-a/0", Down::Kill)
        .down("broker-a/1", Down::Stop)
        .event("broker-a/1", |_| Event::Promoted);
    story.restart("broker-a/1").event("broker-a/1", |_| Event::Recover(if copied { 200 } else { 100 }));
    story.found()
}

#[test]
fn what_a_promoted_slave_lacks_is_owed_if_a_copy_on_it_was_promised() {
    assert_eq!(promoted(Role::SyncMaster, false), [("lost", 1)]);
    assert_eq!(promoted(Role::AsyncMaster, false), [], "it was promised by the master alone");
    assert_eq!(promoted(Role::AsyncMaster, true), [("unread", 1)]);
    assert_eq!(promoted(Role::SyncMaster, true), [("unread", 1)]);
}
