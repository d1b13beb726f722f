//! cpulimit's law (A. Marletta, `cpulimit.c` and `process_group.c`, 2005 on): processes are stopped and continued by signals,
//! in slots of 100 ms.
//!
//! In each slot a process's use over the slot before goes into an average with a weight of 0.08 (a time constant of 1.2 s), and
//! the part of the slot for which all may run becomes `min(part · limit / sum of averages, 1)`. The rest of the slot they spend
//! in SIGSTOP. Use is read from `/proc/PID/stat`, which counts in steps of 10 ms; which processes belong to the target is found
//! out by reading all of `/proc` in each slot, as with its `-i`.
//!
//! An experiment starts its load under [`crate::beds::host::proc::Guarded`], and then:
//!
//! ```no_run
//! # fn load() -> i32 { 1 }
//! use tidegate_lab::policies::cpulimit::Cpulimit;
//! let limiter = Cpulimit::start(load(), 200)?; // 200 parts per thousand of one CPU, for it and what it forks
//! // ... measure ...
//! let told = limiter.end(); // everybody goes on; dropping it does the same
//! println!("{} signals, longest stop {} ms", told.signals, told.longest_stop_ns / 1_000_000);
//! # Ok::<(), tidegate_lab::LabError>(())
//! ```
//!
//! Nothing is left stopped, whatever becomes of the lab: the thread continues all it ever stopped before it ends, and a lab that
//! is killed takes its loads with it (they have PDEATHSIG). Signals go through a pidfd, so no reused number is ever hit.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::{LabError, clock};

/// Its `TIME_SLOT`.
const SLOT_NS: u64 = 100_000_000;
/// Its `ALFA`.
const ALPHA: f64 = 0.08;
/// Its `MIN_DT`: a shorter slot says nothing.
const MIN_DT_NS: u64 = 20_000_000;

/// The law alone: the part of a slot for which the processes may run.
#[derive(Clone, Debug)]
pub struct Law {
    limit: f64,
    rate: f64,
}

impl Law {
    /// For a limit in CPUs.
    pub fn new(limit: f64) -> Self {
        Law { limit, rate: limit }
    }

    /// How long they may run in the next slot, when they used so many CPUs on average. The first slot has no average.
    pub fn work_ns(&mut self, used: Option<f64>) -> u64 {
        if let Some(used) = used {
            // Nothing used divides to infinity, of which the smaller with 1 is 1.
            let next = if used > 0.0 {
                self.rate / used * self.limit
            } else {
                1.0
            };
            self.rate = next.min(1.0);
        }
        (SLOT_NS as f64 * self.rate.clamp(0.0, 1.0)) as u64
    }
}

/// What the limiter did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Signals sent.
    pub signals: u64,
    /// The longest that the processes were stopped at a time.
    pub longest_stop_ns: u64,
    /// CPU that the limiter itself used.
    pub own_cpu_ns: u64,
    /// Slots.
    pub slots: u64,
}

/// A running limiter.
pub struct Cpulimit {
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<Told>>,
}

impl Cpulimit {
    /// Limits process `pid` and everything below it to `limit_ppt` parts per thousand of one CPU, together.
    ///
    /// # Errors
    /// There is no such process, or it has no thread.
    pub fn start(pid: i32, limit_ppt: u32) -> Result<Self, LabError> {
        let fail = |why: String| LabError::process("cpulimit's law", why);
        let mut group = Group::new(pid);
        group.update(clock::monotonic_ns());
        if group.members.is_empty() {
            return Err(fail(format!("process {pid} is not there")));
        }
        let ending = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ending);
        let limit = f64::from(limit_ppt) / 1000.0;
        let thread = std::thread::Builder::new()
            .name("cpulimit".into())
            .spawn(move || limit_group(group, limit, &end))
            .map_err(|error| fail(format!("no thread: {error}")))?;
        Ok(Cpulimit {
            ending,
            thread: Some(thread),
        })
    }

    /// Ends it: everybody goes on.
    pub fn end(mut self) -> Told {
        self.join()
    }

    fn join(&mut self) -> Told {
        self.ending.store(true, Ordering::Release);
        let thread = self.thread.take();
        thread
            .and_then(|thread| thread.join().ok())
            .unwrap_or_default()
    }
}

