//! Stories about queues that have two owners for a while.

use super::*;

#[test]
fn a_member_that_goes_on_after_a_pause_takes_a_commit_back_before_it_hears_that_it_has_lost_its_queue() {
    // It owned the queue when it was frozen; how long before the second delivery it goes on; whether somebody has seen
    // the higher offset long after that.
    let found = |was_owner: bool, goes_on: u64, seen_again: bool| {
        let story = Story::with_pause_of("billing/1");
        if was_owner {
            story.assign("billing/1");
        }
        story.send(0, 0).later(60).event("probe/0", |_| Event::FaultBegin("f".into(), "pause"));
        story.assign("billing/0").consume(0, 0).later(1).commit(1).later(10);
        story.event("probe/0", |_| Event::FaultEnd("f".into())).later(goes_on);
        if seen_again {
            story.commit(1);
        }
        story.revoke("billing/0").assign("billing/0").deliver("billing/0", 0, 0).ack("billing/0", 0, 0);
        story.found()
    };
    assert_eq!(found(true, 1, false), []);
    assert_eq!(found(true, 6, true), [("dup-deliver", 1)]);
    assert_eq!(found(false, 1, false), [("dup-deliver", 1)]);
}

#[test]
fn routes_differ_longer_when_a_name_server_has_taken_an_old_registration_for_the_latest() {
    let found = |frozen: &str, seconds: u64| {
        let story = Story::with_pause_of(frozen);
        story.event("probe/0", |_| Event::FaultBegin("f".into(), "pause"));
        story.event("probe/0", |_| Event::FaultEnd("f".into())).later(seconds);
        story.send(0, 0).consume(0, 0).deliver("billing/1", 0, 0).ack("billing/1", 0, 0);
        story.found()
    };
    // The broker registers within 30 s, and views differ for 52 s from then on.
    assert_eq!(found("namesrv/0", 81), []);
    assert_eq!(found("namesrv/0", 83), [("dup-deliver", 1)]);
    assert_eq!(found("checkout/0", 51), []);
    assert_eq!(found("checkout/0", 53), [("dup-deliver", 1)]);
}

#[test]
fn routes_differ_until_a_broker_that_a_new_name_server_does_not_know_is_missed_or_registers() {
    let found = |restarts: bool, after_restart: u64, after_pause: u64| {
        let story = Story::with_pause_of("billing/1").up("namesrv/0");
        story.event("probe/0", |_| Event::FaultBegin("f".into(), "pause")).later(20);
        if restarts {
            story.down("namesrv/0", Down::Kill).restart("namesrv/0");
        }
        story.later(after_restart);
        if after_pause > 0 {
            story.event("probe/0", |_| Event::FaultEnd("f".into())).later(after_pause);
        }
        story.send(0, 0).consume(0, 0).deliver("billing/1", 0, 0).ack("billing/1", 0, 0);
        if after_pause == 0 {
            story.event("probe/0", |_| Event::FaultEnd("f".into()));
        }
        story.found()
    };
    // Others miss the broker 90 s after it fell silent at the earliest. The new name server hears of it within 30 s after
    // it goes on, and views differ for 52 s from then on.
    assert_eq!(found(true, 69, 0), []);
    assert_eq!(found(false, 69, 0), [("dup-deliver", 1)]);
    assert_eq!(found(true, 60, 81), []);
    assert_eq!(found(true, 60, 83), [("dup-deliver", 1)]);
    assert_eq!(found(false, 60, 53), [("dup-deliver", 1)]);
}

#[test]
fn a_name_server_that_restarts_hears_of_brokers_with_their_next_registration() {
    let found = |lives: usize, seconds: u64| {
        let story = (0..lives).fold(Story::of("SYNC_FLUSH"), |story, _| story.up("namesrv/0"));
        story.later(seconds).send(0, 0).consume(0, 0).deliver("billing/1", 0, 0).ack("billing/1", 0, 0);
        story.found()
    };
    assert_eq!(found(2, 81), []);
    assert_eq!(found(2, 83), [("dup-deliver", 1)]);
    // Brokers that start after it register with it at once.
    assert_eq!(found(1, 53), [("dup-deliver", 1)]);
}

#[test]
fn an_owner_that_is_given_nothing_commits_as_well() {
    let found = |owns: bool, dies: bool| {
        let story = Story::of("SYNC_FLUSH");
        if owns {
            story.assign("billing/1");
        }
        if dies {
            story.down("billing/1", Down::Kill);
        }
        story.send(0, 0).consume(0, 0).later(20).commit(5).later(1).commit(3);
        story.found()
    };
    assert_eq!(found(true, false), []);
    assert_eq!(found(false, false), [("commit-regress", 1)]);
    assert_eq!(found(true, true), [("commit-regress", 1)]);
}

#[test]
fn an_owner_that_was_cut_off_gives_its_queue_up_with_a_commit_of_its_own() {
    let found = |owned_before: bool| {
        let story = Story::of("SYNC_FLUSH");
        story.assign("billing/0");
        if owned_before {
            story.assign("billing/1");
        }
        story.later(100).send(0, 0).consume(0, 0).commit(1).later(60);
        if owned_before {
            story.revoke("billing/1");
        }
        story.assign("billing/1").deliver("billing/1", 0, 0).ack("billing/1", 0, 0);
        story.found()
    };
    assert_eq!(found(true), []);
    assert_eq!(found(false), [("dup-deliver", 1)]);
}
