//! The bench of a real machine: main and side work as they are started, and what is measured of an arm.

use std::process::Stdio;

use super::players::{Main, Side};
use super::report::{Placing, Run, reclaim_pct, sample};
use super::{LEVEL_ONE_PCT, check_loads};
use crate::beds::host::arms::{Arm, Placement, Stage, plain, quiet};
use crate::beds::host::foreign::{Frames, SideWork, fill, shell};
use crate::beds::host::nginx::{self, Load, Site};
use crate::beds::host::proc::Guarded;
use crate::beds::host::samplers::{Sampler, shares};
use crate::beds::host::tidegate::Tidegate;
use crate::beds::host::{LOUD_PCT, SERVICE_US, Setup, start_burner, start_server};
use crate::loads::work::Work;
use crate::options::LabOptions;
use crate::report::Sample;
use crate::{LabError, clock, stop};

/// What starting and ending one cell takes, for the estimate of the whole.
pub const OVERHEAD: f64 = 0.35;
/// Above this much steal, percent of the machine, a measurement is others' as much as ours.
pub const STEAL_LOUD_PCT: f64 = 5.0;

/// What was run, for the report.
pub struct Bench<'a> {
    /// Where it ran.
    pub setup: Setup,
    /// Main.
    pub main: String,
    /// Side.
    pub side: SideWork,
    /// What side's rate counts.
    pub side_unit: &'static str,
    /// The arms that could be run.
    pub arms: Vec<Arm>,
    /// The levels.
    pub loads: Vec<f64>,
    /// Steps of work a millisecond, as calibrated.
    pub steps_per_ms: u64,
    /// What is missing, one sentence each.
    pub missing: Vec<String>,
    /// How long a cell runs before it is measured, and how long it is measured, s.
    pub times: Times,
    /// nginx in the built-in server's place.
    pub web: Option<Web>,
    options: &'a LabOptions,
}

/// nginx, and what a request takes it, ms.
pub struct Web {
    site: Site,
    request_ms: f64,
}

/// The parts of one cell, s.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Before the measurement.
    pub warm: f64,
    /// Measured.
    pub window: f64,
}

impl Times {
    /// A whole cell, for estimates.
    pub fn cell(self) -> f64 {
        self.warm + self.window + OVERHEAD
    }
}

impl Placing for Arm {
    const NO_SIDE: Arm = Arm::NoSide;
    const CPU_IDLE: Arm = Arm::CpuIdle;

    fn key(self) -> String {
        Arm::key(self)
    }

    fn kept_pct(self) -> f64 {
        f64::from(self.headroom_pct().unwrap_or(0))
    }
}

/// Whether a run tells of others as much as of its arm.
fn is_loud(steal_pct: f64, other_pct: f64) -> bool {
    steal_pct > STEAL_LOUD_PCT || other_pct > LOUD_PCT
}

impl<'a> Bench<'a> {
    /// Looks at the machine and chooses side work.
    pub fn new(
        options: &'a LabOptions,
        arms: Vec<Arm>,
        loads: Vec<f64>,
        times: Times,
    ) -> Result<Self, LabError> {
        let setup = Setup::new(options)?;
        check_loads(&loads, 4.0)?;
        let side = SideWork::choose(options.side_cmd.as_deref());
        let side_unit = match &side {
            SideWork::Burner => "loops",
            SideWork::Command(words) if words[0] == "ffmpeg" => "frames",
            SideWork::Command(_) => "CPU s",
        };
        let main = options.main_cmd.clone().unwrap_or_else(|| {
            format!("the built-in server: Poisson arrivals, {SERVICE_US:.0} us requests")
        });
        Ok(Bench {
            main,
            side,
            side_unit,
            arms,
            loads,
            steps_per_ms: Work::new(1).calibrate(30),
            missing: Vec::new(),
            options,
            times,
            web: None,
            setup,
        })
    }

    /// Takes nginx as main where it is installed and no command was named.
    pub fn prefer_nginx(&mut self) -> Result<(), LabError> {
        if self.options.main_cmd.is_some() {
            return Ok(());
        }
        if !Site::is_installed() {
            self.missing
                .push("nginx is not installed: main is the built-in server.".into());
            return Ok(());
        }
        let site = Site::new(self.setup.machine.cpus, nginx::TEXT_BYTES)?;
        let _nginx = Guarded::start("nginx", quiet(plain(&site.words())), &[])?;
        nginx::wait_until_up()?;
        let request_ms = nginx::request_ms()?;
        self.main = format!(
            "nginx, a text that takes {request_ms:.1} ms to compress (measured alone), Poisson arrivals"
        );
        self.web = Some(Web { site, request_ms });
        Ok(())
    }

    /// Leaves out the arms that cannot run here, and says so.
    pub fn start_tidegate(&mut self) -> Result<Option<Tidegate>, LabError> {
        if let Err(e) = &self.setup.hierarchy {
            self.missing
                .push(format!("Not measured, the arms that need groups: {e}."));
            self.arms.retain(|a| !a.needs_groups());
            return Ok(None);
        }
        match Tidegate::start(&self.setup.exe, self.options.sense) {
            Ok(tidegate) => Ok(Some(tidegate)),
            Err(LabError::Interrupted) => Err(LabError::Interrupted),
            Err(e) => {
                self.missing
                    .push(format!("Not measured, Tidegate's arms: {e}."));
                self.arms.retain(|a| !a.needs_agent());
                Ok(None)
            }
        }
    }

