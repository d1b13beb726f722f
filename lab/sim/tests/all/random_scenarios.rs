//! Random scenarios, with the machine's invariants checked: every kind of workload under every scheduler, engine and policy,
//! in trees of groups with every term. A failure prints the scenario, which is what repeats it.

use std::fmt::Write;

use tidegate_sim::Prng;
use tidegate_sim::registry;
use tidegate_sim::run::Stage;
use tidegate_sim::scenario::{Scenario, Text};

struct Author {
    rng: Prng,
    toml: String,
    cpus: u64,
}

impl Author {
    fn line(&mut self, line: &str) {
        self.toml.push_str(line);
        self.toml.push('\n');
    }

    fn pick<'c>(&mut self, choices: &[&'c str]) -> &'c str {
        choices[self.rng.below(choices.len() as u64) as usize]
    }

    /// The key, one time in two, with one of these values.
    fn maybe(&mut self, key: &str, values: &[&str]) {
        if self.rng.chance_ppm(500_000) {
            let value = self.pick(values);
            self.line(&format!("{key} = {value}"));
        }
    }

    fn always(&mut self, key: &str, values: &[&str]) {
        let value = self.pick(values);
        self.line(&format!("{key} = {value}"));
    }

    fn write(seed: u64) -> String {
        let mut rng = Prng::new(seed);
        let cpus = [1, 2, 4, 6, 8, 16][rng.below(6) as usize];
        let mut author = Author {
            rng,
            toml: String::new(),
            cpus,
        };
        author.line(&format!(
            "duration = \"250ms\"\nwindow = \"10ms\"\nseed = {seed}"
        ));
        author.machine();
        let groups = author.rng.between(1, 5);
        for group in 0..groups {
            author.group(group);
        }
        for workload in 0..author.rng.between(1, 5) {
            author.workload(workload, groups);
        }
        author.toml
    }

    fn machine(&mut self) {
        let cpus = self.cpus;
        self.line(&format!("[machine]\ncpus = {cpus}"));
        if cpus.is_multiple_of(2) {
            self.maybe("threads_per_core", &["1", "2"]);
            let llc = format!(
                "cpus_per_llc = {}",
                [cpus, cpus.min(2)][self.rng.below(2) as usize]
            );
            self.line(&llc);
        }
        self.maybe("tick", &["\"1ms\"", "\"4ms\"", "\"10ms\""]);
        self.maybe("contention", &["\"none\"", "\"measured\""]);
        self.maybe("costs", &["\"free\"", "\"default\""]);
        self.maybe("bandwidth_slice", &["\"1ms\"", "\"5ms\""]);
        self.line("[scheduler]");
        if self.rng.chance_ppm(250_000) {
            self.line("class = \"cfs\"");
            self.maybe("latency_nice", &["true"]);
        } else {
            self.maybe("base_slice", &["\"500us\"", "\"3ms\"", "\"10ms\""]);
            self.maybe("run_to_parity", &["true", "false"]);
            self.maybe("delay_dequeue", &["true", "false"]);
        }
        self.line("[engine]");
        self.maybe("name", &["\"none\"", "\"cgroup\""]);
        let names: Vec<String> = registry::policies()
            .map(|policy| format!("\"{}\"", policy.name))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.maybe("policy", &names);
        self.maybe("sense", &["\"bpf\"", "\"usage\""]);
    }

    fn group(&mut self, number: u64) {
        self.line(&format!("[group.g{number}]"));
        if number > 0 && self.rng.chance_ppm(400_000) {
            let parent = self.rng.below(number);
            self.line(&format!("parent = \"g{parent}\""));
        }
        self.maybe("class", &["\"main\"", "\"side\"", "\"neutral\""]);
        self.maybe("weight", &["1", "20", "100", "10000", "\"idle\""]);
        if self.rng.chance_ppm(400_000) {
            self.always("quota", &["\"1ms\"", "\"3ms\"", "\"20ms\"", "\"150ms\""]);
            self.maybe("period", &["\"10ms\"", "\"50ms\"", "\"100ms\""]);
            self.maybe("burst", &["\"0s\"", "\"1ms\"", "\"max\""]);
        }
        self.maybe("headroom", &["\"0%\"", "\"20%\"", "\"50%\"", "\"100%\""]);
        if self.rng.chance_ppm(300_000) {
            self.always("cap_hard", &["1", "100", "1000", "2500"]);
            self.maybe("cap_soft", &["0", "1"]);
        }
        self.maybe("latency", &["-20", "0", "19"]);
        if self.rng.chance_ppm(200_000) {
            let last = self.rng.below(self.cpus);
            self.line(&format!("cpus = \"0-{last}\""));
        }
    }

    fn workload(&mut self, number: u64, groups: u64) {
        self.line(&format!("[workload.w{number}]"));
        if self.rng.chance_ppm(800_000) {
            let group = self.rng.below(groups);
            self.line(&format!("group = \"g{group}\""));
        }
        self.maybe(
            "policy",
            &[
                "\"normal\"",
                "\"batch\"",
                "\"idle\"",
                "\"fifo:10\"",
                "\"fifo:90\"",
            ],
        );
        self.maybe("nice", &["-20", "5", "19"]);
        self.maybe("slice", &["\"100us\"", "\"5ms\"", "\"100ms\""]);
        self.maybe("latency", &["-20", "10"]);
        self.maybe("start", &["\"0s\"", "\"30ms\""]);
        let shapes = ["\"fixed\"", "\"uniform\"", "\"exponential\""];
        match self.rng.below(10) {
            0 => {
                self.line("kind = \"open-loop\"");
                self.always("load", &["\"10%\"", "\"60%\"", "\"100%\""]);
                self.maybe(
                    "arrivals",
                    &["\"poisson\"", "\"regular\"", "\"bursts\"", "\"diurnal\""],
                );
                self.maybe("work", &["\"100us\"", "\"5ms\""]);
                self.maybe("work_shape", &shapes);
                self.maybe("workers", &["1", "\"4*cpus\""]);
            }
            1 => {
                self.line("kind = \"closed-loop\"");
                self.maybe("clients", &["1", "7"]);
                self.maybe("think", &["\"0s\"", "\"1ms\""]);
            }
            2 => {
                self.line("kind = \"hog\"");
                self.maybe("tasks", &["1", "\"2*cpus\""]);
                self.maybe("busy", &["\"1%\"", "\"50%\"", "\"100%\""]);
            }
            3 => {
                self.line("kind = \"frames\"");
                self.maybe("workers", &["1", "5"]);
                self.maybe("rate", &["\"50/s\""]);
            }
            4 => {
                self.line("kind = \"hackbench\"\nloops = 50");
                self.maybe("pairs", &["1", "3"]);
                self.maybe("capacity", &["1", "10"]);
            }
            5 => {
                self.line("kind = \"cyclictest\"");
                self.maybe("work", &["\"0s\"", "\"200us\""]);
                self.maybe("pinned", &["true", "false"]);
            }
            6 => {
                self.line("kind = \"schbench\"\nwork = \"2ms\"");
                self.maybe("rate", &["\"300/s\""]);
            }
            7 => {
                self.line("kind = \"fibtest\"");
                self.maybe("threads", &["3", "\"2*cpus\""]);
            }
            8 => {
                self.line("kind = \"fork-storm\"\nchildren = 20");
                self.maybe("depth", &["1", "2"]);
                self.maybe("interval", &["\"100us\"", "\"5ms\""]);
            }
            _ => {
                let side = self.rng.below(groups);
                self.line(&format!("kind = \"lock-holder\"\nside_group = \"g{side}\""));
                self.maybe("side_tasks", &["1", "4"]);
                self.maybe("hold", &["\"50us\"", "\"20ms\""]);
            }
        }
    }
}

