//! Stories about committed offsets.

use super::*;

#[test]
fn a_committed_offset_may_not_go_back_without_a_crash() {
    let story = Story::of("SYNC_FLUSH");
    story.commit(5).later(20).commit(3);
    assert_eq!(story.found(), [("commit-regress", 1)]);
}

#[test]
fn a_stop_that_could_not_write_the_offsets_saves_none() {
    let found = |fails: bool| {
        let story = Story::of("SYNC_FLUSH");
        story.commit(5).later(60).commit(9);
        if fails {
            story.event("broker-a/0", |_| Event::DiskError("eio-write", "config/consumerOffset.json.tmp".into()));
        }
        story.down("broker-a/0", Down::Stop).recover(0).later(60).commit(5);
        story.found()
    };
    assert_eq!(found(true), []);
    assert_eq!(found(false), [("commit-regress", 1)]);
}

#[test]
fn a_member_that_lost_its_queue_while_it_was_frozen_commits_once_more() {
    let found = |frozen: u64| {
        let story = Story::with_pause_of("billing/1");
        story.event("probe/0", |_| Event::FaultBegin("f".into(), "pause")).assign("billing/0");
        story.later(frozen).event("probe/0", |_| Event::FaultEnd("f".into()));
        story.later(20 - frozen).commit(5).later(1).commit(3);
        story.found()
    };
    assert_eq!(found(15), []);
    assert_eq!(found(5), [("commit-regress", 1)]);
}

#[test]
fn a_commit_of_an_old_owner_that_the_network_has_kept_may_come_late() {
    let found = |seconds: u64, after: u64| {
        let clog = "[[fault]]\nid = \"f\"\nat = \"1s\"\nkind = \"clog\"\nnode = \"billing/1\"\nfor = \"1s\"\n";
        let story = Story::with("SYNC_FLUSH", clog);
        story.event("probe/0", |_| Event::FaultBegin("f".into(), "clog")).assign("billing/0");
        story.later(seconds).event("probe/0", |_| Event::FaultEnd("f".into()));
        story.later(after).commit(5).later(1).commit(3);
        story.found()
    };
    assert_eq!(found(30, 1), []);
    // What was lost is sent again when the network has been bad for as long once more, if not sooner.
    assert_eq!(found(30, 30 + 9), []);
    assert_eq!(found(30, 30 + 11), [("commit-regress", 1)]);
    assert_eq!(found(0, 11), [("commit-regress", 1)]);
}

#[test]
fn what_an_old_commit_that_the_network_kept_took_back_was_not_committed_for_good() {
    let found = |kept: u64, after: u64| {
        let clog = "[[fault]]\nid = \"f\"\nat = \"1s\"\nkind = \"clog\"\nnode = \"billing/1\"\nfor = \"1s\"\n";
        let story = Story::with("SYNC_FLUSH", clog);
        story.assign("billing/0").send(0, 0).consume(0, 0);
        story.event("probe/0", |_| Event::FaultBegin("f".into(), "clog")).commit(1).later(kept);
        story.event("probe/0", |_| Event::FaultEnd("f".into())).later(after);
        story.revoke("billing/0").assign("billing/1").deliver("billing/1", 0, 0).ack("billing/1", 0, 0);
        story.found()
    };
    assert_eq!(found(30, 1), []);
    assert_eq!(found(30, 34), []);
    assert_eq!(found(30, 36), [("dup-deliver", 1)]);
    assert_eq!(found(0, 30), [("dup-deliver", 1)]);
}

#[test]
fn an_old_owner_gives_its_queue_up_with_a_commit_after_a_crash_of_the_broker_too() {
    let found = |gives_up: bool| {
        let story = Story::of("SYNC_FLUSH");
        story.commit(5).later(60).down("broker-a/0", Down::PowerLoss).recover(0).later(60);
        if gives_up {
            story.revoke("billing/1");
        }
        story.commit(3);
        story.found()
    };
    assert_eq!(found(true), []);
    assert_eq!(found(false), [("commit-regress", 1)]);
}

#[test]
fn a_member_that_was_frozen_over_a_crash_commits_how_far_it_was() {
    let found = |is_frozen: bool| {
        let story = Story::with_pause_of("billing/1");
        if is_frozen {
            story.event("probe/0", |_| Event::FaultBegin("f".into(), "pause"));
        }
        story.later(60).commit(5).later(20).commit(8).down("broker-a/0", Down::Kill).recover(0);
        if is_frozen {
            story.event("probe/0", |_| Event::FaultEnd("f".into()));
        }
        story.later(1).commit(3);
        story.found()
    };
    assert_eq!(found(true), []);
    assert_eq!(found(false), [("commit-regress", 1)]);
}

