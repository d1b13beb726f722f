//! Scenes on this machine: processes in groups, an agent of the lab's own, and clocks that are read
//! from outside. What is reported shares no code with the control loop's sensing
//! ([`crate::loads::shared_page`]).

pub mod cleanup;
pub mod foreign;
pub mod group_clock;
pub mod groups;
pub mod proc;
pub mod tidegate;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;
use tidegate_cgroup::group_path::GroupPath;

use self::foreign::Frames;
use self::group_clock::GroupClock;
use self::groups::{Group, Tree};
use self::proc::{Guarded, Worker, WorkerPlan};
use self::tidegate::Tidegate;
use crate::experiment::LabOptions;
use crate::loads::work::Work;
use crate::machine::{self, HostMachine};
use crate::options::Sense;
use crate::scene::{
    Counted, Hint, Keeper, Kind, Latency, Load, LoadOutcome, Look, MS, Outcome, Output, S, Scene,
};
use crate::{LabError, clock, stop};

/// Options of a load's generator and their values.
type Words = Vec<(&'static str, String)>;

/// Looks that come more often are made at real-time priority.
const OFTEN_NS: u64 = 50 * MS;
/// The longest that a program may take that is a measurement.
const COMMAND_NS: u64 = 600 * S;

pub struct Host<'a> {
    options: &'a LabOptions,
    exe: PathBuf,
    tidegate: PathBuf,
    tree: Result<Tree, LabError>,
    writable: bool,
    pub machine: HostMachine,
    running: Running,
    steps_per_ms: u64,
}

/// What keeps terms now: a start takes seconds (BPF programs are verified), so it stays for as long
/// as cells want the same.
enum Running {
    Nothing,
    Agent(Option<Sense>, Tidegate),
    SchedExt(Tidegate),
    Peer(usize, tidegate::Peer),
}

struct Active {
    kind: Process,
    clock: Option<GroupClock>,
    frames: Option<Frames>,
}

enum Process {
    Worker(Worker),
    Command(Guarded),
    Pending(Vec<String>),
}

impl Active {
    fn pid(&self) -> Option<i32> {
        match &self.kind {
            Process::Worker(worker) => Some(worker.pid()),
            Process::Command(guard) => Some(guard.pid()),
            Process::Pending(_) => None,
        }
    }

    fn used_ns(&self) -> (u64, u64) {
        match &self.kind {
            Process::Worker(worker) => {
                let counted = self.clock.as_ref().and_then(|clock| clock.ns().ok());
                let first = worker.page.slot(0).cpu_ns();
                (counted.unwrap_or_else(|| worker.page.cpu_ns()), first)
            }
            Process::Command(guard) => (proc::group_cpu_ns(guard.pid()), 0),
            Process::Pending(_) => (0, 0),
        }
    }

    /// Loops, messages or frames; CPU seconds of other commands.
    fn work(&self, at_ns: u64) -> f64 {
        match (&self.kind, &self.frames) {
            (_, Some(frames)) => frames.at(at_ns).unwrap_or(0.0),
            (Process::Worker(worker), _) => worker.page.count() as f64,
            (_, None) => self.used_ns().0 as f64 / 1e9,
        }
    }
}

impl<'a> Host<'a> {
    pub fn new(options: &'a LabOptions) -> Result<Self, LabError> {
        let tree = Tree::find();
        let writable = tree.as_ref().map_or(Ok(()), Tree::writable);
        let mut machine = HostMachine::look();
        machine.cgroup = tree.as_ref().ok().map(Tree::version);
        let tree = tree.and_then(|tree| writable.map(|()| tree));
        Ok(Host {
            options,
            exe: tidegate::own_executable()?,
            tidegate: tidegate::executable()?,
            writable: tree.is_ok(),
            tree,
            machine,
            running: Running::Nothing,
            steps_per_ms: Work::new(1).calibrate(30),
        })
    }

