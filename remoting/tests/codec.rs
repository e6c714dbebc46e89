//! Frames and bodies: the worked examples of the specification, round trips, and input that is anything at all.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use staticfire_remoting::{
    FRAME_BYTES_MAX, Fields, FrameError, Header, HeaderError, Language, LogEpoch, OffsetResponseHeader, Payload,
    PullMessageRequestHeader, PullMessageResponseHeader, QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader, RemotingCommand, Request, RequestCode, Response, Role, SendMessageRequestHeader,
    SerializeType, UNSERVED_CODES, UpdateConsumerOffsetRequestHeader, Version,
    body::{
        Body, HeartbeatData, MessageQueue, OffsetTable, RegisterBrokerBody, SubscriptionData, TopicConfig,
        TopicRouteData,
    },
    json::{self, Dialect},
};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn decode(frame: &[u8]) -> Result<Option<RemotingCommand>, FrameError> {
    RemotingCommand::decode(&mut BytesMut::from(frame))
}

fn encode(command: &RemotingCommand) -> Vec<u8> {
    let mut output = BytesMut::new();
    command.encode(&mut output).unwrap();
    output.to_vec()
}

fn frame(serialize_type: u8, header: &[u8], body: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(4 + header.len() + body.len()).unwrap().to_be_bytes().to_vec();
    frame.extend(((u32::from(serialize_type) << 24) | u32::try_from(header.len()).unwrap()).to_be_bytes());
    frame.extend(header);
    frame.extend(body);
    frame
}

/// The request of the worked examples (a) and (b).
fn route_request() -> RemotingCommand {
    RemotingCommand {
        language: Some(Language::Java),
        ..RemotingCommand::request(105, 7, [("topic", "TopicTest")].into_iter().collect(), Payload::EMPTY)
    }
}

#[test]
fn the_json_example_is_written_and_read_byte_for_byte() {
    let bytes = hex(
        "00000087000000837b22636f6465223a3130352c226578744669656c6473223a7b22746f706963223a22546f70696354657374227d\
         2c22666c6167223a302c226c616e6775616765223a224a415641222c226f7061717565223a372c2273657269616c697a655479706543\
         757272656e74525043223a224a534f4e222c2276657273696f6e223a3437397d",
    );
    assert_eq!(bytes.len(), 139);
    assert_eq!(encode(&route_request()), bytes);
    assert_eq!(decode(&bytes), Ok(Some(route_request())));
}

#[test]
fn the_binary_example_is_written_and_read_byte_for_byte() {
    let bytes = hex("0000002d 01000029 0069 0c 01df 00000007 00000000 00000000 00000014 \
         0005 746f706963 00000009 546f70696354657374");
    let request =
        RemotingCommand { serialize_type: SerializeType::Binary, language: Some(Language::Rust), ..route_request() };
    assert_eq!(encode(&request), bytes);
    assert_eq!(decode(&bytes), Ok(Some(request)));
}

#[test]
fn the_response_example_is_written_and_read_byte_for_byte() {
    let bytes = hex("00000021 0100001d 0011 00 01df 00000007 00000001 00000008 6e6f20726f757465 00000000");
    let response = RemotingCommand {
        serialize_type: SerializeType::Binary,
        code: 17,
        flag: 1,
        remark: Some("no route".to_owned()),
        fields: Fields::new(),
        ..route_request()
    };
    assert_eq!(encode(&response), bytes);
    assert_eq!(decode(&bytes), Ok(Some(response)));
}

#[test]
fn an_empty_object_is_a_request_with_code_0() {
    let command = decode(&frame(0, b"{}", b"")).unwrap().unwrap();
    assert_eq!((command.code, command.is_response(), command.is_one_way()), (0, false, false));
}

#[test]
fn json_headers_may_have_any_order_blanks_unknown_members_and_numbers_for_texts() {
    let header = br#" { "x" : [1, {"y": null}], "version":"401", "extFields" : {"n": 5, "b": true, "z": null, "t":"\u00e9\uD83D\uDE80\n"},
        "language" : 9, "remark": null, "flag":2, "opaque":-3, "code":200050 } "#;
    let command = decode(&frame(0, header, b"xyz")).unwrap().unwrap();
    assert_eq!((command.code, command.opaque, command.flag), (200_050, -3, 2));
    assert_eq!((command.version, command.language, command.remark), (Version(401), Some(Language::Go), None));
    let fields: Vec<_> = command.fields.iter().collect();
    assert_eq!(fields, [("n", "5"), ("b", "true"), ("t", "é🚀\n")]);
    assert_eq!(command.body.into_bytes(), Bytes::from_static(b"xyz"));
}

