//! Every shipped scenario runs with its invariants checked.

use tidegate_sim::outcome::Outcome;
use tidegate_sim::scenario::{BUILTIN, Text};

use super::support::{run, scenario};

fn run_builtin(name: &str, sets: &[(&str, &str)]) -> Outcome {
    run(&scenario(&Text::load(name).unwrap(), sets))
}

#[test]
fn every_scenario_does_what_it_is_there_for_under_every_engine() {
    for builtin in BUILTIN {
        let name = builtin.name;
        for engine in ["none", "cgroup"] {
            let sets = [
                ("duration", "2s"),
                ("warmup", "200ms"),
                ("engine.name", engine),
            ];
            let outcome = run_builtin(name, &sets);
            let used: u64 = outcome.groups[0].usage_ns;
            assert!(used > 0 && outcome.events > 1_000, "{name}: {outcome:?}");
            // Time is neither lost nor made: what the root's tasks used is what was not idle.
            assert_eq!(used + outcome.idle_ns, outcome.capacity_ns(), "{name}");
            for series in &outcome.series {
                let (workload, what) = (&series.workload, series.what);
                assert!(series.values.count() > 0, "{name}: {workload}.{what}");
            }
            assert!(!outcome.samples.is_empty());
        }
    }
}

/// Side work that always wants more beside a main that leaves room, under the engine.
#[test]
fn the_engine_keeps_the_headroom_that_a_scenario_asks_for() {
    let idle_ppm = |sets: &[(&str, &str)]| {
        let mut all = vec![("duration", "8s"), ("warmup", "3s")];
        all.extend_from_slice(sets);
        let outcome = run_builtin("web-server-and-encoder", &all);
        assert!(outcome.refusals.is_empty(), "{:?}", outcome.refusals);
        // CPU time of at most 16 CPUs for some seconds: below 2^37 · 10^6 < 2^57.
        outcome.idle_ns * 1_000_000 / outcome.capacity_ns()
    };
    let none = idle_ppm(&[]);
    assert!(none < 150_000, "{none}");
    for (headroom, due) in [("30%", 300_000), ("40%", 400_000)] {
        let kept = idle_ppm(&[("engine.name", "cgroup"), ("engine.headroom", headroom)]);
        assert!(kept.abs_diff(due) < 20_000, "{headroom}: {kept}");
    }
}
