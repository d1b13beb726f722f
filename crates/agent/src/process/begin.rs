//! What agent and guardian do first: a name in the process list, a log on standard error, and an
//! end at the first panic.

use std::io;
use std::os::fd::AsFd;
use std::panic;

use tracing::level_filters::LevelFilter;
use tracing::{error, info, warn};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

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
    raise_descriptor_limit();
    be_killed_last();
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

/// A service has 1,024 descriptors at first, and may have as many as its hard limit says.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!("descriptors: the limit stays: {error}");
    }
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
