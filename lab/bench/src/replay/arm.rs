//! An arm: which recorded work is in which gate, on which terms.

use std::collections::BTreeSet;
use std::path::PathBuf;

use tidegate_recording::{Recording, Work};
use tidegate_terms::policy::{Kind, Mode, Rule, SeenProcess};
use tidegate_terms::{Class, Config, ConfigErrors, RawTerms, Term, TermError, Terms};

use crate::replay::demand::{Demand, mean, nearest_around};
use crate::replay::recorded_terms::{asked, is_of_run, terms};

/// The name of the arm with the terms that were recorded.
pub const AS_RECORDED: &str = "as recorded";

#[derive(Clone, Debug)]
pub struct Policy {
    pub name: String,
    pub config: Config,
}

impl Policy {
    /// One policy file.
    ///
    /// # Errors
    /// It cannot be read, or is wrong: all of it.
    pub fn read(path: &std::path::Path) -> Result<Policy, ConfigErrors> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            ConfigErrors(vec![TermError::Read {
                path: PathBuf::from(path),
                why: error.to_string(),
            }])
        })?;
        Ok(Policy {
            name: path.display().to_string(),
            config: Config::from_text(path, &text)?,
        })
    }
}

/// A gate or a work without one.
#[derive(Clone, Debug)]
pub struct Node {
    pub cgroup: String,
    pub name: String,
    /// Its terms, if it is a gate.
    pub terms: Option<Terms>,
    /// The work, by its place in the demand; none for a group that a rule matches and that holds
    /// works.
    pub work: Option<usize>,
    pub parent: Option<usize>,
}

/// The machine's headroom where no gate names one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unnamed {
    /// The policy's `default_headroom`.
    Default { ppm: u32 },
    /// What was in force when it was recorded, in millionths of the machine.
    Recorded { ppm: u32 },
}

/// Which work is in which gate.
#[derive(Clone, Debug)]
pub struct Arm {
    pub name: String,
    /// Gates and works; a parent comes before what it holds.
    pub nodes: Vec<Node>,
    /// Headroom where no gate names one.
    pub unnamed: Unnamed,
    /// What of the policy has no effect, in sentences.
    pub notes: Vec<String>,
}

fn work_of<'r>(recording: &'r Recording, demand: &Demand, at: usize) -> Option<&'r Work> {
    let id = demand.works.get(at)?.id?;
    recording.works.get(&id)
}

/// The note for an arm whose engine is sched_ext.
fn sched_ext_note(arm: &str, asks_sched_ext: bool) -> Vec<String> {
    let note = || {
        format!(
            "{arm}: the simulator does not simulate the engine sched_ext; these figures are of the same terms under the engine cgroup."
        )
    };
    asks_sched_ext.then(note).into_iter().collect()
}

impl Arm {
    pub fn recorded(recording: &Recording, demand: &Demand) -> Arm {
        let with_side = recording
            .seconds
            .iter()
            .filter(|second| second.side_cpus > 0.0);
        let headroom: Vec<f64> = with_side
            .map(|second| f64::from(second.headroom_pct))
            .collect();
        let mut arm = Arm {
            name: AS_RECORDED.to_owned(),
            nodes: Vec::new(),
            // At most 100 %, to a tenth of a per cent.
            unnamed: Unnamed::Recorded {
                ppm: ((mean(&headroom) * 10.0).round().clamp(0.0, 1_000.0) as u32) * 1_000,
            },
            notes: sched_ext_note(AS_RECORDED, recording.machine.engine == "sched_ext"),
        };
        for at in 0..demand.works.len() {
            let terms = work_of(recording, demand, at).and_then(terms);
            arm.add_work(demand, at, terms);
        }
        arm.link();
        arm
    }

    /// The same with these terms for one work alone.
    pub fn with_terms(&self, name: &str, work: usize, terms: Option<Terms>) -> Arm {
        let mut arm = self.clone();
        arm.name = name.to_owned();
        for node in arm.nodes.iter_mut().filter(|node| node.work == Some(work)) {
            node.terms = terms.clone();
        }
        arm
    }

    /// The terms that a policy gives. What was set or given with `run` stays, as in the agent.
    pub fn under(recording: &Recording, demand: &Demand, policy: &Policy) -> Arm {
        let config = &policy.config;
        let settings = config.settings();
        let asks_sched_ext = settings.engine.value == tidegate_terms::Engine::SchedExt;
        let mut arm = Arm {
            name: policy.name.clone(),
            nodes: Vec::new(),
            unnamed: Unnamed::Default {
                ppm: settings.default_headroom.value.ppm().unwrap_or(0),
            },
            notes: sched_ext_note(&policy.name, asks_sched_ext),
        };
        let mut met = BTreeSet::new();
        for at in 0..demand.works.len() {
            let Some(work) = work_of(recording, demand, at) else {
                arm.add_work(demand, at, None);
                continue;
            };
            let mut rule = rule_of_process(config, work);
            if rule.is_none() && !is_of_run(work) {
                for (group, found) in rules_around(config, &work.cgroup) {
                    met.insert(found.name.clone());
                    match group == work.cgroup {
                        true => rule = Some(found),
                        false => arm.add_group(config, group, found),
                    }
                }
            }
            met.extend(rule.map(|rule| rule.name.clone()));
            let terms = arm.resolve(config, rule, work);
            arm.add_work(demand, at, terms);
        }
        arm.link();
        arm.note_rules(config, &met);
        arm
    }

    fn add_work(&mut self, demand: &Demand, at: usize, terms: Option<Terms>) {
        let work = &demand.works[at];
        self.nodes.push(Node {
            cgroup: work.cgroup.clone(),
            name: work.name.clone(),
            terms,
            work: Some(at),
            parent: None,
        });
    }

