//! A GNU make jobserver for each gate that asks for one: a fifo that holds a token for each further
//! job. A client runs one job without a token and reads a token before it starts another.
//!
//! Clients die with tokens in hand, and some run jobs without asking, so tokens are not accounted
//! for: the runnable tasks of the gate are counted. Its free tokens are the jobs of its share less
//! the tasks that run. All shares together are the CPUs that side work may use.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use tidegate_cgroup::KernelFs;
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::target::runs;
use tidegate_engine::clock::Clock;
use tidegate_engine::sync::lock;

use crate::gates::{Attachment, Gate, Gates};
use crate::paths::RunDir;
use crate::runtime::Runtime;

const PERIOD: Duration = Duration::from_millis(200);
/// Without a gate that has one.
const IDLE_PERIOD: Duration = Duration::from_secs(1);
/// Polls in a second: what was true in each of them is true of more than a moment.
const WINDOW: usize = 5;
/// A quarter of a CPU is enough for one more job.
const ROUNDING_CPUS: f64 = 0.75;
/// The part of a second that some task waited for memory, from which no job is started.
const STALLED_MAX: f64 = 0.1;
/// A gate with more tasks, and so many more for each job, is left as it is: to read a task takes
/// some microseconds, and jobs that sleep would be joined by others without end.
const TASKS_MAX: usize = 256;
const TASKS_OF_JOB: usize = 8;
const DEPTH: u32 = 4;
const FIFO_BYTES: usize = 1 << 16;

#[derive(Default)]
pub(crate) struct Jobservers {
    fifos: BTreeMap<String, Fifo>,
    allowance_cpus: Smoothed,
    stalled: Smoothed,
    /// For how long tasks have waited for memory, in microseconds, and when that was read.
    memory: Option<(u64, u64)>,
    has_swept: bool,
}

struct Fifo {
    file: Arc<File>,
    group: GroupPath,
    weight: u32,
    /// As many as its own limit has use for.
    jobs_max: u32,
    runnable: Window,
    jobs: u32,
}

impl Fifo {
    fn new(file: File, group: GroupPath) -> Self {
        Self {
            file: Arc::new(file),
            group,
            weight: 1,
            jobs_max: u32::MAX,
            runnable: Window::default(),
            jobs: 1,
        }
    }
}

/// A mean of about a second.
#[derive(Default)]
struct Smoothed(Option<f64>);

impl Smoothed {
    fn add(&mut self, now: f64) -> f64 {
        let before = self.0.unwrap_or(now);
        *self.0.insert(before + (now - before) / WINDOW as f64)
    }
}

/// The runnable tasks of a gate at the last polls.
#[derive(Clone, Copy, Debug, Default)]
struct Window([u32; WINDOW]);

impl Window {
    fn add(&mut self, runnable: u32) {
        self.0.rotate_right(1);
        self.0[0] = runnable;
    }

    fn most(&self) -> u32 {
        self.0.iter().copied().max().unwrap_or(0)
    }

    /// Tokens to add, or where negative to take back. A client needs none for its first job.
    fn change(&mut self, jobs: u32, free: u32) -> i64 {
        let least = self.0.iter().copied().min().unwrap_or(0).max(1);
        let missing = jobs.saturating_sub(self.most().max(1) + free);
        if missing == 0 {
            return -i64::from((least + free).saturating_sub(jobs));
        }
        // Their tasks are about to run.
        self.0[0] = self.0[0].max(1) + missing;
        i64::from(missing)
    }
}

/// Divides the jobs among the gates, of each its weight and the jobs that it is known to have use
/// for: by weight among those that have use for them, and what none has use for among all. A gate
/// that runs anything has at least one.
fn divide(total: u32, gates: &[(u32, u32)]) -> Vec<u32> {
    let mut given: Vec<u32> = gates.iter().map(|(_, jobs)| *jobs.min(&1)).collect();
    for _ in given.iter().sum()..total {
        let rank = |index: &usize| {
            let ((weight, jobs), given) = (gates[*index], given[*index]);
            let cost = (u64::from(given) + 1) * 10_000 / u64::from(weight.max(1));
            (given >= jobs, cost)
        };
        let Some(next) = (0..gates.len()).min_by_key(rank) else {
            break;
        };
        given[next] += 1;
    }
    given
}

fn whole_jobs(cpus: f64) -> u32 {
    (cpus + ROUNDING_CPUS) as u32
}

fn has_jobserver(gate: &Gate) -> bool {
    gate.terms.jobserver.value.0
        && gate.is_limited()
        && matches!(gate.record.attachment, Attachment::Owned { .. })
}

/// Tokens that are still to be taken back, as clients return them.
#[derive(Default)]
pub(crate) struct Surplus(Vec<(Arc<File>, u32)>);

