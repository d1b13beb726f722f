//! Which gates the agent must have for the pods of its node.

use std::collections::BTreeMap;

use tidegate_api::GateView;
use tidegate_terms::Term;

pub type RawTerms = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodGate {
    /// The pod's group, below the mount of the cpu controller.
    pub group: String,
    /// `namespace/name`, for messages.
    pub pod: String,
    pub terms: RawTerms,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Set {
        target: String,
        terms: RawTerms,
    },
    Unset {
        target: String,
        /// Their names; all of them where empty.
        terms: Vec<String>,
    },
}

impl Change {
    /// The same for the class alone; none where nothing else was asked for, or no class.
    pub fn only_class(&self) -> Option<Change> {
        let Change::Set { target, terms } = self else {
            return None;
        };
        let (name, class) = terms.get_key_value(Term::Class.name())?;
        let terms = RawTerms::from([(name.clone(), class.clone())]);
        let target = target.clone();
        (self
            != &Change::Set {
                target: target.clone(),
                terms: terms.clone(),
            })
            .then_some(Change::Set { target, terms })
    }
}

/// What the agent said to each group's terms, as far as this process knows: the agent shows a value
/// in another form than it was given. A call that got no answer is neither.
#[derive(Default)]
pub struct AgentAnswers {
    taken: BTreeMap<String, RawTerms>,
    refused: BTreeMap<String, (RawTerms, u64)>,
}

/// A refusal may end with its cause, as when another writer lets go of the group.
const RETRY_S: u64 = 10;

impl AgentAnswers {
    /// The calls that bring the agent's gates to what is wanted, each with its group.
    pub fn changes(
        &mut self,
        wanted: &[PodGate],
        gates: &[GateView],
        now_s: u64,
    ) -> Vec<(String, Change)> {
        let is_wanted = |group: &str| wanted.iter().any(|one| one.group == group);
        self.taken.retain(|group, _| is_wanted(group));
        self.refused.retain(|group, _| is_wanted(group));
        let mut changes = Vec::new();
        for one in wanted {
            let gate = gates.iter().find(|gate| gate.cgroup == one.group);
            let is_taken = gate.is_some() && self.taken.get(&one.group) == Some(&one.terms);
            let waits =
                |(terms, until_s): &(RawTerms, u64)| *terms == one.terms && now_s < *until_s;
            if is_taken || self.refused.get(&one.group).is_some_and(waits) {
                continue;
            }
            let stale: Vec<String> = gate
                .map(given_terms)
                .unwrap_or_default()
                .into_iter()
                .filter(|name| !one.terms.contains_key(name))
                .collect();
            let target = format!("cgroup:{}", one.group);
            if !stale.is_empty() {
                changes.push((
                    one.group.clone(),
                    Change::Unset {
                        target: target.clone(),
                        terms: stale,
                    },
                ));
            }
            changes.push((
                one.group.clone(),
                Change::Set {
                    target,
                    terms: one.terms.clone(),
                },
            ));
        }
        for gate in gates
            .iter()
            .filter(|gate| is_of_pod(&gate.cgroup) && !given_terms(gate).is_empty())
            .filter(|gate| !is_wanted(&gate.cgroup))
        {
            let target = format!("cgroup:{}", gate.cgroup);
            changes.push((
                gate.cgroup.clone(),
                Change::Unset {
                    target,
                    terms: Vec::new(),
                },
            ));
        }
        changes
    }

    pub fn taken(&mut self, group: &str, change: &Change) {
        if let Change::Set { terms, .. } = change {
            self.taken.insert(group.to_owned(), terms.clone());
            self.refused.remove(group);
        }
    }

    pub fn refused(&mut self, group: &str, change: &Change, now_s: u64) {
        if let Change::Set { terms, .. } = change {
            let until = (terms.clone(), now_s + RETRY_S);
            self.refused.insert(group.to_owned(), until);
        }
    }
}

/// The gate of a pod's own group; those of its containers are not ours.
fn is_of_pod(group: &str) -> bool {
    let last = group.rsplit('/').next().unwrap_or_default();
    group.contains("/kubepods") && last.contains("pod") && !last.ends_with(".scope")
}

