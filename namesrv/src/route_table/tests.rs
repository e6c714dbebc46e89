use super::*;

fn at(seconds: u64) -> Mono {
    Mono::default() + Duration::from_secs(seconds)
}

fn key(addr: &str) -> BrokerKey {
    BrokerKey { cluster: "c".to_owned(), addr: addr.to_owned() }
}

fn topic(name: &str, perm: i32) -> TopicConfig {
    TopicConfig { topic_name: name.to_owned(), read_queue_nums: 4, write_queue_nums: 4, perm, ..TopicConfig::default() }
}

/// A master named `name` at the address of the same text.
fn master(name: &str, topics: &[&str], version: i64) -> Registration {
    Registration {
        broker: key(name),
        name: name.to_owned(),
        id: 0,
        ha_addr: format!("{name}-ha"),
        life: BROKER_LIFE,
        acting_master: Some(false),
        zone: None,
        version: DataVersion { counter: version, ..DataVersion::default() },
        topics: topics.iter().map(|name| topic(name, 6)).collect(),
        connection: 1,
    }
}

fn slave(name: &str, addr: &str) -> Registration {
    Registration { broker: key(addr), id: 1, connection: 2, ..master(name, &["x", "y"], 1) }
}

fn brokers(table: &RouteTable, topic: &str) -> Vec<String> {
    let route = table.route(topic);
    route.map(|route| route.broker_datas.into_iter().map(|broker| broker.broker_name).collect()).unwrap_or_default()
}

#[test]
fn route_names_the_brokers_that_registered_the_topic() {
    let table = RouteTable::default();
    assert_eq!(table.register(master("a", &["x", "y"], 1), false, at(0)), Registered::Accepted { master: None });
    table.register(master("b", &["y", "z"], 1), false, at(0));
    assert_eq!(brokers(&table, "y"), ["a", "b"]);
    assert_eq!(brokers(&table, "x"), ["a"]);
    assert!(table.route("w").is_none());
    assert_eq!(table.topics(), ["x", "y", "z"]);
    assert_eq!(table.topics_of_cluster("c"), ["x", "y", "z"]);
    assert!(table.topics_of_cluster("d").is_empty());
}

#[test]
fn broker_expires_only_when_silent_for_longer_than_its_life() {
    let table = RouteTable::default();
    table.register(master("a", &["x", "y"], 1), false, at(0));
    table.register(Registration { life: Duration::from_secs(10), ..master("b", &["x", "y"], 1) }, false, at(0));
    assert!(table.expire(at(10)).is_empty());
    assert_eq!(table.expire(at(11)), [key("b")]);
    table.heartbeat(&key("a"), at(100));
    assert!(table.expire(at(220)).is_empty());
    assert_eq!(table.expire(at(221)), [key("a")]);
    assert!(table.route("x").is_none());
    assert!(table.topics().is_empty());
}

#[test]
fn closed_connection_takes_its_brokers_away_at_once() {
    let table = RouteTable::default();
    table.register(master("a", &["x", "y"], 1), false, at(0));
    table.register(slave("a", "s"), false, at(0));
    assert_eq!(table.connection_closed(1), [key("a")]);
    assert_eq!(table.members("a"), BTreeMap::from([(1, "s".to_owned())]));
    assert_eq!(brokers(&table, "x"), ["a"], "a group of slaves is still listed");
    assert_eq!(table.connection_closed(2), [key("s")]);
    assert!(table.route("x").is_none());
}

