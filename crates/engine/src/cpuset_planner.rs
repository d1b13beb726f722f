//! The pure planner of idle kept by the cpuset: which CPUs side work is confined to, so that main's wakeups find whole cores free.
//!
//! A share of the machine can be kept idle by a quota (side work everywhere, throttled for a part of each period) or by a cpuset (side
//! work on few CPUs, the others free). Two threads of a core are slower than one, so idle that is one sibling of each core is no
//! idle for main: the cpuset takes whole cores, and the quota limits the remaining fraction of a core.
//!
//! - The set is whole cores: as few as hold the allowance. The quota on top is the allowance itself.
//! - Cores are given one cache after the other, so that as many caches as possible are main's alone (`core_order.rs`), and each set of
//!   `n` cores is part of that of `n + 1`, so that a change moves as few threads as it can.
//! - It grows as soon as the allowance has outgrown it, since side work could not use what it is given, and shrinks when less has been
//!   enough for [`CpusetPlannerConfig::shrink_after_ns`]: a change moves threads and takes locks of the whole machine, and main's step is answered by
//!   the quota. A growth waits for [`CpusetPlannerConfig::grow_gap_ns`] after the last change.
//! - Only CPUs that are `allowed` (others' cpusets, hotplug) are taken, and never none of them: where nothing is allowed there is no plan.
//!
//! # Domains
//!
//! Of a domain ([`crate::domain`]) side work gets as many whole CPUs as its law allows and no more, since no quota does the rest: rounded
//! down, whole cores before single threads, after all the CPUs that are in no domain. Here it shrinks at once, for nothing else answers
//! main's step, and grows when more has been possible for [`CpusetPlannerConfig::shrink_after_ns`]. A CPU of several domains is taken
//! where each of them has room. Where the domains leave side work no CPU at all it gets one of them, and the quota what it is to use of that.
//!
//! Nothing here reads a clock or a file.

use crate::core_order::CoreOrder;
use tidegate_cgroup::topology::{Core, Topology};

/// How often the planner's caller polls.
pub const POLL_NS: u64 = 100_000_000;

/// The same where a domain is kept by the cpuset: main's step there is answered by nothing else.
pub const DOMAIN_POLL_NS: u64 = 20_000_000;

/// A CPU of a domain, once given, is taken back when the allowance is short of it by this much of the domain.
const SHORT_PPM: u64 = 10_000;

/// Tuning of the planner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpusetPlannerConfig {
    /// A smaller set must have been enough for this long, a larger one of a domain possible.
    pub shrink_after_ns: u64,
    /// Least time from any change to a growth.
    pub grow_gap_ns: u64,
}

impl Default for CpusetPlannerConfig {
    fn default() -> Self {
        Self {
            shrink_after_ns: 1_000_000_000,
            grow_gap_ns: 100_000_000,
        }
    }
}

/// How much side work may have.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpusetAllowance<'a> {
    /// Of all CPUs, where whole cores are to hold it; else the quota does all that is to be done for the machine.
    pub whole_ucpu: Option<u64>,
    /// Of each domain, in the order of [`CpusetPlanner::set_cpus`].
    pub domains_ucpu: &'a [u64],
}

/// Whether side work may have every CPU: no idle was to be kept for a while. A level that comes and goes with main would else move
/// every process each time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Release {
    kept_ns: Option<u64>,
}

impl Release {
    const AFTER_NS: u64 = 30_000_000_000;

    /// At `now_ns`, where idle is to be kept or not.
    pub fn is_due(&mut self, keeps_idle: bool, now_ns: u64) -> bool {
        if keeps_idle {
            self.kept_ns = Some(now_ns);
        }
        let since = |kept_ns: u64| now_ns.saturating_sub(kept_ns);
        !keeps_idle
            && self
                .kept_ns
                .is_none_or(|kept| since(kept) >= Self::AFTER_NS)
    }
}

/// CPUs of one domain that side work has.
#[derive(Clone, Debug)]
struct Part {
    cpus: Vec<u32>,
    given: u64,
    /// Since when more has been possible, and the least of it.
    rise: Option<(u64, u64)>,
}

