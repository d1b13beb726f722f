//! Arms: the ways in which main and side work are placed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::cgroup::{Group, Hierarchy};
use super::scheduler::Scheduler;
use super::tidegate::Tidegate;
use crate::LabError;

/// One way of placing main and side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// Main alone.
    NoSide,
    /// Side as people start it: in main's own session and group, default weight.
    Together,
    /// Side in a group of its own, default weight.
    OwnGroup,
    /// ... with the lowest weight: what the cpu.headroom patches (2019) compare with.
    WeightOne,
    /// ... with cpu.idle and nothing else.
    CpuIdle,
    /// `tidegate run --main --headroom N%` and `tidegate run --side`.
    Tidegate {
        /// Percent of the machine to keep idle.
        headroom_pct: u32,
    },
    /// `tidegate run --main` and `tidegate run --side`, without a headroom.
    Default,
    /// The ext engine with a gate for main's group and one for side's.
    Ext {
        /// Percent of the machine to keep idle.
        headroom_pct: u32,
    },
}

impl Arm {
    /// The arms of the headroom experiment, in the order of its tables.
    pub const HEADROOM: [Arm; 7] = [
        Arm::NoSide,
        Arm::Together,
        Arm::OwnGroup,
        Arm::WeightOne,
        Arm::CpuIdle,
        Arm::Tidegate { headroom_pct: 30 },
        Arm::Tidegate { headroom_pct: 20 },
    ];

    /// ... and where the ext engine is under test, beside the kernel's own scheduler and the knobs.
    pub const HEADROOM_EXT: [Arm; 5] = [
        Arm::NoSide,
        Arm::WeightOne,
        Arm::CpuIdle,
        Arm::Tidegate { headroom_pct: 30 },
        Arm::Ext { headroom_pct: 30 },
    ];

    /// What is to stay idle, percent of the machine.
    pub fn headroom_pct(self) -> Option<u32> {
        match self {
            Arm::Tidegate { headroom_pct } | Arm::Ext { headroom_pct } => Some(headroom_pct),
            _ => None,
        }
    }

    /// In tables.
    pub fn label(self) -> String {
        match self {
            Arm::NoSide => "no side work".into(),
            Arm::Together => "as people start it".into(),
            Arm::OwnGroup => "own group".into(),
            Arm::WeightOne => "weight 1".into(),
            Arm::CpuIdle => "cpu.idle".into(),
            Arm::Tidegate { headroom_pct } => format!("Tidegate {headroom_pct} %"),
            Arm::Default => "Tidegate default".into(),
            Arm::Ext { headroom_pct } => format!("Tidegate ext {headroom_pct} %"),
        }
    }

    /// In JSON and CSV.
    pub fn key(self) -> String {
        match self {
            Arm::NoSide => "no_side".into(),
            Arm::Together => "as_started".into(),
            Arm::OwnGroup => "own_group".into(),
            Arm::WeightOne => "weight_1".into(),
            Arm::CpuIdle => "cpu_idle".into(),
            Arm::Tidegate { headroom_pct } => format!("tidegate_{headroom_pct}"),
            Arm::Default => "tidegate_default".into(),
            Arm::Ext { headroom_pct } => format!("ext_{headroom_pct}"),
        }
    }

    /// Whether an agent places both.
    pub fn needs_agent(self) -> bool {
        matches!(self, Arm::Tidegate { .. } | Arm::Default)
    }

    /// Whether the arm can be had without a writable cgroup tree.
    pub fn needs_groups(self) -> bool {
        !matches!(self, Arm::NoSide | Arm::Together)
    }
}

/// What there is to place with.
pub struct Stage<'a> {
    /// The `tidegate` executable, which is the workers' as well.
    pub exe: &'a Path,
    /// The cgroup tree, if writable.
    pub hierarchy: Option<&'a Hierarchy>,
    /// An agent of our own, if Tidegate can run.
    pub tidegate: Option<&'a Tidegate>,
}

