//! What happened in a run, as records in one total order, and the hash that identifies the run.
//!
//! A record holds virtual time, node, life, and stable names: message ids of the workload, queues by name, offsets. No
//! addresses, no wall clock, no task ids, no payloads. As text it is one JSON object per line with its keys in fixed
//! order (`spec/simulation.md` 6.1).

mod line;

use std::{fmt, io, sync::Mutex};

use indexmap::IndexSet;
use xxhash_rust::xxh3::Xxh3;

/// Names the function of the history's hash and the encoding under it; a change of either gets a new name.
pub const HASH_VERSION: &str = "xxh3-128/1";

/// Faults of disks after which a file may be wrong for good.
pub(crate) const SPOILS: [&str; 5] = ["bit-rot", "latent-sector", "lost-write", "misdirected-write", "lying-flush"];

/// The hash is kept after every so many records, so that two runs can be compared piece by piece.
pub const CHECKPOINT_EVERY: u64 = 1_000;

/// The function of the history's hash, over any bytes.
#[must_use]
pub fn digest(bytes: &[u8]) -> u128 {
    xxhash_rust::xxh3::xxh3_128(bytes)
}

/// A node by its number in [`History::nodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeRef(pub u32);

/// A queue by its number in [`History::queues`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueRef(pub u32);

/// A message of the workload: the number of its producer over the whole scenario, and its own number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    /// Which producer.
    pub producer: u32,
    /// Which of its messages.
    pub n: u32,
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}-{:04}", self.producer, self.n)
    }
}

impl MessageId {
    /// Reads what `Display` writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<MessageId> {
        let (producer, n) = text.strip_prefix('p')?.split_once('-')?;
        Some(MessageId { producer: producer.parse().ok()?, n: n.parse().ok()? })
    }
}

/// A queue of a topic on a broker group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Queue {
    /// The topic; for messages that come again it is the group's retry topic.
    pub topic: String,
    /// The broker group.
    pub broker: String,
    /// The number of the queue on that broker.
    pub id: u32,
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.topic, self.broker, self.id)
    }
}

/// What a message looks like to whoever sends or receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Its topic.
    pub topic: String,
    /// Length of its body.
    pub body_bytes: u64,
    /// CRC-32 of its body.
    pub crc: u32,
    /// Its tag, empty if it has none.
    pub tag: String,
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}B {:08x} {}", self.topic, self.body_bytes, self.crc, self.tag)
    }
}

/// How a node went down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Down {
    /// Its process was killed.
    Kill,
    /// It lost its power.
    PowerLoss,
    /// It was asked to stop and did.
    Stop,
    /// It was asked to stop, did not in time, and was killed.
    StopKilled,
    /// Its program ended by itself.
    Exit,
    /// It panicked.
    Panic,
    /// It touched memory behind which the disk had nothing that could be read.
    Signal,
}

