//! Consumer groups through the wire: members, offsets, locks, retries.

mod stage;

use std::time::Duration;

use remoting::{
    ConsumerGroupRequestHeader, ConsumerSendMsgBackRequestHeader, NoHeader, QueryConsumerOffsetRequestHeader, Request,
    Response, ResponseCode, UnregisterClientRequestHeader, UpdateConsumerOffsetRequestHeader,
    body::{Body, ConsumerList, LockBatchRequest, LockBatchResponse, MessageQueue},
};
use stage::{Caller, TIMEOUT, pull_from, send_to, waiting, with_broker};

async fn members(caller: &Caller) -> Vec<String> {
    let header = ConsumerGroupRequestHeader { consumer_group: "g".to_owned() };
    let response = caller.ask(Request::GetConsumerListByGroup(header), "").await;
    if response.code != ResponseCode::SUCCESS {
        return Vec::new();
    }
    ConsumerList::decode(&response.body_bytes()).unwrap().consumer_id_list
}

fn notices(caller: &Caller) -> usize {
    let asked = caller.asked.requests.lock().unwrap();
    asked.iter().filter(|(request, _)| matches!(request, Request::NotifyConsumerIdsChanged(_))).count()
}

#[test]
fn members_are_listed_and_told_when_one_comes_or_goes() {
    with_broker("", |host, first| async move {
        let second = Caller::new(first.address);
        first.beat("one", "g", "t").await;
        second.beat("two", "g", "t").await;
        assert_eq!(members(&first).await, ["one", "two"]);
        // The broker writes its notice before the answer to the heartbeat that caused it.
        assert_eq!(notices(&second), 1);
        let before = notices(&first);
        second.client.shutdown().await;
        let told = async {
            while notices(&first) == before || members(&first).await.len() > 1 {
                // A task that never waits can keep the one that brings the notice from running.
                host.sleep(Duration::from_millis(1)).await;
            }
        };
        host.timeout(TIMEOUT, told).await.expect("at once");
        let leave = UnregisterClientRequestHeader {
            client_id: "one".to_owned(),
            producer_group: None,
            consumer_group: Some("g".to_owned()),
        };
        assert_eq!(first.ask(Request::UnregisterClient(leave), "").await.code, ResponseCode::SUCCESS);
        assert!(members(&first).await.is_empty());
    });
}

#[test]
fn malformed_heartbeat_is_refused() {
    with_broker("", |_, caller| async move {
        let answer = caller.ask(Request::HeartBeat(NoHeader), "no json").await;
        assert_eq!(answer.code, ResponseCode::SYSTEM_ERROR);
    });
}

fn query(set_zero_if_not_found: Option<bool>) -> Request {
    Request::QueryConsumerOffset(QueryConsumerOffsetRequestHeader {
        consumer_group: "g".to_owned(),
        topic: "t".to_owned(),
        queue_id: 0,
        set_zero_if_not_found,
        broker_name: None,
    })
}

fn commit(topic: &str, offset: Option<i64>) -> Request {
    Request::UpdateConsumerOffset(UpdateConsumerOffsetRequestHeader {
        consumer_group: "g".to_owned(),
        topic: topic.to_owned(),
        queue_id: Some(0),
        commit_offset: offset,
        broker_name: None,
        sf_log_epoch: None,
    })
}

#[test]
fn offsets_are_kept_and_unknown_ones_start_at_zero_only_if_the_queue_does() {
    with_broker("", |_, caller| async move {
        let offset = |response: Response| response.fields.get("offset").map(str::to_owned);
        assert_eq!(caller.ask(query(None), "").await.code, ResponseCode::QUERY_NOT_FOUND);
        caller.send(send_to("t", &[]), "x").await;
        caller.pull(waiting(pull_from("t", 0), TIMEOUT)).await;
        assert_eq!(offset(caller.ask(query(None), "").await).as_deref(), Some("0"));
        assert_eq!(caller.ask(query(Some(false)), "").await.code, ResponseCode::QUERY_NOT_FOUND);
        assert_eq!(caller.ask(commit("t", Some(1)), "").await.code, ResponseCode::SUCCESS);
        assert_eq!(offset(caller.ask(query(Some(false)), "").await).as_deref(), Some("1"));
        assert_eq!(caller.ask(commit("t", Some(0)), "").await.code, ResponseCode::SUCCESS);
        assert_eq!(offset(caller.ask(query(None), "").await).as_deref(), Some("0"));
        assert_eq!(caller.ask(commit("t", None), "").await.code, ResponseCode::INVALID_PARAMETER);
        assert_eq!(caller.ask(commit("nobody", Some(1)), "").await.code, ResponseCode::TOPIC_NOT_EXIST);
        let mut pull = pull_from("t", 0);
        (pull.sys_flag, pull.commit_offset) = (pull.sys_flag | 1, 5);
        caller.pull(pull).await;
        assert_eq!(offset(caller.ask(query(None), "").await).as_deref(), Some("5"));
    });
}

