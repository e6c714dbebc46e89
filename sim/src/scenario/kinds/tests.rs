//! Every kind of fault as a file spells it, and what is said of one that is spelt wrongly.

use std::collections::BTreeSet;

use super::super::{FileSystem, Scenario, units::Span};
use super::*;
use crate::plan::Plan;

const BEFORE: &str = r#"
format = 1
active = "60s"
[[namesrv]]
count = 3
[[broker]]
name = "broker-a"
[[broker]]
name = "broker-b"
[[topic]]
name = "orders"
[[producer]]
group = "checkout"
topic = "orders"
rate = "1/s"
[[consumer]]
group = "billing"
instances = 2
subscribe = "orders"
[[fault]]
id = "f"
at = "10s"
"#;

fn parse(fault: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse("x.toml", &format!("{BEFORE}{fault}"))
}

/// The kind that a fault of these lines has. It must print as the same lines.
fn kind(fault: &str) -> FaultKind {
    let scenario = parse(fault).unwrap_or_else(|error| panic!("{fault}: {}", error.one_line()));
    let printed = scenario.print();
    let (_, own) = printed.split_once("at = \"10s\"\n").unwrap();
    let (own, _) = own.split_once("\n\n").unwrap();
    assert_eq!(own, fault.trim_end());
    scenario.faults[0].kind.clone()
}

/// What is said of the fault, with the line counted from its first own one; 0 and less are lines before it.
fn told(fault: &str) -> String {
    let error = parse(fault).unwrap_err();
    let (line, column) = error.position();
    let advice = error.advice().map(|advice| format!("; {advice}")).unwrap_or_default();
    format!("{}:{column}: {}{advice}", line as i64 - BEFORE.lines().count() as i64, error.message())
}

fn on_link(what: LinkFault, port: Option<Port>) -> FaultKind {
    let link = Link { from: "checkout".into(), to: "broker-a/0".into(), both: false };
    FaultKind::OnLink { link, port, what }
}

#[test]
fn every_kind_of_a_link_reads_and_prints() {
    let of = |rest: &str| {
        let (name, rest) = rest.split_once('\n').unwrap();
        kind(&format!("kind = \"{name}\"\nlink = \"checkout -> broker-a/0\"\n{rest}"))
    };
    assert_eq!(of("loss\nport = \"client\"\nchance = \"2.5%\""), on_link(LinkFault::Loss(25_000), Some(Port::Client)));
    assert_eq!(of("bandwidth\nlimit = \"64KiB/s\"\nfor = \"5s\""), on_link(LinkFault::Bandwidth(65_536), None));
    assert_eq!(of("slow-link\nfactor = 20"), on_link(LinkFault::Slow(20), None));
    let [up, down] = [2_000, 250].map(|ms| Span::exactly(Duration::from_millis(ms)));
    assert_eq!(of("flap\nup = \"2s\"\ndown = \"250ms\"\nfor = \"20s\""), on_link(LinkFault::Flap { up, down }, None));
    assert_eq!(of("conn-reset\n"), on_link(LinkFault::Reset, None));
}

#[test]
fn every_shape_of_a_partition_reads_and_prints() {
    for (name, shape) in Shape::NAMES {
        let node = if shape.has_node() { "node = \"broker-a/0\"\n" } else { "" };
        let members = if shape.members_min() > 0 { "among = [\"namesrv\", \"broker-b\", \"billing/0\"]\n" } else { "" };
        let FaultKind::Partition { shape: read, node, members } = kind(&format!("kind = \"{name}\"\n{node}{members}"))
        else {
            panic!("{name} is a partition")
        };
        assert_eq!((read, node.is_some(), members.is_some()), (shape, shape.has_node(), shape.members_min() > 0));
    }
    let order = kind("kind = \"halves\"\norder = [\"namesrv/2\", \"billing/0\"]\n");
    let members = Some(Members::Order(vec!["namesrv/2".into(), "billing/0".into()]));
    assert_eq!(order, FaultKind::Partition { shape: Shape::Halves, node: None, members });
    assert_eq!(parse("kind = \"halves\"").unwrap().faults[0].kind, kind("kind = \"halves\"\namong = [\"*\"]\n"));
}