impl Drop for Cpulimit {
    fn drop(&mut self) {
        self.join();
    }
}

/// The limiter's thread.
fn limit_group(mut group: Group, limit: f64, ending: &AtomicBool) -> Told {
    let mut law = Law::new(limit);
    let mut told = Told::default();
    while !ending.load(Ordering::Acquire) && !group.members.is_empty() {
        let work_ns = law.work_ns(group.used());
        told.signals += group.signal(Signal::CONT);
        sleep_ns(work_ns, ending);
        if work_ns < SLOT_NS && !ending.load(Ordering::Acquire) {
            let stopped_ns = clock::monotonic_ns();
            told.signals += group.signal(Signal::STOP);
            sleep_ns(SLOT_NS - work_ns, ending);
            let stop_ns = clock::monotonic_ns() - stopped_ns;
            told.longest_stop_ns = told.longest_stop_ns.max(stop_ns);
        }
        told.slots += 1;
        group.update(clock::monotonic_ns());
    }
    told.own_cpu_ns = clock::thread_cpu_ns();
    // `group` continues everybody as it is dropped, also when this thread panics.
    told
}

/// Sleeps, in pieces, so that an end is not waited for.
fn sleep_ns(ns: u64, ending: &AtomicBool) {
    let until_ns = clock::monotonic_ns() + ns;
    loop {
        let now_ns = clock::monotonic_ns();
        if now_ns >= until_ns || ending.load(Ordering::Acquire) {
            return;
        }
        clock::sleep_until(until_ns.min(now_ns + 50_000_000));
    }
}

struct Member {
    pidfd: OwnedFd,
    cpu_ns: u64,
    /// The average; none before the second look.
    used: Option<f64>,
}

/// The target and everything below it.
struct Group {
    root: i32,
    members: BTreeMap<i32, Member>,
    updated_ns: u64,
}

impl Group {
    fn new(root: i32) -> Self {
        Group {
            root,
            members: BTreeMap::new(),
            updated_ns: 0,
        }
    }

    fn update(&mut self, now_ns: u64) {
        let dt_ns = now_ns.saturating_sub(self.updated_ns);
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        let found = family(&all_processes(), self.root);
        self.members.retain(|pid, member| {
            let stays = found.contains_key(pid) && is_there(member);
            if !stays {
                // Its parent has exited, so it is below nobody of ours any more: the original leaves such a one stopped.
                let _ = pidfd_send_signal(&member.pidfd, Signal::CONT);
            }
            stays
        });
        for (pid, ticks) in found {
            let cpu_ns = ticks * tick_ns;
            match self.members.get_mut(&pid) {
                Some(member) if dt_ns >= MIN_DT_NS => {
                    let sample = cpu_ns.saturating_sub(member.cpu_ns) as f64 / dt_ns as f64;
                    member.used = Some(match member.used {
                        Some(used) => (1.0 - ALPHA) * used + ALPHA * sample,
                        None => sample,
                    });
                    member.cpu_ns = cpu_ns;
                }
                Some(_) => {}
                None => {
                    let fd = Pid::from_raw(pid)
                        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
                    let Some(pidfd) = fd else { continue };
                    let used = None;
                    self.members.insert(
                        pid,
                        Member {
                            pidfd,
                            cpu_ns,
                            used,
                        },
                    );
                }
            }
        }
        if dt_ns >= MIN_DT_NS {
            self.updated_ns = now_ns;
        }
    }

    /// The sum of the averages that there are.
    fn used(&self) -> Option<f64> {
        self.members
            .values()
            .filter_map(|member| member.used)
            .fold(None, |sum, used| Some(sum.unwrap_or(0.0) + used))
    }

    fn signal(&self, signal: Signal) -> u64 {
        for member in self.members.values() {
            // One that has exited meanwhile is left out at the next look.
            let _ = pidfd_send_signal(&member.pidfd, signal);
        }
        self.members.len() as u64
    }
}

