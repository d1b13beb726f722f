//! Sensing: how much CPU side work, main work and the rest used, and how much there was.
//!
//! A [`Sensor`] fills [`Counters`]: cumulative nanoseconds since it was opened, from which the
//! control loop takes differences. There are two:
//!
//! - **bpf** ([`bpf`]): a program at every context switch, exact to the nanosecond, good for
//!   windows of 5 ms and less. Reading it takes no system call per CPU.
//! - **usage** ([`usage`]): cgroup usage, `/proc/schedstat` and `/proc/stat`, good for windows of
//!   50 ms and more, on every kernel. The kernel accounts a running task at ticks, so a reading is
//!   off by up to [`Sensor::granularity_ns`] per CPU; the error does not add up over readings.
//!
//! # What the numbers mean
//!
//! All counters stand still or grow. `valid` is false where the difference to the reading before
//! must not be used: the set of CPUs changed, a counter went back, the clock jumped. The law
//! answers an invalid sample with a cut, never with a hold.
//!
//! - `capacity_ns`: time of the online CPUs, less steal;
//! - `busy_ns`: time not idle (by schedstat: without interrupts on an idle CPU), less steal; so
//!   `capacity_ns - busy_ns` is idle time as the guest saw it, which is never negative;
//! - `side_ns`, `main_ns`: the part of it that tasks in those groups took; the nearest root
//!   decides where roots are nested.
//!
//! # Waits
//!
//! `waits` counts how long a task of main waited each time before it ran: woken and not yet
//! running, preempted and not yet back. It is told when the task leaves its CPU again, so that a
//! run of 10 ms tells its wait 10 ms late; a wait that is still going on is not in it. Waits of
//! main groups only, for an objective is the word of a main gate, and the machine's own threads
//! (neutral), of which there are many that wait for nothing, would dilute it; where there is no
//! main group everything but side work is meant, as by headroom.
//!
//! # Steal
//!
//! Time that the hypervisor gave to others is no task's work, and it is not capacity either. It
//! must be taken off exactly once: off the capacity alone would charge main for it twice (it is
//! inside the time of the task that ran), off neither would promise CPU that does not exist. So it
//! leaves both sides: capacity shrinks by it, and so does the time of the classes that ran, in
//! proportion to how long each ran ([`steal`]). Idle time is untouched by construction. The figure
//! in `/proc/stat` has 10 ms steps and is read every 250 ms, so a quarter of what is pending is
//! taken off in each such interval: until then it looks like main's demand, which errs on main's
//! side.

pub mod bpf;
mod files;
mod meters;
mod object;
mod online;
mod schedstat;
mod settled;
mod slots;
pub mod steal;
pub mod usage;
mod waits;

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tidegate_cgroup::RealFs;
use tidegate_cgroup::discover::cgroup_mounts;
use tidegate_terms::Sense;

pub use bpf::BpfSensor;
pub use meters::Meters;
pub use object::KernelTypes;
pub use slots::Turns;
pub use usage::UsageSensor;
pub use waits::{WAIT_BUCKETS, WaitHistogram, Waits, percentile_ns};

/// What a sensor read: cumulative since it was opened, `_ns` of CPU time unless said otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub now_ns: u64,
    pub online_cpus: u32,
    /// Time of the online CPUs, less steal.
    pub capacity_ns: u64,
    /// Time not idle, less steal; never above the capacity.
    pub busy_ns: u64,
    pub side_ns: u64,
    /// Time of tasks in main groups (for display: the law takes all that is not side for main).
    pub main_ns: u64,
    /// Steal that was taken off capacity and busy time.
    pub steal_ns: u64,
    /// How long main waited to run: tasks in main groups, or where there are none all that is not
    /// side work. All zero from a sensor that cannot tell ([`Sensor::tells_waits`]).
    pub waits: Waits,
    /// How long side work ran before work that could run ([`Sensor::turns`]).
    pub behind_side_ns: u64,
    pub valid: bool,
}

/// Reads [`Counters`]; never blocks for longer than a few file reads.
pub trait Sensor: Send {
    /// Reads the counters. An error means that nothing was learnt: cut, and try again.
    fn sample(&mut self, out: &mut Counters) -> Result<(), SenseError>;
    /// Replaces the roots of side and main work; groups that do not exist are left out.
    fn set_groups(&mut self, side: &[Group], main: &[Group]) -> Result<(), SenseError>;
    fn kind(&self) -> &'static str;
    /// The shortest window over which a difference means something.
    fn min_window_ns(&self) -> u64;
    /// How far one reading may be off, per online CPU; it is exact by default.
    fn granularity_ns(&self) -> u64 {
        0
    }
    fn online_cpus(&self) -> u32;
    fn tells_waits(&self) -> bool {
        false
    }
    /// From now on a wait of main's that is longer than this is a late one.
    fn set_late_after(&mut self, _late_after_ns: u64) {}
    /// Main's waits since it was opened, by length; None where it cannot tell.
    fn wait_buckets(&self) -> Option<[u64; WAIT_BUCKETS]> {
        None
    }
    /// The waits of neutral tasks and of main's, apart; `None` where it cannot tell.
    fn waits_by_class(&self) -> Option<[WaitHistogram; 2]> {
        None
    }
    /// Turns of side work before other work, if the kernel can end them; `None` where it cannot.
    fn turns(&self) -> Option<Turns> {
        None
    }
    /// Whether side work is in the kernel's idle class, so that such turns are ended early.
    fn set_ends_turns(&mut self, _ends_turns: bool) {}
    /// Main's time on each CPU since the sensor was opened, by the number of the CPU: of main
    /// groups, or where there are none of all that is not side work. Left empty by a sensor that
    /// cannot tell.
    fn main_by_cpu(&self, _out: &mut Vec<u64>) {}
}

