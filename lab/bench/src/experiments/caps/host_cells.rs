//! What is run on a real kernel: who keeps which cap on what, and for how long.

use super::tables::Rate;
use crate::Engine;
use crate::options::LabOptions;
use crate::report::Sample;

/// The sleeping task works this long and sleeps that long: it wants 800 ‰.
pub const SLEEPER_US: (u64, u64) = (4_000, 1_000);

/// Who keeps the cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// `tidegate run --cap`.
    Tidegate,
    /// The ext engine with a gate for the load's group.
    Ext,
    /// A quota on a group, written once by hand.
    Quota,
    /// cpulimit's law: SIGSTOP and SIGCONT.
    Cpulimit,
}

impl Keeper {
    /// In the tables' order.
    pub const ALL: [Keeper; 4] = [
        Keeper::Tidegate,
        Keeper::Ext,
        Keeper::Quota,
        Keeper::Cpulimit,
    ];

    /// Those that are run: cpulimit's law is no matter of engines.
    pub fn of(engine: Engine) -> impl Iterator<Item = Keeper> {
        let other = match engine {
            Engine::Knobs => Keeper::Ext,
            Engine::Ext => Keeper::Cpulimit,
        };
        Keeper::ALL.into_iter().filter(move |k| *k != other)
    }

    /// In tables.
    pub fn label(self) -> &'static str {
        match self {
            Keeper::Tidegate => "Tidegate",
            Keeper::Ext => "ext engine",
            Keeper::Quota => "quota by hand",
            Keeper::Cpulimit => "cpulimit's law",
        }
    }

    /// In JSON and CSV.
    pub fn key(self) -> &'static str {
        match self {
            Keeper::Tidegate => "tidegate",
            Keeper::Ext => "ext",
            Keeper::Quota => "quota",
            Keeper::Cpulimit => "cpulimit",
        }
    }
}

/// What is capped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// One thread that always wants the CPU.
    Hog,
    /// Parents that fork without end.
    Forks,
    /// A task that works 4 ms and sleeps 1 ms.
    Sleeper,
}

impl Load {
    /// In the tables' order.
    pub const ALL: [Load; 3] = [Load::Hog, Load::Forks, Load::Sleeper];

    /// In tables.
    pub fn label(self) -> &'static str {
        match self {
            Load::Hog => "a hog",
            Load::Forks => "a group that forks",
            Load::Sleeper => "a task that sleeps",
        }
    }

    /// In JSON and CSV.
    pub fn key(self) -> &'static str {
        match self {
            Load::Hog => "hog",
            Load::Forks => "forks",
            Load::Sleeper => "sleeper",
        }
    }

    /// What it gets under this cap: no more than it wants.
    pub fn due_ppt(self, cap_ppt: u32) -> f64 {
        let (work, sleep) = SLEEPER_US;
        let wants = match self {
            Load::Sleeper => 1000.0 * work as f64 / (work + sleep) as f64,
            _ => 1000.0,
        };
        f64::from(cap_ppt).min(wants)
    }
}

/// One cap, one load, one keeper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Who keeps it.
    pub keeper: Keeper,
    /// What is capped.
    pub load: Load,
    /// The cap.
    pub cap_ppt: u32,
}

impl Run {
    /// `windows_ppt` is the use in each window, ‰ of a CPU, by perf's clock of the group or as the load told it.
    pub fn sample(self, windows_ppt: &[f64], by_group: bool) -> Sample<Run> {
        let cap_ppt = f64::from(self.cap_ppt);
        let due_ppt = self.load.due_ppt(self.cap_ppt);
        let mut rate = Rate::of(self.cap_ppt, due_ppt, windows_ppt);
        if due_ppt < cap_ppt {
            // A cap that does not bind is kept by whatever stays below it: its sleeps take longer than they should.
            rate.due_ppt = rate.worst_ppt.min(cap_ppt);
        }
        let sample = Sample::new(self)
            .with("kind", "hard")
            .with("keeper", self.keeper.key())
            .with("load", self.load.key());
        rate.figures(sample)
            .with("off_ppt", rate.off())
            .with("clock", if by_group { "group" } else { "loads" })
            .aside("by_group", f64::from(u8::from(by_group)))
    }
}

/// Lengths of a run.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// The keeper settles.
    pub settle_s: f64,
    /// A window.
    pub window_s: f64,
    /// Windows.
    pub windows: u32,
}

impl Lengths {
    pub fn of(options: &LabOptions) -> Self {
        let settle_s = if options.quick { 1.0 } else { 3.0 };
        if options.engine == Engine::Ext {
            // What ext promises it promises for a second.
            return Lengths {
                settle_s,
                window_s: 1.0,
                windows: options.rounds.unwrap_or(if options.quick { 2 } else { 5 }),
            };
        }
        Lengths {
            settle_s,
            window_s: if options.quick { 2.0 } else { 10.0 },
            windows: options.rounds.unwrap_or(1).max(1),
        }
    }
}
