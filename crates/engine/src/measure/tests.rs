//! Synthetic mains whose slowdown is known, and the experiment step by step.

use super::*;

/// 200, or as many as `TIDEGATE_SEEDS` says.
fn seeds() -> u64 {
    let asked = std::env::var("TIDEGATE_SEEDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(200)
}
const TWO_MINUTES_S: u64 = 120;
/// CPU that main takes on average, whatever its rate.
const MAIN_CPUS: f64 = 0.4;
/// Run delay over CPU time at the reference.
const DELAY_RATIO: f64 = 0.5;

/// Random numbers of a test.
struct Noise(Experiment);

impl Noise {
    fn new(seed: u64) -> Self {
        let gates = Switched::Gates {
            count: 1,
            headroom_ppm: 0,
        };
        Self(Experiment::new(gates, 0, seed, 0))
    }

    /// In (0, 1].
    fn uniform(&mut self) -> f64 {
        ((self.0.next_random() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }

    fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// A number of arrivals whose variance is this part of its mean.
    fn arrivals(&mut self, mean: f64, dispersion: f64) -> u64 {
        let value = mean + (mean * dispersion).sqrt() * self.normal();
        value.round().max(0.0) as u64
    }

    /// The sum of so many exponential times of mean 1.
    fn sum_of_times(&mut self, count: u64) -> f64 {
        match count {
            0..40 => (0..count).map(|_| self.exponential()).sum(),
            _ => (count as f64 + (count as f64).sqrt() * self.normal()).max(0.0),
        }
    }

    fn below(&mut self, share: f64, count: u64) -> u32 {
        let mean = share * count as f64;
        let value = mean + (mean * (1.0 - share)).sqrt() * self.normal();
        value.round().clamp(0.0, count as f64) as u32
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Main {
    /// Arrivals do not care; main waits longer.
    OpenDelayed,
    /// Arrivals do not care; main's CPUs are slower.
    OpenSlower,
    /// A fixed set of callers, which think for as long as a piece of work takes.
    Closed,
}

struct Synthetic {
    main: Main,
    per_second: f64,
    noise: Noise,
    /// Load that drifts, as a factor.
    drift: f64,
}

impl Synthetic {
    fn new(main: Main, per_second: f64, seed: u64) -> Self {
        Self {
            main,
            per_second,
            noise: Noise::new(seed),
            drift: 0.0,
        }
    }

    /// A block in which a piece of work takes `1 + harm` times as long, and this share of runs is
    /// late.
    fn block(&mut self, arm: u32, harm: f64, late: f64) -> Block {
        let noise = &mut self.noise;
        self.drift = 0.95 * self.drift + 0.05 * noise.normal();
        let used_s = 0.35;
        let (slower, delayed) = match self.main {
            Main::OpenDelayed => (1.0, 1.0 + harm * (1.0 + DELAY_RATIO) / DELAY_RATIO),
            Main::OpenSlower => (1.0 + harm, 1.0 + harm),
            Main::Closed => (1.0, 1.0 + harm * (1.0 + DELAY_RATIO) / DELAY_RATIO),
        };
        let fewer = match self.main {
            Main::Closed => 2.0 / (2.0 + harm),
            _ => self.drift.exp(),
        };
        let dispersion = if self.main == Main::Closed { 0.3 } else { 1.0 };
        let count = noise.arrivals(self.per_second * used_s * fewer, dispersion);
        let piece_ns = MAIN_CPUS * 1e9 / self.per_second;
        let late_runs = noise.below(late, count);
        let mut block = Block {
            arm,
            used_ns: (used_s * 1e9) as u64,
            cpu_ns: (piece_ns * slower * noise.sum_of_times(count)) as u64,
            delay_ns: (piece_ns * DELAY_RATIO * delayed * noise.sum_of_times(count)) as u64,
            side_ns: if arm == 0 { 0 } else { 400_000_000 },
            runs: count,
            ..Block::default()
        };
        block.waits[0] = count as u32 - late_runs;
        block.waits[WAIT_BUCKETS - 1] = late_runs;
        block
    }

    fn level(&mut self, harm: f64, late: f64) -> EffectView {
        let rounds = TWO_MINUTES_S * 1_000_000_000 / BLOCK_NS / 2;
        let blocks = (0..rounds)
            .flat_map(|_| {
                let low = self.block(0, 0.0, 0.02);
                [low, self.block(1, harm, late)]
            })
            .collect();
        let switched = Switched::Levels(vec![0]);
        let found = Data { switched, blocks }.findings();
        found.effects[0].expect("enough rounds")
    }
}

/// How often an interval held the truth, excluded 0, and the mean estimate.
#[derive(Default)]
struct Score {
    runs: f64,
    held: f64,
    alarms: f64,
    estimates: f64,
    halves: f64,
}

impl Score {
    fn add(&mut self, interval: &IntervalView, truth: f64) {
        let holds = |value: f64| interval.lower <= value && value <= interval.upper;
        self.runs += 1.0;
        self.held += f64::from(u8::from(holds(truth)));
        self.alarms += f64::from(u8::from(!holds(0.0)));
        self.estimates += interval.estimate;
        self.halves += half(interval);
    }

    fn line(&self) -> String {
        let of = |sum: f64| 100.0 * sum / self.runs;
        format!(
            "held {:.1} %, excludes 0 {:.1} %, mean {:.2} %, half {:.2} %",
            of(self.held),
            of(self.alarms),
            of(self.estimates),
            of(self.halves)
        )
    }
}

#[test]
fn intervals_hold_a_known_slowdown_and_find_none_where_there_is_none() {
    for main in [Main::OpenDelayed, Main::OpenSlower, Main::Closed] {
        for harm in [0.0, 0.03, 0.1, 0.3] {
            let mut all = Score::default();
            for per_second in [50.0, 500.0, 5_000.0] {
                let mut score = Score::default();
                for seed in 0..seeds() {
                    let effect = Synthetic::new(main, per_second, seed).level(harm, 0.02);
                    score.add(&effect.slowdown_ratio, harm);
                    all.add(&effect.slowdown_ratio, harm);
                }
                let what = format!("{main:?}, {harm}, {per_second}/s: {}", score.line());
                eprintln!("{what}");
                assert!(score.held >= 0.93 * score.runs, "{what}");
                assert!(
                    harm < 0.1 || per_second < 500.0 || score.alarms == score.runs,
                    "{what}"
                );
            }
            // Of 200 seeds, chance makes 6 % now and then: the rates are taken together.
            let what = format!("{main:?}, {harm}: {}", all.line());
            assert!(harm > 0.0 || all.alarms <= 0.05 * all.runs, "{what}");
        }
    }
}

#[test]
fn a_longer_tail_is_found_beside_an_unchanged_mean() {
    for (late, per_second) in [(0.02, 50.0), (0.02, 500.0), (0.04, 500.0), (0.03, 5_000.0)] {
        let mut score = Score::default();
        for seed in 0..seeds() {
            let effect = Synthetic::new(Main::OpenDelayed, per_second, seed).level(0.0, late);
            score.add(&effect.late_ratio, late - 0.02);
        }
        let what = format!("{late}, {per_second}/s: {}", score.line());
        eprintln!("{what}");
        assert!(score.held >= 0.93 * score.runs, "{what}");
        assert!(late > 0.02 || score.alarms <= 0.06 * score.runs, "{what}");
        assert!(late < 0.03 || score.alarms >= 0.95 * score.runs, "{what}");
    }
}

#[test]
fn of_two_gates_the_one_that_harms_is_named() {
    for main in [Main::OpenDelayed, Main::Closed] {
        let harms = [0.12, 0.0];
        let mut scores = [Score::default(), Score::default()];
        for seed in 0..seeds() {
            let switched = Switched::Gates {
                count: 2,
                headroom_ppm: 0,
            };
            let mut coin = Experiment::new(switched.clone(), 120_000_000_000, seed, 0);
            let mut synthetic = Synthetic::new(main, 500.0, seed + 1_000);
            let mut blocks = Vec::new();
            for _ in 0..coin.rounds_planned {
                for arm in [coin.order[0], coin.order[1]] {
                    let harm = if arm & 1 == 1 { harms[0] } else { 0.0 };
                    blocks.push(synthetic.block(arm, harm, 0.02));
                }
                coin.shuffle();
            }
            let found = Data { switched, blocks }.findings();
            for (at, score) in scores.iter_mut().enumerate() {
                score.add(&found.effects[at].unwrap().slowdown_ratio, harms[at]);
            }
        }
        for (at, score) in scores.iter().enumerate() {
            let what = format!("{main:?}, gate {at}: {}", score.line());
            eprintln!("{what}");
            assert!(score.held >= 0.93 * score.runs, "{what}");
            let expected = if at == 0 { score.alarms } else { 0.0 };
            assert!(
                (score.alarms - expected).abs() <= 0.06 * score.runs,
                "{what}"
            );
        }
        assert!(scores[0].alarms >= 0.95 * scores[0].runs);
    }
}

#[test]
fn a_wide_interval_says_how_much_longer_and_a_narrow_one_nothing() {
    let found = |per_second| Findings {
        effects: vec![Some(
            Synthetic::new(Main::OpenDelayed, per_second, 1).level(0.0, 0.02),
        )],
        ..Findings::default()
    };
    let times = found(50.0).times_longer().unwrap();
    assert!((1.2..20.0).contains(&times), "{times}");
    assert_eq!(found(5_000.0).times_longer(), None);
}

#[test]
fn quantiles_are_students() {
    for (z, freedom, expected) in [
        (1.959_964, 3, 3.182),
        (1.959_964, 10, 2.228),
        (1.959_964, 60, 2.000),
        (Z, 20, 2.423),
    ] {
        let found = t_quantile(z, freedom);
        assert!((found / expected - 1.0).abs() < 0.02, "{found} {expected}");
    }
}

const STEP_NS: u64 = 5_000_000;

/// Runs an experiment in steps of 5 ms, with the windows that `window` makes; its client is there.
fn run(
    switched: Switched,
    seconds: u64,
    mut window: impl FnMut(&Experiment) -> Window,
) -> Experiment {
    let mut experiment = Experiment::new(switched, seconds * 1_000_000_000, 7, 0);
    for step in 1.. {
        experiment.heard(step * STEP_NS);
        let next = window(&experiment);
        experiment.step(step * STEP_NS, &next, || [step; WAIT_BUCKETS]);
        if !experiment.is_running() {
            break;
        }
    }
    experiment
}

fn window(main_ns: u64) -> Window {
    Window {
        wall_ns: STEP_NS,
        main_ns,
        side_ns: 1_000_000,
        is_usable: true,
        ..Window::default()
    }
}

#[test]
fn each_level_has_a_block_in_each_round_without_the_time_after_a_switch() {
    let levels = Switched::Levels(vec![0, 200_000]);
    let mut firsts = [0; 3];
    let done = run(levels, 60, |experiment| {
        if experiment.place == 0 && experiment.waits_before.is_none() {
            firsts[experiment.arm() as usize] += 1;
        }
        let after_switch = experiment.waits_before.is_none();
        window(if after_switch { 5_000_000 } else { 1_000_000 })
    });
    assert_eq!((done.state(), done.rounds), (&State::Done, 40));
    assert!(firsts.iter().all(|count| *count > 60), "{firsts:?}");
    let data = done.data();
    for (at, block) in data.blocks.iter().enumerate() {
        assert_eq!(block.arm as usize, at % 3);
        assert_eq!((block.used_ns, block.cpu_ns), (350_000_000, 70_000_000));
        assert_eq!(block.waits, [70; WAIT_BUCKETS]);
    }
}

#[test]
fn a_block_that_was_mostly_void_is_left_out_with_its_pair() {
    let done = run(Switched::Levels(vec![0, 200_000]), 15, |experiment| {
        Window {
            is_usable: experiment.rounds != 3 || experiment.arm() != 1,
            ..window(1_000_000)
        }
    });
    let effects = done.data().findings().effects;
    let rounds: Vec<u64> = effects.iter().flatten().map(|one| one.rounds).collect();
    assert_eq!(rounds, [9, 10]);
}

#[test]
fn gates_are_free_in_one_block_of_a_pair_and_held_in_the_other() {
    let gates = Switched::Gates {
        count: 3,
        headroom_ppm: 0,
    };
    let mut free = [0; 3];
    let done = run(gates, 40, |experiment| {
        assert_eq!(experiment.headroom_ppm(), 0);
        window(1_000_000)
    });
    for pair in done.data().blocks.chunks(2) {
        assert_eq!(pair[0].arm ^ pair[1].arm, 0b111);
        (0..3).for_each(|gate| free[gate] += pair[0].arm >> gate & 1);
    }
    assert!(
        free.iter().all(|count| (10..=30).contains(count)),
        "{free:?}"
    );
}

#[test]
fn it_ends_when_its_client_is_silent_and_keeps_what_it_has() {
    let mut experiment = Experiment::new(Switched::Levels(vec![0]), 60_000_000_000, 1, 0);
    let mut now_ns = 0;
    while experiment.is_running() {
        now_ns += STEP_NS;
        if now_ns < 5_000_000_000 {
            experiment.heard(now_ns);
        }
        experiment.step(now_ns, &window(1_000_000), || [0; WAIT_BUCKETS]);
    }
    assert!((7_000_000_000..7_020_000_000).contains(&now_ns), "{now_ns}");
    assert!(matches!(experiment.state(), State::Ended(why) if why.contains("2 s")));
    assert!(experiment.data().rounds() >= 6);
    let effect = experiment.data().findings().effects[0].unwrap();
    assert_eq!(
        effect.slowdown_ratio,
        IntervalView::default(),
        "nothing differed"
    );
}
