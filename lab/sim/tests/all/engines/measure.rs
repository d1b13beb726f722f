//! `tidegate measure` on the simulated machine, by the product's own control step, against the
//! slowdown that two whole runs with the same arrivals show.

use std::sync::Arc;

use tidegate_engine::measure::Switched;
use tidegate_sim::contention::Contention;
use tidegate_sim::engines::cgroup::{CgroupEngine, Sensing};
use tidegate_sim::{MachineConfig, Ns};

use super::bed::Bed;
use crate::support::SECOND;

/// Main of 25 % of the machine: 500 requests a second.
const MAIN_PPM: u64 = 250_000;
const LENGTH_NS: Ns = 60 * SECOND;
/// A switch costs a little of its own.
const SLACK: f64 = 0.005;
const WARM_NS: Ns = 2 * SECOND;

/// Main and a hog a CPU, where a busy other CPU takes `slower_ppm` of a CPU's speed.
fn bed(seed: u64, slower_ppm: u32, headroom_ppm: u32, tell: impl FnOnce(&mut CgroupEngine)) -> Bed {
    let mut config = MachineConfig::new(2);
    config.seed = seed;
    config.contention = Contention {
        llc_ppm: slower_ppm,
        ..Contention::NONE
    };
    let mut bed = Bed::of(config, Sensing::Bpf, headroom_ppm, tell);
    bed.fill_poisson(MAIN_PPM);
    bed
}

/// How long main ran or waited to.
fn runnable(mut bed: Bed) -> f64 {
    let runnable_ns = |bed: &Bed| {
        let machine = &bed.simulation.machine;
        machine.usage_ns(bed.main) + machine.run_delay_ns(bed.main)
    };
    bed.run_until(WARM_NS);
    let before_ns = runnable_ns(&bed);
    bed.run_until(WARM_NS + LENGTH_NS);
    (runnable_ns(&bed) - before_ns) as f64
}

#[test]
fn a_measured_slowdown_is_that_of_two_whole_runs() {
    let seeds = 1..=8;
    for slower_ppm in [0, 30_000, 100_000, 250_000] {
        let mut held = 0;
        for seed in seeds.clone() {
            let free = runnable(bed(seed, slower_ppm, 0, |_| ()));
            let reference = runnable(bed(seed, slower_ppm, 999_999, |_| ()));
            let truth = free / reference - 1.0;
            let mut findings = Arc::default();
            let mut measured = bed(seed, slower_ppm, 0, |engine| {
                findings = engine.measure(Switched::Levels(vec![0]), LENGTH_NS, WARM_NS);
            });
            measured.run_until(WARM_NS + LENGTH_NS + SECOND);
            let findings = findings.lock().unwrap();
            let effect = findings.as_ref().unwrap().effects[0].unwrap();
            let found = effect.slowdown_ratio;
            println!("{slower_ppm} ppm, seed {seed}: {truth:.3}, measured {found:.3?}");
            held += u32::from((found.lower - SLACK..=found.upper + SLACK).contains(&truth));
            assert!(effect.side_cpus > 1.2, "{effect:?}");
            assert!(slower_ppm < 100_000 || found.lower > 0.0, "{found:?}");
        }
        assert!(held >= 7, "{slower_ppm} ppm: {held} of 8");
    }
}
