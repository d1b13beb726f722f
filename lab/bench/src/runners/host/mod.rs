//! Scenes on this machine: processes in groups, an agent of the lab's own, and clocks that are read
//! from outside. What is reported shares no code with the control loop's sensing
//! ([`crate::loads::shared_page`]).

pub mod cleanup;
pub mod group_clock;
pub mod groups;
mod law;
pub mod proc;
pub mod tidegate;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};
use tidegate_cgroup::group_path::GroupPath;
use tidegate_sim::{Class, CpuStat};

use self::group_clock::GroupClock;
use self::groups::{Group, Tree};
use self::law::LawLoop;
use self::proc::{Guarded, Worker};
use self::tidegate::Tidegate;
use crate::loads::shared_page::SharedPage;
use crate::loads::{Generator, Job, hog, server};
use crate::machine::{self, HostMachine};
use crate::runners::sim;
use crate::scene::{
    Hint, Keeper, Kind, Latency, Load, LoadOutcome, Look, MS, Outcome, Scene, flags,
};
use crate::{LabError, clock, stop};

/// Looks that come more often are made at real-time priority.
const OFTEN_NS: u64 = 50 * MS;

pub struct Host {
    exe: PathBuf,
    tidegate: PathBuf,
    tree: Result<Tree, LabError>,
    writable: bool,
    pub machine: HostMachine,
    /// What runs now: a start takes seconds (BPF programs are verified), so it stays for as long as
    /// cells want the same.
    keeper: Keeper,
    agent: Option<Tidegate>,
}

/// A load that runs.
struct Active {
    worker: Worker,
    clock: Option<GroupClock>,
}

impl Active {
    fn pid(&self) -> i32 {
        self.worker.pid()
    }

    fn used_ns(&self) -> (u64, u64) {
        let page = &self.worker.page;
        let counted = self.clock.as_ref().and_then(|clock| clock.ns().ok());
        let all = counted.unwrap_or_else(|| page.cpu_ns());
        (all, page.slot(0).cpu_ns())
    }

    /// Looks at the clock, or requests.
    fn work(&self) -> f64 {
        self.worker.page.count() as f64
    }
}

impl Host {
    pub fn new() -> Result<Self, LabError> {
        let tree = Tree::find();
        let writable = tree.as_ref().map_or(Ok(()), Tree::writable);
        let mut machine = HostMachine::look();
        machine.cgroup = tree.as_ref().ok().map(Tree::version);
        let tree = tree.and_then(|tree| writable.map(|()| tree));
        Ok(Host {
            exe: tidegate::own_executable()?,
            tidegate: tidegate::executable()?,
            writable: tree.is_ok(),
            tree,
            machine,
            keeper: Keeper::Nobody,
            agent: None,
        })
    }

    fn keep(&mut self, keeper: Keeper) -> Result<(), LabError> {
        if self.keeper == keeper {
            return Ok(());
        }
        (self.keeper, self.agent) = (Keeper::Nobody, None);
        if let Keeper::Tidegate { sense, .. } = keeper {
            let agent = Tidegate::start(&self.tidegate, sense)?;
            if let Some(wanted) = sense.filter(|sense| sense.name() != agent.sensing()) {
                let why = format!("the agent senses by {} here", agent.sensing());
                return Err(LabError::process(wanted.name(), why));
            }
            self.agent = Some(agent);
        }
        self.keeper = keeper;
        Ok(())
    }

    /// The cgroup tree; an error if groups cannot be made in it.
    pub fn tree(&self) -> Result<&Tree, LabError> {
        let needs = |e: &LabError| {
            let remedy = "run it as root, or with --on sim";
            LabError::needs("this experiment", e.to_string(), remedy)
        };
        self.tree.as_ref().map_err(needs)
    }

