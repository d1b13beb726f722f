//! A small quota on many CPUs, of which each needs little now and then: slices of it that expire at
//! the end of a period, and slices that stay.
//!
//! A CPU takes its part of the pool in slices. Until de53fd7aedb1 (2019) what it had not used by
//! the end of the period expired, so CPUs that run a moment and sleep ate the quota of the one that
//! works. Since then slices do not expire, and all but 1 ms goes back when the CPU has nothing left
//! to run. The simulator has both; no kernel since 5.4 has the former.

use tidegate_sim::{Bandwidth, MachineConfig};

use crate::LabError;
use crate::experiment::{
    Arm, Ask, Bound, Case, Cell, Experiment, Figures, Metric, Of, Part, Target, scaled,
};
use crate::options::On;
use crate::runners::sim;
use crate::scene::{Group, Kind, Outcome, S, Scene};

pub static SLICES: Experiment = Experiment {
    name: "slices",
    question: "What becomes of a quota that many CPUs share",
    places: &[On::Sim],
    parts,
    notes: &[
        "A group with 10 ms in 100 ms. fibtest: one thread computes without end, on each other CPU one runs a moment and sleeps \
         for 10 ms. Excess is the most that the group used above its quota over any number of whole periods, divided by the \
         CPUs: what silos held back (at most 1 ms each), and what the busy thread overran until a tick.",
        "Simulated. Mechanism: pool, silos, slices, return of all but 1 ms and turnover as in the kernel, once with the expiry \
         that de53fd7aedb1 removed. The model's: the costs of a switch and a wakeup, which the group pays, and no contention \
         between CPUs. If slices expire, the sleepers' CPUs hold the quota when the period ends, and what the busy thread gets is \
         mostly what it overruns until the next tick; so the ratio depends on HZ and on where in a tick the periods begin (each \
         round has another phase). The commit names neither. On 16 CPUs there are fewer sleepers to hold the quota. On 256 CPUs \
         the sleepers need nearly all of it, some 3.5 us for each of their wakeups, with slices of either kind.",
    ],
};

const QUOTA_US: u64 = 10_000;
const PERIOD_US: u64 = 100_000;
const CPUS: u32 = 80;
const DEFAULT_SLICE_US: u64 = 5_000;

const BUSY: Metric = scaled("busy_thread_cpus", "busy thread, ms/s", 1e3, 2);
const EXCESS: Metric = scaled("excess_us_per_cpu", "excess, ms a CPU", 1e-3, 3);
const USED: Metric = scaled("used_of_quota_ratio", "of the quota used, %", 100.0, 1);
const METRICS: [Metric; 4] = [
    BUSY,
    USED,
    scaled("throttled_periods_ratio", "periods throttled, %", 100.0, 0),
    EXCESS,
];

fn parts(ask: &Ask<'_>) -> Result<Vec<Part>, LabError> {
    let part = Part::new("fibtest", "10 ms in 100 ms", cells(ask), figures, &METRICS);
    Ok(vec![part.targets(targets())])
}

fn scene(model: MachineConfig, seconds: u64, seed: u64) -> Scene {
    let mut scene = Scene::new(model, S, seconds * S, seed);
    let group = scene.group(Group {
        max: Some(Bandwidth::limit(QUOTA_US, PERIOD_US)),
        ..Group::new("limited")
    });
    // What a sleeping thread does between two sleeps: some hundred additions.
    let (busy, work_ns) = (1, 200);
    scene.load("fib", Some(group), Kind::Fibtest { busy, work_ns });
    scene.look_ns = Some(PERIOD_US * 1_000);
    scene
}

fn cells(ask: &Ask<'_>) -> Vec<Cell> {
    let seconds = ask.quick_or(3, 10);
    let sizes = ask.sizes(ask.quick_or(&[CPUS][..], &[16, CPUS, 256][..]));
    let slices = [1_000, 2_500, DEFAULT_SLICE_US, 10_000, 20_000];
    let mut cells = Vec::new();
    for (&cpus, hz) in sizes.iter().flat_map(|cpus| [(cpus, 1_000), (cpus, 250)]) {
        let is_swept = cpus == CPUS || sizes.len() == 1;
        for slice_us in slices
            .into_iter()
            .filter(|us| is_swept || *us == DEFAULT_SLICE_US)
        {
            let label = format!("HZ {hz}, slice {} ms", slice_us as f64 / 1e3);
            let case = Case::new(format!("{cpus} CPUs"), label)
                .with("cpus", cpus)
                .with("hz", hz)
                .with("slice_us", slice_us)
                .with("quota_us", QUOTA_US)
                .with("period_us", PERIOD_US);
            for round in 0..ask.rounds(3, 8) {
                for (key, label, expire) in [
                    ("expire", "slices that expire", true),
                    ("stay", "slices that stay", false),
                ] {
                    let model = MachineConfig {
                        tick_ns: S / hz,
                        bandwidth_slice_us: slice_us,
                        slices_expire: expire,
                        ..sim::plain(cpus)
                    };
                    let scene = scene(model, seconds, ask.seed(&[u64::from(round)]));
                    cells.push(Cell::new(&case, Arm::new(key, label), round, scene));
                }
            }
        }
    }
    cells
}

fn targets() -> Vec<Target> {
    let stay = |hz| {
        let what = format!("the busy thread, slices that stay over slices that expire, HZ {hz}");
        let target = Target::new(what, &["stay"], BUSY, "×").over("expire");
        let target = target.cases("hz", hz).of(Of::Most);
        target.bound(Bound::Least(30.0)).published(30.0)
    };
    let what = "use above the quota over whole periods, worst run";
    let excess = Target::new(what, &["stay"], EXCESS, "ms a CPU");
    let stock = excess.cases("slice_us", DEFAULT_SLICE_US).of(Of::Most);
    let stock = stock.bound(Bound::Most(1.0)).published(1.0);
    vec![stay(1_000), stay(250), stock]
}

/// The greatest rise of `used − quota · n` from its lowest point so far: use above the quota over
/// any run of whole periods.
fn excess_ns(used_ns: impl Iterator<Item = u64>) -> f64 {
    let (mut lowest, mut most) = (0i64, 0i64);
    for (periods, used) in used_ns.enumerate() {
        // Both are below 2^62 for a century of one CPU.
        let over = used as i64 - (periods as u64 * QUOTA_US * 1000) as i64;
        most = most.max(over - lowest);
        lowest = lowest.min(over);
    }
    most as f64
}

fn figures(_: &Cell, o: &Outcome) -> Vec<Figures> {
    let from = o.looks.first().map_or(0, |look| look.used_ns[0].0);
    let excess = excess_ns(o.looks.iter().map(|look| look.used_ns[0].0 - from));
    let limit = o.limits[0];
    let throttled_ratio = limit.nr_throttled as f64 / limit.nr_periods as f64;
    let quota_ns = o.seconds() * 1e9 * QUOTA_US as f64 / PERIOD_US as f64;
    let figures = Figures::default()
        .with("used_of_quota_ratio", o.used_ns(0) / quota_ns)
        .with("window_seconds", o.seconds())
        .with("busy_thread_cpus", o.first_ns(0) / 1e9 / o.seconds())
        .with("throttled_periods_ratio", throttled_ratio)
        .with("excess_us_per_cpu", excess / 1e3 / o.cpus);
    vec![figures]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excess_is_over_any_run_of_periods() {
        let quota = QUOTA_US * 1000;
        // One period unused, then two of the quota and a half each.
        let used = [0, 0, quota * 3 / 2, quota * 3];
        assert_eq!(excess_ns(used.into_iter()), quota as f64);
    }
}
