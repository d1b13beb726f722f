//! Who used how much CPU in a window, read from outside.
//!
//! Idle is counted as capacity − main − side − other, never read from a counter of idle time: the
//! ticks of /proc/stat are points off over short windows. Capacity is the CPUs online less what the
//! hypervisor took (steal); *other* is everything else that ran, from the root group where the
//! kernel accounts it (v1), else from the processes that the lab knows: itself and the agent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::cgroup::Hierarchy;
use super::proc;
use crate::clock;
use crate::loads::shared_page::SharedPage;

/// Where the CPU time of one role comes from.
pub enum Source<'a> {
    /// A worker of ours: exact to microseconds.
    Page(&'a SharedPage),
    /// Two of them in one role.
    Two(&'a SharedPage, &'a SharedPage),
    /// A command and what it forked: exact to a tick for each thread that runs at the moment.
    Processes(i32),
    /// Nobody plays this role.
    None,
}

impl Source<'_> {
    /// CPU time so far.
    pub fn cpu_ns(&self) -> u64 {
        match self {
            Source::Page(page) => page.cpu_ns(),
            Source::Two(a, b) => a.cpu_ns() + b.cpu_ns(),
            Source::Processes(pgid) => proc::group_cpu_ns(*pgid),
            Source::None => 0,
        }
    }
}

/// All counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// When.
    pub wall_ns: u64,
    /// Main's CPU time.
    pub main_ns: u64,
    /// Side's CPU time.
    pub side_ns: u64,
    /// Everything else's CPU time, or what stands for it.
    pub other_ns: u64,
    /// Taken by the hypervisor.
    pub steal_ns: u64,
    /// The agent's CPU time.
    pub agent_ns: u64,
}

/// Reads all counters of one arm.
pub struct Sampler {
    /// The process of Tidegate's agent, if there is one.
    agent: Option<i32>,
    /// The root group's usage and those of main's and side's groups. All three are charged by the
    /// same ticks, so their difference does not have the ticks' error.
    root: Option<Hierarchy>,
    groups: Vec<String>,
}

impl Sampler {
    /// For main and side with these process ids.
    pub fn new(h: Option<&Hierarchy>, pids: &[i32], agent: Option<i32>) -> Self {
        let root = h.filter(|h| h.root_usage_ns().is_some()).cloned();
        let mut groups: Vec<String> = pids.iter().filter_map(|&p| accounting_group(p)).collect();
        groups.sort();
        groups.dedup();
        if groups.iter().any(|g| g == "/") {
            // Main or side is in the root itself: what is theirs is known from their clocks only.
            groups.clear();
        }
        Sampler {
            agent,
            root,
            groups,
        }
    }

    /// Reads.
    pub fn snapshot(&self, main: &Source, side: &Source) -> Snapshot {
        let (main_ns, side_ns) = (main.cpu_ns(), side.cpu_ns());
        let agent_ns = self.agent.and_then(clock::process_cpu_ns).unwrap_or(0);
        let other_ns = match &self.root {
            Some(h) => {
                let root = h.root_usage_ns().unwrap_or(0);
                let known = if self.groups.is_empty() {
                    main_ns + side_ns
                } else {
                    self.groups.iter().filter_map(|g| h.usage_ns(g)).sum()
                };
                root.saturating_sub(known)
            }
            None => agent_ns + clock::own_process_cpu_ns(),
        };
        Snapshot {
            wall_ns: clock::monotonic_ns(),
            main_ns,
            side_ns,
            other_ns,
            steal_ns: steal_ns(),
            agent_ns,
        }
    }
}

/// The group of the v1 controller that accounts CPU time.
fn accounting_group(pid: i32) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    parse_accounting_group(&text)
}

fn parse_accounting_group(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let controllers = parts.next()?;
        let path = parts.next()?;
        controllers
            .split(',')
            .any(|c| c == "cpuacct")
            .then(|| path.to_string())
    })
}

/// Shares of the machine in one window, in percent of it (of one CPU where the name says so).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    /// Main.
    pub main_pct: f64,
    /// Side.
    pub side_pct: f64,
    /// Everything else: the agent, the lab, kernel threads, other programs.
    pub other_pct: f64,
    /// What was left.
    pub idle_pct: f64,
    /// Steal, of all CPUs online; the other shares are of what it left.
    pub steal_pct: f64,
    /// The agent, in percent of one CPU.
    pub agent_cpu_pct: f64,
    /// How long the window was.
    pub seconds: f64,
}

/// What happened between two snapshots on `cpus` CPUs.
pub fn shares(from: &Snapshot, to: &Snapshot, cpus: usize) -> Shares {
    let span = |a: u64, b: u64| b.saturating_sub(a) as f64;
    let wall = span(from.wall_ns, to.wall_ns).max(1.0);
    let steal = span(from.steal_ns, to.steal_ns);
    let all = wall * cpus as f64;
    let capacity = (all - steal).max(1.0);
    let (main, side) = (
        span(from.main_ns, to.main_ns),
        span(from.side_ns, to.side_ns),
    );
    let other = span(from.other_ns, to.other_ns);
    let pct = |ns: f64| 100.0 * ns / capacity;
    Shares {
        main_pct: pct(main),
        side_pct: pct(side),
        other_pct: pct(other),
        idle_pct: 100.0 - pct(main) - pct(side) - pct(other),
        steal_pct: 100.0 * steal / all,
        agent_cpu_pct: 100.0 * span(from.agent_ns, to.agent_ns) / wall,
        seconds: wall / 1e9,
    }
}

