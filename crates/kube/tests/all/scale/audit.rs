//! What the API server wrote down of our calls.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tidegate_kube::resource::SIDE_CPU;

/// Between two writes of a node, less what the first may take to reach the API server: tidegate-kube waits 10 s for it.
const GAP: SignedDuration = SignedDuration::from_secs(20);

/// The calls of all nodes.
#[derive(Debug, Default)]
pub struct Audit {
    /// By verb, resource and answer.
    pub calls: BTreeMap<String, usize>,
    /// Writes of the key that were taken.
    pub writes: usize,
    /// Amounts written too soon after the write before.
    pub too_soon: usize,
    /// Deletions that were not waited for: more was bound than published.
    pub early_deletions: usize,
    /// Calls that the API server refused for their number.
    pub too_many_requests: usize,
}

/// Reads the log.
pub fn read(log: &Path) -> Audit {
    let text = std::fs::read_to_string(log).expect("the log is there");
    let mut audit = Audit::default();
    let mut last: HashMap<String, Timestamp> = HashMap::new();
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
        let before = last.insert(of("name").to_owned(), at);
        let is_soon = before.is_some_and(|before| at.duration_since(before) < GAP);
        // The last write of a publisher that ends is not one of its rule.
        let is_last = status["conditions"][0]["$patch"] == "delete";
        audit.writes += 1;
        audit.too_soon += usize::from(is_soon && !amount.is_null());
        audit.early_deletions += usize::from(is_soon && amount.is_null() && !is_last);
    }
    audit
}
