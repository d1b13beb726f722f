//! The agent's threads: the control loop, two timer loops, and the lock watch, beside the server's
//! (tokio, the main thread).
//!
//! A timer loop is one table: each row has a name, a period and a function. `housekeeping` has
//! everything that must be prompt, and its pause ends when a process or group starts. `slow-work`
//! has everything that may wait for a disk, for systemd's bus or for the kernel to move a process.
//! The lock watch has a thread of its own because it stays with a lock's holder for up to 10 ms at
//! a time. No row feeds the service manager's watchdog: any row may wait for the gates' lock, which
//! a call may hold for long.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::debug;

use crate::agent::Agent;
use crate::follow_units::follow_units;
use crate::lifecycle::housekeeping::Housekeeping;
use crate::policy::apply::end_trial;
use crate::process::notify::Watchdog;
use crate::recorder::Recorder;
use crate::runtime::jobserver::Surplus;
use crate::runtime::mechanisms::{burst, subgroups};
use crate::runtime::{
    control_thread, cpuset_controller, demand, jobserver, lock_boost, measurement, supervise,
};

const SECOND: Duration = Duration::from_secs(1);
/// A run that takes so long delays the other rows of its table.
const LONG_MS: u64 = 100;

pub(crate) struct Row<S> {
    pub name: &'static str,
    /// The time between two runs, asked for after each.
    pub period: fn(&S, &Agent) -> Duration,
    pub run: fn(&mut S, &Agent),
}

const fn every_second<S>(name: &'static str, run: fn(&mut S, &Agent)) -> Row<S> {
    Row {
        name,
        period: |_, _| SECOND,
        run,
    }
}

pub(crate) const HOUSEKEEPING: &[Row<Housekeeping>] = &[
    every_second("gates that have ended", |own, agent| {
        own.poll_gates(&agent.gates, &agent.runtime)
    }),
    every_second("guardian's fallback", |own, agent| {
        own.check_fallback(&agent.gates, &agent.runtime)
    }),
    every_second("outside writes", |own, agent| {
        own.check_outside_writes(&agent.gates, &agent.runtime)
    }),
    every_second("bursts on others' limits", |_, agent| {
        burst::follow_limits(&agent.gates, &agent.runtime)
    }),
    every_second("guardian", |own, agent| {
        own.check_guardian(&agent.runtime, &agent.life)
    }),
    every_second("figures and events", |own, agent| {
        own.note_figures(&agent.runtime, &agent.life)
    }),
    every_second("end of an unused agent", |own, agent| {
        own.leave_if_idle(&agent.gates, &agent.runtime, &agent.life)
    }),
    every_second("starts", |own, agent| own.starts.refresh(agent)),
    Row {
        name: "measurement",
        period: |_, agent| measurement::period(&agent.runtime),
        run: |_, agent| measurement::settle(&agent.runtime),
    },
    every_second("policy trial", |_, agent| end_trial(agent)),
    Row {
        name: "scheduler",
        period: |_, agent| supervise::period(&agent.runtime),
        run: |_, agent| {
            let now_ns = agent.runtime.kernel.clock.now_ns();
            supervise::supervise(&agent.gates, &agent.runtime, &agent.life, now_ns);
        },
    },
    Row {
        name: "main gates without tasks",
        period: |own, agent| demand::period(&agent.runtime, own.vacant_took_ns),
        run: |own, agent| own.vacant_took_ns = demand::poll_vacant(&agent.gates, &agent.runtime),
    },
];

#[derive(Default)]
pub(crate) struct SlowWork {
    unit_polls: u32,
    has_new_subgroups: bool,
    recorder: Option<Recorder>,
    surplus: Surplus,
}

/// Rows that may wait for a disk, for systemd's bus, or for the kernel to move a process.
pub(crate) const SLOW_WORK: &[Row<SlowWork>] = &[
    every_second("units", |own, agent| {
        follow_units(&agent.gates, &agent.runtime, &mut own.unit_polls)
    }),
    Row {
        name: "subgroups",
        period: |own, _| subgroups::period(own.has_new_subgroups),
        run: |own, agent| own.has_new_subgroups = subgroups::poll(&agent.runtime),
    },
    every_second("demand of all gates", |_, agent| {
        cpuset_controller::poll_second(&agent.gates, &agent.runtime)
    }),
    Row {
        name: "cpuset",
        period: |_, agent| cpuset_controller::period(&agent.runtime),
        run: |_, agent| cpuset_controller::poll_cpuset(&agent.gates, &agent.runtime),
    },
    Row {
        name: "jobservers",
        period: |_, agent| jobserver::period(&agent.runtime),
        run: |own, agent| own.surplus = jobserver::poll(&agent.gates, &agent.runtime),
    },
    every_second("recorder", |own, agent| {
        if let Some(recorder) = &mut own.recorder {
            recorder.poll(agent);
        }
    }),
];

