use super::*;

/// The example of the documentation, without what is not built yet.
const EXAMPLE: &str = r#"
format = 1
about  = "A broker loses power under load and comes back."
active = "2m"
settle = "3m"

[[namesrv]]
count = 2

[[broker]]
name     = "broker-a"
replicas = ["ASYNC_MASTER"]
disk     = "2GiB"
config   = { flushDiskType = "SYNC_FLUSH", mappedFileSizeCommitLog = "1MiB" }

[claim]
survives = ["kill", "cut", "power-loss:1"]

[[topic]]
name   = "orders"
queues = 8

[[producer]]
group = "checkout"
topic = "orders"
rate  = "40/s"
body  = "100B..4KiB"
tags  = ["paid", "refund"]

[[consumer]]
group     = "billing"
instances = 3
subscribe = "orders: paid || refund"
handling  = "5ms..20ms"
scale     = [{ at = "30s", instances = 5 }]

[[fault]]
id   = "f1"
at   = "30s"
kind = "power-loss"
node = "broker-a/0"
down = "10s"

[[fault]]
id   = "f2"
on   = { point = "store.flushed", node = "broker-a/0", nth = 40 }
kind = "cut"
link = "broker-a/0 -> billing"
port = "client"
for  = "10s"

[expect]
lost       = 0
converged  = "60s"
sometimes  = ["torn-page", "rebalance", "offset-recovered"]
at-least   = { acked = 1000, dirty-pages-at-crash = 1 }
"#;

fn example() -> Scenario {
    Scenario::parse("scenarios/example.toml", EXAMPLE).unwrap()
}

/// What a file with `from` replaced by `to` is told, in one line.
fn told(from: &str, to: &str) -> String {
    assert!(EXAMPLE.contains(from), "the example has no `{from}`");
    Scenario::parse("x.toml", &EXAMPLE.replacen(from, to, 1)).unwrap_err().one_line()
}

#[test]
fn the_example_reads_as_it_is_meant() {
    let scenario = example();
    assert_eq!(scenario.name, "example");
    assert_eq!((scenario.active.as_secs(), scenario.settle.as_secs(), scenario.namesrvs), (120, 180, 2));
    assert_eq!(scenario.brokers[0].disk_bytes, 2 << 30);
    assert!(scenario.flushes_before_ack("broker-a"));
    assert_eq!(scenario.topics[0].brokers, ["broker-a"]);
    assert_eq!(scenario.consumers[0].tags, ["paid", "refund"]);
    assert_eq!(scenario.consumers[0].most_instances(), 5);
    assert_eq!(
        scenario.faults[0].kind,
        FaultKind::PowerLoss { node: "broker-a/0".to_owned(), style: None, garbage: false }
    );
    assert_eq!(scenario.end_of_link("billing").len(), 5);
    assert_eq!(scenario.expect.at_least["acked"], 1000);
    let names: Vec<String> = scenario.nodes().into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "namesrv/0",
            "namesrv/1",
            "broker-a/0",
            "checkout/0",
            "billing/0",
            "billing/1",
            "billing/2",
            "billing/3",
            "billing/4"
        ]
    );
}

#[test]
fn a_printed_scenario_reads_back_as_itself() {
    let printed = example().print();
    let again = Scenario::parse("scenarios/example.toml", &printed).unwrap();
    assert_eq!(format!("{again:?}"), format!("{:?}", example()));
    assert_eq!(again.print(), printed);
}

#[test]
fn seeds_of_all_64_bits_survive_printing() {
    let mut scenario = example();
    scenario.seeds = SeedPins { root: Some(u64::MAX), net: Some(7), ..SeedPins::default() };
    assert_eq!(Scenario::parse("x.toml", &scenario.print()).unwrap().seeds, scenario.seeds);
}

#[test]
fn a_misspelt_key_is_named_with_the_nearest_right_one() {
    insta::assert_snapshot!(told("queues = 8", "queus = 8"), @"x.toml:21:1: unknown key `queus` in [[topic]]; did you mean `queues`?");
    insta::assert_snapshot!(told("settle = \"3m\"", "setle = \"3m\""), @"x.toml:5:1: unknown key `setle` in the file; did you mean `settle`?");
    insta::assert_snapshot!(told("acked = 1000", "ackd = 1000"), @"x.toml:56:16: unknown count `ackd`; did you mean `acked`?");
    insta::assert_snapshot!(told("kind = \"cut\"", "kind = \"cutt\""), @"x.toml:47:8: unknown kind of fault `cutt`; did you mean `cut`?");
    insta::assert_snapshot!(told("[claim]", "[[consumr]]"), @"x.toml:16:3: unknown key `consumr` in the file; did you mean `consumer`?");
}

