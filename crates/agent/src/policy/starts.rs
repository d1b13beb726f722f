//! What starts later and matches a rule: reported by the kernel, or scanned for once a second where
//! the kernel cannot report it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_api::ObservedView;
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::target::{HeldProcess, Target};
use tidegate_engine::starts::{Start, StartWatch, Starts, Topics};
use tidegate_engine::sync::lock;
use tidegate_terms::Config;
use tidegate_terms::policy::Kind;
use tracing::{info, warn};

use crate::agent::Agent;
use crate::policy::find::{Finder, Match};
use crate::policy::in_force::tell;
use crate::policy::reconcile::{Known, alert_once, apply, is_observed};
use crate::policy::rehearse::Rehearsal;
use crate::policy::xattrs::Xattrs;
use crate::runtime::publish::publish;

const FORGET_EACH: u32 = 60;
/// A group is reported before its files are all there, and before a process is in it.
const SETTLE: Duration = Duration::from_millis(2);

#[derive(Default)]
pub(crate) struct StartFollower {
    watch: Option<StartWatch>,
    topics: Topics,
    looked_at: Option<Arc<Config>>,
    xattrs: Option<Xattrs>,
    runs: u32,
}

impl StartFollower {
    pub(crate) fn begin(&mut self, agent: &Agent) {
        if agent.runtime.settings.xattrs.value.0 {
            match Xattrs::new() {
                Ok(xattrs) => self.xattrs = Some(xattrs),
                Err(error) => warn!("xattrs: inotify: {error}; no attribute is followed"),
            }
        }
    }

    /// Waits so long, or until something starts, which then gets its rules' terms.
    pub(crate) fn wait(&mut self, agent: &Agent, most: Duration) {
        let clock = &agent.runtime.kernel.clock;
        let Some(watch) = &self.watch else {
            return clock.sleep(most);
        };
        let starts = watch.rest(most);
        if !starts.told.is_empty() {
            clock.sleep(SETTLE);
        }
        self.follow(agent, starts);
    }

    /// Follows the policy: opens the watch that its rules need, and scans everything where no watch
    /// was open.
    pub(crate) fn refresh(&mut self, agent: &Agent) {
        let config = agent.gates.config();
        let topics = Topics {
            execs: config.has_rules_of(Kind::Processes),
            groups: config.has_rules_of(Kind::Groups) || self.xattrs.is_some(),
        };
        let is_known = |known: &Arc<Config>| Arc::ptr_eq(known, &config);
        let is_new = !self.looked_at.as_ref().is_some_and(is_known);
        if topics != self.topics || is_new && self.watch.is_none() && !topics.is_none() {
            self.open(agent, topics);
        }
        self.looked_at = Some(config);
        // What started before the watch did is looked at once.
        let starts = match !topics.is_none() && (is_new || self.watch.is_none()) {
            true => Starts::lost(),
            false => Starts::default(),
        };
        self.runs += 1;
        if self.runs.is_multiple_of(FORGET_EACH)
            && let Some(xattrs) = &mut self.xattrs
        {
            xattrs.forget_gone(agent);
        }
        self.follow(agent, starts);
    }

    fn follow(&mut self, agent: &Agent, starts: Starts) {
        self.follow_xattrs(agent, &starts);
        look(agent, starts);
    }

    fn follow_xattrs(&mut self, agent: &Agent, starts: &Starts) {
        let Some(xattrs) = &mut self.xattrs else {
            return;
        };
        xattrs.follow(agent);
        if starts.has_lost {
            xattrs.watch_below(agent, &GroupPath::root());
        }
        for start in &starts.told {
            if let Start::Group(group) = start {
                xattrs.watch_below(agent, group);
            }
        }
    }

    fn open(&mut self, agent: &Agent, topics: Topics) {
        self.topics = topics;
        self.watch = None;
        if topics.is_none() {
            return;
        }
        let told = match StartWatch::open(topics) {
            Ok(watch) => {
                self.watch = Some(watch);
                "the kernel tells of each start".to_owned()
            }
            Err(why) => {
                info!("policy: what starts is looked for once a second: {why}");
                format!("looked for once a second: {why}")
            }
        };
        agent.policy.lock().watch = told;
    }
}

pub(crate) fn look(agent: &Agent, starts: Starts) {
    if starts == Starts::default() {
        return;
    }
    let config = agent.gates.config();
    let matches = matches_of(agent, &config, starts);
    if !matches.is_empty() {
        give(agent, &config, &matches);
    }
}

fn matches_of(agent: &Agent, config: &Config, starts: Starts) -> Vec<Match> {
    let finder = Finder::new(&agent.runtime.kernel, config, &agent.gates.lock());
    if starts.has_lost {
        return finder.all();
    }
    let by_group = config.has_rules_of(Kind::Groups);
    let by_process = config.has_rules_of(Kind::Processes);
    let of = |start: Start| match start {
        Start::Group(group) if by_group => finder.group(&group),
        Start::Exec(pid) if by_process => finder.process(pid),
        _ => None,
    };
    starts.told.into_iter().filter_map(of).collect()
}

/// Gives what has started its terms. A refusal costs that work its terms and nothing else; it is
/// told of.
fn give(agent: &Agent, config: &Arc<Config>, matches: &[Match]) {
    let runtime = &agent.runtime;
    let mut state = agent.policy.lock();
    let mut gates = agent.gates.lock();
    let is_leaving = agent.life.leaving.load(Ordering::Acquire);
    // Another policy came meanwhile, and looked at everything itself; or all was put back already.
    if is_leaving || !Arc::ptr_eq(config, &agent.gates.config()) {
        return;
    }
    let mut changes = Vec::new();
    let mut known = Known::of(runtime, &gates);
    for one in matches {
        match apply(runtime, &mut gates, &mut known, config, one) {
            Ok(change) => changes.extend(change),
            Err(error) => {
                let start = format!("policy: rule {}: ", one.rule);
                alert_once(runtime, &start, &format!("{}: {error}", one.target));
            }
        }
    }
    if !changes.is_empty()
        && let Err(error) = publish(runtime, &gates)
    {
        warn!("policy: {error}");
        lock(&runtime.alerts).insert(error.to_string());
    }
    let observes = |one: &&Match| {
        let is_known = state
            .observed
            .iter()
            .any(|view| view.target == one.target.to_string());
        is_observed(config, one) && !is_known
    };
    let new: Vec<Match> = matches.iter().filter(observes).cloned().collect();
    if !new.is_empty() {
        let is_there = |view: &ObservedView| match Target::parse(&view.target) {
            Ok(Target::Cgroup(group)) => runtime.kernel.groups.exists(&group),
            // Its group is where it would be written.
            Ok(Target::Unit(_)) => view.writes.first().is_some_and(|write| {
                let dir = Path::new(&write.path).parent();
                dir.is_some_and(|dir| runtime.kernel.fs.stat(dir).is_ok())
            }),
            Ok(Target::Pid(pid)) => HeldProcess::hold(&*runtime.kernel.fs, pid).is_ok(),
            _ => false,
        };
        state.observed.retain(is_there);
        match Rehearsal::new(runtime, &gates) {
            Ok(rehearsal) => state
                .observed
                .extend(rehearsal.observed(&gates, config, &new)),
            Err(error) => warn!("policy: {error}"),
        }
    }
    drop(gates);
    tell(agent, &changes);
}