    fn keep(&mut self, keeper: Keeper) -> Result<(), LabError> {
        match (keeper, &self.running) {
            (Keeper::Tidegate { sense, .. }, Running::Agent(own, _))
                if sense.or(self.options.sense) == *own => {}
            (Keeper::SchedExt, Running::SchedExt(_)) => {}
            (Keeper::Peer(at), Running::Peer(own, _)) if at == *own => {}
            (Keeper::Tidegate { sense, .. }, _) => {
                let sense = sense.or(self.options.sense);
                self.running = Running::Nothing;
                let agent = Tidegate::start(&self.tidegate, sense)?;
                if let Some(wanted) = sense.filter(|s| s.name() != agent.sensing()) {
                    let why = format!("the agent senses by {} here", agent.sensing());
                    return Err(LabError::process(wanted.name(), why));
                }
                self.running = Running::Agent(sense, agent);
            }
            (Keeper::SchedExt, _) => {
                self.running = Running::Nothing;
                self.running = Running::SchedExt(Tidegate::start_sched_ext(&self.tidegate)?);
            }
            (Keeper::Peer(at), _) => {
                self.running = Running::Nothing;
                let (name, path) = &self.options.peers[at];
                let peer = tidegate::Peer::start(name, path, &self.options.out_dir())?;
                self.running = Running::Peer(at, peer);
            }
            _ => self.running = Running::Nothing,
        }
        Ok(())
    }

    pub fn run(&mut self, scene: &Scene) -> Result<Outcome, LabError> {
        self.keep(scene.keeper)?;
        let agent = match &self.running {
            Running::Agent(_, agent) | Running::SchedExt(agent) => Some(agent),
            _ => None,
        };
        let is_sched_ext = matches!(self.running, Running::SchedExt(_));
        let run = Run {
            scene,
            host: self,
            agent,
            is_sched_ext,
        };
        // Declared first, so that the groups go after what lives in them.
        let groups = run.groups()?;
        let mut loads = run.start(&groups)?;
        let limiter = run.limiter(&loads)?;
        let outcome = run.measure(&mut loads);
        drop(limiter);
        match &self.running {
            Running::SchedExt(agent) => agent.sched_ext_in_force()?,
            Running::Peer(_, peer) => peer.in_force()?,
            _ => {}
        }
        outcome
    }

    pub fn finish(mut self) -> HostMachine {
        self.running = Running::Nothing;
        self.machine.finish();
        self.machine
    }
}

struct Run<'a> {
    scene: &'a Scene,
    host: &'a Host<'a>,
    agent: Option<&'a Tidegate>,
    is_sched_ext: bool,
}