#[test]
fn a_claim_of_nothing_is_refused() {
    insta::assert_snapshot!(told("power-loss:1", "power-loss:0"), @"x.toml:17:28: `power-loss:0` survives nothing; leave it out, or write how many nodes at a time, from 1 up");
    insta::assert_snapshot!(told("power-loss:1", "power-loss:-1"), @"x.toml:17:28: `-1` is not a number of nodes");
}

#[test]
fn a_wrong_unit_or_type_is_named_with_the_right_form() {
    insta::assert_snapshot!(told("at   = \"30s\"", "at   = \"30\""), @"x.toml:39:8: `at`: `30` has no unit: a time is written as 250ms, 30s or 2m");
    insta::assert_snapshot!(told("at   = \"30s\"", "at   = 30"), @r#"x.toml:39:8: `at` is an integer, expected a time or a range such as "5ms..20ms""#);
    insta::assert_snapshot!(told("\"2GiB\"", "\"2GB\""), @"x.toml:13:12: `disk`: `GB` is not a unit of a size: use one of GiB, MiB, KiB, B");
    insta::assert_snapshot!(told("\"5ms..20ms\"", "\"20ms..5ms\""), @"x.toml:34:13: `handling`: `20ms..5ms` goes down: write the smaller value first");
    insta::assert_snapshot!(told("\"40/s\"", "\"40 per second\""), @"x.toml:26:9: `rate`: `40 per second` is not a rate: write a count and a time, as in 40/s or 90/m");
    insta::assert_snapshot!(told("queues = 8", "queues = -8"), @"x.toml:21:10: `queues`: -8 is not a number from 0 up");
    insta::assert_snapshot!(told("count = 2", "count = \"two\""), @"x.toml:8:9: `count` is a string, expected a number");
}

#[test]
fn an_unknown_node_topic_or_group_is_named() {
    insta::assert_snapshot!(told("node = \"broker-a/0\"\ndown", "node = \"broker-a/1\"\ndown"), @"x.toml:41:8: unknown node `broker-a/1`; `broker-a` has 1 instance, `broker-a/0`");
    insta::assert_snapshot!(told("node = \"broker-a/0\", nth", "node = \"brokr-a/0\", nth"), @"x.toml:46:42: unknown node `brokr-a/0`; did you mean `broker-a/0`?");
    insta::assert_snapshot!(told("topic = \"orders\"", "topic = \"order\""), @"x.toml:25:9: unknown topic `order`; did you mean `orders`?");
    insta::assert_snapshot!(told("-> billing", "-> biling"), @"x.toml:48:8: unknown node or group `biling`; did you mean `billing`?");
}

#[test]
fn a_misspelt_key_is_named_even_if_it_must_be_there() {
    insta::assert_snapshot!(told("active = \"2m\"", "activ = \"2m\""), @"x.toml:4:1: unknown key `activ` in the file; did you mean `active`?");
}

#[test]
fn a_point_that_does_not_exist_is_named() {
    insta::assert_snapshot!(told("point = \"store.flushed\"", "point = \"store.flush\""), @"x.toml:46:18: unknown point `store.flush`; did you mean `store.flushed`?");
    insta::assert_snapshot!(told("[expect]", "[[fault]]\nid = \"g\"\nhold = { point = \"store.flushed\", node = \"broker-a/0\" }\n[expect]"), @"x.toml:54:18: unknown point `store.flushed`; did you mean `store.flushing`?");
    insta::assert_snapshot!(told("\"torn-page\"", "\"store.flushd\""), @"x.toml:55:15: unknown mark `store.flushd`; did you mean `store.flushed`?");
}

/// The example with a gate that waits for `until`.
fn gate(point: &str, until: &str) -> String {
    format!(
        "[[fault]]\nid = \"g\"\nhold = {{ point = \"{point}\", node = \"broker-a/0\", until = \"{until}\" }}\n[expect]"
    )
}

#[test]
fn a_gate_reads_and_prints_as_it_is_meant() {
    let scenario = Scenario::parse("x.toml", &EXAMPLE.replacen("[expect]", &gate("store.flushing", "f1"), 1)).unwrap();
    let fault = &scenario.faults[2];
    assert_eq!((fault.kind.name(), fault.kind.node(), fault.needs()), ("hold", Some("broker-a/0"), Some("f1")));
    assert!(fault.is_triggered() && scenario.faults[1].is_triggered() && !scenario.faults[0].is_triggered());
    let again = Scenario::parse("x.toml", &scenario.print()).unwrap();
    assert_eq!(format!("{again:?}"), format!("{scenario:?}"));
}

#[test]
fn a_gate_that_could_never_open_is_refused() {
    insta::assert_snapshot!(told("[expect]", &gate("store.flushing", "f9")), @"x.toml:54:65: unknown fault `f9`; did you mean `f1`?");
    insta::assert_snapshot!(told("[expect]", &gate("store.flushing", "g")), @"x.toml:54:65: `g` holds a node until `g`, which happens behind that very gate; let it wait for a fault that happens elsewhere");
    let other = gate("store.flushing", "h")
        .replace("[expect]", &gate("store.dispatching", "g").replace("id = \"g\"", "id = \"h\""));
    insta::assert_snapshot!(told("[expect]", &other), @"x.toml:54:65: `g` waits for itself: g -> h -> g; let it wait for a fault that happens elsewhere");
    let behind = EXAMPLE.replacen("point = \"store.flushed\"", "point = \"store.flushing\"", 1).replacen(
        "[expect]",
        &gate("store.flushing", "f2"),
        1,
    );
    insta::assert_snapshot!(Scenario::parse("x.toml", &behind).unwrap_err().one_line(), @"x.toml:54:65: `g` holds a node until `f2`, which happens behind that very gate; let it wait for a fault that happens elsewhere");
}

#[test]
fn a_fault_after_the_end_is_refused() {
    insta::assert_snapshot!(told("at   = \"30s\"", "at   = \"150s\""), @"x.toml:39:8: `at` is 150s, not before the end of the active phase at 2m: nothing would happen; move it earlier, or make `active` longer");
    insta::assert_snapshot!(told("at   = \"30s\"", "at   = \"100s..150s\""), @"x.toml:39:8: `at` is 150s, not before the end of the active phase at 2m: nothing would happen; move it earlier, or make `active` longer");
}

#[test]
fn what_is_there_twice_is_refused() {
    insta::assert_snapshot!(told("id   = \"f2\"", "id   = \"f1\""), @"x.toml:45:8: a second fault `f1`");
    insta::assert_snapshot!(told("group     = \"billing\"", "group     = \"checkout\""), @"x.toml:31:13: a second group `checkout`");
    insta::assert_snapshot!(told("queues = 8", "queues = 8\nqueues = 9"), @"x.toml:22:1: not TOML: duplicate key");
}

#[test]
fn refusals_are_counted_where_there_are_any() {
    insta::assert_snapshot!(told("group     = \"billing\"", "group     = \"billing\"\nlater-times = 2"), @"x.toml:32:15: `later-times` counts refusals, and without `later` nothing is refused");
}

#[test]
fn a_group_is_a_master_and_its_slaves() {
    let roles = |roles: &str| told("[\"ASYNC_MASTER\"]", roles);
    insta::assert_snapshot!(roles("[\"SLAVE\"]"), @"x.toml:12:13: the first replica is the master, and this one is a SLAVE");
    insta::assert_snapshot!(roles("[\"ASYNC_MASTER\", \"SYNC_MASTER\"]"), @"x.toml:12:29: a second master in one group; replicas but the first are SLAVE");
    insta::assert_snapshot!(roles("[\"ASYNC_MASTER\", \"MIRROR\"]"), @"x.toml:12:29: unknown role `MIRROR`; roles are ASYNC_MASTER, SYNC_MASTER and SLAVE");
    insta::assert_snapshot!(roles("[]"), @"x.toml:12:12: a group has 1 to 9 replicas, this one has 0");
    let text = EXAMPLE.replacen("[\"ASYNC_MASTER\"]", "[\"SYNC_MASTER\", \"SLAVE\", \"SLAVE\"]", 1);
    let scenario = Scenario::parse("x.toml", &text).unwrap();
    assert_eq!(scenario.brokers[0].replicas, [Role::SyncMaster, Role::Slave, Role::Slave]);
    assert_eq!((scenario.copies_promised("broker-a"), scenario.copies_promised("broker-b")), (2, 1));
}

#[test]
fn what_is_not_built_yet_says_so() {
    insta::assert_snapshot!(told("format = 1", "format = 2"), @"x.toml:2:10: format 2 is not known: this build reads format 1");
}

const SWARM: &str =
    "[nemesis]\nmode = \"swarm\"\nspare = [\"namesrv\"]\nrates = { kill = \"0.5..4/m\", pause = \"off\" }\n[expect]";

#[test]
fn a_nemesis_reads_and_prints_as_it_is_meant() {
    let scenario = Scenario::parse("x.toml", &EXAMPLE.replacen("[expect]", SWARM, 1)).unwrap();
    let nemesis = scenario.nemesis.as_ref().unwrap();
    assert_eq!((nemesis.max_down, nemesis.spare[0].as_str()), (1, "namesrv"));
    assert_eq!(nemesis.rates["kill"], units::Span { least: 500, most: 4_000 });
    let again = Scenario::parse("x.toml", &scenario.print()).unwrap();
    assert_eq!(format!("{again:?}"), format!("{scenario:?}"));
    let off =
        Scenario::parse("x.toml", &EXAMPLE.replacen("[expect]", "[nemesis]\nmode = \"off\"\n[expect]", 1)).unwrap();
    assert_eq!(off.nemesis, None);
}

#[test]
fn mistakes_in_a_nemesis_are_named() {
    let told = |from: &str, to: &str| told("[expect]", &SWARM.replacen(from, to, 1));
    insta::assert_snapshot!(told("swarm", "swarn"), @"x.toml:53:8: unknown mode `swarn`; did you mean `swarm`?");
    insta::assert_snapshot!(told("kill =", "kil ="), @"x.toml:55:11: unknown family of faults `kil`; did you mean `kill`?");
    insta::assert_snapshot!(told("0.5..4/m", "0.5..4/s"), @"x.toml:55:18: `kill`: `0.5..4/s` is not a rate of faults: write 2/m, 0.5..4/m or off");
    insta::assert_snapshot!(told("\"namesrv\"", "\"nameserv\""), @"x.toml:54:10: unknown node or group `nameserv`; did you mean `namesrv`?");
}

#[test]
fn only_a_minority_may_stay_dead() {
    let told = |nodes: &str| told("settle = \"3m\"", &format!("settle = \"3m\"\npermanent = [{nodes}]"));
    insta::assert_snapshot!(told("\"broker-a/0\""), @"x.toml:6:14: `broker-a/0` holds the only copy of its messages: it must come back");
    insta::assert_snapshot!(told("\"namesrv/0\""), @"x.toml:6:14: 1 of 2 name servers would stay dead; only a minority may");
    insta::assert_snapshot!(told("\"namesrv/7\""), @"x.toml:6:14: unknown node `namesrv/7`; `namesrv` has 2 instances, `namesrv/0` to `namesrv/1`");
}

/// The least that runs.
const SMALL: &str = r#"
format = 1
active = "10s"
[[broker]]
name = "broker-a"
[[topic]]
name = "orders"
[[producer]]
group = "checkout"
topic = "orders"
rate = "20/s"
[[consumer]]
group = "billing"
subscribe = "orders"
"#;

/// What the least is told with `more` behind it.
fn told_of(more: &str) -> String {
    Scenario::parse("x.toml", &format!("{SMALL}{more}")).unwrap_err().one_line()
}

/// What the least is told with `from` replaced by `to`.
fn small(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "the file has no `{from}`");
    Scenario::parse("x.toml", &SMALL.replacen(from, to, 1)).unwrap_err().one_line()
}

