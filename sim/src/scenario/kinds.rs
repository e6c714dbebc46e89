//! `[[fault]]`: when a fault happens, what happens, and for how long.

mod triggers;

use std::time::Duration;

use super::{
    Back, ClockFault, Extreme, Fault, FaultKind, Lasting, Link, LinkFault, Members, Port, ScenarioError, Shape,
    USUAL_FILL_PERCENT,
    reader::{At, BytesPerSecond, Chance, Drift, Percent, Source, Table},
    tables::{Places, at_least_one, choice, unknown},
    units::{Span, print_time},
};
use crate::{
    disk::{DiskError, Hits, Media, Survival},
    points::BUGGIFY,
};

/// Every time, in parts per million.
const ALWAYS_PPM: u32 = 1_000_000;

/// How many of a million visits to a `buggify!` say yes, unless the file says otherwise (`spec/simulation.md` 5.5).
pub(super) const BUGGIFY_PPM: u32 = 250_000;

/// The shortest turn of something that goes to and fro.
const SHORTEST_TURN: Duration = Duration::from_millis(1);

pub(super) fn read(source: &Source, mut table: Table<'_>, places: &mut Places) -> Result<Fault, ScenarioError> {
    let id = table.required::<String>("id")?;
    places.ids.push(id.clone());
    if let Some((when, kind)) = triggers::read_hold(source, &mut table, places)? {
        let lasts = read_lasting(&mut table, "for", places)?;
        table.finish()?;
        return Ok(Fault { id: id.value, when, kind, lasts });
    }
    let when = triggers::read_when(source, &mut table, places)?;
    let kind = table.required::<String>("kind")?;
    let kind = Kinds { source, table: &mut table, places }.read(&kind)?;
    let lasts = match kind.lasting().key() {
        Some(key) => read_lasting(&mut table, key, places)?,
        None => None,
    };
    if let (FaultKind::DiskFill { .. }, Some(lasts), Some(ramp)) = (&kind, lasts, places.ramps.last())
        && ramp.value > lasts.least
    {
        let (ramp_is, lasts) = (print_time(ramp.value), print_time(lasts.least));
        let message = format!("`ramp` is {ramp_is}, longer than the {lasts} that the fault may last");
        return Err(source.error(&ramp.at, message).with_help("it would end before the disk is full"));
    }
    if kind.lasting() == Lasting::Moment
        && let Some(lasts) = table.optional::<Span<Duration>>("for")?
    {
        return Err(source.error(&lasts.at, format!("`{}` happens in a moment: it has no `for`", kind.name())));
    }
    table.finish()?;
    Ok(Fault { id: id.value, when, kind, lasts })
}

fn read_lasting(
    table: &mut Table<'_>,
    key: &'static str,
    places: &mut Places,
) -> Result<Option<Span<Duration>>, ScenarioError> {
    let lasts = table.optional::<Span<Duration>>(key)?;
    places.lasting.extend(lasts.iter().map(|time| At { value: (key, time.value.most), at: time.at.clone() }));
    Ok(lasts.map(|time| time.value))
}

/// Reads what belongs to a kind of fault.
struct Kinds<'r, 'a> {
    source: &'r Source,
    table: &'r mut Table<'a>,
    places: &'r mut Places,
}

impl Kinds<'_, '_> {
    fn read(&mut self, kind: &At<String>) -> Result<FaultKind, ScenarioError> {
        let name = kind.value.as_str();
        if let Some((_, shape)) = Shape::NAMES.iter().find(|(known, _)| *known == name) {
            return self.partition(*shape, kind);
        }
        let found = match self.of_process(name)? {
            None => self.of_network(name)?,
            found => found,
        };
        let found = match found {
            None => self.of_machine(name)?,
            found => found,
        };
        found.ok_or_else(|| unknown(self.source, &kind.at, "kind of fault", name, &FaultKind::NAMES))
    }

