//! Katalyst's reclaimed CPU with its utilisation-based headroom (off by default) and the defaults
//! of its reporter: a supply `node − 1.25 · main − 4 CPUs`, at least 4 (an eighth each of a small
//! node); from it `min(max(last + supply · (60 % − utilisation), supply), 120 % of supply)`,
//! averaged over two minutes, looked at each 30 s; changes below 0.3 CPUs are skipped, and one is
//! at most 4. It evicts nothing by default.

use std::collections::VecDeque;

use tidegate_publish::Write;

use super::{NodeSeen, Publisher, Wish};

const LOOK_EVERY_S: u64 = 30;
const WINDOW: usize = 4;
const RESERVE_MAX_MILLI: u64 = 4_000;
const TARGET_PERCENT: u64 = 60;
const STEP_MIN_MILLI: u64 = 300;
const STEP_MAX_MILLI: u64 = 4_000;

#[derive(Default)]
pub struct Katalyst {
    next_look_s: u64,
    /// Main's and side work's use since the last look, summed, and how many samples.
    main_sum_milli: u64,
    side_sum_milli: u64,
    samples: u64,
    recent_milli: VecDeque<u64>,
}

impl Publisher for Katalyst {
    fn step(&mut self, node: &NodeSeen) -> Wish {
        Wish {
            write: self.write(node),
            must_evict: false,
        }
    }
}

impl Katalyst {
    fn write(&mut self, node: &NodeSeen) -> Write {
        self.main_sum_milli += node.main_milli;
        self.side_sum_milli += node.side_milli;
        self.samples += 1;
        if node.seen.time_s < self.next_look_s {
            return Write::Keep;
        }
        self.next_look_s = node.seen.time_s + LOOK_EVERY_S;
        let main_milli = self.main_sum_milli / self.samples;
        let side_milli = self.side_sum_milli / self.samples;
        (self.main_sum_milli, self.side_sum_milli, self.samples) = (0, 0, 0);

        let reserve_milli = RESERVE_MAX_MILLI.min(node.cpus_milli / 8);
        let for_main_milli = main_milli * 5 / 4 + reserve_milli;
        let supply_milli = node
            .cpus_milli
            .saturating_sub(for_main_milli)
            .max(reserve_milli);
        let last_milli = node.seen.standing_milli.unwrap_or(supply_milli);
        // last + supply · 60 % − side: with utilisation = side / supply.
        let grown_milli =
            (last_milli + supply_milli * TARGET_PERCENT / 100).saturating_sub(side_milli);
        let headroom_milli = grown_milli.max(supply_milli).min(supply_milli * 6 / 5);
        self.recent_milli.push_back(headroom_milli);
        if self.recent_milli.len() > WINDOW {
            self.recent_milli.pop_front();
        }
        let mean_milli = self.recent_milli.iter().sum::<u64>() / self.recent_milli.len() as u64;
        match node.seen.standing_milli {
            None => Write::Set(mean_milli),
            Some(standing_milli) if standing_milli.abs_diff(mean_milli) < STEP_MIN_MILLI => {
                Write::Keep
            }
            Some(standing_milli) => {
                let least_milli = standing_milli.saturating_sub(STEP_MAX_MILLI);
                Write::Set(mean_milli.clamp(least_milli, standing_milli + STEP_MAX_MILLI))
            }
        }
    }
}