impl Surplus {
    /// Pauses, and meanwhile takes back what clients return: a client that waits for a token would
    /// have read it before the next poll.
    pub(crate) fn take_back(&mut self, clock: &dyn Clock, pause: Duration) {
        let until_ns = clock.now_ns() + pause.as_nanos() as u64;
        loop {
            self.0.retain(|(_, surplus)| *surplus > 0);
            let left = Duration::from_nanos(until_ns.saturating_sub(clock.now_ns()));
            if self.0.is_empty() || left.is_zero() {
                return clock.sleep(left);
            }
            let fds = self.0.iter();
            let mut fds: Vec<PollFd<'_>> = fds
                .map(|(file, _)| PollFd::new(file, PollFlags::IN))
                .collect();
            let timeout = Timespec::try_from(left).ok();
            if rustix::event::poll(&mut fds, timeout.as_ref()).is_err() {
                return clock.sleep(left);
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            for ((file, surplus), _) in self.0.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
                *surplus -= read_tokens(file, *surplus);
            }
        }
    }
}

/// Reads up to so many tokens, and waits for none.
fn read_tokens(mut file: &File, most: u32) -> u32 {
    let mut tokens = vec![0; FIFO_BYTES.min(most as usize)];
    file.read(&mut tokens).map_or(0, |read| read as u32)
}

fn write_tokens(mut file: &File, count: u32) {
    // A full fifo has tokens enough.
    let _ = file.write(&vec![b'+'; FIFO_BYTES.min(count as usize)]);
}

/// Opens a gate's fifo. One that an earlier agent made is taken up, for clients hold it open.
fn open_fifo(path: &Path, gate: &Gate) -> io::Result<File> {
    match rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0) {
        Ok(()) => lchown(path, Some(gate.record.uid), None)
            .inspect_err(|_| drop(std::fs::remove_file(path)))?,
        Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags((OFlags::NONBLOCK | OFlags::NOFOLLOW).bits() as i32)
        .open(path)
}

impl Jobservers {
    pub(crate) fn jobs_of(&self, gate: &str) -> Option<u32> {
        self.fifos.get(gate).map(|fifo| fifo.jobs)
    }

    /// Has the fifos of these gates open as far as it can, and removes all others.
    fn keep(&mut self, run_dir: &RunDir, gates: &[&Gate]) -> io::Result<()> {
        let names: BTreeSet<&str> = gates.iter().map(|gate| gate.record.name.as_str()).collect();
        let before = self.fifos.len();
        self.fifos.retain(|name, _| names.contains(name.as_str()));
        if !std::mem::replace(&mut self.has_swept, true) || self.fifos.len() < before {
            sweep(&run_dir.jobservers(), &names)?;
        }
        if gates.is_empty() {
            // Means of an earlier time.
            (self.allowance_cpus, self.stalled) = Default::default();
        }
        let mut kept = Ok(());
        for gate in gates {
            let name = &gate.record.name;
            let fifo = match self.fifos.entry(name.clone()) {
                Entry::Occupied(fifo) => fifo.into_mut(),
                Entry::Vacant(place) => match open_fifo(&run_dir.jobservers().join(name), gate) {
                    Ok(file) => {
                        place.insert(Fifo::new(file, gate.record.attachment.group().clone()))
                    }
                    Err(error) => {
                        kept = Err(error);
                        continue;
                    }
                },
            };
            let limit_ucpu = gate.own_limit().and_then(|own| own.rate_ucpu());
            fifo.jobs_max = limit_ucpu.map_or(u32::MAX, |ucpu| whole_jobs(ucpu as f64 / 1e6));
            fifo.weight = gate.terms.cpu_weight();
        }
        kept
    }

    /// All jobs together; while memory is short, none but the first of each gate.
    fn total(&mut self, allowance_cpus: f64, stalled_us: u64, now_ns: u64) -> u32 {
        let allowance_cpus = self.allowance_cpus.add(allowance_cpus);
        let before = self.memory.replace((stalled_us, now_ns));
        let (before_us, before_ns) = before.unwrap_or((stalled_us, 0));
        let wall_us = now_ns.saturating_sub(before_ns).max(1) as f64 / 1e3;
        let stalled = stalled_us.saturating_sub(before_us) as f64 / wall_us;
        match self.stalled.add(stalled) > STALLED_MAX {
            true => 0,
            false => whole_jobs(allowance_cpus),
        }
    }

