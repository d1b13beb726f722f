//! What a pod's annotations and the cluster's policies make of it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tidegate_terms::Term;

use crate::PREFIX;
use crate::policy::{Labels, TidegatePolicy};
use crate::resource::{SIDE_CPU, request_milli};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcedTerm {
    pub value: String,
    /// `annotation tidegate.dev/latency`, `policy web`, `resource tidegate.dev/side-cpu`.
    pub from: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodTerms {
    /// Its terms, by name; none for a pod that nobody gave any.
    pub terms: BTreeMap<String, SourcedTerm>,
    pub problems: Vec<String>,
}

impl PodTerms {
    pub fn raw(&self) -> BTreeMap<String, String> {
        let raw = |(name, given): (&String, &SourcedTerm)| (name.clone(), given.value.clone());
        self.terms.iter().map(raw).collect()
    }

    fn give(&mut self, term: &str, value: &str, from: String) {
        self.terms.insert(
            term.to_owned(),
            SourcedTerm {
                value: value.to_owned(),
                from,
            },
        );
    }
}

/// Namespaces with this label, as `true`, may have main pods.
pub const MAY_BE_MAIN: &str = "tidegate.dev/may-be-main";

pub fn may_be_main(namespace: &Labels) -> bool {
    namespace
        .get(MAY_BE_MAIN)
        .is_some_and(|value| value == "true")
}

/// A pod's terms: of the policies that hold for it, the first one that names a term; beside them
/// its annotations. A pod that requests side CPU is side. `policies` are those of
/// [`crate::policy::in_force`] for the labels of its `namespace`.
///
/// Annotations are written by those who may make pods. Without [`MAY_BE_MAIN`] they may only
/// restrict the pod, and not change what a policy gives; with it they may name any term, and go
/// before the policies.
pub fn of_pod(pod: &Pod, policies: &[&TidegatePolicy], namespace: &Labels) -> PodTerms {
    let mut pod_terms = of_policies(policies);
    let any = may_be_main(namespace);
    for (key, value) in pod.annotations() {
        let Some(name) = key.strip_prefix(PREFIX).filter(|_| key != SIDE_CPU) else {
            continue;
        };
        let from = format!("annotation {key}");
        let Some(term) = Term::from_name(name) else {
            pod_terms.problems.push(unknown(&from));
            continue;
        };
        let standing = pod_terms.terms.get(term.name());
        match standing {
            _ if any => pod_terms.give(term.name(), value, from),
            Some(given) if given.value == *value => {}
            Some(given) => pod_terms.problems.push(format!(
                "{from}: {value}: {} says {}, which pods of this namespace may not change; {ASK}",
                given.from, given.value
            )),
            None if restricts(term, value) => pod_terms.give(term.name(), value, from),
            None => pod_terms.problems.push(format!(
                "{from}: {value}: it would take CPU from others, which pods of this namespace may not; {ASK}"
            )),
        }
    }
    if request_milli(pod) == 0 {
        if let Some(asked) = pod.annotations().get(SIDE_CPU) {
            pod_terms.problems.push(format!(
                "annotation {SIDE_CPU}: {asked}: the pod does not request this resource, which only a new pod can; \
                 it is not side: create it again"
            ));
        }
    } else {
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

const ASK: &str =
    "ask for the label tidegate.dev/may-be-main=true on the namespace, or for a TidegatePolicy";

fn of_policies(policies: &[&TidegatePolicy]) -> PodTerms {
    let mut pod_terms = PodTerms::default();
    for policy in policies.iter().rev() {
        for (name, value) in policy.spec.all_terms() {
            pod_terms.give(&name, &value, format!("policy {}", policy.name_any()));
        }
    }
    pod_terms
}

/// Kubelet gives a pod that requests little CPU a weight far below 100: any number may be more than
/// that. Without a class of a policy, neutral is what the pod is anyway.
fn restricts(term: Term, value: &str) -> bool {
    match term {
        Term::Weight => value == "idle",
        Term::Class => matches!(value, "side" | "neutral"),
        // More at once than kubelet's limit gives.
        Term::Burst => matches!(value, "0" | "none"),
        _ => term.is_restriction(value),
    }
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
        let line = |(name, given): (&String, &SourcedTerm)| {
            format!("{name}={} ({})", given.value, given.from)
        };
        found.terms.iter().map(line).collect()
    }

    fn labels(may_be_main: bool) -> Labels {
        let value = may_be_main.to_string();
        Labels::from([(MAY_BE_MAIN.to_owned(), value)])
    }

    fn plain(pod: &Pod, policies: &[&TidegatePolicy]) -> PodTerms {
        of_pod(pod, policies, &Labels::new())
    }

    #[test]
    fn a_pod_without_anything_gets_nothing() {
        let found = plain(&pod(json!({"other.dev/latency": "1"}), None), &[]);
        assert_eq!(found, PodTerms::default());
    }

    #[test]
    fn the_first_policy_goes_before_the_next_and_annotations_beside_them() {
        let first = policy("first", None, &[("latency", "-5")]);
        let next = policy(
            "next",
            Some(PodClass::Side),
            &[("latency", "9"), ("weight", "50")],
        );
        let found = plain(
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
    fn an_annotation_changes_what_a_policy_gives_only_where_pods_may_be_main() {
        let limits = policy("limits", Some(PodClass::Side), &[("cap_hard", "1cpu")]);
        let asks = pod(
            json!({"tidegate.dev/class": "neutral", "tidegate.dev/cap-hard": "64cpu"}),
            None,
        );
        let refused = plain(&asks, &[&limits]);
        assert_eq!(
            shown(&refused),
            [
                "cap_hard=1cpu (policy limits)",
                "class=side (policy limits)"
            ]
        );
        assert_eq!(refused.problems.len(), 2);
        assert!(
            refused.problems[0].contains("cap-hard: 64cpu: policy limits says 1cpu"),
            "{refused:?}"
        );
        let changed = of_pod(&asks, &[&limits], &labels(true));
        assert_eq!(
            shown(&changed),
            [
                "cap_hard=64cpu (annotation tidegate.dev/cap-hard)",
                "class=neutral (annotation tidegate.dev/class)",
            ]
        );
        assert!(changed.problems.is_empty());
    }

    #[test]
    fn what_takes_cpu_from_others_needs_a_namespace_that_may_be_main() {
        for (name, value) in [
            ("class", "main"),
            ("headroom", "90%"),
            ("tolerance", "50%"),
            ("latency", "-1"),
            ("weight", "100"),
            ("objective", "p99<1ms"),
            ("burst", "max"),
        ] {
            let asks = pod(json!({format!("tidegate.dev/{name}"): value}), None);
            for namespace in [Labels::new(), labels(false)] {
                let refused = of_pod(&asks, &[], &namespace);
                assert!(
                    refused.terms.is_empty() && refused.problems[0].contains(MAY_BE_MAIN),
                    "{refused:?}"
                );
            }
            let given = of_pod(&asks, &[], &labels(true));
            assert_eq!(
                shown(&given),
                [format!("{name}={value} (annotation tidegate.dev/{name})")]
            );
        }
    }

    #[test]
    fn a_pod_that_requests_side_cpu_is_side_whatever_else_it_says() {
        let found = plain(
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
    fn an_annotation_that_comes_to_a_running_pod_asks_in_vain() {
        let late = pod(json!({"tidegate.dev/side-cpu": "1500m"}), None);
        let found = plain(&late, &[]);
        assert!(found.terms.is_empty());
        assert!(
            found.problems[0].contains("side-cpu: 1500m: the pod does not request this resource"),
            "{found:?}"
        );
        let in_time = pod(json!({"tidegate.dev/side-cpu": "1500m"}), Some(1_500));
        assert!(plain(&in_time, &[]).problems.is_empty());
    }

    #[test]
    fn an_unknown_term_is_named_with_those_that_there_are() {
        let found = plain(&pod(json!({"tidegate.dev/latencyy": "1"}), None), &[]);
        assert!(
            found.problems[0].contains("latencyy") && found.problems[0].contains("cap_hard"),
            "{found:?}"
        );
    }
}
