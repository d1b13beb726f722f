//! The guardian: a small process beside the agent that acts when the agent cannot.
//!
//! | it sees | it does |
//! |---|---|
//! | the agent left on purpose | leaves too; if commands of an agent on demand still run, once their groups can be removed |
//! | the agent is dead | writes the fallback; starts another agent if the dead one was started on demand |
//! | the agent ended for another one, as a restarted service does | waits for that one until the lease runs out; then acts as for a death |
//! | no beat for a lease (a frozen agent) | writes the fallback once, and waits for a beat or a death |
//! | another agent holds the lease | leaves: that agent has a guardian of its own |
//!
//! One that watches from outside ([`from_outside`]) does the same for each agent that comes, except
//! for a frozen one.
//!
//! The fallback is [`super::repair`]'s. The guardian polls a few times a second and holds nothing
//! that an agent needs, so it may be killed at any moment; the agent then starts another, as it
//! does for one that has stopped looking.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tracing::{error, info, warn};

use super::repair;
use crate::client;
use crate::paths::RunDir;
use crate::process::agent_lock::lock_agent;
use crate::process::begin::begin;
use crate::process::lease::{Lease, monotonic_ns};

/// How often the lease is polled. A death is seen at once.
pub(crate) const POLL_PERIOD: Duration = Duration::from_millis(200);

/// While no agent is in control, what falls due (`hold`) is looked for this often.
const DUE: Duration = Duration::from_secs(1);

/// How long to wait while another process holds the agent's lock.
const TAKEN: Duration = Duration::from_millis(20);

/// Another agent is tried again after this long, as long as gates are left.
const RETRY: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentState {
    Well,
    Left,
    HandedOver,
    Replaced,
    Dead,
    Expired,
}

pub(crate) fn agent_state(lease: &Lease, agent_pid: i32, dead: bool, now_ns: u64) -> AgentState {
    if lease.agent_pid() != agent_pid {
        return AgentState::Replaced;
    }
    if lease.left() {
        return AgentState::Left;
    }
    if dead {
        return match lease.awaits_next_agent(now_ns) {
            true => AgentState::HandedOver,
            false => AgentState::Dead,
        };
    }
    let (age_ns, lease_ns) = lease.age_and_lease_ns(now_ns);
    if age_ns > lease_ns {
        AgentState::Expired
    } else {
        AgentState::Well
    }
}

fn ended(pidfd: Option<&OwnedFd>, for_how_long: Duration) -> bool {
    let Some(pidfd) = pidfd else { return true };
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(for_how_long.subsec_nanos()),
    };
    matches!(poll(&mut fds, Some(&timeout)), Ok(ready) if ready > 0)
}

enum Guards<'a> {
    /// Of the agent that started it. An agent that was started on demand is brought back, with that
    /// engine if one was asked for by name.
    Own {
        on_demand: bool,
        engine: Option<&'a str>,
    },
    Outside,
}

/// Watches the agent `agent_pid` until one of them is no longer needed. An agent that was started
/// on demand is brought back, with that engine if one was asked for by name.
pub fn main(
    run_dir: &RunDir,
    agent_pid: i32,
    on_demand: bool,
    engine: Option<&str>,
) -> std::io::Result<()> {
    // Standard error is the agent's log; what the guardian did is read there afterwards.
    begin();
    let lease = Lease::open(&run_dir.lease())?;
    let Some(pid) = Pid::from_raw(agent_pid) else {
        return Err(std::io::Error::other(format!(
            "guardian: {agent_pid} is not a process"
        )));
    };
    // An agent that is gone already is a dead one, and is acted on.
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok();
    let own = Guards::Own { on_demand, engine };
    watch(run_dir, &lease, agent_pid, pidfd.as_ref(), &own)
}

