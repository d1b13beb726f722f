//! `TidegatePolicy`: the terms that a cluster gives to selected pods.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::core::{Selector, SelectorExt};
use kube::{CustomResource, ResourceExt};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use tidegate_terms::{Config, RawTerms, Source, Term, TermError};

/// Terms for the pods that every selector here matches. There is at least one selector.
///
/// The API server keeps unknown fields instead of dropping them, so that an admission policy sees
/// and refuses a misspelt selector.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "tidegate.dev",
    version = "v1alpha2",
    kind = "TidegatePolicy",
    plural = "tidegatepolicies",
    shortname = "tgp",
    status = "PolicyStatus",
    printcolumn = r#"{"name":"Class","type":"string","jsonPath":".spec.class"}"#,
    printcolumn = r#"{"name":"Priority","type":"integer","jsonPath":".spec.priority"}"#,
    printcolumn = r#"{"name":"Pods","type":"integer","jsonPath":".status.matchedPods"}"#,
    printcolumn = r#"{"name":"Errors","type":"string","jsonPath":".status.errors"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend(
    "x-kubernetes-preserve-unknown-fields" = true,
    "x-kubernetes-validations" = [{
        "rule": "has(self.podSelector) || has(self.namespaceSelector) || has(self.nodeSelector) || \
            has(self.qosClass) || has(self.priorityClass) || has(self.workload)",
        "message": "no selector: write podSelector, namespaceSelector, nodeSelector, qosClass, \
            priorityClass or workload",
    }],
))]
pub struct TidegatePolicySpec {
    /// Labels of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_selector")]
    pub pod_selector: Option<LabelSelector>,
    /// Labels of the pods' namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_selector")]
    pub namespace_selector: Option<LabelSelector>,
    /// Labels of the pods' nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_selector")]
    pub node_selector: Option<LabelSelector>,
    /// The QoS class that Kubernetes gives the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "QosClass")]
    pub qos_class: Option<QosClass>,
    /// The name of the pods' PriorityClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub priority_class: Option<String>,
    /// The controller of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Workload")]
    pub workload: Option<Workload>,
    /// Of several policies for one pod, the highest number goes first; of equals, the first by
    /// name.
    #[serde(default)]
    pub priority: i32,
    /// The pods' class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<PodClass>,
    /// Other terms, by the names of docs/terms.md.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "terms")]
    pub terms: BTreeMap<String, String>,
}

/// What the cluster's controller reports about a policy.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyStatus {
    /// The generation of the policy that this is about.
    pub observed_generation: i64,
    /// How many pods it selects now.
    pub matched_pods: u32,
    /// Terms that a pod gets from another policy, which goes first.
    pub conflicts: Vec<String>,
    /// Why the agent will refuse the terms, and selectors that cannot be read.
    pub errors: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Workload {
    pub kind: WorkloadKind,
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum WorkloadKind {
    Deployment,
    StatefulSet,
    DaemonSet,
    Job,
}

impl Workload {
    /// A Deployment's pods belong to a ReplicaSet, which is named after it and the pods' hash.
    fn owns(&self, pod: &Pod) -> bool {
        let (kind, name) = match self.kind {
            WorkloadKind::Deployment => {
                let hash = pod.labels().get("pod-template-hash");
                let Some(hash) = hash else { return false };
                ("ReplicaSet".to_owned(), format!("{}-{hash}", self.name))
            }
            kind => (format!("{kind:?}"), self.name.clone()),
        };
        let is_owner = |owner: &OwnerReference| {
            owner.controller == Some(true) && owner.kind == kind && owner.name == name
        };
        pod.namespace().as_ref() == Some(&self.namespace)
            && pod.owner_references().iter().any(is_owner)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum QosClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

/// The shape of `LabelSelector`, whose own crate would have one made of every type of the API. An
/// empty one would select everything, and a misspelt one becomes empty.
fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "minProperties": 1,
        "properties": {
            "matchLabels": {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": {"type": "string"},
            },
            "matchExpressions": {"type": "array", "minItems": 1, "items": {
                "type": "object",
                "required": ["key", "operator"],
                "properties": {
                    "key": {"type": "string"},
                    "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                    "values": {"type": "array", "items": {"type": "string"}},
                },
            }},
        },
    })
}

fn terms(_: &mut SchemaGenerator) -> Schema {
    let names = Term::names().into_iter();
    let names: Vec<&str> = names.filter(|name| *name != Term::Class.name()).collect();
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": {"type": "string", "maxLength": 64},
        "x-kubernetes-validations": [{
            "rule": format!("self.all(name, name in {names:?})"),
            "message": format!("no such term; there are {}", names.join(", ")),
        }],
    })
}

