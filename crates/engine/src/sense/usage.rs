//! Sensing by the kernel's own usage counters: for kernels and users without BPF.
//!
//! - side and main: each root's `cpuacct.usage` (v1) or `usage_usec` in `cpu.stat` (v2). Exact at
//!   switches; a task that runs on is accounted at ticks, so a reading is up to one tick per CPU
//!   behind.
//! - busy, with v1's cpuacct: the root's `cpuacct.usage`, alike. Kernels that keep a steal clock
//!   leave steal (and with IRQ_TIME_ACCOUNTING, interrupts) out of it; on others steal is still
//!   inside and idle reads low by it, on main's side.
//! - busy, without: what tasks ran by `/proc/schedstat` ([`schedstat`](super::schedstat)), exact at
//!   switches; what side work is known to have used is the least.
//! - busy, where the kernel has no schedstat either: the online CPUs' time less idle and steal of
//!   `/proc/stat`, in steps of 10 ms for the whole machine: over 50 ms on 2 CPUs that is ± 10
//!   points, over 200 ms 2.5, over a second half a point. 7.3 counts idle times shorter than a tick
//!   by ticks, which can be off by 20 points for as long as they last.
//!
//! Files stay open. A group that vanished is dropped; its time up to the last reading stays. A
//! root inside another of the same class is left out, and a main root inside a side root counts
//! as both: nested classes need the BPF sensor.

use std::path::{Path, PathBuf};

use super::files::{KeptFile, keyed, number};
use super::online::Online;
use super::schedstat::Schedstat;
use super::steal::{STEAL_INTERVAL_NS, StatFile, StatLine, StealMeter};
use super::{Counters, Group, SenseConfig, SenseError, Sensor};
use crate::clock::monotonic_ns;

const MIN_WINDOW_NS: u64 = 50_000_000;

/// iowait may go back a little by the kernel's own account; more than this is a reset.
const IDLE_BACK_NS_MAX: u64 = 100_000_000;

/// Per CPU: what was read and not told, or told and not read, is forgotten beyond this.
const UNTOLD_MAX_NS: i64 = 1_000_000_000;

struct Source {
    file: KeptFile,
    used_ns: u64,
}

pub(super) enum Read {
    Ns(u64),
    Gone,
}

pub(super) fn read_usage(file: &KeptFile) -> Result<Read, SenseError> {
    let mut buffer = [0; 256];
    let path = file.path();
    let text = match file.head(&mut buffer) {
        Ok(text) => text,
        // The cgroup was removed under the open file.
        Err(why) if why.raw_os_error() == Some(libc::ENODEV) => return Ok(Read::Gone),
        Err(why) => return Err(SenseError::read(path, why)),
    };
    let v2 = path.file_name().is_some_and(|name| name == "cpu.stat");
    let used_ns = match v2 {
        true => keyed(text, b"usage_usec").and_then(|usec| usec.checked_mul(1000)),
        false => number(text),
    };
    used_ns
        .map(Read::Ns)
        .ok_or_else(|| SenseError::parse(path, "a usage", text))
}

impl Source {
    fn open(path: &Path) -> Result<Option<Self>, SenseError> {
        let file = match KeptFile::open(path) {
            Err(SenseError::Read { why, .. }) if why.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            opened => opened?,
        };
        let mut source = Self { file, used_ns: 0 };
        Ok(match read_usage(&source.file)? {
            Read::Gone => None,
            Read::Ns(used_ns) => {
                source.used_ns = used_ns;
                Some(source)
            }
        })
    }

    /// Time since the last call. None: gone. `reset` is set if the counter went back.
    fn advance(&mut self, reset: &mut bool) -> Result<Option<u64>, SenseError> {
        let Read::Ns(used_ns) = read_usage(&self.file)? else {
            return Ok(None);
        };
        *reset |= used_ns < self.used_ns;
        let since_ns = used_ns.saturating_sub(self.used_ns);
        self.used_ns = used_ns;
        Ok(Some(since_ns))
    }
}

/// The sum of all sources' advances; drops those that are gone.
fn advance_all(sources: &mut Vec<Source>, reset: &mut bool) -> Result<u64, SenseError> {
    let mut sum_ns = 0_u64;
    let mut first_error = None;
    sources.retain_mut(|source| match source.advance(reset) {
        Ok(Some(since_ns)) => {
            sum_ns = sum_ns.saturating_add(since_ns);
            true
        }
        Ok(None) => false,
        Err(why) => {
            first_error.get_or_insert(why);
            true
        }
    });
    first_error.map_or(Ok(sum_ns), Err)
}

