//! The terms of a recorded work.

use tidegate_recording::Work;
use tidegate_terms::{Class, Config, RawTerms, Source, Term, Terms};

/// What was said on the command line and not in a file; a policy does not change it.
const ASKED: [(&str, Source); 2] = [("run flag", Source::RunFlag), ("set", Source::Set)];

/// Terms that were set or given with `run`.
pub(crate) fn asked(work: &Work) -> RawTerms {
    let mut raw = RawTerms::default();
    for (name, value, source) in &work.terms {
        if let Some((_, source)) = ASKED.iter().find(|(text, _)| text == source) {
            raw.insert(name, value, source.clone());
        }
    }
    raw
}

/// Whether `run` started it.
pub(crate) fn is_of_run(work: &Work) -> bool {
    let (run_flag, _) = ASKED[0];
    work.terms.iter().any(|(_, _, source)| source == run_flag) || is_in_own_group(&work.cgroup)
}

/// Whether the group is one of Tidegate's own: no rule matches it.
pub(crate) fn is_in_own_group(cgroup: &str) -> bool {
    cgroup
        .split('/')
        .any(|name| name.starts_with("tidegate-") || name.ends_with('='))
}

/// The terms that it had; none for a group without a gate.
pub(crate) fn terms(work: &Work) -> Option<Terms> {
    if !work.is_gate {
        return None;
    }
    let mut raw = RawTerms::default();
    let known = |name: &str| Term::from_name(name).is_some();
    for (name, value, source) in &work.terms {
        if known(name) && source != "default" {
            raw.insert(name, value, Source::Set);
        }
    }
    let class = Class::from_name(&work.class).unwrap_or_default();
    raw.insert(Term::Class.name(), class.name(), Source::Set);
    let config = Config::default();
    let of_class = || {
        let mut raw = RawTerms::default();
        raw.insert(Term::Class.name(), class.name(), Source::Set);
        raw
    };
    // A recording of another version may have terms that are no longer right: its class holds then.
    let resolved = config.resolve(&[&raw]).ok();
    resolved.or_else(|| config.resolve(&[&of_class()]).ok())
}

/// CPUs that its own quota or cap leaves it, if there is one.
pub(crate) fn limit_cpus(work: &Work) -> Option<f64> {
    let terms = terms(work)?;
    let period_us = terms.period.value.us().max(1) as f64;
    let quota = terms.quota_us().map(|us| us as f64 / period_us);
    let cap = terms.cap_hard.value.ppt().map(|ppt| f64::from(ppt) / 1e3);
    quota.into_iter().chain(cap).reduce(f64::min)
}