#[test]
fn a_file_without_disk_and_config_fits_its_own_defaults() {
    let scenario = Scenario::parse("x.toml", SMALL).unwrap();
    let file_bytes = broker::BrokerConfig::default().store.commit_log_file_bytes;
    assert!(2 * file_bytes < scenario.brokers[0].disk_bytes / 100 * 85);
}

#[test]
fn log_files_that_fill_the_disk_are_refused() {
    insta::assert_snapshot!(small("\"broker-a\"", "\"broker-a\"\ndisk = \"256MiB\""), @"x.toml:6:8: `mappedFileSizeCommitLog` of `broker-a` is 1GiB, and 2 such files take more than 85 % of its `disk` of 256MiB; set `mappedFileSizeCommitLog` to at most 111408KiB, or make `disk` larger");
    insta::assert_snapshot!(small("\"broker-a\"", "\"broker-a\"\nconfig = { mappedFileSizeCommitLog = \"2GiB\" }\ndisk = \"4GiB\""), @"x.toml:6:12: `mappedFileSizeCommitLog` of `broker-a` is 2GiB, and 2 such files take more than 85 % of its `disk` of 4GiB; set `mappedFileSizeCommitLog` to at most 1782576KiB, or make `disk` larger");
}

#[test]
fn values_that_can_never_work_are_refused() {
    insta::assert_snapshot!(told("queues = 8", "queues = 0"), @"x.toml:21:10: `queues` is 0, it must be at least 1");
    insta::assert_snapshot!(told("queues = 8", "queues = 1025"), @"x.toml:21:10: `queues` is 1025, the most is 1024");
    insta::assert_snapshot!(told("name   = \"orders\"", "name = \"TBW102\""), @"x.toml:20:8: `TBW102` is a topic of RocketMQ itself: no client may make it; choose another name");
    insta::assert_snapshot!(told("name   = \"orders\"", "name = \"or ders\""), @"x.toml:20:8: the topic name `or ders` holds ` `, allowed are `%|a-zA-Z0-9_-`");
    insta::assert_snapshot!(told("name   = \"orders\"", &format!("name = \"{}\"", "o".repeat(128))), @"x.toml:20:8: the topic name has 128 bytes, at most 127 are allowed");
    insta::assert_snapshot!(told("group = \"checkout\"", "group = \"CLIENT_INNER_PRODUCER\""), @"x.toml:24:9: `CLIENT_INNER_PRODUCER` is a group of RocketMQ itself; choose another name");
    insta::assert_snapshot!(told("100B..4KiB", "0B..4KiB"), @"x.toml:27:9: a body of 0B: producers refuse to send empty bodies");
    insta::assert_snapshot!(small("rate = \"20/s\"", "sends = [\"0 by 0 at 1s, 5MiB\"]"), @"x.toml:11:10: a body of 5MiB: `maxMessageSize` of `broker-a` is 4MiB, which refuses it");
    insta::assert_snapshot!(told("\"1MiB\" }", "\"1MiB\", maxMessageSize = 2048 }"), @"x.toml:27:9: a body of 4KiB: `maxMessageSize` of `broker-a` is 2KiB, which refuses it");
    insta::assert_snapshot!(told("rate  = \"40/s\"", "sends = [\"0 by 0 at 1s, 0B\"]"), @"x.toml:26:10: a body of 0B: producers refuse to send empty bodies");
    insta::assert_snapshot!(told("active = \"2m\"", "active = \"0s\""), @"x.toml:4:10: `active` is 0s: nothing would ever happen");
    insta::assert_snapshot!(small("rate =", "start = \"10s\"\nrate ="), @"x.toml:11:9: `start` is not before the end of the active phase: nothing would ever be sent");
    insta::assert_snapshot!(small("group = \"billing\"", "group = \"billing\"\ninstances = 0"), @"x.toml:13:9: the group `billing` never has a member");
}

