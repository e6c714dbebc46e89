//! Shrinking: from a plan that fails to a small one that fails in the same way.
//!
//! The search knows scenarios and how to make them smaller; whether a smaller one still fails it asks a [`Trial`]. It
//! goes through its steps in a fixed order, each until it finds nothing more, and begins again until a whole round has
//! found nothing. So the same answers lead to the same scenario, and whatever it gives back is one that failed.
//!
//! Order and steps: `spec/simulation.md` 8.3.

mod ddmin;
mod edits;
mod kinds;
mod steps;
mod tidy;

use std::{collections::BTreeSet, fmt, time::Duration};

use crate::{
    history::digest,
    scenario::{Load, Scenario},
};

/// Tries candidates.
pub trait Trial {
    /// Tries a candidate: `None` if it does not fail in the way that is looked for.
    ///
    /// # Errors
    /// [`Stopped`] if there is no more budget for tries. The search ends then with the smallest that failed.
    fn fails(&mut self, candidate: &Scenario) -> Result<Option<Hit>, Stopped>;

    /// Told when a candidate has become the smallest one: by which step, and how large it is.
    fn shrunk(&mut self, _step: &'static str, _size: Size) {}
}

/// How a candidate failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// The seed of the scheduler with which it did.
    pub sched: u64,
    /// When in the active phase it had shown itself; `None` if nothing tells.
    pub shown_at: Option<Duration>,
}

/// The budget is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

/// What a search came to.
#[derive(Debug, Clone)]
pub struct Shrunk {
    /// The smallest scenario that failed, with the seed of the scheduler with which it did.
    pub scenario: Scenario,
    /// Whether nothing is left to leave out, as far as the search can see; false if the budget was spent before.
    pub complete: bool,
}

/// Looks for a small scenario that fails as this plan does. `None` if the plan itself does not fail.
///
/// The plan should have no nemesis, and its loads should be planned: what is not spelt out cannot be left out.
pub fn shrink(plan: Scenario, trial: &mut impl Trial) -> Option<Shrunk> {
    let hit = trial.fails(&plan).ok()??;
    let mut search =
        Search { trial, best: plan, shown_at: None, rejected: BTreeSet::new(), count: 0, step: "", fine: false };
    search.take(hit);
    let complete = search.run().is_ok();
    Some(Shrunk { scenario: search.best, complete })
}

/// How large a scenario is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Its faults.
    pub faults: usize,
    /// The messages that are planned.
    pub messages: usize,
    /// Its nodes of every kind.
    pub nodes: usize,
}

impl Size {
    /// The size of a scenario. Messages that are yet to be drawn do not count.
    #[must_use]
    pub fn of(scenario: &Scenario) -> Size {
        let planned = scenario.producers.iter().map(|group| match &group.load {
            Load::Planned(sends) => sends.len(),
            Load::Drawn { .. } => 0,
        });
        Size { faults: scenario.faults.len(), messages: planned.sum(), nodes: scenario.nodes().len() }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |count: usize, what: &str| {
            let number = match count {
                0..1000 => count.to_string(),
                _ => format!("{},{:03}", count / 1000, count % 1000),
            };
            format!("{number} {what}{}", if count == 1 { "" } else { "s" })
        };
        write!(f, "{}, {}, {}", of(self.faults, "fault"), of(self.messages, "message"), of(self.nodes, "node"))
    }
}

/// A search under way.
struct Search<'a, T> {
    trial: &'a mut T,
    /// The smallest scenario that failed.
    best: Scenario,
    /// When it had shown itself.
    shown_at: Option<Duration>,
    /// Candidates that did not fail, by the digests of their texts.
    rejected: BTreeSet<u128>,
    /// How often a candidate became the smallest.
    count: u64,
    /// The step that is under way.
    step: &'static str,
    /// Whether to try what is small and takes long: as long as something larger can be found, it does not pay.
    fine: bool,
}

