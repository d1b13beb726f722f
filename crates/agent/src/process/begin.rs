//! What agent and guardian do first: a name in the process list, a log on standard error, and an
//! end at the first panic.

use std::io;
use std::os::fd::AsFd;
use std::panic;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::level_filters::LevelFilter;
use tracing::{error, info, warn};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

/// As the service has them (`LimitNOFILE=`).
const DESCRIPTORS: u64 = 524_288;

pub fn begin() {
    // A program that is started by `/proc/self/exe` is else called `exe`.
    let _ = rustix::thread::set_name(c"tidegate");
    let levels: Option<Targets> = std::env::var("TIDEGATE_LOG")
        .ok()
        .and_then(|levels| levels.parse().ok());
    tracing_subscriber::registry()
        .with(fmt::layer().with_writer(io::stderr).with_ansi(false))
        .with(levels.unwrap_or(Targets::new().with_default(LevelFilter::INFO)))
        .init();
    end_at_the_first_panic();
    // A service has 1,024 at first, and may have as many as its hard limit says.
    raise_limit(Resource::Nofile, Some(DESCRIPTORS));
    be_killed_last();
}

/// Resets what this process inherited from the command that started it: scheduling (as of `nice -n
/// 19 tidegate run`), resource limits, signals and umask. The caller has one thread.
pub fn forget_starter() {
    for resource in [
        Resource::Cpu,
        Resource::Fsize,
        Resource::Data,
        Resource::As,
        Resource::Rss,
        Resource::Nproc,
        Resource::Locks,
        Resource::Sigpending,
        Resource::Msgqueue,
    ] {
        raise_limit(resource, None);
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    // SAFETY: plain numbers and structures that outlive the calls; no other thread has a handler
    // or a mask yet. A number that is no signal is refused.
    unsafe {
        for signal in (1..=libc::SIGRTMAX()).filter(|signal| *signal != libc::SIGPIPE) {
            libc::signal(signal, libc::SIG_DFL);
        }
        // A limit on files that stays is an error to report.
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        let ordinary = libc::sched_param { sched_priority: 0 };
        libc::sched_setscheduler(0, libc::SCHED_OTHER, &ordinary);
        libc::setpriority(libc::PRIO_PROCESS, 0, 0);
        let all: libc::cpu_set_t = std::mem::transmute([0xff_u8; size_of::<libc::cpu_set_t>()]);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &all);
        const OF_THIS_PROCESS: libc::c_int = 1;
        libc::syscall(libc::SYS_ioprio_set, OF_THIS_PROCESS, 0, 0);
    }
}

/// Without CAP_SYS_RESOURCE, to the hard limit.
pub(crate) fn raise_limit(resource: Resource, to: Option<u64>) {
    let wanted = Rlimit {
        current: to,
        maximum: to,
    };
    if setrlimit(resource, wanted).is_ok() {
        return;
    }
    let maximum = getrlimit(resource).maximum;
    let possible = Rlimit {
        current: maximum,
        maximum,
    };
    match setrlimit(resource, possible) {
        Ok(()) => info!("{resource:?}: the hard limit stays: {maximum:?}"),
        Err(error) => warn!("{resource:?}: the limit stays: {error}"),
    }
}

/// As the service has it (`OOMScoreAdjust=`): on a machine without memory, what frees CPU for main
/// goes after what takes memory.
fn be_killed_last() {
    const FILE: &str = "/proc/self/oom_score_adj";
    const OURS: i32 = -900;
    let found = std::fs::read_to_string(FILE).unwrap_or_default();
    if found.trim().parse().is_ok_and(|found: i32| found <= OURS) {
        return;
    }
    if let Err(error) = std::fs::write(FILE, OURS.to_string()) {
        info!("oom_score_adj stays: {error}");
    }
}

/// A panic in any thread or task ends the process: without one of its threads it would answer, hold
/// the lock, and no longer be in control. The other process of the two then acts. The dev profile
/// unwinds, because tests do.
fn end_at_the_first_panic() {
    panic::set_hook(Box::new(|why| {
        error!("{why}");
        std::process::abort();
    }));
}

/// Joins the cgroup namespace of process 1, for a container with the machine's processes and
/// cgroups: groups outside of its own namespace have no names there. Called while this process has
/// one thread.
pub fn join_host_cgroups() -> io::Result<()> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    const NAMESPACE: &str = "/proc/1/ns/cgroup";
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{NAMESPACE}: {error}"));
    let namespace = std::fs::File::open(NAMESPACE).map_err(named)?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::ControlGroup))
        .map_err(|error| named(error.into()))
}