    pub fn run(&mut self, scene: &Scene) -> Result<Outcome, LabError> {
        self.keep(scene.keeper)?;
        self.agent
            .as_ref()
            .map_or(Ok(()), Tidegate::await_no_gates)?;
        let run = Run {
            scene,
            host: self,
            agent: self.agent.as_ref(),
        };
        // Declared first, so that the groups go after what lives in them.
        let groups = run.groups()?;
        let mut loads = run.start(&groups)?;
        let limiter = run.limiter(&loads)?;
        let outcome = run.under_law(&groups, &mut loads);
        drop(limiter);
        outcome
    }

    /// The `tidegate` command that is driven, as one types it here.
    pub fn command(&self) -> String {
        let here = std::env::current_dir().unwrap_or_default();
        let path = self.tidegate.strip_prefix(here).unwrap_or(&self.tidegate);
        path.display().to_string()
    }

    pub fn finish(mut self) -> HostMachine {
        self.agent = None;
        self.machine.finish();
        self.machine
    }
}

struct Run<'a> {
    scene: &'a Scene,
    host: &'a Host,
    agent: Option<&'a Tidegate>,
}

impl<'a> Run<'a> {
    /// A gate that `tidegate run` makes needs no group of ours, nor does a group without a limit
    /// where none can be made.
    fn groups(&self) -> Result<Vec<Option<Group<'a>>>, LabError> {
        let mut made = Vec::new();
        for group in &self.scene.groups {
            let is_by_run = self.agent.is_some() && !group.terms.is_empty();
            let is_plain = !group.idle && group.weight == 0 && group.max.is_none();
            if is_by_run || (is_plain && !self.host.writable) {
                made.push(None);
                continue;
            }
            let own = Group::create(self.host.tree()?, group.name)?;
            own.set_weight(group.weight)?;
            if group.idle {
                own.set_idle()?;
            }
            group.max.map_or(Ok(()), |max| own.set_max(max))?;
            made.push(Some(own));
        }
        Ok(made)
    }

    fn start(&self, groups: &[Option<Group<'_>>]) -> Result<Vec<Active>, LabError> {
        let mut active = Vec::new();
        for load in &self.scene.loads {
            let group = load.group.and_then(|at| groups[at].as_ref());
            let mut one = Active {
                clock: None,
                worker: self.start_one(load, group)?,
            };
            if matches!(load.kind, Kind::Forks { .. }) {
                one.clock = self.clock_of(&one);
            }
            self.hint(load, &one)?;
            active.push(one);
        }
        Ok(active)
    }

    /// The command of these words, in the gate that the agent makes for a load where it has one.
    fn command(&self, load: &Load, has_group: bool, words: &[String]) -> Command {
        let flags = match load.group {
            Some(at) if !has_group => flags(&self.scene.groups[at].terms),
            _ => Vec::new(),
        };
        let nice = match load.hint {
            Hint::Nice(level) => vec!["nice".into(), "-n".into(), level.to_string()],
            _ => Vec::new(),
        };
        let words = [&nice, words].concat();
        match self.agent.filter(|_| !flags.is_empty()) {
            Some(agent) => agent.run(&flags, &words),
            None => plain(&words),
        }
    }

    fn start_one(&self, load: &Load, group: Option<&Group<'_>>) -> Result<Worker, LabError> {
        let join = group.map(Group::membership).unwrap_or_default();
        let wrap = |words: &[String]| self.command(load, group.is_some(), words);
        Worker::start(&self.host.exe, &self.job(load)?, &join, &wrap)
    }

    fn job(&self, load: &Load) -> Result<Job, LabError> {
        let cpus = self.host.machine.cpus;
        let server = |per_second, request_us| {
            Generator::Server(server::Options {
                per_second,
                request_us,
                seed: self.scene.model.seed,
            })
        };
        let hog = |is_pinned, work_ns: u64, sleep_ns: u64| {
            Generator::Hog(hog::Options {
                is_pinned,
                work_us: work_ns / 1_000,
                sleep_us: sleep_ns / 1_000,
            })
        };
        let (threads, generator) = match load.kind {
            Kind::Server { share, request_us } => {
                let request_us = request_us as f64;
                let per_second = share * cpus as f64 * 1e6 / request_us;
                (2 * cpus, server(per_second, request_us))
            }
            Kind::Bursty { request_us } => (30, server(0.0, request_us as f64)),
            Kind::Level(_) => (cpus, Generator::Level),
            Kind::Hogs { tasks, pinned } => (tasks as usize, hog(pinned, 0, 0)),
            Kind::Sleeper { work_ns, sleep_ns } => (1, hog(false, work_ns, sleep_ns)),
            Kind::Cyclictest => (1, Generator::Timer),
            Kind::Forks { parents } => (parents as usize, Generator::Forks { work_us: 5_000 }),
            Kind::Periodic { .. }
            | Kind::Fibtest { .. }
            | Kind::Hackbench { .. }
            | Kind::Build { .. } => {
                return Err(LabError::process(load.name, "is simulated only"));
            }
        };
        Ok(Job {
            generator,
            threads,
            slice_us: match load.hint {
                Hint::SliceUs(us) => us,
                _ => 0,
            },
        })
    }

    /// perf's clock of a load's group, on version 2 (version 1 has a hierarchy of its own for
    /// perf).
    fn clock_of(&self, active: &Active) -> Option<GroupClock> {
        let tree = self.host.tree.as_ref().ok().filter(|t| t.version() == 2)?;
        let group = tree.group_of(active.pid()).filter(|g| !g.is_root())?;
        GroupClock::open(&tree.dir(&group)).ok()
    }

    fn hint(&self, load: &Load, active: &Active) -> Result<(), LabError> {
        let (Hint::Latency(hint), Some(agent)) = (load.hint, self.agent) else {
            return Ok(());
        };
        let target = format!("pid:{}", active.pid());
        agent.set(&target, &[format!("latency={hint}")])
    }

    fn limiter(&self, loads: &[Active]) -> Result<Option<Guarded>, LabError> {
        let Keeper::Cpulimit(ppt) = self.scene.keeper else {
            return Ok(None);
        };
        let pid = loads.first().map_or(0, Active::pid);
        let mut command = Command::new("cpulimit");
        command.args(["-l", &(ppt / 10).to_string(), "-i", "-p", &pid.to_string()]);
        Guarded::logged("cpulimit", command, Path::new("/dev/null")).map(Some)
    }

    /// Measures while the law of this scene, if it has one, moves the quota of side's group.
    fn under_law(
        &self,
        groups: &[Option<Group<'_>>],
        loads: &mut [Active],
    ) -> Result<Outcome, LabError> {
        let Some(law) = self.law(groups, loads) else {
            return self.measure(loads);
        };
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            let law = scope.spawn(|| law.run(&ended));
            let outcome = self.measure(loads);
            ended.store(true, Ordering::Relaxed);
            let panicked = Err(LabError::process("the law", "panicked"));
            law.join().unwrap_or(panicked)?;
            outcome
        })
    }

    fn law<'g>(&self, groups: &'g [Option<Group<'g>>], loads: &[Active]) -> Option<LawLoop<'g>> {
        let Keeper::Law(law, busy_ppm) = self.scene.keeper else {
            return None;
        };
        let own = |class: Class| -> Vec<Arc<SharedPage>> {
            let loads = self.scene.loads.iter().zip(loads);
            let workers = loads.filter(|(load, _)| load.class == class);
            let page = |(_, active): (&Load, &Active)| Arc::clone(&active.worker.page);
            workers.map(page).collect()
        };
        let side = self.scene.loads.iter().find(|l| l.class == Class::Side)?;
        let cpus = self.host.machine.cpus as u32;
        Some(LawLoop {
            policy: sim::policy(law, cpus, 1),
            busy_ppm,
            cpus: cpus.into(),
            main: own(Class::Main),
            side: own(Class::Side),
            group: groups[side.group?].as_ref()?,
        })
    }

    fn measure(&self, loads: &mut [Active]) -> Result<Outcome, LabError> {
        let began_ns = clock::monotonic_ns();
        for (load, active) in self.scene.loads.iter().zip(loads.iter_mut()) {
            if let Kind::Level(orders) = &load.kind {
                let levels = json!([began_ns, orders]).to_string();
                active.worker.ask(&levels)?;
            }
        }
        let scene = self.scene;
        stop::sleep_until(began_ns + scene.warm_ns)?;
        for active in loads.iter_mut() {
            active.worker.ask("measure")?;
        }
        let clocks = Clocks::new(self, loads, began_ns);
        let limits_from = self.limits(loads);
        let status_from = self.agent.map(Tidegate::status).transpose()?;
        let mut looks = vec![clocks.look(loads)];
        let work = |loads: &[Active]| -> Vec<f64> { loads.iter().map(Active::work).collect() };
        let work_from = work(loads);
        let delays = |loads: &[Active]| -> Vec<Option<(u64, u64)>> {
            let delay = |active: &Active| proc::run_delay(active.pid());
            loads.iter().map(delay).collect()
        };
        let delays_from = delays(loads);
        looks.extend(clocks.looks(loads)?);
        let delays_to = delays(loads);
        let work_to = work(loads);
        let limits = self.limits(loads).into_iter().zip(limits_from);
        let mut outcome = Outcome {
            cpus: self.host.machine.cpus as f64,
            limits: limits.map(|(to, from)| to.since(from)).collect(),
            looks,
            ..Outcome::default()
        };
        let seconds = outcome.seconds();
        if let (Some(agent), Some(from)) = (self.agent, status_from) {
            let writes = writes(&from, &agent.status()?, seconds);
            outcome.extra.push(("writes_per_second", writes));
        }
        for (at, active) in loads.iter_mut().enumerate() {
            let answer = active.worker.ask("report")?;
            for name in ["longest_stop_us", "forked"] {
                let value = answer[name].as_f64();
                outcome.extra.extend(value.map(|value| (name, value)));
            }
            outcome.loads.push(LoadOutcome {
                work_per_second: (work_to[at] - work_from[at]) / seconds,
                run_delay_us: mean_us(delays_from[at], delays_to[at]),
                latencies: latencies(&answer),
            });
        }
        Ok(outcome)
    }

    /// By group: what its limit has counted.
    fn limits(&self, loads: &[Active]) -> Vec<CpuStat> {
        let of = |at: usize| {
            let tree = self.host.tree.as_ref().ok()?;
            let load = self.scene.loads.iter().position(|l| l.group == Some(at))?;
            Some(tree.counted(&tree.group_of(loads[load].pid())?))
        };
        let groups = 0..self.scene.groups.len();
        groups.map(|at| of(at).unwrap_or_default()).collect()
    }
}