#[test]
fn codes_beyond_16_bits_are_written_as_json() {
    let command = RemotingCommand { serialize_type: SerializeType::Binary, code: 200_050, ..route_request() };
    let read = decode(&encode(&command)).unwrap().unwrap();
    assert_eq!((read.code, read.serialize_type), (200_050, SerializeType::Json));
}

#[test]
fn lengths_that_cannot_be_are_refused() {
    for length in [0, 1, 3, -1, i32::MIN, i32::MAX, 16_777_213] {
        let mut bytes = i32::to_be_bytes(length).to_vec();
        assert_eq!(decode(&bytes), Err(FrameError::Length { length }));
        bytes.extend([0; 40]);
        assert_eq!(decode(&bytes), Err(FrameError::Length { length }));
    }
    assert_eq!(decode(&hex("00000008 00000005 00000000")), Err(FrameError::HeaderLength { header: 5, length: 8 }));
    assert_eq!(decode(&hex("00000008 02000002 00000000")), Err(FrameError::SerializeType(2)));
    assert_eq!(decode(&hex("00fffffc 000000ff")), Ok(None));
}

#[test]
fn headers_that_are_none_are_refused() {
    let json: [&[u8]; 14] = [
        b"",
        b" ",
        b"[]",
        b"null",
        b"7",
        b"{",
        b"{\"code\":}",
        b"{\"code\":1,}",
        b"{\"code\":\"x\"}",
        b"{\"code\":1.5}",
        b"{} x",
        b"{\"a\":nul}",
        b"{\"extFields\":[]}",
        b"{\"remark\":\"\xff\"}",
    ];
    for header in json {
        let decoded = decode(&frame(0, header, b""));
        assert!(matches!(decoded, Err(FrameError::Header { .. })), "{header:?}: {decoded:?}");
    }
    let binary = [
        "",
        "0069 0c 01df 00000007 00000000 00000000",
        "0069 0c 01df 00000007 00000000 ffffffff 00000000",
        "0069 0c 01df 00000007 00000000 00000001 00000000",
        "0069 0c 01df 00000007 00000000 00000000 00000005",
        "0069 0c 01df 00000007 00000000 00000000 00000000 00",
        "0069 0c 01df 00000007 00000000 00000000 00000008 ffff 00 00000001 00",
        "0069 0c 01df 00000007 00000000 00000000 00000008 0001 61 fffffff0 00",
        "0069 0c 01df 00000007 00000000 00000000 00000008 0001 ff 00000001 00",
    ];
    for header in binary {
        let decoded = decode(&frame(1, &hex(header), b""));
        assert!(matches!(decoded, Err(FrameError::Header { .. })), "{header}: {decoded:?}");
    }
}

#[test]
fn nesting_without_end_is_refused() {
    let deep = format!("{{\"x\":{}", "[".repeat(1 << 20));
    let at_most = FRAME_BYTES_MAX - 64;
    assert!(deep.len() < at_most);
    assert!(matches!(decode(&frame(0, deep.as_bytes(), b"")), Err(FrameError::Header { .. })));
    assert!(json::parse(deep.as_bytes()).is_err());
    assert!(json::parse("{".repeat(1 << 20).as_bytes()).is_err());
}

#[test]
fn a_frame_longer_than_peers_take_is_not_written() {
    let mut output = BytesMut::from(&b"before"[..]);
    let command = RemotingCommand { body: vec![0; FRAME_BYTES_MAX].into(), ..route_request() };
    assert!(matches!(command.encode(&mut output), Err(FrameError::TooLong { .. })));
    assert_eq!(&output[..], b"before");
    let head = encode(&route_request()).len();
    let command = RemotingCommand { body: vec![0; FRAME_BYTES_MAX - head].into(), ..route_request() };
    assert_eq!(encode(&command).len(), FRAME_BYTES_MAX);
    assert!(decode(&encode(&command)).unwrap().is_some());
}

#[test]
fn the_table_has_each_code_once_and_none_that_nobody_serves() {
    let mut numbers: Vec<i32> = RequestCode::TABLE.iter().map(|row| row.code.number()).collect();
    for row in RequestCode::TABLE {
        assert_eq!(RequestCode::from_number(row.code.number()), Some(row.code));
        assert_eq!(row.code.name(), row.name);
        assert_eq!(row.code.row().name, row.name);
        assert!(!row.from.is_empty() && !row.to.is_empty());
    }
    numbers.sort_unstable();
    let all = numbers.len();
    numbers.dedup();
    assert_eq!(numbers.len(), all);
    assert!(UNSERVED_CODES.iter().all(|code| RequestCode::from_number(*code).is_none()));
    let served_by = |role| RequestCode::TABLE.iter().filter(|row| row.to.contains(&role)).count();
    assert_eq!((served_by(Role::Namesrv), served_by(Role::Client)), (23, 7));
}