#[test]
fn what_the_stand_sets_itself_is_refused() {
    for key in ["bindAddress", "brokerClusterName", "brokerId", "brokerIP1", "brokerName", "brokerRole", "listenPort"]
        .into_iter()
        .chain(["namesrvAddr", "storePathRootDir"])
    {
        let told = told("flushDiskType = \"SYNC_FLUSH\"", &format!("{key} = \"1\""));
        assert!(told.starts_with(&format!("x.toml:14:14: the stand sets `{key}` itself")), "{told}");
    }
    insta::assert_snapshot!(told("flushDiskType = \"SYNC_FLUSH\"", "brokerRole = \"SLAVE\""), @"x.toml:14:14: the stand sets `brokerRole` itself; write it into `replicas` of the [[broker]]");
    insta::assert_snapshot!(told("count = 2", "count = 2\nconfig = { listenPort = 1 }"), @"x.toml:9:12: the stand sets `listenPort` itself");
}

#[test]
fn a_key_without_effect_is_a_warning() {
    let text = EXAMPLE.replacen("flushDiskType = \"SYNC_FLUSH\"", "transactionCheckMax = 3", 1);
    let scenario = Scenario::parse("x.toml", &text).unwrap();
    assert_eq!(scenario.warnings, ["x.toml:14:14: `transactionCheckMax` has no effect here"]);
    assert!(example().warnings.is_empty());
}

