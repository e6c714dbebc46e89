//! The stand's own client: makes the topics, watches committed offsets, and tells what has not come to an end.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use client::{Admin, ClientConfig, ClientError, MessageQueue, TopicSpec};
use host::Host;
use remoting::body::TopicRouteData;

use crate::{
    history::{Down, Event, Queue, Record},
    scenario::{Fault, FaultKind, Kind, Port, Topic},
    stand::StopSignal,
};

use super::{
    cluster::{Change, Cluster, PROBE, Phase, Wish, in_one_line},
    search::Search,
    settle::Rest,
};

/// Pause between two looks at the committed offsets of a broker.
const WATCH_PAUSE: Duration = Duration::from_secs(2);

/// Pause between two questions to a name server.
const ROUTE_PAUSE: Duration = Duration::from_secs(5);

/// Pause between two looks at what is pending.
const SETTLE_PAUSE: Duration = Duration::from_secs(1);

/// Pause before a step of the start is tried again.
const START_PAUSE: Duration = Duration::from_millis(200);

/// As many queues a broker gives to a topic that it does not have when somebody sends to it: what producers ask for. With
/// fewer, a topic that is made again could lose queues that have messages.
const MADE_FOR_SENDERS: u32 = 4;

/// The most pending things that are told.
const PENDING_MAX: usize = 20;

/// The program of the probe node.
pub(super) async fn watch(cluster: Arc<Cluster>, host: Host, stop: StopSignal) -> Result<(), String> {
    let admin = connect(&cluster.name_servers()).await?;
    let admin = Arc::new(admin);
    let scenario = &cluster.plan.scenario;
    for topic in &scenario.topics {
        for broker in &topic.brokers {
            let addr = cluster.address(&format!("{broker}/0"), Port::Client);
            let spec = TopicSpec::new(&topic.name, topic.queues);
            while admin.create_topic_at(&addr, &spec).await.is_err() {
                host.sleep(START_PAUSE).await;
            }
        }
    }
    let mut each = Vec::new();
    for node in cluster.of_kind(Kind::Namesrv) {
        each.push((node.clone(), connect(&[cluster.address(&node, Port::Namesrv)]).await?));
    }
    while !unregistered(&cluster, &each).await.is_empty() {
        host.sleep(START_PAUSE).await;
    }
    cluster.phase.send_replace(Phase::Active);
    for broker in &scenario.brokers {
        let (cluster, admin, name) = (Arc::clone(&cluster), Arc::clone(&admin), broker.name.clone());
        let watcher = host.clone();
        host.spawn("watch", async move { watch_offsets(&cluster, &watcher, &admin, &name).await });
    }
    let each = Arc::new(each);
    for number in 0..each.len() {
        let (cluster, each, watcher) = (Arc::clone(&cluster), Arc::clone(&each), host.clone());
        host.spawn("routes", async move {
            let (name_server, admin) = &each[number];
            watch_routes(&cluster, &watcher, admin, name_server).await;
        });
    }
    let asks = |fault: &Fault| {
        use FaultKind::{ConfigChange, DeleteExpired, DiskReplaced, Drain, RestoreBackup};
        matches!(
            fault.kind,
            ConfigChange { .. } | DeleteExpired { .. } | DiskReplaced { .. } | Drain { .. } | RestoreBackup { .. }
        )
    };
    if scenario.faults.iter().any(asks) {
        let (cluster, admin, asker) = (Arc::clone(&cluster), Arc::clone(&admin), host.clone());
        host.spawn("change", async move { fulfil_wishes(&cluster, &asker, &admin).await });
    }
    cluster.reached(Phase::Settle).await;
    host::select! {
        () = stop.requested() => {}
        () = settle(&cluster, &host, &admin, &each) => stop.requested().await,
    }
    Ok(())
}

/// Asks of brokers what faults want, one after the other.
async fn fulfil_wishes(cluster: &Cluster, host: &Host, admin: &Admin) {
    loop {
        let next = cluster.state().wishes.pop_front();
        match next {
            None => cluster.wish_made.notified().await,
            Some(Wish::Change(change)) => change_topic(cluster, host, admin, change).await,
            Some(Wish::DeleteExpired { fault, broker }) => {
                let addr = cluster.address(&format!("{broker}/0"), Port::Client);
                while admin.delete_expired_at(&addr).await.is_err() {
                    host.sleep(START_PAUSE).await;
                }
                cluster.state().unasked -= 1;
                cluster.record_run(Event::FaultHit(fault, "deletions-asked", 1));
            }
        }
    }
}

