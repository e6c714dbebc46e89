//! Writes a scenario as a file that reads back as the same scenario.

use std::fmt::Write as _;

use super::{
    Back, ClockFault, ConsumerGroup, Expect, Extreme, FORMAT, Fault, FaultKind, FileSystem, LinkFault, Load, Members,
    Nemesis, Port, ProducerGroup, Scenario, SeedPins, SendMode, Settings, When,
    kinds::BUGGIFY_PPM,
    units::{Span, print_chance, print_rate, print_size, print_span, print_time},
};
use crate::{
    disk::{Hits, Survival},
    points::BUGGIFY,
};

/// Lines `key = value` of one table.
struct Lines(String);

impl Lines {
    fn table(&mut self, head: &str) {
        self.line(format_args!("\n{head}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        self.0.write_fmt(line).expect("writing into a string cannot fail");
        self.0.push('\n');
    }

    fn text(&mut self, key: &str, value: &str) {
        self.line(format_args!("{key} = {}", quoted(value)));
    }

    fn number(&mut self, key: &str, value: u64) {
        self.line(format_args!("{key} = {value}"));
    }

    fn list<'a>(&mut self, key: &str, values: impl Iterator<Item = &'a str>) {
        self.line(format_args!("{key} = [{}]", values.map(quoted).collect::<Vec<_>>().join(", ")));
    }

    fn settings(&mut self, settings: &Settings) {
        if !settings.is_empty() {
            let pairs: Vec<_> =
                settings.iter().map(|(key, value)| format!("{} = {}", key_of(key), quoted(value))).collect();
            self.line(format_args!("config = {{ {} }}", pairs.join(", ")));
        }
    }
}

impl Scenario {
    /// The scenario as a file.
    #[must_use]
    pub fn print(&self) -> String {
        let mut out = Lines(String::new());
        out.number("format", FORMAT);
        if !self.about.is_empty() {
            out.text("about", &self.about);
        }
        out.text("active", &print_time(self.active));
        out.text("settle", &print_time(self.settle));
        if !self.permanent.is_empty() {
            out.list("permanent", self.permanent.iter().map(String::as_str));
        }
        print_seeds(&mut out, &self.seeds);
        out.table("[[namesrv]]");
        out.number("count", self.namesrvs.into());
        out.settings(&self.namesrv_config);
        for group in &self.brokers {
            out.table("[[broker]]");
            out.text("name", &group.name);
            out.list("replicas", group.replicas.iter().map(|role| role.name()));
            out.text("disk", &print_size(group.disk_bytes));
            if group.file_system != FileSystem::DEFAULT {
                out.text("file-system", name_of(&FileSystem::NAMES, group.file_system));
            }
            out.settings(&group.config);
        }
        if !self.claim.is_empty() {
            let entries: Vec<String> = self
                .claim
                .iter()
                .map(|entry| match entry.count {
                    Some(count) => format!("{}:{count}", entry.kind),
                    None => entry.kind.clone(),
                })
                .collect();
            out.table("[claim]");
            out.list("survives", entries.iter().map(String::as_str));
        }
        for domain in &self.domains {
            out.table("[[domain]]");
            out.text("name", &domain.name);
            out.list("nodes", domain.nodes.iter().map(String::as_str));
        }
        for topic in &self.topics {
            out.table("[[topic]]");
            out.text("name", &topic.name);
            out.number("queues", topic.queues.into());
            out.list("brokers", topic.brokers.iter().map(String::as_str));
        }
        self.producers.iter().for_each(|group| print_producer(&mut out, group));
        self.consumers.iter().for_each(|group| print_consumer(&mut out, group));
        self.faults.iter().for_each(|fault| print_fault(&mut out, fault));
        if let Some(nemesis) = &self.nemesis {
            print_nemesis(&mut out, nemesis);
        }
        print_expect(&mut out, &self.expect);
        out.0
    }
}

fn print_seeds(out: &mut Lines, pins: &SeedPins) {
    if *pins == SeedPins::default() {
        return;
    }
    out.table("[seeds]");
    let seeds = [
        ("root", pins.root),
        ("plan", pins.plan),
        ("work", pins.work),
        ("net", pins.net),
        ("disk", pins.disk),
        ("clock", pins.clock),
        ("sched", pins.sched),
    ];
    for (name, seed) in seeds {
        // TOML integers end at 2^63: larger seeds are written in the form that keeps all 64 bits.
        match seed {
            Some(seed) if i64::try_from(seed).is_ok() => out.number(name, seed),
            Some(seed) => out.text(name, &format!("{seed:#018x}")),
            None => {}
        }
    }
}

fn print_producer(out: &mut Lines, group: &ProducerGroup) {
    out.table("[[producer]]");
    out.text("group", &group.group);
    out.number("instances", group.instances.into());
    out.text("topic", &group.topic);
    match group.mode {
        SendMode::Sync => out.text("mode", "sync"),
        SendMode::Oneway => out.text("mode", "oneway"),
        SendMode::Batch { size } => {
            out.text("mode", "batch");
            out.number("batch", size.into());
        }
    }
    match &group.load {
        Load::Drawn { rate, body_bytes, tags, start, end } => {
            out.text("rate", &print_rate(*rate));
            out.text("body", &print_span(*body_bytes, print_size));
            if !tags.is_empty() {
                out.list("tags", tags.iter().map(String::as_str));
            }
            out.text("start", &print_time(*start));
            out.text("end", &print_time(*end));
        }
        Load::Planned(sends) => {
            out.line(format_args!("sends = ["));
            for send in sends {
                let mut row =
                    format!("{} by {} at {}, {}", send.n, send.by, print_time(send.at), print_size(send.body_bytes));
                if let Some(tag) = &send.tag {
                    row.push_str(", ");
                    row.push_str(tag);
                }
                out.line(format_args!("  {},", quoted(&row)));
            }
            out.line(format_args!("]"));
        }
    }
    out.settings(&group.config);
}

fn print_consumer(out: &mut Lines, group: &ConsumerGroup) {
    out.table("[[consumer]]");
    out.text("group", &group.group);
    out.number("instances", group.instances.into());
    out.text("join", &print_time(group.join));
    if !group.scale.is_empty() {
        let step =
            |step: &super::Scale| format!("{{ at = \"{}\", instances = {} }}", print_time(step.at), step.instances);
        let steps: Vec<String> = group.scale.iter().map(step).collect();
        out.line(format_args!("scale = [{}]", steps.join(", ")));
    }
    let tags = if group.tags.is_empty() { "*".to_owned() } else { group.tags.join(" || ") };
    out.text("subscribe", &format!("{}: {tags}", group.topic));
    out.text("handling", &print_span(group.handling, print_time));
    if group.later_percent > 0 {
        out.text("later", &format!("{}%", group.later_percent));
    }
    if group.later_percent > 0 && group.later_times > 1 {
        out.line(format_args!("later-times = {}", group.later_times));
    }
    out.settings(&group.config);
}

fn print_fault(out: &mut Lines, fault: &Fault) {
    out.table("[[fault]]");
    out.text("id", &fault.id);
    match &fault.when {
        When::At(at) => out.text("at", &print_span(*at, print_time)),
        When::On { point, node, nth } => {
            let (point, node) = (quoted(point), quoted(node));
            out.line(format_args!("on = {{ point = {point}, node = {node}, nth = {nth} }}"));
        }
    }
    if let FaultKind::Hold { gate, until } = &fault.kind {
        let (point, node) = (quoted(&gate.point), quoted(&gate.node));
        let until = until.as_ref().map(|fault| format!(", until = {}", quoted(fault))).unwrap_or_default();
        out.line(format_args!("hold = {{ point = {point}, node = {node}, nth = {}{until} }}", gate.nth));
    } else {
        out.text("kind", fault.kind.name());
        if let Some(node) = fault.kind.node() {
            out.text("node", node);
        }
    }
    print_kind(out, &fault.kind);
    if let (Some(lasts), Some(key)) = (fault.lasts, fault.kind.lasting().key()) {
        out.text(key, &print_span(lasts, print_time));
    }
}

/// What belongs to a kind besides its node.
fn print_kind(out: &mut Lines, kind: &FaultKind) {
    if let Some(link) = kind.link() {
        print_link(out, link);
    }
    match kind {
        FaultKind::DomainPowerLoss { domain, style, garbage } => {
            out.text("domain", domain);
            print_outage(out, *style, *garbage);
        }
        FaultKind::ConfigChange { topic, queues } => {
            out.text("topic", topic);
            out.number("queues", (*queues).into());
        }
        FaultKind::Drain { topic, .. } => out.text("topic", topic),
        FaultKind::Buggify { names, chance_ppm } => {
            if *names != BUGGIFY {
                out.list("names", names.iter().map(String::as_str));
            }
            if *chance_ppm != BUGGIFY_PPM {
                out.text("chance", &print_chance(*chance_ppm));
            }
        }
        FaultKind::RebalanceStorm { group, every } => {
            out.text("group", group);
            out.text("every", &print_span(*every, print_time));
        }
        FaultKind::PowerLoss { style, garbage, .. } => print_outage(out, *style, *garbage),
        FaultKind::Cut { .. } | FaultKind::Latency { .. } | FaultKind::OnLink { .. } => print_of_link(out, kind),
        FaultKind::Partition { members: Some(members), .. } => {
            let key = if matches!(members, Members::Among(_)) { "among" } else { "order" };
            out.list(key, members.names().iter().map(String::as_str));
        }
        FaultKind::DiskFill { .. }
        | FaultKind::Media { .. }
        | FaultKind::DiskError { .. }
        | FaultKind::TornFlush { .. }
        | FaultKind::FilesLost { .. }
        | FaultKind::RestoreBackup { .. }
        | FaultKind::DiskSlow { .. } => print_disk(out, kind),
        FaultKind::Clock { what, back, .. } => print_clock(out, *what, *back),
        FaultKind::Kill { .. }
        | FaultKind::Panic { .. }
        | FaultKind::Stop { .. }
        | FaultKind::Pause { .. }
        | FaultKind::DiskStall { .. }
        | FaultKind::DiskGone { .. }
        | FaultKind::DiskReplaced { .. }
        | FaultKind::DeleteExpired { .. }
        | FaultKind::Promote { .. }
        | FaultKind::Partition { .. }
        | FaultKind::AcceptFull { .. }
        | FaultKind::ConnectHang { .. }
        | FaultKind::Hold { .. } => {}
    }
}

fn print_of_link(out: &mut Lines, kind: &FaultKind) {
    match kind {
        FaultKind::Cut { port, hold, .. } => {
            print_port(out, *port);
            if *hold {
                out.line(format_args!("hold = true"));
            }
        }
        FaultKind::Latency { extra, .. } => out.text("extra", &print_span(*extra, print_time)),
        FaultKind::OnLink { port, what, .. } => {
            print_port(out, *port);
            match what {
                LinkFault::Loss(ppm) => out.text("chance", &print_chance(*ppm)),
                LinkFault::Bandwidth(bytes) => out.text("limit", &format!("{}/s", print_size(*bytes))),
                LinkFault::Slow(factor) => out.number("factor", (*factor).into()),
                LinkFault::Flap { up, down } => {
                    out.text("up", &print_span(*up, print_time));
                    out.text("down", &print_span(*down, print_time));
                }
                LinkFault::Reset => {}
            }
        }
        _ => {}
    }
}

fn print_outage(out: &mut Lines, style: Option<Survival>, garbage: bool) {
    if let Some(style) = style {
        out.text("style", name_of(&Survival::NAMES, style));
    }
    if garbage {
        out.line(format_args!("garbage = true"));
    }
}

/// The same for kinds of a disk.
fn print_disk(out: &mut Lines, kind: &FaultKind) {
    match kind {
        FaultKind::DiskFill { percent, ramp, .. } => {
            out.text("percent", &format!("{percent}%"));
            if !ramp.is_zero() {
                out.text("ramp", &print_time(*ramp));
            }
        }
        FaultKind::Media { path, count, .. } => {
            print_path(out, path);
            out.number("count", (*count).into());
        }
        FaultKind::DiskError { path, hits, .. } => print_disk_error(out, path, *hits),
        FaultKind::TornFlush { path, hits, within, .. } => {
            print_disk_error(out, path, *hits);
            if let Some(within) = within {
                out.text("within", &print_time(*within));
            }
        }
        FaultKind::FilesLost { path, .. } => print_path(out, path),
        FaultKind::RestoreBackup { taken, .. } => out.text("taken", &print_time(*taken)),
        FaultKind::DiskSlow { factor, .. } => out.number("factor", (*factor).into()),
        _ => {}
    }
}

fn print_path(out: &mut Lines, path: &str) {
    if path != "*" {
        out.text("path", path);
    }
}

fn print_disk_error(out: &mut Lines, path: &str, hits: Hits) {
    print_path(out, path);
    match hits {
        Hits::Nth(nth) => out.number("nth", nth.into()),
        Hits::Chance(1_000_000) => {}
        Hits::Chance(ppm) => out.text("chance", &print_chance(ppm)),
    }
}

fn print_clock(out: &mut Lines, what: ClockFault, back: Back) {
    match what {
        ClockFault::Skew(by_ms) | ClockFault::Step(by_ms) => out.text("by", &format!("{by_ms}ms")),
        ClockFault::Drift(ppm) => out.text("rate", &format!("{ppm}ppm")),
        ClockFault::Strobe { by_ms, every } => {
            out.text("by", &format!("{by_ms}ms"));
            out.text("every", &print_span(every, print_time));
        }
        ClockFault::Extreme(to) => out.text("to", name_of(&Extreme::NAMES, to)),
    }
    if back != Back::Step {
        out.text("back", name_of(&Back::NAMES, back));
    }
}

fn print_port(out: &mut Lines, port: Option<Port>) {
    if let Some(port) = port {
        out.text("port", name_of(&Port::NAMES, port));
    }
}

fn print_nemesis(out: &mut Lines, nemesis: &Nemesis) {
    out.table("[nemesis]");
    out.text("mode", "swarm");
    out.number("max-down", nemesis.max_down.into());
    if !nemesis.spare.is_empty() {
        out.list("spare", nemesis.spare.iter().map(String::as_str));
    }
    if !nemesis.vary.is_empty() {
        out.list("vary", nemesis.vary.iter().map(|part| part.name()));
    }
    if !nemesis.rates.is_empty() {
        let rate = |(family, rate): (&String, &Span<u64>)| {
            format!("{family} = {}", quoted(&super::nemesis::print_rate(*rate)))
        };
        let rates: Vec<String> = nemesis.rates.iter().map(rate).collect();
        out.line(format_args!("rates = {{ {} }}", rates.join(", ")));
    }
}

fn print_link(out: &mut Lines, link: &super::Link) {
    let arrow = if link.both { "<->" } else { "->" };
    out.text("link", &format!("{} {arrow} {}", link.from, link.to));
}

fn print_expect(out: &mut Lines, expect: &Expect) {
    out.table("[expect]");
    if let Some(checker) = &expect.fails {
        out.text("verdict", &format!("fail:{checker}"));
        out.number("within", expect.within.into());
    }
    for (name, bound) in &expect.bounds {
        match bound {
            Span { least: 0, most } => out.number(name, *most),
            Span { least, most } => out.text(name, &format!("{least}..{most}")),
        }
    }
    if let Some(converged) = expect.converged {
        out.text("converged", &print_time(converged));
    }
    if !expect.sometimes.is_empty() {
        out.list("sometimes", expect.sometimes.iter().map(String::as_str));
    }
    if !expect.at_least.is_empty() {
        let counts: Vec<String> = expect.at_least.iter().map(|(name, count)| format!("{name} = {count}")).collect();
        out.line(format_args!("at-least = {{ {} }}", counts.join(", ")));
    }
    if let Some(checkers) = &expect.must_check {
        out.list("must-check", checkers.iter().map(String::as_str));
    }
}

fn name_of<T: Copy + PartialEq>(names: &[(&'static str, T)], value: T) -> &'static str {
    names.iter().find(|(_, known)| *known == value).expect("the list of names holds every value").0
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A TOML key: bare if it may be.
fn key_of(key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare { key.to_owned() } else { quoted(key) }
}