/// Groups of one arm; keep it for as long as the workers live.
pub struct Placement<'a> {
    stage: &'a Stage<'a>,
    arm: Arm,
    /// Declared first: it lets go of the groups before they go.
    scheduler: Option<Scheduler>,
    main: Option<Group>,
    side: Option<Group>,
}

impl<'a> Placement<'a> {
    /// Makes the groups that the arm needs.
    pub fn new(stage: &'a Stage<'a>, arm: Arm) -> Result<Self, LabError> {
        let mut placement = Placement {
            stage,
            arm,
            scheduler: None,
            main: None,
            side: None,
        };
        let Some(h) = stage.hierarchy else {
            return Ok(placement);
        };
        if arm.needs_agent() {
            return Ok(placement);
        }
        placement.main = Some(Group::create(h, "main")?);
        if matches!(
            arm,
            Arm::OwnGroup | Arm::WeightOne | Arm::CpuIdle | Arm::Ext { .. }
        ) {
            let side = Group::create(h, "side")?;
            match arm {
                Arm::WeightOne => side.set_weight_one()?,
                Arm::CpuIdle => side.set_idle()?,
                _ => {}
            }
            placement.side = Some(side);
        }
        if let (Arm::Ext { headroom_pct }, Some(main), Some(side)) =
            (arm, &placement.main, &placement.side)
        {
            let main_terms = format!("class=main headroom={headroom_pct}%");
            let gates = [(main, main_terms.as_str()), (side, "class=side")];
            placement.scheduler = Some(Scheduler::start(stage.exe, &gates)?);
        }
        Ok(placement)
    }

    /// An error where the arm's scheduler was ejected meanwhile.
    pub fn still_in_force(&self) -> Result<(), LabError> {
        match &self.scheduler {
            Some(scheduler) => scheduler.still_in_force(),
            None => Ok(()),
        }
    }

    /// The process that keeps the arm's headroom, if there is one.
    pub fn keeper_pid(&self) -> Option<i32> {
        match (&self.scheduler, self.agent()) {
            (Some(scheduler), _) => Some(scheduler.pid()),
            (None, agent) => agent.map(Tidegate::agent_pid),
        }
    }

    /// The agent, where it places this arm.
    fn agent(&self) -> Option<&'a Tidegate> {
        self.stage.tidegate.filter(|_| self.arm.needs_agent())
    }

    /// The lab's own side group, for policies that write its quota.
    pub fn side_group(&self) -> Option<&Group> {
        self.side.as_ref()
    }

    /// Files that main enters.
    pub fn main_join(&self) -> Vec<PathBuf> {
        self.main
            .as_ref()
            .map(Group::membership)
            .unwrap_or_default()
    }

    /// Files that side enters: main's own where it has none of its own.
    pub fn side_join(&self) -> Vec<PathBuf> {
        self.side
            .as_ref()
            .map_or_else(|| self.main_join(), Group::membership)
    }

    /// Main's command from its words.
    pub fn main_command(&self, words: &[String]) -> Command {
        let Some(tidegate) = self.agent() else {
            return plain(words);
        };
        match self.arm.headroom_pct() {
            Some(pct) => tidegate.run(&["--main", "--headroom", &format!("{pct}%")], words),
            None => tidegate.run(&["--main"], words),
        }
    }

    /// Side's command from its words.
    pub fn side_command(&self, words: &[String]) -> Command {
        match self.agent() {
            Some(tidegate) => tidegate.run(&["--side"], words),
            None => plain(words),
        }
    }
}

/// The command of these words; there is always a first one.
pub fn plain(words: &[String]) -> Command {
    let mut command = Command::new(words.first().map_or("true", String::as_str));
    command.args(words.iter().skip(1));
    command
}

/// The command, which reads nothing and whose output is dropped.
pub fn quiet(mut command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// A number of the agent's status; 0 when it has none of that name.
pub fn number(status: &Value, name: &str) -> f64 {
    status[name].as_f64().unwrap_or(0.0)
}
