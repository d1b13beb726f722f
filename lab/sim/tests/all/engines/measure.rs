//! `tidegate measure` on the simulated machine, by the product's own control step, against the
//! slowdown that two whole runs with the same arrivals show.

use tidegate_engine::measure::Switched;
use tidegate_sim::contention::Contention;
use tidegate_sim::controller::Simulation;
use tidegate_sim::engines::cgroup::{CgroupConfig, CgroupEngine, CgroupLog, Sensing, compile};
use tidegate_sim::machine::Machine;
use tidegate_sim::{GroupId, MachineConfig, Ns, Topology};

use std::sync::{Arc, Mutex};

use super::bed::{groups, hog, poisson};
use crate::support::SECOND;
use tidegate_sim::TaskSpec;

const CPUS: u32 = 2;
/// Main of 25 % of the machine: 500 requests a second.
const MAIN_PPM: u64 = 250_000;
const LENGTH_NS: Ns = 60 * SECOND;
/// A switch costs a little of its own.
const SLACK: f64 = 0.005;
const WARM_NS: Ns = 2 * SECOND;

struct Run {
    simulation: Simulation,
    main: GroupId,
    log: Arc<Mutex<CgroupLog>>,
}

impl Run {
    /// Main and a hog a CPU, where a busy other CPU takes `slower_ppm` of a CPU's speed.
    fn new(seed: u64, slower_ppm: u32, headroom_ppm: u32, is_measured: bool) -> Self {
        let mut config = MachineConfig::new(CPUS);
        config.topology = Topology::new(CPUS, 1, CPUS);
        config.seed = seed;
        config.contention = Contention {
            llc_ppm: slower_ppm,
            ..Contention::NONE
        };
        let mut machine = Machine::new(config).unwrap();
        let (mut specs, terms) = groups(headroom_ppm);
        let tick_ns = machine.config().tick_ns;
        let compiled = compile(&mut specs, &terms, tick_ns);
        let [main, side] = specs.map(|spec| machine.add_group(spec).unwrap());
        for _ in 0..CPUS {
            machine
                .spawn(TaskSpec::new("main", main, poisson(MAIN_PPM)))
                .unwrap();
            machine.spawn(TaskSpec::new("hog", side, hog())).unwrap();
        }
        let config = CgroupConfig {
            sensing: Sensing::Bpf,
            whole_cores: false,
            seed,
        };
        let mut engine = CgroupEngine::new(config, &compiled);
        if is_measured {
            engine.measure(Switched::Levels(vec![0]), LENGTH_NS, WARM_NS);
        }
        let log = engine.log();
        let simulation = Simulation::new(machine, vec![Box::new(engine)]);
        Self {
            simulation,
            main,
            log,
        }
    }

    fn runnable_ns(&self) -> u64 {
        let machine = &self.simulation.machine;
        machine.usage_ns(self.main) + machine.run_delay_ns(self.main)
    }

    fn runnable_over(mut self) -> f64 {
        self.simulation.run_until(WARM_NS).unwrap();
        let before_ns = self.runnable_ns();
        self.simulation.run_until(WARM_NS + LENGTH_NS).unwrap();
        (self.runnable_ns() - before_ns) as f64
    }
}

#[test]
fn a_measured_slowdown_is_that_of_two_whole_runs() {
    let seeds = 1..=8;
    for slower_ppm in [0, 30_000, 100_000, 250_000] {
        let mut held = 0;
        for seed in seeds.clone() {
            let free = Run::new(seed, slower_ppm, 0, false).runnable_over();
            let reference = Run::new(seed, slower_ppm, 999_999, false).runnable_over();
            let truth = free / reference - 1.0;
            let mut measured = Run::new(seed, slower_ppm, 0, true);
            measured
                .simulation
                .run_until(WARM_NS + LENGTH_NS + SECOND)
                .unwrap();
            let log = measured.log.lock().unwrap();
            let effect = log.findings.as_ref().unwrap().effects[0].unwrap();
            let found = effect.slowdown_ratio;
            println!("{slower_ppm} ppm, seed {seed}: {truth:.3}, measured {found:.3?}");
            held += u32::from((found.lower - SLACK..=found.upper + SLACK).contains(&truth));
            assert!(effect.side_cpus > 1.2, "{effect:?}");
            assert!(slower_ppm < 100_000 || found.lower > 0.0, "{found:?}");
        }
        assert!(held >= 7, "{slower_ppm} ppm: {held} of 8");
    }
}
