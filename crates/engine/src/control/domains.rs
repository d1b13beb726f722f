//! Headrooms that are kept on a part of the machine: a law on each domain's own sums, and what follows for the quota of all side work.
//!
//! A domain that is kept by quota limits side work as the machine's law does: of several the least allowance counts. One that is
//! kept by the cpuset limits nothing by quota once side work is confined; until then, and whenever the cpuset does not stand, its
//! allowance counts for all side work, since nothing else would keep its idle.

use tidegate_law::{
    Headroom, HeadroomConfig, HeadroomDecision, HeadroomSample, HeadroomTerms, Reason,
};

use super::meter::{Meter, Use};
use super::pulses::Pulses;
use super::{WINDOW_MAX_NS, between};
use crate::domain::{Domain, Keeps};
use crate::quota_planner::FREE_UCPU;
use crate::sense::{Counters, Sensor};

/// What a domain's law says, to show and to plan by.
#[derive(Clone, Debug)]
pub struct DomainState {
    /// Which CPUs, how much, for whom, by what.
    pub domain: Domain,
    /// The last decision.
    pub decision: HeadroomDecision,
    /// The last second.
    pub second: Use,
}

impl DomainState {
    /// What side work may use of it, where that is to be whole CPUs: without the trim, which would make up for the fraction that whole
    /// CPUs leave by taking a whole one too many now and then.
    pub fn room_ucpu(&self) -> u64 {
        room_ucpu(&self.decision)
    }
}

fn room_ucpu(decision: &HeadroomDecision) -> u64 {
    let trim_ucpu = u64::try_from(decision.trim_ucpu).unwrap_or(0);
    decision.allowance_ucpu.saturating_sub(trim_ucpu)
}

struct Lawed {
    domain: Domain,
    law: Headroom,
    pulses: Pulses,
    last: Option<Counters>,
    window: Use,
    decision: HeadroomDecision,
    meter: Meter,
}

/// What all side work is limited to.
pub(super) struct Binding {
    pub(super) decision: HeadroomDecision,
    pub(super) window: Use,
    pub(super) cpus: u32,
}

/// The domains.
#[derive(Default)]
pub(super) struct Domains {
    all: Vec<Lawed>,
    /// Side work has only those CPUs of the domains kept by the cpuset that their laws allow.
    pub(super) confined: bool,
    contend_ppm: u32,
}

impl Domains {
    /// Follows these from now on. What was learnt of a domain that stays is kept.
    pub(super) fn follow(
        &mut self,
        domains: &[Domain],
        terms: impl Fn(u32) -> HeadroomTerms,
        sensor: &mut dyn Sensor,
    ) {
        let same = |old: &[Lawed]| {
            let pairs = old.iter().zip(domains);
            old.len() == domains.len() && pairs.clone().all(|(a, b)| a.domain.cpus == b.cpus)
        };
        if !same(&self.all) {
            let cpus: Vec<Vec<u32>> = domains.iter().map(|domain| domain.cpus.clone()).collect();
            sensor.set_parts(&cpus);
            let mut old = std::mem::take(&mut self.all);
            for domain in domains {
                let known = old.iter().position(|one| one.domain.cpus == domain.cpus);
                let mut one = match known {
                    Some(at) => old.swap_remove(at),
                    None => Lawed::new(domain, terms(domain.headroom_ppm), sensor),
                };
                // The sensor counts from 0 again.
                one.last = None;
                one.law.set_contention(self.contend_ppm);
                one.pulses.set_contention(self.contend_ppm);
                self.all.push(one);
            }
            // The cpuset that stands is another domain's.
            self.confined = false;
        }
        for (one, domain) in self.all.iter_mut().zip(domains) {
            one.domain.clone_from(domain);
        }
        self.set_terms(terms);
    }

    fn spaces(&self) -> impl Iterator<Item = &Lawed> {
        let in_space = |one: &&Lawed| one.domain.keeps == Keeps::Cpuset;
        self.all.iter().filter(in_space)
    }

    pub(super) fn set_terms(&mut self, terms: impl Fn(u32) -> HeadroomTerms) {
        for one in &mut self.all {
            one.law.set_terms(terms(one.domain.headroom_ppm));
        }
    }

