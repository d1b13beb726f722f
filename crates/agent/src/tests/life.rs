//! A whole life of an agent: everything that it is asked to do, in order, on a machine in memory.
//! `matrix` meets it with one fault at each of its operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_api::RunRequest;
use tidegate_cgroup::KernelFs;
use tidegate_cgroup::discover::discover;
use tidegate_cgroup::group::Groups;
use tidegate_cgroup::testkit::Meanwhile;
use tidegate_engine::apply::Journal;

use super::{Bed, PIDS, STEP_NS, root, run_limited, set, set_limited, terms, unset, unset_terms};
use crate::agent::Agent;
use crate::lifecycle::housekeeping::Housekeeping;
use crate::lifecycle::renew_all;
use crate::lifecycle::repair as fallback;
use crate::paths::RunDir;
use crate::{After, MachineError};

/// The process that `run --side` becomes, the one that `set` moves, and the one that `run --main`
/// becomes.
pub const SIDE: usize = 0;
pub const LENT: usize = 1;
pub const MAIN: usize = 2;

/// One thing that an agent is asked. What it answers does not matter: the contract holds either
/// way.
pub type Ask = (&'static str, fn(&Bed, &Agent));

pub const RISE: &[Ask] = &[
    ("run --side", |_, agent| {
        drop(run_limited(agent, PIDS[SIDE]))
    }),
    ("run --main", |_, agent| drop(run_main(agent))),
    ("set pid", |_, agent| {
        drop(set(
            agent,
            &moved(),
            &[("class", "side"), ("fallback", "restore")],
        ));
    }),
    ("set cgroup", |_, agent| {
        drop(set_limited(agent, "cgroup:/other"))
    }),
    ("quota of main", |_, agent| {
        let quota = [("quota", "50ms"), ("period", "100ms"), ("burst", "10ms")];
        drop(set(agent, "gate:web", &quota));
    }),
    ("soft cap of side", |_, agent| {
        drop(set(agent, "gate:job", &[("cap_soft", "200‰")]))
    }),
    ("hints", |_, agent| {
        drop(set(agent, "gate:web", &[("latency", "-5")]));
    }),
    ("the loop", |bed, agent| steps(bed, agent, 40)),
    ("limits of their own", |_, agent| {
        let quota = [("quota", "30ms"), ("burst", "10ms")];
        drop(set(agent, "gate:job", &quota));
        drop(set(agent, "gate:web", &[("cap_hard", "500‰")]));
    }),
    ("burst of another program's limit", |_, agent| {
        drop(set(agent, "cgroup:/theirs", &[("burst", "max")]))
    }),
    ("set again", |_, agent| {
        drop(set(agent, "gate:job", &[("weight", "300")]))
    }),
];

pub const FALL: &[Ask] = &[
    ("a fallback and its end", |bed, agent| {
        drop(bed.fall_back());
        agent.runtime.control().fell_back(0);
        renew_all(&agent.gates, &agent.runtime);
    }),
    ("main rises", |bed, agent| {
        bed.main_uses(900_000);
        steps(bed, agent, 40);
    }),
    ("terms taken back", |_, agent| {
        drop(unset_terms(
            agent,
            "gate:web",
            &["latency", "quota", "period", "burst"],
        ));
    }),
    ("class and back", |_, agent| {
        drop(set(agent, "cgroup:/other", &[("class", "main")]));
        drop(set_limited(agent, "cgroup:/other"));
    }),
    ("a limit is taken back", |_, agent| {
        drop(unset_terms(agent, "gate:job", &["quota", "burst"]));
    }),
    ("unset cgroup", |_, agent| {
        drop(unset(agent, "cgroup:/other"))
    }),
    ("unset cgroup with a burst", |_, agent| {
        drop(unset(agent, "cgroup:/theirs"))
    }),
    ("unset pid", |_, agent| drop(unset(agent, &moved()))),
    ("the commands end", |bed, agent| commands_end(bed, agent)),
    ("stop", |_, agent| {
        agent.leave();
    }),
];

pub fn moved() -> String {
    format!("pid:{}", PIDS[LENT])
}

pub fn run_main(agent: &Agent) -> Result<(), String> {
    let request = RunRequest {
        pid: PIDS[MAIN],
        name: None,
        command: vec!["web".to_owned()],
        terms: terms(&[("class", "main"), ("headroom", "30%")]),
        join: false,
    };
    let answer = agent.run(&root(PIDS[MAIN]), &request);
    answer.map(drop).map_err(|error| error.to_string())
}

/// The loop's own steps, which write quotas through the journal, at times of their own.
pub fn steps(bed: &Bed, agent: &Agent, count: u64) {
    let mut writer = agent.runtime.quota_writer();
    let main_ppm = bed.sensor.main_ppm.load(Ordering::Relaxed).max(100_000);
    bed.main_uses(main_ppm);
    for nth in 0..count {
        agent
            .runtime
            .control()
            .step((nth + 1) * STEP_NS, 0, &mut writer);
    }
}

fn commands_end(bed: &Bed, agent: &Agent) {
    bed.fake.end_process(PIDS[SIDE]);
    bed.fake.end_process(PIDS[MAIN]);
    let mut housekeeping = Housekeeping::new(None);
    for _ in 0..3 {
        housekeeping.poll_gates(&agent.gates, &agent.runtime);
        housekeeping.check_outside_writes(&agent.gates, &agent.runtime);
    }
}

/// What the guardian of a frozen agent does on this machine; the flag tells the agent when it has
/// thawed.
pub fn guardian_acts(
    machine: Arc<dyn KernelFs>,
    run_dir: &RunDir,
    acted: &Arc<AtomicBool>,
) -> Meanwhile {
    let (run_dir, acted) = (run_dir.clone(), Arc::clone(acted));
    Meanwhile(Arc::new(move || {
        let opened = discover(&*machine, None)
            .map_err(MachineError::from)
            .and_then(|found| Ok(fallback::open_on(Arc::clone(&machine), &found, &run_dir)?));
        if let Ok((_, mut journal)) = opened {
            drop(journal.fall_back(0));
        }
        acted.store(true, Ordering::SeqCst);
    }))
}

/// The loop's and housekeeping's part once the lease says that a guardian wrote the fallback.
pub fn thaw(agent: &Agent, acted: &AtomicBool) {
    if acted.swap(false, Ordering::SeqCst) {
        agent.runtime.control().fell_back(0);
        renew_all(&agent.gates, &agent.runtime);
    }
}

impl Bed {
    fn journal(&self) -> Result<(Arc<Groups>, Journal), MachineError> {
        let fs: Arc<dyn KernelFs> = Arc::clone(&self.fs) as Arc<dyn KernelFs>;
        let machine = discover(&*fs, None)?;
        Ok(fallback::open_on(fs, &machine, &self.run_dir())?)
    }

    pub fn fall_back(&self) -> Result<Vec<String>, String> {
        let (_, mut journal) = self.journal().map_err(|error| error.to_string())?;
        Ok(journal.fall_back(0))
    }

    /// What `tidegate agent repair` does.
    pub fn repair(&self, after: After) -> Result<Vec<String>, String> {
        let (groups, mut journal) = self.journal().map_err(|error| error.to_string())?;
        fallback::repair_with(&groups, &mut journal, &self.run_dir(), after)
            .map_err(|error| error.to_string())
    }

    /// What must hold at every moment, whichever process is dead: a line for each breach.
    pub fn breaches(&self) -> Vec<String> {
        let mut found = Vec::new();
        for nth in [SIDE, LENT] {
            let place = self.place(PIDS[nth]);
            if place.contains("tg-side/") && !self.is_bounded("/tg-side") {
                let values = self.values("/tg-side");
                found.push(format!("process {} unlimited: {values:?}", PIDS[nth]));
            }
        }
        if self.exists("/tg-main") {
            let values = self.values("/tg-main");
            let limited = values[0] != "-1" && !values[0].starts_with("max");
            if limited || values.last().is_some_and(|idle| idle == "1") {
                found.push(format!("main is limited: {values:?}"));
            }
        }
        if self.place(PIDS[MAIN]).contains("tg-side") {
            found.push("main is among side work".to_owned());
        }
        found
    }

    /// Has a quota, and is idle class or at no more than the tolerance.
    fn is_bounded(&self, group: &str) -> bool {
        self.exists(group) && self.is_limited(group)
    }

    /// Ends what an agent has, and insists that it can.
    pub fn wind_up(&self, agent: &Agent) -> Result<(), String> {
        for target in [moved(), "cgroup:/other".to_owned()] {
            let known = agent
                .gates
                .lock()
                .iter()
                .any(|gate| gate.record.target == target);
            if known {
                unset(agent, &target).map_err(|error| format!("unset {target}: {error}"))?;
            }
        }
        commands_end(self, agent);
        agent.leave();
        Ok(())
    }
}
