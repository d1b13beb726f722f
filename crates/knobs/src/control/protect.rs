//! Headroom that is found: main's run delay against its objective, and what that adds to the headroom asked for.
//!
//! The arithmetic is `law/delay.h`; here are the objective as the gates word it, the evidence from window to window, and
//! what there is to show. A sensor that does not know run delay leaves the extra headroom where it started.

use tidegate_law::HeadroomSample;
use tidegate_law::delay::{Config, Delay, Evidence, State};

use crate::sense::{Sensor, WAIT_BUCKETS, Waits, percentile_ns};

/// Seconds that the figures to show look back over, at least; at most twice as many.
const SHOWN_NS: u64 = 60_000_000_000;

/// How long main may wait to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objective {
    /// A longer wait is a late one.
    pub late_after_ns: u64,
    /// The share of main's runs that may be late: 10,000 for p99.
    pub share_ppm: u32,
    /// Extra headroom to begin with: a default where no gate names a headroom, else 0.
    pub start_ppm: u32,
    /// Who asked for it, and in which words.
    pub from: String,
}

/// What the objective led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protection {
    /// The objective.
    pub objective: Objective,
    /// Headroom on top of what was asked.
    pub extra_ppm: u32,
    /// Where the law stands.
    pub state: State,
    /// Whether the sensor knows run delay at all.
    pub measured: bool,
    /// Main's waits in the last minute or two.
    pub recent: Waits,
    /// The wait that main's percentile was not above since the sensor was opened; up to twice too long.
    pub percentile_ns: u64,
    /// Raises since the objective was named.
    pub raises: u32,
    /// How often a raise was given back since it did not help.
    pub vain: u32,
}

/// The law and its evidence.
#[derive(Default)]
pub struct Protect {
    law: Option<(Objective, Delay)>,
    extra_ppm: u32,
    halves: [Waits; 2],
    half_ns: u64,
}

impl Protect {
    /// Follows this objective from now on. What was found under another stands as long as there is one.
    pub fn follow(&mut self, objective: Option<&Objective>, sensor: &mut dyn Sensor) {
        if self.law.as_ref().map(|(old, _)| old) == objective {
            return;
        }
        *self = match objective.cloned() {
            None => Self::default(),
            Some(new) => {
                let delay = match self.law.take() {
                    Some((_, mut delay)) => {
                        delay.set_objective(new.share_ppm);
                        delay
                    }
                    None => Delay::new(Config::default(), new.share_ppm, new.start_ppm),
                };
                sensor.set_late_after(new.late_after_ns);
                Self {
                    extra_ppm: delay.extra_ppm(),
                    law: Some((new, delay)),
                    ..Self::default()
                }
            }
        };
    }

    /// One window; whether the extra headroom changed.
    pub fn step(&mut self, sample: &HeadroomSample, waits: &Waits, tolerance_ppm: u32) -> bool {
        let Some((_, law)) = &mut self.law else {
            return false;
        };
        self.half_ns += sample.dt_ns;
        if self.half_ns > SHOWN_NS {
            self.half_ns = 0;
            self.halves = [Waits::default(), self.halves[0]];
        }
        self.halves[0].add(waits);
        let evidence = Evidence {
            dt_ns: sample.dt_ns,
            runs: waits.runs,
            late: waits.late.min(waits.runs),
            side_ns: sample.side_ns,
            capacity_ns: sample.capacity_ns,
            floor_ppm: tolerance_ppm,
            ..Evidence::default()
        };
        let extra_ppm = law.step(&evidence.vouched(sample.valid));
        std::mem::replace(&mut self.extra_ppm, extra_ppm) != extra_ppm
    }

    /// Headroom on top of what was asked.
    pub fn extra_ppm(&self) -> u32 {
        self.extra_ppm
    }

    /// What there is to show.
    pub fn protection(&self, sensor: &dyn Sensor) -> Option<Protection> {
        let (objective, law) = self.law.as_ref()?;
        let buckets = sensor.wait_buckets().unwrap_or([0; WAIT_BUCKETS]);
        let mut recent = self.halves[0];
        recent.add(&self.halves[1]);
        Some(Protection {
            objective: objective.clone(),
            extra_ppm: self.extra_ppm,
            state: law.state(),
            measured: sensor.tells_waits(),
            recent,
            percentile_ns: percentile_ns(&buckets, 1_000_000 - objective.share_ppm.min(1_000_000)),
            raises: law.raises(),
            vain: law.vain(),
        })
    }
}
