//! Power and false findings of the measurement of harm, over many seeds. Ignored by default: minutes.
//! `cargo test -p tidegate-law --test all harm_power -- --ignored --nocapture --test-threads 2`

use crate::support::queue::{Arrivals, Bed, Effect, Main};
use tidegate_law::harm::{Config, Harm, Verdict, Wish};

/// A number from the environment.
fn env(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

fn found(law: &Harm) -> bool {
    law.verdict() == Verdict::Found
}

fn config() -> Config {
    let d = Config::default();
    Config {
        z_pct: env("HARM_Z", d.z_pct.into()) as u32,
        suspect_pct: env("HARM_SUSPECT", d.suspect_pct.into()) as u32,
        ..d
    }
}

/// How soon this effect is found, over many seeds.
fn say(name: &str, main: Main, effect: Effect) {
    let runs = env("HARM_RUNS", 200);
    let mut times: Vec<f64> = (0..runs)
        .map(|seed| {
            let mut bed = Bed::new(main, Harm::new(config(), seed), seed);
            bed.until(300, effect, found).unwrap_or(999.0)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let within = |s: f64| times.iter().filter(|t| **t <= s).count() as f64 / runs as f64;
    println!(
        "{name:32} {effect:?}: 30 s {:.2}, 60 s {:.2}, 120 s {:.2}, 300 s {:.2}; median {:.0} s, 90 % {:.0} s",
        within(30.0),
        within(60.0),
        within(120.0),
        within(300.0),
        times[times.len() / 2],
        times[times.len() * 9 / 10]
    );
}

#[test]
#[ignore = "minutes"]
fn power() {
    let service = |service| Effect {
        service,
        ..Effect::default()
    };
    let base = Main::default();
    for effect in [0.05, 0.08, 0.1, 0.2, 1.0] {
        say("500/s, cv 1", base, service(effect));
    }
    say(
        "1000/s, cv 1",
        Main {
            rate: 1000.0,
            service_us: 400.0,
            ..base
        },
        service(0.05),
    );
    say(
        "2000/s, cv 1",
        Main {
            rate: 2000.0,
            service_us: 200.0,
            ..base
        },
        service(0.05),
    );
    say("500/s, cv 0.3", Main { cv: 0.316, ..base }, service(0.05));
    say("500/s, cv 2", Main { cv: 2.0, ..base }, service(0.05));
    say(
        "500/s, wait",
        base,
        Effect {
            wait: 0.05,
            ..Effect::default()
        },
    );
    say(
        "500/s, 16 CPUs at 50 %",
        Main {
            cpus: 16,
            service_us: 16_000.0,
            ..base
        },
        service(0.05),
    );
    say(
        "500/s, 2 CPUs at 50 %",
        Main {
            service_us: 2_000.0,
            ..base
        },
        service(0.05),
    );
    say(
        "closed, 8 callers, 10 ms think",
        Main {
            arrivals: Arrivals::Closed {
                callers: 8,
                think_us: 10_000.0,
            },
            ..base
        },
        Effect {
            wait: 0.1,
            ..Effect::default()
        },
    );
}

/// Mains of every kind, beside side work that does nothing to them.
fn mains() -> [(&'static str, Main); 8] {
    let base = Main {
        rate: 100.0,
        service_us: 4000.0,
        ..Main::default()
    };
    [
        ("steady", base),
        (
            "500/s",
            Main {
                rate: 500.0,
                service_us: 800.0,
                ..base
            },
        ),
        (
            "drift",
            Main {
                arrivals: Arrivals::Drift {
                    factor: 4.0,
                    period_s: 20.0,
                },
                service_us: 1500.0,
                ..base
            },
        ),
        (
            "bursts",
            Main {
                arrivals: Arrivals::Bursts {
                    on_s: 2.0,
                    off_s: 3.0,
                },
                ..base
            },
        ),
        (
            "mix",
            Main {
                long_one_in: 100,
                long_us: 100_000.0,
                service_us: 1_000.0,
                ..base
            },
        ),
        (
            "saturated",
            Main {
                service_us: 17_000.0,
                ..base
            },
        ),
        (
            "closed",
            Main {
                arrivals: Arrivals::Closed {
                    callers: 4,
                    think_us: 20_000.0,
                },
                ..base
            },
        ),
        (
            "cv 3, 16 CPUs",
            Main {
                cpus: 16,
                cv: 3.0,
                service_us: 30_000.0,
                ..base
            },
        ),
    ]
}

#[test]
#[ignore = "minutes"]
fn false_findings() {
    let hours = env("HARM_HOURS", 100);
    let mut all = (0_u64, 0_u64);
    for (name, main) in mains() {
        let (mut bad, mut learns, mut learnt, mut known, mut probed) = (0, 0, 0, 0, 0);
        for seed in 0..hours {
            let mut bed = Bed::new(main, Harm::new(config(), seed + 7_000), seed + 9_000);
            let mut wrong = false;
            let mut knew = None;
            while bed.at_ns < 3_600_000_000_000 {
                bed.step(Effect::default());
                wrong |= found(&bed.law);
                if !bed.law.learning() && knew.is_none() {
                    knew = Some(bed.at_ns / 1_000_000_000);
                }
            }
            bad += u64::from(wrong);
            learns += bed.law.learns();
            learnt += knew.unwrap_or(3600);
            known += bed.known_ns / 1_000_000_000;
            probed += bed.probed_ns / 1_000_000;
        }
        all.0 += bad;
        all.1 += hours;
        println!(
            "{name:16} {hours} h: {bad} with a finding; learns {:.2} an hour, first {} s; at the other level {:.2} % of known time, learning again {:.2} % of the hour",
            f64::from(learns) / hours as f64,
            learnt / hours,
            probed as f64 / 10.0 / known as f64,
            100.0 * (3600.0 - known as f64 / hours as f64 - learnt as f64 / hours as f64) / 3600.0
        );
    }
    println!("all: {} of {} hours", all.0, all.1);
}

/// What a change takes: from knowing to knowing the new.
#[test]
#[ignore = "minutes"]
fn followed() {
    let runs = env("HARM_RUNS", 200);
    for (rate, step) in [
        (500.0, 0.1),
        (500.0, 0.2),
        (500.0, 0.3),
        (2000.0, 0.1),
        (2000.0, 0.2),
    ] {
        let main = Main {
            rate,
            service_us: 400_000.0 / rate,
            ..Main::default()
        };
        for (name, from, to) in [
            ("appears", 0.0, step),
            ("disappears", step, 0.0),
            ("doubles", step, 2.0 * step),
        ] {
            let (mut times, mut known, mut probed) = (Vec::new(), 0, 0);
            for seed in 0..runs {
                let of = |service| Effect {
                    service,
                    ..Effect::default()
                };
                let mut bed = Bed::new(main, Harm::new(config(), seed), seed + 3_000);
                bed.until(300, of(from), |law| !law.learning());
                bed.until(100 + seed % 60, of(from), |_| false);
                (known, probed) = (
                    known + bed.known_ns / 1_000_000,
                    probed + bed.probed_ns / 1_000_000,
                );
                let new = |law: &Harm| match name {
                    "appears" => found(law),
                    "disappears" => law.verdict() == Verdict::None,
                    _ => {
                        !law.learning()
                            && law.wish() == Wish::Raise
                            && law.ratio_ppm() > 1_000_000 + (1.5e6 * step) as u32
                    }
                };
                times.push(bed.until(900, of(to), new).unwrap_or(999.0));
            }
            times.sort_by(f64::total_cmp);
            println!(
                "{rate}/s, {step} {name:10}: within 300 s {:.2}; median {:.0} s, 90 % {:.0} s; probes {:.2} % of the time before",
                times.iter().filter(|t| **t <= 300.0).count() as f64 / runs as f64,
                times[times.len() / 2],
                times[times.len() * 9 / 10],
                100.0 * probed as f64 / known as f64
            );
        }
    }
}
