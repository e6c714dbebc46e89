//! What a master finds out about its group before it serves.

mod stage;

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use remoting::{
    NoHeader, Request, Response, ResponseCode, UpdateConsumerOffsetRequestHeader,
    body::{Body, ConsumerOffsetTable, HaRuntimeInfo, KvTable},
};
use stage::{Caller, Names, config, copy_dir, run, send_to};
use staticfire_broker::{Broker, StartError};

async fn send(caller: &Caller, count: u32) {
    for number in 0..count {
        let sent = caller.send(send_to("t", &[]), &number.to_string()).await;
        assert_eq!(sent.code, ResponseCode::SUCCESS);
    }
}

async fn commit(caller: &Caller, queue: i32, offset: i64) -> Response {
    let header = UpdateConsumerOffsetRequestHeader {
        consumer_group: "g".to_owned(),
        topic: "t".to_owned(),
        queue_id: Some(queue),
        commit_offset: Some(offset),
        broker_name: None,
        sf_log_epoch: None,
    };
    caller.ask(Request::UpdateConsumerOffset(header), "").await
}

/// Rows 25 and 26: a second master of the same name, and an old one that comes back after a slave was promoted.
#[test]
fn second_master_does_not_start_while_the_first_one_answers() {
    run(|_, folder| async move {
        let names = Names::start().await;
        let at = |name: &str| folder.path().join(name);
        let first = Broker::start(config(&at("first"), &names.setting())).await.unwrap();
        let address = first.local_addr().to_string();
        names.told.members.lock().unwrap().insert(0, address.clone());
        let refused = Broker::start(config(&at("second"), &names.setting())).await.err().expect("there is a master");
        assert!(matches!(&refused, StartError::MasterLives { address: there, .. } if *there == address));
        assert_eq!(
            refused.to_string(),
            format!(
                "the group `broker-a` has a master, which answers at {address}: stop it, or start this one as a slave"
            )
        );
        assert!(!at("second").join("abort").exists(), "the exit counts as clean");
        // Only its name is left: nobody answers there.
        first.shutdown().await.unwrap();
        let second = Broker::start(config(&at("second"), &names.setting())).await.unwrap();
        second.shutdown().await.unwrap();
        // A name server that still has a slave as the master, by its former life.
        let slave = Broker::start(config(&at("first"), "brokerRole=SLAVE\nbrokerId=1")).await.unwrap();
        names.told.members.lock().unwrap().insert(0, slave.local_addr().to_string());
        let second = Broker::start(config(&at("second"), &names.setting())).await.unwrap();
        second.shutdown().await.unwrap();
        slave.shutdown().await.unwrap();
    });
}

/// What `haStatus` and `brokerStatus` show of a group that has copied everything.
#[test]
fn state_of_replication_shows_both_ends() {
    run(|host, folder| async move {
        let at = |name: &str| folder.path().join(name);
        let master = Broker::start(config(&at("master"), "")).await.unwrap();
        let caller = Caller::new(master.local_addr());
        send(&caller, 5).await;
        let follow = format!("brokerRole=SLAVE\nbrokerId=1\nhaMasterAddress={}", master.replication_addr().unwrap());
        let slave = Broker::start(config(&at("slave"), &follow)).await.unwrap();
        let of_slave = Caller::new(slave.local_addr());
        let status = async |caller: &Caller| {
            let answer = caller.ask(Request::GetBrokerHaStatus(NoHeader), "").await;
            HaRuntimeInfo::decode(&answer.body_bytes()).unwrap()
        };
        let mut shown = status(&caller).await;
        while shown.ha_connection_info.first().is_none_or(|slave| slave.diff > 0) {
            host.sleep(Duration::from_millis(10)).await;
            shown = status(&caller).await;
        }
        let end = shown.master_commit_log_max_offset;
        assert!(shown.master && end > 0);
        assert_eq!((shown.in_sync_slave_nums, shown.ha_connection_info.len()), (1, 1));
        let link = &shown.ha_connection_info[0];
        assert_eq!((link.slave_ack_offset, link.transfer_from_where, link.in_sync), (end, end, true));
        assert!(link.addr.as_ref().unwrap().starts_with("127.0.0.1:"));
        let shown = status(&of_slave).await;
        assert_eq!((shown.master, shown.ha_client_runtime_info.max_offset), (false, end));
        assert_eq!(shown.ha_client_runtime_info.master_addr, master.replication_addr().map(|addr| addr.to_string()));
        let figures = of_slave.ask(Request::GetBrokerRuntimeInfo(NoHeader), "").await;
        let figures = KvTable::decode(&figures.body_bytes()).unwrap().table;
        let of = |name: &str| figures[name].as_str();
        assert_eq!([of("brokerRole"), of("brokerId"), of("slaveState")], ["SLAVE", "1", "following"]);
        slave.shutdown().await.unwrap();
        master.shutdown().await.unwrap();
    });
}

/// A restart at the same address, which the name server has not forgotten yet.
#[test]
fn master_is_no_rival_of_itself() {
    run(|host, folder| async move {
        let names = Names::start().await;
        let free = host.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        names.told.members.lock().unwrap().insert(0, address.to_string());
        let more = format!("listenPort={}\n{}", address.port(), names.setting());
        for _ in 0..2 {
            let broker = Broker::start(config(folder.path(), &more)).await.unwrap();
            broker.shutdown().await.unwrap();
        }
    });
}

#[test]
fn ho11_master_takes_over_what_its_slaves_were_told_without_it() {
    run(|_, folder| async move {
        let names = Names::start().await;
        let at = |name: &str| folder.path().join(name);
        let master = Broker::start(config(&at("master"), "")).await.unwrap();
        let caller = Caller::new(master.local_addr());
        send(&caller, 3).await;
        assert_eq!(commit(&caller, 0, 1).await.code, ResponseCode::SUCCESS);
        master.shutdown().await.unwrap();
        copy_dir(&at("master"), &at("slave"));

        let slave = Broker::start(config(&at("slave"), "brokerRole=SLAVE\nbrokerId=1")).await.unwrap();
        let caller = Caller::new(slave.local_addr());
        for (queue, offset) in [(0, 3), (1, 7)] {
            assert_eq!(commit(&caller, queue, offset).await.code, ResponseCode::SUCCESS);
        }
        let status = caller.ask(Request::GetBrokerHaStatus(NoHeader), "").await;
        let status = HaRuntimeInfo::decode(&status.body_bytes()).unwrap();
        names.told.members.lock().unwrap().insert(1, slave.local_addr().to_string());
        let master = Broker::start(config(&at("master"), &names.setting())).await.unwrap();
        let caller = Caller::new(master.local_addr());
        let table = caller.ask(Request::GetAllConsumerOffset(NoHeader), "").await;
        let table = ConsumerOffsetTable::decode(&table.body_bytes()).unwrap();
        // Queue 1 has no messages here, so nobody can have consumed any.
        assert_eq!(table.offset_table["t@g"].iter().map(|(q, o)| (*q, *o)).collect::<Vec<_>>(), [(0, 3), (1, 0)]);
        assert_eq!(table.sf_committed_alone, None);
        // Both ends of the same log.
        let of_master = caller.ask(Request::GetBrokerHaStatus(NoHeader), "").await;
        let of_master = HaRuntimeInfo::decode(&of_master.body_bytes()).unwrap();
        assert!(of_master.master && !status.master);
        assert!(status.ha_client_runtime_info.max_offset > 0);
        assert_eq!(of_master.master_commit_log_max_offset, status.ha_client_runtime_info.max_offset);
        master.shutdown().await.unwrap();
        slave.shutdown().await.unwrap();
    });
}
