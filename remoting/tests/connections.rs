//! Server and client against each other, and against raw sockets, on the real machine.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use host::{Host, net::TcpStream};
use staticfire_remoting::{
    Client, ClientConfig, CloseReason, ConsumerGroupRequestHeader, Fields, GetConsumerRunningInfoRequestHeader,
    Handler, Inbound, InvokeError, NoHandler, NoHeader, OffsetResponseHeader, Payload, Peer, RemotingCommand, Reply,
    Request, RequestCode, Response, ResponseCode, SerializeType, Server, ServerConfig, TopicRequestHeader, Version,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Notify,
};

const LONG: Duration = Duration::from_secs(20);
const LOOPBACK: &str = "127.0.0.1:0";

/// Answers as the topic of the request says.
#[derive(Default)]
struct Scripted {
    calls: AtomicUsize,
    opened: AtomicUsize,
    closed: AtomicUsize,
    peers: Mutex<Vec<Peer>>,
    release: Arc<Notify>,
}

impl Handler for Scripted {
    fn handle(&self, peer: &Peer, inbound: Inbound) -> Reply {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        let topic = match inbound.request {
            Request::GetTopicStatsInfo(TopicRequestHeader { topic }) => topic,
            Request::HeartBeat(NoHeader) => return Response::success().with_body(inbound.body).into(),
            Request::GetConsumerRunningInfo(header) => {
                return Response::success().with_remark(header.client_id).into();
            }
            other => return Response::not_supported(other.code().number()).into(),
        };
        let offset = OffsetResponseHeader { offset: i64::try_from(call).unwrap() };
        match topic.as_str() {
            "now" => Response::success().with_header(&offset).into(),
            "later" => {
                let release = Arc::clone(&self.release);
                Reply::later(async move {
                    release.notified().await;
                    Response::success().with_header(&offset)
                })
            }
            "never" => Reply::None,
            "notice-first" => {
                notify(peer);
                Response::success().into()
            }
            "notice-first-later" => {
                let peer = peer.clone();
                Reply::later(async move {
                    notify(&peer);
                    Response::success()
                })
            }
            "go-away-once" if call == 0 => Response::failure(ResponseCode::GO_AWAY, "closing").into(),
            "pieces" => {
                let pieces: Vec<Bytes> =
                    (0..200u8).map(|byte| Bytes::from(vec![byte; 5_000 * (1 + usize::from(byte % 2))])).collect();
                Response::success().with_body(pieces).into()
            }
            "too-long" => Response::success().with_body(vec![0; 17 << 20]).into(),
            "megabyte" => Response::success().with_body(vec![7; 1 << 20]).into(),
            _ => Response::failure(ResponseCode::TOPIC_NOT_EXIST, "no such topic").into(),
        }
    }

    fn opened(&self, peer: &Peer) {
        self.opened.fetch_add(1, Ordering::SeqCst);
        self.peers.lock().unwrap().push(peer.clone());
    }