#[test]
fn every_header_is_read_from_its_own_fields() {
    for row in RequestCode::TABLE {
        let mut fields = Fields::new();
        for field in row.fields {
            let value = match field.kind {
                "i32" | "i64" => "7",
                "bool" => "true",
                "string" => "text",
                "LOWER or UPPER" => "UPPER",
                kind => panic!("{}: {kind}", field.name),
            };
            fields.push(field.name, value);
        }
        let request = Request::decode(row.code, &fields).unwrap_or_else(|error| panic!("{}: {error}", row.name));
        assert_eq!(request.into_fields(), fields, "{}", row.name);
        let needs_some = row.fields.iter().any(|field| field.required);
        assert_eq!(Request::decode(row.code, &Fields::new()).is_err(), needs_some, "{}", row.name);
    }
}

#[test]
fn both_spellings_of_a_send_give_the_same_header() {
    let short: Fields = [
        ("a", "pg"),
        ("b", "t"),
        ("c", "TBW102"),
        ("d", "4"),
        ("e", "1"),
        ("f", "0"),
        ("g", "1700000000000"),
        ("h", "0"),
        ("i", "TAGS\u{1}x\u{2}"),
        ("j", "0"),
        ("k", "false"),
        ("m", "false"),
        ("n", "broker-a"),
    ]
    .into_iter()
    .collect();
    let Ok(Request::SendMessageV2(header)) = Request::decode(RequestCode::SendMessageV2, &short) else { panic!() };
    let long = Request::SendMessage(header.clone()).into_fields();
    assert_eq!(long.get("producerGroup"), Some("pg"));
    assert_eq!(SendMessageRequestHeader::decode(&long), Ok(header.clone()));
    assert_eq!(Request::SendMessageV2(header).into_fields(), short);
}

#[test]
fn numbers_that_cannot_be_read_count_as_absent_except_in_strict_headers() {
    let fields: Fields =
        [("consumerGroup", "g"), ("topic", "t"), ("queueId", "x"), ("commitOffset", "")].into_iter().collect();
    let header = UpdateConsumerOffsetRequestHeader::decode(&fields).unwrap();
    assert_eq!((header.queue_id, header.commit_offset), (None, None));
    let missing = HeaderError::Missing { header: "QueryConsumerOffsetRequestHeader", field: "queueId" };
    assert_eq!(QueryConsumerOffsetRequestHeader::decode(&fields), Err(missing));
    let error = PullMessageRequestHeader::decode(&fields).unwrap_err();
    assert_eq!(error.to_string(), "the field `queueId` of PullMessageRequestHeader cannot be `x`");
}

#[test]
fn the_log_epoch_is_optional_in_both_forms_of_a_header() {
    let old: Fields = [
        ("suggestWhichBrokerId", "0"),
        ("nextBeginOffset", "7"),
        ("minOffset", "0"),
        ("maxOffset", "9"),
        ("whatALaterReleaseAdds", "x"),
    ]
    .into_iter()
    .collect();
    let mut header = PullMessageResponseHeader::decode(&old).unwrap();
    assert_eq!(header.sf_log_epoch, None);
    assert_eq!(Response::success().with_header(&header).fields.get("sfLogEpoch"), None);
    header.sf_log_epoch = Some(LogEpoch(-5));
    for form in [SerializeType::Json, SerializeType::Binary] {
        let mut frame = BytesMut::new();
        let command = RemotingCommand::response(Response::success().with_header(&header), 1, form);
        command.encode(&mut frame).unwrap();
        let read = RemotingCommand::decode(&mut frame).unwrap().unwrap();
        assert_eq!((read.serialize_type, read.fields.get("sfLogEpoch")), (form, Some("-5")));
        assert_eq!(PullMessageResponseHeader::decode(&read.fields).as_ref(), Ok(&header));
    }
    // A peer that does not know the field reads past it.
    let stored = QueryConsumerOffsetResponseHeader { offset: 3, sf_log_epoch: Some(LogEpoch(1)) };
    let fields = Response::success().with_header(&stored).fields;
    assert_eq!(OffsetResponseHeader::decode(&fields), Ok(OffsetResponseHeader { offset: 3 }));
    let commit: Fields =
        [("consumerGroup", "g"), ("topic", "t"), ("queueId", "0"), ("commitOffset", "3")].into_iter().collect();
    let mut commit = UpdateConsumerOffsetRequestHeader::decode(&commit).unwrap();
    assert_eq!(commit.sf_log_epoch, None);
    commit.sf_log_epoch = Some(LogEpoch(i64::MAX));
    let fields = Request::UpdateConsumerOffset(commit.clone()).into_fields();
    assert_eq!(fields.get("sfLogEpoch"), Some("9223372036854775807"));
    let read = Request::decode(RequestCode::UpdateConsumerOffset, &fields);
    assert_eq!(read, Ok(Request::UpdateConsumerOffset(commit)));
}