    fn of_process(&mut self, name: &str) -> Result<Option<FaultKind>, ScenarioError> {
        Ok(Some(match name {
            "kill" => FaultKind::Kill { node: self.node()? },
            "stop" => FaultKind::Stop { node: self.node()? },
            "panic" => FaultKind::Panic { node: self.node()? },
            "config-change" => {
                let topic = self.table.required::<String>("topic")?;
                self.places.topics.push(topic.clone());
                let queues = self.table.required::<u32>("queues")?;
                self.places.changes.push(At { value: (topic.value.clone(), queues.value), at: queues.at });
                FaultKind::ConfigChange { topic: topic.value, queues: queues.value }
            }
            "drain" => {
                let (topic, node) = (self.table.required::<String>("topic")?, self.node()?);
                self.places.topics.push(topic.clone());
                self.places.drains.push(At { value: (topic.value.clone(), node.clone()), at: topic.at });
                FaultKind::Drain { node, topic: topic.value }
            }
            "delete-expired" => FaultKind::DeleteExpired { node: self.node()? },
            "promote" => FaultKind::Promote { node: self.node()? },
            "rebalance-storm" => {
                let group = self.table.required::<String>("group")?;
                self.places.consumers.push(group.clone());
                FaultKind::RebalanceStorm { group: group.value, every: self.turn("every")? }
            }
            "power-loss" => {
                let style = choice(self.source, self.table.optional("style")?, "style", &Survival::NAMES)?;
                let garbage = self.table.or("garbage", false)?;
                match self.table.optional::<String>("domain")? {
                    Some(domain) => {
                        self.places.domains.push(domain.clone());
                        FaultKind::DomainPowerLoss { domain: domain.value, style, garbage }
                    }
                    None => {
                        let node = self.node().map_err(|error| match error.advice() {
                            Some(_) => error,
                            None => error.with_help("or write `domain`, whose nodes lose it together"),
                        })?;
                        FaultKind::PowerLoss { node, style, garbage }
                    }
                }
            }
            "pause" => FaultKind::Pause { node: self.node()? },
            "buggify" => self.buggify()?,
            _ => return Ok(None),
        }))
    }

    /// Reads `names = ["store.flushed-early", …]`, all of them if it is not there.
    fn buggify(&mut self) -> Result<FaultKind, ScenarioError> {
        let chance_ppm = self.table.optional::<Chance>("chance")?.map_or(BUGGIFY_PPM, |chance| chance.value.0);
        let Some(listed) = self.table.optional::<Vec<At<String>>>("names")? else {
            return Ok(FaultKind::Buggify { names: BUGGIFY.map(str::to_owned).to_vec(), chance_ppm });
        };
        if listed.value.is_empty() {
            return Err(self.source.error(&listed.at, "`names` is empty: leave it out for all of them"));
        }
        let mut names: Vec<String> = Vec::with_capacity(listed.value.len());
        for name in listed.value {
            if !BUGGIFY.contains(&name.value.as_str()) {
                return Err(unknown(self.source, &name.at, "place to behave unusually", &name.value, &BUGGIFY));
            }
            if names.contains(&name.value) {
                return Err(self.source.error(&name.at, format!("`{}` stands twice in `names`", name.value)));
            }
            names.push(name.value);
        }
        Ok(FaultKind::Buggify { names, chance_ppm })
    }

    fn of_network(&mut self, name: &str) -> Result<Option<FaultKind>, ScenarioError> {
        let what = match name {
            "cut" => {
                let (port, hold) = (self.port()?, self.table.or("hold", false)?);
                return Ok(Some(FaultKind::Cut { link: self.link()?, port, hold }));
            }
            "latency" => {
                let extra = self.table.required("extra")?.value;
                return Ok(Some(FaultKind::Latency { link: self.link()?, extra }));
            }
            "accept-full" => return Ok(Some(FaultKind::AcceptFull { node: self.node()? })),
            "connect-hang" => return Ok(Some(FaultKind::ConnectHang { node: self.node()? })),
            "loss" => LinkFault::Loss(self.table.required::<Chance>("chance")?.value.0),
            "bandwidth" => LinkFault::Bandwidth(self.table.required::<BytesPerSecond>("limit")?.value.0),
            "slow-link" => LinkFault::Slow(self.factor(2)?),
            "flap" => LinkFault::Flap { up: self.turn("up")?, down: self.turn("down")? },
            "conn-reset" => LinkFault::Reset,
            _ => return Ok(None),
        };
        Ok(Some(FaultKind::OnLink { port: self.port()?, link: self.link()?, what }))
    }