/// Changes a topic at one broker after the other. It never gets fewer queues.
async fn change_topic(cluster: &Cluster, host: &Host, admin: &Admin, change: Change) {
    let Change { fault, topic: name, queues, counts, brokers } = change;
    let Some(topic) = cluster.plan.scenario.topics.iter().find(|topic| topic.name == name) else { return };
    for broker in &brokers {
        let addr = cluster.address(&cluster.master_of(broker), Port::Client);
        let least = queues.unwrap_or(MADE_FOR_SENDERS).max(cluster.queues_of(topic, broker));
        let writable = !cluster.is_drained(&name, broker);
        let spec = TopicSpec { writable, ..TopicSpec::new(&name, least) };
        while admin.create_topic_at(&addr, &spec).await.is_err() {
            host.sleep(START_PAUSE).await;
        }
        {
            let mut state = cluster.state();
            state.queues.insert((name.clone(), broker.clone()), spec.write_queues);
            state.unasked -= 1;
        }
        if counts {
            cluster.record_run(Event::FaultHit(fault.clone(), "config-changes", 1));
        }
    }
}

async fn connect(name_servers: &[String]) -> Result<Admin, String> {
    let config = ClientConfig::builder().name_servers(name_servers).instance_name("probe").build();
    let config = config.map_err(|error| in_one_line(&error))?;
    Admin::connect(config).await.map_err(|error| in_one_line(&error))
}

/// Records what a name server says of the topics: whenever that has changed, and while it names a broker that is down.
async fn watch_routes(cluster: &Cluster, host: &Host, admin: &Admin, name_server: &str) {
    let mut last: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    loop {
        host.sleep(ROUTE_PAUSE).await;
        for topic in &cluster.plan.scenario.topics {
            let brokers = match admin.route(&topic.name).await {
                Ok(route) => nodes_of(cluster, &route),
                Err(ClientError::NoRoute { .. }) => Vec::new(),
                Err(_) => break,
            };
            let names_the_dead = brokers.iter().any(|broker| !cluster.is_up(broker));
            if last.insert(&topic.name, brokers.clone()).as_ref() != Some(&brokers) || names_the_dead {
                let name_server = name_server.to_owned();
                cluster.record(PROBE, |_| Event::Route { name_server, topic: topic.name.clone(), brokers });
            }
        }
    }
}

/// The nodes that a route names, in order.
fn nodes_of(cluster: &Cluster, route: &TopicRouteData) -> Vec<String> {
    let addresses: Vec<&String> = route.broker_datas.iter().flat_map(|data| data.broker_addrs.values()).collect();
    let is_named = |node: &String| addresses.contains(&&cluster.address(node, Port::Client));
    let mut nodes: Vec<String> = cluster.of_kind(Kind::Broker).filter(is_named).collect();
    nodes.sort_unstable();
    nodes
}

/// Brokers that run and that some name server does not name for a topic they hold.
async fn unregistered(cluster: &Cluster, each: &[(String, Admin)]) -> Vec<String> {
    let mut missing = Vec::new();
    for (namesrv, admin) in each {
        if !cluster.is_up(namesrv) && !cluster.state().wanted.contains(namesrv) {
            continue; // It stays dead.
        }
        for topic in &cluster.plan.scenario.topics {
            let known: Vec<String> = match admin.route(&topic.name).await {
                Ok(route) => nodes_of(cluster, &route),
                Err(_) => Vec::new(),
            };
            let brokers = cluster.of_kind(Kind::Broker).filter(|node| cluster.is_up(node));
            let brokers = brokers.filter(|node| topic.is_at(node));
            for broker in brokers.filter(|broker| !known.contains(broker)) {
                missing.push(format!("{namesrv} does not know {broker} for {}", topic.name));
            }
        }
    }
    missing
}

/// Records every change of a committed offset of one broker.
async fn watch_offsets(cluster: &Cluster, host: &Host, admin: &Admin, broker: &str) {
    let mut last: BTreeMap<(String, Queue), Option<u64>> = BTreeMap::new();
    loop {
        host.sleep(WATCH_PAUSE).await;
        for (group, queue) in queues_of(cluster, broker) {
            let asked = MessageQueue::new(queue.topic.as_str(), queue.broker.as_str(), queue.id);
            let Ok(offset) = admin.consumer_offset(&group, &asked).await else { break };
            let offset = offset.map(|offset| offset.0);
            if last.insert((group.clone(), queue.clone()), offset) != Some(offset) {
                cluster.record(PROBE, |history| Event::Commit { group, queue: history.intern_queue(queue), offset });
            }
        }
    }
}

/// The queues of one broker with each group that consumes them.
fn queues_of(cluster: &Cluster, broker: &str) -> Vec<(String, Queue)> {
    let scenario = &cluster.plan.scenario;
    let holds = |topic: &&Topic| topic.brokers.iter().any(|name| name == broker);
    let mut queues = Vec::new();
    for group in &scenario.consumers {
        for topic in scenario.topics.iter().filter(holds).filter(|topic| topic.name == group.topic) {
            let queue = |id| Queue { topic: topic.name.clone(), broker: broker.to_owned(), id };
            queues.extend((0..cluster.queues_of(topic, broker)).map(|id| (group.group.clone(), queue(id))));
        }
    }
    queues
}

