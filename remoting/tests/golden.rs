//! Every frame that Apache's client, broker, name server and tools exchanged is understood, and written again it means
//! the same. The data is found through `STATICFIRE_GOLDEN`; without it these tests say that they are skipped.

use std::{collections::BTreeMap, path::PathBuf};

use base64::Engine as _;
use bytes::{Bytes, BytesMut};
use staticfire_remoting::{
    Fields, RemotingCommand, Request, RequestCode, Response, SerializeType,
    body::{self, Body},
    json::{self, Dialect, Json},
};

struct Golden {
    line: usize,
    request_code: i32,
    header: Json,
    frame: Vec<u8>,
}

/// `None`, with a note, if there is no golden data.
fn golden() -> Option<Vec<Golden>> {
    let Some(root) = std::env::var_os("STATICFIRE_GOLDEN") else {
        eprintln!("skipped: STATICFIRE_GOLDEN is not set");
        return None;
    };
    let path = PathBuf::from(root).join("apache-5.3.3/frames.jsonl");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let frames = text.lines().enumerate().map(|(at, line)| {
        let line_json = json::parse(line.as_bytes()).unwrap_or_else(|error| panic!("line {}: {error}", at + 1));
        let Some(Json::String(frame)) = line_json.get("frame") else { panic!("line {} has no frame", at + 1) };
        Golden {
            line: at + 1,
            request_code: number(line_json.get("request_code")),
            header: line_json.get("header").expect("each line has a header").clone(),
            frame: base64::engine::general_purpose::STANDARD.decode(frame).expect("frames are base64"),
        }
    });
    Some(frames.collect())
}

fn number(json: Option<&Json>) -> i32 {
    match json {
        Some(Json::Number(text)) => text.parse().expect("an integer"),
        other => panic!("expected a number, got {other:?}"),
    }
}

fn decode(frame: &[u8]) -> RemotingCommand {
    let mut input = BytesMut::from(frame);
    let command = RemotingCommand::decode(&mut input).expect("a frame").expect("a whole frame");
    assert!(input.is_empty(), "{} bytes behind the frame", input.len());
    command
}

fn fields_of(command: &RemotingCommand) -> BTreeMap<&str, &str> {
    command.fields.iter().collect()
}

#[test]
fn every_frame_says_what_the_record_says() {
    for golden in golden().into_iter().flatten() {
        let command = decode(&golden.frame);
        let context = format!("line {}", golden.line);
        assert_eq!(command.code, number(golden.header.get("code")), "{context}");
        assert_eq!(command.opaque, number(golden.header.get("opaque")), "{context}");
        assert_eq!(command.flag, number(golden.header.get("flag")), "{context}");
        assert_eq!(command.version.0, number(golden.header.get("version")), "{context}");
        let text = |json: Option<&Json>| match json {
            Some(Json::String(text)) => Some(text.clone()),
            _ => None,
        };
        assert_eq!(command.remark, text(golden.header.get("remark")), "{context}");
        assert_eq!(command.language.map(|language| language.name().to_owned()), text(golden.header.get("language")));
        let expected: BTreeMap<String, String> = match golden.header.get("extFields") {
            Some(Json::Object(members)) => members
                .iter()
                .map(|(key, value)| match (key, value) {
                    (Json::String(key), Json::String(value)) => (key.clone(), value.clone()),
                    other => panic!("{context}: {other:?}"),
                })
                .collect(),
            _ => BTreeMap::new(),
        };
        let found: BTreeMap<String, String> =
            command.fields.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        assert_eq!(found, expected, "{context}");
        let body_bytes = golden.frame.len() - 8 - usize::from(u16::from_be_bytes([golden.frame[6], golden.frame[7]]));
        assert_eq!(command.body.len(), body_bytes, "{context}");
    }
}

#[test]
fn every_frame_means_the_same_after_both_encodings() {
    for golden in golden().into_iter().flatten() {
        let original = decode(&golden.frame);
        for serialize_type in [SerializeType::Json, SerializeType::Binary] {
            let mut again = original.clone();
            again.serialize_type = serialize_type;
            let mut output = BytesMut::new();
            again.encode(&mut output).expect("golden frames are short");
            let read = decode(&output);
            assert_eq!(read.serialize_type, serialize_type);
            assert_eq!((read.code, read.opaque, read.flag), (original.code, original.opaque, original.flag));
            assert_eq!((read.version, read.language), (original.version, original.language));
            assert_eq!((&read.remark, &read.body), (&original.remark, &original.body));
            // The binary form has no empty values: they read as absent.
            let mut expected = fields_of(&original);
            if serialize_type == SerializeType::Binary {
                expected.retain(|_, value| !value.is_empty());
            }
            assert_eq!(fields_of(&read), expected, "line {}", golden.line);
        }
    }
}

/// Fields that may accompany any request (`spec/protocol.md` 1.9).
const COMMON: &[&str] = &["ns", "nsd", "bname", "oway", "lo", "ReqT", "AccessKey", "Signature", "SecurityToken"];

#[test]
fn every_request_has_a_row_whose_header_keeps_all_its_fields() {
    for golden in golden().into_iter().flatten() {
        let command = decode(&golden.frame);
        if command.is_response() {
            continue;
        }
        assert_eq!(command.code, golden.request_code);
        let code = RequestCode::from_number(command.code).unwrap_or_else(|| panic!("code {}", command.code));
        let request = Request::decode(code, &command.fields).unwrap_or_else(|error| panic!("{code}: {error}"));
        assert_eq!(request.code(), code);
        let again = request.into_fields();
        for (name, value) in command.fields.iter() {
            let kept = again.get(name);
            let may_be_lost = kept.is_none() && COMMON.contains(&name);
            assert!(
                kept == Some(value) || may_be_lost,
                "line {}: {code}: {name}: {value} became {kept:?}",
                golden.line
            );
        }
        for (name, _) in again.iter() {
            let was_there = command.fields.get(name).is_some();
            assert!(was_there || name == "boundaryType", "line {}: {code}: {name} was added", golden.line);
        }
    }
}