    fn of_machine(&mut self, name: &str) -> Result<Option<FaultKind>, ScenarioError> {
        Ok(Some(match name {
            "disk-fill" => {
                let percent = self.percent()?;
                let ramp = self.table.optional::<Duration>("ramp")?;
                self.places
                    .lasting
                    .extend(ramp.iter().map(|ramp| At { value: ("ramp", ramp.value), at: ramp.at.clone() }));
                self.places.ramps.extend(ramp.clone());
                let ramp = ramp.map_or(Duration::ZERO, |ramp| ramp.value);
                FaultKind::DiskFill { node: self.node()?, percent, ramp }
            }
            "disk-slow" => {
                let factor = self.factor(2)?;
                FaultKind::DiskSlow { node: self.node()?, factor }
            }
            "lost-write" => self.disk_error(DiskError::LostWrite)?,
            "misdirected-write" => self.disk_error(DiskError::MisdirectedWrite)?,
            "lying-flush" => self.disk_error(DiskError::LyingFlush)?,
            "bit-rot" => self.media(Media::BitRot)?,
            "latent-sector" => self.media(Media::LatentSector)?,
            "disk-replaced" => FaultKind::DiskReplaced { node: self.node()? },
            "restore-backup" => {
                let taken = self.table.required::<Duration>("taken")?;
                self.places.backups.push(taken.clone());
                FaultKind::RestoreBackup { node: self.node()?, taken: taken.value }
            }
            "disk-gone" => FaultKind::DiskGone { node: self.node()? },
            "files-lost" => self.files_lost()?,
            "disk-stall" => FaultKind::DiskStall { node: self.node()? },
            "eio-read" => self.disk_error(DiskError::Read)?,
            "eio-write" => self.disk_error(DiskError::Write)?,
            "eio-flush" => self.disk_error(DiskError::Flush)?,
            "short-write" => self.disk_error(DiskError::ShortWrite)?,
            "short-read" => self.disk_error(DiskError::ShortRead)?,
            "mlock-refused" => self.disk_error(DiskError::Lock)?,
            "torn-flush" => {
                let hits = self.hits()?;
                let within = self.table.optional::<Duration>("within")?;
                self.places
                    .lasting
                    .extend(within.iter().map(|time| At { value: ("within", time.value), at: time.at.clone() }));
                let within = within.map(|time| time.value);
                FaultKind::TornFlush { path: self.path()?, node: self.node()?, hits, within }
            }
            "skew" => {
                let by_ms = read_signed(self.source, self.table.required("by")?)?;
                self.clock(ClockFault::Skew(by_ms))?
            }
            "drift" => {
                let rate = self.table.required::<Drift>("rate")?.value.0;
                self.clock(ClockFault::Drift(rate))?
            }
            "step" => {
                let by_ms = self.jump()?;
                self.clock(ClockFault::Step(by_ms))?
            }
            "strobe" => {
                let (by_ms, every) = (self.jump()?, self.turn("every")?);
                self.clock(ClockFault::Strobe { by_ms, every })?
            }
            "clock-extreme" => {
                let to = Some(self.table.required("to")?);
                let to = choice(self.source, to, "time", &Extreme::NAMES)?.expect("a time was given");
                self.clock(ClockFault::Extreme(to))?
            }
            _ => return Ok(None),
        }))
    }

