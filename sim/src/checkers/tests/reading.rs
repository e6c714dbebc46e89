//! Stories about where members read on, about retries and delays, and about what name servers say.

use super::*;

#[test]
fn a_message_stands_at_one_place_unless_its_producer_has_tried_again() {
    let found = |tries: u32| {
        let story = Story::of("SYNC_FLUSH");
        story.invoke(0).append(0).append(1).flush(2);
        if tries > 1 {
            story.event("checkout/0", |_| Event::SendTries(message(0), tries));
        }
        story.ok(0, 1).consume(0, 0).consume(0, 1);
        story.found()
    };
    assert_eq!(found(1), [("dup-store", 1)]);
    assert_eq!(found(2), []);
}

#[test]
fn a_producer_that_died_may_have_tried_as_often_as_it_may() {
    let found = |places: u64| {
        let story = Story::of("SYNC_FLUSH");
        story.invoke(0);
        for at in 0..places {
            story.append(at).flush(at + 1).consume(0, at);
        }
        story.down("checkout/0", Down::Kill);
        story.found()
    };
    assert_eq!(found(3), []);
    assert_eq!(found(4), [("dup-store", 1)]);
}

#[test]
fn what_comes_again_by_the_queue_of_retries_is_not_stored_twice() {
    let story = Story::of("SYNC_FLUSH");
    story.send(0, 0).deliver("billing/0", 0, 0).nack("billing/0", 0, 0).later(10).again("billing/0", 0, 0);
    story.event("billing/0", |history| Event::Ack(Some(message(0)), history.intern_queue(retry_queue()), 0));
    assert_eq!(story.found(), []);
}

/// A member reads on behind a message that the other one had, and something happens.
fn passed_over(happens: impl Fn(&Story)) -> Vec<(&'static str, u64)> {
    let story = Story::of("SYNC_FLUSH");
    story.send(0, 0).deliver("billing/1", 0, 0).ack("billing/1", 0, 0).poll("billing/0", 0);
    happens(&story);
    story.poll("billing/0", 1).event("probe/0", |_| Event::Converged);
    story.found()
}

#[test]
fn a_member_that_keeps_its_queue_passes_over_nothing() {
    assert_eq!(passed_over(|_| {}), [("skip", 1)]);
    assert_eq!(passed_over(|story| _ = story.consume(0, 0)), [], "it was given");
    assert_eq!(passed_over(|story| _ = story.revoke("billing/0").assign("billing/0")), []);
    let corrected = |story: &Story| {
        story.event("billing/0", |_| Event::Point("client.position-corrected", 1));
    };
    assert_eq!(passed_over(corrected), []);
    let unreadable = |story: &Story| {
        story.event("billing/0", |_| Event::Point("client.message-unreadable", 0));
    };
    assert_eq!(passed_over(unreadable), []);
}

#[test]
fn what_was_given_up_later_need_not_have_been_given() {
    let story = Story::of("SYNC_FLUSH");
    story.send(0, 0).poll("billing/0", 0).poll("billing/0", 1).revoke("billing/0").consume(0, 0);
    story.event("probe/0", |_| Event::Converged);
    assert_eq!(story.found(), []);
}

#[test]
fn a_member_cannot_have_passed_over_what_came_later() {
    let story = Story::of("SYNC_FLUSH");
    story.poll("billing/0", 0).poll("billing/0", 1).send(0, 0).deliver("billing/1", 0, 0).ack("billing/1", 0, 0);
    story.event("probe/0", |_| Event::Converged);
    assert_eq!(story.found(), []);
}

