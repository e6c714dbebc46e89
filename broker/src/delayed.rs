//! Messages that wait for a delay level, and their delivery.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use host::{Host, time::Mono};
use message::{DelayLevels, Draft, PhyOffset, QueueOffset, SCHEDULE_TOPIC, StoredMessage, TRANS_HALF_TOPIC, property};
use remoting::body::{DataVersion, DelayOffsetTable};
use store::{GetRequest, GetStatus, Store, config_file::ConfigFile};
use tracing::{debug, error, warn};

use crate::{identity::Identity, send::properties, table_file::Chain};

/// Messages of one level that are read at once.
const READ_MAX: u32 = 32;

/// A level that cannot deliver, because the store refuses or a file is missing, tries again after this.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// The longest sleep until a message is due. The wall clock, which says what is due, may jump meanwhile.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// Where and how a message waits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// The queue of [`SCHEDULE_TOPIC`].
    pub(crate) queue: u32,
    /// Its property string, with topic and queue that it is meant for.
    pub(crate) properties: String,
}

/// How a message for `queue` of `topic` waits for `level`, which counts from 1. Source: `spec/store.md` 11.1.
pub(crate) fn waiting(topic: &str, queue: u32, stored: &str, level: u32) -> Waiting {
    assert!(level > 0, "a message without delay does not wait");
    let changes = [
        (property::DELAY_LEVEL, Some(level.to_string())),
        (property::REAL_TOPIC, Some(topic.to_owned())),
        (property::REAL_QUEUE_ID, Some(queue.to_string())),
    ];
    let changes: Vec<(&str, Option<&str>)> = changes.iter().map(|(name, value)| (*name, value.as_deref())).collect();
    Waiting { queue: level - 1, properties: properties::with(stored, &changes) }
}

/// Delivers messages when they are due, and remembers how far each level is.
///
/// One task per level reads its queue in order. The file `delayOffset.json` is never ahead of what the log has on
/// disk, so a crash repeats deliveries and loses none.
pub(crate) struct DelayedMessages {
    host: Host,
    store: Arc<Store>,
    levels: DelayLevels,
    /// Deliveries that raise the version by one.
    version_step: u32,
    /// Whose address stands in the records of delivered messages.
    identity: Arc<Identity>,
    /// Leaf lock: nothing else is locked while it is held.
    progress: Mutex<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    /// The next offset of each level.
    next: BTreeMap<u32, QueueOffset>,
    version: DataVersion,
    deliveries: u32,
    is_changed: bool,
}

/// What became of the message at the front of a level.
enum Step {
    /// Go on with this offset.
    Next(QueueOffset),
    /// Not due yet.
    Wait(Duration),
    /// There is nothing at this offset yet.
    Empty,
    /// It could not be delivered.
    Failed,
}

/// How far the queue of a level had been filled at which moments: what was there has waited long enough one span later,
/// whatever the wall clock makes of it, which may have been set back since.
struct Waits {
    span: Duration,
    /// The end of the queue and when it was seen, both ascending.
    seen: VecDeque<(QueueOffset, Mono)>,
}

impl Waits {
    /// Notes that messages up to `end` are there.
    fn note(&mut self, now: Mono, end: QueueOffset) {
        let grain = (self.span / 64).min(Duration::from_secs(1));
        if self.seen.back().is_none_or(|(last, at)| *last < end && now.since(*at) >= grain) {
            self.seen.push_back((end, now));
        }
    }

    /// The end of the messages that have waited long enough.
    fn over(&mut self, now: Mono) -> Option<QueueOffset> {
        let is_over = |at: &Mono| now.since(*at) >= self.span;
        let count = self.seen.iter().take_while(|(_, at)| is_over(at)).count();
        self.seen.drain(..count.saturating_sub(1));
        self.seen.front().filter(|(_, at)| is_over(at)).map(|(end, _)| *end)
    }
}

impl DelayedMessages {
    /// Continues where `stored` left off; offsets outside their queues are moved to the nearest end.
    pub(crate) fn new(
        host: &Host,
        store: Arc<Store>,
        config: &crate::BrokerConfig,
        identity: Arc<Identity>,
        stored: DelayOffsetTable,
    ) -> DelayedMessages {
        let levels = config.store.delay_levels.clone();
        let mut progress = Progress { version: stored.data_version.unwrap_or_default(), ..Progress::default() };
        for level in 1..=u32::try_from(levels.max_level()).unwrap_or(u32::MAX) {
            let saved = i32::try_from(level).ok().and_then(|level| stored.offset_table.get(&level));
            let saved = saved.and_then(|offset| u64::try_from(*offset).ok()).unwrap_or(0);
            let (min, max) = (store.min_offset(SCHEDULE_TOPIC, level - 1), store.max_offset(SCHEDULE_TOPIC, level - 1));
            let next = QueueOffset(saved.clamp(min.0, max.0.max(min.0)));
            if next.0 > 0 {
                progress.next.insert(level, next);
            }
        }
        DelayedMessages {
            host: host.clone(),
            store,
            levels,
            version_step: config.delay_version_step,
            identity,
            progress: Mutex::new(progress),
        }
    }