/// Waits until nothing is pending, or the settle phase is over; records which.
async fn settle(cluster: &Cluster, host: &Host, admin: &Admin, each: &[(String, Admin)]) {
    let scenario = &cluster.plan.scenario;
    let end = cluster.state().base + scenario.active + scenario.settle;
    let (mut rest, mut search) = (Rest::default(), Search::default());
    loop {
        host.sleep(SETTLE_PAUSE).await;
        let mut pending = pending_here(cluster);
        if pending.is_empty() {
            pending = unregistered(cluster, each).await;
        }
        if pending.is_empty() {
            pending = behind(cluster, admin).await;
        }
        if pending.is_empty() {
            pending = super::replicas::behind(cluster);
        }
        if pending.is_empty() {
            pending = search.look(cluster, admin).await;
        }
        let mut grown = Vec::new();
        if pending.is_empty() {
            (pending, grown) = rest.look(cluster);
        } else {
            rest.forget();
        }
        if pending.is_empty() && grown.is_empty() {
            cluster.record_run(Event::Converged);
            break;
        }
        if cluster.stand.now() >= end {
            pending.into_iter().take(PENDING_MAX).for_each(|what| cluster.record_run(Event::Pending(what)));
            grown.into_iter().take(PENDING_MAX).for_each(|what| cluster.record_run(Event::Grown(what)));
            break;
        }
    }
    cluster.phase.send_replace(Phase::End);
}

/// What is pending as far as the history tells: nodes that are down, sends, listeners, refused messages.
fn pending_here(cluster: &Cluster) -> Vec<String> {
    let (wanted, producing, sending, unasked) = {
        let state = cluster.state();
        (state.wanted.clone(), state.producing.clone(), state.sending.values().sum::<u64>(), state.unasked)
    };
    let mut pending: Vec<String> =
        wanted.iter().filter(|node| !cluster.is_up(node)).map(|node| down(cluster, node)).collect();
    pending.extend(producing.iter().map(|node| format!("{node} still sends")));
    if sending > 0 {
        pending.push(format!("{sending} sends have no result"));
    }
    if unasked > 0 {
        pending.push(format!("{unasked} brokers have not done what an administrator asks of them"));
    }
    pending.extend(cluster.recorder.with(|history| super::pending::deliveries(&cluster.plan.scenario, history)));
    pending
}

/// That a node is down, and what it said if it ended by itself.
fn down(cluster: &Cluster, node: &str) -> String {
    let why = cluster.recorder.with(|history| {
        let of_node = |record: &&Record| record.node.is_some_and(|(of, _)| history.node(of) == node);
        let last = history.records.iter().rev().filter(of_node).find_map(|record| match &record.event {
            Event::NodeDown(how, why) => Some((*how, why.clone())),
            _ => None,
        });
        last.filter(|(how, why)| *how == Down::Exit && !why.is_empty())
    });
    why.map_or_else(|| format!("{node} is down"), |(_, why)| format!("{node} is down: {why}"))
}

/// Queues whose committed offset is not their end, for each group that has members; those of messages that come again
/// included.
async fn behind(cluster: &Cluster, admin: &Admin) -> Vec<String> {
    let mut pending = Vec::new();
    for broker in &cluster.plan.scenario.brokers {
        let again = cluster.plan.scenario.consumers.iter().map(|group| {
            let topic = message::retry_topic(&group.group);
            (group.group.clone(), Queue { topic, broker: broker.name.clone(), id: 0 })
        });
        for (group, queue) in queues_of(cluster, &broker.name).into_iter().chain(again) {
            let has_members = cluster.state().wanted.iter().any(|node| super::cluster::group_of(node) == group);
            if !has_members {
                continue;
            }
            let asked = MessageQueue::new(queue.topic.as_str(), queue.broker.as_str(), queue.id);
            let ends = (admin.max_offset(&asked).await, admin.consumer_offset(&group, &asked).await);
            match ends {
                (Ok(end), Ok(committed)) => {
                    let behind = end.0.saturating_sub(committed.map_or(0, |offset| offset.0));
                    if behind > 0 {
                        pending.push(format!("{group} is {behind} messages behind at {queue}"));
                    }
                }
                // The topic of messages that come again is made with the first of them.
                _ if queue.topic == message::retry_topic(&group) => {}
                _ => pending.push(format!("{} does not tell offsets of {queue}", broker.name)),
            }
        }
    }
    pending
}
