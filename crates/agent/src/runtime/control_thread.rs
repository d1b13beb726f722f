//! The control loop's thread: its ticks, a clock for its own lateness, and as much priority as it
//! is allowed.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use rustix::process::Resource;
use tidegate_cgroup::group::GroupPath;
use tidegate_engine::control::{Apply, Control, SOFT_CAP_POLL_NS, Usage};
use tidegate_engine::sense::Meters;
use tidegate_engine::sync::lock;
use tidegate_recording::Step;
use tracing::{info, warn};

use crate::control_loop::Wake;
use crate::process::Life;
use crate::process::begin::raise_limit;
use crate::process::lease::monotonic_ns;
use crate::process::notify::Watchdog;
use crate::recorder_state::unix_us;
use crate::runtime::Runtime;
use crate::sched_ext::SchedExtSupervisor;

struct Shared<'a>(&'a Mutex<Meters>);

impl Usage for Shared<'_> {
    fn usage_ns(&mut self, group: &GroupPath) -> Option<u64> {
        lock(self.0).used_ns(group)
    }
}

/// Two kinds of step on one timer: each is made at its own period, as nearly as the timer's ticks
/// allow.
struct Due {
    period_ns: u64,
    last_ns: u64,
}

impl Due {
    fn is_now(&mut self, now_ns: u64, tick_ns: u64) -> bool {
        // Half a tick early is nearer than half a tick late.
        let due = now_ns.saturating_sub(self.last_ns) + tick_ns / 2 >= self.period_ns;
        if due {
            self.last_ns = now_ns;
        }
        due
    }
}

/// When the next step is due. A change of what the gates ask for ends the wait.
struct Ticks {
    period_ns: u64,
    next_ns: u64,
}

impl Ticks {
    fn new(period_ns: u64) -> Self {
        Self {
            period_ns,
            next_ns: monotonic_ns() + period_ns,
        }
    }

    fn set_period(&mut self, period_ns: u64) {
        if period_ns != self.period_ns {
            self.period_ns = period_ns;
            self.next_ns = monotonic_ns() + period_ns;
        }
    }

    /// Waits for the next tick and says how late this thread was for it.
    fn wait(&mut self, wake: &Wake) -> u64 {
        wake.wait_until(self.next_ns);
        let now_ns = monotonic_ns();
        // The oldest tick that was missed tells the lateness: a loop that skipped three was late
        // for the first.
        let late_ns = now_ns.saturating_sub(self.next_ns);
        let missed = late_ns / self.period_ns;
        self.next_ns = match now_ns < self.next_ns {
            true => now_ns + self.period_ns,
            false => self.next_ns + (missed + 1) * self.period_ns,
        };
        late_ns
    }
}

/// Runs until the agent leaves.
pub(crate) fn run(runtime: &Runtime, life: &Life, mut apply: impl Apply, mut watchdog: Watchdog) {
    let control_loop = &runtime.control_loop;
    raise_priority();
    let mut ticks = Ticks::new(control_loop.period_ns);
    let mut headroom = Due {
        period_ns: control_loop.period_ns,
        last_ns: 0,
    };
    let mut soft_caps = Due {
        period_ns: SOFT_CAP_POLL_NS,
        last_ns: 0,
    };
    let mut in_control = true;
    while !life.leaving.load(Ordering::Acquire) {
        let late_ns = ticks.wait(&control_loop.wake);
        let began_ns = monotonic_ns();
        let (next_ns, capped) = {
            let mut control = control_loop.lock();
            follow_engine(&runtime.sched_ext, &mut control);
            if control_loop.lease.take_fallback() {
                warn!("the guardian wrote the fallback meanwhile; writing everything again");
                control.fell_back(control_loop.lease.age_and_lease_ns(began_ns).0);
            }
            if headroom.is_now(began_ns, ticks.period_ns) {
                control.step(began_ns, late_ns, &mut apply);
                runtime.recorder.add_step(|| step_of(&control));
            }
            if !control.soft_caps.is_idle()
                && !control.is_enforced_by_sched_ext()
                && soft_caps.is_now(began_ns, ticks.period_ns)
            {
                let mut usage = Shared(&control_loop.meters);
                control.soft_caps.step(began_ns, &mut usage, &mut apply);
            }
            let ended_ns = monotonic_ns();
            control.cost.add(ended_ns, ended_ns - began_ns);
            let next_ns = control.period_ns(control_loop.period_ns);
            (next_ns, !control.soft_caps.is_idle())
        };
        watchdog.feed(began_ns);
        let renewed = control_loop.renew_lease(monotonic_ns());
        if std::mem::replace(&mut in_control, renewed) != renewed {
            match renewed {
                true => info!("side work can be cut again; the lease is renewed"),
                false => warn!(
                    "side work could not be cut three times in a row; the guardian is left to act"
                ),
            }
        }
        headroom.period_ns = next_ns;
        let period_ns = if capped {
            next_ns.min(SOFT_CAP_POLL_NS)
        } else {
            next_ns
        };
        ticks.set_period(period_ns);
    }
}

