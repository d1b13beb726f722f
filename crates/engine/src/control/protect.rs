//! Headroom that is found: main's run delay, or a latency that is reported from outside, against
//! its objective, and what that adds to the headroom asked for.
//!
//! The arithmetic is `law/delay.h`; here are the objective as the gates word it, the evidence from
//! window to window, and what there is to show. A sensor that does not know run delay leaves the
//! extra headroom where it started; so does a reporter that is silent.

use tidegate_law::HeadroomSample;
use tidegate_law::delay::{Config, Delay, Evidence, State};

use crate::sense::{Sensor, WAIT_BUCKETS, Waits, percentile_ns};

/// Seconds that the figures to show look back over, at least; at most twice as many.
const SHOWN_NS: u64 = 60_000_000_000;

/// The law judges runs of which a share may be late. A report counts for so many, and a half of
/// them may be late: then each report that misses the objective is an alarm, and two in a row that
/// meet it are enough to tell that main is well.
const RUNS_PER_REPORT: u64 = 32;
const REPORTED_SHARE_PPM: u32 = 500_000;
const LATENCY_MOST_NS: u64 = 3_600_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// How long main waited to run. This share of its runs may be late: 10,000 for p99.
    RunDelay {
        share_ppm: u32,
    },
    Reported,
}

impl Figure {
    /// What may be late, in millionths.
    pub fn share_ppm(self) -> u32 {
        match self {
            Figure::RunDelay { share_ppm } => share_ppm,
            Figure::Reported => REPORTED_SHARE_PPM,
        }
    }

    /// A reported figure is one of the last seconds and comes every few seconds: a raise needs
    /// longer to show, and what was raised stands until several reports have told that it may go.
    fn tuning(self) -> Config {
        match self {
            Figure::RunDelay { .. } => Config::default(),
            Figure::Reported => Config {
                settle_us: 3_000_000,
                hold_us: 60_000_000,
                vain_us: 30_000_000,
                rest_us: 300_000_000,
                ..Config::default()
            },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objective {
    pub gate: String,
    pub figure: Figure,
    pub late_after_ns: u64,
    /// Extra headroom to begin with: a default where no gate names a headroom, else 0.
    pub start_ppm: u32,
    pub from: String,
}

/// An objective is judged by so many waits, or reports, of the last minute or two.
const WAITS_MIN: u64 = 200;
const REPORTS_MIN: u64 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protection {
    pub objective: Objective,
    pub extra_ppm: u32,
    pub state: State,
    /// Whether the figure is known at all: the sensor tells run delay; there was a report in the
    /// last minute or two.
    pub measured: bool,
    /// Main's waits in the last minute or two; reports count as runs of that wait.
    pub recent: Waits,
    /// The wait that main's percentile was not above since the sensor was opened, up to twice too
    /// long; the last report.
    pub percentile_ns: u64,
    pub raises: u32,
    /// How often a raise was given back since it did not help.
    pub vain: u32,
}

impl Protection {
    /// Whether more of the last minute or two was late than may be; none where there is too little
    /// to tell.
    pub fn is_missed(&self) -> Option<bool> {
        let figure = self.objective.figure;
        let count_min = match figure {
            Figure::RunDelay { .. } => WAITS_MIN,
            Figure::Reported => REPORTS_MIN,
        };
        let (runs, late) = (u128::from(self.recent.runs), u128::from(self.recent.late));
        let can_tell = self.measured && self.recent.runs >= count_min;
        can_tell.then(|| late * 1_000_000 > runs * u128::from(figure.share_ppm()))
    }
}

#[derive(Default)]
pub struct Protect {
    law: Option<(Objective, Delay)>,
    extra_ppm: u32,
    halves: [Waits; 2],
    half_ns: u64,
    reported_ns: Option<u64>,
    last_report_ns: u64,
}

impl Protect {
    /// Follows this objective from now on. What was found under another stands as long as there is
    /// one.
    pub fn follow(&mut self, objective: Option<&Objective>, sensor: &mut dyn Sensor) {
        if self.law.as_ref().map(|(old, _)| old) == objective {
            return;
        }
        *self = match objective.cloned() {
            None => Self::default(),
            Some(new) => {
                let share_ppm = new.figure.share_ppm();
                let is_alike = |old: &Objective| old.figure.tuning() == new.figure.tuning();
                let delay = match self.law.take() {
                    Some((old, mut delay)) if is_alike(&old) => {
                        delay.set_objective(share_ppm);
                        delay
                    }
                    _ => Delay::new(new.figure.tuning(), share_ppm, new.start_ppm),
                };
                if new.figure != Figure::Reported {
                    sensor.set_late_after(new.late_after_ns);
                }
                Self {
                    extra_ppm: delay.extra_ppm(),
                    law: Some((new, delay)),
                    ..Self::default()
                }
            }
        };
    }

    /// Main's latency as it was reported; judged in the next step, where several came the last of
    /// them.
    pub fn report(&mut self, latency_ns: u64) {
        self.reported_ns = Some(latency_ns.min(LATENCY_MOST_NS));
    }

    pub fn step(&mut self, sample: &HeadroomSample, waits: &Waits, tolerance_ppm: u32) -> bool {
        let Some((objective, law)) = &mut self.law else {
            return false;
        };
        let (waits, runs_each) = match objective.figure {
            Figure::RunDelay { .. } => (*waits, 1),
            Figure::Reported => {
                let report = self.reported_ns.take_if(|_| sample.valid);
                self.last_report_ns = report.unwrap_or(self.last_report_ns);
                let waits = report.map(|latency_ns| Waits {
                    runs: 1,
                    late: u64::from(latency_ns > objective.late_after_ns),
                    wait_ns: latency_ns,
                    ..Waits::default()
                });
                (waits.unwrap_or_default(), RUNS_PER_REPORT)
            }
        };
        self.half_ns += sample.dt_ns;
        if self.half_ns > SHOWN_NS {
            self.half_ns = 0;
            self.halves = [Waits::default(), self.halves[0]];
        }
        self.halves[0].add(&waits);
        let evidence = Evidence {
            dt_ns: sample.dt_ns,
            runs: waits.runs * runs_each,
            late: waits.late.min(waits.runs) * runs_each,
            side_ns: sample.side_ns,
            capacity_ns: sample.capacity_ns,
            floor_ppm: tolerance_ppm,
            ..Evidence::default()
        };
        let extra_ppm = law.step(&evidence.vouched(sample.valid));
        std::mem::replace(&mut self.extra_ppm, extra_ppm) != extra_ppm
    }

    pub fn extra_ppm(&self) -> u32 {
        self.extra_ppm
    }

    pub fn protection(&self, sensor: &dyn Sensor) -> Option<Protection> {
        let (objective, law) = self.law.as_ref()?;
        let mut recent = self.halves[0];
        recent.add(&self.halves[1]);
        let (measured, percentile_ns) = match objective.figure {
            Figure::RunDelay { share_ppm } => {
                let buckets = sensor.wait_buckets().unwrap_or([0; WAIT_BUCKETS]);
                let within_ppm = 1_000_000 - share_ppm.min(1_000_000);
                (sensor.tells_waits(), percentile_ns(&buckets, within_ppm))
            }
            Figure::Reported => (recent.runs > 0, self.last_report_ns),
        };
        Some(Protection {
            objective: objective.clone(),
            extra_ppm: self.extra_ppm,
            state: law.state(),
            measured,
            recent,
            percentile_ns,
            raises: law.raises(),
            vain: law.vain(),
        })
    }
}
