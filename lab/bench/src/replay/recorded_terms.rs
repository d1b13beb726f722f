//! The terms of a recorded work.

use tidegate_engine::limit;
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
    // A recording of another version may have terms that are no longer right: its class holds then.
    let resolved = Config::default().resolve(&[&raw]);
    Some(resolved.unwrap_or_else(|_| Terms::of_class(class)))
}

/// CPUs that its own quota or cap leaves it, if there is one for all of it.
pub(crate) fn limit_cpus(work: &Work) -> Option<f64> {
    let own = limit::of_terms(&terms(work)?, u64::MAX)?;
    own.rate_ucpu().map(|ucpu| ucpu as f64 / 1e6)
}