    /// A group that a rule matches, with works in it.
    fn add_group(&mut self, config: &Config, group: &str, rule: &Rule) {
        if self.nodes.iter().any(|node| node.cgroup == group) || rule.mode == Mode::Observe {
            return;
        }
        let layers: Vec<&RawTerms> = rule.terms.iter().collect();
        // Checked when the files were read.
        if let Ok(terms) = config.resolve(&layers) {
            self.nodes.push(Node {
                cgroup: group.to_owned(),
                name: group.to_owned(),
                terms: Some(terms),
                work: None,
                parent: None,
            });
        }
    }

    fn resolve(&mut self, config: &Config, rule: Option<&Rule>, work: &Work) -> Option<Terms> {
        let rule = rule.filter(|rule| rule.mode == Mode::Enforce);
        let of_rule: Vec<&RawTerms> = rule.iter().flat_map(|rule| &rule.terms).collect();
        let asked = asked(work);
        if of_rule.is_empty() && asked.is_empty() {
            return None;
        }
        let mut layers = of_rule.clone();
        layers.push(&asked);
        match config.resolve(&layers) {
            Ok(terms) => Some(terms),
            Err(error) => {
                self.notes.push(format!(
                    "{}: {}: {error}: what was set is left out",
                    self.name, work.name
                ));
                config.resolve(&of_rule).ok()
            }
        }
    }

    /// Parents before what they hold.
    fn link(&mut self) {
        self.nodes
            .sort_by_key(|node| node.cgroup.split('/').count());
        let cgroups: Vec<String> = self.nodes.iter().map(|node| node.cgroup.clone()).collect();
        let cgroups: Vec<&str> = cgroups.iter().map(String::as_str).collect();
        for (at, cgroup) in cgroups.iter().enumerate() {
            self.nodes[at].parent = nearest_around(&cgroups, cgroup);
        }
    }

    fn note_rules(&mut self, config: &Config, met: &BTreeSet<String>) {
        for rule in config.rules() {
            if !met.contains(&rule.name) {
                self.notes.push(format!(
                    "{}: rule \"{}\" matches nothing in this recording.",
                    self.name, rule.name
                ));
            } else if rule.mode == Mode::Observe {
                self.notes.push(format!(
                    "{}: rule \"{}\" only observes, so it changes nothing here either; write mode = \"enforce\" to see what it would do.",
                    self.name, rule.name
                ));
            }
        }
        if config.rules().is_empty() {
            self.notes.push(format!(
                "{}: there is no [[rule]] in it, so only what was set and given with run holds.",
                self.name
            ));
        }
    }

    /// The class of a node: its own, or that of the nearest gate around it which has one.
    pub fn class_of(&self, at: usize) -> Class {
        let node = &self.nodes[at];
        let own = node.terms.as_ref().map(|terms| terms.class.value);
        match (own.filter(|class| *class != Class::Neutral), node.parent) {
            (Some(class), _) => class,
            (None, Some(parent)) => self.class_of(parent),
            (None, None) => Class::Neutral,
        }
    }

    pub fn node_of(&self, work: usize) -> Option<usize> {
        self.nodes.iter().position(|node| node.work == Some(work))
    }
}

/// The rule of a group, as the agent has it: the last one that matches.
fn rule_of_group<'c>(config: &'c Config, group: &str) -> Option<&'c Rule> {
    let matching =
        |rule: &&Rule| rule.matches.kind() == Kind::Groups && rule.matches.allows_group(group);
    config.rules().iter().rfind(matching)
}

/// The groups from the top down to this one that have a rule. One within a group of the same rule
/// is that group's already.
fn rules_around<'c, 'g>(config: &'c Config, cgroup: &'g str) -> Vec<(&'g str, &'c Rule)> {
    let mut found: Vec<(&str, &Rule)> = Vec::new();
    let ends = cgroup.match_indices('/').map(|(at, _)| at).skip(1);
    for end in ends.chain([cgroup.len()]) {
        let group = &cgroup[..end];
        if let Some(rule) = rule_of_group(config, group)
            && found.iter().all(|(_, above)| above.name != rule.name)
        {
            found.push((group, rule));
        }
    }
    found
}

/// The rule of a gate's process. Work that `run` started has its terms already; the executable of
/// other processes is known where it was recorded, and otherwise the rule that the gate had is
/// looked for by its name.
fn rule_of_process<'c>(config: &'c Config, work: &Work) -> Option<&'c Rule> {
    if !work.is_gate || is_of_run(work) && work.rule.is_none() {
        return None;
    }
    let is_of_processes = |rule: &&Rule| rule.matches.kind() == Kind::Processes;
    let mut rules = config.rules().iter().filter(is_of_processes);
    match work.exe.is_empty() {
        true => rules.find(|rule| work.rule.as_ref() == Some(&rule.name)),
        false => {
            let seen = SeenProcess {
                group: &work.cgroup,
                exe: &work.exe,
                uid: work.uid,
                user: None,
            };
            rules.rfind(|rule| rule.matches.allows_process(&seen))
        }
    }
}

/// A gate of this class with this headroom and else the defaults.
///
/// # Panics
/// Never: class and headroom agree with each other.
pub fn side_terms(headroom: &str) -> Terms {
    let mut raw = RawTerms::default();
    raw.insert(
        Term::Class.name(),
        Class::Side.name(),
        tidegate_terms::Source::Set,
    );
    raw.insert(Term::Headroom.name(), headroom, tidegate_terms::Source::Set);
    let terms = Config::default().resolve(&[&raw]);
    terms.expect("a side gate takes a headroom")
}
