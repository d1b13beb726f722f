//! Sensing by the kernel's own usage counters: for kernels and users without BPF.
//!
//! - side and main: each root's `cpuacct.usage` (v1) or `usage_usec` in `cpu.stat` (v2). Exact at
//!   switches; a task that runs on is accounted at ticks, so a reading is up to one tick per CPU
//!   behind.
//! - busy, with v1's cpuacct: the root's `cpuacct.usage`, alike. Kernels that keep a steal clock
//!   leave steal (and with IRQ_TIME_ACCOUNTING, interrupts) out of it; on others steal is still
//!   inside and idle reads low by it, on main's side.
//! - busy, without: the online CPUs' time less idle and steal of `/proc/stat`. The kernel keeps
//!   idle exactly but shows it in steps of 10 ms for the whole machine: over 50 ms on 2 CPUs that
//!   is ± 10 points, over 200 ms 2.5, over a second half a point. (v2's root `cpu.stat` would be
//!   no better: it is the tick samples of `/proc/stat`, each charged to the task that ran at the tick.)
//!
//! Files stay open. A group that vanished is dropped; its time up to the last reading stays. A
//! root inside another of the same class is left out, and a main root inside a side root counts
//! as both: nested classes need the BPF sensor.

use std::path::{Path, PathBuf};

use super::files::{KeptFile, keyed, number};
use super::online::Online;
use super::steal::{STEAL_INTERVAL_NS, Spread, StatFile, StatLine};
use super::usage_parts::UsageParts;
use super::{Counters, Group, SenseConfig, SenseError, Sensor};
use crate::clock::monotonic_ns;

/// Windows under this show little but the granularity.
const MIN_WINDOW_NS: u64 = 50_000_000;

/// iowait may go back a little by the kernel's own account; more than this is a reset.
const IDLE_BACK_NS_MAX: u64 = 100_000_000;

/// One usage file and what it said last.
struct Source {
    file: KeptFile,
    used_ns: u64,
}

/// What reading a group's usage gave.
pub(super) enum Read {
    Ns(u64),
    Gone,
}

/// What a group has used, by its `cpuacct.usage` or its `cpu.stat`.
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

/// Sensing by files; see the module's page.
pub struct UsageSensor {
    online: Online,
    stat: StatFile,
    /// v1 root usage; None: busy time comes from `/proc/stat`.
    root: Option<Source>,
    side: Vec<Source>,
    main: Vec<Source>,
    parts: UsageParts,
    main_read_ns: u64,
    stat_read_ns: u64,
    stat_last: StatLine,
    spread: Spread,
    /// Busy time that steps of `/proc/stat` took too much, to be paid back.
    owed_ns: u64,
    busy_sum_ns: u64,
    tick_ns: u64,
    /// The last sample failed half way: the next one's difference is not to be used.
    broken: bool,
    total: Counters,
}

impl UsageSensor {
    /// Opens the files and takes the first reading as zero.
    pub fn open(config: &SenseConfig, side: &[Group], main: &[Group]) -> Result<Self, SenseError> {
        let root = match &config.cpuacct_root {
            Some(root) => Source::open(&root.join("cpuacct.usage"))?,
            None => None,
        };
        let online = Online::open(&config.cpu_dir)?;
        let stat = StatFile::open(&config.proc_dir)?;
        let stat_last = stat.read()?;
        let now_ns = monotonic_ns();
        let total = Counters {
            now_ns,
            online_cpus: online.count(),
            ..Counters::default()
        };
        let mut sensor = Self {
            online,
            stat,
            root,
            side: Vec::new(),
            main: Vec::new(),
            parts: UsageParts::default(),
            main_read_ns: now_ns,
            stat_read_ns: now_ns,
            stat_last,
            spread: Spread::default(),
            owed_ns: 0,
            busy_sum_ns: 0,
            tick_ns: tick_ns(),
            broken: false,
            total,
        };
        sensor.set_groups(side, main)?;
        Ok(sensor)
    }

    /// How exact it is, for the note.
    pub fn exactness(&self) -> String {
        let tick_ms = self.tick_ns as f64 / 1e6;
        match self.root {
            Some(_) => format!("a reading is up to {tick_ms} ms per CPU behind"),
            None => format!(
                "a reading is up to {tick_ms} ms per CPU behind, idle has steps of {} ms",
                self.stat.unit_ns() / 1_000_000
            ),
        }
    }