/// Watches each agent that comes, until a signal: where an agent's own guardian ends with it, as in
/// its container. A frozen agent has its own guardian still.
pub fn from_outside(run_dir: &RunDir) -> std::io::Result<()> {
    begin();
    let mut settled = None;
    loop {
        std::thread::sleep(POLL_PERIOD);
        let Some(lease) = Lease::of_an_agent(&run_dir.lease()) else {
            continue;
        };
        let agent_pid = lease.agent_pid();
        let Some(pid) = Pid::from_raw(agent_pid).filter(|_| settled != Some(agent_pid)) else {
            continue;
        };
        // After a death its number may be another process's; the lock is not.
        let lives = lock_agent(run_dir).is_taken();
        let pidfd = lives
            .then(|| pidfd_open(pid, PidfdFlags::empty()).ok())
            .flatten();
        watch(run_dir, &lease, agent_pid, pidfd.as_ref(), &Guards::Outside)?;
        settled = Some(agent_pid);
    }
}

fn watch(
    run_dir: &RunDir,
    lease: &Lease,
    agent_pid: i32,
    pidfd: Option<&OwnedFd>,
    guards: &Guards<'_>,
) -> std::io::Result<()> {
    let mut fallback = Fallback::new(run_dir, lease);
    loop {
        if let Guards::Own { .. } = guards {
            lease.guardian_beat(std::process::id() as i32, monotonic_ns());
        }
        let dead = ended(pidfd, POLL_PERIOD);
        match agent_state(lease, agent_pid, dead, monotonic_ns()) {
            AgentState::Replaced => return Ok(()),
            AgentState::Left => {
                if let Guards::Own {
                    on_demand: true, ..
                } = guards
                {
                    after_leaving(run_dir, lease, agent_pid);
                }
                return Ok(());
            }
            AgentState::Well => fallback.forget(),
            AgentState::HandedOver => std::thread::sleep(TAKEN),
            AgentState::Expired if matches!(guards, Guards::Outside) => {}
            AgentState::Expired => {
                if fallback.is_first() {
                    warn!(
                        agent_pid,
                        "the agent's lease has expired; writing the fallback"
                    );
                }
                // The frozen agent holds the lock, so no other is in control.
                fallback.write_when_due();
            }
            AgentState::Dead => {
                warn!(agent_pid, "the agent is dead; writing the fallback");
                let (on_demand, engine) = match *guards {
                    Guards::Own { on_demand, engine } => (on_demand, engine),
                    Guards::Outside => (false, None),
                };
                return after_death(&mut fallback, agent_pid, on_demand, engine);
            }
        }
    }
}

/// The fallback as one guardian writes it: at once, and again as more of it falls due.
struct Fallback<'a> {
    run_dir: &'a RunDir,
    lease: &'a Lease,
    written_ns: Option<u64>,
    told: Vec<String>,
}

impl<'a> Fallback<'a> {
    fn new(run_dir: &'a RunDir, lease: &'a Lease) -> Self {
        Self {
            run_dir,
            lease,
            written_ns: None,
            told: Vec::new(),
        }
    }

    fn is_first(&self) -> bool {
        self.written_ns.is_none()
    }

    fn forget(&mut self) {
        self.written_ns = None;
        self.told.clear();
    }

    fn write_when_due(&mut self) {
        let now_ns = monotonic_ns();
        let due_ns = DUE.as_nanos() as u64;
        if self
            .written_ns
            .is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < due_ns)
        {
            return;
        }
        self.written_ns = Some(now_ns);
        let dead_seconds = self.lease.age_and_lease_ns(now_ns).0 / 1_000_000_000;
        // Before: an agent that resumes in between must not take the guardian's writes for outside
        // ones. After: what such an agent then writes may come before the guardian's.
        self.lease.mark_fallback(monotonic_ns());
        self.lease.set_falling_back(Some(monotonic_ns()));
        let report = repair::fall_back(self.run_dir, dead_seconds);
        self.lease.set_falling_back(None);
        self.lease.mark_fallback(monotonic_ns());
        for line in report.iter().filter(|line| !self.told.contains(line)) {
            info!("{line}");
        }
        self.told = report;
    }
}

