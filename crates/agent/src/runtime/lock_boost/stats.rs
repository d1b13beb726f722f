//! What was done for main's waits, for who asks.

use std::collections::BTreeMap;

use tidegate_api::LockBoostView;
use tidegate_cgroup::group::GroupPath;

const KEPT_MAX: usize = 64;

#[derive(Clone, Debug)]
pub(super) struct Side {
    pub gate: String,
    pub group: GroupPath,
    pub bounded: bool,
}

#[derive(Clone, Debug, Default)]
struct GateBoosts {
    times: u64,
    ns: u64,
    last: String,
}

#[derive(Debug, Default)]
pub(crate) struct LockBoostStats {
    pub(super) sides: Vec<Side>,
    pub(super) waits: u64,
    gates: BTreeMap<String, GateBoosts>,
    times: u64,
    ns: u64,
    pub(super) refused: Option<String>,
    pub(super) poll_ns: u64,
    pub(super) off: bool,
}

impl LockBoostStats {
    pub fn view(&self) -> Option<LockBoostView> {
        (!self.off).then(|| LockBoostView {
            waits: self.waits,
            times: self.times,
            seconds: self.ns as f64 / 1e9,
            refused: self.refused.clone(),
            look_us: self.poll_ns as f64 / 1e3,
        })
    }

    pub fn of_gate(&self, gate: &str) -> Option<String> {
        let boosts = self.gates.get(gate)?;
        Some(format!(
            "held locks that main waited for: went first {} times, {:.0} ms in all; last: {}",
            boosts.times,
            boosts.ns as f64 / 1e6,
            boosts.last
        ))
    }

    pub(super) fn add(&mut self, gate: &str, ns: u64, last: String) {
        self.times += 1;
        self.ns += ns;
        if self.gates.len() >= KEPT_MAX && !self.gates.contains_key(gate) {
            self.gates.pop_first();
        }
        let boosts = self.gates.entry(gate.to_owned()).or_default();
        boosts.times += 1;
        boosts.ns += ns;
        boosts.last = last;
    }
}
