//! One store directory under both brokers in turn, staticfire's and Apache's: each finds what the other left, after a
//! clean exit and after `kill -9`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::Bench;
use crate::driver::{Driver, Got, Java, Sent};
use crate::servers::{BROKER_NAME, CLUSTER_NAME, Cluster, Maker};

const TOPIC: &str = "carried";
const QUEUES: u32 = 2;

/// Acknowledged messages before a broker is killed.
const BEFORE_KILL: usize = 200;

/// What clients and operators see of the topic.
#[derive(Debug, PartialEq, Eq)]
struct View {
    /// The rows of `topicStatus`: each queue with its bounds and the time of its last message.
    status: Vec<String>,
    /// What `queryMsgByKey` finds: id, queue, offset.
    by_key: BTreeMap<String, Vec<String>>,
    /// What a new group reads from the first offset, in the order of queues and offsets.
    messages: Vec<Got>,
    /// Where the first group that read stands.
    committed: BTreeMap<i32, i64>,
}

/// The directory on its way, and all that was ever acknowledged for it.
struct Trip {
    bench: Bench,
    topic: &'static str,
    sent: Vec<Sent>,
    /// What is looked for by key.
    keys: Vec<String>,
    views: usize,
}

#[test]
fn each_broker_goes_on_with_the_store_of_the_other() {
    let Some(bench) = Bench::start(TOPIC, QUEUES) else { return };
    let mut trip = Trip { bench, topic: TOPIC, sent: Vec::new(), keys: Vec::new(), views: 0 };
    trip.bench.cluster.stop_broker();

    trip.start(Maker::Staticfire);
    trip.send("first");
    let ours = trip.view();
    trip.bench.cluster.stop_broker();

    trip.start(Maker::Apache);
    trip.sees_the_same(&ours);
    trip.send("second");
    let apaches = trip.view();
    trip.bench.cluster.stop_broker();

    trip.start(Maker::Staticfire);
    trip.sees_the_same(&apaches);
    trip.send("third");
    let ours = trip.view();
    trip.kill_under_load("cut-off-ours");

    trip.start(Maker::Apache);
    trip.sees_at_least(&ours);
    trip.send("fourth");
    let apaches = trip.view();
    trip.kill_under_load("cut-off-apaches");

    trip.start(Maker::Staticfire);
    trip.sees_at_least(&apaches);
    trip.send("fifth");
    let ours = trip.view();
    trip.bench.cluster.stop_broker();

    trip.start(Maker::Apache);
    trip.sees_the_same(&ours);
}

/// In the reference a topic that was deleted begins again at offset 0, while its old messages stay in the log.
#[test]
fn a_topic_that_was_deleted_and_made_again_holds_its_new_messages() {
    let Some(bench) = Bench::start(TOPIC, QUEUES) else { return };
    let mut trip = Trip { bench, topic: TOPIC, sent: Vec::new(), keys: Vec::new(), views: 0 };
    trip.bench.cluster.stop_broker();
    trip.bench.cluster.keep_timers();

    trip.start(Maker::Apache);
    trip.send("old");
    let broker = trip.bench.cluster.broker_address();
    let delete = format!("deleteTopic -c {CLUSTER_NAME} -t {TOPIC}");
    let create = format!("updateTopic -b {broker} -t {TOPIC} -r {QUEUES} -w {QUEUES}");
    for change in [delete, create] {
        trip.bench.eventually(&change, |driver| driver.mqadmin(&change).contains("success"));
    }
    trip.keys.clear();
    // A few, to each queue: the old ones of a queue without files would come back.
    trip.sent = trip.bench.driver.send(TOPIC, "sync", "new", 6, 100);
    trip.bench.eventually("the topic begins again", |driver| {
        let offsets = driver.try_offsets("nobody", TOPIC);
        offsets.is_some_and(|queues| queues.values().map(|queue| queue.max).sum::<i64>() == 6)
    });
    trip.keys.push("new-5".to_owned());
    let apaches = trip.view();
    trip.bench.cluster.stop_broker();
    trip.bench.cluster.check_store();

    trip.start(Maker::Staticfire);
    trip.sees_the_same(&apaches);
    trip.send("ours");
    let ours = trip.view();
    trip.bench.cluster.stop_broker();
    trip.bench.cluster.check_store();

    trip.start(Maker::Apache);
    trip.sees_the_same(&ours);
    trip.kill_under_load("cut-off");

    trip.start(Maker::Staticfire);
    trip.sees_at_least(&ours);
}

