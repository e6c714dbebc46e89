//! A name server on a real socket, through the wire.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use host::Host;
use remoting::{
    Client, ClientConfig, GetRouteInfoRequestHeader, KvConfigRequestHeader, NoHandler, NoHeader,
    PutKvConfigRequestHeader, RegisterBrokerRequestHeader, Request, Response, ResponseCode,
    UnregisterBrokerRequestHeader,
    body::{
        Body, ClusterInfo, DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper, TopicRouteData,
    },
};
use staticfire_namesrv::{Namesrv, NamesrvConfig};

const TIMEOUT: Duration = Duration::from_secs(5);

fn config(folder: &tempfile::TempDir) -> NamesrvConfig {
    NamesrvConfig { port: 0, kv_config_path: folder.path().join("kvConfig.json"), ..NamesrvConfig::default() }
}

fn client() -> Client {
    Client::new(ClientConfig::default(), Arc::new(NoHandler))
}

async fn ask(client: &Client, to: SocketAddr, request: Request, body: impl Into<Bytes>) -> Response {
    client.invoke(&to.to_string(), request, body.into(), TIMEOUT).await.unwrap()
}

fn route_of(topic: &str) -> Request {
    Request::GetRouteInfoByTopic(GetRouteInfoRequestHeader {
        topic: topic.to_owned(),
        accept_standard_json_only: None,
        zone_name: None,
        zone_mode: None,
    })
}

fn registration(topics: &[&str]) -> (Request, RegisterBrokerBody) {
    let header = RegisterBrokerRequestHeader {
        broker_name: "broker-a".to_owned(),
        broker_addr: "127.0.0.1:10911".to_owned(),
        cluster_name: "c".to_owned(),
        ha_server_addr: "127.0.0.1:10912".to_owned(),
        broker_id: 0,
        heartbeat_timeout_millis: None,
        enable_acting_master: Some(false),
        compressed: None,
        body_crc32: None,
    };
    let topics: BTreeMap<String, TopicConfig> = topics
        .iter()
        .map(|name| ((*name).to_owned(), TopicConfig { topic_name: (*name).to_owned(), ..TopicConfig::default() }))
        .collect();
    let wrapper = TopicConfigSerializeWrapper {
        data_version: DataVersion { counter: 1, ..DataVersion::default() },
        topic_config_table: topics,
        ..TopicConfigSerializeWrapper::default()
    };
    let body = RegisterBrokerBody { topic_config_serialize_wrapper: wrapper, ..RegisterBrokerBody::default() };
    (Request::RegisterBroker(header), body)
}

fn run<F>(test: impl FnOnce(Host, tempfile::TempDir) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let folder = tempfile::tempdir().unwrap();
    host::real::run("ns", |host| test(host, folder)).unwrap();
}

#[test]
fn registered_broker_is_found_until_it_takes_its_leave() {
    run(|_, folder| async move {
        let server = Namesrv::start(config(&folder)).await.unwrap();
        let (to, client) = (server.local_addr(), client());
        let (register, body) = registration(&["t", "u"]);
        assert_eq!(ask(&client, to, register.clone(), body.encode()).await.code, ResponseCode::SUCCESS);
        let route = ask(&client, to, route_of("t"), "").await;
        let route = TopicRouteData::decode(&route.body_bytes()).unwrap();
        assert_eq!(route.broker_datas[0].broker_addrs, BTreeMap::from([(0, "127.0.0.1:10911".to_owned())]));
        assert_eq!(route.queue_datas[0].write_queue_nums, 16);
        let clusters = ask(&client, to, Request::GetBrokerClusterInfo(NoHeader), "").await;
        let clusters = ClusterInfo::decode(&clusters.body_bytes()).unwrap();
        assert_eq!(clusters.cluster_addr_table, BTreeMap::from([("c".to_owned(), vec!["broker-a".to_owned()])]));

        let leave = Request::UnregisterBroker(UnregisterBrokerRequestHeader {
            broker_name: "broker-a".to_owned(),
            broker_addr: "127.0.0.1:10911".to_owned(),
            cluster_name: "c".to_owned(),
            broker_id: 0,
        });
        assert_eq!(ask(&client, to, leave, "").await.code, ResponseCode::SUCCESS);
        let gone = ask(&client, to, route_of("t"), "").await;
        assert_eq!(gone.code, ResponseCode::TOPIC_NOT_EXIST);
        assert!(gone.remark.unwrap().starts_with("No topic route info in name server for the topic: t"));
        server.shutdown().await;
    });
}