/// Runs the rows until the agent leaves; `wait` passes the time until the next row is due.
pub(crate) fn run<S>(
    rows: &[Row<S>],
    state: &mut S,
    agent: &Agent,
    wait: impl Fn(&mut S, &Agent, Duration),
) {
    let clock = &agent.runtime.kernel.clock;
    let began_ns = clock.now_ns();
    let next_ns = |row: &Row<S>, state: &S, due_ns: u64| {
        let period_ns = (row.period)(state, agent).as_nanos() as u64;
        // A second stays a second, whatever a run takes; a run that was missed is not made up for.
        let now_ns = clock.now_ns();
        match due_ns + period_ns {
            next_ns if next_ns > now_ns => next_ns,
            _ => now_ns + period_ns,
        }
    };
    let mut due: Vec<u64> = rows
        .iter()
        .map(|row| next_ns(row, state, began_ns))
        .collect();
    loop {
        let first_ns = due.iter().min().copied().unwrap_or(u64::MAX);
        let pause_ns = first_ns.saturating_sub(clock.now_ns());
        wait(state, agent, Duration::from_nanos(pause_ns));
        let mut rested_ns = clock.now_ns();
        for (row, due_ns) in rows.iter().zip(&mut due) {
            if agent.life.leaving.load(Ordering::Acquire) {
                return;
            }
            let began_ns = clock.now_ns();
            if began_ns >= *due_ns {
                (row.run)(state, agent);
                let took_ms = clock.now_ns().saturating_sub(began_ns) / 1_000_000;
                if took_ms >= LONG_MS {
                    debug!("{}: {took_ms} ms", row.name);
                }
                *due_ns = next_ns(row, state, *due_ns);
                if clock.now_ns().saturating_sub(rested_ns) >= RUN_NS {
                    clock.sleep(REST);
                    rested_ns = clock.now_ns();
                }
            }
        }
    }
}

/// A thread that has run for so long rests between two rows, so that main does not wait until the
/// kernel ends its slice (4 ms at 250 ticks a second).
const RUN_NS: u64 = 200_000;
const REST: Duration = Duration::from_micros(50);

/// The thread does not preempt main as it wakes: SCHED_BATCH. It preempts side work, which is in
/// the idle class.
fn let_main_go_on() {
    let parameters = libc::sched_param { sched_priority: 0 };
    let policy = libc::SCHED_BATCH | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the parameters outlive the call; 0 is the calling thread. A thread that stays as it
    // is does its work all the same.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
}

pub(crate) fn housekeeping(mut own: Housekeeping, agent: &Agent) {
    let_main_go_on();
    own.starts.begin(agent);
    run(HOUSEKEEPING, &mut own, agent, |own, agent, pause| {
        own.starts.wait(agent, pause);
    });
    own.end(&agent.runtime);
}

pub(crate) fn slow_work(agent: &Agent) {
    let_main_go_on();
    let mut own = SlowWork {
        recorder: Recorder::begin(agent),
        ..SlowWork::default()
    };
    run(SLOW_WORK, &mut own, agent, |own, agent, pause| {
        own.surplus.take_back(&*agent.runtime.kernel.clock, pause);
    });
}

pub(crate) fn start(agent: &Arc<Agent>, own: Housekeeping) -> io::Result<Vec<JoinHandle<()>>> {
    let writer = agent.runtime.quota_writer();
    let watchdog = Watchdog::from_env();
    type Work = Box<dyn FnOnce(&Agent) + Send>;
    let threads: [(&str, Work); 4] = [
        (
            "control",
            Box::new(move |agent| {
                control_thread::run(&agent.runtime, &agent.life, writer, watchdog);
            }),
        ),
        (
            "housekeeping",
            Box::new(move |agent| housekeeping(own, agent)),
        ),
        ("slow-work", Box::new(slow_work)),
        (
            "lock-boost",
            Box::new(|agent| lock_boost::run(&agent.gates, &agent.runtime, &agent.life)),
        ),
    ];
    threads
        .into_iter()
        .map(|(name, work)| {
            let agent = Arc::clone(agent);
            std::thread::Builder::new()
                .name(name.to_owned())
                .stack_size(512 * 1024)
                .spawn(move || work(&agent))
                .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))
        })
        .collect()
}

#[cfg(test)]
pub(crate) fn once<S>(rows: &[Row<S>], state: &mut S, agent: &Agent) {
    for row in rows {
        (row.run)(state, agent);
    }
}