    /// The levels, each of which needs a task that runs [`deliver`](Self::deliver).
    pub(crate) fn levels(&self) -> std::ops::RangeInclusive<u32> {
        1..=u32::try_from(self.levels.max_level()).unwrap_or(u32::MAX)
    }

    /// Delivers the messages of one level, until it is dropped.
    pub(crate) async fn deliver(&self, level: u32) {
        let queue = level - 1;
        let mut waits = Waits { span: self.span(level), seen: VecDeque::new() };
        loop {
            let offset = self.next(level);
            match self.step(level, offset, waits.over(self.host.now())) {
                Step::Next(next) => self.advance(level, next),
                Step::Wait(time) => {
                    waits.note(self.host.now(), self.store.max_offset(SCHEDULE_TOPIC, queue));
                    self.host.sleep(time.min(SLEEP_MAX)).await;
                }
                Step::Empty => self.store.arrival(SCHEDULE_TOPIC, queue, offset).await,
                Step::Failed => self.host.sleep(RETRY_AFTER).await,
            }
        }
    }

    /// Takes the progress of the master, on a slave.
    pub(crate) fn replace(&self, copied: &DelayOffsetTable) {
        let copied_next = copied
            .offset_table
            .iter()
            .filter_map(|(level, next)| Some((u32::try_from(*level).ok()?, QueueOffset(u64::try_from(*next).ok()?))));
        let next = copied_next.collect();
        let version = copied.data_version.clone().unwrap_or_default();
        let mut progress = self.lock();
        if progress.next != next || progress.version != version {
            progress.next = next;
            progress.version = version;
            progress.is_changed = true;
        }
    }

    /// How far each level is, for replicas and reports.
    pub(crate) fn table(&self) -> DelayOffsetTable {
        self.lock().table()
    }

    /// Writes the progress if it changed. First the log is brought to disk, so that no delivered copy is missing there
    /// whose source counts as done.
    pub(crate) async fn save(&self, file: &ConfigFile) {
        let table = {
            let mut progress = self.lock();
            if !progress.is_changed {
                return;
            }
            progress.is_changed = false;
            progress.table()
        };
        let is_durable = self.store.flush().await == store::Flushed::Done;
        let saved = if is_durable { file.save(&table).await } else { Ok(()) };
        if let Err(error) = &saved {
            warn!(error = %Chain(error), "cannot save the progress of delayed messages");
        }
        if !is_durable || saved.is_err() {
            self.lock().is_changed = true;
        }
    }

    fn span(&self, level: u32) -> Duration {
        let times = if host::mutant!("delay-counted-twice") { 2 } else { 1 };
        self.levels.delay(level as usize).unwrap_or_default() * times
    }

    /// Looks at the messages from `offset` on, and delivers what is due; those below `waited` are.
    fn step(&self, level: u32, offset: QueueOffset, waited: Option<QueueOffset>) -> Step {
        let queue_id = level - 1;
        let request = GetRequest {
            topic: SCHEDULE_TOPIC,
            queue_id,
            offset,
            max_count: READ_MAX,
            max_bytes: u64::MAX,
            filter: None,
        };
        let result = self.store.get(&request);
        match result.status {
            GetStatus::Found => self.deliver_due(level, offset, waited, result.records),
            GetStatus::NoMessageInQueue | GetStatus::OffsetOverflowOne => Step::Empty,
            GetStatus::OffsetTooSmall | GetStatus::OffsetOverflowBadly => Step::Next(result.next),
            GetStatus::OffsetFoundNull | GetStatus::NoMatchedMessage | GetStatus::MessageWasRemoving => {
                if result.next > offset { Step::Next(result.next) } else { Step::Failed }
            }
        }
    }

    fn deliver_due(
        &self,
        level: u32,
        offset: QueueOffset,
        waited: Option<QueueOffset>,
        records: Vec<bytes::Bytes>,
    ) -> Step {
        let now_ms = self.host.wall_ms();
        let span_ms = i64::try_from(self.span(level).as_millis()).unwrap_or(i64::MAX);
        let mut done = None;
        let outcome = |done: Option<QueueOffset>, otherwise| done.map_or(otherwise, Step::Next);
        for mut records in records {
            while !records.is_empty() {
                let message = match StoredMessage::decode(&mut records) {
                    Ok(message) => message,
                    Err(error) => {
                        warn!(level, %offset, %error, "delayed message cannot be read");
                        return outcome(done, Step::Failed);
                    }
                };
                // A clock that was set back must not make a message wait longer than its level says.
                let began_ms = if host::mutant!("delay-from-birth") { message.born_ms } else { message.store_ms };
                let due_ms = began_ms.saturating_add(span_ms).min(now_ms.saturating_add(span_ms));
                if due_ms > now_ms && waited.is_none_or(|end| message.queue_offset >= end) {
                    let wait = Duration::from_millis(u64::try_from(due_ms - now_ms).expect("it lies ahead"));
                    return outcome(done, Step::Wait(wait));
                }
                if !self.put(&message, level) {
                    return outcome(done, Step::Failed);
                }
                done = Some(QueueOffset(message.queue_offset.0 + 1));
            }
        }
        outcome(done, Step::Failed)
    }

