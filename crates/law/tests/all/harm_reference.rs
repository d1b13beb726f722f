//! The measurement of harm against a slow reference model.

use crate::support::harm_reference::Reference;
use proptest::prelude::*;
use tidegate_law::harm::{Arm, Config, Harm, Reason, Verdict, Window, Wish};

const MS: u64 = 1_000_000;

/// Both step; the first difference, if there is one.
fn differ(ours: &mut Harm, reference: &mut Reference, window: &Window) -> Option<String> {
    let valid = window.valid != 0 && window.arm == u32::from(reference.arm() == Arm::High);
    ours.step(window);
    reference.step(window, valid);
    let got = (
        (ours.arm(), ours.verdict(), ours.wish(), ours.closed()),
        (ours.tail_ppm(), ours.by_tail(), ours.held() == Arm::High),
    );
    let due = (
        (
            reference.arm(),
            reference.verdict,
            reference.wish,
            reference.closed,
        ),
        (reference.tail, reference.by_tail, reference.held_high),
    );
    let bounds = [ours.ratio_ppm(), ours.lower_ppm(), ours.upper_ppm()];
    let same = got == due && bounds == reference.bounds;
    (!same).then(|| format!("{got:?} {bounds:?} for {due:?} {:?}", reference.bounds))
}

/// What holds for any input: the order of the bounds, and what each verdict and wish asks for.
fn unsound(h: &Harm, cfg: &Config) -> Option<String> {
    let (ratio, lower, upper) = (h.ratio_ppm(), h.lower_ppm(), h.upper_ppm());
    let aim = 1_000_000 + cfg.aim_ppm.clamp(1, 1_000_000);
    let one = 1_000_000;
    let [tail, tail_lower, tail_upper] = h.tail_ppm();
    let most = cfg.tail_ppm.min(1_000_000) as i32;
    let tail_fits = most == 0 || tail <= most;
    let sound = lower <= ratio
        && ratio <= upper
        && tail_lower <= tail
        && tail <= tail_upper
        && (h.verdict() != Verdict::Found || lower > one || tail_lower > most / 2)
        && (h.verdict() != Verdict::None || lower <= one && upper < aim && tail_fits)
        && (h.wish() != Wish::Raise
            || h.verdict() == Verdict::Found && (lower > aim || tail_lower > most))
        && (h.wish() != Wish::Lower || upper < aim && tail_fits);
    (!sound).then(|| format!("{h:?}"))
}

fn small() -> impl Strategy<Value = Config> {
    (
        (
            1..300_000_u32,
            100..400_u32,
            1_000..200_000_u32,
            0..120_000_u32,
        ),
        (
            0..30_u32,
            0..2_000_u32,
            1_000_000..20_000_000_u32,
            0..20_000_000_u32,
        ),
        (
            0..4_000_000_u32,
            0..400_u32,
            0..20_000_000_u32,
            20_000..2_000_000_u32,
        ),
        0..100_000_u32,
    )
        .prop_map(|(a, b, c, tail_ppm)| Config {
            aim_ppm: a.0,
            z_pct: a.1,
            block_us: a.2,
            guard_us: a.3,
            pairs_min: b.0,
            turns_min: b.1,
            half_us: b.2,
            learn_us: b.3,
            probe_us: c.0,
            suspect_pct: c.1,
            retry_us: c.2,
            window_max_us: c.3,
            tail_ppm: tail_ppm.saturating_sub(20_000),
        })
}

