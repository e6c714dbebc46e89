//! What a client tells brokers about itself.

use remoting::body::{
    ConsumeFromWhere, ConsumeType, ConsumerData, HeartbeatData, MessageModel, ProducerData, SubscriptionData,
};

use super::Role;
use crate::consumer::{StartFrom, member::Member};

/// The heartbeat of a role; `None` for one that belongs to no group. Source: `spec/client.md` 1.5.
pub(super) fn of(client_id: &str, role: &Role) -> Option<HeartbeatData> {
    let mut data = HeartbeatData { client_id: client_id.to_owned(), ..HeartbeatData::default() };
    match role {
        Role::Producer { group } => data.producer_data_set.push(ProducerData { group_name: group.to_string() }),
        Role::Consumer(member) => data.consumer_data_set.push(consumer_data(member)),
        Role::Admin => return None,
    }
    Some(data)
}

fn consumer_data(member: &Member) -> ConsumerData {
    let start_from = match member.settings.start_from {
        StartFrom::Latest => ConsumeFromWhere::LastOffset,
        StartFrom::Earliest => ConsumeFromWhere::FirstOffset,
        StartFrom::Timestamp(_) => ConsumeFromWhere::Timestamp,
    };
    ConsumerData {
        group_name: member.settings.group.to_string(),
        consume_type: ConsumeType::Passively,
        message_model: MessageModel::Clustering,
        consume_from_where: start_from,
        unit_mode: false,
        subscription_data_set: subscription_data(member),
    }
}

/// All subscriptions of a member in the form of the wire.
pub(crate) fn subscription_data(member: &Member) -> Vec<SubscriptionData> {
    let one = |(topic, subscription): (std::sync::Arc<str>, crate::consumer::subscription::Subscription)| {
        let tags = subscription.filter.tag_set();
        SubscriptionData {
            topic: topic.to_string(),
            sub_string: subscription.filter.expression(),
            code_set: tags.iter().map(|tag| message::java_hash(tag)).collect(),
            tags_set: tags,
            sub_version: subscription.version,
            expression_type: "TAG".to_owned(),
            class_filter_mode: false,
        }
    };
    member.subscriptions().into_iter().map(one).collect()
}
