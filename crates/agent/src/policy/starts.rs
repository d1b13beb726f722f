//! What starts later and matches a rule: told by the kernel, or looked for once a second where that cannot be had. Ends trials, too.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_knobs::starts::{Start, StartWatch, Starts};
use tidegate_knobs::sync::lock;
use tidegate_terms::Config;
use tidegate_terms::policy::Mode;
use tracing::{info, warn};

use crate::agent::Agent;
use crate::policy::apply::{end_trial, tell};
use crate::policy::find::{Finder, Match};
use crate::policy::reconcile::apply;
use crate::policy::rehearse::Rehearsal;
use crate::runtime::publish::publish;

/// Between two looks where nothing starts, and at the end of a trial.
const PERIOD: Duration = Duration::from_millis(500);
/// A group is told of before its files are all there, and before a process is in it.
const SETTLE: Duration = Duration::from_millis(2);

/// The thread.
struct Follower {
    watch: Option<StartWatch>,
    /// The policy that everything was looked at under.
    looked_at: Option<Arc<Config>>,
}

/// Follows what starts until the agent leaves.
pub(crate) fn run(agent: &Agent) {
    let mut follower = Follower {
        watch: None,
        looked_at: None,
    };
    while !agent.life.leaving.load(Ordering::Acquire) {
        end_trial(agent);
        follower.follow(agent);
    }
}

impl Follower {
    /// One rest, and what has started in it.
    fn follow(&mut self, agent: &Agent) {
        let config = agent.gates.config();
        if config.rules().is_empty() {
            self.watch = None;
            self.looked_at = None;
            agent.runtime.kernel.clock.sleep(PERIOD);
            return;
        }
        let is_new = !self
            .looked_at
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, &config));
        if is_new && self.watch.is_none() {
            self.open(agent);
        }
        let starts = match &self.watch {
            // What started before the watch did is looked at once.
            _ if is_new => Starts {
                has_lost: true,
                ..Starts::default()
            },
            Some(watch) => watch.rest(PERIOD),
            None => {
                agent.runtime.kernel.clock.sleep(2 * PERIOD);
                Starts {
                    has_lost: true,
                    ..Starts::default()
                }
            }
        };
        if !starts.told.is_empty() {
            agent.runtime.kernel.clock.sleep(SETTLE);
        }
        self.looked_at = Some(config);
        look(agent, starts);
    }

    fn open(&mut self, agent: &Agent) {
        let told = match StartWatch::open() {
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

/// Gives what has started its rules' terms.
pub(crate) fn look(agent: &Agent, starts: Starts) {
    let config = agent.gates.config();
    let matches = matches_of(agent, &config, starts);
    if !matches.is_empty() {
        give(agent, &config, &matches);
    }
}

/// What of the starts the rules match.
fn matches_of(agent: &Agent, config: &Config, starts: Starts) -> Vec<Match> {
    let finder = Finder::new(&agent.runtime.kernel, config, &agent.gates.lock());
    if starts.has_lost {
        return finder.all();
    }
    let (by_group, by_process) = (finder.has_group_rules(), finder.has_process_rules());
    let of = |start: Start| match start {
        Start::Group(group) if by_group => finder.group(&group),
        Start::Exec(pid) if by_process => finder.process(pid),
        _ => None,
    };
    starts.told.into_iter().filter_map(of).collect()
}

/// Gives what has started its terms. A refusal costs that work its terms and nothing else; it is told of.
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
    for one in matches {
        match apply(runtime, &mut gates, config, one) {
            Ok(change) => changes.extend(change),
            Err(error) => {
                let what = format!("policy: {}: {error}", one.target);
                warn!("{what}");
                lock(&runtime.alerts).insert(what);
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
        let rule = config.rule(&one.rule);
        let is_known = state
            .observed
            .iter()
            .any(|view| view.target == one.target.to_string());
        rule.is_some_and(|rule| rule.mode == Mode::Observe) && !is_known
    };
    let new: Vec<Match> = matches.iter().filter(observes).cloned().collect();
    if !new.is_empty() {
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
