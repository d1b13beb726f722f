//! Random scenarios, with the machine's invariants checked: every kind of workload under every
//! engine, in trees of groups with every term. A failure prints the scenario,
//! which is what repeats it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tidegate_sim::Prng;
use tidegate_sim::run::Stage;
use tidegate_sim::scenario::Scenario;

use super::support;

/// Keys with the values that they may have; each is left out half of the time.
type Choices = &'static [(&'static str, &'static [&'static str])];

const MACHINE: Choices = &[
    ("tick", &["1ms", "4ms", "10ms"]),
    ("contention", &["none", "measured"]),
    ("costs", &["free", "default"]),
];
const SENSE: Choices = &[("sense", &["bpf", "usage"])];
const GROUP: Choices = &[("weight", &["1", "20", "100", "10000", "idle"])];
const CLASSED: Choices = &[("headroom", &["0%", "20%", "50%", "100%"])];
const HINTS: Choices = &[("latency", &["-20", "0", "19"])];
/// What only Tidegate holds.
const CAPS: Choices = &[
    ("cap_hard", &["1m", "100m", "1cpu"]),
    ("cap_soft", &["0", "1m"]),
];
const CAPPED: Choices = &[("cap_scope", &["group", "task"])];
const LIMIT: Choices = &[
    ("period", &["10ms", "50ms", "100ms"]),
    ("burst", &["0s", "1ms", "max"]),
];
const QUOTAS: &[&str] = &["1ms", "3ms", "20ms", "150ms"];
const TASKS: Choices = &[
    ("policy", &["normal", "idle"]),
    ("nice", &["-20", "5", "19"]),
    ("slice", &["100us", "5ms", "100ms"]),
    ("start", &["0s", "30ms"]),
];
/// The lines that each kind needs, and its choices.
const KINDS: &[(&str, &str, Choices)] = &[
    (
        "open-loop",
        "load = \"60%\"\n",
        &[
            ("work", &["100us", "5ms"]),
            ("work_shape", &["fixed", "uniform", "exponential"]),
            ("workers", &["1", "4*cpus"]),
        ],
    ),
    (
        "closed-loop",
        "",
        &[("clients", &["1", "7"]), ("think", &["0s", "1ms"])],
    ),
    (
        "hog",
        "",
        &[
            ("tasks", &["1", "2*cpus"]),
            ("busy", &["1%", "50%", "100%"]),
        ],
    ),
    (
        "frames",
        "",
        &[("workers", &["1", "5"]), ("rate", &["50/s"])],
    ),
    ("cyclictest", "", &[("work", &["0s", "200us"])]),
];

fn pick<T: Copy>(rng: &mut Prng, choices: &[T]) -> T {
    choices[rng.below(choices.len() as u64) as usize]
}

/// Half of the keys, each with one of its values.
fn some(rng: &mut Prng, choices: Choices) -> String {
    let named: Vec<_> = choices.iter().filter(|_| rng.chance_ppm(500_000)).collect();
    let lines = named
        .iter()
        .map(|(key, values)| format!("{key} = \"{}\"\n", pick(rng, values)));
    lines.collect()
}

fn write(seed: u64) -> String {
    let rng = &mut Prng::new(seed);
    let cpus = pick(rng, &[1, 2, 4, 6, 8, 16]);
    let mut toml = format!(
        "duration = \"250ms\"\nwindow = \"10ms\"\nseed = {seed}\n[machine]\ncpus = {cpus}\n"
    );
    if u64::is_multiple_of(cpus, 2) {
        let (threads, llc) = (pick(rng, &[1, 2]), pick(rng, &[cpus, 2]));
        toml += &format!("threads_per_core = {threads}\ncpus_per_llc = {llc}\n");
    }
    toml += &some(rng, MACHINE);
    let is_tidegate = rng.chance_ppm(500_000);
    toml += &match is_tidegate {
        true => format!("[engine]\nname = \"cgroup\"\n{}", some(rng, SENSE)),
        false => String::new(),
    };
    let only = |holds: bool, choices: Choices| if holds { choices } else { &[] };
    let groups = rng.between(1, 5);
    for number in 0..groups {
        let class = pick(rng, &["main", "side", "neutral"]);
        toml += &format!(
            "[group.g{number}]\nclass = \"{class}\"\n{}",
            some(rng, GROUP)
        );
        toml += &some(rng, only(class != "neutral", CLASSED));
        toml += &some(rng, only(is_tidegate, HINTS));
        let caps = some(rng, only(is_tidegate, CAPS));
        toml += &caps;
        toml += &some(rng, only(caps.contains("cap_hard"), CAPPED));
        if number > 0 && rng.chance_ppm(400_000) {
            toml += &format!("parent = \"g{}\"\n", rng.below(number));
        }
        if rng.chance_ppm(400_000) {
            toml += &format!("quota = \"{}\"\n{}", pick(rng, QUOTAS), some(rng, LIMIT));
        }
        if rng.chance_ppm(200_000) {
            toml += &format!("cpus = \"0-{}\"\n", rng.below(cpus));
        }
    }
    for number in 0..rng.between(1, 5) {
        let (kind, needs, choices) = pick(rng, KINDS);
        let group = rng.below(groups);
        toml += &format!("[workload.w{number}]\nkind = \"{kind}\"\ngroup = \"g{group}\"\n{needs}");
        toml += &some(rng, TASKS);
        toml += &some(rng, only(is_tidegate, HINTS));
        toml += &some(rng, choices);
    }
    toml
}

/// Runs one; a scenario that the reader or the machine refuses is none.
fn try_seed(seed: u64) -> Result<bool, String> {
    let toml = write(seed);
    let failed = |why: String| format!("seed {seed}\n{toml}{why}");
    let Ok(scenario) = Scenario::resolve(&support::text(&toml), &[]) else {
        return Ok(false);
    };
    let Ok(stage) = Stage::new(&scenario) else {
        return Ok(false);
    };
    let run = AssertUnwindSafe(|| stage.run(&scenario, &mut |_| {}));
    let ran = catch_unwind(run).map_err(|_| failed("it panicked".into()))?;
    let outcome = ran.map_err(|error| failed(error.to_string()))?;
    if outcome.groups[0].usage_ns + outcome.idle_ns != outcome.capacity_ns() {
        return Err(failed(format!("time is lost or made: {outcome:?}")));
    }
    Ok(true)
}

#[test]
fn random_scenarios_keep_the_invariants() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    // One seed again: TIDEGATE_SCENARIO_FROM=1888 TIDEGATE_SCENARIOS=1889.
    let from: u64 = number("TIDEGATE_SCENARIO_FROM").unwrap_or(0);
    let seeds = number("TIDEGATE_SCENARIOS").unwrap_or(120);
    let tried: Vec<Result<bool, String>> = (from..seeds).map(try_seed).collect();
    let failures: Vec<&String> = tried.iter().filter_map(|one| one.as_ref().err()).collect();
    assert!(
        failures.is_empty(),
        "{} failed:\n{failures:#?}",
        failures.len()
    );
    // Most of what is drawn must be worth running.
    let ran = tried.iter().filter(|one| **one == Ok(true)).count() as u64;
    assert!(from > 0 || ran * 3 > seeds, "only {ran} of {seeds} ran");
}