/// Runs one; a scenario that the reader refuses is none.
fn try_seed(seed: u64) -> Result<bool, String> {
    let toml = Author::write(seed);
    let text = Text {
        shown: "random.toml".into(),
        name: "random".into(),
        text: toml.clone(),
        folder: None,
    };
    let mut told = String::new();
    let _ = writeln!(told, "seed {seed}\n{toml}");
    let scenario = match Scenario::resolve(&text, &[]) {
        Ok(scenario) => scenario,
        Err(_) => return Ok(false),
    };
    let stage = match Stage::new(&scenario) {
        Ok(stage) => stage,
        // The machine refuses what the reader cannot see, such as a child's CPU set outside its parent's.
        Err(_) => return Ok(false),
    };
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        stage.run(&scenario, Vec::new(), &mut |_| true)
    }));
    match ran {
        Ok(Ok(outcome))
            if outcome.groups[0].usage_ns + outcome.idle_ns == outcome.capacity_ns() =>
        {
            Ok(true)
        }
        Ok(Ok(outcome)) => Err(format!("{told}time is lost or made: {outcome:?}")),
        Ok(Err(error)) => Err(format!("{told}{error}")),
        Err(_) => Err(format!("{told}it panicked")),
    }
}

#[test]
fn random_scenarios_keep_the_invariants() {
    let seeds: u64 =
        std::env::var("TIDEGATE_SCENARIOS").map_or(120, |count| count.parse().unwrap());
    let mut ran = 0;
    let mut failures = Vec::new();
    // One seed again: TIDEGATE_SCENARIO_FROM=1888 TIDEGATE_SCENARIOS=1889.
    let from: u64 = std::env::var("TIDEGATE_SCENARIO_FROM").map_or(0, |from| from.parse().unwrap());
    for seed in from..seeds {
        match try_seed(seed) {
            Ok(true) => ran += 1,
            Ok(false) => {}
            Err(why) => failures.push(why),
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {seeds} failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
    // Most of what is drawn must be worth running.
    assert!(from > 0 || ran * 3 > seeds, "only {ran} of {seeds} ran");
}
