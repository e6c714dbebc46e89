//! The tables of a scenario file, one function each.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use super::{
    BrokerGroup, ConsumerGroup, Expect, FORMAT, FaultKind, FileSystem, Link, Load, MARKS, PowerDomain, ProducerGroup,
    Role, Scale, Scenario, ScenarioError, SeedPins, Send, SendMode, Settings, Survives, Topic, check, kinds, nemesis,
    reader::{At, Bound, Percent, PinnedSeed, Setting, Size, Source, Table, nearest},
    units::{Rate, Span, print_size},
};
use crate::points;

/// Seeds within which a checker that is expected to fail must do so, unless the file says otherwise.
const WITHIN_DEFAULT: u32 = 20;

/// The disk of a broker, unless the file says otherwise: room for log files of RocketMQ's default size. It is sparse.
const DEFAULT_DISK_BYTES: u64 = 16 << 30;

/// The largest disk of a broker.
const MOST_DISK_BYTES: u64 = 1 << 50;

/// The key of the size of a log file.
const LOG_FILE_SIZE: &str = "mappedFileSizeCommitLog";

/// The most nodes of one table.
const MOST_INSTANCES: u32 = 64;

/// Most replicas of one group.
const MOST_REPLICAS: usize = 9;

/// The most queues of a topic on each broker.
pub(crate) const MOST_QUEUES: u32 = 1024;

/// How many names are listed when an unknown one looks like none of them. Enough for every list that is not made of
/// names of the file.
const LISTED_MAX: usize = 48;

