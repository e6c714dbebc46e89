//! What the clients of a scenario do, and the records they leave.

mod consumer;
mod keys;
mod producer;

pub(crate) use consumer::consume;
pub(crate) use keys::{check_consumer, check_producer};
pub(crate) use producer::produce;

use client::MessageView;
use message::Message;

use crate::{
    history::{Look, MessageId},
    scenario::Scenario,
};

/// The property by which a message of the workload is known, whatever ids clients and brokers give it.
pub const ID_PROPERTY: &str = "SF_ID";

/// The number of a producer over the whole scenario, which is part of the ids of its messages.
#[must_use]
pub fn producer_number(scenario: &Scenario, group: &str, by: u32) -> u32 {
    let before = scenario.producers.iter().take_while(|producers| producers.group != group);
    before.map(|producers| producers.instances).sum::<u32>() + by
}

/// What a message looks like before it is sent.
fn look_of(message: &Message) -> Look {
    Look {
        topic: message.topic.clone(),
        body_bytes: message.body.len() as u64,
        crc: message::body_crc(&message.body),
        tag: message.tags().unwrap_or_default().to_owned(),
    }
}

/// What a message looks like when it arrives.
fn look_at(view: &MessageView) -> Look {
    Look {
        topic: view.topic().to_owned(),
        body_bytes: view.body().len() as u64,
        crc: message::body_crc(view.body()),
        tag: view.tag().unwrap_or_default().to_owned(),
    }
}

fn id_of(view: &MessageView) -> Option<MessageId> {
    view.property(ID_PROPERTY).and_then(MessageId::parse)
}