#[test]
fn queue_is_locked_by_one_client_at_a_time() {
    with_broker("", |_, caller| async move {
        let request = |client: &str| LockBatchRequest {
            client_id: client.to_owned(),
            consumer_group: "g".to_owned(),
            mq_set: vec![MessageQueue::new("t", "broker-a", 0)],
            only_this_broker: false,
        };
        let locked = async |client: &str| {
            let answer = caller.ask(Request::LockBatchMq(NoHeader), request(client).encode()).await;
            LockBatchResponse::decode(&answer.body_bytes()).unwrap().lock_ok_mq_set.len()
        };
        assert_eq!(locked("one").await, 1);
        assert_eq!(locked("two").await, 0);
        let freed = caller.ask(Request::UnlockBatchMq(NoHeader), request("one").encode()).await;
        assert_eq!(freed.code, ResponseCode::SUCCESS);
        assert_eq!(locked("two").await, 1);
    });
}

fn send_back(offset: i64, delay_level: i32, max: Option<i32>) -> Request {
    Request::ConsumerSendMsgBack(ConsumerSendMsgBackRequestHeader {
        offset,
        group: "g".to_owned(),
        delay_level,
        origin_msg_id: None,
        origin_topic: None,
        unit_mode: None,
        max_reconsume_times: max,
        broker_name: None,
    })
}

#[test]
fn message_given_back_comes_again_and_ends_as_a_dead_letter() {
    with_broker("messageDelayLevel=1s", |_, caller| async move {
        caller.send(send_to("t", &[("KEYS", "k")]), "x").await;
        let original = caller.pull(waiting(pull_from("t", 0), TIMEOUT)).await.messages.remove(0);
        let phy = i64::try_from(original.phy.0).unwrap();
        assert_eq!(caller.ask(send_back(phy, 0, None), "").await.code, ResponseCode::SUCCESS);

        let retried = caller.pull(waiting(pull_from("%RETRY%g", 0), TIMEOUT)).await.messages.remove(0);
        assert_eq!(retried.reconsume_times, 1);
        let property = |name: &str| retried.message.properties.get(name).map(str::to_owned);
        assert_eq!(property("RETRY_TOPIC").as_deref(), Some("t"));
        assert_eq!(property("ORIGIN_MESSAGE_ID"), Some(original.offset_message_id().to_string()));
        assert_eq!(property("KEYS").as_deref(), Some("k"));
        assert_eq!(retried.born_host, original.born_host);

        let phy = i64::try_from(retried.phy.0).unwrap();
        assert_eq!(caller.ask(send_back(phy, 0, Some(1)), "").await.code, ResponseCode::SUCCESS);
        assert_eq!(caller.ask(send_back(phy, -1, None), "").await.code, ResponseCode::SUCCESS);
        caller.pull(waiting(pull_from("%DLQ%g", 0), TIMEOUT)).await;
        let dead = caller.pull(waiting(pull_from("%DLQ%g", 1), TIMEOUT)).await;
        assert_eq!(dead.bodies(), ["x"]);
        assert_eq!(dead.messages[0].reconsume_times, 2);

        let nothing = caller.ask(send_back(phy + 1, 0, None), "").await;
        assert_eq!(nothing.code, ResponseCode::SYSTEM_ERROR);
        assert_eq!(nothing.remark, Some(format!("look message by offset failed, {}", phy + 1)));
    });
}