    /// Stores a message that is due where it belongs; true if it is done with. Source: `spec/store.md` 11.2.
    fn put(&self, message: &StoredMessage, level: u32) -> bool {
        // The copy would get a CRC of its own, and nobody could tell any more that the body is wrong.
        if message::body_crc(&message.message.body) != message.body_crc {
            error!(phy = %message.phy, "the body of a delayed message is not what was stored, it is passed over");
            return true;
        }
        let properties = &message.message.properties;
        let topic = properties.get(property::REAL_TOPIC);
        let queue = properties.get(property::REAL_QUEUE_ID).and_then(|queue| queue.parse().ok());
        let (Some(topic), Some(queue_id)) = (topic, queue) else {
            warn!(phy = %message.phy, "delayed message without a destination is dropped");
            return true;
        };
        if topic == TRANS_HALF_TOPIC {
            warn!(phy = %message.phy, "delayed half message is dropped");
            return true;
        }
        let restored = properties::with(
            properties.as_encoded(),
            &[
                (property::DELAY_LEVEL, None),
                (property::TIMER_DELIVER_MS, None),
                (property::TIMER_DELAY_SECONDS, None),
                (property::TIMER_DELAY_MS, None),
            ],
        );
        let draft = Draft {
            topic,
            queue_id,
            store_host: self.identity.address(),
            prepared_phy: PhyOffset(0),
            properties: &restored,
            ..message.draft()
        };
        match self.store.put(&draft) {
            Ok(_) => {
                host::point!("broker.delayed-delivered", message.phy.0, level);
                true
            }
            Err(error) => {
                debug!(phy = %message.phy, %error, "delayed message cannot be delivered yet");
                false
            }
        }
    }

    fn next(&self, level: u32) -> QueueOffset {
        self.lock().next.get(&level).copied().unwrap_or_default()
    }

    fn advance(&self, level: u32, next: QueueOffset) {
        let now_ms = self.host.wall_ms();
        let mut progress = self.lock();
        progress.next.insert(level, next);
        progress.is_changed = true;
        progress.deliveries += 1;
        if progress.deliveries >= self.version_step {
            progress.deliveries = 0;
            progress.version.counter = progress.version.counter.wrapping_add(1); // A file may say anything.
            progress.version.timestamp = now_ms;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress {
    fn table(&self) -> DelayOffsetTable {
        let offset_table = self
            .next
            .iter()
            .map(|(level, next)| {
                let level = i32::try_from(*level).expect("levels are few");
                (level, i64::try_from(next.0).expect("a queue offset fits 63 bits"))
            })
            .collect();
        DelayOffsetTable { data_version: Some(self.version.clone()), offset_table }
    }
}

#[cfg(test)]
mod tests {
    use message::Properties;

    use super::*;

    #[test]
    fn waiting_message_remembers_where_it_belongs() {
        let mut properties = Properties::new();
        properties.set("TAGS", "a").unwrap();
        properties.set("DELAY", "99").unwrap();
        let waiting = waiting("t", 3, properties.as_encoded(), 18);
        let stored = Properties::from_encoded(waiting.properties);
        assert_eq!(waiting.queue, 17);
        assert_eq!(stored.get("REAL_TOPIC"), Some("t"));
        assert_eq!(stored.get("REAL_QID"), Some("3"));
        assert_eq!(stored.get("DELAY"), Some("18"));
        assert_eq!(stored.get("TAGS"), Some("a"));
    }
    /// Each message has waited long enough one span after it was there, and not one span after those before it.
    #[test]
    fn a_wait_is_over_for_what_was_there_one_span_before() {
        let at = |ms| Mono::default() + Duration::from_millis(ms);
        let mut waits = Waits { span: Duration::from_secs(64), seen: VecDeque::new() };
        waits.note(at(0), QueueOffset(3));
        waits.note(at(500), QueueOffset(4)); // Too soon to be told from the first.
        waits.note(at(1000), QueueOffset(5));
        waits.note(at(9000), QueueOffset(5));
        waits.note(at(30_000), QueueOffset(9));
        let over = [63_999, 64_000, 65_000, 93_999, 94_000, 200_000].map(|ms| waits.over(at(ms)).map(|end| end.0));
        assert_eq!(over, [None, Some(3), Some(5), Some(5), Some(9), Some(9)]);
        assert_eq!(waits.seen.len(), 1);
        // An hour of messages keeps at most as many ends as it has seconds.
        let mut waits = Waits { span: Duration::from_secs(3600), seen: VecDeque::new() };
        (0..40_000_u64).for_each(|tick| waits.note(at(tick * 100), QueueOffset(tick)));
        assert_eq!(waits.seen.len(), 4000);
    }
}