    fn closed(&self, _: &Peer) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

fn notify(peer: &Peer) {
    let notice = ConsumerGroupRequestHeader { consumer_group: "g".to_owned() };
    peer.send_one_way(Request::NotifyConsumerIdsChanged(notice), Payload::EMPTY).unwrap();
}

fn ask(topic: &str) -> Request {
    Request::GetTopicStatsInfo(TopicRequestHeader { topic: topic.to_owned() })
}

/// A server with its handler and its address.
struct Stage {
    server: Server,
    handler: Arc<Scripted>,
    address: String,
}

async fn stage(change: impl FnOnce(&mut ServerConfig)) -> Stage {
    let mut config = ServerConfig::new([LOOPBACK.parse().unwrap()]);
    change(&mut config);
    let handler = Arc::new(Scripted::default());
    let server = Server::start(config, handler.clone()).await.unwrap();
    let address = server.local_addrs()[0].to_string();
    Stage { server, handler, address }
}

fn client() -> Client {
    Client::new(ClientConfig::default(), Arc::new(NoHandler))
}

/// Runs a test body on the real machine; it must end within a minute.
fn on_machine<F>(body: impl FnOnce(Host) -> F + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    host::real::run("test", |host| async move {
        host.timeout(Duration::from_secs(60), body(host.clone())).await.expect("the test hangs");
    })
    .unwrap();
}

async fn until(host: &Host, mut holds: impl FnMut() -> bool) {
    while !holds() {
        host.sleep(Duration::from_millis(2)).await;
    }
}

/// Reads one frame from a raw socket; `None` at its end.
async fn read_frame(stream: &mut TcpStream) -> Option<RemotingCommand> {
    next_frame(stream, &mut BytesMut::new()).await
}

/// Reads the next of several frames, of which `input` holds what was read too far; `None` at the end.
async fn next_frame(stream: &mut TcpStream, input: &mut BytesMut) -> Option<RemotingCommand> {
    loop {
        if let Some(command) = RemotingCommand::decode(input).unwrap() {
            return Some(command);
        }
        match stream.read_buf(input).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

fn request_bytes(code: i32, opaque: i32, fields: Fields, one_way: bool) -> BytesMut {
    let mut command = RemotingCommand::request(code, opaque, fields, Payload::EMPTY);
    if one_way {
        command = command.one_way();
    }
    let mut output = BytesMut::new();
    command.encode(&mut output).unwrap();
    output
}

#[test]
fn immediate_and_deferred_answers_find_their_requests() {
    on_machine(|host| async move {
        let stage = stage(|_| {}).await;
        let client = client();
        let deferred: Vec<_> = (0..50)
            .map(|_| {
                let (client, address) = (client.clone(), stage.address.clone());
                host.spawn("ask", async move { client.invoke(&address, ask("later"), Payload::EMPTY, LONG).await })
            })
            .collect();
        until(&host, || stage.handler.calls.load(Ordering::SeqCst) == 50).await;
        for _ in 0..200 {
            let response = client.invoke(&stage.address, ask("now"), Payload::EMPTY, LONG).await.unwrap();
            assert!(response.decode::<OffsetResponseHeader>().unwrap().offset >= 50);
        }
        stage.handler.release.notify_waiters();
        let mut offsets = Vec::new();
        for answer in deferred {
            offsets.push(answer.await.unwrap().unwrap().decode::<OffsetResponseHeader>().unwrap().offset);
        }
        offsets.sort_unstable();
        assert_eq!(offsets, (0..50).collect::<Vec<i64>>());
        assert_eq!(stage.server.peers().len(), 1);
    });
}

/// The reference's handlers write their notices to the channel before their answer is.
#[test]
fn what_a_handler_sends_goes_before_its_answer() {
    on_machine(|host| async move {
        let stage = stage(|_| {}).await;
        let mut stream = host.connect(stage.address.parse().unwrap()).await.unwrap();
        let mut input = BytesMut::new();
        for topic in ["notice-first", "notice-first-later"] {
            let fields = ask(topic).into_fields();
            let bytes = request_bytes(RequestCode::GetTopicStatsInfo.number(), 7, fields, false);
            stream.write_all(&bytes).await.unwrap();
            let notice = next_frame(&mut stream, &mut input).await.unwrap();
            assert_eq!(notice.code, RequestCode::NotifyConsumerIdsChanged.number(), "{topic}");
            let answer = next_frame(&mut stream, &mut input).await.unwrap();
            assert!(answer.is_response() && answer.opaque == 7, "{topic}");
        }
    });
}

#[test]
fn bodies_of_many_pieces_arrive_in_one() {
    on_machine(|_| async move {
        let stage = stage(|_| {}).await;
        let response = client().invoke(&stage.address, ask("pieces"), Payload::EMPTY, LONG).await.unwrap();
        let body = response.body_bytes();
        let expected: Vec<u8> = (0..200u8).flat_map(|byte| vec![byte; 5_000 * (1 + usize::from(byte % 2))]).collect();
        assert!(body == expected);
        let large = vec![3; 4 << 20];
        let response =
            client().invoke(&stage.address, Request::HeartBeat(NoHeader), large.clone(), LONG).await.unwrap();
        assert!(response.body_bytes() == large);
    });
}

#[test]
fn an_answer_that_no_peer_would_take_becomes_a_failure() {
    on_machine(|_| async move {
        let stage = stage(|_| {}).await;
        let response = client().invoke(&stage.address, ask("too-long"), Payload::EMPTY, LONG).await.unwrap();
        assert_eq!(response.code, ResponseCode::SYSTEM_ERROR);
        let error = client().invoke(&stage.address, ask("now"), vec![0; 17 << 20], LONG).await.unwrap_err();
        assert!(matches!(error, InvokeError::TooLong(_)), "{error}");
    });
}

#[test]
fn unknown_codes_and_incomplete_headers_are_answered_and_one_way_requests_are_not() {
    on_machine(|host| async move {
        let stage = stage(|_| {}).await;
        let mut stream = host.connect(stage.address.parse().unwrap()).await.unwrap();
        let topic: Fields = [("topic", "now")].into_iter().collect();
        let mut bytes = request_bytes(9_999, 1, Fields::new(), true);
        bytes.extend(request_bytes(202, 2, topic.clone(), true));
        bytes.extend(request_bytes(9_999, 3, Fields::new(), false));
        bytes.extend(request_bytes(202, 4, Fields::new(), false));
        bytes.extend(request_bytes(202, 5, topic, false));
        stream.write_all(&bytes).await.unwrap();
        let mut input = BytesMut::new();
        let mut answers = Vec::new();
        while answers.len() < 3 {
            stream.read_buf(&mut input).await.unwrap();
            while let Some(command) = RemotingCommand::decode(&mut input).unwrap() {
                answers.push((command.opaque, command.code, command.remark));
            }
        }
        assert_eq!(answers[0], (3, 3, Some(" request type 9999 not supported".to_owned())));
        let missing = "GET_TOPIC_STATS_INFO (202): the header TopicRequestHeader lacks the field `topic`";
        assert_eq!(answers[1], (4, 1, Some(missing.to_owned())));
        assert_eq!(answers[2], (5, 0, None));
    });
}

#[test]
fn a_binary_request_gets_a_binary_answer() {
    on_machine(|_| async move {
        let stage = stage(|_| {}).await;
        let config = ClientConfig { serialize_type: SerializeType::Binary, ..ClientConfig::default() };
        let client = Client::new(config, Arc::new(NoHandler));
        let response = client.invoke(&stage.address, ask("now"), Payload::EMPTY, LONG).await.unwrap();
        assert_eq!((response.code, response.version), (ResponseCode::SUCCESS, Version::CURRENT));
        let peer = stage.server.peers().remove(0);
        assert_eq!(peer.version(), Version::CURRENT);
    });
}

#[test]
fn malformed_frames_close_the_connection_without_an_answer() {
    on_machine(|host| async move {
        let stage = stage(|_| {}).await;
        let garbage: [&[u8]; 6] = [
            b"GET / HTTP/1.1\r\n\r\n",
            &[0x16, 3, 1, 2, 0, 1, 0, 1],
            &[0, 0, 0, 3, 0, 0, 0, 0],
            &[0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0, 0],
            &[0, 0, 0, 6, 7, 0, 0, 2, b'{', b'}'],
            &[0, 0, 0, 6, 0, 0, 0, 2, b'[', b']'],
        ];
        for bytes in garbage {
            let mut stream = host.connect(stage.address.parse().unwrap()).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            assert_eq!(read_frame(&mut stream).await, None, "{bytes:?}");
        }
        until(&host, || stage.handler.closed.load(Ordering::SeqCst) == garbage.len()).await;
        assert_eq!(stage.handler.calls.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_connection_that_ends_fails_all_its_requests_at_once() {
    on_machine(|host| async move {
        let stage = stage(|_| {}).await;
        let client = client();
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let (client, address) = (client.clone(), stage.address.clone());
                host.spawn("ask", async move { client.invoke(&address, ask("never"), Payload::EMPTY, LONG).await })
            })
            .collect();
        until(&host, || stage.handler.calls.load(Ordering::SeqCst) == 10).await;
        stage.server.shutdown().await;
        for answer in waiting {
            let error = answer.await.unwrap().unwrap_err();
            assert!(matches!(error, InvokeError::Closed { reason: CloseReason::Remote, .. }), "{error}");
        }
        assert_eq!(stage.handler.closed.load(Ordering::SeqCst), 1);
        let error = client.invoke(&stage.address, ask("now"), Payload::EMPTY, LONG).await.unwrap_err();
        assert!(matches!(error, InvokeError::Connect { .. }), "{error}");
    });
}

#[test]
fn an_answer_that_does_not_come_in_time_costs_the_connection() {
    on_machine(|host| async move {
        let stage = stage(|_| {}).await;
        let client = client();
        client.invoke(&stage.address, ask("now"), Payload::EMPTY, LONG).await.unwrap();
        let error =
            client.invoke(&stage.address, ask("never"), Payload::EMPTY, Duration::from_millis(50)).await.unwrap_err();
        assert!(matches!(error, InvokeError::Timeout { .. }), "{error}");
        until(&host, || stage.handler.closed.load(Ordering::SeqCst) == 1).await;
        client.invoke(&stage.address, ask("now"), Payload::EMPTY, LONG).await.unwrap();
        assert_eq!(stage.handler.opened.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn a_server_that_is_closing_is_asked_once_more_over_a_new_connection() {
    on_machine(|_| async move {
        let stage = stage(|_| {}).await;
        let response = client().invoke(&stage.address, ask("go-away-once"), Payload::EMPTY, LONG).await.unwrap();
        assert_eq!(response.code, ResponseCode::TOPIC_NOT_EXIST);
        assert_eq!(stage.handler.opened.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn servers_ask_their_clients() {
    on_machine(|host| async move {
        let stage = stage(|_| {}).await;
        let at_client = Arc::new(Scripted::default());
        let client = Client::new(ClientConfig::default(), at_client.clone());
        client.invoke(&stage.address, ask("now"), Payload::EMPTY, LONG).await.unwrap();
        let peer = stage.server.peers().remove(0);
        let running_info = Request::GetConsumerRunningInfo(GetConsumerRunningInfoRequestHeader {
            consumer_group: "g".to_owned(),
            client_id: "c1".to_owned(),
            jstack_enable: None,
        });
        let response = peer.invoke(running_info, Payload::EMPTY, LONG).await.unwrap();
        assert_eq!(response.remark.as_deref(), Some("c1"));
        notify(&peer);
        until(&host, || at_client.calls.load(Ordering::SeqCst) == 2).await;
        assert_eq!(at_client.peers.lock().unwrap()[0].address(), stage.address);
        client.shutdown().await;
        peer.closed().await;
        assert!(peer.is_closed());
        let error = client.invoke(&stage.address, ask("now"), Payload::EMPTY, LONG).await.unwrap_err();
        assert!(matches!(error, InvokeError::Stopped), "{error}");
        assert_eq!(at_client.closed.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn idle_connections_are_closed() {
    on_machine(|_| async move {
        let stage = stage(|config| config.idle = Duration::from_millis(60)).await;
        let client = client();
        client.invoke(&stage.address, ask("now"), Payload::EMPTY, LONG).await.unwrap();
        let peer = stage.server.peers().remove(0);
        peer.closed().await;
        let error = peer.invoke(ask("now"), Payload::EMPTY, LONG).await.unwrap_err();
        assert!(matches!(error, InvokeError::Closed { reason: CloseReason::Idle, .. }), "{error}");
    });
}

#[test]
fn frames_that_are_never_completed_hold_a_bounded_amount_of_memory() {
    on_machine(|host| async move {
        let stage = stage(|config| config.unfinished_bytes_max = 1 << 20).await;
        let connect = async || host.connect(stage.address.parse().unwrap()).await.unwrap();
        // A request of 900 kB, but for its last byte.
        let command = RemotingCommand::request(34, 1, Fields::new(), Payload::from(vec![7; 900_000]));
        let mut frame = BytesMut::new();
        command.encode(&mut frame).unwrap();
        let (start, end) = frame.split_at(frame.len() - 1);
        let (mut first, mut second) = (connect().await, connect().await);
        first.write_all(start).await.unwrap();
        host.sleep(Duration::from_millis(100)).await;
        // The second is closed in the middle, and short requests are served.
        drop(second.write_all(start).await);
        assert_eq!(read_frame(&mut second).await, None);
        client().invoke(&stage.address, ask("now"), Payload::EMPTY, LONG).await.unwrap();
        first.write_all(end).await.unwrap();
        assert_eq!(read_frame(&mut first).await.unwrap().opaque, 1);
        // With the first frame complete there is room again.
        let mut third = connect().await;
        third.write_all(&frame).await.unwrap();
        assert_eq!(read_frame(&mut third).await.unwrap().body.len(), 900_000);
    });
}

#[test]
fn connections_beyond_the_limit_are_closed() {
    on_machine(|host| async move {
        let stage = stage(|config| config.max_connections = 1).await;
        let first = client();
        first.invoke(&stage.address, ask("now"), Payload::EMPTY, LONG).await.unwrap();
        let error = client().invoke(&stage.address, ask("now"), Payload::EMPTY, LONG).await.unwrap_err();
        assert!(matches!(error, InvokeError::Closed { .. }), "{error}");
        first.shutdown().await;
        until(&host, || stage.server.peers().is_empty()).await;
        client().invoke(&stage.address, ask("now"), Payload::EMPTY, LONG).await.unwrap();
    });
}

#[test]
fn nothing_is_read_from_a_client_that_does_not_take_its_answers() {
    on_machine(|host| async move {
        let stage = stage(|config| config.write_high_bytes = 1 << 20).await;
        let mut stream = host.connect(stage.address.parse().unwrap()).await.unwrap();
        let topic: Fields = [("topic", "megabyte")].into_iter().collect();
        let request = request_bytes(202, 0, topic, false);
        let requests = 2_000;
        let writing = async {
            for _ in 0..requests {
                stream.write_all(&request).await.unwrap();
                stream.flush().await.unwrap();
            }
        };
        // The socket's own buffers take some; the rest must wait.
        let _ = host.timeout(Duration::from_millis(500), writing).await;
        let calls = stage.handler.calls.load(Ordering::SeqCst);
        assert!(calls < requests / 2, "{calls} requests were answered into memory");
        let first = read_frame(&mut stream).await.expect("the answers are there");
        assert_eq!(first.body.len(), 1 << 20);
    });
}

#[test]
fn a_port_in_use_is_an_error_that_names_it() {
    on_machine(|_| async move {
        let stage = stage(|_| {}).await;
        let config = ServerConfig::new([stage.address.parse().unwrap()]);
        let error = Server::start(config, Arc::new(NoHandler)).await.unwrap_err();
        assert_eq!(error.to_string(), format!("cannot listen on {}", stage.address));
    });
}