/// Terms that were set while it ran: not defaults, and not those of a file.
fn given_terms(gate: &GateView) -> Vec<String> {
    let is_set = |source: &str| source.split_whitespace().next() == Some("set");
    let set = gate.terms.iter().filter(|term| is_set(&term.source));
    set.map(|term| term.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use tidegate_api::TermView;

    use super::*;

    const GROUP: &str = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice";

    fn terms(pairs: &[(&str, &str)]) -> RawTerms {
        pairs
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect()
    }

    fn wanted(pairs: &[(&str, &str)]) -> PodGate {
        PodGate {
            group: GROUP.into(),
            pod: "a/b".into(),
            terms: terms(pairs),
        }
    }

    fn gate(names: &[&str]) -> GateView {
        let term = |name: &&str| TermView {
            name: (*name).into(),
            source: "set".into(),
            ..TermView::default()
        };
        GateView {
            cgroup: GROUP.into(),
            terms: names.iter().map(term).collect(),
            ..GateView::default()
        }
    }

    fn calls(given: &mut AgentAnswers, wanted: &[PodGate], gates: &[GateView]) -> Vec<Change> {
        let changes = given.changes(wanted, gates, 0);
        for (group, change) in &changes {
            given.taken(group, change);
        }
        changes.into_iter().map(|one| one.1).collect()
    }

    fn set(pairs: &[(&str, &str)]) -> Change {
        Change::Set {
            target: format!("cgroup:{GROUP}"),
            terms: terms(pairs),
        }
    }

    fn unset(names: &[&str]) -> Change {
        let terms = names.iter().map(|name| (*name).to_owned()).collect();
        Change::Unset {
            target: format!("cgroup:{GROUP}"),
            terms,
        }
    }

    #[test]
    fn a_pod_gets_its_gate_once() {
        let mut given = AgentAnswers::default();
        let side = [wanted(&[("class", "side")])];
        assert_eq!(calls(&mut given, &side, &[]), [set(&[("class", "side")])]);
        assert_eq!(calls(&mut given, &side, &[gate(&["class"])]), []);
    }

    #[test]
    fn of_a_refused_gate_the_class_alone_is_tried() {
        let refused = set(&[("class", "side"), ("weight", "x")]);
        assert_eq!(refused.only_class(), Some(set(&[("class", "side")])));
        for other in [
            set(&[("class", "side")]),
            set(&[("weight", "1")]),
            unset(&["class"]),
        ] {
            assert_eq!(other.only_class(), None);
        }
    }

    #[test]
    fn a_gate_that_the_agent_lost_is_given_again() {
        let mut given = AgentAnswers::default();
        let side = [wanted(&[("class", "side")])];
        calls(&mut given, &side, &[]);
        assert_eq!(calls(&mut given, &side, &[]), [set(&[("class", "side")])]);
    }

    #[test]
    fn refused_terms_are_tried_again_after_a_while_and_unanswered_ones_at_once() {
        let mut given = AgentAnswers::default();
        let bad = [wanted(&[("class", "side"), ("weight", "x")])];
        let (group, change) = given.changes(&bad, &[], 0).remove(0);
        assert_eq!(given.changes(&bad, &[], 1).len(), 1, "no answer");
        given.refused(&group, &change, 1);
        let with_class = [gate(&["class"])];
        assert_eq!(given.changes(&bad, &with_class, 10), []);
        assert_eq!(given.changes(&bad, &with_class, 11).len(), 1);
        let fixed = [wanted(&[("class", "side"), ("weight", "5")])];
        assert_eq!(given.changes(&fixed, &with_class, 2).len(), 1);
    }

    #[test]
    fn a_term_that_went_is_taken_back_even_by_a_process_that_did_not_give_it() {
        let mut given = AgentAnswers::default();
        let found = [gate(&["class", "latency"])];
        let calls_made = calls(&mut given, &[wanted(&[("class", "side")])], &found);
        assert_eq!(calls_made, [unset(&["latency"]), set(&[("class", "side")])]);
    }

    #[test]
    fn a_gate_of_a_pod_that_wants_none_ends_and_others_are_left_alone() {
        let mut given = AgentAnswers::default();
        let by_file = GateView {
            terms: vec![TermView {
                source: "rule web".into(),
                ..TermView::default()
            }],
            ..gate(&[])
        };
        let elsewhere = GateView {
            cgroup: "/system.slice/a.service".into(),
            ..gate(&["class"])
        };
        let container = GateView {
            cgroup: format!("{GROUP}/cri-1.scope"),
            ..gate(&["class"])
        };
        assert_eq!(calls(&mut given, &[], &[by_file, elsewhere, container]), []);
        assert_eq!(calls(&mut given, &[], &[gate(&["class"])]), [unset(&[])]);
    }
}