/// Steal of all CPUs since boot.
pub fn steal_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    parse_steal_ns(&stat)
}

/// The eighth number of the first line, in hundredths of a second (USER_HZ is 100 everywhere).
fn parse_steal_ns(stat: &str) -> u64 {
    let first = stat.lines().next().unwrap_or("");
    let ticks: u64 = first
        .split_whitespace()
        .nth(8)
        .and_then(|t| t.parse().ok())
        .unwrap_or(0);
    ticks * 10_000_000
}

/// Idle and total of /proc/stat in hundredths of a second: what the published policies look at.
pub fn proc_stat_idle_total() -> (u64, u64) {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let numbers: Vec<u64> = stat
        .lines()
        .next()
        .unwrap_or("")
        .split_whitespace()
        .skip(1)
        .filter_map(|t| t.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal; guest time is inside user already.
    let total = numbers.iter().take(8).sum();
    (
        numbers.get(3).copied().unwrap_or(0) + numbers.get(4).copied().unwrap_or(0),
        total,
    )
}

/// One look of the 1 ms sampler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When.
    pub at_ns: u64,
    /// Side's CPU time so far.
    pub side_ns: u64,
    /// Main's CPU time so far.
    pub main_ns: u64,
}

/// Samples two pages every millisecond at real-time priority (nice −20 where that is refused)
/// while `body` runs, and returns the samples beside its result.
pub fn sample_during<T>(
    main: &SharedPage,
    side: &SharedPage,
    body: impl FnOnce() -> T,
) -> (T, Vec<Sample>) {
    let done = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let flag = Arc::clone(&done);
        let sampler = scope.spawn(move || {
            raise_priority();
            clock::no_timer_slack();
            let mut samples = Vec::with_capacity(1 << 16);
            let mut at = clock::monotonic_ns();
            while !flag.load(Ordering::Acquire) {
                at = (at + 1_000_000).max(clock::monotonic_ns());
                clock::sleep_until(at);
                samples.push(Sample {
                    at_ns: clock::monotonic_ns(),
                    side_ns: side.cpu_ns(),
                    main_ns: main.cpu_ns(),
                });
            }
            samples
        });
        let result = body();
        done.store(true, Ordering::Release);
        // A sampler that panicked has no samples; the caller reports a trace that is too short.
        (result, sampler.join().unwrap_or_default())
    })
}

/// First in, first out at a low real-time priority, or else the best nice value.
pub fn raise_priority() {
    let param = libc::sched_param { sched_priority: 10 };
    // SAFETY: plain numbers and one valid structure; both calls act on the calling thread only.
    unsafe {
        if libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) != 0 {
            libc::setpriority(libc::PRIO_PROCESS, 0, -20);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_is_what_nobody_used_of_what_steal_left() {
        let from = Snapshot::default();
        let to = Snapshot {
            wall_ns: 10_000_000_000,
            main_ns: 5_700_000_000,
            side_ns: 7_600_000_000,
            other_ns: 190_000_000,
            steal_ns: 1_000_000_000,
            agent_ns: 50_000_000,
        };
        let s = shares(&from, &to, 2);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(
            near(s.main_pct, 30.0) && near(s.side_pct, 40.0) && near(s.other_pct, 1.0),
            "{s:?}"
        );
        assert!(near(s.idle_pct, 29.0) && near(s.steal_pct, 5.0) && near(s.agent_cpu_pct, 0.5));
    }

    #[test]
    fn the_group_that_accounts_is_found() {
        let text = "2:cpuacct:/a/b\n1:cpu:/c\n0::/\n";
        assert_eq!(parse_accounting_group(text).as_deref(), Some("/a/b"));
        assert_eq!(
            parse_accounting_group("4:cpu,cpuacct:/x\n").as_deref(),
            Some("/x")
        );
        assert_eq!(parse_accounting_group("0::/y\n"), None);
    }

    #[test]
    fn steal_is_the_eighth_number() {
        assert_eq!(
            parse_steal_ns("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1\n"),
            80_000_000
        );
        assert_eq!(parse_steal_ns(""), 0);
    }

    #[test]
    fn the_sampler_looks_about_every_millisecond() {
        let (a, b) = (
            SharedPage::create().expect("a page"),
            SharedPage::create().expect("a page"),
        );
        let (_, samples) = sample_during(&a, &b, || {
            clock::sleep_until(clock::monotonic_ns() + 60_000_000);
        });
        assert!(samples.len() > 5, "{} samples in 60 ms", samples.len());
        assert!(samples.windows(2).all(|w| w[0].at_ns < w[1].at_ns));
    }
}