#[test]
fn topics_are_only_made_where_a_master_is() {
    let table = RouteTable::default();
    let template =
        |registration| Registration { topics: vec![topic(TEMPLATE_TOPIC, 7), topic("x", 6)], ..registration };
    table.register(template(slave("a", "s")), false, at(0));
    assert_eq!((table.route(TEMPLATE_TOPIC).is_none(), brokers(&table, "x")), (true, vec!["a".to_owned()]));
    table.register(template(master("b", &[], 1)), false, at(0));
    assert_eq!(brokers(&table, TEMPLATE_TOPIC), ["b"]);
    table.register(template(master("a", &[], 1)), false, at(0));
    assert_eq!(brokers(&table, TEMPLATE_TOPIC), ["a", "b"]);
    let queues = table.route(TEMPLATE_TOPIC).unwrap().queue_datas;
    assert_eq!(queues.iter().map(|queues| queues.broker_name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn new_connection_of_a_broker_outlives_the_close_of_its_old_one() {
    let table = RouteTable::default();
    table.register(master("a", &["x", "y"], 1), false, at(0));
    table.register(Registration { connection: 9, ..master("a", &["x", "y"], 1) }, false, at(1));
    assert!(table.connection_closed(1).is_empty());
    assert_eq!(brokers(&table, "x"), ["a"]);
}

#[test]
fn first_registration_must_be_whole() {
    let table = RouteTable::default();
    assert_eq!(table.register(master("a", &["x"], 1), false, at(0)), Registered::NotWhole);
    table.register(master("a", &["x", "y"], 1), false, at(0));
    table.register(master("a", &["z"], 2), false, at(1));
    assert_eq!(table.topics(), ["x", "y", "z"]);
}

#[test]
fn unchanged_version_leaves_permissions_wiped_and_a_new_one_restores_them() {
    let table = RouteTable::default();
    table.register(master("a", &["x", "y"], 1), false, at(0));
    assert_eq!(table.wipe_write_permission("a"), 2);
    table.register(master("a", &["x", "y"], 1), false, at(1));
    assert_eq!(table.route("x").unwrap().queue_datas[0].perm, 4);
    table.register(master("a", &["x", "y"], 2), false, at(2));
    assert_eq!(table.route("x").unwrap().queue_datas[0].perm, 6);
}

#[test]
fn missing_topics_are_dropped_only_if_wanted() {
    let table = RouteTable::default();
    table.register(master("a", &["x", "y"], 1), false, at(0));
    table.register(master("b", &["x", "y"], 1), false, at(0));
    table.register(master("a", &["y", "z"], 2), false, at(1));
    assert_eq!(brokers(&table, "x"), ["a", "b"]);
    table.register(master("a", &["y", "z"], 3), true, at(2));
    assert_eq!(brokers(&table, "x"), ["b"]);
}

#[test]
fn slave_is_told_its_master_and_does_not_write_topics() {
    let table = RouteTable::default();
    table.register(master("a", &["x", "y"], 1), false, at(0));
    let told = Master { addr: "a".to_owned(), ha_addr: "a-ha".to_owned() };
    let topics = vec![topic("p", 6), topic("q", 6)];
    let registered = table.register(Registration { topics, ..slave("a", "s") }, false, at(0));
    assert_eq!(registered, Registered::Accepted { master: Some(told) });
    assert!(table.route("p").is_none());
}

#[test]
fn address_has_one_id_and_an_older_state_loses() {
    let table = RouteTable::default();
    table.register(slave("a", "s"), false, at(0));
    let newer = DataVersion { state_version: 2, ..DataVersion::default() };
    let promoted = Registration { id: 0, version: newer, ..slave("a", "s") };
    table.register(promoted, false, at(1));
    assert_eq!(table.members("a"), BTreeMap::from([(0, "s".to_owned())]));
    assert_eq!(table.register(master("a", &["x", "y"], 9), false, at(2)), Registered::Outdated);
    assert_eq!(table.members("a"), BTreeMap::from([(0, "s".to_owned())]));
}

#[test]
fn acting_master_without_master_cannot_be_written() {
    let table = RouteTable::default();
    let topics = vec![topic("p", 6), topic("q", 6)];
    table.register(Registration { acting_master: Some(true), topics, ..slave("a", "s") }, false, at(0));
    assert_eq!(table.route("p").unwrap().queue_datas[0].perm, 4);
}

#[test]
fn topic_is_deleted_everywhere_or_in_one_cluster() {
    let table = RouteTable::default();
    table.register(master("a", &["x", "y"], 1), false, at(0));
    let other = BrokerKey { cluster: "d".to_owned(), addr: "b".to_owned() };
    table.register(Registration { broker: other, ..master("b", &["x", "y"], 1) }, false, at(0));
    table.delete_topic("x", Some("d"));
    assert_eq!(brokers(&table, "x"), ["a"]);
    table.delete_topic("x", None);
    assert!(table.route("x").is_none());
    table.delete_topic("nobody has it", None);
}
