//! A change of policy done beside the machine: the agent's own code on copies of its gates and
//! journal, with every kernel file read as it is and written in memory alone. So what `diff` shows
//! is what `apply` would do.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tidegate_api::{
    ApiError, ApiResult, ErrorKind, GateChangeView, ObservedView, PolicyChangeView,
};
use tidegate_cgroup::discover::discover;
use tidegate_cgroup::target::Target;
use tidegate_cgroup::topology::Topology;
use tidegate_cgroup::{RealFs, cpus};
use tidegate_engine::clock::SystemClock;
use tidegate_engine::control::Control;
use tidegate_engine::ledger;
use tidegate_engine::sense::{Counters, Group as SensedGroup, SenseError, Sensor};
use tidegate_engine::sync::lock;
use tidegate_terms::{Config, ConfigErrors, CpusetMode, Settings};

use crate::control_loop::ControlLoop;
use crate::errors::internal;
use crate::gates::{Gate, demand};
use crate::kernel::Kernel;
use crate::paths::RunDir;
use crate::policy::find::{Finder, Match};
use crate::policy::reconcile::{
    Known, Refusal, apply, is_enforced, is_observed, reconcile, terms_text,
};
use crate::policy::recording_fs::RecordingFs;
use crate::process::lease::Lease;
use crate::runtime::Runtime;
use crate::runtime::cpuset_controller::CpusetController;
use crate::sched_ext::SchedExtSupervisor;

/// A machine beside the machine, and a directory that is removed with it.
pub(crate) struct Rehearsal {
    runtime: Runtime,
    files: Arc<RecordingFs>,
    dir: RunDir,
}

/// Counts nothing: no step is made in a rehearsal.
struct NoSensor(u32);

impl Sensor for NoSensor {
    fn sample(&mut self, _: &mut Counters) -> Result<(), SenseError> {
        Ok(())
    }
    fn set_groups(&mut self, _: &[SensedGroup], _: &[SensedGroup]) -> Result<(), SenseError> {
        Ok(())
    }
    fn kind(&self) -> &'static str {
        "none"
    }
    fn min_window_ns(&self) -> u64 {
        0
    }
    fn online_cpus(&self) -> u32 {
        self.0
    }
}

impl Drop for Rehearsal {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.dir.dir());
    }
}

impl Rehearsal {
    /// Beside the machine as it is now. `gates` are locked, so that nothing is half done.
    pub fn new(of: &Runtime, gates: &[Gate]) -> ApiResult<Self> {
        let own = of.kernel.run_dir.dir().join("rehearsal");
        let cpus = of.control().online_cpus();
        let times = (of.control_loop.tick_ns, of.control_loop.period_ns);
        let mut rehearsal = Self::beside(&of.kernel, &own, gates, &of.settings, cpus, times)?;
        // Their names are taken here, too.
        rehearsal.runtime.unread_records = Mutex::new(lock(&of.unread_records).clone());
        Ok(rehearsal)
    }