impl<'a> Run<'a> {
    /// A gate that `tidegate run` makes needs no group of ours, nor does a group without a limit
    /// where none can be made.
    fn groups(&self) -> Result<Vec<Option<Group<'a>>>, LabError> {
        let by_run =
            |words: &[String]| !words.is_empty() && self.agent.is_some() && !self.is_sched_ext;
        let mut made = Vec::new();
        for group in &self.scene.groups {
            let words = group.terms.words();
            let is_plain = !group.idle && group.weight == 0 && group.max.is_none();
            let is_plain = is_plain && (words.is_empty() || self.agent.is_none());
            if by_run(&words) || (is_plain && !self.host.writable) {
                made.push(None);
                continue;
            }
            let tree = self.host.tree.as_ref().map_err(|e| {
                LabError::needs(
                    "this experiment",
                    e.to_string(),
                    "run it as root, or with --on sim",
                )
            })?;
            let own = Group::create(tree, group.name)?;
            own.set_weight(group.weight)?;
            if group.idle {
                own.set_idle()?;
            }
            group.max.map_or(Ok(()), |max| own.set_max(max))?;
            if let Some(agent) = self
                .agent
                .filter(|_| self.is_sched_ext && !words.is_empty())
            {
                agent.set(&format!("cgroup:{}", own.path), &words.join(" "))?;
            }
            made.push(Some(own));
        }
        Ok(made)
    }

    fn start(&self, groups: &[Option<Group<'_>>]) -> Result<Vec<Active>, LabError> {
        let mut active = Vec::new();
        for load in &self.scene.loads {
            let group = load.group.and_then(|at| groups[at].as_ref());
            let join = group.map(Group::membership).unwrap_or_default();
            let flags = match (load.group, group) {
                (Some(at), None) => self.scene.groups[at].terms.flags(),
                _ => Vec::new(),
            };
            let wrap = |words: &[String]| match self.agent.filter(|_| !flags.is_empty()) {
                Some(agent) => agent.run(&flags, words),
                None => plain(words),
            };
            let kind = self.start_one(load, &join, &wrap)?;
            let mut one = Active {
                clock: None,
                frames: None,
                kind,
            };
            if let (Process::Command(guard), true) = (&mut one.kind, load.is_ffmpeg()) {
                one.frames = Some(Frames::watch(guard));
            }
            if matches!(load.kind, Kind::Forks { .. }) {
                one.clock = self.clock_of(&one);
            }
            self.hint(load, &one, group)?;
            active.push(one);
        }
        Ok(active)
    }

    fn start_one(
        &self,
        load: &Load,
        join: &[PathBuf],
        wrap: &dyn Fn(&[String]) -> Command,
    ) -> Result<Process, LabError> {
        if let Kind::Command { words, measures } = &load.kind {
            if *measures {
                return Ok(Process::Pending(words.clone()));
            }
            let mut command = wrap(words);
            command.stdin(Stdio::null()).stdout(Stdio::piped());
            let guard = Guarded::start(load.name, command, join)?;
            return Ok(Process::Command(guard));
        }
        let (kind, threads, args) = self.worker(load)?;
        let plan = WorkerPlan {
            exe: &self.host.exe,
            kind,
            args: args
                .into_iter()
                .flat_map(|(name, n)| [format!("--{name}"), n])
                .collect(),
            threads,
        };
        let mut worker = Worker::start(&plan, join, wrap)?;
        if matches!(load.kind, Kind::Hackbench { loops: 0, .. }) {
            worker.ask_within("run", 60)?;
        }
        Ok(Process::Worker(worker))
    }

    /// A load's generator, its threads and its arguments.
    fn worker(&self, load: &Load) -> Result<(&'static str, usize, Words), LabError> {
        let cpus = self.host.machine.cpus;
        let us = |ns: u64| (ns / 1_000).to_string();
        let text = |n: u64| n.to_string();
        let pin = |pinned: bool| ("pin", u64::from(pinned).to_string());
        let (kind, threads, mut args) = match &load.kind {
            Kind::Server { share } => {
                let per_second = share * cpus as f64 * 1e3;
                let args = vec![
                    ("per-second", per_second.to_string()),
                    ("request-us", "1000".into()),
                    ("steps-per-ms", text(self.host.steps_per_ms)),
                ];
                ("server", 2 * cpus, args)
            }
            Kind::Level(orders) => {
                let level = orders.first().map_or(0, |o| o.1);
                ("constant", cpus, vec![("level", level.to_string())])
            }
            Kind::Hogs { tasks, pinned } => ("hog", *tasks as usize, vec![pin(*pinned)]),
            Kind::Periodic {
                tasks,
                work_ns,
                period_ns,
                pinned,
            } => {
                let args = vec![
                    pin(*pinned),
                    ("work-us", us(*work_ns)),
                    ("period-us", us(*period_ns)),
                ];
                ("hog", *tasks as usize, args)
            }
            Kind::Sleeper { work_ns, sleep_ns } => {
                let args = vec![("work-us", us(*work_ns)), ("sleep-us", us(*sleep_ns))];
                ("hog", 1, args)
            }
            Kind::Cyclictest => ("timer", 1, vec![("interval-us", "1000".into())]),
            Kind::Hackbench { groups, loops } => {
                let args = vec![("groups", groups.to_string()), ("loops", loops.to_string())];
                ("hackbench", 1, args)
            }
            Kind::Bursty { request_us } => ("server", 30, vec![("request-us", text(*request_us))]),
            Kind::Fibtest { busy, work_ns } => {
                let args = vec![
                    ("busy", busy.to_string()),
                    ("work-us", us((*work_ns).max(1_000))),
                    ("interval-us", "10000".into()),
                    pin(true),
                ];
                ("timer", cpus, args)
            }
            Kind::Forks { parents } => ("forks", *parents as usize, Vec::new()),
            Kind::Requests(_) | Kind::Build { .. } | Kind::Lock { .. } | Kind::Command { .. } => {
                return Err(LabError::process(load.name, "is simulated only"));
            }
        };
        args.push(("seed", (self.scene.seed >> 1).to_string()));
        if let Hint::SliceUs(us) = load.hint {
            args.push(("slice-us", us.to_string()));
        }
        Ok((kind, threads, args))
    }

    /// perf's clock of a load's group, on version 2 (version 1 has a hierarchy of its own for
    /// perf).
    fn clock_of(&self, active: &Active) -> Option<GroupClock> {
        let tree = self.host.tree.as_ref().ok().filter(|t| t.version() == 2)?;
        let group = tree.group_of(active.pid()?).filter(|g| !g.is_root())?;
        GroupClock::open(&tree.dir(&group)).ok()
    }

    fn hint(
        &self,
        load: &Load,
        active: &Active,
        group: Option<&Group<'_>>,
    ) -> Result<(), LabError> {
        let (Hint::Latency(hint), Some(agent)) = (load.hint, self.agent) else {
            return Ok(());
        };
        let target = match (self.is_sched_ext, group, active.pid()) {
            (true, Some(group), _) => format!("cgroup:{}", group.path),
            (_, _, Some(pid)) => format!("pid:{pid}"),
            _ => return Ok(()),
        };
        agent.set(&target, &format!("latency={hint}"))
    }

    fn limiter(&self, loads: &[Active]) -> Result<Option<Guarded>, LabError> {
        let Keeper::Cpulimit(ppt) = self.scene.keeper else {
            return Ok(None);
        };
        let pid = loads.first().and_then(Active::pid).unwrap_or(0);
        let words = format!("cpulimit -l {} -i -p {pid}", ppt / 10);
        let words: Vec<String> = words.split(' ').map(String::from).collect();
        Guarded::start("cpulimit", quiet(plain(&words)), &[]).map(Some)
    }

    fn measure(&self, loads: &mut [Active]) -> Result<Outcome, LabError> {
        let began_ns = clock::monotonic_ns();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for (load, active) in self.scene.loads.iter().zip(loads.iter()) {
                if let (Kind::Level(orders), Process::Worker(worker)) = (&load.kind, &active.kind) {
                    let (page, done) = (Arc::clone(&worker.page), &done);
                    scope.spawn(move || {
                        for pair in orders.windows(2) {
                            // One order is pending at a time: the next is given once this one is in
                            // force.
                            wait_until(began_ns + pair[0].0 + MS, done);
                            let (at_ns, level) = (began_ns + pair[1].0, pair[1].1);
                            page.order_level(level, at_ns, clock::monotonic_ns());
                        }
                    });
                }
            }
            let outcome = self.window(loads, began_ns);
            done.store(true, Ordering::Release);
            outcome
        })
    }

    fn window(&self, loads: &mut [Active], began_ns: u64) -> Result<Outcome, LabError> {
        let scene = self.scene;
        stop::sleep_until(began_ns + scene.warm_ns)?;
        for (load, active) in scene.loads.iter().zip(loads.iter_mut()) {
            match &mut active.kind {
                Process::Worker(worker) => worker.ask("measure").map(|_| ())?,
                Process::Command(guard) => still_runs(guard)?,
                Process::Pending(words) => active.kind = self.begin(load, words)?,
            }
        }
        let clocks = Clocks::new(self, loads, began_ns);
        let limits_from = self.limits(loads);
        let status_from = self
            .agent
            .filter(|_| !self.is_sched_ext)
            .map(Tidegate::status)
            .transpose()?;
        let mut looks = vec![clocks.look(loads)];
        let work_from: Vec<f64> = loads
            .iter()
            .map(|l| l.work(clock::monotonic_ns()))
            .collect();
        let mut extra = Vec::new();
        let measures = loads
            .iter()
            .position(|l| matches!(&l.kind, Process::Command(_)));
        let measures = measures.filter(|at| scene.loads[*at].measures());
        if let Some(at) = scene.until_done {
            if let Process::Worker(worker) = &mut loads[at].kind {
                let answer = worker.ask_within("run", 300)?;
                if let Some(why) = answer["error"].as_str() {
                    return Err(LabError::process(scene.loads[at].name, why));
                }
                extra.extend(answer["seconds"].as_f64().map(|s| ("elapsed_seconds", s)));
            }
            looks.push(clocks.look(loads));
        } else if let Some(at) = measures {
            clocks.while_it_runs(loads, at, &mut looks)?;
        } else {
            looks.extend(clocks.looks(loads)?);
        }
        let work: Vec<f64> = {
            // ffmpeg reports ten times a second: a little later, what it had done by now is known.
            let now = clock::monotonic_ns();
            if loads.iter().any(|l| l.frames.is_some()) {
                stop::sleep_ns(120 * MS)?;
            }
            loads.iter().map(|l| l.work(now)).collect()
        };
        let limits = self.limits(loads).into_iter().zip(limits_from);
        let mut outcome = Outcome {
            cpus: self.host.machine.cpus as f64,
            limits: limits.map(|(to, from)| to.since(from)).collect(),
            looks,
            extra,
            ..Outcome::default()
        };
        let seconds = outcome.seconds();
        if let Some(from) = status_from {
            let to = self
                .agent
                .map(Tidegate::status)
                .transpose()?
                .unwrap_or_default();
            outcome
                .extra
                .push(("writes_per_second", writes(&from, &to, seconds)));
        }
        for ((active, load), (to, from)) in loads
            .iter_mut()
            .zip(&scene.loads)
            .zip(work.iter().zip(&work_from))
        {
            let mut one = LoadOutcome {
                work_per_second: (to - from) / seconds,
                ..LoadOutcome::default()
            };
            match &mut active.kind {
                Process::Worker(worker) => {
                    let answer = worker.ask("report")?;
                    one.latencies = latencies(&answer);
                    for name in ["longest_stop_us", "forked"] {
                        outcome
                            .extra
                            .extend(answer[name].as_f64().map(|v| (name, v)));
                    }
                }
                Process::Command(guard) if load.measures() => {
                    one.output = Some(self.output(guard)?)
                }
                _ => {}
            }
            outcome.loads.push(one);
        }
        Ok(outcome)
    }

    /// Starts a program that is a measurement, with its output in files: a pipe that fills would
    /// hold it up.
    fn begin(&self, load: &Load, words: &[String]) -> Result<Process, LabError> {
        let mut command = plain(words);
        command.stdin(Stdio::null());
        let open = |name: &str| {
            let path = self.host.options.out_dir().join(name);
            let file = fs::File::create(&path);
            file.map_err(|e| LabError::file("keep a program's output", path, e))
        };
        command.stdout(open("load.out")?).stderr(open("load.err")?);
        let terms = load.group.map(|at| self.scene.groups[at].terms.flags());
        let gated = self
            .agent
            .filter(|_| !self.is_sched_ext)
            .zip(terms.filter(|t| !t.is_empty()));
        if let Some((agent, flags)) = gated {
            let mut through = agent.run(&flags, words);
            through.stdin(Stdio::null());
            through.stdout(open("load.out")?).stderr(open("load.err")?);
            command = through;
        }
        Guarded::start(load.name, command, &[]).map(Process::Command)
    }

    fn output(&self, guard: &mut Guarded) -> Result<Output, LabError> {
        let read = |name: &str| {
            fs::read_to_string(self.host.options.out_dir().join(name)).unwrap_or_default()
        };
        let (stdout, stderr) = (read("load.out"), read("load.err"));
        match guard.ended() {
            Some(status) if !status.success() => {
                let said = stderr.lines().last().unwrap_or_default();
                let why = format!("ended with {status}: {said}");
                Err(LabError::process(guard.name(), why))
            }
            _ => Ok(Output { stdout, stderr }),
        }
    }

    /// By group: what its limit has counted, or the scheduler's counts of all limits.
    fn limits(&self, loads: &[Active]) -> Vec<Counted> {
        let sched_ext = self
            .agent
            .filter(|_| self.is_sched_ext)
            .and_then(|a| a.sched_ext().ok());
        let Ok(tree) = &self.host.tree else {
            return vec![Counted::default(); self.scene.groups.len()];
        };
        let of = |at: usize| {
            if let Some(sched_ext) = &sched_ext {
                return sched_ext_counted(&sched_ext["quotas"]);
            }
            let first = self.scene.loads.iter().position(|l| l.group == Some(at));
            let group = first
                .and_then(|l| loads[l].pid())
                .and_then(|pid| tree.group_of(pid));
            group.map_or_else(Counted::default, |group| tree.counted(&group))
        };
        (0..self.scene.groups.len()).map(of).collect()
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
            let pids = loads.iter().filter_map(Active::pid);
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

    /// Until the program has ended: its CPU time is gone with it, so the last look is before its
    /// end.
    fn while_it_runs(
        &self,
        loads: &mut [Active],
        at: usize,
        looks: &mut Vec<Look>,
    ) -> Result<(), LabError> {
        let until_ns = clock::monotonic_ns() + COMMAND_NS;
        let mut last = looks[0].clone();
        loop {
            if let Process::Command(guard) = &mut loads[at].kind
                && guard.wait(50 * MS)?.is_some()
            {
                last.at_ns = clock::monotonic_ns() - self.began_ns;
                looks.push(last);
                return Ok(());
            }
            if clock::monotonic_ns() > until_ns {
                let why = format!("has not ended after {} s", COMMAND_NS / S);
                return Err(LabError::process(self.scene.loads[at].name, why));
            }
            last = self.look(loads);
        }
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

fn sched_ext_counted(quotas: &Value) -> Counted {
    let count = |name: &str| quotas[name].as_u64().unwrap_or(0);
    let throttled_s = quotas["throttled_seconds"].as_f64().unwrap_or(0.0);
    Counted {
        periods: count("periods"),
        throttled: count("throttled"),
        throttled_ns: (throttled_s * 1e9) as u64,
        bursts: count("bursts"),
    }
}

fn latencies(answer: &Value) -> Vec<(String, Latency)> {
    let named = answer.as_object().into_iter().flatten();
    let of = |(name, value): (&String, &Value)| {
        let latency = serde_json::from_value(value.clone()).ok()?;
        Some((name.clone(), latency))
    };
    named.filter_map(of).collect()
}

fn still_runs(guard: &mut Guarded) -> Result<(), LabError> {
    let Some(status) = guard.ended() else {
        return Ok(());
    };
    let why = format!("ended ({status}) before the window; give one that runs until it is killed");
    Err(LabError::process(guard.name(), why))
}

fn wait_until(at_ns: u64, done: &AtomicBool) {
    while clock::monotonic_ns() < at_ns && !done.load(Ordering::Acquire) {
        clock::sleep_until(at_ns.min(clock::monotonic_ns() + 50 * MS));
    }
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

/// The command, which reads nothing and whose output is dropped.
pub fn quiet(mut command: Command) -> Command {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Returns true if the program is installed.
pub fn is_installed(program: &str) -> bool {
    tidegate_vm::tool(program).is_ok()
}

/// An error if this kernel cannot load a scheduler.
pub fn sched_ext_supported() -> Result<(), LabError> {
    if Path::new("/sys/kernel/sched_ext/state").exists() {
        return Ok(());
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Err(LabError::needs(
        "the sched_ext engine",
        format!("this kernel ({}) has no sched_ext", release.trim()),
        "give --on vm, or boot a kernel from 6.12 with CONFIG_SCHED_CLASS_EXT",
    ))
}