    /// Divides the jobs, adds tokens and takes them back. The result is what could not be taken
    /// yet.
    fn settle(&mut self, total: u32, runnable: &BTreeMap<String, u32>) -> Surplus {
        let mut wants = Vec::new();
        for (name, fifo) in &mut self.fifos {
            if let Some(runnable) = runnable.get(name) {
                fifo.runnable.add(*runnable);
            }
            let runnable = fifo.runnable.most();
            let is_hungry = runnable > 0 && free_tokens(&fifo.file) == 0;
            let jobs = if is_hungry { u32::MAX } else { runnable };
            wants.push((fifo.weight, jobs.min(fifo.jobs_max)));
        }
        let mut surplus = Surplus::default();
        for (fifo, jobs) in self.fifos.values_mut().zip(divide(total, &wants)) {
            fifo.jobs = jobs.min(fifo.jobs_max).max(1);
            let change = fifo.runnable.change(fifo.jobs, free_tokens(&fifo.file));
            let count = u32::try_from(change.unsigned_abs()).unwrap_or(u32::MAX);
            if change > 0 {
                write_tokens(&fifo.file, count);
            } else {
                let left = count - read_tokens(&fifo.file, count);
                surplus.0.push((Arc::clone(&fifo.file), left));
            }
        }
        surplus
    }
}

fn free_tokens(file: &File) -> u32 {
    rustix::io::ioctl_fionread(file).map_or(0, |bytes| bytes as u32)
}