#[test]
fn kinds_of_a_node_read_and_print() {
    let node = || "broker-a/0".to_owned();
    let of = |name: &str| kind(&format!("kind = \"{name}\"\nnode = \"broker-a/0\"\nfor = \"3s\""));
    assert_eq!(of("accept-full"), FaultKind::AcceptFull { node: node() });
    assert_eq!(of("connect-hang"), FaultKind::ConnectHang { node: node() });
    assert_eq!(of("pause"), FaultKind::Pause { node: node() });
}

#[test]
fn every_kind_of_a_clock_reads_and_prints() {
    let clock = |rest: &str| {
        let (name, rest) = rest.split_once('\n').unwrap();
        match kind(&format!("kind = \"{name}\"\nnode = \"checkout/0\"\n{rest}")) {
            FaultKind::Clock { node, what, back } => (node, what, back),
            other => panic!("{other:?}"),
        }
    };
    let of = |what, back| ("checkout/0".to_owned(), what, back);
    assert_eq!(clock("skew\nby = \"-5000ms\"\nfor = \"5s\""), of(ClockFault::Skew(-5_000), Back::Step));
    assert_eq!(clock("drift\nrate = \"-200ppm\"\nback = \"slew\""), of(ClockFault::Drift(-200), Back::Slew));
    assert_eq!(clock("step\nby = \"600000ms\"\nback = \"slew\""), of(ClockFault::Step(600_000), Back::Slew));
    let every = Span { least: Duration::from_millis(50), most: Duration::from_millis(500) };
    let strobe = ClockFault::Strobe { by_ms: -250, every };
    assert_eq!(clock("strobe\nby = \"-250ms\"\nevery = \"50ms..500ms\"\nfor = \"9s\""), of(strobe, Back::Step));
    for (name, extreme) in Extreme::NAMES {
        let read = clock(&format!("clock-extreme\nto = \"{name}\""));
        assert_eq!(read, of(ClockFault::Extreme(extreme), Back::Step));
    }
}

