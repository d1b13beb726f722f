//! Every shipped scenario runs with its invariants checked, and its events depend on the seed alone.

use tidegate_sim::outcome::Outcome;
use tidegate_sim::run::Stage;
use tidegate_sim::scenario::{BUILTIN, Override, Scenario, Text};
use tidegate_sim::sweep;
use tidegate_sim::tracers::{Log, Memory, Sink};

fn scenario(name: &str, sets: &[(&str, &str)]) -> Scenario {
    let overrides: Vec<Override> = sets
        .iter()
        .map(|(key, value)| Override::new(key, value))
        .collect();
    let text = Text::load(name).unwrap();
    Scenario::resolve(&text, &overrides).unwrap_or_else(|errors| panic!("{name}: {errors}"))
}

fn run(scenario: &Scenario) -> (Vec<u8>, Outcome) {
    let stage = Stage::new(scenario).unwrap_or_else(|error| panic!("{}: {error}", scenario.name));
    let memory = Memory::default();
    let sink = Sink::new(Box::new(memory.clone()));
    let log = Log::new(sink.clone(), &stage.names, "again");
    let outcome = stage
        .run(scenario, vec![Box::new(log)], &mut |_| true)
        .unwrap_or_else(|error| panic!("{}: {error}", scenario.name));
    sink.close().unwrap();
    (memory.take(), outcome)
}

#[test]
fn the_seed_decides_every_event() {
    for builtin in BUILTIN {
        let seeds = ["1", "1", "2", "2"];
        let runs = |jobs| {
            sweep::parallel(jobs, seeds.len(), |at| {
                let short = [
                    ("duration", "400ms"),
                    ("warmup", "50ms"),
                    ("seed", seeds[at]),
                ];
                let (log, outcome) = run(&scenario(builtin.name, &short));
                (log, format!("{outcome:?}"))
            })
        };
        let (one, two) = (runs(1), runs(2));
        assert!(one == two, "{}: threads change the outcome", builtin.name);
        assert!(
            one[0] == one[1] && one[2] == one[3],
            "{}: not the seed alone",
            builtin.name
        );
        assert!(
            one[0] != one[2],
            "{}: the seed changes nothing",
            builtin.name
        );
    }
}

#[test]
fn every_scenario_does_what_it_is_there_for() {
    for builtin in BUILTIN {
        let (_, outcome) = run(&scenario(
            builtin.name,
            &[("duration", "2s"), ("warmup", "200ms")],
        ));
        let used: u64 = outcome.groups[0].usage_ns;
        assert!(
            used > 0 && outcome.events > 1_000,
            "{}: {outcome:?}",
            builtin.name
        );
        // Time is neither lost nor made: what the root's tasks used is what was not idle.
        assert_eq!(
            used + outcome.idle_ns,
            outcome.capacity_ns(),
            "{}",
            builtin.name
        );
        for series in &outcome.series {
            let (name, what) = (&series.workload, series.what);
            // Hackbench's tasks end later than this run.
            assert!(
                series.values.count() > 0 || what == "finish",
                "{}: {name}.{what}",
                builtin.name
            );
        }
        assert!(!outcome.samples.is_empty());
    }
}

/// Side work that always wants more beside a main that leaves room, under the engine.
#[test]
fn the_engine_keeps_the_headroom_that_a_scenario_asks_for() {
    let idle_ppm = |sets: &[(&str, &str)]| {
        let mut all = vec![("duration", "8s"), ("warmup", "3s")];
        all.extend_from_slice(sets);
        let (_, outcome) = run(&scenario("web-server-and-encoder", &all));
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

#[test]
fn every_scenario_runs_under_every_engine() {
    for builtin in BUILTIN {
        for engine in ["none", "cgroup"] {
            let sets = [
                ("duration", "400ms"),
                ("warmup", "50ms"),
                ("engine.name", engine),
            ];
            let (_, outcome) = run(&scenario(builtin.name, &sets));
            assert!(outcome.events > 100, "{} under {engine}", builtin.name);
        }
    }
}