    pub(super) fn set_contention(&mut self, contend_ppm: u32) {
        self.contend_ppm = contend_ppm;
        for one in &mut self.all {
            one.law.set_contention(contend_ppm);
            one.pulses.set_contention(contend_ppm);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Classes have changed: one window is left out, as for the machine.
    pub(super) fn skip(&mut self, sensor: &dyn Sensor) {
        for (nth, one) in self.all.iter_mut().enumerate() {
            one.last = sensor.part(nth);
        }
    }

    /// One step of each law; `sampled` is whether the sensor had anything to tell, `since_ns` how long the step before is ago.
    pub(super) fn step(
        &mut self,
        sensor: &dyn Sensor,
        sampled: bool,
        since_ns: u64,
        terms: impl Fn(u32) -> HeadroomTerms,
    ) {
        for (nth, one) in self.all.iter_mut().enumerate() {
            let now = sensor.part(nth).filter(|_| sampled);
            one.step(now, since_ns, sensor.granularity_ns(), &terms);
        }
    }

    /// What the least of the allowances is, the machine's (`whole`) included; [`FREE_UCPU`] where none counts for all side work.
    pub(super) fn binding(&self, whole: bool, outside_cpus: u32, machine: Binding) -> Binding {
        let mut free = machine.decision;
        free.allowance_ucpu = FREE_UCPU;
        free.floor_ucpu = 0;
        free.reason = Reason::Track;
        let mut least = Binding {
            decision: if whole { machine.decision } else { free },
            ..machine
        };
        // The one CPU that side work then has is not to be used in full.
        let in_full = self.free_ucpu(outside_cpus) > 0;
        for one in &self.all {
            if one.domain.keeps == Keeps::Cpuset && self.confined && in_full {
                continue;
            }
            if one.decision.allowance_ucpu < least.decision.allowance_ucpu {
                least = Binding {
                    decision: one.decision,
                    window: one.window,
                    cpus: one.domain.cpus.len() as u32,
                };
            }
        }
        least
    }

    /// CPUs that side work may have where no quota limits it: all outside, and whole ones of the domains.
    pub(super) fn free_ucpu(&self, outside_cpus: u32) -> u64 {
        let whole = |one: &Lawed| room_ucpu(&one.decision) / 1_000_000;
        let inside: u64 = self.spaces().map(whole).sum();
        (u64::from(outside_cpus) + inside) * 1_000_000
    }

    /// Idle that all of them ask for, of a machine of `cpus`: what overlaps is counted once for each.
    pub(super) fn asked_ppm(&self, cpus: u32) -> u32 {
        let asked: u64 = self
            .all
            .iter()
            .map(|one| u64::from(one.domain.headroom_ppm) * one.domain.cpus.len() as u64)
            .sum();
        (asked / u64::from(cpus.max(1))).min(1_000_000) as u32
    }

    pub(super) fn states(&self) -> Vec<DomainState> {
        let state = |one: &Lawed| DomainState {
            domain: one.domain.clone(),
            decision: one.decision,
            second: one.meter.second(),
        };
        self.all.iter().map(state).collect()
    }

    /// Whole CPUs by domain kept by the cpuset: their rooms.
    pub(super) fn rooms_ucpu(&self, rooms: &mut Vec<u64>) {
        rooms.clear();
        rooms.extend(self.spaces().map(|one| room_ucpu(&one.decision)));
    }
}

impl Lawed {
    fn new(domain: &Domain, terms: HeadroomTerms, sensor: &dyn Sensor) -> Self {
        let config = HeadroomConfig::for_window_ns(sensor.min_window_ns());
        Self {
            domain: domain.clone(),
            law: Headroom::new(config, terms),
            pulses: Pulses::default(),
            last: None,
            window: Use::default(),
            decision: HeadroomDecision::default(),
            meter: Meter::default(),
        }
    }

    fn step(
        &mut self,
        now: Option<Counters>,
        since_ns: u64,
        granularity_ns: u64,
        terms: impl Fn(u32) -> HeadroomTerms,
    ) {
        let last = std::mem::replace(&mut self.last, now);
        self.window = Use::default();
        let sample = match (&now, &last) {
            (Some(now), Some(last)) => {
                let window = between(last, now);
                if now.valid && window.wall_ns <= WINDOW_MAX_NS {
                    self.window = window;
                }
                HeadroomSample {
                    dt_ns: window.wall_ns,
                    capacity_ns: window.capacity_ns,
                    busy_ns: window.busy_ns,
                    side_ns: window.side_ns,
                    granularity_ns,
                    valid: now.valid,
                }
            }
            _ => HeadroomSample {
                dt_ns: since_ns,
                ..HeadroomSample::default()
            },
        };
        if self.window.wall_ns > 0 {
            let HeadroomTerms {
                headroom_ppm,
                tolerance_ppm,
            } = terms(self.domain.headroom_ppm);
            self.meter.add(self.window, headroom_ppm, tolerance_ppm);
        }
        self.decision = self.pulses.smooth(sample.dt_ns, self.law.step(&sample));
    }
}