/// A topic of the golden stores with two queues and messages in several files of the log.
const GOLDEN_TOPIC: &str = "GoldRoll";

/// Stores that Apache's broker filled long ago: after a clean exit, and after `kill -9`.
#[test]
fn both_brokers_go_on_with_the_golden_stores() {
    let Some(golden) = golden() else { return };
    let Some(java) = Java::find() else { return };
    let sent = golden_sent(&golden.join("clean-exit/expected.jsonl"));
    assert!(!sent.is_empty());
    let acked = golden_acked(&golden.join("killed/acked.jsonl"));
    assert!(acked.len() > BEFORE_KILL, "{}", acked.len());
    for (name, acked) in [("clean-exit", Vec::new()), ("killed", acked)] {
        let mut cluster = Cluster::new(java);
        cluster.adopt(&golden.join(name).join("store"));
        cluster.start_namesrv();
        let driver = Driver::start(java, &cluster.namesrv_address(), cluster.folder());
        let keys = [sent.first(), sent.last()].into_iter().flatten().map(|sent| sent.key.clone()).collect();
        let sent = golden_sent(&golden.join("clean-exit/expected.jsonl"));
        let mut trip = Trip { bench: Bench { driver, cluster }, topic: GOLDEN_TOPIC, sent, keys, views: 0 };

        trip.start(Maker::Staticfire);
        let found = trip.view();
        for (place, key) in &acked {
            assert!(
                found.messages.iter().any(|got| (got.queue, got.offset) == *place && got.key == *key),
                "lost: {key}"
            );
        }
        trip.send("ours");
        let ours = trip.view();
        trip.bench.cluster.stop_broker();

        trip.start(Maker::Apache);
        trip.sees_the_same(&ours);
    }
}

/// Where the golden stores are; `None`, with a note, if nobody says it.
fn golden() -> Option<PathBuf> {
    let Ok(folder) = std::env::var("STATICFIRE_GOLDEN") else {
        eprintln!("skipped: STATICFIRE_GOLDEN is not set");
        return None;
    };
    Some(PathBuf::from(folder).join("apache-5.3.3"))
}

fn golden_lines(path: &Path, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).filter(wanted).collect()
}

/// What the client was told about the messages of the topic, while the store was filled.
fn golden_sent(path: &Path) -> Vec<Sent> {
    let lines = golden_lines(path, |line| line["event"] == "sent" && line["topic"] == GOLDEN_TOPIC);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let sent = |line: &Value| Sent {
        key: text(&line["keys"]),
        queue: line["queueId"].as_i64().unwrap() as i32,
        offset: line["queueOffset"].as_i64().unwrap(),
        id: text(&line["msgId"]),
        offset_id: text(&line["offsetMsgId"]),
    };
    lines.iter().map(sent).collect()
}

/// Queue, offset and key of the messages that were acknowledged before the kill.
fn golden_acked(path: &Path) -> Vec<((i32, i64), String)> {
    let place = |line: &Value| (line["queueId"].as_i64().unwrap() as i32, line["queueOffset"].as_i64().unwrap());
    let acked = golden_lines(path, |line| line["event"] == "acked");
    acked.iter().map(|line| (place(line), line["key"].as_str().unwrap().to_owned())).collect()
}

impl Trip {
    fn start(&mut self, maker: Maker) {
        let topic = self.topic;
        self.bench.cluster.start_broker_of(maker);
        self.bench.eventually("the broker answers", |driver| {
            driver.try_offsets("nobody", topic).is_some_and(|offsets| offsets.len() == QUEUES as usize)
        });
    }

    /// Sends in every form that differs on disk: alone, compressed, in a batch.
    fn send(&mut self, name: &str) {
        let (driver, topic) = (&mut self.bench.driver, self.topic);
        let alone = driver.send(topic, "sync", &format!("{name}-alone"), 250, 2000);
        let compressed = driver.send(topic, "sync", &format!("{name}-compressed"), 10, 50_000);
        driver.send(topic, "batch", &format!("{name}-batch"), 20, 300);
        self.keys.extend([alone[0].key.clone(), format!("{name}-batch-19")]);
        self.sent.extend(alone.into_iter().chain(compressed));
    }

