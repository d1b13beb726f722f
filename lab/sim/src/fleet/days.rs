//! Days as servers of interactive work have them: a tide over the day that falls at the weekend, an
//! hour of its own for each node, noise from second to second, and bursts.

use crate::Prng;

/// Main's use over a day, hour by hour from midnight, in parts per thousand of its largest.
const TIDE_PPT: [u64; 24] = [
    420, 360, 320, 300, 300, 330, 400, 520, 670, 800, 890, 930, 920, 940, 960, 950, 930, 920, 950,
    1_000, 980, 880, 710, 540,
];
const DAY_S: u64 = 86_400;
const WEEKEND_PPT: u64 = 700;
/// On average a node has a burst each half hour: so long, and so much of its CPUs.
const BURST_EVERY_S: u64 = 1_800;
const BURST_MEAN_S: u64 = 40;
const BURST_MAX_PPT: u64 = 400;
/// How far noise moves a second's use, and how much of it stays to the next draw.
const NOISE_PPT: u64 = 150;
const NOISE_STAYS_PPT: i64 = 800;
/// Noise is drawn this often.
const NOISE_STEP_S: u64 = 5;

/// Main's use of each node's CPUs over days, made up from a seed.
pub struct Days {
    pub cpus_milli: u64,
    /// Main's use at its highest hour, on the average node.
    pub peak_ppt: u64,
    pub seed: u64,
}

impl Days {
    pub fn node(&self, node: u64) -> NodeDay {
        let mut rng = Prng::stream(self.seed, node);
        // Nodes differ: a half to one and a half of the average, and three hours early or late.
        let peak_milli = self.cpus_milli * self.peak_ppt / 1_000 * rng.between(500, 1_500) / 1_000;
        let shift_s = rng.below(6 * 3_600);
        NodeDay {
            cpus_milli: self.cpus_milli,
            peak_milli,
            shift_s,
            noise_ppt: 0,
            noise_until_s: 0,
            burst_milli: 0,
            burst_until_s: 0,
            burst_next_s: rng.exp_ns(BURST_EVERY_S),
            rng,
        }
    }
}

/// Main's use of one node.
pub struct NodeDay {
    rng: Prng,
    cpus_milli: u64,
    peak_milli: u64,
    shift_s: u64,
    noise_ppt: i64,
    noise_until_s: u64,
    burst_milli: u64,
    burst_until_s: u64,
    burst_next_s: u64,
}

impl NodeDay {
    /// What main uses at this second, which never goes back.
    pub fn main_milli(&mut self, time_s: u64) -> u64 {
        while self.noise_until_s <= time_s {
            let draw_ppt = self.rng.below(2 * NOISE_PPT + 1) as i64 - NOISE_PPT as i64;
            self.noise_ppt =
                (self.noise_ppt * NOISE_STAYS_PPT + draw_ppt * (1_000 - NOISE_STAYS_PPT)) / 1_000;
            self.noise_until_s += NOISE_STEP_S;
        }
        while self.burst_next_s <= time_s {
            self.burst_until_s = self.burst_next_s + self.rng.exp_ns(BURST_MEAN_S);
            self.burst_milli = self.cpus_milli * self.rng.below(BURST_MAX_PPT) / 1_000;
            self.burst_next_s = self.burst_until_s + self.rng.exp_ns(BURST_EVERY_S).max(1);
        }
        let tide_milli = self.peak_milli * tide_ppt(time_s + self.shift_s) / 1_000;
        // The filter leaves a third of a draw's spread.
        let noise_milli = tide_milli as i64 * self.noise_ppt * 3 / 1_000;
        let burst_milli = if time_s < self.burst_until_s {
            self.burst_milli
        } else {
            0
        };
        let all_milli = tide_milli.saturating_add_signed(noise_milli) + burst_milli;
        all_milli.min(self.cpus_milli)
    }
}

fn tide_ppt(time_s: u64) -> u64 {
    let (day, within_s) = (time_s / DAY_S, time_s % DAY_S);
    let (hour, past_s) = ((within_s / 3_600) as usize, within_s % 3_600);
    let (from, to) = (TIDE_PPT[hour], TIDE_PPT[(hour + 1) % 24]);
    let ppt = (from * (3_600 - past_s) + to * past_s) / 3_600;
    if day % 7 >= 5 {
        ppt * WEEKEND_PPT / 1_000
    } else {
        ppt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_its_day_and_never_more_than_its_cpus() {
        let days = Days {
            cpus_milli: 16_000,
            peak_ppt: 500,
            seed: 1,
        };
        let mut night_milli = 0;
        let mut noon_milli = 0;
        for node in 0..50 {
            let mut node = days.node(node);
            for time_s in (0..DAY_S).step_by(10) {
                let milli = node.main_milli(time_s);
                assert!(milli <= 16_000);
                match time_s / 3_600 {
                    1 => night_milli += milli,
                    13 => noon_milli += milli,
                    _ => {}
                }
            }
        }
        assert!(
            noon_milli > night_milli * 3 / 2,
            "{noon_milli} {night_milli}"
        );
    }
}
