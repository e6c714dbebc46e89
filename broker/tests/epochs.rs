//! Offsets of clients after a start that may have cut the log.

mod stage;

use std::{fs, path::Path};

use remoting::{
    LogEpoch, PullMessageRequestHeader, QueryConsumerOffsetRequestHeader, QueryConsumerOffsetResponseHeader, Request,
    Response, ResponseCode, UpdateConsumerOffsetRequestHeader,
};
use stage::{Caller, Pulled, TIMEOUT, config, copy_dir, pull_from, run, send_to, waiting};
use staticfire_broker::Broker;

/// An epoch of no log.
const STRANGE: LogEpoch = LogEpoch(7);

async fn send(caller: &Caller, bodies: &[&str]) {
    for body in bodies {
        assert_eq!(caller.send(send_to("t", &[]), body).await.code, ResponseCode::SUCCESS);
    }
}

/// A pull at an offset that belongs to `epoch`.
fn pull_of(epoch: LogEpoch, offset: i64) -> PullMessageRequestHeader {
    PullMessageRequestHeader { sf_log_epoch: Some(epoch), ..pull_from("t", offset) }
}

fn epoch_of(pulled: &Pulled) -> LogEpoch {
    pulled.header.as_ref().unwrap().sf_log_epoch.unwrap()
}

/// Where the pull was sent instead; `None` if it was answered as asked.
fn moved_to(pulled: &Pulled) -> Option<i64> {
    let is_moved = pulled.response.code == ResponseCode::PULL_OFFSET_MOVED;
    assert_eq!(is_moved, pulled.response.remark.as_deref() == Some("LOG_WAS_CUT"));
    is_moved.then(|| pulled.header.as_ref().unwrap().next_begin_offset)
}

async fn commit(caller: &Caller, epoch: LogEpoch, offset: i64) -> ResponseCode {
    let header = UpdateConsumerOffsetRequestHeader {
        consumer_group: "g".to_owned(),
        topic: "t".to_owned(),
        queue_id: Some(0),
        commit_offset: Some(offset),
        broker_name: None,
        sf_log_epoch: Some(epoch),
    };
    caller.ask(Request::UpdateConsumerOffset(header), "").await.code
}

async fn query(caller: &Caller, group: &str, set_zero_if_not_found: Option<bool>) -> Response {
    let header = QueryConsumerOffsetRequestHeader {
        consumer_group: group.to_owned(),
        topic: "t".to_owned(),
        queue_id: 0,
        set_zero_if_not_found,
        broker_name: None,
    };
    caller.ask(Request::QueryConsumerOffset(header), "").await
}

async fn committed(caller: &Caller) -> i64 {
    query(caller, "g", None).await.decode::<QueryConsumerOffsetResponseHeader>().unwrap().offset
}

/// A directory whose log ends at offset 3, where consumers had got to offset 5 in the epoch that this gives back.
async fn cut_at_three(folder: &Path) -> LogEpoch {
    let (whole, cut) = (folder.join("whole"), folder.join("cut"));
    let broker = Broker::start(config(&whole, "")).await.unwrap();
    let caller = Caller::new(broker.local_addr());
    send(&caller, &["0", "1", "2"]).await;
    caller.pull(waiting(pull_from("t", 2), TIMEOUT)).await;
    copy_dir(&whole, &cut);
    send(&caller, &["lost 3", "lost 4"]).await;
    let epoch = epoch_of(&caller.pull(waiting(pull_from("t", 4), TIMEOUT)).await);
    broker.shutdown().await.unwrap();
    epoch
}

/// A broker on that directory, in which other messages have got the lost offsets.
async fn filled_again(folder: &Path) -> (Broker, Caller) {
    let broker = Broker::start(config(&folder.join("cut"), "")).await.unwrap();
    let caller = Caller::new(broker.local_addr());
    send(&caller, &["new 3", "new 4", "new 5"]).await;
    caller.pull(waiting(pull_from("t", 5), TIMEOUT)).await;
    (broker, caller)
}