/// Opens a source per outermost group, keeping those of `old` that are still wanted.
fn reopen(old: Vec<Source>, groups: &[Group]) -> Result<Vec<Source>, SenseError> {
    let dir = |path: &Path| path.parent().map(Path::to_owned).unwrap_or_default();
    let dirs: Vec<PathBuf> = groups.iter().map(|group| dir(&group.usage)).collect();
    let mut old = old;
    let mut sources: Vec<Source> = Vec::with_capacity(groups.len());
    for (group, own) in groups.iter().zip(&dirs) {
        let inside = dirs
            .iter()
            .any(|other| other != own && own.starts_with(other));
        let twice = sources
            .iter()
            .any(|source| source.file.path() == group.usage);
        if inside || twice {
            continue;
        }
        match old
            .iter()
            .position(|source| source.file.path() == group.usage)
        {
            Some(at) => sources.push(old.swap_remove(at)),
            None => sources.extend(Source::open(&group.usage)?),
        }
    }
    Ok(sources)
}

enum Busy {
    Cpuacct(Source),
    /// What tasks ran, by CPU; steal is inside.
    Schedstat(Schedstat),
    /// What `/proc/stat` does not call idle, and what it said last.
    Stat(StatFile, StatLine),
}

impl Busy {
    fn open(config: &SenseConfig) -> Result<Self, SenseError> {
        let root = match &config.cpuacct_root {
            Some(root) => Source::open(&root.join("cpuacct.usage"))?,
            None => None,
        };
        if let Some(root) = root {
            return Ok(Self::Cpuacct(root));
        }
        if let Some(cpus) = Schedstat::open(&config.proc_dir)? {
            return Ok(Self::Schedstat(cpus));
        }
        let stat = StatFile::open(&config.proc_dir)?;
        let last = stat.read()?;
        Ok(Self::Stat(stat, last))
    }
}

pub struct UsageSensor {
    online: Online,
    busy: Busy,
    steal: StealMeter,
    side: Vec<Source>,
    main: Vec<Source>,
    main_read_ns: u64,
    /// Busy time that was read and not yet told, negative where more was told: files are late, and
    /// have steps.
    untold_ns: i64,
    tick_ns: u64,
    /// The last sample failed half way: the next one's difference is not to be used.
    broken: bool,
    total: Counters,
}

impl UsageSensor {
    pub fn open(config: &SenseConfig, side: &[Group], main: &[Group]) -> Result<Self, SenseError> {
        let busy = Busy::open(config)?;
        let online = Online::open(&config.cpu_dir)?;
        let now_ns = monotonic_ns();
        let steal = StealMeter::open(&config.proc_dir, now_ns)?;
        let total = Counters {
            now_ns,
            online_cpus: online.count(),
            ..Counters::default()
        };
        let mut sensor = Self {
            online,
            busy,
            steal,
            side: Vec::new(),
            main: Vec::new(),
            main_read_ns: now_ns,
            untold_ns: 0,
            tick_ns: tick_ns(),
            broken: false,
            total,
        };
        sensor.set_groups(side, main)?;
        Ok(sensor)
    }

    pub fn exactness(&self) -> String {
        let tick_ms = self.tick_ns as f64 / 1e6;
        match self.busy {
            Busy::Cpuacct(_) => format!("a reading is up to {tick_ms} ms per CPU behind"),
            Busy::Schedstat(_) => {
                format!("a reading is up to {tick_ms} ms per CPU behind, main's up to a window")
            }
            Busy::Stat(ref stat, _) => format!(
                "a reading is up to {tick_ms} ms per CPU behind, idle has steps of {} ms",
                stat.unit_ns() / 1_000_000
            ),
        }
    }