#[test]
fn times_that_nothing_could_happen_in_are_refused() {
    insta::assert_snapshot!(told("at   = \"30s\"", "at   = \"2m\""), @"x.toml:39:8: `at` is 2m, not before the end of the active phase at 2m: nothing would happen; move it earlier, or make `active` longer");
    insta::assert_snapshot!(told("down = \"10s\"", "down = \"1000h\""), @"x.toml:42:8: `down` is 1000h, longer than the whole run of 5m; leave it out if it is to last until the settle phase");
    insta::assert_snapshot!(told("for  = \"10s\"", "for  = \"1s..301s\""), @"x.toml:50:8: `for` is 301s, longer than the whole run of 5m; leave it out if it is to last until the settle phase");
    insta::assert_snapshot!(told("\"60s\"", "\"90h\""), @"x.toml:54:14: `converged` is 90h, longer than the settle phase of 3m; make it shorter, or make `settle` longer");
}

#[test]
fn a_link_has_two_ends() {
    insta::assert_snapshot!(told("broker-a/0 -> billing", "broker-a <-> broker-a"), @"x.toml:48:8: both ends of the link are the node `broker-a/0`");
    insta::assert_snapshot!(told("broker-a/0 -> billing", "broker-a/0 -> broker-a"), @"x.toml:48:8: both ends of the link are the node `broker-a/0`");
}