#[test]
fn a_position_in_a_lost_part_is_moved_to_the_end_of_what_is_left() {
    run(|_, folder| async move {
        let before = cut_at_three(folder.path()).await;
        let (broker, caller) = filled_again(folder.path()).await;
        let now = epoch_of(&caller.pull(pull_from("t", 5)).await);
        assert_ne!(now, before);

        let pulled = caller.pull(pull_of(before, 5)).await;
        assert_eq!((moved_to(&pulled), epoch_of(&pulled)), (Some(3), now));
        let pulled = caller.pull(pull_of(before, 3)).await;
        assert_eq!(
            (moved_to(&pulled), pulled.bodies()),
            (None, ["new 3", "new 4", "new 5"].map(String::from).to_vec())
        );
        assert_eq!(caller.pull(pull_of(now, 5)).await.bodies(), ["new 5"]);
        // The reference's clients do not tell; they get what they ask for.
        assert_eq!(caller.pull(pull_from("t", 5)).await.bodies(), ["new 5"]);
        broker.shutdown().await.unwrap();
    });
}

#[test]
fn a_commit_of_a_lost_part_counts_as_far_as_the_log_was_kept() {
    run(|_, folder| async move {
        let before = cut_at_three(folder.path()).await;
        let (broker, caller) = filled_again(folder.path()).await;
        assert_eq!(commit(&caller, before, 5).await, ResponseCode::SUCCESS);
        assert_eq!(committed(&caller).await, 3);
        assert_eq!(commit(&caller, before, 2).await, ResponseCode::SUCCESS);
        assert_eq!(committed(&caller).await, 2);
        let carrying =
            |epoch, offset| PullMessageRequestHeader { sys_flag: 5, commit_offset: offset, ..pull_of(epoch, 3) };
        caller.pull(carrying(before, 5)).await;
        assert_eq!(committed(&caller).await, 3);

        assert_eq!(commit(&caller, STRANGE, 5).await, ResponseCode::PULL_OFFSET_MOVED);
        caller.pull(carrying(STRANGE, 5)).await;
        assert_eq!(committed(&caller).await, 3);
        broker.shutdown().await.unwrap();
    });
}

#[test]
fn a_position_of_an_unknown_log_is_moved_to_what_the_group_has_committed() {
    run(|_, folder| async move {
        cut_at_three(folder.path()).await;
        let (broker, caller) = filled_again(folder.path()).await;
        // As far as is known, the group has consumed nothing.
        assert_eq!(moved_to(&caller.pull(pull_of(STRANGE, 5)).await), Some(0));
        let now = epoch_of(&caller.pull(pull_from("t", 0)).await);
        commit(&caller, now, 4).await;
        assert_eq!(moved_to(&caller.pull(pull_of(STRANGE, 5)).await), Some(4));
        assert_eq!(moved_to(&caller.pull(pull_of(STRANGE, 4)).await), None);
        assert_eq!(
            moved_to(&caller.pull(pull_of(STRANGE, 2)).await),
            Some(4),
            "it would consume again, and commit that"
        );
        // Offsets that no queue ever had.
        commit(&caller, now, 100).await;
        assert_eq!(moved_to(&caller.pull(pull_of(STRANGE, 50)).await), Some(6));
        broker.shutdown().await.unwrap();
    });
}

#[test]
fn offsets_mean_the_same_until_an_exit_that_is_not_clean() {
    run(|_, folder| async move {
        let before = cut_at_three(folder.path()).await;
        let (broker, caller) = filled_again(folder.path()).await;
        let now = epoch_of(&caller.pull(pull_from("t", 5)).await);
        commit(&caller, now, 4).await;
        broker.shutdown().await.unwrap();

        let cut = folder.path().join("cut");
        let broker = Broker::start(config(&cut, "")).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        let pulled = caller.pull(pull_of(now, 5)).await;
        assert_ne!(epoch_of(&pulled), now);
        assert_eq!(pulled.bodies(), ["new 5"]);
        // This life does not know any more what was lost before the last one.
        assert_eq!(moved_to(&caller.pull(pull_of(before, 5)).await), Some(4));

        let killed = folder.path().join("killed");
        copy_dir(&cut, &killed);
        broker.shutdown().await.unwrap();
        let broker = Broker::start(config(&killed, "")).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        let pulled = caller.pull(pull_of(now, 5)).await;
        assert_ne!(epoch_of(&pulled), now);
        assert_eq!(pulled.bodies(), ["new 5"], "a kill takes nothing from the log");
        broker.shutdown().await.unwrap();
    });
}

