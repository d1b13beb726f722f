//! A recording in memory, as readers take it.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{Event, Machine, Record, Second, Step, Work};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    pub machine: Machine,
    pub works: BTreeMap<u32, Work>,
    pub seconds: Vec<Second>,
    /// In order of time; empty in most recordings.
    pub steps: Vec<Step>,
    pub events: Vec<Event>,
    pub damaged_bytes: u64,
}

impl Recording {
    pub fn len_s(&self) -> u64 {
        self.seconds.len() as u64
    }

    /// When it begins and ends, milliseconds since 1970; none for an empty one.
    pub fn span_ms(&self) -> Option<(u64, u64)> {
        let first = self.seconds.first()?;
        let last = self.seconds.last()?;
        Some((first.unix_ms, last.unix_ms))
    }

    /// One record more. A file numbers its works itself: `ids` maps those of this file to the
    /// recording's.
    pub(crate) fn add(&mut self, record: Record, ids: &mut BTreeMap<u32, u32>) {
        match record {
            Record::Machine(machine) => self.machine = machine,
            Record::Works(works) => works.into_iter().for_each(|work| self.add_work(work, ids)),
            Record::Second(mut second) => {
                // A work that was lost with a damaged entry cannot be named.
                second.works.retain_mut(|work| match ids.get(&work.id) {
                    Some(id) => {
                        work.id = *id;
                        true
                    }
                    None => false,
                });
                self.seconds.push(second);
            }
            Record::Steps(steps) => self.steps.extend(steps),
            Record::Event(event) => self.events.push(event),
        }
    }

    /// The same gate or group in two files is one work, with its newest terms.
    fn add_work(&mut self, work: Work, ids: &mut BTreeMap<u32, u32>) {
        let same = |known: &&Work| {
            (&known.name, &known.cgroup, known.is_gate) == (&work.name, &work.cgroup, work.is_gate)
        };
        let known = self.works.values().find(same).map(|known| known.id);
        let id = known.unwrap_or(self.works.len() as u32);
        ids.insert(work.id, id);
        self.works.insert(id, Work { id, ..work });
    }

    /// In order of time, whatever the clock did.
    pub(crate) fn sort(&mut self) {
        self.seconds.sort_by_key(|second| second.unix_ms);
        self.steps.sort_by_key(|step| step.unix_us);
        self.events.sort_by_key(|event| event.unix_ms);
    }

    /// What lies from `from_ms` to `to_ms`, both included, with the works that it names.
    pub fn between(&self, from_ms: u64, to_ms: u64) -> Recording {
        let within = from_ms..=to_ms;
        let seconds = self.seconds.iter();
        let seconds: Vec<Second> = seconds
            .filter(|second| within.contains(&second.unix_ms))
            .cloned()
            .collect();
        let named: BTreeSet<u32> = seconds
            .iter()
            .flat_map(|second| second.works.iter().map(|work| work.id))
            .collect();
        let works = self.works.iter();
        Recording {
            machine: self.machine.clone(),
            works: works
                .filter(|(id, _)| named.contains(id))
                .map(|(id, work)| (*id, work.clone()))
                .collect(),
            seconds,
            steps: self
                .steps
                .iter()
                .filter(|step| within.contains(&(step.unix_us / 1_000)))
                .copied()
                .collect(),
            events: self
                .events
                .iter()
                .filter(|event| within.contains(&event.unix_ms))
                .cloned()
                .collect(),
            damaged_bytes: self.damaged_bytes,
        }
    }
}
