//! The body of a registration, plain or compressed. Source: `spec/protocol.md` 10.2 and 10.3.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
};

use bytes::{Buf, BufMut, Bytes};

use super::{
    Body, DataVersion, TopicConfig, TopicConfigSerializeWrapper, TopicFilterType, TopicQueueMappingInfo, bodies,
};
use crate::{
    json::{self, Dialect, JsonError},
    language::Version,
};

/// A registration that inflates to more than this is refused.
const INFLATED_BYTES_MAX: u64 = 64 * 1024 * 1024;

bodies! {
    /// A broker's topics, as it registers them.
    RegisterBrokerBody {
        /// Always empty today.
        filter_server_list: Vec<String> = "filterServerList",
        topic_config_serialize_wrapper: TopicConfigSerializeWrapper = "topicConfigSerializeWrapper",
    }
}

/// A registration that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterBodyError {
    /// A part that is JSON.
    #[error("{part} of the registration")]
    Json {
        /// Which part.
        part: &'static str,
        /// What is wrong with it.
        source: JsonError,
    },
    /// The stream cannot be inflated, or not to its end.
    #[error("the registration does not inflate to at most {INFLATED_BYTES_MAX} bytes")]
    Inflate,
    /// A part is missing or has an impossible length.
    #[error("the compressed registration ends in its {part}")]
    Short {
        /// Which part.
        part: &'static str,
    },
    /// A line that should describe a topic.
    #[error("`{0}` does not describe a topic")]
    Topic(String),
}

impl RegisterBrokerBody {
    /// Reads either form: what the request says about compression is unreliable, so the first byte decides.
    ///
    /// `version` is the registering broker's: from 5.0.0 on the compressed form has one more part.
    ///
    /// # Errors
    /// The bytes are neither form.
    pub fn decode_any(body: &Bytes, version: Version) -> Result<RegisterBrokerBody, RegisterBodyError> {
        match body.first() {
            Some(0x78) => RegisterBrokerBody::inflate(body, version),
            _ => json::from_slice(body).map_err(|source| RegisterBodyError::Json { part: "body", source }),
        }
    }

    fn inflate(body: &Bytes, version: Version) -> Result<RegisterBrokerBody, RegisterBodyError> {
        let mut inflated = Vec::new();
        let mut stream = flate2::read::ZlibDecoder::new(body.as_ref()).take(INFLATED_BYTES_MAX + 1);
        stream.read_to_end(&mut inflated).map_err(|_| RegisterBodyError::Inflate)?;
        if inflated.len() as u64 > INFLATED_BYTES_MAX {
            return Err(RegisterBodyError::Inflate);
        }
        let mut input = inflated.as_slice();
        let data_version: DataVersion = json_part(&mut input, "data version")?;
        let mut topic_config_table = BTreeMap::new();
        for _ in 0..count(&mut input, "topic count")? {
            let line = part(&mut input, "topic")?;
            let topic = topic_from_text(&String::from_utf8_lossy(line))?;
            topic_config_table.insert(topic.topic_name.clone(), topic);
        }
        let filter_server_list = json_part(&mut input, "filter servers")?;
        let mut topic_queue_mapping_info_map = BTreeMap::new();
        if version >= Version::V5_0_0 {
            for _ in 0..count(&mut input, "mapping count")? {
                let info: TopicQueueMappingInfo = json_part(&mut input, "mapping")?;
                topic_queue_mapping_info_map.insert(info.topic.clone(), info);
            }
        }
        Ok(RegisterBrokerBody {
            filter_server_list,
            topic_config_serialize_wrapper: TopicConfigSerializeWrapper {
                data_version,
                topic_config_table,
                topic_queue_mapping_info_map,
                ..TopicConfigSerializeWrapper::default()
            },
        })
    }

    /// Writes the compressed form, as a broker of [`Version::CURRENT`]. `order` and the system flag of topics are lost
    /// in it.
    #[must_use]
    pub fn deflate(&self) -> Bytes {
        let wrapper = &self.topic_config_serialize_wrapper;
        let mut plain = Vec::new();
        put_part(&mut plain, &wrapper.data_version.encode());
        put_count(&mut plain, wrapper.topic_config_table.len());
        for topic in wrapper.topic_config_table.values() {
            put_part(&mut plain, topic_to_text(topic).as_bytes());
        }
        put_part(&mut plain, &self.filter_server_list.encode());
        put_count(&mut plain, wrapper.topic_queue_mapping_info_map.len());
        for info in wrapper.topic_queue_mapping_info_map.values() {
            put_part(&mut plain, &info.encode());
        }
        let mut stream = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        stream.write_all(&plain).expect("a vector takes all bytes");
        Bytes::from(stream.finish().expect("a vector takes all bytes"))
    }
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.put_i32(i32::try_from(count).expect("a broker has fewer than 2^31 topics"));
}

fn put_part(out: &mut Vec<u8>, part: &[u8]) {
    put_count(out, part.len());
    out.put_slice(part);
}

fn count(input: &mut &[u8], part: &'static str) -> Result<usize, RegisterBodyError> {
    let short = RegisterBodyError::Short { part };
    input.try_get_i32().ok().and_then(|count| usize::try_from(count).ok()).ok_or(short)
}

fn part<'a>(input: &mut &'a [u8], part: &'static str) -> Result<&'a [u8], RegisterBodyError> {
    let length = count(input, part)?;
    let (taken, rest) = input.split_at_checked(length).ok_or(RegisterBodyError::Short { part })?;
    *input = rest;
    Ok(taken)
}

fn json_part<T: serde::de::DeserializeOwned>(input: &mut &[u8], name: &'static str) -> Result<T, RegisterBodyError> {
    json::from_slice(part(input, name)?).map_err(|source| RegisterBodyError::Json { part: name, source })
}

/// `name readQueues writeQueues perm filterType attributes`, the last part absent in 4.x.
fn topic_from_text(line: &str) -> Result<TopicConfig, RegisterBodyError> {
    let unreadable = || RegisterBodyError::Topic(line.chars().take(200).collect());
    let parts: Vec<&str> = line.splitn(6, ' ').collect();
    let [name, read, write, perm, filter, attributes @ ..] = parts.as_slice() else { return Err(unreadable()) };
    let number = |text: &str| text.parse::<i32>().map_err(|_| unreadable());
    let attributes = match attributes.first().map(|text| text.trim()).filter(|text| !text.is_empty()) {
        Some(text) => json::from_slice(text.as_bytes())
            .map_err(|source| RegisterBodyError::Json { part: "attributes of a topic", source })?,
        None => BTreeMap::new(),
    };
    Ok(TopicConfig {
        attributes,
        perm: number(perm)?,
        read_queue_nums: number(read)?,
        topic_filter_type: if *filter == "MULTI_TAG" { TopicFilterType::MultiTag } else { TopicFilterType::SingleTag },
        topic_name: (*name).to_owned(),
        write_queue_nums: number(write)?,
        ..TopicConfig::default()
    })
}

fn topic_to_text(topic: &TopicConfig) -> String {
    format!(
        "{} {} {} {} {} {}",
        topic.topic_name,
        topic.read_queue_nums,
        topic.write_queue_nums,
        topic.perm,
        topic.topic_filter_type.name(),
        json::to_string(&topic.attributes, Dialect::Fastjson),
    )
}
