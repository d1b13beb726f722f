//! What enforces the gates' terms on the machine. The timers that run it are the tables of
//! `threads`.
//!
//! | file | idea |
//! |---|---|
//! | `control_thread` | the loop's thread (5 to 500 ms) |
//! | `check` | terms that are refused |
//! | `limits` | groups, membership, weight, idle class |
//! | `attach` | processes and groups that were there before |
//! | `make` | a gate around what was there before |
//! | `mechanisms` | a gate's own terms: quota, burst, caps, hints |
//! | `publish` | telling loop, guardian and the next agent what the gates are |
//! | `demand` | what all gates ask for together, and main gates without tasks |
//! | `measure` | what gates use |
//! | `measure_advice` | what a measurement comes to |
//! | `measurement` | what side work costs main |
//! | `held` | which limit holds a gate back |
//! | `jobserver` | how many jobs builds run at once |
//! | `supervise` | the scheduler's life |
//! | `scheduler_plan` | what the gates come to for the scheduler |
//! | `scheduler_view` | what is shown of the scheduler |
//! | `cpuset_controller` | idle kept by the cpuset |
//! | `lock_boost` | holders of locks that main waits for |
//!
//! What needs the machine alone takes [`Kernel`]; what also needs the loop's state takes
//! [`ControlLoop`]; only what needs other parts as well takes [`Runtime`].

pub(crate) mod attach;
pub(crate) mod check;
pub(crate) mod confinement;
pub(crate) mod control_thread;
pub(crate) mod cpuset_controller;
pub(crate) mod demand;
pub(crate) mod held;
pub(crate) mod jobserver;
pub(crate) mod limits;
pub(crate) mod lock_boost;
pub(crate) mod make;
pub(crate) mod measure;
pub(crate) mod measure_advice;
pub(crate) mod measurement;
pub(crate) mod mechanisms;
pub(crate) mod publish;
pub(crate) mod scheduler_plan;
pub(crate) mod scheduler_view;
pub(crate) mod supervise;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use tidegate_api::{Decision, GroupDecision};
use tidegate_cgroup::group::GroupPath;
use tidegate_engine::apply::{Journal, QuotaWriter};
use tidegate_engine::control::{Control, decision_of};
use tidegate_engine::sync::lock;
use tidegate_terms::Settings;

use crate::control_loop::ControlLoop;
use crate::events::Events;
use crate::gates::stored::UnreadRecord;
use crate::history::History;
use crate::kernel::Kernel;
use crate::recorder_state::RecorderState;
use crate::runtime::scheduler_view::sched_ext_decision;
use crate::sched_ext::SchedExtSupervisor;
use cpuset_controller::CpusetController;
use jobserver::Jobservers;
use lock_boost::LockBoostStats;
use measurement::Measurement;
use mechanisms::Subgroups;

/// An alert that goes once its gate has ended or is set again.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GateAlert {
    pub gate: String,
    /// The number of the journal entry whose value the agent leaves as another program wrote it.
    pub left_alone: Option<u64>,
    pub text: String,
}

pub struct Runtime {
    pub kernel: Kernel,
    pub control_loop: ControlLoop,
    pub(crate) sched_ext: SchedExtSupervisor,
    /// Groups without tasks of main gates that name a headroom, and since when.
    pub(crate) empty_mains: Mutex<Vec<(GroupPath, u64)>>,
    pub(crate) subgroups: Mutex<Subgroups>,
    pub(crate) cpuset: Mutex<CpusetController>,
    pub(crate) lock_boost: Mutex<LockBoostStats>,
    /// Gates that another version wrote down in a way that this one cannot read: left as they are.
    pub(crate) unread_records: Mutex<Vec<UnreadRecord>>,
    pub(crate) measurement: Mutex<Option<Measurement>>,
    pub(crate) jobservers: Mutex<Jobservers>,
    pub(crate) events: Events,
    pub(crate) history: History,
    pub(crate) recorder: RecorderState,
    pub alerts: Mutex<BTreeSet<String>>,
    pub(crate) gate_alerts: Mutex<BTreeSet<GateAlert>>,
    pub settings: Settings,
}

impl Runtime {
    pub(crate) fn new(
        kernel: Kernel,
        control_loop: ControlLoop,
        sched_ext: SchedExtSupervisor,
        cpuset: CpusetController,
        settings: Settings,
    ) -> Self {
        Self {
            kernel,
            control_loop,
            sched_ext,
            empty_mains: Mutex::default(),
            subgroups: Mutex::default(),
            cpuset: Mutex::new(cpuset),
            lock_boost: Mutex::default(),
            unread_records: Mutex::default(),
            measurement: Mutex::default(),
            jobservers: Mutex::default(),
            events: Events::default(),
            history: History::default(),
            recorder: RecorderState::default(),
            alerts: Mutex::default(),
            gate_alerts: Mutex::default(),
            settings,
        }
    }

    pub(crate) fn all_alerts(&self) -> Vec<String> {
        let of_gates = lock(&self.gate_alerts);
        let of_gates = of_gates.iter().map(|alert| alert.text.clone());
        lock(&self.alerts).iter().cloned().chain(of_gates).collect()
    }

    pub(crate) fn alert_of(&self, gate: &str, left_alone: Option<u64>, text: String) {
        lock(&self.gate_alerts).insert(GateAlert {
            gate: gate.to_owned(),
            left_alone,
            text,
        });
    }

    pub(crate) fn end_alerts_of(&self, gate: &str) {
        lock(&self.gate_alerts).retain(|alert| alert.gate != gate);
    }

    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        self.control_loop.lock()
    }

    /// The last decision on side work: the control loop's, or the scheduler's while that is in
    /// force. The kernel's quotas are then those for the time without the scheduler.
    pub(crate) fn decision(&self) -> Decision {
        let (by_loop, second) = {
            let control = self.control();
            (control.decided(), control.meter.second())
        };
        let Some(law) = sched_ext_decision(&self.sched_ext, &second) else {
            return by_loop;
        };
        let decision = decision_of(&law);
        let groups = by_loop.groups.into_iter().map(|group| {
            let path = GroupPath::parse(&group.group).ok();
            let standing = path.and_then(|path| self.kernel.groups.bandwidth(&path).ok());
            GroupDecision {
                allowance_cpus: Some(decision.allowance_cpus),
                quota_us: standing.and_then(|quota| quota.quota_us),
                period_us: standing.map(|quota| quota.period_us),
                limit: decision.limit,
                ..group
            }
        });
        Decision {
            groups: groups.collect(),
            ..decision
        }
        .with_sentence()
    }

    pub(crate) fn journal(&self) -> MutexGuard<'_, Journal> {
        self.kernel.journal()
    }

    /// The names of another version's gates, which stay as they are. Records without a group are
    /// dropped.
    pub(crate) fn unread_names(&self) -> BTreeSet<String> {
        let mut unread = lock(&self.unread_records);
        let is_there = |group| self.kernel.groups.exists(&group);
        unread.retain(|record| record.group().is_none_or(is_there));
        unread
            .iter()
            .map(|record| record.name().to_owned())
            .collect()
    }

    pub(crate) fn quota_writer(&self) -> QuotaWriter {
        QuotaWriter {
            groups: Arc::clone(&self.kernel.groups),
            journal: Arc::clone(&self.kernel.journal),
            out_of_idle: (self.kernel.side_root(), lock(&self.cpuset).out_of_idle()),
        }
    }
}