    /// Runs one arm once.
    pub fn cell(
        &self,
        tidegate: Option<&Tidegate>,
        run: Run<Arm>,
        seed: u64,
    ) -> Result<Sample<Run<Arm>>, LabError> {
        let hierarchy = self.setup.hierarchy.as_ref().ok();
        let stage = Stage {
            exe: &self.setup.exe,
            hierarchy,
            tidegate,
        };
        // Declared first, so that the groups go after what lives in them.
        let placement = Placement::new(&stage, run.arm)?;
        let main = self.start_main(&placement, run.load, seed)?;
        let mut side = self.start_side(&placement, run.arm)?;
        stop::sleep_ns((self.times.warm * 1e9) as u64)?;
        side.still_runs()?;
        let agent = placement.keeper_pid();
        let sample = self.measure(run, main, &side, &placement, agent)?;
        placement.still_in_force()?;
        Ok(sample)
    }

    fn measure(
        &self,
        run: Run<Arm>,
        mut main: Main,
        side: &Side,
        placement: &Placement<'_>,
        agent: Option<i32>,
    ) -> Result<Sample<Run<Arm>>, LabError> {
        let h = self.setup.readable.as_ref();
        main.begin(placement)?;
        let pids: Vec<i32> = [main.pid(), side.pid()].into_iter().flatten().collect();
        let sampler = Sampler::new(h, &pids, agent);
        let look = |main: &Main| sampler.snapshot(&main.source(), &side.source());
        let from = look(&main);
        let work_from = side.work();
        let work_at = |s: &Side, at| s.frames.as_ref().and_then(|f| f.at(at));
        let to = match &main {
            Main::Server(_) | Main::Nginx { .. } => {
                stop::sleep_ns((self.times.window * 1e9) as u64)?;
                look(&main)
            }
            Main::Command { .. } => {
                // Its CPU is gone with it, so it is looked at until just before it ends.
                let mut last = from;
                while !main.ended() {
                    last = look(&main);
                    stop::sleep_ns(50_000_000)?;
                }
                last
            }
        };
        let latency = main.finish(clock::monotonic_ns() - from.wall_ns)?;
        let work_to = side.work();
        // ffmpeg reports ten times a second: a little later, what it had done by now is known.
        let done = if side.frames.is_some() {
            stop::sleep_ns(120_000_000)?;
            let (a, b) = (work_at(side, from.wall_ns), work_at(side, to.wall_ns));
            b.unwrap_or(0.0) - a.unwrap_or(0.0)
        } else {
            work_to - work_from
        };
        let s = shares(&from, &to, self.setup.machine.cpus);
        let reclaimed = (run.arm != Arm::NoSide).then(|| reclaim_pct(run.arm, &s));
        Ok(sample(run, &latency, &s)
            .with("offered", latency.offered)
            .with("completed", latency.completed)
            .with("other_pct", s.other_pct)
            .with("steal_pct", s.steal_pct)
            .with("loud", is_loud(s.steal_pct, s.other_pct))
            .with("side_rate", done / s.seconds.max(1e-3))
            .with("side_unit", self.side_unit)
            .with("reclaim_pct", reclaimed)
            .with("agent_cpu_pct", s.agent_cpu_pct))
    }

    fn start_main(
        &self,
        placement: &Placement<'_>,
        load: f64,
        seed: u64,
    ) -> Result<Main, LabError> {
        if let Some(text) = &self.options.main_cmd {
            let words = shell(&fill(text, self.times.window, load, load * LEVEL_ONE_PCT));
            return Ok(Main::Command {
                words,
                running: None,
            });
        }
        let share = load * LEVEL_ONE_PCT / 100.0;
        if let Some(web) = &self.web {
            let command = quiet(placement.main_command(&web.site.words()));
            let guard = Guarded::start("nginx", command, &placement.main_join())?;
            nginx::wait_until_up()?;
            let per_second = share * self.setup.machine.cpus as f64 * 1e3 / web.request_ms;
            let load = Load::start(per_second, seed);
            return Ok(Main::Nginx { load, guard });
        }
        start_server(&self.setup, placement, share, self.steps_per_ms, seed).map(Main::Server)
    }

    fn start_side(&self, placement: &Placement<'_>, arm: Arm) -> Result<Side, LabError> {
        let mut side = Side {
            worker: None,
            command: None,
            frames: None,
        };
        if arm == Arm::NoSide {
            return Ok(side);
        }
        match &self.side {
            SideWork::Burner => {
                side.worker = Some(start_burner(
                    &self.setup,
                    placement,
                    self.setup.machine.cpus,
                )?)
            }
            SideWork::Command(words) => {
                let mut command = placement.side_command(words);
                command.stdin(Stdio::null()).stdout(Stdio::piped());
                let mut guard = Guarded::start("side command", command, &placement.side_join())?;
                let frames = Frames::watch(&mut guard);
                side.frames = (self.side_unit == "frames").then_some(frames);
                side.command = Some(guard);
            }
        }
        Ok(side)
    }
}
