//! Apache's own Java client against real processes on loopback: what it sends arrives, once per group, and what it
//! committed is still there after a restart.
//!
//! The same checks run against Apache's own servers with `STATICFIRE_CONFORMANCE=apache`, which is how they were
//! proved. They need Java 17 and Maven (which brings the client, `conformance/pom.xml`); where one of them is
//! missing, they say so and pass, except in CI.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "drives real processes on a real machine")]

mod driver;
mod replication;
mod round_trip;
mod servers;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use driver::{Driver, Got};
use servers::{Cluster, Maker};

/// How often a group's consumers commit, and a broker writes down what they committed.
const COMMIT_PERIOD: Duration = Duration::from_secs(5);

/// Longest wait for anything that comes about by itself: a rebalance, a route, the rest of the messages.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn every_way_to_send_arrives_whole() {
    let Some(mut bench) = Bench::start("ways", 4) else { return };
    let batch = bench.driver.send("ways", "batch", "batch", 10, 300);
    let synced = bench.driver.send("ways", "sync", "sync", 20, 100);
    let big = bench.driver.send("ways", "sync", "big", 2, 100_000);
    let answered_later = bench.driver.send("ways", "async", "async", 20, 1);
    bench.driver.send("ways", "oneway", "oneway", 20, 100);
    assert_eq!(synced.len() + big.len() + answered_later.len(), 42, "a sync or async send was not acknowledged");
    assert_eq!(batch.len(), 1, "a batch has one answer");

    bench.driver.run("consume readers reader ways 5000");
    let got = bench.received(&["reader"], 72);
    let keys: BTreeSet<&str> = got.iter().map(|got| got.key.as_str()).collect();
    assert_eq!((got.len(), keys.len()), (72, 72), "each message arrives once: {keys:?}");
    for got in &got {
        let (prefix, number) = got.key.split_once('-').unwrap();
        let number: usize = number.parse().unwrap();
        let body_bytes =
            BTreeMap::from([("batch", 300), ("sync", 100), ("big", 100_000), ("async", 1), ("oneway", 100)]);
        assert_eq!(got.body_bytes, body_bytes[prefix], "{got:?}");
        assert_eq!(got.tag, format!("tag-{}", number % 3), "{got:?}");
        assert_eq!(got.place, format!("Zürich_{number}"), "{got:?}");
    }
    for sent in synced.iter().chain(&big).chain(&answered_later) {
        let got = got.iter().find(|got| got.key == sent.key).unwrap();
        assert_eq!((got.queue, got.offset, &got.id), (sent.queue, sent.offset, &sent.id), "{}", sent.key);
    }
    let stored: i64 = bench.driver.offsets("readers", "ways").values().map(|offsets| offsets.max - offsets.min).sum();
    assert_eq!(stored, 72, "the queues hold what was sent and nothing else");
}

#[test]
fn a_topic_that_nobody_created_appears_with_the_first_send() {
    let Some(mut bench) = Bench::start("known", 4) else { return };
    bench.driver.send("appears", "sync", "first", 12, 10);
    bench.driver.run("consume readers reader appears 5000");
    assert_eq!(bench.received(&["reader"], 12).len(), 12);
}

#[test]
fn two_members_share_a_topic_and_each_message_arrives_once() {
    let Some(mut bench) = Bench::start("shared", 8) else { return };
    bench.driver.run("consume pair left shared 5000");
    bench.driver.run("consume pair right shared 5000");
    bench.eventually("both members own four queues", |driver| {
        let [left, right] = ["left", "right"].map(|member| driver.queues(member));
        left.len() == 4 && right.len() == 4 && left.is_disjoint(&right)
    });
    bench.driver.send("shared", "sync", "one", 200, 128);
    let got = bench.received(&["left", "right"], 200);
    let keys: BTreeSet<&str> = got.iter().map(|got| got.key.as_str()).collect();
    assert_eq!((got.len(), keys.len()), (200, 200), "each message arrives once across the pair");

    // One goes: the other takes over its queues at once, and nothing is delivered again.
    bench.driver.run("stop left");
    bench.eventually("the member that stayed owns all queues", |driver| driver.queues("right").len() == 8);
    bench.driver.send("shared", "sync", "two", 80, 128);
    bench.eventually("the second round arrives", |driver| {
        driver.received("right").iter().filter(|got| got.key.starts_with("two-")).count() >= 80
    });
    let again = bench.driver.received("right").iter().filter(|got| got.key.starts_with("two-")).count();
    assert_eq!(again, 80, "each message of the second round arrives once");
}

