//! Faults that users of RocketMQ have reported, through the wire. The page `docs/reports.md` says where each of them has
//! its test.

mod stage;

use std::time::Duration;

use host::Host;
use remoting::{NoHeader, Request, ResponseCode, SendMessageResponseHeader, TopicRequestHeader};
use stage::{Caller, pull_from, send_to, waiting, with_broker};

/// Everything expires at once, and is deleted only if somebody asks for it.
const EXPIRING: &str = "fileReservedTime=0\ndeleteWhen=4\ndeleteCommitLogFilesInterval=1";

/// A body of which 17 fill a log file of this stage.
fn body(number: i64) -> String {
    format!("{number} {}", "x".repeat(60_000))
}

async fn delete_expired(caller: &Caller) {
    let answer = caller.ask(Request::DeleteExpiredCommitLog(NoHeader), "").await;
    assert_eq!(answer.code, ResponseCode::SUCCESS);
}

/// The first offset of the queue, once files have been deleted.
async fn min_offset_above(host: &Host, caller: &Caller, least: i64) -> i64 {
    loop {
        let pulled = caller.pull(pull_from("t", 0)).await;
        match pulled.header.unwrap().min_offset {
            min if min > least => return min,
            _ => host.sleep(Duration::from_millis(20)).await,
        }
    }
}

/// A slow group is told once where the queue begins now, and goes on from there.
#[test]
fn p033_a_group_behind_a_deletion_is_moved_once_and_goes_on() {
    with_broker(EXPIRING, |host, caller| async move {
        for number in 0..60 {
            let sent = caller.send(send_to("t", &[]), &body(number)).await;
            assert_eq!(sent.code, ResponseCode::SUCCESS, "{sent:?}");
        }
        caller.pull(waiting(pull_from("t", 59), stage::TIMEOUT)).await;
        delete_expired(&caller).await;
        let mut min = min_offset_above(&host, &caller, 3).await;
        // More files than one go, one after the other.
        while min < 34 {
            min = min_offset_above(&host, &caller, min).await;
        }
        let (mut at, mut moves, mut read) = (3, 0, Vec::new());
        while at < 60 {
            let pulled = caller.pull(pull_from("t", at)).await;
            let next = pulled.header.as_ref().unwrap().next_begin_offset;
            match pulled.response.code {
                ResponseCode::PULL_OFFSET_MOVED => {
                    moves += 1;
                    assert_eq!((next, pulled.messages.len()), (min, 0));
                }
                code => {
                    assert_eq!(code, ResponseCode::SUCCESS);
                    read.extend(pulled.messages.iter().map(|message| message.queue_offset.0 as i64));
                }
            }
            assert!(next > at, "no progress at {at}");
            at = next;
        }
        assert_eq!(moves, 1);
        assert!(read.iter().copied().eq(min..60), "{read:?}");
    });
}

/// A topic is deleted again and again while somebody sends to it, and files are cleaned.
#[test]
fn p034_a_topic_that_is_deleted_under_load_takes_what_is_sent_afterwards() {
    with_broker(EXPIRING, |host, caller| async move {
        let sender = caller.clone();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let sending = host.spawn("send", async move {
            let (mut acknowledged, mut stopped) = (Vec::new(), std::pin::pin!(stopped));
            for number in 0.. {
                let body = format!("{number}");
                let sent = host::select! {
                    _ = &mut stopped => break,
                    sent = sender.send(send_to("t", &[]), &body) => sent,
                };
                assert_eq!(sent.code, ResponseCode::SUCCESS, "{sent:?}");
                let told: SendMessageResponseHeader = sent.decode().unwrap();
                acknowledged.push((told.queue_offset, number));
            }
            acknowledged
        });
        for _ in 0..30 {
            let topic = TopicRequestHeader { topic: "t".to_owned() };
            let deleted = caller.ask(Request::DeleteTopicInBroker(topic), "").await;
            assert_eq!(deleted.code, ResponseCode::SUCCESS);
            delete_expired(&caller).await;
            host.sleep(Duration::from_millis(30)).await;
        }
        // The next message makes the topic again.
        let deleted_last = loop {
            match caller.pull(pull_from("t", 0)).await.header {
                Some(header) => break header.max_offset,
                None => host.sleep(Duration::from_millis(5)).await,
            }
        };
        host.sleep(Duration::from_millis(200)).await;
        stop.send(()).unwrap();
        let acknowledged = sending.await.unwrap();
        let later: Vec<_> = acknowledged.iter().filter(|(offset, _)| *offset >= deleted_last).collect();
        assert!(later.len() > 10, "{} of {}", later.len(), acknowledged.len());
        let mut read = 0;
        for (offset, number) in later {
            // A deletion by hand goes on for a while, and may take files that were full by then. Between that of a file
            // and that of its entries there is nothing to read, and the queue does not begin behind it yet.
            let pulled = loop {
                let pulled = caller.pull(waiting(pull_from("t", *offset), stage::TIMEOUT)).await;
                let is_deleted = pulled.header.as_ref().is_some_and(|header| *offset < header.min_offset);
                if is_deleted || !pulled.messages.is_empty() {
                    break pulled;
                }
                host.sleep(Duration::from_millis(20)).await;
            };
            if pulled.messages.is_empty() {
                continue;
            }
            read += 1;
            assert_eq!(pulled.messages[0].queue_offset.0 as i64, *offset);
            assert_eq!(pulled.bodies()[0], number.to_string());
        }
        assert!(read > 0, "nothing is left of what was sent afterwards");
    });
}