#[test]
fn whoever_has_read_beyond_a_backup_is_sent_back_also_if_nobody_used_the_disk_while_it_was_made() {
    run(|_, folder| async move {
        let (root, backup) = (folder.path().join("root"), folder.path().join("backup"));
        let broker = Broker::start(config(&root, "")).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        send(&caller, &["0", "1"]).await;
        let first = epoch_of(&caller.pull(waiting(pull_from("t", 1), TIMEOUT)).await);
        broker.shutdown().await.unwrap();
        copy_dir(&root, &backup);

        let broker = Broker::start(config(&root, "")).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        send(&caller, &["2", "3"]).await;
        let second = epoch_of(&caller.pull(waiting(pull_of(first, 3), TIMEOUT)).await);
        broker.shutdown().await.unwrap();

        let broker = Broker::start(config(&backup, "")).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        send(&caller, &["new 2", "new 3", "new 4"]).await;
        let pulled = caller.pull(waiting(pull_of(first, 2), TIMEOUT)).await;
        let third = epoch_of(&pulled);
        assert_eq!((moved_to(&pulled), third == first || third == second), (None, false));
        assert_eq!(moved_to(&caller.pull(pull_of(second, 4)).await), Some(0), "the group has committed nothing");
        assert_eq!(commit(&caller, second, 4).await, ResponseCode::PULL_OFFSET_MOVED);
        broker.shutdown().await.unwrap();
    });
}

#[test]
fn offsets_are_told_with_their_epoch_and_so_is_their_absence() {
    run(|_, folder| async move {
        let broker = Broker::start(config(folder.path(), "")).await.unwrap();
        let caller = Caller::new(broker.local_addr());
        send(&caller, &["0"]).await;
        let now = epoch_of(&caller.pull(waiting(pull_from("t", 0), TIMEOUT)).await);
        let stored = fs::read_to_string(folder.path().join("config/logEpoch.json")).unwrap();
        assert_eq!(stored, format!("{{\n  \"epoch\": {}\n}}", now.0));
        let told = |response: &Response| response.fields.get("sfLogEpoch").map(str::to_owned);
        let (found, missing) = (query(&caller, "g", None).await, query(&caller, "g", Some(false)).await);
        assert_eq!((found.code, told(&found)), (ResponseCode::SUCCESS, Some(now.0.to_string())));
        assert_eq!((missing.code, told(&missing)), (ResponseCode::QUERY_NOT_FOUND, Some(now.0.to_string())));
        broker.shutdown().await.unwrap();
    });
}

#[test]
fn a_broker_that_cannot_begin_an_epoch_does_not_start_and_the_next_one_begins_it() {
    run(|_, folder| async move {
        let before = cut_at_three(folder.path()).await;
        let cut = folder.path().join("cut");
        let file = cut.join("config/logEpoch.json");
        let good = fs::read(&file).unwrap();
        fs::write(&file, "{").unwrap();
        let error = Broker::start(config(&cut, "")).await.err().expect("the file is damaged").to_string();
        assert!(error.contains("logEpoch.json"), "{error}");
        assert!(cut.join("abort").exists(), "the exit must not count as clean");
        fs::write(&file, good).unwrap();
        let (broker, caller) = filled_again(folder.path()).await;
        assert_eq!(moved_to(&caller.pull(pull_of(before, 5)).await), Some(3));
        broker.shutdown().await.unwrap();
    });
}