/// A class that a policy gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PodClass {
    /// Latency-sensitive.
    Main,
    /// What main leaves.
    Side,
    /// Neither.
    Neutral,
}

impl PodClass {
    pub fn name(self) -> &'static str {
        match self {
            PodClass::Main => "main",
            PodClass::Side => "side",
            PodClass::Neutral => "neutral",
        }
    }
}

pub type Labels = BTreeMap<String, String>;

/// Where a pod is, as far as policies ask.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub namespace: &'a Labels,
    pub node: &'a Labels,
    /// Tidegate's own namespace. Its pods and those of kube-system get nothing from policies.
    pub own: &'a str,
}

/// The policies that hold for a pod, the first to ask first.
pub fn in_force<'a>(
    policies: impl IntoIterator<Item = &'a TidegatePolicy>,
    pod: &Pod,
    place: Place<'_>,
) -> Vec<&'a TidegatePolicy> {
    let namespace = pod.namespace().unwrap_or_default();
    if namespace == "kube-system" || namespace == place.own {
        return Vec::new();
    }
    let holds = |policy: &&TidegatePolicy| policy.spec.selects(pod, place);
    let mut found: Vec<&TidegatePolicy> = policies.into_iter().filter(holds).collect();
    found.sort_by_key(|policy| {
        (
            -i64::from(policy.spec.priority),
            policy.metadata.name.clone(),
        )
    });
    found
}

impl TidegatePolicySpec {
    fn selects(&self, pod: &Pod, place: Place<'_>) -> bool {
        let status = pod.status.as_ref();
        let qos_class = status.and_then(|status| status.qos_class.as_deref());
        let spec = pod.spec.as_ref();
        let priority_class = spec.and_then(|spec| spec.priority_class_name.as_ref());
        let asked = |qos: QosClass| qos_class == Some(format!("{qos:?}").as_str());
        matches(self.pod_selector.as_ref(), pod.labels())
            && matches(self.namespace_selector.as_ref(), place.namespace)
            && matches(self.node_selector.as_ref(), place.node)
            && self.qos_class.is_none_or(asked)
            && (self.priority_class.is_none() || self.priority_class.as_ref() == priority_class)
            && self.workload.as_ref().is_none_or(|one| one.owns(pod))
    }

    /// Every term with its value, the class among them.
    pub fn all_terms(&self) -> BTreeMap<String, String> {
        let class = self
            .class
            .map(|class| (Term::Class.name().into(), class.name().into()));
        self.terms.clone().into_iter().chain(class).collect()
    }

    /// What the API server cannot check.
    pub fn errors(&self) -> Vec<String> {
        let raw = RawTerms::from_map(&self.all_terms(), &Source::Default);
        // Without a class, terms of another policy decide which ones the pod's class takes.
        let checked = match self.class {
            Some(_) => Config::default().resolve(&[&raw]).map(drop),
            None => raw.check(),
        };
        let shown = |error: TermError| match error.name() {
            Some(name) => format!("{name}: {}", error.why()),
            None => error.why(),
        };
        let mut errors: Vec<String> = checked.err().map(shown).into_iter().collect();
        for (name, selector) in [
            ("podSelector", &self.pod_selector),
            ("namespaceSelector", &self.namespace_selector),
            ("nodeSelector", &self.node_selector),
        ] {
            if let Some(Err(error)) = selector.clone().map(Selector::try_from) {
                errors.push(format!("{name}: {error}"));
            }
        }
        errors
    }
}

/// A selector that cannot be read selects nothing: the API server's schema admits operators that it
/// does not check.
fn matches(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    selector.is_none_or(|selector| {
        Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(labels))
    })
}

