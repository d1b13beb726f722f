//! The headroom contract: seed 000's table, steps, a random main, and the tolerance.

use tidegate_sim::engines::cgroup::Sensing;

use super::bed::{Bed, Load, SENSINGS};
use crate::support::{MS, SECOND};

/// How far idle may be from what is due, in millionths of the machine.
const SLACK_PPM: u64 = 10_000;

/// Seed 000: with 30 % headroom side work gets what main leaves, down to the tolerance. Idle over
/// 10 s is within 1 % of the machine.
#[test]
fn the_seeds_table_comes_out() {
    let rows: [(u64, Load, u64); 6] = [
        (30, |_| 300_000, 400_000),
        (40, |_| 400_000, 300_000),
        (50, |_| 500_000, 200_000),
        (60, |_| 600_000, 100_000),
        (70, |_| 700_000, 10_000),
        (80, |_| 800_000, 10_000),
    ];
    for cpus in [2, 16] {
        for sensing in SENSINGS {
            for (percent, load, want_ppm) in rows {
                let mut bed = Bed::new(cpus, 1, sensing, 300_000);
                bed.fill(load);
                bed.run_until(3 * SECOND);
                let (main, side, idle) = bed.shares(10 * SECOND);
                println!(
                    "{cpus:2} CPUs {sensing:?} main {percent} %: main {main} side {side} idle {idle}"
                );
                // What the kernel itself takes counts as main's.
                assert!(main.abs_diff(percent * 10_000) <= 8_000, "main {main}");
                let left_ppm = 700_000_u64.saturating_sub(main).max(10_000);
                assert!(left_ppm.abs_diff(want_ppm) <= 8_000);
                assert!(
                    side.abs_diff(left_ppm) <= SLACK_PPM,
                    "{sensing:?}: side {side}"
                );
                let due = 1_000_000 - main - left_ppm;
                assert!(idle.abs_diff(due) <= SLACK_PPM, "{sensing:?}: idle {idle}");
            }
        }
    }
}

/// Threads of a core: the allowance is the same, in logical CPUs.
#[test]
fn a_random_main_keeps_its_headroom() {
    for (cpus, threads) in [(4, 1), (16, 2), (64, 2)] {
        for sensing in SENSINGS {
            let mut bed = Bed::new(cpus, threads, sensing, 300_000);
            bed.fill_poisson(400_000);
            bed.run_until(3 * SECOND);
            let (main, side, idle) = bed.shares(10 * SECOND);
            let reclaim = side * 1_000 / (700_000 - main);
            println!(
                "{cpus} CPUs of {threads} {sensing:?}: main {main} side {side} idle {idle} reclaim {reclaim}"
            );
            assert!(
                idle.abs_diff(300_000) <= SLACK_PPM,
                "{sensing:?}: idle {idle}"
            );
            assert!(reclaim >= 950, "{sensing:?}: reclaim {reclaim}");
        }
    }
}

/// Main steps from 10 to 80 %: milliseconds until side work, over what follows, is within 5 points
/// of its new allowance.
#[test]
fn a_step_is_answered_in_time() {
    let square: Load = |ns| {
        if ns % (2_013 * MS) < 1_006 * MS {
            100_000
        } else {
            800_000
        }
    };
    for cpus in [2, 16] {
        for (sensing, bound_ms) in [(Sensing::Bpf, 20), (Sensing::Usage, 60)] {
            let mut bed = Bed::new(cpus, 1, sensing, 300_000);
            // Main itself is at its new level within half a millisecond.
            bed.fill_by(square, MS / 2);
            let mut after = Vec::new();
            for step in 2..9 {
                bed.run_until((step * 2_013 + 1_006) * MS);
                let side: Vec<u64> = (0..200).map(|_| bed.shares(MS).1).collect();
                let first = side
                    .windows(20)
                    .position(|window| window.iter().sum::<u64>() / 20 <= 60_000);
                after.push(first.unwrap());
            }
            after.sort_unstable();
            println!("{cpus} CPUs {sensing:?}: 10 -> 80 % in {after:?} ms");
            assert!(after[after.len() / 2] <= bound_ms, "{sensing:?}: {after:?}");
        }
    }
}

/// A fresh start gives the tolerance, and then what main leaves within a second.
#[test]
fn a_fresh_start_begins_at_the_tolerance() {
    for sensing in SENSINGS {
        let mut bed = Bed::new(8, 1, sensing, 300_000);
        bed.fill(|_| 300_000);
        let (_, side, _) = bed.shares(90 * MS);
        assert!(side <= 25_000, "{sensing:?}: {side} in the first 90 ms");
        bed.run_until(2 * SECOND);
        let (_, side, _) = bed.shares(SECOND);
        assert!(side.abs_diff(400_000) <= 10_000, "{sensing:?}: {side}");
    }
}

/// Main wants every CPU: side work still gets its tolerance, and no more than a little above it.
#[test]
fn side_work_never_starves() {
    for sensing in SENSINGS {
        for headroom_ppm in [0, 300_000] {
            let mut bed = Bed::new(4, 1, sensing, headroom_ppm);
            bed.fill(|_| 300_000);
            for _ in 0..8 {
                bed.spawn("flood", bed.main, super::bed::hog());
            }
            bed.run_until(4 * SECOND);
            let (_, side, _) = bed.shares(10 * SECOND);
            println!("{sensing:?} headroom {headroom_ppm}: side {side} ppm while main wants all");
            // With no headroom at all the loop cannot tell a full machine from one that side work
            // fills: it helps in turns.
            let least = if headroom_ppm == 0 { 4_000 } else { 8_000 };
            assert!((least..=25_000).contains(&side), "{sensing:?}: {side}");
        }
    }
}

/// The write rules hold in the closed loop: a steady main costs hardly a write.
#[test]
fn a_steady_main_needs_few_writes() {
    let mut bed = Bed::new(8, 1, Sensing::Bpf, 300_000);
    bed.fill(|_| 450_000);
    bed.run_until(13 * SECOND);
    let log = bed.log.lock().unwrap();
    let late = log
        .writes
        .iter()
        .filter(|write| write.0 > 3 * SECOND)
        .count();
    println!(
        "{} writes in all, {late} in the last 10 s",
        log.writes.len()
    );
    assert!(late <= 20, "{late}");
    assert!(log.steps > 2_500);
}

/// One seed, one run: events, use and writes to the last digit; another seed, another run.
#[test]
fn a_run_is_its_seed() {
    for sensing in SENSINGS {
        let run = |seed: u64| {
            let mut bed = Bed::seeded(8, 2, sensing, 300_000, seed);
            bed.fill_poisson(400_000);
            bed.run_until(2 * SECOND);
            let machine = &bed.simulation.machine;
            let writes = bed.log.lock().unwrap().writes.clone();
            (
                machine.events(),
                machine.usage_ns(bed.main),
                machine.usage_ns(bed.side),
                writes,
            )
        };
        assert_eq!(run(7), run(7), "{sensing:?}");
        assert_ne!(run(7), run(8), "{sensing:?}");
    }
}
