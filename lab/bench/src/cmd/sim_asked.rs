//! What `tidegate-lab sim` was asked, looked at before anything runs: what would do nothing, and
//! what would be overwritten.

use std::path::Path;

use tidegate_sim::scenario::{EngineKind, Override};
use tidegate_sim::sweep::Sweep;

/// A key that is swept twice: the later value would count, under a label that names both.
pub fn swept_twice(sweeps: &[Sweep]) -> Option<String> {
    sweeps.iter().enumerate().find_map(|(index, sweep)| {
        let again = sweeps
            .iter()
            .skip(index + 1)
            .any(|one| one.key == sweep.key);
        again.then(|| {
            let key = tidegate_terms::quoted(&sweep.key);
            format!(
                "{key}: --sweep: names it twice; write all values in one, as in --sweep {key}=a,b,c"
            )
        })
    })
}

/// Keys of the engine that a flag sets and that no run's engine reads: their figures would be those
/// of another question.
pub fn unread(typed: &[Override], engines: &[EngineKind]) -> Vec<String> {
    let mut said = Vec::new();
    for one in typed {
        let of_engine = ["policy", "sense", "quota", "headroom", "tolerance"]
            .iter()
            .any(|key| one.key.strip_prefix("engine.") == Some(key));
        if of_engine && !engines.is_empty() && !engines.contains(&EngineKind::Cgroup) {
            let line = format!(
                "{}: {}: means nothing to the engine none; add --engine cgroup",
                one.key,
                tidegate_terms::quoted(&one.flag),
            );
            if !said.contains(&line) {
                said.push(line);
            }
        }
    }
    said
}

/// A file to write that is the scenario itself.
pub fn overwritten(scenario: &str, trace: Option<&Path>) -> Option<String> {
    let trace = trace.filter(|path| same_file(path, Path::new(scenario)))?;
    let path = trace.display();
    Some(format!("--trace {path}: is the scenario itself; name another file"))
}

/// Whether both name one regular file.
fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b && a.is_file(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_counts_as_read_when_one_run_reads_it() {
        use EngineKind::{Cgroup, None};
        let typed = [Override::new("engine.policy", "idle")];
        assert_eq!(unread(&typed, &[None, Cgroup]).len(), 0);
        assert_eq!(
            unread(&typed, &[None, None]),
            [
                "engine.policy: --set engine.policy=idle: means nothing to the engine none; add --engine cgroup"
            ]
        );
        let typed = [
            Override::new("engine.headroom", "10%"),
            Override::new("seed", "2"),
        ];
        assert_eq!(unread(&typed, &[Cgroup]).len(), 0);
        assert_eq!(unread(&typed, &[None]).len(), 1);
    }
}
