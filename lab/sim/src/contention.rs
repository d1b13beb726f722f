//! How busy neighbours slow a CPU: one stated function, in integers.
//!
//! A CPU shares its core with its siblings, its last-level cache with the CPUs of the cache, and memory and
//! power with the whole machine. A running task's speed, in millionths of its speed on a machine that is
//! otherwise idle, is the product of three terms:
//!
//! ```text
//! speed = (1 - sibling · busy siblings / siblings)
//!       · (1 - llc · busy share of the cache's other CPUs)
//!       · (1 - machine · max(0, busy share of the machine's other CPUs - knee) / (1 - knee))
//! ```
//!
//! each no lower than [`SPEED_PPM_MIN`]. "Busy" counts CPUs that run anything; what they run is not told
//! apart: a hog and a web server slow a neighbour alike. That is the model's assumption, not a mechanism of
//! Tidegate's, and reports sweep it. The coefficients are measured or derived: data/contention.toml says
//! which, from what, and over which range a report sweeps them.
//!
//! The sibling's term acts at once. The shares are read when a task is switched in and at its ticks: they
//! are means over many CPUs, so what changes within a tick is small, and no event costs more than O(1).
//!
//! No overflow: every factor is at most 10^6 and the speed at most 10^6, so products stay below 10^12.

use serde::Deserialize;

pub const SPEED_PPM_FULL: u32 = 1_000_000;

/// The least speed that the function gives: a task always gets on.
pub const SPEED_PPM_MIN: u32 = 50_000;

/// The coefficients, in millionths of full speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
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

#[derive(Debug, thiserror::Error)]
pub enum ContentionError {
    /// The file is no TOML of the expected form.
    #[error("contention: {0}; see lab/sim/data/contention.toml for the form")]
    Form(#[from] toml::de::Error),
    /// A coefficient outside its range.
    #[error(
        "contention: {name}: {got}: not between 0 and {SPEED_PPM_FULL}; it is a share in millionths"
    )]
    Range { name: &'static str, got: u32 },
}

/// The measured file's form: what else it holds (where each number came from) is for readers.
#[derive(Deserialize)]
struct File {
    coefficients: Contention,
    sweep: Sweep,
}

/// The range over which reports sweep the coefficients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// The least that is plausible.
    pub low: Contention,
    /// The most that is plausible.
    pub high: Contention,
}

const SHIPPED: &str = include_str!("../data/contention.toml");

impl Contention {
    /// Neighbours that do not matter.
    pub const NONE: Contention = Contention {
        sibling_ppm: 0,
        llc_ppm: 0,
        machine_ppm: 0,
        machine_knee_ppm: 0,
    };

    /// The frozen coefficients (data/contention.toml).
    pub fn shipped() -> Result<Contention, ContentionError> {
        Ok(Contention::read(SHIPPED)?.0)
    }

    /// The range over which reports sweep the coefficients (data/contention.toml).
    pub fn shipped_sweep() -> Result<Sweep, ContentionError> {
        Ok(Contention::read(SHIPPED)?.1)
    }

    /// Coefficients and their range from a file of the shipped one's form.
    pub fn read(text: &str) -> Result<(Contention, Sweep), ContentionError> {
        let file: File = toml::from_str(text)?;
        for coefficients in [&file.coefficients, &file.sweep.low, &file.sweep.high] {
            coefficients.validate()?;
        }
        Ok((file.coefficients, file.sweep))
    }

    /// Whether every coefficient is a share.
    pub fn validate(&self) -> Result<(), ContentionError> {
        for (name, got) in [
            ("sibling_ppm", self.sibling_ppm),
            ("llc_ppm", self.llc_ppm),
            ("machine_ppm", self.machine_ppm),
            ("machine_knee_ppm", self.machine_knee_ppm),
        ] {
            if got > SPEED_PPM_FULL {
                return Err(ContentionError::Range { name, got });
            }
        }
        Ok(())
    }

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

    #[test]
    fn the_shipped_file_is_read_and_its_range_holds_its_coefficients() {
        let (shipped, sweep) = Contention::read(SHIPPED).expect("the shipped file");
        let between = |low: u32, at: u32, high: u32| low <= at && at <= high;
        assert!(between(
            sweep.low.sibling_ppm,
            shipped.sibling_ppm,
            sweep.high.sibling_ppm
        ));
        assert!(between(
            sweep.low.llc_ppm,
            shipped.llc_ppm,
            sweep.high.llc_ppm
        ));
        assert!(between(
            sweep.low.machine_ppm,
            shipped.machine_ppm,
            sweep.high.machine_ppm
        ));
        assert!(shipped.sibling_ppm > 0, "a neighbour matters");
    }

    #[test]
    fn what_is_no_share_is_refused() {
        let text = SHIPPED.replacen("sibling_ppm = ", "sibling_ppm = 9000000 # ", 1);
        let message = Contention::read(&text).expect_err("refused").to_string();
        assert!(message.contains("sibling_ppm: 9000000"), "{message}");
        assert!(Contention::read("sibling_ppm = 3").is_err());
    }
}
