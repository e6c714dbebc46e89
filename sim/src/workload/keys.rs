//! Settings of producers and consumers by RocketMQ's key names.

use std::time::Duration;

use client::{ClientTiming, ProducerBuilder, PushConsumerBuilder};
use remoting::settings::{Field, Key, Keys, Setting, SettingsError, TimeUnit};

/// What a producer can be told.
#[derive(Debug, Clone)]
pub(super) struct ProducerKeys {
    pub timing: ClientTiming,
    send_timeout: Duration,
    retries: u32,
    compress_from: u64,
    max_body: u64,
}

/// What a consumer can be told.
#[derive(Debug, Clone)]
pub(super) struct ConsumerKeys {
    pub timing: ClientTiming,
    concurrency: u32,
    batch_size: u32,
    pull_batch: u32,
    consume_timeout_minutes: u32,
    max_reconsume_times: u32,
}

static PRODUCER: Keys<ProducerKeys> = Keys {
    supported: &[
        Key { name: "sendMsgTimeout", field: Field::Time(|keys| &mut keys.send_timeout, TimeUnit::Millis) },
        Key { name: "retryTimesWhenSendFailed", field: Field::Count(|keys| &mut keys.retries, 0..=100) },
        Key { name: "compressMsgBodyOverHowmuch", field: Field::Size(|keys| &mut keys.compress_from, 0..=u64::MAX) },
        Key { name: "maxMessageSize", field: Field::Size(|keys| &mut keys.max_body, 1..=(1 << 30)) },
        Key {
            name: "pollNameServerInterval",
            field: Field::Time(|keys| &mut keys.timing.route_poll, TimeUnit::Millis),
        },
        Key {
            name: "heartbeatBrokerInterval",
            field: Field::Time(|keys| &mut keys.timing.heartbeat, TimeUnit::Millis),
        },
    ],
    without_effect: &[],
};

static CONSUMER: Keys<ConsumerKeys> = Keys {
    supported: &[
        Key { name: "consumeThreadMax", field: Field::Count(|keys| &mut keys.concurrency, 1..=1000) },
        Key { name: "consumeMessageBatchMaxSize", field: Field::Count(|keys| &mut keys.batch_size, 1..=1024) },
        Key { name: "pullBatchSize", field: Field::Count(|keys| &mut keys.pull_batch, 1..=1024) },
        Key { name: "consumeTimeout", field: Field::Count(|keys| &mut keys.consume_timeout_minutes, 1..=100_000) },
        Key { name: "maxReconsumeTimes", field: Field::Count(|keys| &mut keys.max_reconsume_times, 0..=1000) },
        Key {
            name: "pollNameServerInterval",
            field: Field::Time(|keys| &mut keys.timing.route_poll, TimeUnit::Millis),
        },
        Key {
            name: "heartbeatBrokerInterval",
            field: Field::Time(|keys| &mut keys.timing.heartbeat, TimeUnit::Millis),
        },
        Key {
            name: "persistConsumerOffsetInterval",
            field: Field::Time(|keys| &mut keys.timing.persist_offsets, TimeUnit::Millis),
        },
    ],
    without_effect: &[],
};

impl ProducerKeys {
    pub fn read(settings: impl IntoIterator<Item = Setting>) -> Result<ProducerKeys, SettingsError> {
        let mut keys = ProducerKeys {
            timing: ClientTiming::default(),
            send_timeout: Duration::from_secs(3),
            retries: 2,
            compress_from: 4096,
            max_body: 4 << 20,
        };
        PRODUCER.apply(&mut keys, settings)?;
        Ok(keys)
    }

    pub fn apply(&self, builder: ProducerBuilder) -> ProducerBuilder {
        builder
            .send_timeout(self.send_timeout)
            .retries(self.retries)
            .compress_from(usize::try_from(self.compress_from).unwrap_or(usize::MAX))
            .max_body_bytes(usize::try_from(self.max_body).unwrap_or(usize::MAX))
    }
}

impl ConsumerKeys {
    pub fn read(settings: impl IntoIterator<Item = Setting>) -> Result<ConsumerKeys, SettingsError> {
        let mut keys = ConsumerKeys {
            timing: ClientTiming::default(),
            concurrency: 20,
            batch_size: 1,
            pull_batch: 32,
            consume_timeout_minutes: 15,
            max_reconsume_times: 16,
        };
        CONSUMER.apply(&mut keys, settings)?;
        Ok(keys)
    }

    pub fn apply(&self, builder: PushConsumerBuilder) -> PushConsumerBuilder {
        builder
            .concurrency(self.concurrency as usize)
            .batch_size(self.batch_size as usize)
            .pull_batch(self.pull_batch)
            .consume_timeout(Duration::from_secs(u64::from(self.consume_timeout_minutes) * 60))
            .max_reconsume_times(self.max_reconsume_times)
    }
}

/// Whether a producer understands a setting.
pub(crate) fn check_producer(setting: Setting) -> Result<(), SettingsError> {
    ProducerKeys::read([setting]).map(drop)
}

/// Whether a consumer understands a setting.
pub(crate) fn check_consumer(setting: Setting) -> Result<(), SettingsError> {
    ConsumerKeys::read([setting]).map(drop)
}
