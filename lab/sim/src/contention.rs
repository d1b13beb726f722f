//! How busy neighbours slow a CPU: one stated function, in integers.
//!
//! A CPU shares its core with its siblings, its last-level cache with the CPUs of the cache, and
//! memory and power with the whole machine. A running task's speed, in millionths of its speed on a
//! machine that is otherwise idle, is the product of three terms:
//!
//! ```text
//! speed = (1 - sibling · busy siblings / siblings)
//!       · (1 - llc · busy share of the cache's other CPUs)
//!       · (1 - machine · max(0, busy share of the machine's other CPUs - knee) / (1 - knee))
//! ```
//!
//! each no lower than [`SPEED_PPM_MIN`]. "Busy" counts CPUs that run anything: a hog and a web
//! server slow a neighbour alike. That is the model's assumption, not a mechanism of Tidegate's,
//! and reports sweep it.
//!
//! The sibling's term acts at once. The shares are read when a task is switched in and at its
//! ticks: they are means over many CPUs, so what changes within a tick is small, and no event costs
//! more than O(1).
//!
//! No overflow: every factor is at most 10^6 and the speed at most 10^6, so products stay below
//! 10^12.

pub const SPEED_PPM_FULL: u32 = 1_000_000;

/// The least speed that the function gives: a task always gets on.
pub const SPEED_PPM_MIN: u32 = 50_000;

/// The coefficients, in millionths of full speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contention {
    /// Speed lost when all siblings of the core are busy.
    pub sibling_ppm: u32,
    /// Speed lost when all other CPUs of the cache are busy.
    pub llc_ppm: u32,
    /// Speed lost when the whole machine is busy.
    pub machine_ppm: u32,
    /// Below this busy share of the machine the third term is none.
    pub machine_knee_ppm: u32,
}

/// Who is busy around a CPU, itself left out: how many of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// Busy threads of the core, and how many there are.
    pub siblings: (u32, u32),
    /// Busy CPUs of the cache, and how many there are.
    pub llc: (u32, u32),
    /// Busy CPUs of the machine, and how many there are.
    pub machine: (u32, u32),
}

/// What the knee is in every set of coefficients: the 40 % that main takes in the example of the
/// cpu.headroom patches (2019), so that main alone at load 1.0 is the reference.
const KNEE_PPM: u32 = 400_000;

impl Contention {
    /// Neighbours that do not matter.
    pub const NONE: Contention = Contention {
        sibling_ppm: 0,
        llc_ppm: 0,
        machine_ppm: 0,
        machine_knee_ppm: 0,
    };

    /// - `sibling_ppm` is not measured. Linux up to 4.18 took two busy threads of a core for
    ///   1178/1024 of one (`smt_gain` in kernel/sched/topology.c), so each loses 1 − 589/1024.
    /// - `llc_ppm` is measured on two CPUs (AMD EPYC, Linux 6.18, 22 November 2026, 40 rounds): a
    ///   worker of cache runs at 0.9907 of its speed next to another one and at 1.0369 next to one
    ///   of arithmetic. That is taken for each of the 7 neighbours in a cache of 8 cores, which is
    ///   an assumption.
    /// - `machine_ppm` is calibrated. The cpu.headroom patches (2019) report 1.82 times the average
    ///   latency at load 1.0 with ffmpeg on all idle CPUs, and what the two nearer terms leave
    ///   unexplained is put here: 1 − (1 − 0.4 llc) / (1.82 (1 − sibling) (1 − llc)), at least 0.
    ///   Scheduling delay is part of that figure, so this is the largest possible value.
    pub const MEASURED: Contention = Contention {
        sibling_ppm: 424_805,
        llc_ppm: 65_121,
        machine_ppm: 4_834,
        machine_knee_ppm: KNEE_PPM,
    };

    /// The least that reports sweep: two threads of a core give 1.4 times one.
    pub const LOW: Contention = Contention {
        sibling_ppm: 300_000,
        llc_ppm: 0,
        machine_ppm: 0,
        machine_knee_ppm: KNEE_PPM,
    };

    /// The most that reports sweep: two threads of a core give as much as one, a cache costs four
    /// times the measured figure, and the machine what the formula above gives with the least
    /// `sibling_ppm`.
    pub const HIGH: Contention = Contention {
        sibling_ppm: 500_000,
        llc_ppm: 260_484,
        machine_ppm: 215_071,
        machine_knee_ppm: KNEE_PPM,
    };