    /// How full a disk becomes.
    fn percent(&mut self) -> Result<u8, ScenarioError> {
        let At { value: Percent(percent), at } = self.table.required::<Percent>("percent")?;
        if percent < USUAL_FILL_PERCENT {
            let message =
                format!("`percent` is {percent}%: a disk is {USUAL_FILL_PERCENT}% full when nothing fills it");
            return Err(self.source.error(&at, message).with_help("write more, up to 100%"));
        }
        Ok(percent)
    }

    fn disk_error(&mut self, error: DiskError) -> Result<FaultKind, ScenarioError> {
        let hits = self.hits()?;
        let path = self.path()?;
        Ok(FaultKind::DiskError { node: self.node()?, path, error, hits })
    }

    /// Which calls on files are hit: each, if nothing is said.
    fn hits(&mut self) -> Result<Hits, ScenarioError> {
        let nth = self.table.optional::<u32>("nth")?;
        match (nth, self.table.optional::<Chance>("chance")?) {
            (None, chance) => Ok(Hits::Chance(chance.map_or(ALWAYS_PPM, |chance| chance.value.0))),
            (Some(nth), None) => Ok(Hits::Nth(at_least_one(self.source, Some(nth), 1, "`nth`")?)),
            (Some(_), Some(chance)) => {
                Err(self.source.error(&chance.at, "[[fault]] has both `nth` and `chance`: choose one"))
            }
        }
    }

    fn media(&mut self, what: Media) -> Result<FaultKind, ScenarioError> {
        let count = at_least_one(self.source, self.table.optional("count")?, 1, "`count`")?;
        let path = self.path()?;
        Ok(FaultKind::Media { node: self.node()?, path, what, count })
    }

    /// Which files, by their paths below the store.
    /// Only what is built again from the log can be lost without losing messages.
    fn files_lost(&mut self) -> Result<FaultKind, ScenarioError> {
        let path = self.table.required::<String>("path")?;
        let is_derived = ["consumequeue/", "index/"].iter().any(|folder| path.value.starts_with(folder));
        if !is_derived {
            let message = format!("`{}` are not files that follow from the log", path.value);
            return Err(self.source.error(&path.at, message).with_help("write `consumequeue/*` or `index/*`"));
        }
        Ok(FaultKind::FilesLost { node: self.node()?, path: path.value })
    }

    fn path(&mut self) -> Result<String, ScenarioError> {
        match self.table.optional::<String>("path")? {
            None => Ok("*".to_owned()),
            Some(At { value, at }) if value.is_empty() || value.starts_with('/') => Err(self
                .source
                .error(&at, format!("`{value}` is not a path below the store"))
                .with_help("write it as in \"commitlog/*\"; * stands for any run of characters")),
            Some(path) => Ok(path.value),
        }
    }

    fn clock(&mut self, what: ClockFault) -> Result<FaultKind, ScenarioError> {
        let back = choice(self.source, self.table.optional("back")?, "way back", &Back::NAMES)?.unwrap_or(Back::Step);
        Ok(FaultKind::Clock { node: self.node()?, what, back })
    }

    /// By how much a wall clock jumps, in milliseconds.
    fn jump(&mut self) -> Result<i64, ScenarioError> {
        let by = self.table.required::<String>("by")?;
        let at = by.at.clone();
        match read_signed(self.source, by)? {
            0 => Err(self.source.error(&at, "`by` is less than a millisecond, which changes nothing")),
            by_ms => Ok(by_ms),
        }
    }

    fn partition(&mut self, shape: Shape, kind: &At<String>) -> Result<FaultKind, ScenarioError> {
        let node = if shape.has_node() { Some(self.node()?) } else { None };
        let (members, at) = if shape.members_min() > 0 { self.members(kind)? } else { (None, kind.at.clone()) };
        let partition = FaultKind::Partition { shape, node, members };
        self.places.partitions.push(At { value: partition.clone(), at });
        Ok(partition)
    }