#[test]
fn offsets_are_exactly_the_same_after_a_clean_restart() {
    let Some(mut bench) = Bench::start("kept", 4) else { return };
    bench.driver.run("consume group member kept 5000");
    bench.driver.send("kept", "sync", "before", 103, 64);
    assert_eq!(bench.received(&["member"], 103).len(), 103);
    bench.driver.run("stop member");
    let before = bench.driver.offsets("group", "kept");
    assert_eq!(before.values().map(|offsets| offsets.committed).sum::<i64>(), 103, "{before:?}");

    bench.cluster.stop_broker();
    bench.cluster.start_broker();
    bench.eventually("the broker answers again", |driver| driver.try_offsets("group", "kept").is_some());
    assert_eq!(bench.driver.offsets("group", "kept"), before);

    // A member that comes back goes on where the group stood.
    bench.driver.send("kept", "sync", "after", 10, 64);
    bench.driver.run("consume group again kept 5000");
    let got = bench.received(&["again"], 10);
    assert!(got.iter().all(|got| got.key.starts_with("after-")), "delivered again: {got:?}");
}

#[test]
fn a_killed_broker_forgets_at_most_five_seconds_of_offsets() {
    let Some(mut bench) = Bench::start("killed", 4) else { return };
    bench.driver.run("consume group member killed 500");
    let mut seen: Vec<(Instant, i64)> = Vec::new();
    let began = Instant::now();
    let mut sent = 0;
    while began.elapsed() < 3 * COMMIT_PERIOD {
        bench.driver.send("killed", "sync", &format!("round{}", seen.len()), 20, 64);
        sent += 20;
        std::thread::sleep(Duration::from_millis(250));
        let committed = bench.driver.offsets("group", "killed").values().map(|offsets| offsets.committed.max(0)).sum();
        seen.push((Instant::now(), committed));
    }
    let killed = Instant::now();
    bench.cluster.kill_broker();
    // Alive, it would commit to the new broker before anyone could look; now its last commit reaches nobody.
    bench.driver.run("stop member");
    bench.cluster.start_broker();
    bench.eventually("the broker answers again", |driver| driver.try_offsets("group", "killed").is_some());

    let after = bench.driver.offsets("group", "killed");
    let committed: i64 = after.values().map(|offsets| offsets.committed.max(0)).sum();
    let &(_, due) = seen.iter().rev().find(|(at, _)| killed - *at > COMMIT_PERIOD).unwrap();
    assert!(due > 0, "nothing was committed before the last five seconds: {seen:?}");
    assert!(committed >= due, "{committed} after the restart, {due} were committed five seconds before the kill");
    let stored: i64 = after.values().map(|offsets| offsets.max - offsets.min).sum();
    assert_eq!(stored, sent, "a process that dies loses no write that was acknowledged");
}

/// Commands of `mqadmin` and words that each must print; `{broker}` and `{namesrv}` stand for addresses. They run in
/// this order: some look at what others made.
const MQADMIN: [(&str, &[&str]); 20] = [
    ("clusterList", &["conformance", "broker-a", "{broker}"]),
    ("brokerStatus -b {broker}", &["brokerVersionDesc", "msgPutTotalTodayNow", "commitLogMaxOffset"]),
    ("getBrokerConfig -b {broker}", &["brokerName", "broker-a", "autoCreateTopicEnable"]),
    ("getNamesrvConfig -n {namesrv}", &["listenPort"]),
    ("updateTopic -b {broker} -t made -r 3 -w 3", &["success"]),
    ("updateTopic -c conformance -t everywhere -r 2 -w 2", &["success", "{broker}"]),
    ("topicList", &["watched", "made", "everywhere", "%RETRY%watchers"]),
    ("topicRoute -t made", &["{broker}", "\"readQueueNums\":3"]),
    ("topicClusterList -t made", &["conformance"]),
    ("topicStatus -t watched", &["broker-a"]),
    ("updateSubGroup -b {broker} -g fresh", &["success"]),
    ("consumerProgress -g watchers", &["watched", "Consume TPS", "Diff Total: 0"]),
    ("consumerConnection -g watchers", &["watcher", "CLUSTERING", "watched"]),
    ("producerConnection -g driver -t watched", &["driver", "JAVA"]),
    ("updateKvConfig -s space -k key -v value", &["success"]),
    ("deleteKvConfig -s space -k key", &["success"]),
    ("wipeWritePerm -b broker-a", &["OK"]),
    ("addWritePerm -b broker-a", &["OK"]),
    ("deleteTopic -c conformance -t made", &["success"]),
    ("deleteSubGroup -b {broker} -g fresh", &["success"]),
];