impl Drop for Group {
    /// Once more all below the root, since what was forked during a slot may have been found only at its end.
    fn drop(&mut self) {
        self.update(clock::monotonic_ns());
        self.signal(Signal::CONT);
    }
}

/// Whether the process that was opened still runs; its number may be another's by now.
fn is_there(member: &Member) -> bool {
    let mut poll = [rustix::event::PollFd::new(
        &member.pidfd,
        rustix::event::PollFlags::IN,
    )];
    // A pidfd is readable once its process has ended.
    let none = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    !matches!(rustix::event::poll(&mut poll, Some(&none)), Ok(ready) if ready > 0)
}

/// A process as `/proc` shows it: number, parent, CPU time in clock ticks.
type Seen = (i32, i32, u64);

fn all_processes() -> Vec<Seen> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            seen(pid, &stat)
        })
        .collect()
}

/// Fields 4, 14 and 15 of proc_pid_stat(5); the name in field 2 may hold anything but its own end.
fn seen(pid: i32, stat: &str) -> Option<Seen> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    let user: u64 = fields.nth(9)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((pid, parent, user + system))
}

/// The root and everything below it, with its CPU time.
fn family(all: &[Seen], root: i32) -> BTreeMap<i32, u64> {
    let mut found: BTreeMap<i32, u64> = all
        .iter()
        .filter(|(pid, ..)| *pid == root)
        .map(|(pid, _, ticks)| (*pid, *ticks))
        .collect();
    loop {
        let before = found.len();
        for (pid, parent, ticks) in all {
            if found.contains_key(parent) {
                found.entry(*pid).or_insert(*ticks);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beds::host::proc::Guarded;
    use std::process::Command;

    #[test]
    fn the_law_settles_where_use_is_the_limit() {
        let mut law = Law::new(0.2);
        let mut used = None;
        let mut work_ns = law.work_ns(used);
        assert_eq!(work_ns, 20_000_000);
        for _ in 0..200 {
            // A hog that gets 90 % of the time for which it may run.
            let sample = 0.9 * work_ns as f64 / SLOT_NS as f64;
            used = Some(used.map_or(sample, |mean| (1.0 - ALPHA) * mean + ALPHA * sample));
            work_ns = law.work_ns(used);
        }
        assert!(work_ns.abs_diff(22_222_222) < 300_000, "{work_ns}");
        assert_eq!(
            Law::new(0.5).work_ns(Some(0.0)),
            SLOT_NS,
            "a sleeper is not stopped"
        );
    }

    #[test]
    fn a_family_is_all_below_and_nothing_else() {
        let all = [(9, 1, 7), (12, 11, 1), (10, 9, 2), (11, 10, 3), (13, 1, 5)];
        let pids: Vec<i32> = family(&all, 9).into_keys().collect();
        assert_eq!(pids, [9, 10, 11, 12]);
        assert!(family(&all, 77).is_empty());
        let stat = "5 (a) b) S 4 5 5 0 -1 0 1 0 0 0 30 12 0 0 20 0 1 0 9 0 0";
        assert_eq!(seen(5, stat), Some((5, 4, 42)));
    }

    #[test]
    fn a_hog_and_what_it_forks_are_stopped_and_all_go_on() {
        let mut command = Command::new("sh");
        command.args(["-c", "(while :; do :; done) & while :; do :; done"]);
        let load = Guarded::start("sh", command, &[]).expect("sh starts");
        let limiter = Cpulimit::start(load.pid(), 100).expect("it is there");
        std::thread::sleep(std::time::Duration::from_millis(1_200));
        let told = limiter.end();
        assert!(told.slots >= 3 && told.signals >= 10, "{told:?}");
        assert!(told.longest_stop_ns >= 80_000_000, "{told:?}");
        let members = family(&all_processes(), load.pid());
        assert_eq!(members.len(), 2);
        for pid in members.into_keys() {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
            assert!(!stat.contains(") T "), "left stopped: {stat}");
        }
        assert!(Cpulimit::start(i32::MAX / 2, 100).is_err());
    }
}
