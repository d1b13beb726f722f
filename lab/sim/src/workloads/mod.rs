//! What simulated tasks do: each workload is a small description ([`Kind`]) from which tasks with
//! programs are made.
//!
//! | workload | models | records |
//! |---|---|---|
//! | [`OpenLoop`] | a server whose requests come when they come | `latency` from the scheduled arrival, `wakeup` |
//! | [`ClosedLoop`] | clients that wait for an answer, then think | `latency` of a request |
//! | [`Hog`] | computing without end, or a part of each period | – |
//! | [`Frames`] | an encoder: frames cut into pieces for worker threads, a barrier after each | `frame` time |
//! | [`Hackbench`] | groups of senders and receivers over pipes | `finish` of each task |
//! | [`Cyclictest`] | a periodic timer | `wakeup` after the timer |
//! | [`Fibtest`] | busy threads beside threads that run a moment and sleep, each on a CPU of its own | – |
//! | [`ForkStorm`] | parents that fork short-lived children | `life` of a child |
//!
//! Values that belong to the warm-up are not recorded ([`Common::record_from_ns`]).

pub mod arrivals;
mod closed_loop;
mod cyclictest;
mod fibtest;
mod fork_storm;
mod frames;
mod hackbench;
mod hog;
mod open_loop;

pub use arrivals::{Arrivals, Curve, Pattern, Request};
pub use closed_loop::ClosedLoop;
pub use cyclictest::Cyclictest;
pub use fibtest::Fibtest;
pub use fork_storm::ForkStorm;
pub use frames::Frames;
pub use hackbench::Hackbench;
pub use hog::Hog;
pub use open_loop::OpenLoop;

use serde::Deserialize;

use crate::Ns;
use crate::cpuset::CpuSet;
use crate::error::SimError;
use crate::ids::{GroupId, SeriesId, TaskId};
use crate::machine::Machine;
use crate::prng::Prng;
use crate::program::{Ctx, Op, Program, TaskSpec};
use crate::spec::Policy;
use crate::values::any_time;

/// How the amount of work of one request varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    Fixed,
    /// Anything from half to one and a half of the mean, evenly.
    Uniform,
    /// Exponential: most are short, few are long.
    Exponential,
}

/// An amount of work, drawn again each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Work {
    /// Its mean, as CPU time at full speed.
    #[serde(rename = "mean", deserialize_with = "any_time")]
    pub mean_ns: u64,
    pub shape: Shape,
}

impl Work {
    pub const fn fixed(mean_ns: u64) -> Work {
        let shape = Shape::Fixed;
        Work { mean_ns, shape }
    }

    pub const fn uniform(mean_ns: u64) -> Work {
        let shape = Shape::Uniform;
        Work { mean_ns, shape }
    }

    /// One draw, at least a nanosecond.
    pub fn draw(&self, rng: &mut Prng) -> u64 {
        let work_ns = match self.shape {
            Shape::Fixed => self.mean_ns,
            Shape::Uniform => rng.between(self.mean_ns / 2, self.mean_ns + self.mean_ns / 2),
            Shape::Exponential => rng.exp_ns(self.mean_ns),
        };
        work_ns.max(1)
    }
}

#[derive(Clone, Debug)]
pub struct Common {
    /// Its name; tasks and series are named after it.
    pub name: String,
    pub group: GroupId,
    pub policy: Policy,
    pub nice: i8,
    pub slice_ns: Option<u64>,
    /// CPUs they may use.
    pub cpus: Option<CpuSet>,
    pub start_ns: Ns,
    /// When they end: what was begun by then is finished, and nothing else is begun.
    pub end_ns: Option<Ns>,
    /// From when on values are recorded (the end of the warm-up).
    pub record_from_ns: Ns,
    /// Seed of what the workload shares among its tasks, such as its arrivals.
    pub seed: u64,
}

impl Common {
    /// A workload in a group, with the kernel's defaults.
    pub fn new(name: &str, group: GroupId) -> Common {
        Common {
            name: name.to_owned(),
            group,
            policy: Policy::Normal,
            nice: 0,
            slice_ns: None,
            cpus: None,
            start_ns: 0,
            end_ns: None,
            record_from_ns: 0,
            seed: 1,
        }
    }

