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
    assert_eq!(scenario.faults[0].kind, FaultKind::PowerLoss { node: "broker-a/0".to_owned(), style: None });
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
    insta::assert_snapshot!(told("node = \"broker-a/0\"\ndown", "node = \"broker-a/1\"\ndown"), @"x.toml:41:8: unknown node `broker-a/1`; did you mean `broker-a/0`?");
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
    insta::assert_snapshot!(told("at   = \"30s\"", "at   = \"150s\""), @"x.toml:39:8: `at` is 150s, after the end of the active phase at 2m; move it earlier, or make `active` longer");
    insta::assert_snapshot!(told("at   = \"30s\"", "at   = \"100s..150s\""), @"x.toml:39:8: `at` is 150s, after the end of the active phase at 2m; move it earlier, or make `active` longer");
}

#[test]
fn what_is_there_twice_is_refused() {
    insta::assert_snapshot!(told("id   = \"f2\"", "id   = \"f1\""), @"x.toml:45:8: a second fault `f1`");
    insta::assert_snapshot!(told("group     = \"billing\"", "group     = \"checkout\""), @"x.toml:31:13: a second group `checkout`");
    insta::assert_snapshot!(told("queues = 8", "queues = 8\nqueues = 9"), @"x.toml:22:1: not TOML: duplicate key");
}

#[test]
fn what_is_not_built_yet_says_so() {
    insta::assert_snapshot!(told("[\"ASYNC_MASTER\"]", "[\"SYNC_MASTER\", \"SLAVE\"]"), @"x.toml:12:28: a SLAVE needs replication, which is not built yet (issue 6); use several groups of one master each");
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
    insta::assert_snapshot!(told("\"namesrv/7\""), @"x.toml:6:14: unknown node `namesrv/7`; did you mean `namesrv/0`?");
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