fn step_of(control: &Control) -> Step {
    let window = control.window();
    let ucpu = |ns: u64| {
        let scaled = u128::from(ns) * 1_000_000 / u128::from(window.wall_ns.max(1));
        u32::try_from(scaled).unwrap_or(u32::MAX)
    };
    let decision = control.decision();
    let small = |ucpu: u64| u32::try_from(ucpu).unwrap_or(u32::MAX);
    Step {
        unix_us: unix_us(),
        main_ucpu: small(decision.main_est_ucpu),
        side_ucpu: ucpu(window.side_ns),
        idle_ucpu: ucpu(window.idle_ns()),
        allowance_ucpu: small(decision.allowance_ucpu),
    }
}

/// Quotas are the loop's again in the very turn that finds the scheduler gone; what stands until
/// then is a copy.
pub(crate) fn follow_engine(sched_ext: &SchedExtSupervisor, control: &mut Control) {
    let enforced_by_sched_ext = sched_ext.holds();
    if control.is_enforced_by_sched_ext() && !enforced_by_sched_ext {
        warn!(
            "sched_ext: the scheduler is no more; kernel files enforce the terms from this step on"
        );
    }
    control.set_enforced_by_sched_ext(enforced_by_sched_ext);
}

/// The loop must run when the machine is full, which is when it matters: low FIFO, else the best
/// nice value.
fn raise_priority() {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameters outlive the call; 0 is the calling thread.
    if unsafe {
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameters)
    } == 0
    {
        info!("control loop: SCHED_FIFO 1");
        return;
    }
    let why = io::Error::last_os_error();
    // SAFETY: no pointers; 0 is the calling thread (on Linux, for PRIO_PROCESS).
    let niced = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) } == 0;
    // SAFETY: no pointers. The fair class wakes a thread up to 50 us late by default.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    info!(
        "control loop: no SCHED_FIFO ({why}); nice -20: {}",
        if niced { "yes" } else { "no" }
    );
}

/// Keeps the agent's pages in memory: a loop that waits for a page from disk is late when it
/// matters.
pub fn pin_memory() {
    // ONFAULT (linux/mman.h) locks what is touched instead of every byte of every stack.
    const MCL_ONFAULT: libc::c_int = 4;
    // A container has the 8 MiB of its runtime's service.
    raise_limit(Resource::Memlock, None);
    // SAFETY: no pointers.
    if unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | MCL_ONFAULT) } != 0 {
        info!("memory is not pinned: {}", io::Error::last_os_error());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_come_at_their_period_and_tell_when_one_was_late() {
        let wake = Wake::default();
        let mut ticks = Ticks::new(2_000_000);
        let began_ns = monotonic_ns();
        for _ in 0..10 {
            ticks.wait(&wake);
        }
        let took_ns = monotonic_ns() - began_ns;
        assert!(took_ns >= 17_000_000, "ten ticks of 2 ms took {took_ns} ns");

        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(ticks.wait(&wake) >= 15_000_000);
    }

    #[test]
    fn each_kind_of_step_keeps_its_period_on_a_common_timer() {
        let ms = 1_000_000;
        for (tick_ms, period_ms, want) in [
            (5, 50, 20),
            (5, 5, 200),
            (1, 5, 200),
            (50, 50, 20),
            (5, 8, 100),
        ] {
            let mut due = Due {
                period_ns: period_ms * ms,
                last_ns: 0,
            };
            let ticks = (1..=1_000 / tick_ms).map(|tick| tick * tick_ms * ms);
            let steps = ticks
                .filter(|now_ns| due.is_now(*now_ns, tick_ms * ms))
                .count();
            assert_eq!(steps, want, "{tick_ms} {period_ms}");
        }
    }

    #[test]
    fn a_change_ends_the_wait() {
        let (hour_ns, wake) = (3_600_000_000_000, Wake::default());
        let mut ticks = Ticks::new(hour_ns);
        wake.now();
        assert_eq!(ticks.wait(&wake), 0);
        ticks.set_period(1_000_000);
        ticks.wait(&wake);
    }
}
