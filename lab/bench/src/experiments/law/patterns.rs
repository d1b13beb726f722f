//! Main that varies: how it moves, and how a run is judged, on either bed.

use crate::beds::host::samplers::{Shares, Snapshot, shares};
use crate::beds::{HEADROOM_PCT, TOLERANCE_PCT};
use crate::rng::Rng;

const NS: f64 = 1e9;

/// What one pattern of main gave.
pub struct Varying {
    /// How main moved.
    pub name: &'static str,
    /// Idle less what was due, in the worst second.
    pub worst_points: f64,
    /// Idle in that second.
    pub worst_idle: f64,
    /// Over the whole.
    pub mean: Shares,
    /// (seconds, main, side, idle) of each second, every 100 ms.
    pub trace: Vec<[f64; 4]>,
}

/// How main moves: a level in ppm for a time in seconds.
pub struct Pattern {
    /// In tables.
    pub name: &'static str,
    /// Level at a time in seconds.
    pub level_ppm: fn(f64, &mut Rng) -> u32,
    /// Seconds between two levels.
    pub hold: f64,
}

/// A square wave.
pub const SQUARE: Pattern = Pattern {
    name: "square wave, 20 and 60 % for 1 s each",
    level_ppm: |t, _| {
        if (t as u64).is_multiple_of(2) {
            200_000
        } else {
            600_000
        }
    },
    hold: 1.0,
};

/// A ramp.
pub const RAMP: Pattern = Pattern {
    name: "ramp, 10 to 80 % and back in 6 s",
    level_ppm: |t, _| {
        let phase = (t % 6.0) / 3.0;
        let up = if phase < 1.0 { phase } else { 2.0 - phase };
        100_000 + (700_000.0 * up) as u32
    },
    hold: 0.02,
};

/// Idle that the terms ask for while `main` (and the rest) use this much.
pub fn expected_idle(busy_pct: f64) -> f64 {
    let allowance = (100.0 - HEADROOM_PCT - busy_pct).max(TOLERANCE_PCT);
    (100.0 - busy_pct - allowance).max(0.0)
}

/// Every second of a varying run, each 100 ms. What is due in a second is the mean of what is due in
/// its tenths: while main alone takes more than the headroom leaves, idle cannot be kept.
pub fn judge(name: &'static str, looks: &[Snapshot], cpus: usize) -> Varying {
    let mut varying = Varying {
        name,
        worst_points: f64::INFINITY,
        worst_idle: 100.0,
        mean: Shares::default(),
        trace: Vec::new(),
    };
    if let (Some(first), Some(last)) = (looks.first(), looks.last()) {
        varying.mean = shares(first, last, cpus);
    }
    for pair in looks.windows(11) {
        let s = shares(&pair[0], &pair[10], cpus);
        let tenths = pair
            .windows(2)
            .map(|p| shares(&p[0], &p[1], cpus).main_pct + s.other_pct);
        let due = tenths.map(expected_idle).sum::<f64>() / 10.0;
        let points = s.idle_pct - due;
        if points < varying.worst_points {
            varying.worst_points = points;
            varying.worst_idle = s.idle_pct;
        }
        let t = (pair[10].wall_ns - looks[0].wall_ns) as f64 / NS;
        varying.trace.push([t, s.main_pct, s.side_pct, s.idle_pct]);
    }
    varying
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::published::LAW;

    #[test]
    fn what_is_due_follows_the_published_table() {
        for row in &LAW {
            let due = expected_idle(f64::from(row.main_pct));
            let tolerance = if row.side_pct.is_none() {
                TOLERANCE_PCT
            } else {
                0.0
            };
            assert!((due - (f64::from(row.idle_pct) - tolerance)).abs() < 1e-9);
        }
        assert_eq!(expected_idle(99.5), 0.0);
    }

    #[test]
    fn the_worst_second_is_found() {
        // Two CPUs; in the second from 2.0 to 3.0 s side takes 10 points too much.
        let looks: Vec<Snapshot> = (0..=60u64)
            .map(|i| Snapshot {
                wall_ns: i * 100_000_000,
                main_ns: i * 80_000_000,
                side_ns: i * 60_000_000 + 20_000_000 * i.saturating_sub(20).min(10),
                ..Snapshot::default()
            })
            .collect();
        let v = judge("test", &looks, 2);
        assert!((v.worst_points + 10.0).abs() < 1e-6, "{}", v.worst_points);
        assert!((v.worst_idle - 20.0).abs() < 1e-6);
    }
}