struct Clocks<'a> {
    scene: &'a Scene,
    began_ns: u64,
    keeper: Option<i32>,
    /// The tree, and the groups of all loads: charged by the same ticks as the root, so that their
    /// difference does not have the ticks' error.
    groups: Option<(&'a Tree, Vec<GroupPath>)>,
}

impl<'a> Clocks<'a> {
    fn new(run: &Run<'a>, loads: &[Active], began_ns: u64) -> Self {
        let tree = run.host.tree.as_ref().ok();
        let groups = tree.filter(|t| t.machine_ns().is_some()).map(|tree| {
            let pids = loads.iter().map(Active::pid);
            let mut groups: Vec<GroupPath> = pids.filter_map(|p| tree.group_of(p)).collect();
            groups.sort();
            groups.dedup();
            // A load in the root itself is known from its own clock only.
            if groups.iter().any(GroupPath::is_root) {
                groups.clear();
            }
            (tree, groups)
        });
        Clocks {
            scene: run.scene,
            began_ns,
            keeper: run.agent.map(Tidegate::agent_pid),
            groups,
        }
    }

    fn look(&self, loads: &[Active]) -> Look {
        let used_ns: Vec<(u64, u64)> = loads.iter().map(Active::used_ns).collect();
        let keeper_ns = self.keeper.and_then(clock::process_cpu_ns).unwrap_or(0);
        let other_ns = match &self.groups {
            Some((tree, groups)) => {
                let known: u64 = match groups.is_empty() {
                    true => used_ns.iter().map(|u| u.0).sum(),
                    false => groups.iter().map(|g| tree.usage_ns(g)).sum(),
                };
                tree.machine_ns().unwrap_or(0).saturating_sub(known)
            }
            None => keeper_ns + clock::own_process_cpu_ns(),
        };
        Look {
            at_ns: clock::monotonic_ns() - self.began_ns,
            used_ns,
            other_ns,
            steal_ns: machine::steal_ns(),
            keeper_ns,
        }
    }