    /// Of a window of `each_ns`, which is `wall_ns` of the online CPUs: busy time without steal as
    /// it was read, and steal.
    fn machine(
        &mut self,
        each_ns: u64,
        wall_ns: u64,
        reset: &mut bool,
    ) -> Result<(i64, u64), SenseError> {
        let (busy_ns, steal_inside) = match &mut self.busy {
            Busy::Cpuacct(root) => (root.advance(reset)?.unwrap_or(0), false),
            Busy::Schedstat(cpus) => (cpus.advance(each_ns)?, true),
            Busy::Stat(stat, last) => {
                let line = stat.read()?;
                let last = std::mem::replace(last, line);
                *reset |= last.idle_ns.saturating_sub(line.idle_ns) > IDLE_BACK_NS_MAX;
                *reset |= line.steal_ns < last.steal_ns;
                let steal_ns = line.steal_ns.saturating_sub(last.steal_ns).min(wall_ns);
                // Signed: a figure that goes back a little comes forward again.
                let idle_ns = line.idle_ns as i64 - last.idle_ns as i64;
                return Ok((wall_ns as i64 - steal_ns as i64 - idle_ns, steal_ns));
            }
        };
        self.steal.update(self.total.now_ns)?;
        let steal_ns = self.steal.spread.charge(each_ns, busy_ns).min(wall_ns);
        let inside_ns = if steal_inside { steal_ns } else { 0 };
        Ok((busy_ns.saturating_sub(inside_ns) as i64, steal_ns))
    }

    /// What to tell of `busy_ns` more: 0 to all there was, the rest with the next window. Schedstat
    /// is late by up to a window, `wall_ns`, so at least what side work used is told; where that is
    /// more than late, the law shall see what was read.
    fn tell(&mut self, busy_ns: i64, side_ns: u64, wall_ns: u64, capacity_ns: u64) -> u64 {
        let most_ns = UNTOLD_MAX_NS * i64::from(self.total.online_cpus);
        self.untold_ns = self
            .untold_ns
            .saturating_add(busy_ns)
            .clamp(-most_ns, most_ns);
        let mut told_ns = self.untold_ns.clamp(0, capacity_ns as i64);
        let side_ns = side_ns.min(capacity_ns) as i64;
        if matches!(self.busy, Busy::Schedstat(_)) && side_ns - self.untold_ns <= wall_ns as i64 {
            told_ns = told_ns.max(side_ns);
        }
        self.untold_ns -= told_ns;
        told_ns as u64
    }
}

impl Sensor for UsageSensor {
    fn sample(&mut self, out: &mut Counters) -> Result<(), SenseError> {
        let before_ns = self.total.now_ns;
        let mut reset = std::mem::replace(&mut self.broken, true);
        reset |= self.online.refresh()?;
        self.total.now_ns = monotonic_ns();
        reset |= self.total.now_ns < before_ns;
        self.total.online_cpus = self.online.count();
        let each_ns = self.total.now_ns.saturating_sub(before_ns);
        let wall_ns = each_ns * u64::from(self.total.online_cpus);
        let (read_ns, steal_ns) = self.machine(each_ns, wall_ns, &mut reset)?;
        let capacity_ns = wall_ns - steal_ns;
        let side_ns = advance_all(&mut self.side, &mut reset)?;
        let busy_ns = self.tell(read_ns, side_ns, wall_ns, capacity_ns);
        if reset {
            self.untold_ns = 0;
        }
        if self.total.now_ns.saturating_sub(self.main_read_ns) >= STEAL_INTERVAL_NS {
            self.main_read_ns = self.total.now_ns;
            self.total.main_ns += advance_all(&mut self.main, &mut false)?;
        }
        self.total.capacity_ns += capacity_ns;
        self.total.busy_ns += busy_ns;
        self.total.side_ns += side_ns;
        self.total.steal_ns += steal_ns;
        self.total.valid = !reset;
        self.broken = false;
        *out = self.total;
        Ok(())
    }

    fn set_groups(&mut self, side: &[Group], main: &[Group]) -> Result<(), SenseError> {
        self.side = reopen(std::mem::take(&mut self.side), side)?;
        self.main = reopen(std::mem::take(&mut self.main), main)?;
        Ok(())
    }

    fn kind(&self) -> &'static str {
        "usage"
    }

    fn min_window_ns(&self) -> u64 {
        MIN_WINDOW_NS.max(10 * self.tick_ns)
    }

    fn granularity_ns(&self) -> u64 {
        match self.busy {
            Busy::Cpuacct(_) | Busy::Schedstat(_) => self.tick_ns,
            Busy::Stat(ref stat, _) => {
                self.tick_ns + stat.unit_ns() / u64::from(self.total.online_cpus.max(1))
            }
        }
    }

    fn online_cpus(&self) -> u32 {
        self.total.online_cpus
    }
}

/// The kernel's tick: the coarse clock advances by it.
fn tick_ns() -> u64 {
    let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    // 1 to 10 ms on every kernel (HZ 100 to 1000); neither part is negative.
    tick.tv_sec as u64 * 1_000_000_000 + tick.tv_nsec as u64
}