#[test]
fn mqadmin_sees_the_cluster() {
    let Some(mut bench) = Bench::start("watched", 4) else { return };
    bench.driver.send("watched", "sync", "key", 40, 64);
    bench.driver.run("consume watchers watcher watched 200");
    assert_eq!(bench.received(&["watcher"], 40).len(), 40);
    bench.eventually("all offsets are committed", |driver| {
        driver.offsets("watchers", "watched").values().map(|offsets| offsets.committed.max(0)).sum::<i64>() == 40
    });

    let (broker, namesrv) = (bench.cluster.broker_address(), bench.cluster.namesrv_address());
    let fill = |text: &str| text.replace("{broker}", &broker).replace("{namesrv}", &namesrv);
    let mut wrong = String::new();
    for (command, words) in MQADMIN {
        let printed = bench.driver.mqadmin(&fill(command));
        for word in words.iter().map(|word| fill(word)).filter(|word| !printed.contains(word)) {
            writeln!(wrong, "{command}: no `{word}` in\n{printed}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");

    let status = bench.driver.mqadmin("topicStatus -t watched");
    let rows: Vec<Vec<&str>> = status.lines().map(|line| line.split_whitespace().collect()).collect();
    let rows: Vec<&Vec<&str>> = rows.iter().filter(|row| row.first() == Some(&servers::BROKER_NAME)).collect();
    assert_eq!(rows.iter().map(|row| row[1]).collect::<Vec<_>>(), ["0", "1", "2", "3"], "{status}");
    assert_eq!(rows.iter().map(|row| row[3].parse::<i64>().unwrap()).sum::<i64>(), 40, "{status}");
}

#[test]
fn mqadmin_finds_messages_by_key_and_by_both_ids() {
    let Some(mut bench) = Bench::start("searched", 4) else { return };
    let sent = bench.driver.send("searched", "sync", "key", 30, 64);
    let (asked, last) = (&sent[7], sent.last().unwrap());
    bench.eventually("the last message is indexed", |driver| {
        driver.mqadmin(&format!("queryMsgByKey -t searched -k {}", last.key)).contains(&last.id)
    });
    // Once as it is, and once more by what a broker that was killed finds again.
    for round in ["before", "after"] {
        let by_key = bench.driver.mqadmin(&format!("queryMsgByKey -t searched -k {}", asked.key));
        let rows: Vec<Vec<&str>> = by_key.lines().map(|line| line.split_whitespace().collect()).collect();
        let (queue, offset) = (asked.queue.to_string(), asked.offset.to_string());
        assert!(rows.iter().any(|row| *row == [asked.id.as_str(), &queue, &offset]), "{round}: {by_key}");
        assert_eq!(sent.iter().filter(|sent| by_key.contains(&sent.id)).count(), 1, "{round}: {by_key}");
        let by_place = bench.driver.mqadmin(&format!("queryMsgById -t searched -i {}", asked.offset_id));
        for word in ["searched", &asked.key, &asked.id] {
            assert!(by_place.contains(word), "{round}: no `{word}` in\n{by_place}");
        }
        if round == "before" {
            bench.cluster.kill_broker();
            bench.cluster.start_broker();
            bench.eventually("the broker answers again", |driver| driver.try_offsets("nobody", "searched").is_some());
        }
    }
    // In one process this command works once: it keeps its client, which it has shut down.
    let by_id = bench.driver.mqadmin(&format!("queryMsgByUniqueKey -t searched -i {}", asked.id));
    for word in ["searched", &asked.key, &asked.id] {
        assert!(by_id.contains(word), "no `{word}` in\n{by_id}");
    }
}

/// An Apache slave asks for topics 2 ports below its master's, and for the rest at it; what it cannot read it leaves out.
#[test]
fn apache_slave_has_the_tables_of_its_master() {
    slave_has_the_tables_of_its_master(Maker::Staticfire, Maker::Apache);
}

#[test]
fn slave_has_the_tables_of_its_apache_master() {
    slave_has_the_tables_of_its_master(Maker::Apache, Maker::Staticfire);
}

/// Topics, groups and offsets that were made at the master are in the slave's files soon.
fn slave_has_the_tables_of_its_master(master: Maker, slave: Maker) {
    let Some(mut bench) = Bench::start_of(Some(master), "copied", 3) else { return };
    bench.driver.run("consume copiers member copied 200");
    bench.driver.send("copied", "sync", "key", 21, 64);
    assert_eq!(bench.received(&["member"], 21).len(), 21);
    bench.driver.run("stop member");
    let offsets = bench.driver.offsets("copiers", "copied");
    let committed: Vec<String> =
        offsets.iter().map(|(queue, offsets)| format!("{queue}:{}", offsets.committed)).collect();
    let committed = format!("copied@copiers:{{{}}}", committed.join(","));

    bench.cluster.start_slave_of(slave);
    let began = Instant::now();
    let missing = |cluster: &Cluster| {
        let has = |table: &str, text: &str| cluster.slave_table(table).contains(text);
        let wanted = [
            ("topics.json", "topicName:copied"),
            ("topics.json", "topicName:%RETRY%copiers"),
            ("subscriptionGroup.json", "groupName:copiers"),
            ("consumerOffset.json", &committed),
        ];
        wanted.iter().find(|(table, text)| !has(table, text)).map(|(table, text)| format!("{text} in {table}"))
    };
    // Apache's begins to copy after a minute.
    while let Some(missing) = missing(&bench.cluster) {
        assert!(began.elapsed() < 3 * PATIENCE, "no {missing}\n{}", bench.cluster.logs());
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A cluster of one name server and one broker with one topic, and the Java client that works on it.
struct Bench {
    // Dropped in this order: the client would otherwise spend its last seconds looking for the servers.
    driver: Driver,
    cluster: Cluster,
}

impl Bench {
    /// `None` if Java or Maven is missing, after saying so; in CI that is a failure.
    fn start(topic: &str, queues: u32) -> Option<Bench> {
        Bench::start_of(None, topic, queues)
    }

    /// With servers of this maker.
    fn start_of(maker: Option<Maker>, topic: &str, queues: u32) -> Option<Bench> {
        let java = driver::Java::find()?;
        let mut cluster = maker.map_or_else(|| Cluster::new(java), |maker| Cluster::of(java, maker));
        cluster.start_namesrv();
        cluster.start_broker();
        let driver = Driver::start(java, &cluster.namesrv_address(), cluster.folder());
        let broker = cluster.broker_address();
        let mut bench = Bench { driver, cluster };
        let create = format!("updateTopic -b {broker} -t {topic} -r {queues} -w {queues}");
        bench.eventually("the topic is created", |driver| driver.mqadmin(&create).contains("success"));
        bench.eventually("the topic has a route", |driver| {
            driver.try_offsets("nobody", topic).is_some_and(|offsets| offsets.len() == queues as usize)
        });
        Some(bench)
    }

    /// Asks until the answer is yes.
    fn eventually(&mut self, what: &str, mut holds: impl FnMut(&mut Driver) -> bool) {
        let began = Instant::now();
        while !holds(&mut self.driver) {
            assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}\n{}", self.cluster.logs());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// What the members received together, as soon as it is at least `count` messages and a moment longer, so that
    /// a message that comes twice has the time to.
    fn received(&mut self, members: &[&str], count: usize) -> Vec<Got> {
        let what = format!("{members:?} receive {count} messages");
        self.eventually(&what, |driver| {
            members.iter().map(|member| driver.received(member).len()).sum::<usize>() >= count
        });
        std::thread::sleep(Duration::from_millis(500));
        members.iter().flat_map(|member| self.driver.received(member)).collect()
    }
}