/// The agent is dead: writes the fallback, brings back an agent that was started on demand, or else
/// stays until the gates have ended or another agent is started, so that nothing is left behind.
///
/// Every write is made under the agent's lock: an agent that is started meanwhile waits for it, and
/// once one is in control, this guardian leaves.
fn after_death(
    fallback: &mut Fallback<'_>,
    agent_pid: i32,
    on_demand: bool,
    engine: Option<&str>,
) -> std::io::Result<()> {
    let mut tried: Option<Instant> = None;
    let mut tidying = Tidying(Instant::now());
    loop {
        if !fallback.run_dir.dir().exists() {
            // The ledger went with it: there is nothing to go by any more, and no agent can start
            // there.
            return Ok(());
        }
        let lock = lock_agent(fallback.run_dir);
        if fallback.lease.agent_pid() != agent_pid {
            return Ok(());
        }
        if lock.is_taken() {
            // An agent starts, or `repair` runs: it takes moments, and may fail.
            std::thread::sleep(TAKEN);
            continue;
        }
        fallback.write_when_due();
        let again = tried.is_none_or(|at| at.elapsed() >= RETRY);
        if on_demand && again && fallback.lease.may_restart(monotonic_ns()) {
            drop(lock);
            tried = Some(Instant::now());
            match client::start_agent(fallback.run_dir, engine) {
                Ok(()) => return Ok(()),
                Err(error) => error!("{error}"),
            }
            continue;
        }
        if tidying.is_done(fallback.run_dir) {
            info!("every gate has ended; nothing is left to guard");
            return Ok(());
        }
        drop(lock);
        std::thread::sleep(POLL_PERIOD);
    }
}

/// Looking for what can be removed reads every group on the machine: that is no more than a
/// twentieth of the time.
struct Tidying(Instant);

impl Tidying {
    fn is_done(&mut self, run_dir: &RunDir) -> bool {
        let began = Instant::now();
        if began < self.0 {
            return false;
        }
        let done = repair::clean_if_empty(run_dir);
        self.0 = Instant::now() + began.elapsed() * 19;
        done
    }
}

/// The agent has left while commands of its gates still run, with their limits: no other process
/// would remove their groups. An agent that comes takes them up. (A service's are left to its next
/// start, or to `tidegate agent repair`.)
fn after_leaving(run_dir: &RunDir, lease: &Lease, agent_pid: i32) {
    let mut tidying = Tidying(Instant::now());
    while repair::has_records(run_dir) {
        let lock = lock_agent(run_dir);
        if lease.agent_pid() != agent_pid {
            return;
        }
        if !lock.is_taken() && tidying.is_done(run_dir) {
            info!("every command has ended; its groups are removed");
            return;
        }
        drop(lock);
        std::thread::sleep(POLL_PERIOD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sees_what_the_lease_says() {
        let dir = tempfile::tempdir().unwrap();
        let lease = Lease::open(&dir.path().join("lease")).unwrap();
        lease.take(7, 1_000);
        lease.beat(5_000);
        assert_eq!(agent_state(&lease, 7, false, 5_500), AgentState::Well);
        assert_eq!(agent_state(&lease, 7, false, 6_001), AgentState::Expired);
        assert_eq!(agent_state(&lease, 7, true, 5_500), AgentState::Dead);
        assert_eq!(agent_state(&lease, 8, true, 5_500), AgentState::Replaced);
        lease.hand_over();
        assert_eq!(
            agent_state(&lease, 7, false, 5_500),
            AgentState::Well,
            "it tidies up"
        );
        assert_eq!(agent_state(&lease, 7, true, 5_500), AgentState::HandedOver);
        assert_eq!(
            agent_state(&lease, 7, true, 6_001),
            AgentState::Dead,
            "none came"
        );
        lease.leave();
        assert_eq!(agent_state(&lease, 7, true, 9_000), AgentState::Left);
    }

    #[test]
    fn a_process_that_ended_before_it_was_looked_at_counts_as_ended() {
        assert!(ended(None, POLL_PERIOD));
        let me = Pid::from_raw(std::process::id() as i32).unwrap();
        let pidfd = pidfd_open(me, PidfdFlags::empty()).unwrap();
        assert!(!ended(Some(&pidfd), Duration::from_millis(1)));
    }
}