/// Reads a body as its type and writes it again; both texts must say the same.
fn rewritten<T: Body>(body: &Bytes) -> Vec<Json> {
    let typed = T::decode(body).unwrap_or_else(|error| panic!("{error}: {body:?}"));
    [Dialect::Fastjson, Dialect::Standard].map(|dialect| sorted(json::parse(&typed.encode_as(dialect)).unwrap())).into()
}

/// Members in the order of their keys; keys that hold an object as text become that object, and what is absent or
/// empty is left out, because types do not tell the difference.
fn sorted(json: Json) -> Json {
    match json {
        Json::Object(members) => {
            let mut members: Vec<(Json, Json)> = members
                .into_iter()
                .map(|(key, value)| {
                    let key = match &key {
                        Json::String(text) if text.starts_with('{') => json::parse(text.as_bytes()).unwrap(),
                        _ => key,
                    };
                    (sorted(key), sorted(value))
                })
                .filter(|(_, value)| !matches!(value, Json::Object(members) if members.is_empty()))
                .collect();
            members.sort_by_key(|member| format!("{member:?}"));
            Json::Object(members)
        }
        Json::Array(items) => {
            let mut items: Vec<Json> = items.into_iter().map(sorted).collect();
            items.sort_by_key(|item| format!("{item:?}"));
            Json::Array(items)
        }
        other => other,
    }
}

#[test]
fn every_json_body_has_a_type_that_loses_nothing() {
    for golden in golden().into_iter().flatten() {
        let command = decode(&golden.frame);
        let is_response = command.is_response();
        let body = command.body.clone().into_bytes();
        if !body.starts_with(b"{") && !body.starts_with(b"[") {
            continue;
        }
        let again = match (golden.request_code, is_response) {
            (34, false) => rewritten::<body::HeartbeatData>(&body),
            (38, true) => rewritten::<body::ConsumerList>(&body),
            (41 | 42, false) => rewritten::<body::LockBatchRequest>(&body),
            (41, true) => rewritten::<body::LockBatchResponse>(&body),
            (46, false) => rewritten::<body::CheckClientRequest>(&body),
            (28, true) => rewritten::<body::KvTable>(&body),
            (105, true) => rewritten::<body::TopicRouteData>(&body),
            (106, true) => rewritten::<body::ClusterInfo>(&body),
            (200, false) => rewritten::<body::SubscriptionGroupConfig>(&body),
            (202, true) => rewritten::<body::TopicStatsTable>(&body),
            (203, true) => rewritten::<body::ConsumerConnection>(&body),
            (206, true) => rewritten::<body::TopicList>(&body),
            (208, true) => rewritten::<body::ConsumeStats>(&body),
            (222, true) => rewritten::<body::OffsetTable>(&body),
            (300, true) => rewritten::<body::GroupList>(&body),
            (315, true) => rewritten::<body::BrokerStatsData>(&body),
            (351, true) => rewritten::<body::TopicConfig>(&body),
            // Bodies of messages.
            (10 | 310 | 320, false) => continue,
            (11, true) => continue,
            (code, _) => panic!("line {}: no type for the body of {code}: {body:?}", golden.line),
        };
        let original = sorted(json::parse(&body).unwrap());
        for again in again {
            assert_eq!(again, original, "line {}", golden.line);
        }
    }
}

#[test]
fn every_successful_answer_has_the_fields_of_its_typed_header() {
    use staticfire_remoting::{
        Header, HeartbeatResponseHeader, OffsetResponseHeader, PullMessageResponseHeader, QueryMessageResponseHeader,
        SendMessageResponseHeader,
    };
    fn kept<H: Header>(fields: &Fields) -> Fields {
        let mut again = Fields::new();
        H::decode(fields).unwrap_or_else(|error| panic!("{error}: {fields:?}")).encode(&mut again);
        again
    }
    for golden in golden().into_iter().flatten() {
        let command = decode(&golden.frame);
        let worked = matches!(command.code, 0 | 19 | 20 | 21);
        if !command.is_response() || !worked {
            continue;
        }
        let again = match golden.request_code {
            10 | 310 | 320 => kept::<SendMessageResponseHeader>(&command.fields),
            11 | 361 => kept::<PullMessageResponseHeader>(&command.fields),
            12 => kept::<QueryMessageResponseHeader>(&command.fields),
            14 | 29 | 30 | 31 => kept::<OffsetResponseHeader>(&command.fields),
            34 => kept::<HeartbeatResponseHeader>(&command.fields),
            _ => command.fields.clone(),
        };
        let again: BTreeMap<&str, &str> = again.iter().collect();
        assert_eq!(again, fields_of(&command), "line {}", golden.line);
    }
}

#[test]
fn a_response_keeps_the_opaque_and_the_form_of_its_request() {
    let response = Response::success().with_remark("FOUND");
    let command = RemotingCommand::response(response, -7, SerializeType::Binary);
    let mut output = BytesMut::new();
    command.encode(&mut output).unwrap();
    let read = decode(&output);
    assert_eq!((read.opaque, read.serialize_type, read.is_response()), (-7, SerializeType::Binary, true));
}