#[test]
fn routes_are_written_in_both_dialects() {
    let text = br#"{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}"#;
    let route = TopicRouteData::decode(&Bytes::from_static(text)).unwrap();
    assert_eq!(route.encode(), &text[..]);
    let standard = String::from_utf8_lossy(text).replace("{0:", "{\"0\":").replace(",1:", ",\"1\":");
    assert_eq!(route.encode_as(Dialect::Standard), standard);
    assert_eq!(TopicRouteData::decode(&Bytes::from(standard)), Ok(route));
}

#[test]
fn tables_keyed_by_queues_have_objects_as_keys() {
    let table = OffsetTable { offset_table: [(MessageQueue::new("t", "broker-a", 0), 7)].into() };
    let written = r#"{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"t"}:7}}"#;
    assert_eq!(table.encode(), written);
    let quoted = r#"{"offsetTable":{"{\"brokerName\":\"broker-a\",\"queueId\":0,\"topic\":\"t\"}":7}}"#;
    assert_eq!(table.encode_as(Dialect::Standard), quoted);
    for text in [written, quoted] {
        assert_eq!(OffsetTable::decode(&Bytes::from(text)), Ok(table.clone()));
    }
}

#[test]
fn what_go_writes_is_read_too() {
    let text = r#"{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",
        "consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","unitMode":false,"subscriptionDataSet":[{"classFilterMode":false,"topic":"t",
        "subString":"TagA","tagsSet":["TagA"],"codeSet":["2598919"],"subVersion":1700000000000000000,"expressionType":"TAG"}]}],
        "producerDataSet":[]}"#;
    let heartbeat = HeartbeatData::decode(&Bytes::from(text)).unwrap();
    let subscription = &heartbeat.consumer_data_set[0].subscription_data_set[0];
    assert_eq!(subscription.code_set, [2_598_919].into());
    assert_eq!(subscription.sub_version, 1_700_000_000_000_000_000);
}

#[test]
fn lenient_json_is_read_and_references_are_resolved() {
    let text = r#" {'a': 1, b: {"$ref":"$.c[1]"}, "c": [1, {"x": 'y'},], 5: {"$ref":"@"}, "n": null } "#;
    assert!(json::parse(text.as_bytes()).is_err(), "a reference to the object around it never ends");
    let text = r#"{'a':1,b:{"$ref":"$.c[1]"},"c":[1,{"x":'y'},],5:2,"n":null,"s":"\u00e9"}"#;
    let json = json::parse(text.as_bytes()).unwrap();
    assert_eq!(json::to_string(&json, Dialect::Fastjson), r#"{"a":1,"b":{"x":"y"},"c":[1,{"x":"y"}],"5":2,"s":"é"}"#);
    for broken in
        ["", "{", "[1", "{\"a\"}", "{\"a\":1}}", "\"x", "{\"a\":tru}", "{\"$ref\":\"$.nowhere\"}", "{\"a\":\"\\q\"}"]
    {
        assert!(json::parse(broken.as_bytes()).is_err(), "{broken}");
    }
}

#[test]
fn members_that_are_absent_take_the_defaults_of_the_reference() {
    let subscription: SubscriptionData = json::from_slice(b"{\"topic\":\"t\",\"subString\":null}").unwrap();
    assert_eq!((subscription.expression_type.as_str(), subscription.sub_string.as_str()), ("TAG", ""));
    assert!(json::from_slice::<SubscriptionData>(b"[]").is_err());
    assert!(json::from_slice::<SubscriptionData>(b"{\"subVersion\":\"x\"}").is_err());
}

fn registration() -> RegisterBrokerBody {
    let mut body = RegisterBrokerBody::default();
    let wrapper = &mut body.topic_config_serialize_wrapper;
    wrapper.data_version.counter = 3;
    for name in ["t1", "%RETRY%g"] {
        let attributes = [("+message.type".to_owned(), "FIFO ".to_owned())].into();
        let topic = TopicConfig { topic_name: name.to_owned(), attributes, ..TopicConfig::default() };
        wrapper.topic_config_table.insert(name.to_owned(), topic);
    }
    body
}

#[test]
fn registrations_are_read_in_both_forms() {
    let body = registration();
    assert_eq!(RegisterBrokerBody::decode_any(&body.encode(), Version::CURRENT), Ok(body.clone()));
    assert_eq!(RegisterBrokerBody::decode_any(&body.deflate(), Version::CURRENT), Ok(body.clone()));
    assert_eq!(RegisterBrokerBody::decode_any(&body.deflate(), Version::V4_9_8), Ok(body));
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[ -~]{0,24}",
        1 => proptest::collection::vec(any::<char>(), 0..12).prop_map(|chars| chars.into_iter().collect::<String>()),
    ]
}

