//! What a pod's annotations and the cluster's policies make of it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tidegate_terms::Term;

use crate::PREFIX;
use crate::policy::TidegatePolicy;
use crate::resource::{SIDE_CPU, request_milli};

/// A term's value and where it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// As it is written.
    pub value: String,
    /// `annotation tidegate.dev/latency`, `policy web`, `resource tidegate.dev/side-cpu`.
    pub from: String,
}

/// What a pod gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodTerms {
    /// Its terms, by name; none for a pod that nobody gave any.
    pub terms: BTreeMap<String, Given>,
    /// What was written and does not hold, with the mend: for the pod's events.
    pub problems: Vec<String>,
}

impl PodTerms {
    /// As the agent takes them.
    pub fn raw(&self) -> BTreeMap<String, String> {
        let raw = |(name, given): (&String, &Given)| (name.clone(), given.value.clone());
        self.terms.iter().map(raw).collect()
    }

    fn give(&mut self, term: &str, value: &str, from: String) {
        self.terms.insert(
            term.to_owned(),
            Given {
                value: value.to_owned(),
                from,
            },
        );
    }
}

/// A pod's terms: of the policies that hold for it, the first one that names a term; before them its annotations. A pod that
/// requests side CPU is side. `policies` are those of [`crate::policy::in_force`].
pub fn of_pod(pod: &Pod, policies: &[&TidegatePolicy]) -> PodTerms {
    let mut pod_terms = PodTerms::default();
    for policy in policies.iter().rev() {
        let from = || format!("policy {}", policy.name_any());
        for (name, value) in &policy.spec.terms {
            match Term::from_name(name) {
                Some(term) => pod_terms.give(term.name(), value, from()),
                None => pod_terms
                    .problems
                    .push(unknown(&format!("{}: {name}", from()))),
            }
        }
        if let Some(class) = policy.spec.class {
            pod_terms.give(Term::Class.name(), class.name(), from());
        }
    }
    for (key, value) in pod.annotations() {
        let Some(name) = key.strip_prefix(PREFIX).filter(|_| key != SIDE_CPU) else {
            continue;
        };
        let from = || format!("annotation {key}");
        match Term::from_name(name) {
            Some(Term::Class)
                if value == "main" && !policies.iter().any(|one| one.spec.may_be_main) =>
            {
                let mend = "ask for a TidegatePolicy with mayBeMain: true for this namespace";
                pod_terms.problems.push(format!(
                    "{key}: main: no policy lets pods here be main; {mend}"
                ));
            }
            Some(term) => pod_terms.give(term.name(), value, from()),
            None => pod_terms.problems.push(unknown(&from())),
        }
    }
    if request_milli(pod) > 0 {
        let class = pod_terms.terms.get(Term::Class.name());
        if let Some(other) = class.filter(|given| given.value != "side") {
            pod_terms.problems.push(format!(
                "{SIDE_CPU}: a pod that requests it is side, and {} says {}; take one of them away",
                other.from, other.value
            ));
        }
        pod_terms.give(Term::Class.name(), "side", format!("resource {SIDE_CPU}"));
    }
    pod_terms
}

fn unknown(from: &str) -> String {
    let names = Term::names().join(", ");
    format!("{from}: no such term; there are {names}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::policy::{PodClass, TidegatePolicySpec};

    fn pod(annotations: Value, side_milli: Option<u64>) -> Pod {
        let mut container = json!({"name": "c"});
        if let Some(milli) = side_milli {
            container["resources"] = json!({"requests": {SIDE_CPU: milli.to_string()}});
        }
        let pod =
            json!({"metadata": {"annotations": annotations}, "spec": {"containers": [container]}});
        serde_json::from_value(pod).expect("a pod")
    }

    fn policy(name: &str, class: Option<PodClass>, terms: &[(&str, &str)]) -> TidegatePolicy {
        let terms = terms
            .iter()
            .map(|(term, value)| ((*term).into(), (*value).into()))
            .collect();
        TidegatePolicy::new(
            name,
            TidegatePolicySpec {
                class,
                terms,
                ..TidegatePolicySpec::default()
            },
        )
    }

    fn shown(found: &PodTerms) -> Vec<String> {
        let line =
            |(name, given): (&String, &Given)| format!("{name}={} ({})", given.value, given.from);
        found.terms.iter().map(line).collect()
    }

    #[test]
    fn a_pod_without_anything_gets_nothing() {
        let found = of_pod(&pod(json!({"other.dev/latency": "1"}), None), &[]);
        assert_eq!(found, PodTerms::default());
    }

    #[test]
    fn an_annotation_goes_before_a_policy_and_the_first_policy_before_the_next() {
        let first = policy("first", None, &[("latency", "-5")]);
        let next = policy(
            "next",
            Some(PodClass::Side),
            &[("latency", "9"), ("weight", "50")],
        );
        let found = of_pod(
            &pod(json!({"tidegate.dev/cap-hard": "2cpu"}), None),
            &[&first, &next],
        );
        let want = [
            "cap_hard=2cpu (annotation tidegate.dev/cap-hard)",
            "class=side (policy next)",
            "latency=-5 (policy first)",
            "weight=50 (policy next)",
        ];
        assert_eq!(shown(&found), want);
        assert!(found.problems.is_empty());
    }

    #[test]
    fn a_pod_that_requests_side_cpu_is_side_whatever_else_it_says() {
        let found = of_pod(
            &pod(json!({"tidegate.dev/class": "neutral"}), Some(500)),
            &[],
        );
        assert_eq!(
            shown(&found),
            ["class=side (resource tidegate.dev/side-cpu)"]
        );
        assert!(
            found.problems[0].contains("annotation tidegate.dev/class says neutral"),
            "{found:?}"
        );
    }

    #[test]
    fn only_a_policy_lets_a_pod_be_main() {
        let asked = pod(json!({"tidegate.dev/class": "main"}), None);
        let refused = of_pod(&asked, &[]);
        assert!(
            refused.terms.is_empty() && refused.problems[0].contains("mayBeMain"),
            "{refused:?}"
        );
        let mut lets = policy("lets", None, &[]);
        lets.spec.may_be_main = true;
        assert_eq!(
            shown(&of_pod(&asked, &[&lets])),
            ["class=main (annotation tidegate.dev/class)"]
        );
    }

    #[test]
    fn an_unknown_term_is_named_with_those_that_there_are() {
        let found = of_pod(&pod(json!({"tidegate.dev/latencyy": "1"}), None), &[]);
        assert!(
            found.problems[0].contains("latencyy") && found.problems[0].contains("cap_hard"),
            "{found:?}"
        );
    }
}