/// Places of the file that the checks across tables point at.
#[derive(Default)]
pub(super) struct Places {
    /// Names that must be topics.
    pub topics: Vec<At<String>>,
    /// Names that must be broker groups.
    pub brokers: Vec<At<String>>,
    /// Names that must be nodes.
    pub nodes: Vec<At<String>>,
    /// Ends of links, which must be nodes, groups or `*`.
    pub ends: Vec<At<String>>,
    /// Names of groups; each must be used once.
    pub groups: Vec<At<String>>,
    /// Ids of faults; each must be used once.
    pub ids: Vec<At<String>>,
    /// Names that must be points, with the names there are.
    pub points: Vec<(At<String>, Vec<&'static str>)>,
    /// Points with the nodes that are to pass them.
    pub visits: Vec<At<(String, String)>>,
    /// How long it takes until disks are full.
    pub ramps: Vec<At<Duration>>,
    /// Nodes that may stay dead.
    pub permanent: Vec<At<String>>,
    /// Names that must be faults.
    pub faults: Vec<At<String>>,
    /// Names of power domains; each must be used once.
    pub domain_names: Vec<At<String>>,
    /// Names that must be power domains.
    pub domains: Vec<At<String>>,
    /// Topics with the numbers of queues that they get.
    pub changes: Vec<At<(String, u32)>>,
    /// Topics and the nodes that are to take no messages of them.
    pub drains: Vec<At<(String, String)>>,
    /// Names that must be consumer groups.
    pub consumers: Vec<At<String>>,
    /// Names of topics; each must be used once.
    pub topic_names: Vec<At<String>>,
    /// Times that must not lie after the end of the active phase.
    pub times: Vec<At<(&'static str, Duration)>>,
    /// Times of faults, which must lie before it.
    pub fault_times: Vec<At<Duration>>,
    /// How long faults last, which must not be longer than the run.
    pub lasting: Vec<At<(&'static str, Duration)>>,
    /// The bound on convergence, which must not be longer than the settle phase.
    pub converged: Option<At<Duration>>,
    /// The key that says how long the active phase is.
    pub active: Range<usize>,
    /// For each broker group what decides how large its log files are, or how large its disk is.
    pub log_files: Vec<Range<usize>>,
    /// For each topic its number of queues.
    pub queues: Vec<Range<usize>>,
    /// For each producer group what decides how much it sends.
    pub loads: Vec<Range<usize>>,
    /// For each producer group its largest body.
    pub bodies: Vec<At<u64>>,
    /// Links, whose two ends must differ.
    pub links: Vec<At<Link>>,
    /// Partitions, which need members enough; each at the key that says who they are.
    pub partitions: Vec<At<FaultKind>>,
    /// When backups are made, in the order of their faults.
    pub backups: Vec<At<Duration>>,
    /// Where the settings of each broker group, name servers and clients stand.
    pub settings: Vec<(SettingsOf, PlacedSettings)>,
}

/// The settings of one table, each with its place.
pub(super) type PlacedSettings = Vec<At<(String, String)>>;

/// Whose settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SettingsOf {
    Namesrv,
    Broker,
    Producer,
    Consumer,
}

impl Scenario {
    /// Reads a scenario. `file` is the path as the user wrote it; messages show it, and its stem names the scenario.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(file: &str, text: &str) -> Result<Scenario, ScenarioError> {
        let source = Source::new(file, text);
        let mut root = source.parse()?;
        let mut places = Places::default();
        let format = root.required::<u64>("format")?;
        if format.value != FORMAT {
            let message = format!("format {} is not known: this build reads format {FORMAT}", format.value);
            return Err(source.error(&format.at, message));
        }
        let about = root.or("about", String::new())?;
        let At { value: active, at } = root.required::<Duration>("active")?;
        if active.is_zero() {
            return Err(source.error(&at, "`active` is 0s: nothing would ever happen"));
        }
        places.active = at;
        let settle = root.or("settle", Duration::from_secs(180))?;
        let seeds = root.table("seeds")?.map_or(Ok(SeedPins::default()), read_seeds)?;
        let (namesrvs, namesrv_config) = read_namesrvs(&source, &mut root, &mut places)?;
        let brokers = each(&mut root, "broker", |table| read_broker(&source, table, &mut places))?;
        let claim = root.table("claim")?.map_or(Ok(Vec::new()), |table| read_claim(&source, table))?;
        let domains = each(&mut root, "domain", |table| read_domain(&source, table, &mut places))?;
        let topics = each(&mut root, "topic", |table| read_topic(&source, table, &brokers, &mut places))?;
        let producers = each(&mut root, "producer", |table| read_producer(&source, table, active, &mut places))?;
        let consumers = each(&mut root, "consumer", |table| read_consumer(&source, table, &mut places))?;
        let faults = each(&mut root, "fault", |table| kinds::read(&source, table, &mut places))?;
        let nemesis = match root.table("nemesis")? {
            Some(table) => nemesis::read(&source, table, &mut places)?,
            None => None,
        };
        let permanent = root.or::<Vec<At<String>>>("permanent", Vec::new())?;
        places.permanent.extend(permanent.iter().cloned());
        let expect =
            root.table("expect")?.map_or(Ok(Expect::default()), |table| read_expect(&source, table, &mut places))?;
        let whole = root.at.clone();
        root.finish()?;
        let name = std::path::Path::new(file).file_stem().map_or(file.into(), |stem| stem.to_string_lossy());
        let mut scenario = Scenario {
            name: name.into_owned(),
            about,
            active,
            settle,
            seeds,
            namesrvs,
            namesrv_config,
            brokers,
            claim,
            domains,
            topics,
            producers,
            consumers,
            faults,
            nemesis,
            permanent: permanent.into_iter().map(|node| node.value).collect(),
            expect,
            warnings: Vec::new(),
        };
        let idle = check::check(&source, &scenario, &places, &whole)?;
        scenario.warnings = idle.iter().map(ScenarioError::one_line).collect();
        Ok(scenario)
    }
}

fn each<'a, T>(
    root: &mut Table<'a>,
    key: &'static str,
    mut read: impl FnMut(Table<'a>) -> Result<T, ScenarioError>,
) -> Result<Vec<T>, ScenarioError> {
    root.tables(key)?.into_iter().map(&mut read).collect()
}

fn read_seeds(mut table: Table<'_>) -> Result<SeedPins, ScenarioError> {
    let mut seed = |key| Ok::<_, ScenarioError>(table.optional::<PinnedSeed>(key)?.map(|seed| seed.value.0));
    let pins = SeedPins {
        root: seed("root")?,
        plan: seed("plan")?,
        work: seed("work")?,
        net: seed("net")?,
        disk: seed("disk")?,
        clock: seed("clock")?,
        sched: seed("sched")?,
    };
    table.finish()?;
    Ok(pins)
}

fn read_namesrvs(source: &Source, root: &mut Table<'_>, places: &mut Places) -> Result<(u32, Settings), ScenarioError> {
    let mut tables = root.tables("namesrv")?.into_iter();
    let Some(mut table) = tables.next() else { return Ok((1, Vec::new())) };
    if let Some(second) = tables.next() {
        return Err(source
            .error(&second.at, "a second [[namesrv]]")
            .with_help("one table describes all name servers: raise its `count`"));
    }
    let count = few(source, table.optional("count")?, 1, 1..=MOST_INSTANCES, "`count`")?;
    let config = read_settings(&mut table, SettingsOf::Namesrv, places)?;
    table.finish()?;
    Ok((count, config))
}

fn read_broker(source: &Source, mut table: Table<'_>, places: &mut Places) -> Result<BrokerGroup, ScenarioError> {
    let name = group_name(source, table.required("name")?)?;
    places.groups.push(name.clone());
    let replicas = match table.optional::<Vec<At<String>>>("replicas")? {
        None => vec![Role::AsyncMaster],
        Some(replicas) => read_replicas(source, replicas)?,
    };
    let disk = table.optional::<Size>("disk")?;
    match &disk {
        Some(At { value: Size(bytes), at }) if *bytes < 1 << 20 => {
            return Err(source.error(at, "`disk` is smaller than 1MiB, which no store fits in"));
        }
        Some(At { value: Size(bytes), at }) if *bytes > MOST_DISK_BYTES => {
            let most = print_size(MOST_DISK_BYTES);
            return Err(source.error(at, format!("`disk` is larger than {most}, the most that the stand offers")));
        }
        _ => {}
    }
    let file_system = choice(source, table.optional("file-system")?, "file system", &FileSystem::NAMES)?;
    let config = read_settings(&mut table, SettingsOf::Broker, places)?;
    table.finish()?;
    let placed = places.settings.last().filter(|_| !config.is_empty()).map_or(&[][..], |(_, placed)| placed);
    let size = placed.iter().rfind(|setting| setting.value.0 == LOG_FILE_SIZE).map(|setting| setting.at.clone());
    let decides = size.or(disk.as_ref().map(|disk| disk.at.clone()));
    places.log_files.push(decides.unwrap_or(name.at));
    let disk_bytes = disk.map_or(DEFAULT_DISK_BYTES, |disk| disk.value.0);
    let file_system = file_system.unwrap_or(FileSystem::DEFAULT);
    Ok(BrokerGroup { name: name.value, replicas, disk_bytes, file_system, config })
}

fn read_replicas(source: &Source, replicas: At<Vec<At<String>>>) -> Result<Vec<Role>, ScenarioError> {
    let mut roles = Vec::new();
    for replica in replicas.value {
        let role = match replica.value.as_str() {
            "ASYNC_MASTER" => Role::AsyncMaster,
            "SYNC_MASTER" => Role::SyncMaster,
            "SLAVE" => Role::Slave,
            other => {
                let error = source.error(&replica.at, format!("unknown role `{other}`"));
                return Err(error.with_help("roles are ASYNC_MASTER, SYNC_MASTER and SLAVE"));
            }
        };
        match (roles.is_empty(), role) {
            (true, Role::Slave) => {
                return Err(source.error(&replica.at, "the first replica is the master, and this one is a SLAVE"));
            }
            (false, Role::AsyncMaster | Role::SyncMaster) => {
                return Err(source
                    .error(&replica.at, "a second master in one group")
                    .with_help("replicas but the first are SLAVE"));
            }
            _ => roles.push(role),
        }
    }
    if roles.is_empty() || roles.len() > MOST_REPLICAS {
        let message = format!("a group has 1 to {MOST_REPLICAS} replicas, this one has {}", roles.len());
        return Err(source.error(&replicas.at, message));
    }
    Ok(roles)
}

fn read_claim(source: &Source, mut table: Table<'_>) -> Result<Vec<Survives>, ScenarioError> {
    let entries = table.or::<Vec<At<String>>>("survives", Vec::new())?;
    table.finish()?;
    let mut claim = Vec::new();
    for entry in entries {
        let (kind, count) = match entry.value.split_once(':') {
            None => (entry.value.as_str(), None),
            Some((kind, count)) => match count.parse() {
                Ok(0) => {
                    let error = source.error(&entry.at, format!("`{}` survives nothing", entry.value));
                    return Err(error.with_help("leave it out, or write how many nodes at a time, from 1 up"));
                }
                Ok(count) => (kind, Some(count)),
                Err(_) => return Err(source.error(&entry.at, format!("`{count}` is not a number of nodes"))),
            },
        };
        if !FaultKind::NAMES.contains(&kind) {
            return Err(unknown(source, &entry.at, "kind of fault", kind, &FaultKind::NAMES));
        }
        claim.push(Survives { kind: kind.to_owned(), count });
    }
    Ok(claim)
}

fn read_domain(source: &Source, mut table: Table<'_>, places: &mut Places) -> Result<PowerDomain, ScenarioError> {
    let name = group_name(source, table.required("name")?)?;
    places.domain_names.push(name.clone());
    let nodes = table.required::<Vec<At<String>>>("nodes")?;
    if nodes.value.is_empty() {
        return Err(source.error(&nodes.at, format!("nobody is in the domain `{}`", name.value)));
    }
    places.ends.extend(nodes.value.iter().cloned());
    table.finish()?;
    Ok(PowerDomain { name: name.value, nodes: nodes.value.into_iter().map(|node| node.value).collect() })
}

fn read_topic(
    source: &Source,
    mut table: Table<'_>,
    brokers: &[BrokerGroup],
    places: &mut Places,
) -> Result<Topic, ScenarioError> {
    let name = table.required::<String>("name")?;
    places.topic_names.push(name.clone());
    message::validate_topic(&name.value).map_err(|error| source.error(&name.at, error.to_string()))?;
    if message::is_system_topic(&name.value) {
        let message = format!("`{}` is a topic of RocketMQ itself: no client may make it", name.value);
        return Err(source.error(&name.at, message).with_help("choose another name"));
    }
    let queues = table.optional("queues")?;
    places.queues.push(queues.as_ref().map_or(name.at, |queues| queues.at.clone()));
    let queues = few(source, queues, 4, 1..=MOST_QUEUES, "`queues`")?;
    let on = match table.optional::<Vec<At<String>>>("brokers")? {
        None => brokers.iter().map(|group| group.name.clone()).collect(),
        Some(list) => {
            places.brokers.extend(list.value.iter().cloned());
            list.value.into_iter().map(|broker| broker.value).collect()
        }
    };
    table.finish()?;
    Ok(Topic { name: name.value, queues, brokers: on })
}

fn read_producer(
    source: &Source,
    mut table: Table<'_>,
    active: Duration,
    places: &mut Places,
) -> Result<ProducerGroup, ScenarioError> {
    let group = client_group(source, table.required("group")?)?;
    places.groups.push(group.clone());
    let instances = few(source, table.optional("instances")?, 1, 1..=MOST_INSTANCES, "`instances`")?;
    let topic = table.required::<String>("topic")?;
    places.topics.push(topic.clone());
    let mode = read_mode(source, &mut table)?;
    let load = match table.optional::<Vec<At<SendRow>>>("sends")? {
        Some(sends) => Load::Planned(read_sends(source, sends.value, instances, places)?),
        None => read_load(source, &mut table, active, places)?,
    };
    let config = read_settings(&mut table, SettingsOf::Producer, places)?;
    table.finish()?;
    Ok(ProducerGroup { group: group.value, instances, topic: topic.value, mode, config, load })
}

fn read_mode(source: &Source, table: &mut Table<'_>) -> Result<SendMode, ScenarioError> {
    const MODES: [&str; 3] = ["sync", "batch", "oneway"];
    let batch = table.optional::<u32>("batch")?;
    let mode = table.optional::<String>("mode")?;
    let mode = mode.unwrap_or(At { value: "sync".to_owned(), at: 0..0 });
    let parsed = match mode.value.as_str() {
        "sync" => SendMode::Sync,
        "oneway" => SendMode::Oneway,
        "batch" => SendMode::Batch { size: at_least_one(source, batch.clone(), 4, "`batch`")? },
        other => {
            return Err(unknown(source, &mode.at, "mode of sending", other, &MODES));
        }
    };
    match (batch, parsed) {
        (Some(batch), SendMode::Sync | SendMode::Oneway) => {
            Err(source.error(&batch.at, "`batch` has a meaning only with mode = \"batch\""))
        }
        (_, mode) => Ok(mode),
    }
}

fn read_load(
    source: &Source,
    table: &mut Table<'_>,
    active: Duration,
    places: &mut Places,
) -> Result<Load, ScenarioError> {
    let At { value: rate, at: rate_at } = table.required::<Rate>("rate")?;
    let body = table.optional("body")?;
    let body = body.unwrap_or(At { value: Span { least: Size(100), most: Size(1024) }, at: rate_at.clone() });
    places.loads.push(rate_at);
    places.bodies.push(At { value: body.value.most.0, at: body.at.clone() });
    no_empty_body(source, &body.at, body.value.least.0)?;
    let body = body.value;
    let tags = table.or::<Vec<At<String>>>("tags", Vec::new())?;
    tags.iter().try_for_each(|tag| check_tag(source, &tag.at, &tag.value))?;
    let start = table.optional::<Duration>("start")?;
    let end = table.optional::<Duration>("end")?;
    for (name, time) in [("start", &start), ("end", &end)] {
        places.times.extend(time.iter().map(|time| At { value: (name, time.value), at: time.at.clone() }));
    }
    let (from, to) = (start.map_or(Duration::ZERO, |at| at.value), end.as_ref().map_or(active, |at| at.value));
    let last = places.times.last().filter(|_| to <= from);
    if let Some(At { at, .. }) = last {
        let message = match end {
            Some(_) => "`end` is not after `start`: nothing would ever be sent",
            None => "`start` is not before the end of the active phase: nothing would ever be sent",
        };
        return Err(source.error(at, message));
    }
    Ok(Load::Drawn {
        rate,
        body_bytes: Span { least: body.least.0, most: body.most.0 },
        tags: tags.into_iter().map(|tag| tag.value).collect(),
        start: from,
        end: to,
    })
}

/// One entry of `sends`, before it is checked: `n by at body tag`, as one string so that a plan stays short.
struct SendRow(Send);

impl super::reader::Value for SendRow {
    const EXPECTED: &'static str = "a message such as \"7 by 0 at 1.25s, 812B, paid\"";