    /// The loads' own clocks alone, for looks that come often.
    fn glance(&self, loads: &[Active], last: &Look) -> Look {
        Look {
            at_ns: clock::monotonic_ns() - self.began_ns,
            used_ns: loads.iter().map(Active::used_ns).collect(),
            ..last.clone()
        }
    }

    /// Looks until the window's end, from a thread of their own.
    fn looks(&self, loads: &[Active]) -> Result<Vec<Look>, LabError> {
        let scene = self.scene;
        let every_ns = scene.look_ns.unwrap_or(scene.window_ns).max(MS);
        let often = every_ns < OFTEN_NS;
        let looking = || -> Result<Vec<Look>, LabError> {
            if often {
                raise_priority();
                clock::no_timer_slack();
            }
            let mut looks: Vec<Look> = vec![self.look(loads)];
            let mut at_ns = scene.warm_ns;
            while at_ns < scene.end_ns() {
                at_ns = (at_ns + every_ns).min(scene.end_ns());
                stop::sleep_until(self.began_ns + at_ns)?;
                let is_last = at_ns == scene.end_ns();
                looks.push(match often && !is_last {
                    true => self.glance(loads, &looks[0]),
                    false => self.look(loads),
                });
            }
            looks.remove(0);
            Ok(looks)
        };
        thread::scope(|scope| {
            let looks = scope.spawn(looking).join();
            looks.unwrap_or(Err(LabError::process("looks", "panicked")))
        })
    }
}

