//! The steps of the search, in the order of `spec/simulation.md` 8.3. Each looks once at everything that it can make
//! smaller; the search repeats it while that finds anything.

use std::time::Duration;

use crate::scenario::{FaultKind, FileSystem, Load, Scenario, SendMode, When, units::Span};

use super::{Search, Stopped, Trial, edits, kinds};

/// The shortest active phase, and the shortest time for which a fault is in effect.
const TIME_MIN: Duration = Duration::from_millis(100);

/// So many messages can be read one by one. With more of them points of the program are passed too often to tell anything.
const MESSAGES_FEW: usize = 20;

/// How many visits of a point are tried.
const VISITS_MAX: u32 = 2;

/// How the keys of settings begin that say how large files are.
const FILE_SIZES: &str = "mappedFileSize";

/// The size of a body that is of no importance, in bytes.
const BODY_BYTES: u64 = 100;

/// How long a listener works if that is of no importance.
const HANDLING: Duration = Duration::from_millis(1);

impl<T: Trial> Search<'_, T> {
    /// Ends the active phase just after the failure has shown itself, or earlier.
    pub(super) fn cut_time(&mut self) -> Result<(), Stopped> {
        fn cut(scenario: &mut Scenario, end: Duration) {
            scenario.active = end;
        }
        if let Some(shown) = self.shown_at {
            let end = Duration::from_millis(u64::try_from(shown.as_millis()).unwrap_or(u64::MAX).saturating_add(1));
            if end < self.best.active {
                self.keep(|scenario| cut(scenario, end))?;
            }
        }
        self.lower_time(self.best.active, TIME_MIN, cut)
    }

    /// Leaves out faults. A gate goes with the fault that it waits for.
    pub(super) fn drop_faults(&mut self) -> Result<(), Stopped> {
        let ids: Vec<String> = self.best.faults.iter().map(|fault| fault.id.clone()).collect();
        self.minimise(ids, retain_faults).map(drop)
    }

    /// Finds the trigger: leaves out the first faults in order of time, then lets each of the others happen on a point of
    /// the program, or earlier.
    pub(super) fn move_faults(&mut self) -> Result<(), Stopped> {
        let mut in_time: Vec<(Duration, String)> = Vec::new();
        for fault in &self.best.faults {
            let at = if let When::At(at) = fault.when { at.least } else { Duration::ZERO };
            in_time.push((at, fault.id.clone()));
        }
        in_time.sort();
        let ids: Vec<String> = in_time.into_iter().map(|(_, id)| id).collect();
        if ids.len() > 1 {
            let last = |count: u64| ids.len().saturating_sub(usize::try_from(count).unwrap_or(usize::MAX));
            self.lower(ids.len() as u64, 0, |scenario, count| retain_faults(scenario, &ids[last(count)..]))?;
        }
        ids.iter().try_for_each(|id| self.move_fault(id))
    }

    fn move_fault(&mut self, id: &str) -> Result<(), Stopped> {
        let Some(fault) = self.best.faults.iter().find(|fault| fault.id == id) else { return Ok(()) };
        match fault.when {
            When::On { nth, .. } => self.lower(nth.into(), 1, |scenario, to| {
                let to = u32::try_from(to).unwrap_or(u32::MAX);
                let fault = scenario.faults.iter_mut().find(|fault| fault.id == id);
                if let Some(When::On { nth, .. }) = fault.map(|fault| &mut fault.when) {
                    *nth = to;
                }
            }),
            When::At(at) => {
                let few = edits::operations(&self.best).len() <= MESSAGES_FEW;
                for point in edits::points_of(&self.best, &fault.kind).iter().filter(|_| few) {
                    for nth in 1..=VISITS_MAX {
                        if self.keep(|scenario| edits::move_to_point(scenario, id, point, nth))? {
                            return Ok(());
                        }
                    }
                }
                self.lower_time(at.least, Duration::ZERO, |scenario, to| edits::move_to(scenario, id, to))
            }
        }
    }

    /// Makes faults shorter and weaker, and listeners alike.
    pub(super) fn parameters(&mut self) -> Result<(), Stopped> {
        let ids: Vec<String> = self.best.faults.iter().map(|fault| fault.id.clone()).collect();
        for id in ids {
            let Some(fault) = self.best.faults.iter().find(|fault| fault.id == id) else { continue };
            let (lasts, kind) = (fault.lasts, fault.kind.clone());
            if let Some(lasts) = lasts {
                self.lower_time(lasts.most, TIME_MIN, |scenario, to| {
                    let fault = scenario.faults.iter_mut().find(|fault| fault.id == id);
                    if let Some(fault) = fault {
                        fault.lasts = Some(Span::exactly(to));
                    }
                })?;
            }
            for simpler in kinds::simpler(&kind) {
                if self.keep(|scenario| set_kind(scenario, &id, &simpler))? {
                    break;
                }
            }
        }
        (0..self.best.consumers.len()).try_for_each(|number| self.listeners(number))
    }

    /// Makes all listeners of a group do the same with every message, whatever is simplest.
    fn listeners(&mut self, number: usize) -> Result<(), Stopped> {
        let handling = self.best.consumers[number].handling;
        let times = match handling.is_exact() {
            true => vec![HANDLING],
            false => vec![HANDLING, handling.least, handling.most],
        };
        for time in times {
            if self.keep(|scenario| scenario.consumers[number].handling = Span::exactly(time))? {
                break;
            }
        }
        // Refused is nothing or everything: then it matters no longer which message it is.
        let percents: &[u8] = match self.best.consumers[number].later_percent {
            0 => &[],
            100 => &[0],
            _ => &[0, 100],
        };
        for percent in percents {
            if self.keep(|scenario| scenario.consumers[number].later_percent = *percent)? {
                break;
            }
        }
        Ok(())
    }

    /// Leaves out messages, and then whoever has nothing to do with those that are left.
    pub(super) fn workload(&mut self) -> Result<(), Stopped> {
        let all = edits::operations(&self.best);
        self.lower(all.len() as u64, 0, |scenario, count| {
            edits::retain_operations(scenario, &all[..usize::try_from(count).unwrap_or(usize::MAX)]);
        })?;
        self.minimise(edits::operations(&self.best), edits::retain_operations)?;
        if edits::operations(&self.best).len() > MESSAGES_FEW {
            self.smaller_files()?;
            self.fewer_and_larger()?;
        }
        self.keep(|scenario| edits::each_send(scenario, |send| send.body_bytes = send.body_bytes.min(BODY_BYTES)))?;
        self.keep(|scenario| {
            edits::each_send(scenario, |send| send.tag = None);
            scenario.consumers.iter_mut().for_each(|group| group.tags.clear());
        })?;
        self.producers()?;
        self.consumers()?;
        for number in 0..self.best.topics.len() {
            // A topic may have gone with those before it.
            let Some(queues) = self.best.topics.get(number).map(|topic| topic.queues) else { break };
            self.lower(queues.into(), 1, |scenario, to| {
                scenario.topics[number].queues = u32::try_from(to).unwrap_or(u32::MAX);
            })?;
            let brokers = self.best.topics[number].brokers.clone();
            self.minimise(brokers, |scenario, kept| scenario.topics[number].brokers = kept.to_vec())?;
        }
        Ok(())
    }

    /// Files of half the size, as often as that will do: what needs a log that rolls needs fewer messages then.
    fn smaller_files(&mut self) -> Result<(), Stopped> {
        let mut sizes: Vec<(String, String, String)> = Vec::new();
        for (owner, settings) in edits::settings_of(&mut self.best) {
            let of_files = settings.iter().filter(|(key, _)| key.starts_with(FILE_SIZES));
            sizes.extend(of_files.map(|(key, value)| (owner.clone(), key.clone(), value.clone())));
        }
        for (owner, key, mut size) in sizes {
            while let Some(half) = edits::half_of_size(&size) {
                if !self.keep(|scenario| edits::set_setting(scenario, &owner, &key, &half))? {
                    break;
                }
                size = half;
            }
        }
        Ok(())
    }

    /// Every second message, twice as large: what needs much data, as a log that rolls, need not need many messages.
    fn fewer_and_larger(&mut self) -> Result<(), Stopped> {
        for first in [0, 1] {
            let all = edits::operations(&self.best);
            if all.len() <= MESSAGES_FEW {
                break;
            }
            let half: Vec<_> = all.into_iter().skip(first).step_by(2).collect();
            self.keep(|scenario| {
                edits::retain_operations(scenario, &half);
                edits::each_send(scenario, |send| send.body_bytes = send.body_bytes.saturating_mul(2));
            })?;
        }
        Ok(())
    }

    /// Leaves out producers that send nothing, and makes the others simple.
    fn producers(&mut self) -> Result<(), Stopped> {
        let sends = |load: &Load| !matches!(load, Load::Planned(sends) if sends.is_empty());
        let producers = || self.best.producers.iter();
        let idle: Vec<String> =
            producers().filter(|group| !sends(&group.load)).map(|group| group.group.clone()).collect();
        self.minimise(idle, |scenario, kept| {
            scenario.producers.retain(|group| sends(&group.load) || kept.contains(&group.group));
        })?;
        for number in 0..self.best.producers.len() {
            let group = &self.best.producers[number];
            let Load::Planned(sends) = &group.load else { continue };
            let needed = sends.iter().map(|send| send.by + 1).max().unwrap_or(1);
            if needed < group.instances {
                self.keep(|scenario| scenario.producers[number].instances = needed)?;
            }
            if matches!(self.best.producers[number].mode, SendMode::Batch { .. }) {
                self.keep(|scenario| scenario.producers[number].mode = SendMode::Sync)?;
            }
        }
        Ok(())
    }

    /// Leaves out consumer groups, members of them, and their coming and going.
    fn consumers(&mut self) -> Result<(), Stopped> {
        let groups: Vec<String> = self.best.consumers.iter().map(|group| group.group.clone()).collect();
        let left = self.minimise(groups, |scenario, kept| {
            scenario.consumers.retain(|group| kept.contains(&group.group));
        })?;
        for number in 0..left.len() {
            let group = &self.best.consumers[number];
            let (instances, join) = (group.instances, group.join);
            self.minimise(group.scale.clone(), |scenario, kept| scenario.consumers[number].scale = kept.to_vec())?;
            self.lower(instances.into(), 1, |scenario, to| {
                scenario.consumers[number].instances = u32::try_from(to).unwrap_or(u32::MAX);
            })?;
            if !join.is_zero() {
                self.keep(|scenario| scenario.consumers[number].join = Duration::ZERO)?;
            }
        }
        Ok(())
    }

    /// Leaves out servers, settings, and what is said about them.
    pub(super) fn cluster(&mut self) -> Result<(), Stopped> {
        let brokers: Vec<String> = self.best.brokers.iter().map(|group| group.name.clone()).collect();
        self.minimise(brokers, |scenario, kept| scenario.brokers.retain(|group| kept.contains(&group.name)))?;
        self.lower(self.best.namesrvs.into(), 1, |scenario, to| {
            scenario.namesrvs = u32::try_from(to).unwrap_or(u32::MAX);
        })?;
        self.minimise(self.best.permanent.clone(), |scenario, kept| scenario.permanent = kept.to_vec())?;
        let mut keys: Vec<(String, String)> = Vec::new();
        for (owner, settings) in edits::settings_of(&mut self.best) {
            keys.extend(settings.iter().map(|(key, _)| (owner.clone(), key.clone())));
        }
        self.minimise(keys, |scenario, kept| {
            for (owner, settings) in edits::settings_of(scenario) {
                settings.retain(|(key, _)| kept.iter().any(|(of, kept)| *of == owner && kept == key));
            }
        })?;
        for number in 0..self.best.brokers.len() {
            if self.best.brokers[number].file_system != FileSystem::DEFAULT {
                self.keep(|scenario| scenario.brokers[number].file_system = FileSystem::DEFAULT)?;
            }
        }
        if !self.best.claim.is_empty() {
            self.keep(|scenario| scenario.claim.clear())?;
        }
        Ok(())
    }
}

fn retain_faults(scenario: &mut Scenario, kept: &[String]) {
    scenario.faults.retain(|fault| kept.contains(&fault.id));
}

fn set_kind(scenario: &mut Scenario, id: &str, kind: &FaultKind) {
    if let Some(fault) = scenario.faults.iter_mut().find(|fault| fault.id == id) {
        fault.kind = kind.clone();
    }
}