    fn from_toml(value: &toml::de::DeValue<'_>) -> Option<Result<SendRow, String>> {
        value.as_str().map(|text| parse_send(text).map(SendRow))
    }
}

/// Reads `7 by 0 at 1.25s, 812B, paid`.
fn parse_send(text: &str) -> Result<Send, String> {
    let wrong = || format!("`{text}` is not a message: write one as in \"7 by 0 at 1.25s, 812B, paid\"");
    let mut parts = text.splitn(3, ',').map(str::trim);
    let (head, body) = (parts.next().ok_or_else(wrong)?, parts.next().ok_or_else(wrong)?);
    let (who, at) = head.split_once(" at ").ok_or_else(wrong)?;
    let (n, by) = who.split_once(" by ").ok_or_else(wrong)?;
    Ok(Send {
        n: n.trim().parse().map_err(|_| wrong())?,
        by: by.trim().parse().map_err(|_| wrong())?,
        at: super::units::parse_time(at)?,
        body_bytes: super::units::parse_size(body)?,
        tag: parts.next().map(str::to_owned),
    })
}

fn read_sends(
    source: &Source,
    rows: Vec<At<SendRow>>,
    instances: u32,
    places: &mut Places,
) -> Result<Vec<Send>, ScenarioError> {
    let mut seen = std::collections::BTreeSet::new();
    let mut sends = Vec::with_capacity(rows.len());
    let first = rows.first().map_or(0..0, |row| row.at.clone());
    let largest = rows.iter().max_by_key(|row| row.value.0.body_bytes);
    let largest =
        largest.map_or(At { value: 0, at: 0..0 }, |row| At { value: row.value.0.body_bytes, at: row.at.clone() });
    places.loads.push(first);
    places.bodies.push(largest);
    for row in rows {
        let send = row.value.0;
        no_empty_body(source, &row.at, send.body_bytes)?;
        if send.by >= instances {
            let message = format!("message {} is sent by producer {}, but `instances` is {instances}", send.n, send.by);
            return Err(source.error(&row.at, message));
        }
        if !seen.insert((send.by, send.n)) {
            return Err(source.error(&row.at, format!("message {} by {} is there twice", send.n, send.by)));
        }
        places.times.push(At { value: ("sends", send.at), at: row.at });
        sends.push(send);
    }
    Ok(sends)
}

fn read_consumer(source: &Source, mut table: Table<'_>, places: &mut Places) -> Result<ConsumerGroup, ScenarioError> {
    let group = client_group(source, table.required("group")?)?;
    places.groups.push(group.clone());
    let instances = few(source, table.optional("instances")?, 1, 0..=MOST_INSTANCES, "`instances`")?;
    let join = table.optional::<Duration>("join")?;
    places.times.extend(join.iter().map(|join| At { value: ("join", join.value), at: join.at.clone() }));
    let mut scale = Vec::new();
    let mut before = join.as_ref().map_or(Duration::ZERO, |join| join.value);
    for mut step in table.tables("scale")? {
        let at = step.required::<Duration>("at")?;
        if at.value < before {
            return Err(source.error(&at.at, "`scale` steps must be in order of time, after `join`"));
        }
        before = at.value;
        places.times.push(At { value: ("at", at.value), at: at.at });
        let size = Some(step.required("instances")?);
        scale.push(Scale { at: at.value, instances: few(source, size, 0, 0..=MOST_INSTANCES, "`instances`")? });
        step.finish()?;
    }
    let subscribe = table.required::<String>("subscribe")?;
    let (topic, tags) = parse_subscription(source, &subscribe)?;
    places.topics.push(At { value: topic.clone(), at: subscribe.at });
    let millis = |ms| Duration::from_millis(ms);
    let handling = table.or("handling", Span { least: millis(1), most: millis(5) })?;
    let later = table.or("later", Percent(0))?;
    let later_times = table.optional::<u32>("later-times")?;
    if let Some(times) = later_times.as_ref().filter(|_| later.0 == 0) {
        return Err(source.error(&times.at, "`later-times` counts refusals, and without `later` nothing is refused"));
    }
    let later_times = few(source, later_times, 1, 1..=100, "`later-times`")?;
    let config = read_settings(&mut table, SettingsOf::Consumer, places)?;
    table.finish()?;
    if instances == 0 && scale.iter().all(|step| step.instances == 0) {
        return Err(source.error(&group.at, format!("the group `{}` never has a member", group.value)));
    }
    Ok(ConsumerGroup {
        group: group.value,
        instances,
        join: join.map_or(Duration::ZERO, |join| join.value),
        scale,
        topic,
        tags,
        handling,
        later_percent: later.0,
        later_times,
        config,
    })
}

/// Reads `orders: paid || refund`, `orders: *` or `orders`.
fn parse_subscription(source: &Source, text: &At<String>) -> Result<(String, Vec<String>), ScenarioError> {
    let (topic, tags) = text.value.split_once(':').unwrap_or((&text.value, "*"));
    let topic = topic.trim().to_owned();
    if tags.trim() == "*" {
        return Ok((topic, Vec::new()));
    }
    let tags: Vec<String> = tags.split("||").map(|tag| tag.trim().to_owned()).collect();
    for tag in &tags {
        if tag == "*" {
            let error = source.error(&text.at, "`*` stands beside tags: it means all of them only by itself");
            return Err(error.with_help("write \"orders: *\", or name the tags"));
        }
        check_tag(source, &text.at, tag)
            .map_err(|error| error.with_help("write tags as in \"orders: paid || refund\""))?;
    }
    Ok((topic, tags))
}

/// A tag is one word: a subscription to any other could not be written.
fn check_tag(source: &Source, at: &Range<usize>, tag: &str) -> Result<(), ScenarioError> {
    if tag.is_empty() {
        return Err(source.error(at, "a tag is missing"));
    }
    match tag.chars().find(|c| c.is_whitespace() || c.is_control() || *c == '|') {
        Some(found) => Err(source.error(at, format!("`{tag}` is not a tag: it holds {found:?}"))),
        None => Ok(()),
    }
}

fn no_empty_body(source: &Source, at: &Range<usize>, bytes: u64) -> Result<(), ScenarioError> {
    match bytes {
        0 => Err(source.error(at, "a body of 0B: producers refuse to send empty bodies")),
        _ => Ok(()),
    }
}

fn read_expect(source: &Source, mut table: Table<'_>, places: &mut Places) -> Result<Expect, ScenarioError> {
    let failures = || super::CHECKERS.into_iter().chain(super::FAILURES);
    let verdict = table.optional::<String>("verdict")?;
    let fails = match &verdict {
        None => None,
        Some(At { value, .. }) if value == "pass" => None,
        Some(At { value, at }) => match value.strip_prefix("fail:") {
            Some(checker) if failures().any(|known| known == checker) => Some(checker.to_owned()),
            Some(checker) => return Err(unknown(source, at, "checker", checker, &failures().collect::<Vec<_>>())),
            None => return Err(source.error(at, format!("`{value}` is not a verdict: write pass or fail:lost"))),
        },
    };
    let within = table.optional::<u32>("within")?;
    if let Some(within) = within.as_ref().filter(|within| fails.is_none() || within.value == 0) {
        let message =
            "`within` says in how many seeds a checker must fail: it is at least 1, and needs a verdict fail:…";
        return Err(source.error(&within.at, message));
    }
    let mut bounds = BTreeMap::new();
    for key in super::CHECKERS.into_iter().chain(["legally-lost"]) {
        if let Some(bound) = table.optional::<Bound>(key)? {
            bounds.insert(key.to_owned(), bound.value.0);
        }
    }
    places.converged = table.optional::<Duration>("converged")?;
    let converged = places.converged.as_ref().map(|time| time.value);
    let sometimes = table.or::<Vec<At<String>>>("sometimes", Vec::new())?;
    for mark in &sometimes {
        let marks: Vec<&str> = MARKS.into_iter().chain(points::marks()).collect();
        if !marks.contains(&mark.value.as_str()) {
            return Err(unknown(source, &mark.at, "mark", &mark.value, &marks));
        }
    }
    let mut at_least = BTreeMap::new();
    if let Some(counts) = table.table("at-least")? {
        for (name, count) in counts.rest::<u64>()? {
            if !super::COUNTS.contains(&name.value.as_str()) {
                return Err(unknown(source, &name.at, "count", &name.value, &super::COUNTS));
            }
            at_least.insert(name.value, count.value);
        }
    }
    let must_check = read_must_check(source, &mut table)?;
    table.finish()?;
    let sometimes = sometimes.into_iter().map(|mark| mark.value).collect();
    Ok(Expect {
        fails,
        within: within.map_or(WITHIN_DEFAULT, |within| within.value),
        bounds,
        converged,
        sometimes,
        at_least,
        must_check,
    })
}

/// Reads the checkers that must have had something to check.
fn read_must_check(source: &Source, table: &mut Table<'_>) -> Result<Option<Vec<String>>, ScenarioError> {
    let Some(names) = table.optional::<Vec<At<String>>>("must-check")? else { return Ok(None) };
    for name in &names.value {
        if !super::CHECKERS.contains(&name.value.as_str()) {
            return Err(unknown(source, &name.at, "checker", &name.value, &super::CHECKERS));
        }
    }
    Ok(Some(names.value.into_iter().map(|name| name.value).collect()))
}

fn read_settings(table: &mut Table<'_>, of: SettingsOf, places: &mut Places) -> Result<Settings, ScenarioError> {
    let Some(config) = table.table("config")? else { return Ok(Vec::new()) };
    let mut placed = Vec::new();
    for (key, value) in config.rest::<Setting>()? {
        placed.push(At { value: (key.value, value.value.0), at: key.at.start..value.at.end });
    }
    let settings = placed.iter().map(|setting| setting.value.clone()).collect();
    places.settings.push((of, placed));
    Ok(settings)
}

/// A group name: it becomes part of node names and of RocketMQ's group names.
fn group_name(source: &Source, name: At<String>) -> Result<At<String>, ScenarioError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.value.is_empty() || name.value.len() > 120 || !name.value.chars().all(legal) {
        let message = format!("`{}` is not a name: use letters, digits, - and _", name.value);
        return Err(source.error(&name.at, message));
    }
    Ok(name)
}