/// Removes the fifos of gates that have ended, also while no agent ran.
fn sweep(dir: &Path, names: &BTreeSet<&str>) -> io::Result<()> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        std::fs::create_dir(dir)?;
        // Users find their own fifos there.
        return std::fs::set_permissions(dir, Permissions::from_mode(0o755));
    };
    for entry in entries {
        let entry = entry?;
        if !entry
            .file_name()
            .to_str()
            .is_some_and(|name| names.contains(name))
        {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The fifo of a gate that a process enters, where the gate has a jobserver. Called with the gates
/// locked; a new gate is not in `gates` yet.
pub(crate) fn enter(
    runtime: &Runtime,
    gates: &[Gate],
    gate: &Gate,
) -> Option<Result<PathBuf, String>> {
    if !has_jobserver(gate) {
        return None;
    }
    let run_dir = &runtime.kernel.run_dir;
    let name = &gate.record.name;
    let path = run_dir.jobservers().join(name);
    let mut jobservers = lock(&runtime.jobservers);
    if gates.iter().all(|one| one.record.name != *name) {
        // Another user's gate may have had the name.
        jobservers.fifos.remove(name);
        let _ = std::fs::remove_file(&path);
    }
    let others = gates.iter().filter(|one| has_jobserver(one));
    let all: Vec<&Gate> = others.chain([gate]).collect();
    let kept = jobservers.keep(run_dir, &all);
    Some(match kept {
        Err(error) if !jobservers.fifos.contains_key(name) => Err(format!("jobserver: {error}")),
        _ => Ok(path),
    })
}

pub(crate) fn period(runtime: &Runtime) -> Duration {
    match lock(&runtime.jobservers).fifos.is_empty() {
        true => IDLE_PERIOD,
        false => PERIOD,
    }
}

pub(crate) fn poll(registry: &Gates, runtime: &Runtime) -> Surplus {
    let kernel = &runtime.kernel;
    let polled: Vec<(String, GroupPath, u32)> = {
        let gates = registry.lock();
        let mut jobservers = lock(&runtime.jobservers);
        let asked: Vec<&Gate> = gates.iter().filter(|gate| has_jobserver(gate)).collect();
        if let Err(error) = jobservers.keep(&kernel.run_dir, &asked) {
            lock(&runtime.alerts).insert(format!("jobserver: {error}"));
        }
        let fifos = jobservers.fifos.iter();
        fifos
            .map(|(name, fifo)| (name.clone(), fifo.group.clone(), fifo.jobs))
            .collect()
    };
    if polled.is_empty() {
        return Surplus::default();
    }
    let decision = runtime.decision();
    // Before its first step the control loop has decided nothing.
    if decision.capacity_cpus == 0.0 {
        return Surplus::default();
    }
    let mut runnable = BTreeMap::new();
    for (name, group, jobs) in polled {
        let tids = kernel.tids_below(&group, DEPTH);
        if tids.len() <= TASKS_MAX + TASKS_OF_JOB * jobs as usize {
            runnable.insert(name, count_runnable(&*kernel.fs, &tids));
        }
    }
    let stalled_us = stalled_us(&*kernel.fs);
    let now_ns = kernel.clock.now_ns();
    let mut jobservers = lock(&runtime.jobservers);
    let total = jobservers.total(decision.allowance_cpus, stalled_us, now_ns);
    jobservers.settle(total, &runnable)
}

fn count_runnable(fs: &dyn KernelFs, tids: &[i32]) -> u32 {
    let stat = |tid: &&i32| fs.read(Path::new(&format!("/proc/{tid}/task/{tid}/stat")));
    let is_runnable = |tid: &&i32| stat(tid).is_ok_and(|stat| runs(&stat));
    tids.iter().filter(is_runnable).count() as u32
}

/// For how long some task has waited for memory; 0 without PSI.
fn stalled_us(fs: &dyn KernelFs) -> u64 {
    let text = fs
        .read(Path::new("/proc/pressure/memory"))
        .unwrap_or_default();
    let total = text
        .lines()
        .next()
        .and_then(|some| some.split_once("total="));
    total.map_or(0, |(_, us)| us.trim().parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Clients of one gate as they do with tokens what they like: each of their runnable tasks but
    /// the first has taken one.
    #[derive(Default)]
    struct Clients {
        window: Window,
        running: u32,
        free: u32,
    }

    impl Clients {
        fn start(&mut self, want: u32) {
            let with_token = want.saturating_sub(self.running.max(1)).min(self.free);
            self.free -= with_token;
            self.running = self.running.max(want.min(1)) + with_token;
        }

        fn end(&mut self, count: u32) {
            let ended = count.min(self.running);
            self.free += ended.min(self.running.saturating_sub(1));
            self.running -= ended;
        }

        /// Returns the surplus that could not be taken back.
        fn poll(&mut self, jobs: u32) -> u32 {
            self.window.add(self.running);
            let change = self.window.change(jobs, self.free);
            let taken = i64::from(self.free).min(-change).max(0);
            self.free = (i64::from(self.free) + change.max(-taken)) as u32;
            (-change - taken).max(0) as u32
        }
    }

    proptest! {
        #[test]
        fn tokens_that_were_lost_or_made_up_are_made_good(
            history in prop::collection::vec((0_u8..6, 0_u32..40), 0..60),
            jobs in 1_u32..32,
        ) {
            let mut clients = Clients::default();
            let mut jobs_now = jobs;
            for (what, count) in history {
                match what {
                    0 => clients.start(count),
                    1 => clients.end(count),
                    // Killed with all tokens in hand.
                    2 => clients.running = 0,
                    // Tokens from nowhere, and reads that never start a job.
                    3 => clients.free += 1_000 * count,
                    4 => clients.free = 0,
                    _ => jobs_now = count.max(1),
                }
                clients.poll(jobs_now);
            }
            // The clients that are left have work without end, and start nothing again above their
            // share.
            for _ in 0..2 * WINDOW {
                clients.start(u32::MAX);
                let surplus = clients.poll(jobs);
                clients.running -= surplus.min(clients.running);
            }
            prop_assert_eq!((clients.running, clients.free), (jobs, 0));
        }

        #[test]
        fn all_jobs_are_divided_and_none_is_wasted(
            total in 0_u32..64,
            wants in prop::collection::vec((1_u32..1_000, 0_u32..20), 1..12),
        ) {
            let given = divide(total, &wants);
            let busy = wants.iter().filter(|gate| gate.1 > 0).count() as u32;
            prop_assert_eq!(given.iter().sum::<u32>(), total.max(busy));
            prop_assert!(given.iter().zip(&wants).all(|(given, gate)| *given >= gate.1.min(1)));
            // What is more than one gate has use for is not missing in another.
            let has_too_many = given.iter().zip(&wants).any(|(given, gate)| *given > gate.1);
            let has_too_few = given.iter().zip(&wants).any(|(given, gate)| *given < gate.1);
            prop_assert!(!(has_too_many && has_too_few));
        }
    }

    #[test]
    fn weights_divide_what_several_gates_want() {
        let wants = |weight| (weight, u32::MAX);
        assert_eq!(divide(9, &[wants(100), wants(200)]), [3, 6]);
        assert_eq!(divide(2, &[wants(100), wants(100), wants(1)]), [1, 1, 1]);
    }

    #[test]
    fn a_moment_without_runnable_tasks_gives_no_tokens() {
        let mut window = Window([4; WINDOW]);
        window.add(0);
        assert_eq!(window.change(4, 0), 0);
        (1..WINDOW).for_each(|_| window.add(0));
        assert_eq!(window.change(4, 0), 3);
        assert_eq!(window.change(4, 0), 0, "their tasks are about to run");
    }

    #[test]
    fn no_job_is_started_while_memory_is_short() {
        let mut jobservers = Jobservers::default();
        let mut total =
            |stalled_us, second: u64| jobservers.total(3.9, stalled_us, second * 1_000_000_000);
        assert_eq!(total(0, 1), 4);
        assert_eq!(total(900_000, 2), 0);
        assert_eq!((3..6).map(|second| total(900_000, second)).max(), Some(4));
    }
}