#[test]
fn a_member_goes_back_only_when_it_is_told_to() {
    let found = |between: &dyn Fn(&Story)| {
        let story = Story::of("SYNC_FLUSH");
        story.poll("billing/0", 5).poll("billing/0", 5).poll("billing/1", 3);
        between(&story);
        story.poll("billing/0", 4);
        story.found()
    };
    assert_eq!(found(&|_| {}), [("backwards", 1)]);
    assert_eq!(found(&|story| _ = story.assign("billing/0")), []);
    assert_eq!(found(&|story| _ = story.down("billing/0", Down::Kill).restart("billing/0")), []);
    let corrected = |story: &Story| {
        story.event("billing/0", |_| Event::Point("client.position-corrected", 4));
    };
    assert_eq!(found(&corrected), []);
}

#[test]
fn a_broker_lets_delayed_messages_go_in_time() {
    let found = |seconds: u64| {
        let story = Story::of("SYNC_FLUSH");
        story.append(0).flush(1).later(seconds).due(0, 3);
        story.found()
    };
    // Level 3 is 10 s.
    assert_eq!(found(9), [("early", 1)]);
    assert_eq!(found(10), []);
    assert_eq!(found(11), []);
    assert_eq!(found(12), [("late", 1)]);
}

#[test]
fn a_broker_that_was_not_well_may_be_late() {
    let disturbed = |before: u64| {
        let story = Story::with_pause_of("broker-a/0");
        story.event("probe/0", |_| Event::FaultBegin("f".into(), "pause"));
        story.event("probe/0", |_| Event::FaultEnd("f".into()));
        story.later(before).append(0).flush(1).later(30).due(0, 3);
        story.found()
    };
    assert_eq!(disturbed(5), []);
    assert_eq!(disturbed(15), [("late", 1)]);
    let restarted = Story::of("SYNC_FLUSH");
    restarted.append(0).flush(1).down("broker-a/0", Down::Kill).later(30).recover(1).due(0, 3);
    assert_eq!(restarted.found(), []);
    let exchanged = Story::of("SYNC_FLUSH");
    exchanged.append(0).flush(1).down("broker-a/0", Down::PowerLoss);
    exchanged.event("broker-a/0", |_| Event::DiskError("disk-replaced", "by f".into())).recover(0).due(0, 3);
    assert_eq!(exchanged.found(), [], "something else stands there");
    let full = Story::of("SYNC_FLUSH");
    full.event("broker-a/0", |_| Event::Point("store.disk-full", 91)).append(0).flush(1).later(30).due(0, 3);
    assert_eq!(full.found(), []);
}

fn given(story: &Story, queue: Queue, times: u32) {
    story.event("billing/0", |history| Event::Deliver {
        message: Some(message(0)),
        queue: history.intern_queue(queue),
        offset: 0,
        look: look(0),
        times,
    });
}

#[test]
fn a_message_says_how_often_it_was_refused() {
    let found = |times: u32, acked: bool, worked_for: u64| {
        let story = Story::of("SYNC_FLUSH");
        story.send(0, 0).deliver("billing/0", 0, 0).later(worked_for);
        let story = if acked { story.ack("billing/0", 0, 0) } else { story.nack("billing/0", 0, 0) };
        story.later(10);
        given(story, retry_queue(), times);
        story.event("billing/0", |history| Event::Ack(Some(message(0)), history.intern_queue(retry_queue()), 0));
        let found = story.found();
        found.into_iter().filter(|(checker, _)| *checker == "retry").collect::<Vec<_>>()
    };
    assert_eq!(found(1, false, 0), []);
    assert_eq!(found(0, false, 0), [("retry", 1)]);
    assert_eq!(found(2, false, 0), [("retry", 1)]);
    assert_eq!(found(1, true, 0), [("retry", 1)], "nobody wanted it again");
    assert_eq!(found(1, true, 15 * 60), [], "after 15 minutes it is given back whatever its listener says");
}

#[test]
fn a_member_may_give_a_message_to_its_listener_again_by_itself() {
    let story = Story::of("SYNC_FLUSH");
    story.send(0, 0).deliver("billing/0", 0, 0).nack("billing/0", 0, 0);
    given(&story, queue("broker-a"), 1);
    story.ack("billing/0", 0, 0);
    assert_eq!(story.found(), []);
}

