//! The headroom contract beside what the experiments law and step hold: a random main, a fresh
//! start, and the tolerance.

use super::bed::{Bed, SENSINGS};
use crate::support::{MS, SECOND};

/// How far idle may be from what is due, in millionths of the machine.
const SLACK_PPM: u64 = 10_000;

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

/// A fresh start gives the tolerance, and then what main leaves within a second.
#[test]
fn a_fresh_start_begins_at_the_tolerance() {
    for sensing in SENSINGS {
        let mut bed = Bed::new(8, 1, sensing, 300_000);
        bed.fill(300_000);
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
            bed.fill(300_000);
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