    /// Reads `among = ["broker-a", "namesrv"]` or `order = ["broker-a/0", …]`; among everyone if neither is there.
    fn members(&mut self, kind: &At<String>) -> Result<(Option<Members>, std::ops::Range<usize>), ScenarioError> {
        let among = self.table.optional::<Vec<At<String>>>("among")?;
        let order = self.table.optional::<Vec<At<String>>>("order")?;
        let names = |list: Vec<At<String>>| list.into_iter().map(|name| name.value).collect();
        match (among, order) {
            (None, None) => Ok((Some(Members::Among(vec!["*".to_owned()])), kind.at.clone())),
            (Some(among), None) => {
                self.places.ends.extend(among.value.iter().cloned());
                Ok((Some(Members::Among(names(among.value))), among.at))
            }
            (None, Some(order)) => {
                for (number, name) in order.value.iter().enumerate() {
                    if order.value[..number].iter().any(|other| other.value == name.value) {
                        let message = format!("`{}` stands twice in `order`", name.value);
                        return Err(self.source.error(&name.at, message));
                    }
                }
                self.places.nodes.extend(order.value.iter().cloned());
                Ok((Some(Members::Order(names(order.value))), order.at))
            }
            (Some(_), Some(order)) => Err(self
                .source
                .error(&order.at, "[[fault]] has both `among` and `order`: choose one")
                .with_help("`among` leaves the order to the seed")),
        }
    }

    fn node(&mut self) -> Result<String, ScenarioError> {
        let node = self.table.required::<String>("node")?;
        self.places.nodes.push(node.clone());
        Ok(node.value)
    }

    fn port(&mut self) -> Result<Option<Port>, ScenarioError> {
        choice(self.source, self.table.optional("port")?, "port", &Port::NAMES)
    }

    fn factor(&mut self, least: u32) -> Result<u32, ScenarioError> {
        let factor = self.table.required::<u32>("factor")?;
        match factor.value {
            0 => at_least_one(self.source, Some(factor), 1, "`factor`"),
            value if value < least => {
                Err(self.source.error(&factor.at, format!("`factor` is {value}, which changes nothing")))
            }
            value => Ok(value),
        }
    }

    /// How long a link that flaps stays as it is; a turn without a length would never end.
    fn turn(&mut self, key: &'static str) -> Result<Span<Duration>, ScenarioError> {
        let turn = self.table.required::<Span<Duration>>(key)?;
        if turn.value.least < SHORTEST_TURN {
            let message = format!("`{key}` is shorter than {}", print_time(SHORTEST_TURN));
            return Err(self.source.error(&turn.at, message));
        }
        self.places.lasting.push(At { value: (key, turn.value.most), at: turn.at });
        Ok(turn.value)
    }

    fn link(&mut self) -> Result<Link, ScenarioError> {
        let link = self.table.required::<String>("link")?;
        let split = link.value.split_once("<->").map(|ends| (ends, true));
        let Some(((from, to), both)) = split.or_else(|| link.value.split_once("->").map(|ends| (ends, false))) else {
            return Err(self
                .source
                .error(&link.at, format!("`{}` is not a link", link.value))
                .with_help("write \"a -> b\" for one direction, \"a <-> b\" for both; * is everyone"));
        };
        let link_of = Link { from: from.trim().to_owned(), to: to.trim().to_owned(), both };
        self.places.links.push(At { value: link_of.clone(), at: link.at.clone() });
        for end in [&link_of.from, &link_of.to] {
            self.places.ends.push(At { value: end.clone(), at: link.at.clone() });
        }
        Ok(link_of)
    }
}

/// Reads `-5s` or `250ms` in milliseconds.
fn read_signed(source: &Source, text: At<String>) -> Result<i64, ScenarioError> {
    let (negative, magnitude) = match text.value.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.value.strip_prefix('+').unwrap_or(&text.value)),
    };
    let wrong = |message: String| source.error(&text.at, message.replacen(magnitude, &text.value, 1));
    let time = super::units::parse_time(magnitude).map_err(wrong)?;
    let ms = i64::try_from(time.as_millis()).map_err(|_| source.error(&text.at, "too large"))?;
    Ok(if negative { -ms } else { ms })
}

#[cfg(test)]
mod tests;