#[test]
fn a_subscription_is_tags_or_all() {
    insta::assert_snapshot!(told("orders: paid || refund", "orders: a > 3 ||"), @r#"x.toml:33:13: `a > 3` is not a tag: it holds ' '; write tags as in "orders: paid || refund""#);
    insta::assert_snapshot!(told("orders: paid || refund", "orders: paid ||"), @r#"x.toml:33:13: a tag is missing; write tags as in "orders: paid || refund""#);
    insta::assert_snapshot!(told("orders: paid || refund", "orders: * || paid"), @r#"x.toml:33:13: `*` stands beside tags: it means all of them only by itself; write "orders: *", or name the tags"#);
    insta::assert_snapshot!(told("[\"paid\", \"refund\"]", "[\"paid\", \"re fund\"]"), @"x.toml:28:18: `re fund` is not a tag: it holds ' '");
    for all in ["orders", "orders:*", "orders : *"] {
        let text = EXAMPLE.replacen("orders: paid || refund", all, 1);
        assert!(Scenario::parse("x.toml", &text).unwrap().consumers[0].tags.is_empty(), "{all}");
    }
}

#[test]
fn what_would_not_end_is_refused_at_the_key_that_asks_for_it() {
    insta::assert_snapshot!(told("count = 2", "count = 100000"), @"x.toml:8:9: `count` is 100000, the most is 64");
    insta::assert_snapshot!(told("instances = 3", "instances = 5000"), @"x.toml:32:13: `instances` is 5000, the most is 64");
    insta::assert_snapshot!(told("instances = 5", "instances = 65"), @"x.toml:35:40: `instances` is 65, the most is 64");
    insta::assert_snapshot!(told("\"40/s\"", "\"7/ms\""), @"x.toml:26:9: the producers send 840000 messages, the most is 100000");
    insta::assert_snapshot!(told("\"100B..4KiB\"", "\"1MiB\""), @"x.toml:27:9: the producers send bodies of about 4800MiB together, the most is 1GiB");
    insta::assert_snapshot!(told("active = \"2m\"", "active = \"25h\""), @"x.toml:4:10: `active` and `settle` are more than 24 h together");
    let producer = |n| format!("[[producer]]\ngroup = \"p{n}\"\ntopic = \"orders\"\nrate = \"1/m\"\ninstances = 64\n");
    insta::assert_snapshot!(told_of(&(0..4).map(producer).collect::<String>()), @"x.toml:31:9: 257 producers, the most is 200");
    let topic = |n| format!("[[topic]]\nname = \"t{n}\"\nqueues = 1024\n");
    insta::assert_snapshot!(told_of(&(0..5).map(topic).collect::<String>()), @"x.toml:26:10: all topics have 5124 queues on all brokers together, the most is 4096");
    let fault = |n| format!("[[fault]]\nid = \"f{n}\"\nat = \"1s\"\nkind = \"kill\"\nnode = \"broker-a/0\"\n");
    insta::assert_snapshot!(told_of(&(0..10_001).map(fault).collect::<String>()), @"x.toml:50016:6: 10001 faults, the most is 10000");
}

#[test]
fn a_message_stays_short_whatever_the_name() {
    let name = "x".repeat(100_000);
    for text in [
        SMALL.replacen("checkout", &name, 1),
        SMALL.replacen("topic = \"orders\"", &format!("topic = \"{name}\""), 1),
        SMALL.replacen("rate =", &format!("{name} ="), 1),
        SMALL.replacen("20/s", &name, 1),
        format!("{SMALL}[[fault]]\nid = \"f\"\nat = \"1s\"\nkind = \"kill\"\nnode = \"{name}/0\"\n"),
    ] {
        let told = Scenario::parse("x.toml", &text).unwrap_err().one_line();
        assert!(told.len() < 400, "{} bytes: {}", told.len(), &told[..400]);
    }
    let nodes = "[[consumer]]\ngroup = \"c\"\ninstances = 64\nsubscribe = \"orders\"\n";
    let told = told_of(&format!("{nodes}[[fault]]\nid = \"f\"\nat = \"1s\"\nkind = \"kill\"\nnode = \"nobody\"\n"));
    assert!(told.ends_with(" and 20 more"), "{told}");
}

#[test]
fn the_diagnostic_shows_the_place() {
    let error = Scenario::parse("x.toml", &EXAMPLE.replace("queues = 8", "queus = 8")).unwrap_err();
    let mut shown = String::new();
    let handler = miette::GraphicalReportHandler::new_themed(miette::GraphicalTheme::unicode_nocolor());
    handler.render_report(&mut shown, &error).unwrap();
    let shown: Vec<&str> = shown.lines().map(str::trim_end).collect();
    insta::assert_snapshot!(shown.join("\n"), @r#"
     × unknown key `queus` in [[topic]]
       ╭─[x.toml:21:1]
    20 │ name   = "orders"
    21 │ queus = 8
       · ──┬──
       ·   ╰── here
    22 │
       ╰────
     help: did you mean `queues`?
    "#);
}

#[test]
fn what_must_fail_and_what_must_check_read_and_print_as_they_are_meant() {
    let text = EXAMPLE.replacen("lost       = 0", "verdict = \"fail:panic\"\nmust-check = [\"lost\"]", 1);
    let scenario = Scenario::parse("x.toml", &text).unwrap();
    assert_eq!((scenario.expect.fails.as_deref(), scenario.expect.within), (Some("panic"), 20));
    assert_eq!(scenario.expect.must_check, Some(vec!["lost".to_owned()]));
    let printed = Scenario::parse("x.toml", &scenario.print()).unwrap();
    assert_eq!(format!("{:?}", printed.expect), format!("{:?}", scenario.expect));
    insta::assert_snapshot!(told("lost       = 0", "must-check = [\"panic\"]"), @"x.toml:53:15: unknown checker `panic`; known: lost, unread, phantom, aborted, filter, dup-store, dup-deliver, two-at-offset, order-store, visible-before-safe, skip, backwards, early, late, retry, commit-regress, route, store-audit, replica-equal, leak, stuck");
    insta::assert_snapshot!(told("lost       = 0", "verdict = \"fail:panik\""), @"x.toml:53:11: unknown checker `panik`; did you mean `panic`?");
}

#[test]
fn the_example_of_the_page_about_scenario_files_can_be_used() {
    let page = include_str!("../../../docs/scenarios.md");
    let example = page.split("```").nth(1).and_then(|block| block.strip_prefix("toml\n")).expect("a block of TOML");
    assert_eq!(Scenario::parse("page.toml", example).unwrap().warnings, Vec::<String>::new());
}