#[test]
fn compressed_registration_counts_and_a_wrong_checksum_does_not() {
    run(|_, folder| async move {
        let server = Namesrv::start(config(&folder)).await.unwrap();
        let (to, client) = (server.local_addr(), client());
        let (register, body) = registration(&["t", "u"]);
        let Request::RegisterBroker(mut header) = register else { unreachable!() };
        header.body_crc32 = Some(1);
        let refused = ask(&client, to, Request::RegisterBroker(header.clone()), body.deflate()).await;
        assert_eq!((refused.code, refused.remark.as_deref()), (ResponseCode::SYSTEM_ERROR, Some("crc32 not match")));
        header.body_crc32 = Some(message::body_crc(&body.deflate()).cast_signed());
        assert_eq!(ask(&client, to, Request::RegisterBroker(header), body.deflate()).await.code, ResponseCode::SUCCESS);
        assert_eq!(ask(&client, to, route_of("u"), "").await.code, ResponseCode::SUCCESS);
        server.shutdown().await;
    });
}

#[test]
fn broker_is_gone_at_once_when_its_connection_closes() {
    run(|host, folder| async move {
        let server = Namesrv::start(config(&folder)).await.unwrap();
        let (to, broker, client) = (server.local_addr(), client(), client());
        let (register, body) = registration(&["t", "u"]);
        ask(&broker, to, register, body.encode()).await;
        assert_eq!(ask(&client, to, route_of("t"), "").await.code, ResponseCode::SUCCESS);
        broker.shutdown().await;
        let gone = async { while ask(&client, to, route_of("t"), "").await.code == ResponseCode::SUCCESS {} };
        host.timeout(TIMEOUT, gone).await.expect("well before it would expire");
        server.shutdown().await;
    });
}

#[test]
fn configuration_survives_a_restart() {
    run(|_, folder| async move {
        let server = Namesrv::start(config(&folder)).await.unwrap();
        let client = client();
        let put = Request::PutKvConfig(PutKvConfigRequestHeader {
            namespace: "n".to_owned(),
            key: "k".to_owned(),
            value: Some("v".to_owned()),
        });
        assert_eq!(ask(&client, server.local_addr(), put, "").await.code, ResponseCode::SUCCESS);
        server.shutdown().await;
        let server = Namesrv::start(config(&folder)).await.unwrap();
        let get =
            |key: &str| Request::GetKvConfig(KvConfigRequestHeader { namespace: "n".to_owned(), key: key.to_owned() });
        let found = ask(&client, server.local_addr(), get("k"), "").await;
        assert_eq!(found.fields.get("value"), Some("v"));
        let missing = ask(&client, server.local_addr(), get("other"), "").await;
        assert_eq!(missing.code, ResponseCode::QUERY_NOT_FOUND);
        server.shutdown().await;
    });
}

#[test]
fn taken_port_is_a_clear_error() {
    run(|_, folder| async move {
        let server = Namesrv::start(config(&folder)).await.unwrap();
        let taken = NamesrvConfig { port: server.local_addr().port(), ..config(&folder) };
        let error = Namesrv::start(taken).await.err().expect("the port is taken");
        assert_eq!(error.to_string(), format!("cannot listen on {}", server.local_addr()));
        server.shutdown().await;
    });
}

#[test]
fn request_of_another_role_is_not_supported() {
    run(|_, folder| async move {
        let server = Namesrv::start(config(&folder)).await.unwrap();
        let answer = ask(&client(), server.local_addr(), Request::HeartBeat(NoHeader), "{}").await;
        assert_eq!(answer.code, ResponseCode::REQUEST_CODE_NOT_SUPPORTED);
        assert_eq!(answer.remark.as_deref(), Some(" request type 34 not supported"));
        server.shutdown().await;
    });
}