impl<T: Trial> Search<'_, T> {
    /// All steps, again and again until a round finds nothing; then the same with all that is small.
    fn run(&mut self) -> Result<(), Stopped> {
        for fine in [false, true] {
            self.fine = fine;
            self.rounds()?;
        }
        Ok(())
    }

    fn rounds(&mut self) -> Result<(), Stopped> {
        type Step<S> = fn(&mut S) -> Result<(), Stopped>;
        let steps: [(&'static str, Step<Self>); 6] = [
            ("time", Self::cut_time),
            ("faults", Self::drop_faults),
            ("trigger", Self::move_faults),
            ("parameters", Self::parameters),
            ("workload", Self::workload),
            ("cluster", Self::cluster),
        ];
        loop {
            let before_round = self.count;
            for (name, step) in steps {
                self.step = name;
                loop {
                    let before = self.count;
                    step(self)?;
                    if self.count == before {
                        break;
                    }
                }
            }
            if self.count == before_round {
                return Ok(());
            }
        }
    }

    /// Tries the smallest scenario with a change. If that still fails it is the smallest from now on.
    ///
    /// What the change left without its other half is put right first; what cannot be a scenario counts as one that does
    /// not fail, without a try.
    fn keep(&mut self, change: impl FnOnce(&mut Scenario)) -> Result<bool, Stopped> {
        let mut candidate = self.best.clone();
        change(&mut candidate);
        tidy::tidy(&mut candidate);
        let text = text_of(&candidate);
        if text == text_of(&self.best) || self.rejected.contains(&digest(text.as_bytes())) {
            return Ok(false);
        }
        let hit = match Scenario::parse(&candidate.name, &text) {
            Ok(_) => self.trial.fails(&candidate)?,
            Err(_) => None,
        };
        match hit {
            Some(hit) => {
                self.best = candidate;
                self.take(hit);
                self.count += 1;
                self.trial.shrunk(self.step, Size::of(&self.best));
                Ok(true)
            }
            None => {
                self.rejected.insert(digest(text.as_bytes()));
                Ok(false)
            }
        }
    }

    fn take(&mut self, hit: Hit) {
        self.best.seeds.sched = Some(hit.sched);
        self.shown_at = hit.shown_at;
    }

    /// Keeps as few of these items as will do; `retain` leaves only the given ones in a scenario.
    ///
    /// If there are many they are not taken apart to the last before the fine rounds.
    fn minimise<I: Clone>(&mut self, items: Vec<I>, retain: impl Fn(&mut Scenario, &[I])) -> Result<Vec<I>, Stopped> {
        let coarse = !self.fine && items.len() > MANY_ITEMS;
        let pieces_max = if coarse { COARSE_PIECES_MAX } else { usize::MAX };
        ddmin::ddmin(items, pieces_max, |kept| self.keep(|scenario| retain(scenario, kept)))
    }

    /// Makes a number smaller by halves, until it is known to within a quarter how small it can be. `set` writes it.
    fn lower(&mut self, now: u64, least: u64, set: impl Fn(&mut Scenario, u64)) -> Result<(), Stopped> {
        self.lower_to(Grain { least, grain: 1, round: |middle, _| middle }, now, set)
    }

    /// The same for a time, which becomes a round one.
    fn lower_time(
        &mut self,
        now: Duration,
        least: Duration,
        set: impl Fn(&mut Scenario, Duration),
    ) -> Result<(), Stopped> {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let grain = Grain { least: micros(least), grain: TIME_GRAIN_US, round: edits::round_time };
        self.lower_to(grain, micros(now), |scenario, time| set(scenario, Duration::from_micros(time)))
    }

    fn lower_to(&mut self, grain: Grain, now: u64, set: impl Fn(&mut Scenario, u64)) -> Result<(), Stopped> {
        let Grain { least, grain, round } = grain;
        let (mut fails, mut passes) = (now, None);
        while fails > least {
            let low = passes.unwrap_or(least);
            let close = fails - low <= (fails / 4).max(grain);
            let next = match (close, passes) {
                (true, Some(_)) => break,
                (true, None) => least,
                (false, _) => round(low + (fails - low) / 2, low),
            };
            match self.keep(|scenario| set(scenario, next))? {
                true => fails = next,
                false => passes = Some(next),
            }
        }
        Ok(())
    }
}

/// From so many items on a list is taken apart in two goes.
const MANY_ITEMS: usize = 48;

/// Into how many pieces in the first.
const COARSE_PIECES_MAX: usize = 8;

/// Times that differ by less are the same to a reader.
const TIME_GRAIN_US: u64 = 10_000;

/// How finely a number is looked for.
#[derive(Clone, Copy)]
struct Grain {
    least: u64,
    /// Closer than this it need not be known.
    grain: u64,
    /// A number near the first, above the second, that reads better.
    round: fn(u64, u64) -> u64,
}

/// What makes two candidates the same: all but the seed of the scheduler, of which every candidate is tried with several.
fn text_of(scenario: &Scenario) -> String {
    let mut scenario = scenario.clone();
    scenario.seeds.sched = None;
    scenario.print()
}

#[cfg(test)]
mod tests;