/// What stronger policies of the same pod give instead of a policy's own terms.
pub fn conflicts(policy: &TidegatePolicy, stronger: &[&TidegatePolicy]) -> BTreeSet<String> {
    let own = policy.spec.all_terms();
    let other = |one: &&TidegatePolicy| {
        let (name, terms) = (one.name_any(), one.spec.all_terms());
        let differs =
            |(term, value): &(&String, &String)| own.get(*term).is_some_and(|mine| mine != *value);
        let shown = |(term, value)| format!("{term}: policy {name} goes first with {value}");
        terms.iter().filter(differs).map(shown).collect::<Vec<_>>()
    };
    stronger.iter().flat_map(other).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect()
    }

    fn policy(name: &str, spec: Value) -> TidegatePolicy {
        TidegatePolicy::new(name, serde_json::from_value(spec).expect("a policy"))
    }

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "namespace": "shop",
                "labels": {"app": "web", "pod-template-hash": "5f4d"},
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "front-5f4d", "uid": "1",
                    "controller": true,
                }],
            },
            "spec": {"containers": [], "priorityClassName": "high"},
            "status": {"qosClass": "BestEffort"},
        }))
        .expect("a pod")
    }

    fn selects_in(namespace: &str, own: &str, spec: Value) -> bool {
        let mut pod = pod();
        pod.metadata.namespace = Some(namespace.to_owned());
        let place = Place {
            namespace: &labels(&[("team", "web")]),
            node: &labels(&[("pool", "batch")]),
            own,
        };
        !in_force([&policy("p", spec)], &pod, place).is_empty()
    }

    #[test]
    fn every_selector_of_a_policy_must_match() {
        let workload = |kind: &str, namespace: &str, name: &str| {
            json!({"workload": {
                "kind": kind, "namespace": namespace, "name": name,
            }})
        };
        let selected = [
            json!({"podSelector": {"matchLabels": {"app": "web"}}}),
            json!({"namespaceSelector": {"matchLabels": {"team": "web"}}}),
            json!({"nodeSelector": {"matchLabels": {"pool": "batch"}}}),
            json!({"qosClass": "BestEffort"}),
            json!({"priorityClass": "high"}),
            workload("Deployment", "shop", "front"),
        ];
        let others = [
            json!({"podSelector": {"matchLabels": {"app": "db"}}}),
            json!({"podSelector": {"matchExpressions": [{"key": "app", "operator": "In"}]}}),
            json!({"namespaceSelector": {"matchLabels": {"team": "db"}}}),
            json!({"nodeSelector": {"matchLabels": {"pool": "web"}}}),
            json!({"qosClass": "Burstable"}),
            json!({"priorityClass": "low"}),
            json!({"qosClass": "BestEffort", "priorityClass": "low"}),
            workload("Deployment", "shop", "back"),
            workload("Deployment", "other", "front"),
            workload("StatefulSet", "shop", "front-5f4d"),
        ];
        let selects = |spec: &Value| selects_in("shop", "tidegate", spec.clone());
        for spec in &selected {
            assert!(selects(spec), "{spec}");
        }
        for spec in &others {
            assert!(!selects(spec), "{spec}");
        }
    }

    #[test]
    fn policies_do_not_reach_the_cluster_itself() {
        let all = json!({"qosClass": "BestEffort"});
        assert!(selects_in("shop", "tidegate", all.clone()));
        assert!(!selects_in("kube-system", "tidegate", all.clone()));
        assert!(!selects_in("tidegate", "tidegate", all));
    }

    #[test]
    fn the_highest_priority_goes_first_and_the_others_learn_of_it() {
        let of = |name: &str, priority: i32, class: &str| {
            policy(
                name,
                json!({"qosClass": "BestEffort", "priority": priority, "class": class}),
            )
        };
        let all = [of("b", 1, "main"), of("a", 1, "side"), of("c", 5, "side")];
        let none = Labels::new();
        let place = Place {
            namespace: &none,
            node: &none,
            own: "tidegate",
        };
        let found = in_force(&all, &pod(), place);
        let names: Vec<String> = found.iter().map(|one| one.name_any()).collect();
        assert_eq!(names, ["c", "a", "b"]);
        let of_b: Vec<String> = conflicts(found[2], &found[..2]).into_iter().collect();
        assert_eq!(
            of_b,
            [
                "class: policy a goes first with side",
                "class: policy c goes first with side"
            ]
        );
        assert!(conflicts(found[1], &found[..1]).is_empty());
    }

    #[test]
    fn terms_that_the_agent_would_refuse_are_errors() {
        let errors = |spec: Value| policy("p", spec).spec.errors().join("; ");
        assert_eq!(
            errors(json!({"class": "main", "terms": {"objective": "p99<5ms"}})),
            ""
        );
        let bad = errors(json!({"terms": {"latency": "-21"}}));
        assert!(bad.contains("latency") && bad.contains("-21"), "{bad}");
        let together = errors(json!({"class": "neutral", "terms": {"headroom": "30%"}}));
        assert!(together.contains("headroom"), "{together}");
        let selector =
            json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}});
        assert!(errors(selector).contains("podSelector: "));
    }
}
