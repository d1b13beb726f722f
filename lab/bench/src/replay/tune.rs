//! Which terms would have served a work best: candidates through a replay, and the one that meets
//! an aim with the most work done.

use serde::{Deserialize, Serialize};
use tidegate_sim::outcome::Outcome;
use tidegate_terms::{Class, Objective, Share, Terms, TimeSpan};

use crate::replay::Replay;
use crate::replay::arm::{Arm, side_terms};
use crate::replay::demand::Wants;
use crate::replay::simulate::{Prepared, Read, ReplayError, arm_view, figure};
use crate::replay::view::{ArmView, FigureView};
use crate::replay::{as_it_was, assumptions};

/// Headrooms that are tried, in percent.
const HEADROOMS_PCT: [u32; 13] = [0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60];

/// Candidates whose work is within this of the best serve as well; of them the largest headroom is
/// taken.
const AS_GOOD: f64 = 0.99;

/// The name of the arm without terms.
pub const WITHOUT_TERMS: &str = "no terms";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// All but this share of waits are no longer than this.
    Delay { late_ppm: u32, span: TimeSpan },
    /// Main's requests take at most this much longer than without the work, in millionths.
    Harm { ppm: u32 },
}

impl Aim {
    /// From `p99<5ms`.
    ///
    /// # Errors
    /// Anything else.
    pub fn parse(text: &str) -> Result<Aim, String> {
        match Objective::parse(text) {
            Ok(Objective::Delay { late_ppm, span }) => Ok(Aim::Delay { late_ppm, span }),
            Ok(_) => Err("is not simulated; write it as in p99<5ms".to_owned()),
            Err(why) => Err(format!("{why}; write it as in p99<5ms")),
        }
    }
}

impl std::fmt::Display for Aim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Aim::Delay { late_ppm, span } => Objective::Delay {
                late_ppm: *late_ppm,
                span: *span,
            }
            .fmt(f),
            Aim::Harm { ppm } => write!(f, "harm at most {}", share(*ppm)),
        }
    }
}

fn share(ppm: u32) -> String {
    Share::from_ppm(ppm).unwrap_or(Share::WHOLE).to_string()
}

/// What was tried, and what is best.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuneView {
    pub target: String,
    pub cgroup: String,
    pub aim: String,
    pub rows: Vec<TuneRow>,
    /// The place of the best in `rows`; none where no candidate meets the aim.
    pub chosen: Option<usize>,
    /// What the simulation takes for granted, in sentences.
    pub assumptions: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuneRow {
    pub terms: String,
    /// Headroom that it asks for, in percent; none where it is no candidate.
    pub headroom_pct: Option<u32>,
    pub arm: ArmView,
    pub work_cpus: Option<FigureView>,
    /// The same, percent of what it does without terms.
    pub work_pct: Option<f64>,
    /// How much longer main's requests take than without the work, percent.
    pub harm_pct: Option<FigureView>,
    /// Whether the aim is met with every seed; none where nothing tells it.
    pub is_met: Option<bool>,
}

/// Why there is nothing to tune.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// Main is what terms are for.
    #[error(
        "{0}: is main work, which side work makes room for; name side work or work without a gate"
    )]
    IsMain(String),
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

struct Candidate {
    arm: Arm,
    headroom_pct: Option<u32>,
}

/// The arms: as recorded, without terms, and side work with each headroom.
fn candidates(recorded: &Arm, work: usize) -> Vec<Candidate> {
    let neither = |arm| Candidate {
        arm,
        headroom_pct: None,
    };
    let mut all = vec![
        neither(recorded.clone()),
        neither(recorded.with_terms(WITHOUT_TERMS, work, None)),
    ];
    let least_pct = named_pct(recorded, work);
    let tried = HEADROOMS_PCT.into_iter();
    for pct in tried.filter(|pct| *pct >= least_pct) {
        let terms: Terms = side_terms(&format!("{pct}%"));
        let name = format!("side, headroom {pct}%");
        all.push(Candidate {
            arm: recorded.with_terms(&name, work, Some(terms)),
            headroom_pct: Some(pct),
        });
    }
    all
}

/// The largest headroom that another gate names, in whole percent rounded down: less has no effect,
/// since the largest counts.
fn named_pct(recorded: &Arm, work: usize) -> u32 {
    let others = recorded.nodes.iter().filter(|node| node.work != Some(work));
    let named = others.filter_map(|node| node.terms.as_ref()?.headroom.value.ppm());
    named.max().unwrap_or(0).min(600_000) / 10_000
}

/// How many arms a tuning simulates at most.
pub fn arms() -> usize {
    HEADROOMS_PCT.len() + 3
}

