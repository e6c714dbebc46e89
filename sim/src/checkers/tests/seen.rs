//! Stories about what may be seen at all, and when.

use super::*;

#[test]
fn what_was_refused_for_certain_may_not_be_delivered() {
    let story = Story::of("SYNC_FLUSH");
    story.invoke(0).append(0).flush(1).fail(0).consume(0, 0);
    assert_eq!(story.found(), [("aborted", 1)]);
    // Also if it was delivered before its sender was told.
    let story = Story::of("SYNC_FLUSH");
    story.invoke(0).append(0).flush(1).consume(0, 0).fail(0);
    assert_eq!(story.found(), [("aborted", 1)]);
}

#[test]
fn a_group_gets_only_the_topic_and_the_tags_that_it_has_asked_for() {
    let found = |subscribed: &str| {
        let groups = format!("[[consumer]]\ngroup = \"audit\"\nsubscribe = \"{subscribed}\"\n");
        let more = format!("[[topic]]\nname = \"refunds\"\n{groups}");
        let story = Story::with("SYNC_FLUSH", &more).up("audit/0");
        story.send(0, 0).consume(0, 0).deliver("audit/0", 0, 0).ack("audit/0", 0, 0);
        story.found()
    };
    assert_eq!(found("orders"), []);
    assert_eq!(found("orders: paid"), [("filter", 1)]);
    assert_eq!(found("refunds"), [("filter", 1)]);
}

#[test]
fn one_offset_shows_one_message_unless_the_log_lost_the_first() {
    let found = |flush: &str, how| {
        let story = Story::of(flush);
        story.send(0, 0).flush(1).consume(0, 0).down("broker-a/0", how).recover(0).send(1, 0).flush(1).consume(1, 0);
        let found = story.found();
        found.into_iter().filter(|(checker, _)| *checker == "two-at-offset").collect::<Vec<_>>()
    };
    assert_eq!(found("ASYNC_FLUSH", Down::PowerLoss), []);
    assert_eq!(found("ASYNC_FLUSH", Down::Kill), [("two-at-offset", 1)]);
    assert_eq!(found("SYNC_FLUSH", Down::PowerLoss), [("two-at-offset", 1)]);
    // Two acknowledgements are enough.
    let story = Story::of("ASYNC_FLUSH");
    story.send(0, 0).consume(0, 0).invoke(1).ok(1, 0);
    assert!(story.found().contains(&("two-at-offset", 1)));
}

#[test]
fn a_message_that_the_log_has_lost_may_still_come_from_the_memory_of_a_member() {
    let story = Story::of("ASYNC_FLUSH");
    story.send(0, 0).down("broker-a/0", Down::PowerLoss).recover(0).send(1, 0).consume(1, 0).deliver("billing/1", 0, 0);
    story.ack("billing/1", 0, 0);
    assert_eq!(story.found(), []);
}

#[test]
fn under_synchronous_flush_nothing_is_delivered_that_is_not_on_disk() {
    let found = |flush: &str, more: &str, flushed_first: bool| {
        let story = Story::with(flush, more);
        story.invoke(0).append(0);
        if flushed_first {
            story.flush(1).deliver("billing/0", 0, 0);
        } else {
            story.deliver("billing/0", 0, 0).flush(1);
        }
        story.ok(0, 0).ack("billing/0", 0, 0);
        story.found()
    };
    assert_eq!(found("SYNC_FLUSH", "", true), []);
    assert_eq!(found("SYNC_FLUSH", "", false), [("visible-before-safe", 1)]);
    assert_eq!(found("ASYNC_FLUSH", "", false), []);
}

/// A slave that is faster than its master shows what is on its own disk.
#[test]
fn what_the_disk_of_a_slave_has_may_be_seen() {
    let found = |flushed: u64| {
        let mut story = Story::of("SYNC_FLUSH");
        story.scenario.brokers[0].replicas = vec![Role::SyncMaster, Role::Slave];
        let story = story.up("broker-a/1");
        let slave = |event: Event| story.event("broker-a/1", |_| event);
        story.invoke(0).append(0);
        slave(Event::Append(100));
        slave(Event::Flush(flushed));
        story.deliver("billing/0", 0, 0).flush(1).ok(0, 0).ack("billing/0", 0, 0);
        story.found()
    };
    assert_eq!(found(100), []);
    assert_eq!(found(0), [("visible-before-safe", 1)]);
}

#[test]
fn an_offset_may_show_two_messages_where_the_unflushed_is_shown() {
    let found = |shows_unflushed: bool| {
        let mut story = Story::of("SYNC_FLUSH");
        let setting = ("readUnCommitted".to_owned(), "true".to_owned());
        story.scenario.brokers[0].config.extend(Some(setting).filter(|_| shows_unflushed));
        // Shown before it was on disk, and gone before it was acknowledged.
        story.invoke(0).append(0).deliver("billing/0", 0, 0).ack("billing/0", 0, 0);
        story.down("broker-a/0", Down::PowerLoss).recover(0).send(1, 0).consume(1, 0);
        story.found()
    };
    assert_eq!(found(true), []);
    assert_eq!(found(false), [("two-at-offset", 1)]);
}

