//! What the API server wrote down of our calls.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tidegate_kube::resource::SIDE_CPU;

/// Between two writes of a node, 30 s of a clock of whole seconds.
const GAP: SignedDuration = SignedDuration::from_secs(29);

/// The calls of all nodes.
#[derive(Debug, Default)]
pub struct Audit {
    pub calls: BTreeMap<String, usize>,
    /// Writes of the key that were taken.
    pub writes: usize,
    /// Amounts written too soon after the write before: each node, with both writes.
    pub too_soon: Vec<String>,
    /// Deletions that were not waited for: more was bound than published.
    pub early_deletions: usize,
    /// Calls that the API server refused for their number.
    pub too_many_requests: usize,
    /// Of each node the amounts that it published, with their times; null for a deletion.
    pub amounts: Amounts,
}

/// They are printed of the nodes in question alone.
#[derive(Default)]
pub struct Amounts(HashMap<String, Vec<(Timestamp, Value)>>);

impl Amounts {
    pub fn nodes(&self) -> usize {
        self.0.len()
    }
}

impl std::fmt::Debug for Amounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "of {} nodes", self.nodes())
    }
}

impl Audit {
    pub fn of_node(&self, node: &str) -> &[(Timestamp, Value)] {
        self.amounts.0.get(node).map_or(&[], Vec::as_slice)
    }
}

pub fn read(log: &Path) -> Audit {
    let text = std::fs::read_to_string(log).expect("the log is there");
    let mut audit = Audit::default();
    for line in text.lines() {
        let Ok(call) = serde_json::from_str::<Value>(line) else {
            // The API server was killed while it wrote.
            continue;
        };
        let field = |name: &str| call[name].as_str().unwrap_or_default();
        let of = |name: &str| call["objectRef"][name].as_str().unwrap_or_default();
        let code = call["responseStatus"]["code"].as_u64().unwrap_or(0);
        let what = format!("{} {} {code}", field("verb"), of("resource"));
        *audit.calls.entry(what).or_default() += 1;
        audit.too_many_requests += usize::from(code == 429);
        let status = &call["requestObject"]["status"];
        let Some(amount) = status["capacity"].get(SIDE_CPU).filter(|_| code == 200) else {
            continue;
        };
        let at: Timestamp = field("requestReceivedTimestamp").parse().expect("a time");
        let name = of("name");
        let of_node = audit.amounts.0.entry(name.to_owned()).or_default();
        let last = of_node.last().cloned();
        let before = last.filter(|(before, _)| at.duration_since(*before) < GAP);
        of_node.push((at, amount.clone()));
        // The last write of a publisher that ends is not one of its rule.
        let is_last = status["conditions"][0]["$patch"] == "delete";
        audit.writes += 1;
        let Some((then, was)) = before else {
            continue;
        };
        if !amount.is_null() {
            let told = format!("{name}: {was} at {then}, then {amount} at {at}");
            audit.too_soon.push(told);
        } else if !is_last {
            audit.early_deletions += 1;
        }
    }
    audit
}