    /// Beside this machine, with files in the directory `own`. `times` are the length of a tick and
    /// the loop's period in ns.
    pub fn beside(
        real: &Kernel,
        own: &Path,
        gates: &[Gate],
        settings: &Settings,
        cpus: u32,
        times: (u64, u64),
    ) -> ApiResult<Self> {
        let dir = RunDir::new(own, real.run_dir.prefix());
        let _ = std::fs::remove_dir_all(own);
        dir.make().map_err(internal)?;
        {
            // A write of the loop is under the journal's lock, so that the copies are of one
            // moment.
            let _journal = real.journal();
            for file in [ledger::FILE, ledger::MOVING_FILE] {
                match std::fs::copy(real.run_dir.dir().join(file), own.join(file)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(internal(error));
                    }
                    _ => {}
                }
            }
        }
        let files = Arc::new(RecordingFs::new(Arc::clone(&real.fs), own));
        let fs: Arc<dyn tidegate_cgroup::KernelFs> = files.clone();
        let clock = Arc::clone(&real.clock);
        let opened = Kernel::open(fs, real.machine.clone(), dir.clone(), clock);
        let (mut kernel, _) = opened.map_err(internal)?;
        kernel.tells_systemd = false;
        kernel.has_short_turns = real.has_short_turns;
        kernel.journal().keep_in_memory();
        let control = Control::new(Box::new(NoSensor(cpus)), demand(gates.iter(), settings));
        let lease = Lease::open(&dir.lease()).map_err(internal)?;
        let cpuset = CpusetController::new(CpusetMode::Off, Topology::default(), &kernel.groups);
        let control_loop = ControlLoop::new(control, lease, times.0, times.1);
        let sched_ext = SchedExtSupervisor::new(None);
        let runtime = Runtime::new(kernel, control_loop, sched_ext, cpuset, settings.clone());
        Ok(Self {
            runtime,
            files,
            dir,
        })
    }

    pub fn view(
        &self,
        gates: &[Gate],
        config: &Config,
        matches: &[Match],
    ) -> ApiResult<PolicyChangeView> {
        let mut gates = gates.to_vec();
        let changes = self.change(&mut gates, config, matches)?;
        Ok(PolicyChangeView {
            gates: changes,
            writes: self.files.take(),
            observed: self.observed(&gates, config, matches),
            notes: Vec::new(),
        })
    }

    fn change(
        &self,
        gates: &mut Vec<Gate>,
        config: &Config,
        matches: &[Match],
    ) -> ApiResult<Vec<GateChangeView>> {
        let of_groups: Vec<Match> = matches
            .iter()
            .filter(|one| one.group.is_some())
            .cloned()
            .collect();
        let gates_before = Known::of(&self.runtime, gates);
        let known = |one: &&Match| gates_before.find(one).is_some();
        let of_processes = matches
            .iter()
            .filter(|one| matches!(one.target, Target::Pid(_)));
        let kept: Vec<Match> = of_processes.clone().filter(known).cloned().collect();
        let mut made = Vec::new();
        for one in of_processes.filter(|one| !known(one)) {
            let in_gate = match one.target {
                Target::Pid(pid) => self.runtime.kernel.gate_of(gates, pid).is_some(),
                _ => false,
            };
            if in_gate || !is_enforced(config, one) {
                continue;
            }
            made.push(self.moved(config, one));
        }
        let wanted = [of_groups, kept].concat();
        let mut changes = reconcile(&self.runtime, gates, config, &wanted, Refusal::Ends)?;
        changes.extend(made);
        Ok(changes)
    }

    /// A process is moved into a group of its own, which a machine in memory does not have: it is
    /// told by its terms.
    fn moved(&self, config: &Config, one: &Match) -> GateChangeView {
        let rule = config.rule(&one.rule);
        let layers = rule.iter().flat_map(|rule| &rule.terms).collect::<Vec<_>>();
        let terms = config.resolve(&layers).map(|terms| terms_text(&terms));
        GateChangeView {
            change: "made".to_owned(),
            gate: String::new(),
            target: one.target.to_string(),
            rule: Some(one.rule.clone()),
            terms: terms.unwrap_or_default(),
        }
    }

    /// What rules in observe mode match, each with what it would write.
    pub fn observed(
        &self,
        gates: &[Gate],
        config: &Config,
        matches: &[Match],
    ) -> Vec<ObservedView> {
        let mut gates = gates.to_vec();
        let mut known = Known::of(&self.runtime, &gates);
        let observed = matches.iter().filter(|one| is_observed(config, one));
        observed
            .map(|one| self.observe(&mut gates, &mut known, config, one))
            .collect()
    }

    fn observe(
        &self,
        gates: &mut Vec<Gate>,
        known: &mut Known,
        config: &Config,
        one: &Match,
    ) -> ObservedView {
        let mut view = ObservedView {
            target: one.target.to_string(),
            rule: one.rule.clone(),
            terms: self.moved(config, one).terms,
            ..ObservedView::default()
        };
        if one.group.is_none() {
            return view;
        }
        let enforcing = config.enforcing(&one.rule);
        let before = gates.len();
        match apply(&self.runtime, gates, known, &enforcing, one) {
            Ok(_) => view.writes = self.files.take(),
            Err(error) => view.refused = Some(error.detail),
        }
        for made in gates.drain(before..) {
            known.drop(&made.record);
        }
        view
    }
}

/// The times of an agent that started now, which no write depends on.
const TIMES_NS: (u64, u64) = (4_000_000, 5_000_000);

/// What an agent that started now would change: it has no gates yet.
pub fn diff_without_agent(run_dir: &RunDir) -> ApiResult<PolicyChangeView> {
    let wrong = |errors: ConfigErrors| {
        let remedy = "correct the files; `tidegate policy check` shows each place";
        ApiError::new(ErrorKind::Usage, errors.to_string()).with_remedy(remedy)
    };
    let texts = run_dir.config_roots().read().map_err(wrong)?;
    let config = Config::from_texts(&texts).map_err(wrong)?;
    let machine = discover(&RealFs::new(), None).map_err(internal)?;
    let fs = tidegate_cgroup::machine(machine.roots()).map_err(internal)?;
    let online = cpus::online(&*fs).map_err(internal)?.len() as u32;
    let own = std::env::temp_dir().join(format!("tidegate-diff-{}", std::process::id()));
    let files = RunDir::new(&own, run_dir.prefix());
    files.make().map_err(internal)?;
    let opened = Kernel::open(fs, machine, files, Arc::new(SystemClock));
    let (kernel, _) = opened.map_err(internal)?;
    let settings = config.settings().clone();
    let matches = Finder::new(&kernel, &config, &[]).all();
    let beside = own.join("rehearsal");
    let view = Rehearsal::beside(&kernel, &beside, &[], &settings, online, TIMES_NS)
        .and_then(|rehearsal| rehearsal.view(&[], &config, &matches));
    let _ = std::fs::remove_dir_all(&own);
    view
}