#[test]
fn what_recovery_has_found_is_on_disk() {
    let story = Story::of("SYNC_FLUSH");
    story.invoke(0).append(0).down("broker-a/0", Down::Kill).recover(1).deliver("billing/0", 0, 0).ok(0, 0);
    story.ack("billing/0", 0, 0);
    assert_eq!(story.found(), []);
}

/// Refused, and given again after so many seconds.
fn retried(after: u64, more: &str) -> Story {
    let story = Story::with("SYNC_FLUSH", more);
    story.send(0, 0).deliver("billing/0", 0, 0).nack("billing/0", 0, 0).later(after).again("billing/1", 0, 0);
    story
}

fn finish_retry(story: &Story, offset: u64) {
    story.event("billing/1", |history| Event::Ack(Some(message(0)), history.intern_queue(retry_queue()), offset));
}

#[test]
fn a_refused_message_comes_again_after_its_delay() {
    for (after, expected) in [(10, vec![]), (9, vec![("early", 1)])] {
        let story = retried(after, "");
        finish_retry(&story, 0);
        assert_eq!(story.found(), expected);
    }
}

#[test]
fn only_the_clock_of_a_broker_excuses_a_short_delay() {
    let found = |node: &str, back: &str, ends_before: bool| {
        let fault = format!(
            "[[fault]]\nid = \"c\"\nat = \"1s\"\nkind = \"skew\"\nnode = \"{node}\"\nby = \"8s\"\nback = \"{back}\"\n\
             for = \"1s\"\n"
        );
        let story = Story::with("SYNC_FLUSH", &fault);
        story.event(node, |_| Event::FaultBegin("c".into(), "skew"));
        if ends_before {
            story.event(node, |_| Event::FaultEnd("c".into()));
        }
        story.send(0, 0).deliver("billing/0", 0, 0).nack("billing/0", 0, 0).later(1);
        if !ends_before {
            story.event(node, |_| Event::FaultEnd("c".into()));
        }
        story.later(1).again("billing/1", 0, 0);
        finish_retry(&story, 0);
        story.found()
    };
    assert_eq!(found("broker-a/0", "step", false), []);
    assert_eq!(found("broker-a/0", "step", true), [("early", 1)]);
    // It still runs too fast.
    assert_eq!(found("broker-a/0", "slew", true), []);
    assert_eq!(found("billing/0", "step", false), [("early", 1)]);
}

#[test]
fn a_clock_that_comes_back_slowly_is_wrong_until_the_settle_phase_has_set_it_right() {
    let found = |back: &str| {
        let fault = format!(
            "[[fault]]\nid = \"c\"\nat = \"1s\"\nkind = \"skew\"\nnode = \"broker-a/0\"\nby = \"-10m\"\nback = \"{back}\"\n"
        );
        let story = Story::with("SYNC_FLUSH", &fault);
        story.event("probe/0", |_| Event::FaultBegin("c".into(), "skew"));
        story.event("probe/0", |_| Event::FaultEnd("c".into())).later(10);
        story.send(0, 0).deliver("billing/0", 0, 0).nack("billing/0", 0, 0).later(1);
        story.event("probe/0", |_| Event::Phase("settle")).again("billing/1", 0, 0);
        finish_retry(&story, 0);
        // Nothing is wrong with it any more.
        story.send(1, 1).deliver("billing/0", 1, 1).nack("billing/0", 1, 1).later(1).again("billing/1", 1, 1);
        finish_retry(&story, 1);
        story.found()
    };
    assert_eq!(found("slew"), [("early", 1)]);
    assert_eq!(found("step"), [("early", 2)]);
}

#[test]
fn what_the_audit_finds_counts_unless_the_disk_has_spoilt_that_file() {
    let found = |spoilt: Option<(&'static str, &str)>| {
        let story = Story::of("SYNC_FLUSH");
        if let Some((kind, place)) = spoilt {
            story.event("broker-a/0", |_| Event::DiskError(kind, place.into()));
        }
        let file = "consumequeue/orders/0/00000000000000000000";
        story.audited().event("broker-a/0", |_| Event::Unsound(file.into(), Some(40), "no entry 2".into()));
        story.found()
    };
    let (here, there) = ("consumequeue/orders/0/00000000000000000000@0", "commitlog/00000000000000000000@0");
    assert_eq!(found(None), [("store-audit", 1)]);
    assert_eq!(found(Some(("bit-rot", here))), []);
    assert_eq!(found(Some(("bit-rot", there))), [("store-audit", 1)]);
    assert_eq!(found(Some(("eio-write", here))), [("store-audit", 1)]);
}