    fn kill_under_load(&mut self, name: &str) {
        let Bench { driver, cluster } = &mut self.bench;
        let sent = driver.send_until_it_fails(self.topic, name, BEFORE_KILL, || cluster.kill_broker());
        self.keys.extend(sent.last().map(|sent| sent.key.clone()));
        self.sent.extend(sent);
    }

    /// Looks at everything, and that everything acknowledged is in it where its sender was told.
    fn view(&mut self) -> View {
        let (topic, last) = (self.topic, self.keys.last().unwrap().clone());
        self.bench.eventually("the last message is indexed", |driver| !by_key(driver, topic, &last).is_empty());
        let (group, member) = (format!("readers-{}", self.views), format!("reader-{}", self.views));
        self.views += 1;
        let driver = &mut self.bench.driver;
        let stored: i64 = driver.offsets(&group, topic).values().map(|queue| queue.max - queue.min).sum();
        driver.run(&format!("consume {group} {member} {topic} 5000"));
        let mut messages = self.bench.received(&[&member], stored as usize);
        messages.sort();
        let driver = &mut self.bench.driver;
        driver.run(&format!("stop {member}"));
        let printed = driver.mqadmin(&format!("topicStatus -t {topic}"));
        let view = View {
            status: rows(&printed, |row| row.starts_with(BROKER_NAME)),
            by_key: self.keys.iter().map(|key| (key.clone(), by_key(driver, topic, key))).collect(),
            messages,
            committed: driver.offsets("readers-0", topic).iter().map(|(&id, queue)| (id, queue.committed)).collect(),
        };
        assert_eq!(view.status.len(), QUEUES as usize, "{printed}");
        assert_eq!(view.messages.len(), stored as usize, "each message arrives once");
        self.holds_what_was_acknowledged(&view);
        view
    }

    fn holds_what_was_acknowledged(&self, view: &View) {
        let found: BTreeMap<_, _> = view.messages.iter().map(|got| ((got.queue, got.offset), got)).collect();
        for sent in &self.sent {
            let got = found.get(&(sent.queue, sent.offset)).unwrap_or_else(|| panic!("lost: {sent:?}"));
            assert_eq!((&got.key, &got.id), (&sent.key, &sent.id), "another message stands at {sent:?}");
            if let Some(rows) = view.by_key.get(&sent.key) {
                assert_eq!(*rows, [format!("{} {} {}", sent.id, sent.queue, sent.offset)], "{}", sent.key);
            }
        }
        let missing = view.by_key.iter().filter(|(_, rows)| rows.is_empty()).map(|(key, _)| key);
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&String>::new(), "keys that are not found");
    }

    fn sees_the_same(&mut self, before: &View) {
        let now = self.view();
        assert!(now == *before, "before: {}\nnow: {}", before.brief(), now.brief());
    }

    /// As before, and on top what came in until the broker was killed.
    fn sees_at_least(&mut self, before: &View) {
        let now = self.view();
        let lost: Vec<&Got> = before.messages.iter().filter(|got| now.messages.binary_search(got).is_err()).collect();
        assert!(lost.is_empty(), "lost or changed: {lost:?}");
        let again: BTreeMap<_, _> = now.by_key.into_iter().filter(|(key, _)| before.by_key.contains_key(key)).collect();
        assert_eq!(again, before.by_key);
        assert_eq!(now.committed, before.committed);
    }
}

impl View {
    /// All but the messages, of which there are many.
    fn brief(&self) -> String {
        let View { status, by_key, messages, committed } = self;
        format!("{status:#?}\n{by_key:#?}\n{} messages, {committed:?}", messages.len())
    }
}

fn by_key(driver: &mut Driver, topic: &str, key: &str) -> Vec<String> {
    let printed = driver.mqadmin(&format!("queryMsgByKey -t {topic} -k {key}"));
    let mut found = rows(&printed, |row| !row.starts_with('#'));
    found.sort();
    found
}

/// The rows of a printed table that `wanted` chooses, with one space between columns.
fn rows(printed: &str, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let rows = printed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    rows.filter(|row| !row.is_empty() && wanted(row)).collect()
}
