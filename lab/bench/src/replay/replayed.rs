//! A recording under policies, with several seeds each.

use tidegate_recording::Recording;
use tidegate_sim::outcome::Outcome;
use tidegate_sim::parallel;

use crate::replay::arm::{Arm, Policy};
use crate::replay::demand::Demand;
use crate::replay::scenario::WARMUP_SECONDS;
use crate::replay::simulate::{Prepared, ReplayError, arm_view};
use crate::replay::view::{ArmView, ReplayView};
use crate::replay::{as_it_was, assumptions};

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Seeds, from 1 on.
    pub seeds: u32,
    pub jobs: usize,
}

/// A recording with what its works wanted.
pub struct Replay<'r> {
    pub recording: &'r Recording,
    pub demand: Demand,
    pub options: Options,
}

impl<'r> Replay<'r> {
    /// Of a recording.
    ///
    /// # Errors
    /// Nothing ran in it.
    pub fn new(recording: &'r Recording, options: Options) -> Result<Self, ReplayError> {
        let demand = Demand::of(recording);
        match demand.works.is_empty() {
            true => Err(ReplayError::Idle),
            false => Ok(Replay {
                recording,
                demand,
                options,
            }),
        }
    }

    /// An arm a policy; without one the terms that were recorded.
    pub fn arms(&self, policies: &[Policy]) -> Vec<Arm> {
        match policies.is_empty() {
            true => vec![Arm::recorded(self.recording, &self.demand)],
            false => policies
                .iter()
                .map(|policy| Arm::under(self.recording, &self.demand, policy))
                .collect(),
        }
    }

    pub fn prepare<'a>(&self, arm: &'a Arm) -> Prepared<'a> {
        Prepared::new(self.recording, &self.demand, arm)
    }

    /// Nanoseconds that so many arms simulate.
    pub fn total_ns(&self, arms: usize) -> u64 {
        let seconds = (self.demand.seconds + WARMUP_SECONDS) as u64;
        seconds * 1_000_000_000 * u64::from(self.options.seeds) * arms as u64
    }

    /// Every arm's outcomes, one a seed.
    ///
    /// # Errors
    /// A bug of the simulator, or of the scenario's writer.
    pub fn run(
        &self,
        prepared: &[Prepared<'_>],
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Vec<Vec<Outcome>>, ReplayError> {
        let seeds = self.options.seeds.max(1) as usize;
        let outcomes = parallel::parallel(self.options.jobs, prepared.len() * seeds, |at| {
            prepared[at / seeds].run((at % seeds) as u64 + 1, progress)
        });
        let outcomes: Vec<Outcome> = outcomes.into_iter().collect::<Result<_, _>>()?;
        Ok(outcomes.chunks(seeds).map(<[Outcome]>::to_vec).collect())
    }

    /// Arms beside what was.
    ///
    /// # Errors
    /// See [`Replay::run`].
    pub fn view(
        &self,
        arms: &[Arm],
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<ReplayView, ReplayError> {
        let prepared: Vec<Prepared<'_>> = arms.iter().map(|arm| self.prepare(arm)).collect();
        let outcomes = self.run(&prepared, progress)?;
        let simulated = prepared.iter().zip(&outcomes);
        let simulated =
            simulated.map(|(one, outcomes)| arm_view(self.recording, &self.demand, one, outcomes));
        let mut views: Vec<ArmView> = vec![as_it_was::arm(self.recording, &self.demand)];
        views.extend(simulated);
        let mut assumptions = assumptions::of(self.recording, &self.demand);
        for (one, outcomes) in prepared.iter().zip(&outcomes) {
            assumptions.extend(one.arm.notes.iter().cloned());
            let notes = one.written.notes.iter().cloned();
            assumptions.extend(
                notes
                    .filter(|note| !assumptions.contains(note))
                    .collect::<Vec<_>>(),
            );
            if let Some(refused) = outcomes.iter().find_map(|outcome| outcome.refusals.first()) {
                assumptions.push(format!("{}: the machine refused {refused}.", one.arm.name));
            }
        }
        Ok(ReplayView {
            recording: as_it_was::span(self.recording),
            arms: views,
            events: as_it_was::events(self.recording),
            assumptions,
        })
    }
}