impl Down {
    /// Its name in histories.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Down::Kill => "kill",
            Down::PowerLoss => "power-loss",
            Down::Stop => "stop",
            Down::StopKilled => "stop-killed",
            Down::Exit => "exit",
            Down::Panic => "panic",
            Down::Signal => "signal",
        }
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A part of the run begins: `start`, `active`, `settle`, `end`.
    Phase(&'static str),
    /// A process starts.
    NodeUp,
    /// A process is gone. The text says why, if it ended by itself.
    NodeDown(Down, String),
    /// What a power loss did to the disk of the node.
    DiskCrash {
        /// Pages that were not flushed.
        dirty: u64,
        /// Pages that went back to their old content.
        lost: u64,
        /// Pages that came out mixed.
        torn: u64,
    },
    /// A fault begins: id and kind.
    FaultBegin(String, &'static str),
    /// What a fault did while it lasted: id, the name of the count it adds to, and how much.
    FaultHit(String, &'static str, u64),
    /// A fault ends: id.
    FaultEnd(String),
    /// A call on a file went wrong, as a fault of the disk wanted it: the kind of the fault, and the file.
    DiskError(&'static str, String),
    /// A producer begins to send.
    SendInvoke(MessageId, Look),
    /// The producer tried more than once; the outcome follows.
    SendTries(MessageId, u32),
    /// The broker acknowledged it.
    SendOk(MessageId, QueueRef, u64, Option<u64>),
    /// It was certainly not stored. The text names the error.
    SendFail(MessageId, String),
    /// Nobody knows whether it was stored, or it was stored with a weaker promise. The text says which.
    SendInfo(MessageId, String),
    /// A listener got a message. `None` if it is not of the workload.
    Deliver {
        /// Which one.
        message: Option<MessageId>,
        /// Where from.
        queue: QueueRef,
        /// At which offset.
        offset: u64,
        /// What it looked like.
        look: Look,
        /// How often it had come again before, as it says itself.
        times: u32,
    },
    /// The listener has finished the message of this queue and offset.
    Ack(Option<MessageId>, QueueRef, u64),
    /// The listener wants the message again later.
    Nack(Option<MessageId>, QueueRef, u64),
    /// The broker was seen to hold this committed offset for the group of the node.
    Commit {
        /// The consumer group.
        group: String,
        /// The queue.
        queue: QueueRef,
        /// The offset; `None` if there is none.
        offset: Option<u64>,
    },
    /// A consumer owns this queue, too.
    Assign(QueueRef),
    /// A consumer gave up this queue.
    Revoke(QueueRef),
    /// A consumer asks for what stands in this queue from this offset on.
    Poll(QueueRef, u64),
    /// A broker lets a delayed message go.
    Due {
        /// Where in its log the record stands that waited.
        phy: u64,
        /// Its delay level.
        level: u64,
    },
    /// What a name server answered to the question where a topic is.
    Route {
        /// The name server.
        name_server: String,
        /// The topic.
        topic: String,
        /// The brokers that it named.
        brokers: Vec<String>,
    },
    /// A store appended: the end of its log.
    Append(u64),
    /// A store flushed: everything below is durable.
    Flush(u64),
    /// A store has recovered: the end of its log.
    Recover(u64),
    /// A store cut its log back to here.
    Truncate(u64),
    /// A store deleted the log file that begins here.
    Delete(u64),
    /// Any other point of the product, by name and value.
    Point(&'static str, i64),
    /// Product code came, for the first time in the run, to a statement: a `sometimes!` that holds, or an `always!`.
    Reached(&'static str),
    /// An `always!` does not hold. It ends the run.
    Broken(&'static str),
    /// A task panicked: name and message.
    Panic(&'static str, String),
    /// Something that must come to an end has not, at the end of the settle phase.
    Pending(String),
    /// Something still grew at the end of the settle phase, though nothing was left to do.
    Grown(String),
    /// Everything had come to an end.
    Converged,
    /// The files of a store were audited at the end of the run: whole records in its log, and entries of its queues.
    Audited {
        /// Records.
        records: u64,
        /// Entries.
        entries: u64,
    },
    /// The audit found a dead letter in a log.
    DeadLetter {
        /// Which message.
        message: Option<MessageId>,
        /// Of which group.
        group: String,
        /// At which offset of the queue of dead letters.
        offset: u64,
    },
    /// An operator has given the node, a slave, the place of its master.
    Promoted,
    /// The audit compared the log of a slave with that of its master: how many bytes both have.
    Compared(u64),
    /// The logs of a slave and its master differ: from which byte on, and how.
    Differs(u64, String),
    /// The audit found something wrong: the file, the byte in it if it is about one, and what.
    Unsound(String, Option<u64>, String),
}

impl Event {
    /// The name of its kind, as in the lines of a history.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Event::Phase(_) => "phase",
            Event::NodeUp => "node.up",
            Event::NodeDown(..) => "node.down",
            Event::DiskCrash { .. } => "disk.crash",
            Event::FaultBegin(..) => "fault.begin",
            Event::FaultHit(..) => "fault.hit",
            Event::FaultEnd(_) => "fault.end",
            Event::DiskError(..) => "disk.error",
            Event::SendInvoke(..) => "send.invoke",
            Event::SendTries(..) => "send.tries",
            Event::SendOk(..) => "send.ok",
            Event::SendFail(..) => "send.fail",
            Event::SendInfo(..) => "send.info",
            Event::Deliver { .. } => "deliver",
            Event::Ack(..) => "ack",
            Event::Nack(..) => "nack",
            Event::Commit { .. } => "commit",
            Event::Assign(_) => "assign",
            Event::Revoke(_) => "revoke",
            Event::Poll(..) => "poll",
            Event::Due { .. } => "due",
            Event::Route { .. } => "route",
            Event::Append(_) => "append",
            Event::Flush(_) => "flush",
            Event::Recover(_) => "recover",
            Event::Truncate(_) => "truncate",
            Event::Delete(_) => "delete",
            Event::Point(..) => "point",
            Event::Reached(_) => "mark",
            Event::Broken(_) => "broken",
            Event::Panic(..) => "panic",
            Event::Pending(_) => "pending",
            Event::Grown(_) => "grown",
            Event::Converged => "converged",
            Event::Audited { .. } => "audited",
            Event::DeadLetter { .. } => "dead-letter",
            Event::Promoted => "promoted",
            Event::Compared(_) => "compared",
            Event::Differs(..) => "differs",
            Event::Unsound(..) => "unsound",
        }
    }

    /// The message of the workload that it is about.
    #[must_use]
    pub fn message(&self) -> Option<MessageId> {
        match self {
            Event::SendInvoke(message, _)
            | Event::SendTries(message, _)
            | Event::SendOk(message, ..)
            | Event::SendFail(message, _)
            | Event::SendInfo(message, _) => Some(*message),
            Event::Deliver { message, .. }
            | Event::DeadLetter { message, .. }
            | Event::Ack(message, ..)
            | Event::Nack(message, ..) => *message,
            _ => None,
        }
    }

    /// Whether a flush of a commit log failed, so that what was in the page cache may be gone.
    #[must_use]
    pub fn fails_log_flush(&self) -> bool {
        matches!(self, Event::DiskError("eio-flush", path) if path.starts_with("commitlog/"))
    }

    /// Whether a file failed without which a broker cannot make anything durable: it writes nothing more until it is
    /// restarted, offsets included.
    #[must_use]
    pub fn fences_store(&self) -> bool {
        match self {
            Event::DiskError("eio-flush", path) => {
                ["commitlog/", "consumequeue/", "index/"].iter().any(|part| path.starts_with(part))
            }
            _ => false,
        }
    }

    /// The queue that it is about.
    #[must_use]
    pub fn queue(&self) -> Option<QueueRef> {
        match self {
            Event::SendOk(_, queue, ..)
            | Event::Deliver { queue, .. }
            | Event::Ack(_, queue, _)
            | Event::Nack(_, queue, _)
            | Event::Assign(queue)
            | Event::Revoke(queue)
            | Event::Poll(queue, _)
            | Event::Commit { queue, .. } => Some(*queue),
            _ => None,
        }
    }
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Virtual nanoseconds since the start.
    pub at: u64,
    /// Where, if it belongs to a node.
    pub node: Option<(NodeRef, u32)>,
    /// What.
    pub event: Event,
}

/// All records of a run with the names they refer to.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// In the order of happening; the index is the record's number.
    pub records: Vec<Record>,
    /// Names of nodes.
    pub nodes: IndexSet<String>,
    /// Queues.
    pub queues: IndexSet<Queue>,
    /// Slaves that took the place of their master: the record that says so, and who.
    pub(crate) promotions: Vec<(usize, NodeRef)>,
}

impl History {
    /// The queue of this number.
    ///
    /// # Panics
    /// If the number is not of this history.
    #[must_use]
    pub fn queue(&self, queue: QueueRef) -> &Queue {
        &self.queues[queue.0 as usize]
    }

    /// The name of a node.
    ///
    /// # Panics
    /// If the number is not of this history.
    #[must_use]
    pub fn node(&self, node: NodeRef) -> &str {
        &self.nodes[node.0 as usize]
    }

    /// Whether, before a record, a fault let a call of a life on a file go wrong, or spoilt the disk of its node.
    #[must_use]
    pub fn failed_by_its_disk(&self, life: Option<(NodeRef, u32)>, before: usize) -> bool {
        let records = self.records[..before]
            .iter()
            .rev()
            .take_while(|record| record.node != life || !matches!(record.event, Event::NodeUp));
        let mut own = records.filter(|record| record.node.is_some() && record.node == life);
        let node = life.map(|(node, _)| node);
        let mut of_node = self.records[..before].iter().filter(|record| record.node.map(|(node, _)| node) == node);
        own.any(|record| matches!(record.event, Event::DiskError(..)))
            || of_node.any(|record| matches!(record.event, Event::DiskError(kind, _) if SPOILS.contains(&kind)))
    }

    /// The node of this name, if anything was recorded of it.
    #[must_use]
    pub fn find_node(&self, name: &str) -> Option<NodeRef> {
        self.nodes.get_index_of(name).map(node_ref)
    }

    /// The node that is the master of the group which holds a queue when record `at` is written.
    #[must_use]
    pub fn broker_of(&self, queue: QueueRef, at: usize) -> Option<NodeRef> {
        let promotion = self.promotions_of(queue).take_while(|(index, _)| *index <= at).last();
        promotion.map(|(_, node)| node).or_else(|| self.find_node(&format!("{}/0", self.queue(queue).broker)))
    }

    /// The promotions of slaves of the group that holds a queue: records and nodes.
    pub fn promotions_of(&self, queue: QueueRef) -> impl Iterator<Item = (usize, NodeRef)> {
        let of_group = move |node: NodeRef| {
            self.node(node).rsplit_once('/').is_some_and(|(group, _)| group == self.queue(queue).broker)
        };
        self.promotions.iter().copied().filter(move |(_, node)| of_group(*node))
    }

    /// Whether a slave of the group that holds a queue was promoted between two records. Then what its master had not
    /// sent it is gone, and so are offsets that were committed since it copied them.
    #[must_use]
    pub fn promoted_between(&self, queue: QueueRef, from: usize, to: usize) -> bool {
        self.promotions_of(queue).any(|(index, _)| (from..to).contains(&index))
    }

    /// The number of a node of this name, made if it is new.
    pub fn intern_node(&mut self, name: &str) -> NodeRef {
        self.find_node(name).unwrap_or_else(|| node_ref(self.nodes.insert_full(name.to_owned()).0))
    }

    /// The number of a queue, made if it is new.
    pub fn intern_queue(&mut self, queue: Queue) -> QueueRef {
        QueueRef(u32::try_from(self.queues.insert_full(queue).0).expect("a run has few queues"))
    }

    /// Record `index` as one line of JSON, without the newline.
    ///
    /// # Panics
    /// If there is no such record.
    #[must_use]
    pub fn line(&self, index: usize) -> String {
        let mut line = Vec::new();
        line::encode(self, index as u64, &self.records[index], &mut line);
        String::from_utf8(line).expect("JSON is text")
    }
}

fn node_ref(index: usize) -> NodeRef {
    NodeRef(u32::try_from(index).expect("a run has few nodes"))
}

/// The hashes of a finished history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryHash {
    /// Over all records.
    pub hash: u128,
    /// How many records.
    pub count: u64,
    /// After every [`CHECKPOINT_EVERY`] records.
    pub checkpoints: Vec<u128>,
}

/// Takes records while a run goes on, hashes them, and may write them to a file.
pub struct Recorder {
    inner: Mutex<Inner>, // Leaf lock.
}

struct Inner {
    history: History,
    hash: Xxh3,
    checkpoints: Vec<u128>,
    line: Vec<u8>,
    out: Option<Box<dyn io::Write + Send>>,
    /// The first error of writing; nothing is written after it.
    failed: Option<io::Error>,
}

impl Recorder {
    /// An empty history. Each record is also written to `out` as it comes.
    #[must_use]
    pub fn new(out: Option<Box<dyn io::Write + Send>>) -> Recorder {
        let inner = Inner {
            history: History::default(),
            hash: Xxh3::new(),
            checkpoints: Vec::new(),
            line: Vec::new(),
            out,
            failed: None,
        };
        Recorder { inner: Mutex::new(inner) }
    }

    /// Adds a record. `build` may look up and make names.
    pub fn record(&self, at: u64, node: Option<(&str, u32)>, build: impl FnOnce(&mut History) -> Event) {
        let mut inner = self.inner.lock().expect("nothing panics while it is held");
        let inner = &mut *inner;
        let event = build(&mut inner.history);
        let node = node.map(|(name, incarnation)| (inner.history.intern_node(name), incarnation));
        let record = Record { at, node, event };
        let index = inner.history.records.len() as u64;
        inner.line.clear();
        line::encode(&inner.history, index, &record, &mut inner.line);
        inner.line.push(b'\n');
        inner.hash.update(&inner.line);
        if (index + 1).is_multiple_of(CHECKPOINT_EVERY) {
            inner.checkpoints.push(inner.hash.digest128());
        }
        if let Some(out) = inner.out.as_mut().filter(|_| inner.failed.is_none()) {
            inner.failed = out.write_all(&inner.line).err();
        }
        if let (Event::Promoted, Some((node, _))) = (&record.event, record.node) {
            inner.history.promotions.push((inner.history.records.len(), node));
        }
        inner.history.records.push(record);
    }

    /// Looks at what has been recorded so far.
    pub fn with<T>(&self, look: impl FnOnce(&History) -> T) -> T {
        look(&self.inner.lock().expect("nothing panics while it is held").history)
    }

    /// The history and its hashes; the recorder is empty afterwards.
    ///
    /// # Errors
    /// If the file could not be written.
    pub fn finish(&self) -> io::Result<(History, HistoryHash)> {
        let mut inner = self.inner.lock().expect("nothing panics while it is held");
        if let Some(error) = inner.failed.take() {
            return Err(error);
        }
        if let Some(out) = &mut inner.out {
            out.flush()?;
        }
        let history = std::mem::take(&mut inner.history);
        let hash = HistoryHash {
            hash: inner.hash.digest128(),
            count: history.records.len() as u64,
            checkpoints: std::mem::take(&mut inner.checkpoints),
        };
        Ok((history, hash))
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder() -> Recorder {
        let recorder = Recorder::new(None);
        recorder.record(0, None, |_| Event::Phase("active"));
        recorder.record(5, Some(("broker-a/0", 1)), |_| Event::NodeUp);
        let look = Look { topic: "orders".into(), body_bytes: 12, crc: 0xfeed, tag: "paid".into() };
        let message = MessageId { producer: 1, n: 7 };
        recorder.record(1_000, Some(("checkout/0", 1)), |_| Event::SendInvoke(message, look));
        recorder.record(2_000, Some(("checkout/0", 1)), |history| {
            let queue = Queue { topic: "orders".into(), broker: "broker-a".into(), id: 3 };
            Event::SendOk(message, history.intern_queue(queue), 41, Some(18204))
        });
        recorder
    }

    #[test]
    fn records_are_lines_of_json_with_keys_in_fixed_order() {
        let (history, _) = recorder().finish().unwrap();
        let lines: Vec<String> = (0..history.records.len()).map(|index| history.line(index)).collect();
        insta::assert_snapshot!(lines.join("\n"), @r#"
    {"i":0,"t":0,"k":"phase","v":"active"}
    {"i":1,"t":5,"n":"broker-a/0","inc":1,"k":"node.up"}
    {"i":2,"t":1000,"n":"checkout/0","inc":1,"k":"send.invoke","m":"p1-0007","v":"orders 12B 0000feed paid"}
    {"i":3,"t":2000,"n":"checkout/0","inc":1,"k":"send.ok","m":"p1-0007","q":"orders/broker-a/3","o":41,"x":18204}
    "#);
        assert!(lines.iter().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
    }

    #[test]
    fn equal_histories_have_equal_hashes() {
        let (_, first) = recorder().finish().unwrap();
        let (_, second) = recorder().finish().unwrap();
        assert_eq!(first, second);
        let other = recorder();
        other.record(3_000, None, |_| Event::Converged);
        assert_ne!(other.finish().unwrap().1.hash, first.hash);
    }

    #[test]
    fn the_hash_is_pinned_because_old_runs_are_compared_with_it() {
        let (_, hash) = recorder().finish().unwrap();
        insta::assert_snapshot!(format!("{:032x}", hash.hash), @"a89f5f35084ed188f108205a0159a3c6");
    }

    #[test]
    fn checkpoints_come_every_thousand_records() {
        let recorder = Recorder::new(None);
        for at in 0..2_500 {
            recorder.record(at, None, |_| Event::Converged);
        }
        assert_eq!(recorder.finish().unwrap().1.checkpoints.len(), 2);
    }

    #[test]
    fn message_ids_read_back() {
        let id = MessageId { producer: 3, n: 12345 };
        assert_eq!(MessageId::parse(&id.to_string()), Some(id));
        assert_eq!(MessageId::parse("q1-2"), None);
    }
}