fn any_command() -> impl Strategy<Value = RemotingCommand> {
    let fields = proptest::collection::vec(
        ("[a-zA-Z_]{1,12}", any_text().prop_filter("kept by both", |text| !text.is_empty())),
        0..12,
    );
    let remark = proptest::option::of(any_text().prop_filter("kept by both", |text| !text.is_empty()));
    let body = proptest::collection::vec(any::<u8>(), 0..300);
    (any::<bool>(), any::<i16>(), 0..14i64, any::<i16>(), any::<i32>(), 0..4i32, remark, fields, body).prop_map(
        |(is_binary, code, language, version, opaque, flag, remark, fields, body)| RemotingCommand {
            serialize_type: if is_binary { SerializeType::Binary } else { SerializeType::Json },
            code: i32::from(code),
            language: Language::from_code(language),
            version: Version(i32::from(version)),
            opaque,
            flag,
            remark,
            fields: fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            body: body.into(),
        },
    )
}

proptest! {
    #[test]
    fn commands_round_trip(command in any_command()) {
        prop_assert_eq!(decode(&encode(&command)), Ok(Some(command)));
    }

    #[test]
    fn frames_are_read_however_they_are_cut(commands in proptest::collection::vec(any_command(), 1..6), step in 1..50usize) {
        let mut bytes = BytesMut::new();
        for command in &commands {
            command.encode(&mut bytes).unwrap();
        }
        let mut input = BytesMut::new();
        let mut read = Vec::new();
        for chunk in bytes.chunks(step) {
            input.extend_from_slice(chunk);
            while let Some(command) = RemotingCommand::decode(&mut input).unwrap() {
                read.push(command);
            }
        }
        prop_assert!(input.is_empty());
        prop_assert_eq!(read, commands);
    }

    #[test]
    fn truncated_headers_are_errors(command in any_command(), cut in 1..60usize) {
        let bytes = encode(&RemotingCommand { body: Payload::EMPTY, ..command });
        let header = &bytes[8..bytes.len() - cut.min(bytes.len() - 8)];
        prop_assert!(decode(&frame(bytes[4], header, b"")).is_err());
    }

    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), serialize_type in 0..2u8) {
        drop(decode(&bytes));
        drop(decode(&frame(serialize_type, &bytes, b"")));
        drop(json::parse(&bytes));
        drop(RegisterBrokerBody::decode_any(&Bytes::from(bytes), Version::CURRENT));
    }

    #[test]
    fn damaged_headers_never_panic(command in any_command(), at in any::<usize>(), byte: u8) {
        let mut bytes = encode(&command);
        let at = 8 + at % (bytes.len() - 8);
        bytes[at] = byte;
        drop(decode(&bytes));
    }

    #[test]
    fn nearly_json_never_panics(text in r#"[\[\]{}:,"'0-9a-z$@.\\ -]{0,60}"#) {
        drop(json::parse(text.as_bytes()));
        drop(json::from_slice::<HeartbeatData>(text.as_bytes()));
        drop(decode(&frame(0, text.as_bytes(), b"")));
    }

    #[test]
    fn damaged_registrations_never_panic(at in any::<usize>(), byte: u8, cut in any::<usize>()) {
        let mut bytes = registration().deflate().to_vec();
        let length = bytes.len();
        bytes[at % length] = byte;
        bytes.truncate(1 + cut % length);
        drop(RegisterBrokerBody::decode_any(&Bytes::from(bytes), Version::CURRENT));
    }

    #[test]
    fn texts_survive_json(text in any_text()) {
        let written = json::to_string(&text, Dialect::Fastjson);
        prop_assert_eq!(json::from_slice::<String>(written.as_bytes()), Ok(text));
    }
}
