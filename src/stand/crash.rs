//! `run --crash-at-every-poll`: the same run again and again, each time with a node that dies one poll later.

use std::time::Instant;

use clap::{Args, ValueEnum};
use serde_json::json;
use sim::{
    plan::Plan,
    points::POLL,
    scenario::{
        Fault, FaultKind, Scenario, When,
        units::{Span, parse_time},
    },
    verdict::Verdict,
};

use super::{Problem, RunArguments, child, many, pool, read_scenario};
use crate::output::say;

/// How many polls of an outcome are named.
const NAMED_MAX: usize = 5;

/// A crash at a poll, of one run or of all.
#[derive(Args)]
pub struct CrashArguments {
    /// Run once for each poll that the node makes in the active phase, and let it die just before that poll
    #[arg(long, value_name = "NODE", groups = ["many", "crash"])]
    pub crash_at_every_poll: Option<String>,
    /// Let a node die just before poll N of the active phase, as in broker-a/0@137
    #[arg(long, value_name = "NODE@N", value_parser = parse_crash, conflicts_with = "many", group = "crash")]
    pub crash_at_poll: Option<CrashPoint>,
    /// How it dies
    #[arg(long, value_enum, default_value_t = Style::Kill, requires = "crash")]
    pub style: Style,
    /// Take every K-th poll only
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..), requires = "crash_at_every_poll")]
    pub every: u64,
    /// How long it stays down
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time, requires = "crash")]
    pub down: std::time::Duration,
}

/// A node and the number of one of its polls.
#[derive(Debug, Clone)]
pub struct CrashPoint {
    node: String,
    poll: u32,
}

/// How a node dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Style {
    /// Its process is killed
    Kill,
    /// Its machine loses power
    PowerLoss,
}

impl CrashArguments {
    /// Adds the crash of `--crash-at-poll` to the scenario.
    pub fn apply(&self, scenario: &mut Scenario) -> Result<(), Problem> {
        let Some(CrashPoint { node, poll }) = &self.crash_at_poll else { return Ok(()) };
        must_exist(scenario, node)?;
        let kind = match self.style {
            Style::Kill => FaultKind::Kill { node: node.clone() },
            Style::PowerLoss => FaultKind::PowerLoss { node: node.clone(), style: None, garbage: false },
        };
        scenario.faults.push(Fault {
            // The number is part of the id, so that each power loss draws for itself what survives.
            id: format!("crash-at-poll-{poll}"),
            when: When::On { point: POLL.to_owned(), node: node.clone(), nth: *poll },
            kind,
            lasts: Some(Span::exactly(self.down)),
        });
        Ok(())
    }

    /// The arguments that repeat the crash.
    pub fn repeat(&self) -> String {
        match &self.crash_at_poll {
            Some(CrashPoint { node, poll }) => format!(" --crash-at-poll {node}@{poll}{}", self.how()),
            None => String::new(),
        }
    }

    fn how(&self) -> String {
        let style = if self.style == Style::PowerLoss { " --style power-loss" } else { "" };
        let down = sim::scenario::units::print_time(self.down);
        format!("{style}{}", if down == "1s" { String::new() } else { format!(" --down {down}") })
    }
}

/// Runs the scenario once for each poll.
pub fn at_every_poll(arguments: &RunArguments, node: &str) -> Result<Verdict, Problem> {
    let started = Instant::now();
    let scenario = read_scenario(&arguments.file)?;
    must_exist(&scenario, node)?;
    let seed = Plan::draw(scenario, arguments.seed).seeds.root.0;
    let mutant = |command: &mut std::process::Command| {
        if let Some(name) = &arguments.mutant {
            command.arg("--mutant").arg(name);
        }
    };
    let quiet = child::run(&arguments.file, seed, mutant)?;
    let polls = quiet.result.pointer("/node_polls").and_then(|polls| polls.get(node)).and_then(|n| n.as_u64());
    let polls =
        polls.ok_or_else(|| Problem::Other(format!("seed {seed} died without a crash: {}", quiet.first_problem())))?;
    let crash = &arguments.crash;
    let runs = polls.div_ceil(crash.every);
    let ran = pool::all(0..runs, arguments.jobs, |run| {
        let poll = 1 + run * crash.every;
        let mut ran = child::run(&arguments.file, seed, |command| {
            mutant(command);
            command.arg("--crash-at-poll").arg(format!("{node}@{poll}"));
            command.args(crash.how().split_whitespace());
        })?;
        // Here it is the poll that tells the runs apart.
        ran.seed = poll;
        Ok(ran)
    })?;
    let verdict = ran.iter().map(|run| run.verdict).find(|verdict| *verdict != Verdict::Pass).unwrap_or(Verdict::Pass);
    let idle = ran.iter().filter(|run| !run.texts("never_fired").is_empty()).count();
    if arguments.json {
        for run in &ran {
            say!("{}", json!({ "poll": run.seed, "result": run.result }))?;
        }
        say!("{}", json!({ "polls": polls, "runs": ran.len(), "without_crash": idle, "verdict": verdict.name() }))?;
        return Ok(verdict);
    }
    say!("{}", many::outcomes(&ran, ["runs", "polls, for example"], NAMED_MAX))?;
    let real = started.elapsed().as_secs_f64();
    say!("{node} makes {polls} polls without a crash; {} runs of seed {seed} in {real:.1} s real", ran.len())?;
    if idle > 0 {
        say!("in {idle} of them it did not get to its poll")?;
    }
    if let Some(run) = ran.iter().find(|run| run.verdict != Verdict::Pass) {
        let (file, how) = (arguments.file.display(), crash.how());
        say!("repeat: staticfire run {file} --seed {seed} --crash-at-poll {node}@{}{how}", run.seed)?;
    }
    Ok(verdict)
}

fn must_exist(scenario: &Scenario, node: &str) -> Result<(), Problem> {
    let nodes: Vec<String> = scenario.nodes().into_iter().map(|(name, _)| name).collect();
    if nodes.iter().any(|name| name == node) {
        return Ok(());
    }
    Err(Problem::Other(format!("unknown node `{node}`: there are {}", nodes.join(", "))))
}

fn parse_crash(text: &str) -> Result<CrashPoint, String> {
    let wrong = || format!("`{text}` is not a poll of a node: write broker-a/0@137");
    let (node, poll) = text.rsplit_once('@').ok_or_else(wrong)?;
    match poll.parse() {
        Ok(poll) if poll > 0 && !node.is_empty() => Ok(CrashPoint { node: node.to_owned(), poll }),
        _ => Err(wrong()),
    }
}