#[test]
fn a_name_server_forgets_a_dead_broker() {
    let found = |seconds: u64, named: &[&str]| {
        let story = Story::of("SYNC_FLUSH");
        story.down("broker-a/0", Down::PowerLoss).later(seconds).route(named);
        story.found()
    };
    // It is missed after 120 s, looked for every 5 s, and the answer takes a while.
    assert_eq!(found(127, &["broker-a"]), []);
    assert_eq!(found(129, &["broker-a"]), [("route", 1)]);
    assert_eq!(found(129, &[]), []);
}

#[test]
fn a_broker_that_is_back_or_was_held_back_may_be_named() {
    let back = Story::of("SYNC_FLUSH");
    back.down("broker-a/0", Down::PowerLoss).later(200).recover(0).route(&["broker-a"]);
    assert_eq!(back.found(), []);
    let held = |seconds: u64| {
        let story = Story::with_pause_of("namesrv/0");
        story.event("probe/0", |_| Event::FaultBegin("f".into(), "pause")).down("broker-a/0", Down::PowerLoss);
        story.later(100).event("probe/0", |_| Event::FaultEnd("f".into())).later(seconds).route(&["broker-a"]);
        story.found()
    };
    assert_eq!(held(127), []);
    assert_eq!(held(129), [("route", 1)]);
}

#[test]
fn what_grows_at_rest_is_a_leak() {
    let story = Story::of("SYNC_FLUSH");
    story.event("probe/0", |_| Event::Grown("tasks of broker-a/0 grow: [3, 4, 5]".to_owned()));
    assert_eq!(story.found(), [("leak", 1)]);
}

/// A message is refused as often as it may be, once, and looked for among the dead letters.
fn given_up(times: u32, is_dead: bool, looked: bool) -> Vec<(&'static str, u64)> {
    let mut story = Story::of("SYNC_FLUSH");
    story.scenario.consumers[0].config.push(("maxReconsumeTimes".into(), "1".into()));
    story.send(0, 0).deliver("billing/0", 0, 0).nack("billing/0", 0, 0).later(10);
    given(&story, retry_queue(), times);
    story.event("billing/0", |history| Event::Nack(Some(message(0)), history.intern_queue(retry_queue()), 0));
    story.event("probe/0", |_| Event::Converged);
    if looked {
        story.audited();
    }
    if is_dead {
        let group = "billing".to_owned();
        story.event("broker-a/0", |_| Event::DeadLetter { message: Some(message(0)), group, offset: 0 });
    }
    story.found()
}

#[test]
fn what_was_refused_for_the_last_time_is_a_dead_letter() {
    assert_eq!(given_up(1, true, true), []);
    assert_eq!(given_up(1, false, true), [("retry", 1)]);
    assert_eq!(given_up(1, false, false), [], "a broker that is down was not looked at");
}

#[test]
fn what_no_broker_took_for_a_dead_letter_may_be_finished_by_its_member() {
    let found = |finished: bool| {
        let mut story = Story::of("SYNC_FLUSH");
        story.scenario.consumers[0].config.push(("maxReconsumeTimes".into(), "1".into()));
        story.send(0, 0).deliver("billing/0", 0, 0).nack("billing/0", 0, 0).later(10);
        given(&story, retry_queue(), 1);
        story.event("billing/0", |history| Event::Nack(Some(message(0)), history.intern_queue(retry_queue()), 0));
        if finished {
            story.later(5);
            given(&story, retry_queue(), 2);
            story.event("billing/0", |history| Event::Ack(Some(message(0)), history.intern_queue(retry_queue()), 0));
        }
        story.event("probe/0", |_| Event::Converged);
        story.audited();
        story.found()
    };
    assert_eq!(found(true), []);
    assert_eq!(found(false), [("retry", 1)]);
}

