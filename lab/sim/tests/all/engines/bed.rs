//! Machines with a main that keeps to a load curve and side work that takes all it gets.

use tidegate_sim::controller::Simulation;
use tidegate_sim::engines::cgroup::{CgroupConfig, CgroupEngine, Sensing, compile};
use tidegate_sim::machine::Machine;
use tidegate_sim::policies::Sides;
use tidegate_sim::{
    Class, Ctx, GroupId, GroupSpec, MachineConfig, Ns, Op, Program, TaskSpec, Topology,
};

use tidegate_terms::{Config, RawTerms, Share, Source, Terms};

use crate::support::MS;

pub const SENSINGS: [Sensing; 2] = [Sensing::Bpf, Sensing::Usage];

const PERIOD_NS: u64 = 2 * MS;

/// Computes its part of every period, in parts per million; what one period lacked the next makes
/// up for.
fn duty(load_ppm: u64, phase_ns: u64) -> Box<dyn Program> {
    let mut next_ns = phase_ns;
    let mut sleeping = true;
    Box::new(move |ctx: &mut Ctx<'_>| {
        sleeping = !sleeping;
        if sleeping {
            return Op::SleepUntil { at_ns: next_ns };
        }
        let mut work_ns = 0;
        while next_ns <= ctx.now_ns {
            work_ns += load_ppm * PERIOD_NS / 1_000_000;
            next_ns += PERIOD_NS;
        }
        Op::Run { work_ns }
    })
}

/// Serves requests of 1 ms on average that come at random: one of `cpus` queues.
fn poisson(ppm: u64) -> Box<dyn Program> {
    let mut due_ns = 0;
    let mut serve = false;
    Box::new(move |ctx: &mut Ctx<'_>| {
        serve = !serve;
        if serve {
            due_ns += ctx.rng.exp_ns(MS * 1_000_000 / ppm.max(1));
            return Op::SleepUntil { at_ns: due_ns };
        }
        Op::Run {
            work_ns: ctx.rng.exp_ns(MS),
        }
    })
}

pub fn hog() -> Box<dyn Program> {
    Box::new(|_: &mut Ctx<'_>| Op::Run { work_ns: 10 * MS })
}

/// A machine at work, and the groups in it.
pub struct Bed {
    pub simulation: Simulation,
    pub main: GroupId,
    pub side: GroupId,
    pub cpus: u32,
}

/// A main with headroom and side work, and their terms.
fn groups(headroom_ppm: u32) -> ([GroupSpec; 2], [Terms; 2]) {
    let headroom = Share::from_ppm(headroom_ppm).unwrap().to_string();
    let mut main = RawTerms::default();
    main.insert("class", "main", Source::Set);
    main.insert("headroom", &headroom, Source::Set);
    let main = Config::default().resolve(&[&main]).unwrap();
    let specs = ["main", "side"].map(|name| GroupSpec::new(name, GroupId::ROOT));
    (specs, [main, Terms::of_class(Class::Side)])
}

impl Bed {
    /// An engine over main and side, which have no tasks yet.
    pub fn new(cpus: u32, threads: u32, sensing: Sensing, headroom_ppm: u32) -> Self {
        let mut config = MachineConfig::new(cpus);
        config.topology = Topology::new(cpus, threads, cpus.min(8));
        config.check = true;
        Self::of(config, sensing, headroom_ppm, |_| ())
    }

    /// The same on another machine, with an engine that is told something.
    pub fn of(
        config: MachineConfig,
        sensing: Sensing,
        headroom_ppm: u32,
        tell: impl FnOnce(&mut CgroupEngine),
    ) -> Self {
        let (mut specs, terms) = groups(headroom_ppm);
        let compiled = compile(&mut specs, &terms, config.tick_ns);
        let engine = CgroupConfig {
            sensing,
            whole_cores: false,
            seed: config.seed,
        };
        let mut engine = CgroupEngine::new(engine, &compiled);
        tell(&mut engine);
        let mut machine = Machine::new(config).unwrap();
        let [main, side] = specs.map(|spec| machine.add_group(spec).unwrap());
        Self {
            cpus: machine.cpus(),
            simulation: Simulation::new(machine, vec![Box::new(engine)]),
            main,
            side,
        }
    }

    /// The same without an engine, for the law of another controller.
    pub fn bare(cpus: u32, headroom_ppm: u32) -> (Self, Sides) {
        let mut bed = Self::new(cpus, 1, Sensing::Bpf, headroom_ppm);
        bed.simulation.controllers.clear();
        let sides = Sides {
            side: vec![bed.side],
            main: vec![bed.main],
        };
        (bed, sides)
    }

    pub fn spawn(&mut self, name: &str, group: GroupId, program: Box<dyn Program>) {
        let spec = TaskSpec::new(name, group, program);
        self.simulation.machine.spawn(spec).unwrap();
    }

    /// A main of one worker a CPU that keeps to this load, and a hog a CPU.
    pub fn fill(&mut self, load_ppm: u64) {
        for cpu in 0..self.cpus {
            let phase_ns = u64::from(cpu) * PERIOD_NS / u64::from(self.cpus);
            self.spawn("main", self.main, duty(load_ppm, phase_ns));
            self.spawn("hog", self.side, hog());
        }
    }

    /// A main of random requests, and a hog a CPU.
    pub fn fill_poisson(&mut self, ppm: u64) {
        for _ in 0..self.cpus {
            self.spawn("main", self.main, poisson(ppm));
            self.spawn("hog", self.side, hog());
        }
    }

    pub fn run_until(&mut self, ns: Ns) {
        self.simulation.run_until(ns).unwrap();
        for controller in &self.simulation.controllers {
            assert_eq!(controller.refusal(), None);
        }
    }

    fn ppm(&self, ns: u64, wall_ns: u64) -> u64 {
        ns * 1_000_000 / (wall_ns * u64::from(self.cpus))
    }

    /// Main, side and idle over the next `ns`, in parts per million of the machine.
    pub fn shares(&mut self, ns: u64) -> (u64, u64, u64) {
        let read = |bed: &Bed| {
            let machine = &bed.simulation.machine;
            (
                machine.usage_ns(bed.main),
                machine.usage_ns(bed.side),
                machine.idle_ns(),
            )
        };
        let from = read(self);
        let until_ns = self.simulation.machine.now_ns() + ns;
        self.run_until(until_ns);
        let to = read(self);
        (
            self.ppm(to.0 - from.0, ns),
            self.ppm(to.1 - from.1, ns),
            self.ppm(to.2 - from.2, ns),
        )
    }
}
