//! What was set on a gate with privilege may be tightened without, and never loosened.

use tidegate_api::{ApiError, ApiResult, ErrorKind};
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::group::WEIGHT_DEFAULT;
use tidegate_engine::limit::{at_once_us, with_burst};
use tidegate_terms::{Burst, Term};

use crate::gates::Gate;
use crate::peer::ask_an_admin;

/// The limits that belong together: who set one of them set them all.
const BOUNDS: [Term; 6] = [
    Term::Quota,
    Term::Period,
    Term::Burst,
    Term::CapHard,
    Term::CapSoft,
    Term::CapScope,
];

fn is_by_admin(gate: &Gate, terms: &[Term]) -> bool {
    let record = &gate.record;
    let is_by_admin = |name| record.by_admin.contains(name) || record.ruled.contains(name);
    terms.iter().any(|term| is_by_admin(term.name()))
}

/// Whether the gate has a limit that was set with privilege, or a weight below that which a gate of
/// one's own has.
pub fn is_bounded_by_admin(gate: &Gate) -> bool {
    let is_light = gate.terms.cpu_weight() < WEIGHT_DEFAULT && is_by_admin(gate, &[Term::Weight]);
    is_light || (gate.terms.is_bounded() && is_by_admin(gate, &BOUNDS))
}

/// Whether `changed`, asked for without privilege, is nowhere looser than what was set with
/// privilege.
pub fn only_tightens(gate: &Gate, changed: &Gate) -> ApiResult<()> {
    let by_admin = |terms: &[Term]| is_by_admin(gate, terms);
    let looser = |what: &str, stands: String| {
        let detail = format!(
            "{what}: gate {}: {stands} was set with privilege, and this would loosen it",
            gate.record.name
        );
        let remedy = format!("ask for less, or {}", ask_an_admin());
        Err(ApiError::new(ErrorKind::Denied, detail).with_remedy(remedy))
    };
    if by_admin(&BOUNDS) {
        let (old, new) = (most(gate), most(changed));
        if let Some(old) = old
            && !new.is_some_and(|new| is_within(&new, &old))
        {
            return looser("quota, cap_hard", old.to_string());
        }
        let soft = |gate: &Gate| gate.terms.cap_soft.value.ppt().unwrap_or(u32::MAX);
        if soft(changed) > soft(gate) {
            return looser("cap_soft", gate.terms.cap_soft.value.to_string());
        }
        let capped = gate.terms.cap_hard.value.ppt().is_some() || soft(gate) != u32::MAX;
        if capped && changed.terms.cap_scope.value != gate.terms.cap_scope.value {
            return looser("cap_scope", gate.terms.cap_scope.value.to_string());
        }
        let hard = |gate: &Gate| gate.terms.cap_hard.value.ppt().unwrap_or(u32::MAX);
        if hard(changed) > hard(gate) {
            return looser("cap_hard", gate.terms.cap_hard.value.to_string());
        }
    }
    if by_admin(&[Term::Weight]) && changed.terms.cpu_weight() > gate.terms.cpu_weight() {
        return looser("weight", gate.terms.cpu_weight().to_string());
    }
    let most = |gate: &Gate| gate.terms.memory_high.value.bytes().wrapping_sub(1);
    if by_admin(&[Term::MemoryHigh]) && most(changed) > most(gate) {
        return looser("memory_high", gate.terms.memory_high.value.to_string());
    }
    let hint = |gate: &Gate| gate.terms.latency.value.hint();
    if by_admin(&[Term::Latency]) && hint(changed) < hint(gate) {
        return looser("latency", hint(gate).to_string());
    }
    Ok(())
}

/// The own limit with all the burst that the groups above may ever leave it.
fn most(gate: &Gate) -> Option<Bandwidth> {
    match gate.terms.burst.value {
        Burst::Max => with_burst(&gate.terms, u64::MAX),
        Burst::Of(_) => gate.own_limit(),
    }
}

/// By rate and by what may be used at once, which bound use over any time; how that divides into
/// quota and burst does not.
fn is_within(new: &Bandwidth, old: &Bandwidth) -> bool {
    new.rate_no_above(old) && at_once_us(new) <= at_once_us(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(pairs: &[(&str, &str)], by_admin: &[&str]) -> Gate {
        let mut gate = crate::gates::of_terms("job", pairs);
        gate.record.by_admin = by_admin.iter().map(|name| (*name).to_owned()).collect();
        gate
    }

    #[test]
    fn what_was_set_with_privilege_is_only_tightened() {
        let quota = [("quota", "20ms"), ("burst", "5ms")];
        let stands = gate(&quota, &["quota", "burst"]);
        for tighter in [
            &[("quota", "20ms"), ("burst", "5ms")][..],
            &[("quota", "10ms")],
            &[("quota", "2ms"), ("period", "10ms")],
            &[("quota", "20ms"), ("cap_hard", "100‰")],
        ] {
            assert_eq!(
                only_tightens(&stands, &gate(tighter, &[])),
                Ok(()),
                "{tighter:?}"
            );
        }
        for looser in [
            &[][..],
            &[("quota", "21ms")],
            &[("quota", "20ms"), ("burst", "6ms")],
            &[("quota", "20ms"), ("burst", "max")],
            &[("quota", "200ms"), ("period", "1s")],
            &[("cap_hard", "201‰")],
        ] {
            let refused = only_tightens(&stands, &gate(looser, &[])).unwrap_err();
            assert!(
                refused.detail.contains("with privilege"),
                "{looser:?}: {refused}"
            );
            // One's own may be loosened.
            assert_eq!(
                only_tightens(&gate(&quota, &[]), &gate(looser, &[])),
                Ok(())
            );
        }
    }

    #[test]
    fn caps_scopes_weights_and_hints_likewise() {
        type Pairs = &'static [(&'static str, &'static str)];
        let cases: [(Pairs, Pairs, bool); 6] = [
            (&[("cap_soft", "100‰")], &[("cap_soft", "50‰")], true),
            (&[("cap_soft", "100‰")], &[], false),
            (
                &[("cap_hard", "100‰")],
                &[("cap_hard", "100‰"), ("cap_scope", "task")],
                false,
            ),
            (
                &[("cap_hard", "100‰"), ("cap_scope", "task")],
                &[("cap_hard", "200‰"), ("cap_scope", "task")],
                false,
            ),
            (&[("weight", "10")], &[("weight", "100")], false),
            (&[("latency", "5")], &[("latency", "0")], false),
        ];
        for (stands, asked, may) in cases {
            let names: Vec<&str> = stands.iter().map(|(name, _)| *name).collect();
            let got = only_tightens(&gate(stands, &names), &gate(asked, &[]));
            assert_eq!(got.is_ok(), may, "{stands:?} -> {asked:?}: {got:?}");
        }
    }
}