#[test]
fn two_owners_after_a_disturbance_both_commit() {
    let found = |seconds: u64, second_owner: &str| {
        let story = Story::of("SYNC_FLUSH");
        story.send(0, 0).send(1, 1).consume(0, 0).later(20).deliver(second_owner, 1, 1).ack(second_owner, 1, 1);
        story.later(seconds - 20).commit(5).later(1).commit(3);
        story.found()
    };
    assert_eq!(found(50, "billing/1"), []);
    assert_eq!(found(50, "billing/0"), [("commit-regress", 1)]);
    assert_eq!(found(52, "billing/1"), [("commit-regress", 1)]);
}

#[test]
fn a_crash_takes_committed_offsets_back_to_the_last_writing() {
    let crash = |seen_after: u64| {
        let story = Story::of("SYNC_FLUSH");
        story.commit(5).later(20).commit(8).down("broker-a/0", Down::Kill).recover(0).commit(seen_after);
        story.found()
    };
    assert_eq!(crash(5), []);
    assert_eq!(crash(4), [("commit-regress", 1)]);
}

#[test]
fn a_broker_that_stands_still_writes_no_offsets() {
    let found = |frozen: u64| {
        let story = Story::with_pause_of("broker-a/0");
        story.commit(5).later(2).event("probe/0", |_| Event::FaultBegin("f".into(), "pause")).later(frozen);
        story.event("probe/0", |_| Event::FaultEnd("f".into())).later(15 - frozen);
        story.down("broker-a/0", Down::Kill).recover(0).commit(3);
        story.found()
    };
    assert_eq!(found(1), [("commit-regress", 1)]);
    assert_eq!(found(6), []);
}

#[test]
fn an_answer_that_arrives_after_the_crash_tells_of_the_life_before() {
    let found = |late: bool| {
        let story = Story::of("SYNC_FLUSH");
        story.down("broker-a/0", Down::Kill);
        let story = if late { story.commit(5).restart("broker-a/0") } else { story.restart("broker-a/0").commit(5) };
        story.later(20).commit(6).down("broker-a/0", Down::Kill).restart("broker-a/0").commit(3);
        story.found()
    };
    assert_eq!(found(true), []);
    assert_eq!(found(false), [("commit-regress", 1)]);
}

#[test]
fn an_answer_that_arrives_after_the_crash_may_be_taken_back_by_it() {
    let found = |late: bool| {
        let story = Story::of("SYNC_FLUSH");
        story.commit(5).later(20);
        let story = if late {
            story.down("broker-a/0", Down::Kill).commit(8).restart("broker-a/0")
        } else {
            story.down("broker-a/0", Down::Kill).restart("broker-a/0").commit(8)
        };
        story.later(60).commit(5);
        story.found()
    };
    assert_eq!(found(true), []);
    assert_eq!(found(false), [("commit-regress", 1)]);
}

#[test]
fn a_broker_that_cannot_make_anything_durable_saves_no_offsets_until_it_is_restarted() {
    let found = |kind: &'static str, file: &str| {
        let story = Story::of("SYNC_FLUSH");
        story.commit(5).later(60).event("broker-a/0", |_| Event::DiskError(kind, file.into()));
        story.commit(8).later(60).down("broker-a/0", Down::Stop).restart("broker-a/0").commit(5);
        story.found()
    };
    assert_eq!(found("eio-flush", "commitlog/0"), []);
    assert_eq!(found("eio-flush", "consumequeue/orders/0/0"), []);
    assert_eq!(found("eio-flush", "checkpoint"), [("commit-regress", 1)]);
    assert_eq!(found("eio-flush", "config/0"), [("commit-regress", 1)]);
    assert_eq!(found("eio-write", "consumequeue/orders/0/0"), [("commit-regress", 1)]);
}

#[test]
fn a_second_crash_may_take_what_the_first_had_left_in_memory() {
    let story = Story::of("SYNC_FLUSH");
    story.commit(5).later(20).commit(8).down("broker-a/0", Down::Kill).later(20).recover(0).commit(9);
    story.down("broker-a/0", Down::Kill).later(20).recover(0).commit(5);
    assert_eq!(story.found(), []);
}