    pub fn task(&self, role: &str, program: impl Program + 'static) -> TaskSpec {
        let program: Box<dyn Program> = match self.end_ns {
            None => Box::new(program),
            Some(end_ns) => Box::new(Until { program, end_ns }),
        };
        TaskSpec {
            policy: self.policy,
            nice: self.nice,
            slice_ns: self.slice_ns,
            cpus: self.cpus,
            start_ns: self.start_ns,
            ..TaskSpec::new(&format!("{}/{role}", self.name), self.group, program)
        }
    }

    /// The workload's own random numbers: they depend on the seed and on its name, not on what else
    /// is in the scenario.
    pub fn rng(&self) -> Prng {
        // FNV-1a of the name.
        let stream = self.name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        Prng::stream(self.seed, stream)
    }
}

/// A program that ends at a time. It must hold nothing then that others wait for.
struct Until<P> {
    program: P,
    end_ns: Ns,
}

impl<P: Program> Program for Until<P> {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        // The program is asked first: it records what is complete.
        let next = self.program.next(ctx);
        if ctx.now_ns >= self.end_ns {
            Op::Exit
        } else {
            next
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorder {
    series: SeriesId,
    from_ns: Ns,
}

impl Recorder {
    /// Records how long something took that began at `began_ns` and ends now, unless it began in
    /// the warm-up.
    fn since(&self, ctx: &mut Ctx<'_>, began_ns: Ns) {
        if began_ns >= self.from_ns {
            let took_ns = ctx.now_ns.saturating_sub(began_ns);
            ctx.record(self.series, took_ns);
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct TaskSet {
    /// Its tasks that exist from the start.
    pub tasks: Vec<TaskId>,
    /// Their groups, in the same order.
    pub groups: Vec<GroupId>,
    /// What it records: each series' short name and number.
    pub series: Vec<(&'static str, SeriesId)>,
}

/// A workload on its way into a machine.
struct Builder<'b> {
    common: &'b Common,
    machine: &'b mut Machine,
    set: TaskSet,
}

impl Builder<'_> {
    fn recorder(&mut self, what: &'static str) -> Recorder {
        let series = self.machine.add_series();
        self.set.series.push((what, series));
        Recorder {
            series,
            from_ns: self.common.record_from_ns,
        }
    }

    /// A task that may run wherever the workload may.
    fn spawn(&mut self, role: &str, program: impl Program + 'static) -> Result<(), SimError> {
        self.spawn_on(self.common.cpus, role, program)
    }

    fn spawn_on(
        &mut self,
        cpus: Option<CpuSet>,
        role: &str,
        program: impl Program + 'static,
    ) -> Result<(), SimError> {
        let mut spec = self.common.task(role, program);
        spec.cpus = cpus;
        self.set.groups.push(spec.group);
        self.set.tasks.push(self.machine.spawn(spec)?);
        Ok(())
    }
}

/// A workload's kind, with its own parameters.
#[derive(Clone, Debug)]
pub enum Kind {
    OpenLoop(OpenLoop),
    ClosedLoop(ClosedLoop),
    Hog(Hog),
    Frames(Frames),
    Hackbench(Hackbench),
    Cyclictest(Cyclictest),
    Fibtest(Fibtest),
    ForkStorm(ForkStorm),
}

impl Kind {
    /// Puts the workload's tasks into the machine.
    ///
    /// # Errors
    /// What the machine refuses, such as CPUs that it does not have.
    pub fn build(&self, common: &Common, machine: &mut Machine) -> Result<TaskSet, SimError> {
        let mut builder = Builder {
            common,
            machine,
            set: TaskSet::default(),
        };
        let b = &mut builder;
        match self {
            Kind::OpenLoop(kind) => kind.build(b),
            Kind::ClosedLoop(kind) => kind.build(b),
            Kind::Hog(kind) => kind.build(b),
            Kind::Frames(kind) => kind.build(b),
            Kind::Hackbench(kind) => kind.build(b),
            Kind::Cyclictest(kind) => kind.build(b),
            Kind::Fibtest(kind) => kind.build(b),
            Kind::ForkStorm(kind) => kind.build(b),
        }?;
        Ok(builder.set)
    }
}