    /// Whether every CPU always runs at full speed.
    pub fn is_none(&self) -> bool {
        self.sibling_ppm == 0 && self.llc_ppm == 0 && self.machine_ppm == 0
    }
}

/// The speed of a CPU among these neighbours: between [`SPEED_PPM_MIN`] and [`SPEED_PPM_FULL`].
pub fn speed_ppm(contention: &Contention, neighbours: &Neighbours) -> u32 {
    let sibling = term_ppm(contention.sibling_ppm, share_ppm(neighbours.siblings));
    let llc = term_ppm(contention.llc_ppm, share_ppm(neighbours.llc));
    let machine = above_knee_ppm(share_ppm(neighbours.machine), contention.machine_knee_ppm);
    let machine = term_ppm(contention.machine_ppm, machine);
    let speed = FULL * sibling / FULL * llc / FULL * machine / FULL;
    (speed as u32).clamp(SPEED_PPM_MIN, SPEED_PPM_FULL)
}

const FULL: u64 = SPEED_PPM_FULL as u64;

/// `busy / of` in millionths, at most 1; a CPU without neighbours of a kind has none busy.
fn share_ppm((busy, of): (u32, u32)) -> u64 {
    if of == 0 {
        0
    } else {
        u64::from(busy.min(of)) * FULL / u64::from(of)
    }
}

/// How far a share is between the knee and 1, in millionths.
fn above_knee_ppm(share_ppm: u64, knee_ppm: u32) -> u64 {
    let knee_ppm = u64::from(knee_ppm);
    if share_ppm <= knee_ppm {
        return 0;
    }
    // share is at most FULL and above the knee, so the divisor is above 0.
    (share_ppm - knee_ppm) * FULL / (FULL - knee_ppm)
}

/// What is left of full speed when this share of a resource's users is busy, in millionths.
fn term_ppm(coefficient_ppm: u32, share_ppm: u64) -> u64 {
    FULL - u64::from(coefficient_ppm) * share_ppm / FULL
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Contention = Contention {
        sibling_ppm: 400_000,
        llc_ppm: 100_000,
        machine_ppm: 200_000,
        machine_knee_ppm: 500_000,
    };

    fn neighbours(sibling: u32, llc: u32, machine: u32) -> Neighbours {
        Neighbours {
            siblings: (sibling, 1),
            llc: (llc, 10),
            machine: (machine, 100),
        }
    }

    #[test]
    fn alone_is_full_speed() {
        assert_eq!(speed_ppm(&SOME, &neighbours(0, 0, 0)), SPEED_PPM_FULL);
        assert_eq!(
            speed_ppm(&Contention::NONE, &neighbours(1, 10, 100)),
            SPEED_PPM_FULL
        );
        assert_eq!(speed_ppm(&SOME, &Neighbours::default()), SPEED_PPM_FULL);
    }

    #[test]
    fn each_term_alone_is_as_stated() {
        assert_eq!(speed_ppm(&SOME, &neighbours(1, 0, 0)), 600_000);
        assert_eq!(speed_ppm(&SOME, &neighbours(0, 5, 0)), 950_000);
        assert_eq!(
            speed_ppm(&SOME, &neighbours(0, 0, 50)),
            SPEED_PPM_FULL,
            "the knee itself costs nothing"
        );
        assert_eq!(speed_ppm(&SOME, &neighbours(0, 0, 75)), 900_000);
        assert_eq!(
            speed_ppm(&SOME, &neighbours(1, 10, 100)),
            432_000,
            "0.6 · 0.9 · 0.8"
        );
    }

    #[test]
    fn more_neighbours_never_speed_a_cpu_up() {
        for sibling in 0..=1 {
            for llc in 0..=10 {
                for machine in 0..100 {
                    let speed = speed_ppm(&SOME, &neighbours(sibling, llc, machine));
                    assert!(speed >= speed_ppm(&SOME, &neighbours(sibling, llc, machine + 1)));
                    assert!(speed >= speed_ppm(&SOME, &neighbours(1, (llc + 1).min(10), machine)));
                }
            }
        }
    }

    #[test]
    fn the_worst_coefficients_leave_a_floor() {
        let all = Contention {
            sibling_ppm: 1_000_000,
            llc_ppm: 1_000_000,
            machine_ppm: 1_000_000,
            machine_knee_ppm: 1_000_000,
        };
        assert_eq!(speed_ppm(&all, &neighbours(1, 10, 100)), SPEED_PPM_MIN);
    }
}