/// The name of a group of clients.
fn client_group(source: &Source, name: At<String>) -> Result<At<String>, ScenarioError> {
    let name = group_name(source, name)?;
    if message::is_system_group(&name.value) {
        let message = format!("`{}` is a group of RocketMQ itself", name.value);
        return Err(source.error(&name.at, message).with_help("choose another name"));
    }
    Ok(name)
}

/// A number within bounds, or the default.
fn few(
    source: &Source,
    value: Option<At<u32>>,
    default: u32,
    bounds: std::ops::RangeInclusive<u32>,
    what: &str,
) -> Result<u32, ScenarioError> {
    match value {
        Some(At { value, at }) if value > *bounds.end() => {
            Err(source.error(&at, format!("{what} is {value}, the most is {}", bounds.end())))
        }
        value if *bounds.start() > 0 => at_least_one(source, value, default, what),
        value => Ok(value.map_or(default, |found| found.value)),
    }
}

pub(super) fn at_least_one(
    source: &Source,
    value: Option<At<u32>>,
    default: u32,
    what: &str,
) -> Result<u32, ScenarioError> {
    match value {
        Some(At { value: 0, at }) => Err(source.error(&at, format!("{what} is 0, it must be at least 1"))),
        Some(At { value, .. }) => Ok(value),
        None => Ok(default),
    }
}

pub(super) fn choice<T: Copy>(
    source: &Source,
    value: Option<At<String>>,
    what: &str,
    names: &[(&'static str, T)],
) -> Result<Option<T>, ScenarioError> {
    let Some(value) = value else { return Ok(None) };
    if let Some((_, found)) = names.iter().find(|(name, _)| *name == value.value) {
        return Ok(Some(*found));
    }
    let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    Err(unknown(source, &value.at, what, &value.value, &known))
}

/// The error for a name outside a closed list, with the nearest right one.
pub(super) fn unknown(source: &Source, at: &Range<usize>, what: &str, name: &str, known: &[&str]) -> ScenarioError {
    let error = source.error(at, format!("unknown {what} `{name}`"));
    match (nearest(name, known), known.len()) {
        (Some(near), _) => error.with_help(format!("did you mean `{near}`?")),
        (None, count) if count > LISTED_MAX => {
            let listed = known[..LISTED_MAX].join(", ");
            error.with_help(format!("known: {listed} and {} more", count - LISTED_MAX))
        }
        (None, _) => error.with_help(format!("known: {}", known.join(", "))),
    }
}