/// Tries them.
///
/// # Errors
/// The work is main's, or the simulation failed.
pub fn tune(
    replay: &Replay<'_>,
    work: usize,
    aim: Aim,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<TuneView, TuneError> {
    let demand = &replay.demand;
    let target = &demand.works[work];
    let recorded = Arm::recorded(replay.recording, demand);
    let node = recorded.node_of(work);
    if node.is_some_and(|node| recorded.class_of(node) == Class::Main) {
        return Err(TuneError::IsMain(target.name.clone()));
    }
    let candidates = candidates(&recorded, work);
    let mut prepared: Vec<Prepared<'_>> = candidates
        .iter()
        .map(|one| replay.prepare(&one.arm))
        .collect();
    prepared.push(without(replay, work).prepare(&recorded));
    let mut outcomes = replay.run(&prepared, progress)?;
    let base = outcomes.pop().unwrap_or_default();
    let base_us = requests(prepared.last(), &base);
    prepared.pop();
    let mut rows: Vec<TuneRow> = candidates
        .iter()
        .zip(prepared.iter().zip(&outcomes))
        .map(|(one, (prepared, outcomes))| {
            row(replay, work, aim, one, prepared, outcomes, &base_us)
        })
        .collect();
    let whole = rows.iter().find(|row| row.terms == WITHOUT_TERMS);
    let whole = whole.and_then(|row| row.work_cpus).map(|cpus| cpus.value);
    for row in &mut rows {
        let pct = |cpus: FigureView| whole.map(|whole| cpus.value * 100.0 / whole.max(1e-9));
        row.work_pct = row.work_cpus.and_then(pct);
    }
    let mut assumptions = assumptions::of(replay.recording, demand);
    if let named @ 1.. = named_pct(&recorded, work) {
        assumptions.insert(0, format!(
            "Another gate asks for {named}% headroom; of several the largest counts, so that less is not tried."
        ));
    }
    let was = as_it_was::arm(replay.recording, demand).figures;
    let caution = rows
        .first()
        .and_then(|row| assumptions::caution(&was, &row.arm.figures));
    if let Some(caution) = caution {
        assumptions.insert(0, caution);
    }
    Ok(TuneView {
        target: target.name.clone(),
        cgroup: target.cgroup.clone(),
        aim: aim.to_string(),
        chosen: best(&rows),
        rows,
        assumptions,
    })
}

/// The same demand without that of one work.
fn without<'r>(replay: &Replay<'r>, work: usize) -> Replay<'r> {
    let mut demand = replay.demand.clone();
    let target = &mut demand.works[work];
    target.own_cpus.fill(0.0);
    target.wants = Wants::Used {
        request_us: 1_000.0,
    };
    Replay {
        recording: replay.recording,
        demand,
        options: replay.options,
    }
}

/// How long main's requests take, by seed.
fn requests(prepared: Option<&Prepared<'_>>, outcomes: &[Outcome]) -> Vec<Option<f64>> {
    let of = |outcome| {
        let prepared = prepared?;
        let written = &prepared.written;
        Read { written, outcome }.main_request_us(prepared.arm)
    };
    outcomes.iter().map(of).collect()
}

fn row(
    replay: &Replay<'_>,
    work: usize,
    aim: Aim,
    candidate: &Candidate,
    prepared: &Prepared<'_>,
    outcomes: &[Outcome],
    base_us: &[Option<f64>],
) -> TuneRow {
    let written = &prepared.written;
    let reads = || outcomes.iter().map(|outcome| Read { written, outcome });
    let node = candidate.arm.node_of(work);
    let used: Vec<f64> = node
        .map(|node| reads().map(|read| read.node_cpus(node)).collect())
        .unwrap_or_default();
    let longer = requests(Some(prepared), outcomes);
    let harm: Vec<f64> = longer
        .iter()
        .zip(base_us)
        .filter_map(|(with, without)| Some((*with)? / (*without)? * 100.0 - 100.0))
        .collect();
    let harm_pct = figure(&harm);
    let is_met = match aim {
        Aim::Harm { ppm } => harm_pct.map(|harm| harm.to <= f64::from(ppm) / 1e4),
        Aim::Delay { late_ppm, span } => {
            let waits: Vec<_> = reads().map(|read| read.main_waits()).collect();
            let counted = waits.iter().any(|one| one.count() > 0);
            let is_short =
                |one: &tidegate_sim::Histogram| one.percentile_ns(1_000_000 - late_ppm) < span.ns();
            counted.then(|| waits.iter().all(is_short))
        }
    };
    TuneRow {
        terms: candidate.arm.name.clone(),
        headroom_pct: candidate.headroom_pct,
        arm: arm_view(replay.recording, &replay.demand, prepared, outcomes),
        work_cpus: figure(&used),
        work_pct: None,
        harm_pct,
        is_met,
    }
}

/// Of the candidates that meet the aim the one with the most work done.
fn best(rows: &[TuneRow]) -> Option<usize> {
    let work = |at: usize| rows[at].work_cpus.map_or(0.0, |cpus| cpus.value);
    let is_candidate = |row: &TuneRow| row.headroom_pct.is_some() && row.is_met == Some(true);
    let meet: Vec<usize> = (0..rows.len())
        .filter(|at| is_candidate(&rows[*at]))
        .collect();
    let most = meet.iter().map(|at| work(*at)).fold(0.0, f64::max);
    meet.into_iter()
        .filter(|at| work(*at) >= AS_GOOD * most)
        .max_by_key(|at| rows[*at].headroom_pct)
}
