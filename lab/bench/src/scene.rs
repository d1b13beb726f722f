//! What a runner sets up, and what it saw: plain data that the simulator, this machine and a guest
//! understand alike.

use serde::{Deserialize, Serialize};
use tidegate_sim::engines::cgroup::Sensing;
use tidegate_sim::{Bandwidth, Class, CpuStat, Histogram, MachineConfig};

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000_000_000;

/// Groups and loads on a machine, who keeps the limits, and when to look.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The simulated machine, with the seed of all choices; real ones are as they are.
    pub model: MachineConfig,
    /// Groups, each below the root.
    pub groups: Vec<Group>,
    pub loads: Vec<Load>,
    pub keeper: Keeper,
    pub warm_ns: u64,
    pub window_ns: u64,
    /// Looks at all clocks within the window; absent: at its begin and end.
    pub look_ns: Option<u64>,
    /// The window ends when this load has done its work.
    pub until_done: Option<usize>,
}

impl Scene {
    /// A scene without groups, loads or a keeper.
    pub fn new(model: MachineConfig, warm_ns: u64, window_ns: u64, seed: u64) -> Self {
        Scene {
            model: MachineConfig { seed, ..model },
            groups: Vec::new(),
            loads: Vec::new(),
            keeper: Keeper::Nobody,
            warm_ns,
            window_ns,
            look_ns: None,
            until_done: None,
        }
    }

    /// Adds a group; returns its number.
    pub fn group(&mut self, group: Group) -> usize {
        self.groups.push(group);
        self.groups.len() - 1
    }

    /// Adds a load; returns its number.
    pub fn load(&mut self, name: &'static str, group: Option<usize>, kind: Kind) -> usize {
        self.loads.push(Load {
            name,
            group,
            kind,
            class: Class::Neutral,
            hint: Hint::None,
        });
        self.loads.len() - 1
    }

    /// Adds a load of this class; returns its number.
    pub fn of_class(&mut self, class: Class, group: Option<usize>, kind: Kind) -> usize {
        let load = self.load(class.name(), group, kind);
        self.loads[load].class = class;
        load
    }

    pub fn expected_ns(&self) -> u64 {
        match self.until_done {
            Some(_) => 20 * S,
            None => self.end_ns(),
        }
    }

    pub fn end_ns(&self) -> u64 {
        self.warm_ns + self.window_ns
    }
}

#[derive(Clone, Debug, Default)]
pub struct Group {
    pub name: &'static str,
    pub idle: bool,
    /// Its weight, by hand; 0 is the default of 100.
    pub weight: u32,
    pub max: Option<Bandwidth>,
    /// As `tidegate set` takes them.
    pub terms: Vec<String>,
}

impl Group {
    /// A group without limits.
    pub fn new(name: &'static str) -> Self {
        Group {
            name,
            ..Group::default()
        }
    }
}

/// A limit as `tidegate set` takes it.
pub fn limit_words(limit: Bandwidth) -> Vec<String> {
    let quota = limit.quota_us.map(|us| format!("quota={us}us"));
    let rest = [
        format!("period={}us", limit.period_us),
        format!("burst={}us", limit.burst_us),
    ];
    quota.into_iter().chain(rest).collect()
}

/// Terms of `tidegate set` as `tidegate run` takes them.
pub fn flags(terms: &[String]) -> Vec<String> {
    let flag = |word: &String| match word.split_once('=') {
        Some(("class", class)) => vec![format!("--{class}")],
        Some((name, value)) => vec![format!("--{}", name.replace('_', "-")), value.into()],
        None => Vec::new(),
    };
    terms.iter().flat_map(flag).collect()
}

#[derive(Clone, Debug)]
pub struct Load {
    pub name: &'static str,
    /// Its group; absent: the root, or on a real machine the lab's own.
    pub group: Option<usize>,
    pub kind: Kind,
    pub class: Class,
    pub hint: Hint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    None,
    /// By the keeper, or on the simulator by the fair class.
    Latency(i8),
    /// By `sched_setattr`: a slice of the EEVDF class.
    SliceUs(u64),
    /// By the program `nice` (real machines).
    Nice(i8),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// An open-loop server: Poisson arrivals at this part of the machine, requests of half to one
    /// and a half of this mean, two workers a CPU.
    Server {
        /// 0 to 1.
        share: f64,
        request_us: u64,
    },
    /// A thread on each CPU that holds a level: from when on, and ppm of each CPU.
    Level(Vec<(u64, u32)>),
    /// Threads that never sleep.
    Hogs {
        tasks: u32,
        /// Thread n stays on CPU n.
        pinned: bool,
    },
    /// A thread that works at the beginning of each period (simulated).
    Periodic {
        work_ns: u64,
        period_ns: u64,
    },
    Sleeper {
        work_ns: u64,
        sleep_ns: u64,
    },
    Cyclictest,
    /// Groups of 20 senders and 20 receivers; 0 loops: without end (simulated).
    Hackbench {
        groups: u32,
        loops: u32,
    },
    /// A service of 30 workers whose requests come in batches.
    Bursty {
        request_us: u64,
    },
    /// A thread on each CPU: the first `busy` compute without end, the others work a moment each 10
    /// ms (simulated).
    Fibtest {
        busy: u32,
        work_ns: u64,
    },
    /// Parents that fork children of 5 ms without end.
    Forks {
        parents: u32,
    },
    /// Jobs that run compilers of 10 to 30 ms one after another (simulated).
    Build {
        jobs: u32,
        each: u32,
    },
}