/// Which CPUs side work has.
#[derive(Clone, Debug)]
pub struct CpusetPlanner {
    config: CpusetPlannerConfig,
    /// Cores in the order in which side work gets them.
    order: CoreOrder,
    /// Allowed CPUs by core, in that order.
    cores: Vec<Core>,
    allowed: Vec<u32>,
    parts: Vec<Part>,
    /// What there is to give, in order: cores, of the domains no more than their laws allow.
    chunks: Vec<Vec<u32>>,
    /// Chunks that stand; 0 before the first plan.
    standing: usize,
    changed_ns: u64,
    /// Since when fewer would have been enough, and the most that was needed since.
    slack: Option<(u64, usize)>,
}

impl CpusetPlanner {
    /// A planner that knows no CPU yet.
    pub fn new(config: CpusetPlannerConfig) -> Self {
        Self {
            config,
            order: CoreOrder::default(),
            cores: Vec::new(),
            allowed: Vec::new(),
            parts: Vec::new(),
            chunks: Vec::new(),
            standing: 0,
            changed_ns: 0,
            slack: None,
        }
    }

    /// The machine, which of its CPUs side work may have, and which of those are in domains kept by the cpuset (each ascending): at the start,
    /// after a hotplug, when another program's cpuset changed. What stands is planned again where that makes a difference.
    pub fn set_cpus(&mut self, topology: &Topology, allowed: &[u32], domains: &[Vec<u32>]) {
        self.order.set_topology(topology);
        self.allowed = allowed.to_vec();
        let same = self.parts.len() == domains.len()
            && self.parts.iter().zip(domains).all(|(a, b)| a.cpus == *b);
        if !same {
            let part = |cpus: &Vec<u32>| Part {
                cpus: cpus.clone(),
                given: 0,
                rise: None,
            };
            self.parts = domains.iter().map(part).collect();
            self.forget();
        }
        self.set_cores();
    }

    /// Main's time on each CPU since some beginning, by the number of the CPU: once a second. The cores of the caches where main
    /// runs are given last from then on.
    pub fn note_main(&mut self, main_ns: &[u64]) {
        if self.order.note_main(main_ns) {
            self.set_cores();
        }
    }

    fn set_cores(&mut self) {
        let cores = self.order.cores(&self.allowed);
        if cores != self.cores {
            self.cores = cores;
            self.forget();
        }
    }

    /// What stands is unknown (a failed write, another program's): the next step plans from the start.
    pub fn forget(&mut self) {
        self.standing = 0;
        self.slack = None;
    }

    /// The CPUs that stand, ascending; empty before the first plan.
    pub fn standing(&self) -> Vec<u32> {
        self.first(self.standing)
    }

    /// The CPUs that side work is to be confined to from now on, where that changes.
    pub fn step(&mut self, now_ns: u64, room: CpusetAllowance<'_>) -> Option<Vec<u32>> {
        let before = self.standing();
        let divided = self.divide(now_ns, room.domains_ucpu);
        if divided || self.standing == 0 {
            self.chunks = self.chunks(room.domains_ucpu);
            let needed = self.needed(room.whole_ucpu)?;
            let after = self.change(now_ns, needed);
            return (after != before).then_some(after);
        }
        let needed = self.needed(room.whole_ucpu)?;
        if needed >= self.standing {
            self.slack = None;
            let rested = now_ns.saturating_sub(self.changed_ns) >= self.config.grow_gap_ns;
            return (needed > self.standing && rested).then(|| self.change(now_ns, needed));
        }
        let (since_ns, most) = self.slack.unwrap_or((now_ns, needed));
        let most = most.max(needed);
        self.slack = Some((since_ns, most));
        let due = now_ns.saturating_sub(since_ns) >= self.config.shrink_after_ns;
        due.then(|| self.change(now_ns, most))
    }

    fn change(&mut self, now_ns: u64, chunks: usize) -> Vec<u32> {
        self.standing = chunks;
        self.changed_ns = now_ns;
        self.slack = None;
        self.first(chunks)
    }

