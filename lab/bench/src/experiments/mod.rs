//! The experiments, each a value. Every mechanism has one that compares it with the published
//! figures it began with:
//!
//! | mechanism | published | experiments |
//! |---|---|---|
//! | headroom | the cpu.headroom patches, Song Liu, 2019 | `law`, `step`, `headroom` |
//! | latency hints | *Latency hints for CFS task*, Vincent Guittot, LPC 2022 | `latency` |
//! | burst | *Burstable CFS bandwidth controller*, Huaixin Chang, 2021 | `burst` |
//! | slices | Linux commit de53fd7aedb1, Dave Chiluk, 2019 | `slices` |
//! | rate caps | *CPU rate caps*, Peter Williams, 2006 | `caps` |

pub mod burst;
pub mod caps;
pub mod headroom;
mod latency;
mod law;
pub mod placing;
mod slices;
pub mod step;

pub use burst::BURST;
pub use caps::CAPS;
pub use headroom::HEADROOM;
pub use latency::LATENCY;
pub use law::LAW;
pub use slices::SLICES;
pub use step::STEP;

use crate::experiment::Experiment;

/// All of them, in the order of the command's help.
pub static ALL: [&Experiment; 7] = [&LAW, &STEP, &HEADROOM, &LATENCY, &BURST, &SLICES, &CAPS];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LabOptions;
    use crate::experiment::Ask;

    #[test]
    fn every_experiment_plans_its_cells_where_it_runs() {
        for e in ALL {
            for &on in e.places {
                let mut options = LabOptions::new(e);
                (options.on, options.quick) = (on, true);
                let ask = Ask {
                    options: &options,
                    cpus: 2,
                };
                for part in (e.parts)(&ask).expect("a plan") {
                    assert!(!part.metrics.is_empty(), "{}: {}", e.name, part.key);
                    let arms: Vec<&str> = part.cells.iter().map(|c| c.arm.key.as_str()).collect();
                    assert!(!arms.is_empty(), "{}: {} has no cell", e.name, part.key);
                    let targets = part.targets.iter().flat_map(|t| &t.arms);
                    let lost: Vec<&String> =
                        targets.filter(|a| !arms.contains(&a.as_str())).collect();
                    assert!(
                        lost.is_empty(),
                        "{}: {}: {lost:?} on {on:?}",
                        e.name,
                        part.key
                    );
                }
            }
        }
    }
}