#[test]
fn a_clock_that_is_right_or_beyond_all_bounds_is_refused() {
    let of = |rest: &str| told(&format!("node = \"broker-a/0\"\nkind = {rest}"));
    insta::assert_snapshot!(of("\"drift\"\nrate = \"0ppm\""), @"3:8: `rate`: `0ppm` is the right rate: leave the fault out");
    insta::assert_snapshot!(of("\"drift\"\nrate = \"6%\""), @"3:8: `rate`: `6%` is more than any clock drifts: write at most 5%");
    insta::assert_snapshot!(of("\"drift\"\nrate = \"200\""), @"3:8: `rate`: `200` has no unit: a drift is written as 200ppm or -2%");
    insta::assert_snapshot!(of("\"drift\"\nby = \"5s\""), @r#"-2:1: [[fault]] lacks `rate`, a drift such as "200ppm" or "-2%""#);
    insta::assert_snapshot!(of("\"step\"\nby = \"0s\""), @"3:6: `by` is less than a millisecond, which changes nothing");
    insta::assert_snapshot!(of("\"step\"\nby = \"-soon\""), @"3:6: `-soon` is not a time: write a number and a unit, as in 250ms, 30s or 2m");
    insta::assert_snapshot!(of("\"strobe\"\nby = \"5s\""), @r#"-2:1: [[fault]] lacks `every`, a time or a range such as "5ms..20ms""#);
    insta::assert_snapshot!(of("\"strobe\"\nby = \"5s\"\nevery = \"0s..1s\""), @"4:9: `every` is shorter than 1ms");
    insta::assert_snapshot!(of("\"clock-extreme\"\nto = \"before-1980\""), @"3:6: unknown time `before-1980`; did you mean `before-1970`?");
    insta::assert_snapshot!(of("\"skew\"\nby = \"5s\"\nback = \"slow\""), @"4:8: unknown way back `slow`; did you mean `slew`?");
}

#[test]
fn every_kind_of_a_disk_reads_and_prints() {
    let error = |rest: &str| {
        let (name, rest) = rest.split_once('\n').unwrap();
        match kind(&format!("kind = \"{name}\"\nnode = \"broker-a/0\"\n{rest}")) {
            FaultKind::DiskError { path, error, hits, .. } => (path, error, hits),
            other => panic!("{other:?}"),
        }
    };
    let all = |error| ("*".to_owned(), error, Hits::Chance(1_000_000));
    assert_eq!(error("eio-read\nfor = \"5s\""), all(DiskError::Read));
    let log = "commitlog/*".to_owned();
    assert_eq!(error("eio-flush\npath = \"commitlog/*\"\nnth = 3"), (log, DiskError::Flush, Hits::Nth(3)));
    assert_eq!(error("eio-write\nchance = \"0.5%\"").2, Hits::Chance(5_000));
    assert_eq!(error("short-write\n"), all(DiskError::ShortWrite));
    let node = || "broker-a/0".to_owned();
    for (name, what) in [("bit-rot", Media::BitRot), ("latent-sector", Media::LatentSector)] {
        let read = kind(&format!("kind = \"{name}\"\nnode = \"broker-a/0\"\npath = \"commitlog/*\"\ncount = 3"));
        let path = "commitlog/*".to_owned();
        assert_eq!(read, FaultKind::Media { node: "broker-a/0".into(), path, what, count: 3 });
    }
    assert_eq!(error("short-read\nchance = \"2%\"").1, DiskError::ShortRead);
    assert_eq!(error("mlock-refused\nnth = 2").1, DiskError::Lock);
    let torn = kind(
        "kind = \"torn-flush\"\nnode = \"broker-a/0\"\npath = \"commitlog/*\"\nnth = 3\nwithin = \"5s\"\ndown = \"1s\"",
    );
    let (path, within) = ("commitlog/*".to_owned(), Some(Duration::from_secs(5)));
    assert_eq!(torn, FaultKind::TornFlush { node: node(), path, hits: Hits::Nth(3), within });
    let torn = kind("kind = \"torn-flush\"\nnode = \"broker-a/0\"");
    let hits = Hits::Chance(1_000_000);
    assert_eq!(torn, FaultKind::TornFlush { node: node(), path: "*".to_owned(), hits, within: None });
    assert_eq!(error("lost-write\nnth = 2").1, DiskError::LostWrite);
    assert_eq!(error("misdirected-write\nnth = 2").1, DiskError::MisdirectedWrite);
    assert_eq!(error("lying-flush\nfor = \"5s\""), all(DiskError::LyingFlush));
    let stall = kind("kind = \"disk-stall\"\nnode = \"broker-a/0\"\nfor = \"3s\"");
    assert_eq!(stall, FaultKind::DiskStall { node: node() });
    let gone = kind("kind = \"disk-gone\"\nnode = \"broker-a/0\"\nfor = \"3s\"");
    assert_eq!(gone, FaultKind::DiskGone { node: node() });
    let replaced = kind("kind = \"disk-replaced\"\nnode = \"broker-a/0\"\ndown = \"3s\"");
    assert_eq!(replaced, FaultKind::DiskReplaced { node: node() });
    let lost = kind("kind = \"files-lost\"\nnode = \"broker-a/0\"\npath = \"index/*\"\ndown = \"3s\"");
    assert_eq!(lost, FaultKind::FilesLost { node: node(), path: "index/*".to_owned() });
    let restored = kind("kind = \"restore-backup\"\nnode = \"broker-a/0\"\ntaken = \"500ms\"\ndown = \"3s\"");
    assert_eq!(restored, FaultKind::RestoreBackup { node: node(), taken: Duration::from_millis(500) });
    let outage = kind("kind = \"power-loss\"\nnode = \"broker-a/0\"\nstyle = \"runs\"\ngarbage = true\ndown = \"1s\"");
    assert_eq!(outage, FaultKind::PowerLoss { node: node(), style: Some(Survival::Runs), garbage: true });
    let fill = kind("kind = \"disk-fill\"\nnode = \"broker-a/0\"\npercent = \"92%\"\nramp = \"20s\"");
    assert_eq!(fill, FaultKind::DiskFill { node: node(), percent: 92, ramp: Duration::from_secs(20) });
}

#[test]
fn disks_that_cannot_fail_like_this_are_refused() {
    let of = |rest: &str| told(&format!("node = \"broker-a/0\"\nkind = {rest}"));
    insta::assert_snapshot!(of("\"eio-read\"\nnth = 0"), @"3:7: `nth` is 0, it must be at least 1");
    insta::assert_snapshot!(of("\"eio-read\"\nnth = 1\nchance = \"5%\""), @"4:10: [[fault]] has both `nth` and `chance`: choose one");
    insta::assert_snapshot!(of("\"eio-flush\"\npath = \"/commitlog/*\""), @r#"3:8: `/commitlog/*` is not a path below the store; write it as in "commitlog/*"; * stands for any run of characters"#);
    insta::assert_snapshot!(of("\"eio-flush\"\npath = \"\""), @r#"3:8: `` is not a path below the store; write it as in "commitlog/*"; * stands for any run of characters"#);
    insta::assert_snapshot!(of("\"eio-flush\"\nfile = \"x\""), @"3:1: unknown key `file` in [[fault]]; known keys: id, at, on, kind, nth, chance, path, node, for");
    insta::assert_snapshot!(of("\"torn-flush\"\nfor = \"5s\""), @"3:1: unknown key `for` in [[fault]]; known keys: id, at, on, kind, nth, chance, within, path, node, down");
    insta::assert_snapshot!(of("\"torn-flush\"\nwithin = \"5000s\""), @"3:10: `within` is 5000s, longer than the whole run of 4m; leave it out if it is to last until the settle phase");
    insta::assert_snapshot!(told("node = \"namesrv/0\"\nkind = \"torn-flush\""), @"1:8: `torn-flush` needs a broker, `namesrv/0` has no disk");
    insta::assert_snapshot!(of("\"bit-rot\"\ncount = 0"), @"3:9: `count` is 0, it must be at least 1");
    insta::assert_snapshot!(told("node = \"namesrv/0\"\nkind = \"bit-rot\""), @"1:8: `bit-rot` needs a broker, `namesrv/0` has no disk");
    insta::assert_snapshot!(told("node = \"checkout/0\"\nkind = \"disk-stall\""), @"1:8: `disk-stall` needs a broker, `checkout/0` has no disk");
    insta::assert_snapshot!(told("node = \"namesrv/0\"\nkind = \"eio-write\""), @"1:8: `eio-write` needs a broker, `namesrv/0` has no disk");
    let file = BEFORE.replace("name = \"broker-b\"", "name = \"broker-b\"\nfile-system = \"ext4\"");
    insta::assert_snapshot!(Scenario::parse("x.toml", &file).unwrap_err().one_line(), @"x.toml:10:15: unknown file system `ext4`; known: any, strict, ordered-journal, delayed-alloc, revert-on-error");
}

#[test]
fn file_systems_read_print_and_are_drawn() {
    for (name, file_system) in FileSystem::NAMES {
        let key = format!("name = \"broker-b\"\nfile-system = \"{name}\"");
        let file = format!("{}kind = \"pause\"\nnode = \"broker-a/0\"", BEFORE.replace("name = \"broker-b\"", &key));
        let scenario = Scenario::parse("x.toml", &file).unwrap();
        assert_eq!(scenario.brokers[1].file_system, file_system);
        let again = Scenario::parse("x.toml", &scenario.print()).unwrap();
        assert_eq!(again.brokers[1].file_system, file_system);
        let drawn: BTreeSet<String> = (0..40)
            .map(|seed| format!("{:?}", Plan::draw(scenario.clone(), Some(seed)).scenario.brokers[1].file_system))
            .collect();
        assert_eq!(drawn.len(), if file_system == FileSystem::Any { 4 } else { 1 }, "{drawn:?}");
    }
}

#[test]
fn kinds_of_many_nodes_read_and_print() {
    assert_eq!(
        kind("kind = \"panic\"\nnode = \"broker-a/0\"\ndown = \"3s\""),
        FaultKind::Panic { node: "broker-a/0".into() }
    );
    let every = Span { least: Duration::from_millis(500), most: Duration::from_secs(2) };
    let storm = kind("kind = \"rebalance-storm\"\ngroup = \"billing\"\nevery = \"500ms..2s\"\nfor = \"20s\"");
    assert_eq!(storm, FaultKind::RebalanceStorm { group: "billing".into(), every });
    let change = kind("kind = \"config-change\"\ntopic = \"orders\"\nqueues = 9");
    assert_eq!(change, FaultKind::ConfigChange { topic: "orders".into(), queues: 9 });
    let buggify = kind("kind = \"buggify\"\nnames = [\"store.rolled-early\", \"broker.pull-short\"]\nchance = \"3%\"");
    let names = vec!["store.rolled-early".to_owned(), "broker.pull-short".to_owned()];
    assert_eq!(buggify, FaultKind::Buggify { names, chance_ppm: 30_000 });
    let all = BUGGIFY.map(str::to_owned).to_vec();
    assert_eq!(kind("kind = \"buggify\"\nfor = \"9s\""), FaultKind::Buggify { names: all, chance_ppm: 250_000 });
    let drain = kind("kind = \"drain\"\nnode = \"broker-a/0\"\ntopic = \"orders\"\nfor = \"20s\"");
    assert_eq!(drain, FaultKind::Drain { node: "broker-a/0".into(), topic: "orders".into() });
    let deletion = kind("kind = \"delete-expired\"\nnode = \"broker-a/0\"");
    assert_eq!(deletion, FaultKind::DeleteExpired { node: "broker-a/0".into() });
    let domain = "[[domain]]\nname = \"rack\"\nnodes = [\"broker-b\", \"namesrv/0\"]\n";
    let text = format!("{BEFORE}kind = \"power-loss\"\ndomain = \"rack\"\nstyle = \"all-old\"\n{domain}");
    let scenario = Scenario::parse("x.toml", &text).unwrap();
    assert_eq!(scenario.nodes_of_domain("rack"), ["namesrv/0", "broker-b/0"]);
    let power_loss =
        FaultKind::DomainPowerLoss { domain: "rack".into(), style: Some(Survival::AllOld), garbage: false };
    assert_eq!(scenario.faults[0].kind, power_loss);
    let again = Scenario::parse("x.toml", &scenario.print()).unwrap();
    assert_eq!((&again.domains, &again.faults[0].kind), (&scenario.domains, &scenario.faults[0].kind));
}

#[test]
fn many_nodes_that_are_not_there_are_named() {
    insta::assert_snapshot!(told("kind = \"power-loss\"\ndomain = \"rack\""), @"2:10: unknown power domain `rack`; write [[domain]] with its `name` and its `nodes`");
    insta::assert_snapshot!(told("kind = \"power-loss\"\nnode = \"broker-a/0\"\n[[domain]]\nname = \"rack\"\nnodes = []"), @"5:9: nobody is in the domain `rack`");
    insta::assert_snapshot!(told("kind = \"power-loss\"\nnode = \"broker-a/0\"\n[[domain]]\nname = \"rack\"\nnodes = [\"broker-c\"]"), @"5:10: unknown node or group `broker-c`; did you mean `broker-a`?");
    insta::assert_snapshot!(told("kind = \"rebalance-storm\"\ngroup = \"checkout\"\nevery = \"1s\""), @"2:9: unknown consumer group `checkout`; known: billing");
    insta::assert_snapshot!(told("kind = \"config-change\"\ntopic = \"order\"\nqueues = 9"), @"2:9: unknown topic `order`; did you mean `orders`?");
    insta::assert_snapshot!(told("kind = \"config-change\"\ntopic = \"orders\"\nqueues = 4"), @"3:10: `queues` is 4, and `orders` has 4 already; a topic can only get more queues");
    insta::assert_snapshot!(told("kind = \"config-change\"\ntopic = \"orders\"\nqueues = 1025"), @"3:10: `queues` is 1025, the most is 1024");
    insta::assert_snapshot!(told("kind = \"config-change\"\ntopic = \"orders\"\nqueues = 9\nfor = \"1s\""), @"4:7: `config-change` happens in a moment: it has no `for`");
    insta::assert_snapshot!(told("kind = \"delete-expired\"\nnode = \"namesrv/0\""), @"2:8: `delete-expired` needs a broker, `namesrv/0` has no disk");
    insta::assert_snapshot!(told("kind = \"delete-expired\"\nnode = \"broker-a/0\"\nfor = \"1s\""), @"3:7: `delete-expired` happens in a moment: it has no `for`");
    insta::assert_snapshot!(told("kind = \"rebalance-storm\"\ngroup = \"billing\"\nevery = \"0s\""), @"3:9: `every` is shorter than 1ms");
    let one = told(
        "kind = \"rebalance-storm\"\ngroup = \"alone\"\nevery = \"1s\"\n[[consumer]]\ngroup = \"alone\"\nsubscribe = \"orders\"",
    );
    insta::assert_snapshot!(one, @"2:9: `alone` has one member, and one is always there; a storm needs a group of at least two members");
    insta::assert_snapshot!(told("kind = \"buggify\"\nnames = []"), @"2:9: `names` is empty: leave it out for all of them");
    insta::assert_snapshot!(told("kind = \"buggify\"\nnames = [\"store.rolled-late\"]"), @"2:10: unknown place to behave unusually `store.rolled-late`; did you mean `store.rolled-early`?");
    insta::assert_snapshot!(told("kind = \"buggify\"\nnames = [\"broker.pull-short\", \"broker.pull-short\"]"), @"2:31: `broker.pull-short` stands twice in `names`");
    insta::assert_snapshot!(told("kind = \"buggify\"\nnode = \"broker-a/0\""), @"2:1: unknown key `node` in [[fault]]; known keys: id, at, on, kind, chance, names, for");
}

#[test]
fn a_link_that_is_no_worse_is_refused() {
    let of = |rest: &str| told(&format!("link = \"* <-> broker-a\"\nkind = {rest}"));
    insta::assert_snapshot!(of("\"loss\"\nchance = \"0%\""), @"3:10: `chance`: `0%` never happens: write more than 0%");
    insta::assert_snapshot!(of("\"loss\"\nchance = \"140%\""), @"3:10: `chance`: `140%` is more than always: write at most 100%");
    insta::assert_snapshot!(of("\"loss\"\nchance = 5"), @r#"3:10: `chance` is an integer, expected a chance such as "2.5%""#);
    insta::assert_snapshot!(of("\"loss\""), @r#"-2:1: [[fault]] lacks `chance`, a chance such as "2.5%""#);
    insta::assert_snapshot!(of("\"bandwidth\"\nlimit = \"0B/s\""), @"3:9: `limit`: `0B/s` lets nothing through: write a cut instead");
    insta::assert_snapshot!(of("\"bandwidth\"\nlimit = \"64KiB\""), @"3:9: `limit`: `64KiB` is not a bandwidth: write a size and a second, as in 64KiB/s");
    insta::assert_snapshot!(of("\"slow-link\"\nfactor = 1"), @"3:10: `factor` is 1, which changes nothing");
    insta::assert_snapshot!(of("\"slow-link\"\nfactor = 0"), @"3:10: `factor` is 0, it must be at least 1");
    insta::assert_snapshot!(of("\"flap\"\nup = \"1s\"\ndown = \"0s\""), @"4:8: `down` is shorter than 1ms");
    insta::assert_snapshot!(of("\"flap\"\nup = \"1s\""), @r#"-2:1: [[fault]] lacks `down`, a time or a range such as "5ms..20ms""#);
    insta::assert_snapshot!(of("\"conn-reset\"\nfor = \"1s\""), @"3:7: `conn-reset` happens in a moment: it has no `for`");
    insta::assert_snapshot!(of("\"conn-reset\"\nport = \"clients\""), @"3:8: unknown port `clients`; did you mean `client`?");
}

#[test]
fn a_partition_without_parts_is_refused() {
    insta::assert_snapshot!(told("kind = \"halves\"\namong = [\"broker-a\"]"), @"2:9: `halves` needs 2 members, there are 1");
    insta::assert_snapshot!(told("kind = \"bridge\"\nnode = \"broker-a/0\"\namong = [\"broker-a\", \"broker-b\"]"), @"3:9: `bridge` needs 2 members beside its node, there are 1");
    insta::assert_snapshot!(told("kind = \"ring-majorities\"\norder = [\"namesrv/0\", \"namesrv/1\", \"namesrv/2\"]"), @"2:9: `ring-majorities` needs 4 members, there are 3");
    insta::assert_snapshot!(told("kind = \"halves\"\norder = [\"namesrv/0\", \"namesrv/0\"]"), @"2:23: `namesrv/0` stands twice in `order`");
    insta::assert_snapshot!(told("kind = \"halves\"\norder = [\"namesrv\", \"broker-a/0\"]"), @"2:10: unknown node `namesrv`; did you mean `namesrv/0`?");
    insta::assert_snapshot!(told("kind = \"halves\"\namong = [\"*\"]\norder = []"), @"3:9: [[fault]] has both `among` and `order`: choose one; `among` leaves the order to the seed");
    insta::assert_snapshot!(told("kind = \"isolate\"\nnode = \"broker-a/0\"\namong = [\"*\"]"), @"3:1: unknown key `among` in [[fault]]; known keys: id, at, on, kind, node, for");
    insta::assert_snapshot!(told("kind = \"swizle\""), @"1:8: unknown kind of fault `swizle`; did you mean `swizzle`?");
}

#[test]
fn a_fault_that_would_change_nothing_is_refused() {
    insta::assert_snapshot!(told("kind = \"disk-fill\"\nnode = \"broker-a/0\"\npercent = \"39%\""), @"3:11: `percent` is 39%: a disk is 40% full when nothing fills it; write more, up to 100%");
    insta::assert_snapshot!(told("kind = \"disk-fill\"\nnode = \"broker-a/0\"\npercent = \"90%\"\nramp = \"4s\"\nfor = \"2s..9s\""), @"4:8: `ramp` is 4s, longer than the 2s that the fault may last; it would end before the disk is full");
    insta::assert_snapshot!(told("kind = \"disk-fill\"\nnode = \"broker-a/0\"\npercent = \"90%\"\nramp = \"2h\""), @"4:8: `ramp` is 2h, longer than the whole run of 4m; leave it out if it is to last until the settle phase");
    insta::assert_snapshot!(told("kind = \"disk-slow\"\nnode = \"broker-a/0\"\nfactor = 1"), @"3:10: `factor` is 1, which changes nothing");
    let full = "kind = \"disk-fill\"\nnode = \"broker-a/0\"\npercent = \"40%\"\nramp = \"2s\"\nfor = \"2s..9s\"";
    assert!(parse(full).is_ok());
}

#[test]
fn a_power_loss_without_a_node_may_mean_a_domain() {
    insta::assert_snapshot!(told("kind = \"power-loss\""), @"-2:1: [[fault]] lacks `node`, a string; or write `domain`, whose nodes lose it together");
    insta::assert_snapshot!(told("kind = \"power-loss\"\nnod = \"broker-a/0\""), @"2:1: unknown key `nod` in [[fault]]; did you mean `node`?");
    let with =
        |kind: &str| parse(&format!("{kind}\n[[domain]]\nname = \"rack\"\nnodes = [\"broker-a\"]")).unwrap().warnings;
    assert_eq!(with("kind = \"power-loss\"\ndomain = \"rack\""), [""; 0]);
    let idle = with("kind = \"power-loss\"\nnode = \"broker-a/0\"");
    assert!(idle.len() == 1 && idle[0].ends_with(":8: no fault uses the power domain `rack`"), "{idle:?}");
}

#[test]
fn a_range_where_one_value_stands_is_called_a_range() {
    let of = |kind: &str, key: &str| {
        told(&format!("kind = \"{kind}\"\nnode = \"broker-a/0\"\n{key} = \"1s..4s\"\npercent = \"90%\""))
    };
    insta::assert_snapshot!(of("restore-backup", "taken"), @"3:9: `taken`: `1s..4s` is a range, and a time is wanted here: write one, as in 250ms, 30s or 2m");
    insta::assert_snapshot!(of("disk-fill", "ramp"), @"3:8: `ramp`: `1s..4s` is a range, and a time is wanted here: write one, as in 250ms, 30s or 2m");
    insta::assert_snapshot!(of("torn-flush", "within"), @"3:10: `within`: `1s..4s` is a range, and a time is wanted here: write one, as in 250ms, 30s or 2m");
    insta::assert_snapshot!(told("kind = \"step\"\nnode = \"broker-a/0\"\nby = \"-4s..4s\""), @"3:6: `-4s..4s` is a range, and a time is wanted here: write one, as in 250ms, 30s or 2m");
}

/// What is said of a fault that waits for this point at this node, or of a gate that holds there; empty if nothing is.
fn waits(what: &str, point: &str, node: &str) -> String {
    let visit = format!("{what} = {{ point = \"{point}\", node = \"{node}\" }}\n");
    let kind = if what == "on" { "kind = \"kill\"\nnode = \"broker-a/0\"" } else { "" };
    let text = format!("{}{visit}{kind}", BEFORE.replace("at = \"10s\"\n", ""));
    match Scenario::parse("x.toml", &text) {
        Ok(_) => String::new(),
        Err(error) => format!("{}; {}", error.message(), error.advice().unwrap_or_default()),
    }
}

#[test]
fn a_point_that_a_node_never_passes_is_refused_with_those_that_do() {
    insta::assert_snapshot!(waits("on", "client.committing", "broker-a/0"), @"`broker-a/0` never passes `client.committing`; these do: billing/0, billing/1");
    insta::assert_snapshot!(waits("on", "client.rebalanced", "checkout/0"), @"`checkout/0` never passes `client.rebalanced`; these do: billing/0, billing/1");
    insta::assert_snapshot!(waits("on", "store.flushed", "namesrv/0"), @"`namesrv/0` never passes `store.flushed`; these do: broker-a/0, broker-b/0");
    insta::assert_snapshot!(waits("on", "namesrv.broker-expired", "broker-b/0"), @"`broker-b/0` never passes `namesrv.broker-expired`; these do: namesrv/0, namesrv/1, namesrv/2");
    insta::assert_snapshot!(waits("on", "remoting.connection-refused", "billing/0"), @"`billing/0` never passes `remoting.connection-refused`; these do: namesrv/0, namesrv/1, namesrv/2, broker-a/0, broker-b/0");
    insta::assert_snapshot!(waits("hold", "store.flushing", "billing/1"), @"`billing/1` never passes `store.flushing`; these do: broker-a/0, broker-b/0");
    for (point, node) in [
        ("poll", "checkout/0"),
        ("remoting.malformed", "namesrv/1"),
        ("client.committing", "billing/1"),
        ("broker.offsets-persisting", "broker-b/0"),
    ] {
        assert_eq!(waits("on", point, node), "", "{point} at {node}");
    }
}