    /// How many CPUs of each domain side work gets; whether that changes.
    fn divide(&mut self, now_ns: u64, rooms_ucpu: &[u64]) -> bool {
        let first = self.standing == 0;
        let mut changed = false;
        for (nth, part) in self.parts.iter_mut().enumerate() {
            let room_ucpu = rooms_ucpu.get(nth).copied().unwrap_or(0);
            let short_ucpu = part.cpus.len() as u64 * SHORT_PPM;
            let now = part.given;
            let possible = room_ucpu / 1_000_000;
            let tenable = room_ucpu.saturating_add(short_ucpu) / 1_000_000;
            if first || tenable < now {
                (part.given, part.rise) = (possible, None);
            } else if possible <= now {
                part.rise = None;
            } else {
                let (since_ns, least) = part.rise.unwrap_or((now_ns, possible));
                let least = least.min(possible);
                part.rise = Some((since_ns, least));
                if now_ns.saturating_sub(since_ns) >= self.config.shrink_after_ns {
                    (part.given, part.rise) = (least, None);
                }
            }
            changed |= part.given != now;
        }
        changed
    }

    /// What is given in which order: cores outside the domains, then of the domains whole cores, then single CPUs, while
    /// each domain around them has room.
    fn chunks(&self, rooms_ucpu: &[u64]) -> Vec<Vec<u32>> {
        let mut left: Vec<u64> = self.parts.iter().map(|part| part.given).collect();
        let is_inside = |cpu: &u32| self.parts.iter().any(|part| part.has(*cpu));
        let mut chunks: Vec<Vec<u32>> = Vec::new();
        let mut cores = Vec::new();
        for core in &self.cores {
            let (inside, outside): (Vec<u32>, Vec<u32>) =
                core.cpus.iter().partition(|cpu| is_inside(cpu));
            chunks.push(outside);
            cores.push(inside);
        }
        for whole in [true, false] {
            for core in &mut cores {
                let tries = if whole {
                    vec![core.clone()]
                } else {
                    core.iter().map(|cpu| vec![*cpu]).collect()
                };
                for chunk in tries {
                    if self.take(&chunk, &mut left) {
                        core.retain(|cpu| !chunk.contains(cpu));
                        chunks.push(chunk);
                    }
                }
            }
        }
        chunks.retain(|chunk| !chunk.is_empty());
        if chunks.is_empty() {
            chunks.extend(self.last_resort(rooms_ucpu));
        }
        chunks
    }

    /// Nothing is outside the domains and none has room for a whole CPU: one of the domain that has most. The quota is the fraction.
    fn last_resort(&self, rooms_ucpu: &[u64]) -> Option<Vec<u32>> {
        let room_ucpu = |nth: usize| rooms_ucpu.get(nth).copied().unwrap_or(0);
        let cpus = || self.cores.iter().flat_map(|core| &core.cpus).copied();
        let mut parts: Vec<usize> = (0..self.parts.len()).collect();
        parts.sort_by_key(|nth| std::cmp::Reverse(room_ucpu(*nth)));
        let of_part = |nth: usize| cpus().find(|cpu| self.parts[nth].has(*cpu));
        parts.into_iter().find_map(of_part).map(|cpu| vec![cpu])
    }

    /// Takes the chunk off what is left of the domains it is in; false where one has not that much.
    fn take(&self, chunk: &[u32], left: &mut [u64]) -> bool {
        let of = |part: &Part| chunk.iter().filter(|cpu| part.has(**cpu)).count() as u64;
        let fits = self
            .parts
            .iter()
            .zip(&*left)
            .all(|(part, left)| of(part) <= *left);
        if fits {
            for (part, left) in self.parts.iter().zip(left) {
                *left -= of(part);
            }
        }
        fits
    }

    /// Chunks that hold the allowance, at least one, or all; `None` where there is nothing to give.
    fn needed(&self, allowance_ucpu: Option<u64>) -> Option<usize> {
        let all = (!self.chunks.is_empty()).then_some(self.chunks.len())?;
        let Some(allowance_ucpu) = allowance_ucpu else {
            return Some(all);
        };
        let mut room_ucpu = 0_u64;
        for (nth, chunk) in self.chunks.iter().enumerate() {
            // A core has a few threads.
            room_ucpu += chunk.len() as u64 * 1_000_000;
            if room_ucpu >= allowance_ucpu {
                return Some(nth + 1);
            }
        }
        Some(all)
    }

    fn first(&self, chunks: usize) -> Vec<u32> {
        let mut cpus: Vec<u32> = self.chunks.iter().take(chunks).flatten().copied().collect();
        cpus.sort_unstable();
        cpus
    }
}

impl Part {
    fn has(&self, cpu: u32) -> bool {
        self.cpus.binary_search(&cpu).is_ok()
    }
}