/// The likely and the seldom, from one word: 20 ms of a main of about one task, whose signals differ by level.
fn window(word: u64, arm: Arm, effect: u64) -> Window {
    let pick = |from: u32, below: u64| (word >> from) % below;
    let length_ns = 20 * MS
        + if pick(0, 50) == 0 {
            word >> 20
        } else {
            pick(8, MS)
        };
    let more = if arm == Arm::High { effect } else { 0 };
    let window = Window {
        length_ns,
        turns: pick(16, 40),
        late: pick(44, 8) * (1 + more) / 4,
        delay_ns: pick(24, 4 * MS) * (1 + more),
        cpu_ns: (10 * MS + pick(32, 8 * MS)) / (1 + more / 2),
        ..Window::default()
    };
    match pick(56, 60) {
        0 => window.void(),
        1 => window.at(Arm::Low),
        _ => window.at(arm),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn agrees_with_the_reference(
        cfg in small(), seed in any::<u64>(), effect in 0..4_u64, restart in 0..1_500_usize,
        words in prop::collection::vec(any::<u64>(), 1..1_500),
    ) {
        let (mut ours, mut reference) = (Harm::new(cfg, seed), Reference::new(cfg, seed));
        for (at, word) in words.into_iter().enumerate() {
            let window = window(word, ours.arm(), effect);
            prop_assert_eq!(differ(&mut ours, &mut reference, &window), None);
            prop_assert_eq!(unsound(&ours, &cfg), None);
            if at == restart {
                ours.restart();
                reference.restart();
            }
        }
    }

    #[test]
    fn any_window_is_survived(
        cfg in prop::array::uniform13(any::<u32>()), seed in any::<u64>(),
        words in prop::collection::vec(prop::array::uniform6(any::<u64>()), 1..300),
    ) {
        let cut = |x: u32| x >> (x % 32);
        let cfg = Config {
            aim_ppm: cut(cfg[0]), z_pct: cut(cfg[1]), block_us: cut(cfg[2]), guard_us: cut(cfg[3]), pairs_min: cut(cfg[4]) % 8,
            turns_min: cut(cfg[5]), half_us: cut(cfg[6]), learn_us: cut(cfg[7]), probe_us: cut(cfg[8]), suspect_pct: cut(cfg[9]),
            retry_us: cut(cfg[10]), window_max_us: cut(cfg[11]), tail_ppm: cut(cfg[12]),
        };
        let (mut ours, mut reference) = (Harm::new(cfg, seed), Reference::new(cfg, seed));
        for w in words {
            let cut = |x: u64| x >> (x % 64);
            let window = Window {
                length_ns: cut(w[0]), turns: cut(w[1]), delay_ns: cut(w[2]), cpu_ns: cut(w[3]), late: cut(w[5]),
                ..Window::default()
            };
            let window = if w[4] & 15 == 0 { window.at(Arm::Low) } else { window.at(ours.arm()) };
            prop_assert_eq!(differ(&mut ours, &mut reference, &window), None);
            prop_assert_eq!(unsound(&ours, &cfg), None);
        }
    }
}

/// The ends of every range at once: the longest windows of the largest machine, for as long as anything is remembered.
#[test]
fn the_largest_main_does_not_overflow() {
    let cfg = Config {
        block_us: u32::MAX,
        half_us: u32::MAX,
        z_pct: u32::MAX,
        learn_us: u32::MAX,
        window_max_us: u32::MAX,
        suspect_pct: u32::MAX,
        aim_ppm: 1,
        ..Config::default()
    };
    let (mut ours, mut reference) = (Harm::new(cfg, 1), Reference::new(cfg, 1));
    let length_ns = 10_000_000_000;
    for at in 0..20_000_u64 {
        let most = Window {
            length_ns,
            turns: u64::MAX,
            late: u64::MAX,
            delay_ns: 131_072 * length_ns,
            cpu_ns: 8_192 * length_ns,
            ..Window::default()
        };
        let none = Window {
            length_ns,
            cpu_ns: 1,
            ..Window::default()
        };
        let some = if (at / 3_000).is_multiple_of(2) == (ours.arm() == Arm::High) {
            most
        } else {
            none
        };
        let window = some.at(ours.arm());
        assert_eq!(differ(&mut ours, &mut reference, &window), None, "{at}");
    }
    assert_eq!(Reason::Void.as_str(), "void windows");
}