/// A cgroup whose tasks belong to one class, with everything below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its id in the cpu controller's hierarchy ([`cgroup_id`]).
    pub id: u64,
    /// The file that holds its usage: v1 `cpuacct.usage`, v2 `cpu.stat`.
    pub usage: PathBuf,
}

impl Group {
    /// The group at `cpu_dir` (in the cpu controller's hierarchy), whose usage is told in
    /// `usage_dir`: the same directory, or on v1 with cpuacct mounted apart its twin there.
    pub fn new(cpu_dir: &Path, usage_dir: &Path) -> Result<Self, SenseError> {
        let v1 = usage_dir.join("cpuacct.usage");
        let usage = if v1.exists() {
            v1
        } else {
            usage_dir.join("cpu.stat")
        };
        Ok(Self {
            id: cgroup_id(cpu_dir)?,
            usage,
        })
    }
}

/// The kernel's id of the cgroup at `path`: its inode number on 64-bit kernels since 5.5.
pub fn cgroup_id(path: &Path) -> Result<u64, SenseError> {
    let meta = std::fs::metadata(path).map_err(|why| SenseError::read(path, why))?;
    Ok(meta.ino())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SenseConfig {
    /// Normally `/proc`.
    pub proc_dir: PathBuf,
    /// Normally `/sys/devices/system/cpu`.
    pub cpu_dir: PathBuf,
    /// The root of the v1 cpuacct hierarchy, if there is one: the usage sensor then reads the
    /// machine's busy time from its `cpuacct.usage`, else from `/proc/schedstat` or `/proc/stat`.
    pub cpuacct_root: Option<PathBuf>,
}

impl Default for SenseConfig {
    fn default() -> Self {
        Self {
            proc_dir: PathBuf::from("/proc"),
            cpu_dir: PathBuf::from("/sys/devices/system/cpu"),
            cpuacct_root: None,
        }
    }
}

impl SenseConfig {
    /// The usual places, with v1's mount of cpuacct, if there is one.
    pub fn detect() -> Self {
        let mounts = cgroup_mounts(&RealFs::new()).unwrap_or_default();
        let cpuacct = mounts.into_iter().find(|mount| mount.is_v1_of("cpuacct"));
        Self {
            cpuacct_root: cpuacct.map(|mount| mount.mount),
            ..Self::default()
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SenseError {
    #[error("sensing: {path}: {why}; {remedy}", path = .path.display())]
    Read {
        path: PathBuf,
        why: io::Error,
        remedy: &'static str,
    },
    #[error("sensing: {path}: expected {expected}, found {found:?}; report the kernel version", path = .path.display())]
    Parse {
        path: PathBuf,
        expected: &'static str,
        found: String,
    },
    #[error("sensing: bpf: {step}: {why}; {remedy}")]
    Bpf {
        step: &'static str,
        why: String,
        remedy: &'static str,
    },
    #[error("sensing: {count} root groups: the sensor holds {max}; put gates under common parents")]
    TooManyGroups { count: usize, max: usize },
}

impl SenseError {
    fn read(path: &Path, why: io::Error) -> Self {
        let remedy = match why.kind() {
            io::ErrorKind::NotFound => "check that the file system is mounted and the group exists",
            io::ErrorKind::PermissionDenied => "run as root",
            _ => "see `tidegate doctor`",
        };
        Self::Read {
            path: path.to_owned(),
            why,
            remedy,
        }
    }

    fn parse(path: &Path, expected: &'static str, found: &[u8]) -> Self {
        let head = &found[..found.len().min(60)];
        Self::Parse {
            path: path.to_owned(),
            expected,
            found: String::from_utf8_lossy(head).into_owned(),
        }
    }
}

/// Opens the preferred sensor and says in a note what it is, or why it is not the better one.
pub fn open(
    config: &SenseConfig,
    side: &[Group],
    main: &[Group],
    prefer: Sense,
) -> Result<(Box<dyn Sensor>, String), SenseError> {
    let why_not = match prefer {
        Sense::Usage => "asked for".to_owned(),
        Sense::Auto | Sense::Bpf => match BpfSensor::open(config, side, main) {
            Ok(sensor) => {
                let note = "sensing by BPF at every context switch".to_owned();
                return Ok((Box::new(sensor), note));
            }
            Err(why) if prefer == Sense::Bpf => return Err(why),
            Err(why) => why.to_string(),
        },
    };
    let sensor = UsageSensor::open(config, side, main)?;
    let note = format!("sensing by cgroup usage, {}: {why_not}", sensor.exactness());
    Ok((Box::new(sensor), note))
}