/// The agent counts over its last 10 s, which in a short window holds the time before it: there its
/// total is the better counter, though it counts every kind of write.
fn writes(from: &Value, to: &Value, seconds: f64) -> f64 {
    let number = |status: &Value, name: &str| status[name].as_f64().unwrap_or(f64::NAN);
    match seconds >= 10.0 {
        true => number(to, "quota_writes_per_second"),
        false => (number(to, "writes_total") - number(from, "writes_total")) / seconds,
    }
}

/// The mean run delay between two counts; nothing if no thread ran.
fn mean_us(from: Option<(u64, u64)>, to: Option<(u64, u64)>) -> Option<f64> {
    let (from, to) = (from?, to?);
    let runs = to.1.checked_sub(from.1).filter(|runs| *runs > 0)?;
    Some(to.0.saturating_sub(from.0) as f64 / 1e3 / runs as f64)
}

fn latencies(answer: &Value) -> Vec<(String, Latency)> {
    let named = answer.as_object().into_iter().flatten();
    let of = |(name, value): (&String, &Value)| {
        let latency = serde_json::from_value(value.clone()).ok()?;
        Some((name.clone(), latency))
    };
    named.filter_map(of).collect()
}

/// First in, first out at a low real-time priority, or else the best nice value.
fn raise_priority() {
    let param = libc::sched_param { sched_priority: 10 };
    // SAFETY: plain numbers and one valid structure; both calls act on the calling thread only.
    unsafe {
        if libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) != 0 {
            libc::setpriority(libc::PRIO_PROCESS, 0, -20);
        }
    }
}

/// The command of these words; there is always a first one.
pub fn plain(words: &[String]) -> Command {
    let mut command = Command::new(words.first().map_or("true", String::as_str));
    command.args(words.iter().skip(1));
    command
}

/// Returns true if the program is installed.
pub fn is_installed(program: &str) -> bool {
    tidegate_vm::tool(program).is_ok()
}
