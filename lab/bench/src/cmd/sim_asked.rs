//! What `tidegate-lab sim` was asked, looked at before anything runs: what would do nothing.

use tidegate_sim::scenario::{EngineKind, Override};

/// Keys of the engine that a flag sets and that the run's engine does not read: its figures would be
/// those of another question.
pub fn unread(typed: &[Override], engine: EngineKind) -> Vec<String> {
    let mut said = Vec::new();
    for one in typed {
        let of_engine = ["sense", "headroom", "tolerance"]
            .iter()
            .any(|key| one.key.strip_prefix("engine.") == Some(key));
        if of_engine && engine != EngineKind::Cgroup {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_an_engine_that_does_not_run_are_refused() {
        use EngineKind::{Cgroup, None};
        let typed = [Override::new("engine.sense", "usage")];
        assert_eq!(unread(&typed, Cgroup).len(), 0);
        assert_eq!(
            unread(&typed, None),
            [
                "engine.sense: --set engine.sense=usage: means nothing to the engine none; add --engine cgroup"
            ]
        );
        let typed = [
            Override::new("engine.headroom", "10%"),
            Override::new("seed", "2"),
        ];
        assert_eq!(unread(&typed, None).len(), 1);
    }
}