    /// A window of `each_ns` and the online CPUs' time in it to (capacity, busy, steal).
    fn machine(
        &mut self,
        each_ns: u64,
        wall_ns: u64,
        reset: &mut bool,
    ) -> Result<(u64, u64, u64), SenseError> {
        let now_ns = self.total.now_ns;
        if let Some(root) = &mut self.root {
            let busy_ns = root.advance(reset)?.unwrap_or(0);
            if now_ns.saturating_sub(self.stat_read_ns) >= STEAL_INTERVAL_NS {
                let line = self.stat.read()?;
                self.spread
                    .observe(line.steal_ns.saturating_sub(self.stat_last.steal_ns));
                (self.stat_last, self.stat_read_ns) = (line, now_ns);
            }
            let steal_ns = self.spread.charge(each_ns, busy_ns).min(wall_ns);
            return Ok((wall_ns - steal_ns, busy_ns, steal_ns));
        }
        let line = self.stat.read()?;
        let last = std::mem::replace(&mut self.stat_last, line);
        *reset |= last.idle_ns.saturating_sub(line.idle_ns) > IDLE_BACK_NS_MAX;
        *reset |= line.steal_ns < last.steal_ns;
        let idle_ns = line.idle_ns.saturating_sub(last.idle_ns);
        // A figure that went back a little will come forward again: owed from the next reading.
        self.owed_ns += last
            .idle_ns
            .saturating_sub(line.idle_ns)
            .min(IDLE_BACK_NS_MAX);
        let steal_ns = line.steal_ns.saturating_sub(last.steal_ns).min(wall_ns);
        let taken_ns = idle_ns.saturating_add(steal_ns);
        let busy_ns = wall_ns.saturating_sub(taken_ns);
        self.owed_ns = self
            .owed_ns
            .saturating_add(taken_ns.saturating_sub(wall_ns));
        let paid_ns = self.owed_ns.min(busy_ns);
        self.owed_ns -= paid_ns;
        Ok((wall_ns - steal_ns, busy_ns - paid_ns, steal_ns))
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
        let (capacity_ns, busy_ns, steal_ns) = self.machine(each_ns, wall_ns, &mut reset)?;
        let online = self.online.cpus();
        self.parts
            .sample(each_ns, online, (busy_ns, steal_ns), &mut reset)?;
        let side_ns = advance_all(&mut self.side, &mut reset)?;
        if self.total.now_ns.saturating_sub(self.main_read_ns) >= STEAL_INTERVAL_NS {
            self.main_read_ns = self.total.now_ns;
            self.total.main_ns += advance_all(&mut self.main, &mut false)?;
        }
        self.total.capacity_ns += capacity_ns;
        self.busy_sum_ns += busy_ns;
        // Ticks may credit a window with more than it held; over time that evens out.
        let bounded_ns = self.busy_sum_ns.min(self.total.capacity_ns);
        self.total.busy_ns = self.total.busy_ns.max(bounded_ns);
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
        let side = self.side.iter().map(|source| source.file.path());
        self.parts.set_side(side)
    }

    fn by_cpu(&self) -> Result<(), String> {
        match self.root {
            Some(_) => Ok(()),
            None => Err("use by CPU is told by BPF and by v1's cpuacct only".to_owned()),
        }
    }

    fn set_parts(&mut self, parts: &[Vec<u32>]) {
        let root = self.root.as_ref().map(|root| root.file.path());
        let side = self.side.iter().map(|source| source.file.path());
        // Parts that cannot be read are not told; the law of each then has no sample, and stays at the tolerance.
        if self.parts.set(parts, root, side).is_err() {
            self.parts = UsageParts::default();
        }
    }

    fn part(&self, nth: usize) -> Option<Counters> {
        self.parts.counters(nth, &self.total)
    }

    fn kind(&self) -> &'static str {
        "usage"
    }

    fn min_window_ns(&self) -> u64 {
        MIN_WINDOW_NS.max(10 * self.tick_ns)
    }

    fn granularity_ns(&self) -> u64 {
        match self.root {
            Some(_) => self.tick_ns,
            None => self.tick_ns + self.stat.unit_ns() / u64::from(self.total.online_cpus.max(1)),
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