#[test]
fn nothing_else_is_a_dead_letter() {
    let story = Story::of("SYNC_FLUSH");
    let group = "billing".to_owned();
    story.send(0, 0).consume(0, 0).event("broker-a/0", |_| Event::DeadLetter {
        message: Some(message(0)),
        group,
        offset: 0,
    });
    assert_eq!(story.found(), [("retry", 1)]);
}

#[test]
fn what_was_refused_for_the_last_time_is_not_waited_for() {
    let pending = |times: u32| {
        let mut story = Story::of("SYNC_FLUSH");
        story.scenario.consumers[0].config.push(("maxReconsumeTimes".into(), "1".into()));
        story.send(0, 0).deliver("billing/0", 0, 0).nack("billing/0", 0, 0).later(10);
        given(&story, retry_queue(), times);
        story.event("billing/0", |history| Event::Nack(Some(message(0)), history.intern_queue(retry_queue()), 0));
        story.recorder.with(|history| crate::run::pending::deliveries(&story.scenario, history))
    };
    assert_eq!(pending(1), Vec::<String>::new());
    assert_eq!(pending(0), ["p0-0000 is to come again to billing"]);
}

#[test]
fn a_message_that_a_slow_listener_has_not_come_to_is_not_passed_over() {
    let story = Story::of("SYNC_FLUSH");
    story.send(0, 0).poll("billing/0", 0).poll("billing/0", 1).later(600);
    story.event("probe/0", |_| Event::Pending("billing is 1 messages behind".to_owned()));
    assert_eq!(story.found(), [("stuck", 1)]);
}

#[test]
fn a_message_that_is_given_back_for_its_slow_listener_needs_no_refusal() {
    let found = |worked_for: u64| {
        let story = Story::of("SYNC_FLUSH");
        story.send(0, 0).deliver("billing/0", 0, 0).later(worked_for);
        given(&story, retry_queue(), 1);
        story.event("billing/0", |history| Event::Ack(Some(message(0)), history.intern_queue(retry_queue()), 0));
        let found = story.found();
        found.into_iter().filter(|(checker, _)| *checker == "early").collect::<Vec<_>>()
    };
    // The time of consumption, and the delay of the first retry.
    assert_eq!(found(15 * 60 + 10), []);
    assert_eq!(found(15 * 60 + 9), [("early", 1)]);
}

#[test]
fn a_clock_that_still_comes_back_slowly_excuses_a_late_broker() {
    let found = |back: &str| {
        let fault = format!(
            "[[fault]]\nid = \"c\"\nat = \"1s\"\nkind = \"skew\"\nnode = \"broker-a/0\"\nby = \"-10m\"\nback = \"{back}\"\n"
        );
        let story = Story::with("SYNC_FLUSH", &fault);
        story.event("probe/0", |_| Event::FaultBegin("c".into(), "skew"));
        story.event("probe/0", |_| Event::FaultEnd("c".into())).later(20).append(0).flush(1).later(30).due(0, 3);
        story.event("probe/0", |_| Event::Phase("settle"));
        story.found()
    };
    assert_eq!(found("slew"), []);
    assert_eq!(found("step"), [("late", 1)]);
}

#[test]
fn another_copy_of_a_dead_letter_changes_nothing() {
    let mut story = Story::of("SYNC_FLUSH");
    story.scenario.consumers[0].config.push(("maxReconsumeTimes".into(), "1".into()));
    story.send(0, 0).deliver("billing/0", 0, 0).nack("billing/0", 0, 0).later(10);
    given(&story, retry_queue(), 1);
    story.event("billing/0", |history| Event::Nack(Some(message(0)), history.intern_queue(retry_queue()), 0));
    // By a member that had been frozen.
    story.deliver("billing/1", 0, 0).nack("billing/1", 0, 0);
    let pending = story.recorder.with(|history| crate::run::pending::deliveries(&story.scenario, history));
    assert_eq!(pending, Vec::<String>::new());
    assert!(!story.found().iter().any(|(checker, _)| *checker == "unread"));
}