impl Kind {
    /// A server with requests of 1 ms on average.
    pub const fn server(share: f64) -> Self {
        Kind::Server {
            share,
            request_us: 1_000,
        }
    }

    /// Threads that never sleep, on any CPU.
    pub const fn hogs(tasks: u32) -> Self {
        Kind::Hogs {
            tasks,
            pinned: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// Nobody: groups have what is written by hand.
    Nobody,
    /// Tidegate's cgroup engine: the agent, or its control step on the simulator.
    Tidegate {
        /// Its sensor; absent: the best there is.
        sense: Option<Sensing>,
        /// Side work has the least weight on whole cores instead of the idle class (simulated).
        whole_cores: bool,
    },
    /// A published law, in its steady state for this part of the machine that main takes, ppm.
    Law(Law, u64),
    /// The program `cpulimit` on the first load, parts per thousand of one CPU (real machines).
    Cpulimit(u32),
}

impl Keeper {
    pub const TIDEGATE: Keeper = Keeper::Tidegate {
        sense: None,
        whole_cores: false,
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    Sideloader,
    Koordlet,
    Katalyst,
}

/// The statistics of a latency.
pub const LATENCIES: [&str; 6] = ["avg", "p50", "p90", "p99", "p999", "max"];

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// What ended in the window.
    pub completed: u64,
    pub avg_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    pub max_us: f64,
}

impl Latency {
    pub fn of(h: &Histogram) -> Self {
        let at = |ppm: u32| h.percentile_ns(ppm) as f64 / 1000.0;
        Latency {
            completed: h.count(),
            avg_us: h.sum_ns() as f64 / 1000.0 / h.count().max(1) as f64,
            p50_us: at(500_000),
            p90_us: at(900_000),
            p99_us: at(990_000),
            p999_us: at(999_000),
            max_us: h.max_ns() as f64 / 1000.0,
        }
    }

    /// A statistic by its name; NaN if nothing ended in the window.
    pub fn statistic(&self, name: &str) -> f64 {
        match name {
            _ if self.completed == 0 => f64::NAN,
            "avg" => self.avg_us,
            "p50" => self.p50_us,
            "p90" => self.p90_us,
            "p99" => self.p99_us,
            "p999" => self.p999_us,
            "max" => self.max_us,
            _ => f64::NAN,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub cpus: f64,
    /// All clocks, at the window's begin, within it and at its end.
    pub looks: Vec<Look>,
    pub loads: Vec<LoadOutcome>,
    /// What each group's bandwidth limit counted in the window.
    pub limits: Vec<CpuStat>,
    /// What only some loads or keepers have, by name.
    pub extra: Vec<(&'static str, f64)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    pub at_ns: u64,
    /// By load: CPU time of all its threads, and of the first.
    pub used_ns: Vec<(u64, u64)>,
    pub other_ns: u64,
    /// Taken by the hypervisor.
    pub steal_ns: u64,
    pub keeper_ns: u64,
}

#[derive(Clone, Debug, Default)]
pub struct LoadOutcome {
    pub latencies: Vec<(String, Latency)>,
    /// Work done a second, in its own unit: CPUs at full speed, loops, messages.
    pub work_per_second: f64,
    /// How long its threads waited for a CPU each time, by the kernel's count (real machines).
    pub run_delay_us: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    pub main: f64,
    pub side: f64,
    pub other: f64,
    pub idle: f64,
    /// Steal, of all CPUs; the other parts are of what it left.
    pub steal: f64,
    pub keeper_cpus: f64,
    pub seconds: f64,
}

impl Outcome {
    /// A latency of a load; one without samples if it recorded none of that name.
    pub fn latency(&self, load: usize, name: &str) -> Latency {
        let of = self.loads.get(load).into_iter().flat_map(|l| &l.latencies);
        let mut named = of.filter(|l| l.0 == name);
        named.next().map(|l| l.1.clone()).unwrap_or_default()
    }

    /// An extra figure; NaN if there is none of that name.
    pub fn extra(&self, name: &str) -> f64 {
        let found = self.extra.iter().find(|e| e.0 == name);
        found.map_or(f64::NAN, |e| e.1)
    }

    pub fn used_ns(&self, load: usize) -> f64 {
        let at = |look: Option<&Look>| look.map_or(f64::NAN, |l| l.used_ns[load].0 as f64);
        at(self.looks.last()) - at(self.looks.first())
    }

    /// CPU time of a load's first thread in the window.
    pub fn first_ns(&self, load: usize) -> f64 {
        let at = |look: Option<&Look>| look.map_or(f64::NAN, |l| l.used_ns[load].1 as f64);
        at(self.looks.last()) - at(self.looks.first())
    }

    pub fn seconds(&self) -> f64 {
        match (self.looks.first(), self.looks.last()) {
            (Some(a), Some(b)) => (b.at_ns - a.at_ns) as f64 / 1e9,
            _ => f64::NAN,
        }
    }

    pub fn used_cpus(&self, load: usize) -> f64 {
        self.used_ns(load) / 1e9 / self.seconds()
    }

    /// Who had the machine between two looks. Idle is what nobody used of what steal left: the
    /// kernel's counters of idle time are ticks, points off over short windows.
    pub fn shares(&self, loads: &[Load], from: &Look, to: &Look) -> Shares {
        let wall = to.at_ns.saturating_sub(from.at_ns).max(1) as f64;
        let span = |a: u64, b: u64| b.saturating_sub(a) as f64;
        let steal = span(from.steal_ns, to.steal_ns);
        let all = wall * self.cpus;
        let capacity = (all - steal).max(1.0);
        let of = |class: Class| {
            let loads = loads.iter().enumerate().filter(|(_, l)| l.class == class);
            let ns: f64 = loads
                .map(|(i, _)| span(from.used_ns[i].0, to.used_ns[i].0))
                .sum();
            ns / capacity
        };
        let (main, side) = (of(Class::Main), of(Class::Side));
        let other = span(from.other_ns, to.other_ns) / capacity;
        Shares {
            main,
            side,
            other,
            idle: 1.0 - main - side - other - of(Class::Neutral),
            steal: steal / all,
            keeper_cpus: span(from.keeper_ns, to.keeper_ns) / wall,
            seconds: wall / 1e9,
        }
    }

    pub fn whole(&self, loads: &[Load]) -> Shares {
        match (self.looks.first(), self.looks.last()) {
            (Some(from), Some(to)) => self.shares(loads, from, to),
            _ => Shares::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_known_values() {
        let mut h = Histogram::new();
        (1..=1000).for_each(|us| h.record(us * 1000));
        let l = Latency::of(&h);
        assert_eq!(l.completed, 1000);
        assert!((l.avg_us - 500.5).abs() < 1.0 && (l.p99_us - 990.0).abs() <= 2.0);
        assert!((l.max_us - 1000.0).abs() <= 1.0 && Latency::default().statistic("p99").is_nan());
    }

    #[test]
    fn idle_is_what_nobody_used_of_what_steal_left() {
        let mut scene = Scene::new(MachineConfig::new(2), 0, 0, 1);
        let hogs = Kind::hogs(1);
        scene.of_class(Class::Main, None, hogs.clone());
        scene.of_class(Class::Side, None, hogs);
        let to = Look {
            at_ns: 10 * S,
            used_ns: vec![(5_700 * MS, 0), (7_600 * MS, 0)],
            other_ns: 190 * MS,
            steal_ns: S,
            keeper_ns: 50 * MS,
        };
        let from = Look {
            used_ns: vec![(0, 0); 2],
            ..Look::default()
        };
        let outcome = Outcome {
            cpus: 2.0,
            looks: vec![from, to],
            ..Outcome::default()
        };
        let s = outcome.whole(&scene.loads);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(
            near(s.main, 0.3) && near(s.side, 0.4) && near(s.other, 0.01),
            "{s:?}"
        );
        assert!(near(s.idle, 0.29) && near(s.steal, 0.05) && near(s.keeper_cpus, 0.005));
    }

    #[test]
    fn terms_are_flags_for_run() {
        let terms = ["class=main", "headroom=30%", "cap_hard=50‰"].map(String::from);
        assert_eq!(
            flags(&terms),
            ["--main", "--headroom", "30%", "--cap-hard", "50‰"]
        );
    }
}
