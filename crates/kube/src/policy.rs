//! `TidegatePolicy`: what a cluster gives the pods of some namespaces, on some nodes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use kube::core::{Selector, SelectorExt};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Terms for the pods of some namespaces on some nodes. A field that this version does not know is
/// left out: one policy of a newer version must not hide all others.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "tidegate.dev",
    version = "v1alpha1",
    kind = "TidegatePolicy",
    plural = "tidegatepolicies",
    shortname = "tgp",
    printcolumn = r#"{"name":"Class","type":"string","jsonPath":".spec.class"}"#,
    printcolumn = r#"{"name":"Priority","type":"integer","jsonPath":".spec.priority"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct TidegatePolicySpec {
    /// Which namespaces, by their labels; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_selector")]
    pub namespace_selector: Option<LabelSelector>,
    /// Which nodes, by their labels; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_selector")]
    pub node_selector: Option<LabelSelector>,
    /// Of several policies for one pod, the highest number goes first; of equals, the first by
    /// name.
    #[serde(default)]
    pub priority: i32,
    /// The pods' class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<PodClass>,
    /// Other terms, by the names of docs/terms.md.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub terms: BTreeMap<String, String>,
}

/// The shape of `LabelSelector`, whose own crate would have one made of every type of the API.
fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "nullable": true,
        "properties": {
            "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
            "matchExpressions": {"type": "array", "items": {
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

/// The policies that hold for pods of a namespace on this node, the first to ask first.
pub fn in_force<'a>(
    policies: impl IntoIterator<Item = &'a TidegatePolicy>,
    namespace: &Labels,
    node: &Labels,
) -> Vec<&'a TidegatePolicy> {
    let holds = |policy: &&TidegatePolicy| {
        selects(policy.spec.namespace_selector.as_ref(), namespace)
            && selects(policy.spec.node_selector.as_ref(), node)
    };
    let mut found: Vec<&TidegatePolicy> = policies.into_iter().filter(holds).collect();
    found.sort_by_key(|policy| {
        (
            -i64::from(policy.spec.priority),
            policy.metadata.name.clone(),
        )
    });
    found
}

/// A selector that cannot be read selects nothing: the API server's schema admits operators that it
/// does not check.
fn selects(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    selector.is_none_or(|selector| {
        Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(labels))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn policy(name: &str, priority: i32, namespace: &[(&str, &str)]) -> TidegatePolicy {
        let spec = TidegatePolicySpec {
            priority,
            namespace_selector: Some(LabelSelector {
                match_labels: Some(labels(namespace)),
                ..LabelSelector::default()
            }),
            ..TidegatePolicySpec::default()
        };
        TidegatePolicy::new(name, spec)
    }

    #[test]
    fn policies_hold_where_their_labels_do_and_the_highest_priority_is_first() {
        let all = [
            policy("b", 1, &[("team", "web")]),
            policy("a", 1, &[("team", "web")]),
            policy("c", 5, &[]),
            policy("d", 9, &[("team", "batch")]),
        ];
        let found = in_force(&all, &labels(&[("team", "web")]), &Labels::new());
        let names: Vec<&str> = found
            .iter()
            .filter_map(|one| one.metadata.name.as_deref())
            .collect();
        assert_eq!(names, ["c", "a", "b"]);
    }
}
