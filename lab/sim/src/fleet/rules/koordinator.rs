//! Koordinator's batch CPU with its defaults (`slo-controller/noderesource`): `60 % of the node −
//! main`, main as the mean of five minutes, looked at each minute; written when it differs by more
//! than 10 %, or after five minutes when it differs at all. Zero is written as zero. It evicts
//! nothing by default.

use std::collections::VecDeque;

use tidegate_publish::Write;

use super::{NodeSeen, Publisher, Wish};

const RECLAIM_PERCENT: u64 = 60;
const MEAN_OVER_S: u64 = 300;
const LOOK_EVERY_S: u64 = 60;
const DIFFERENCE_PERCENT: u64 = 10;
const WRITE_AFTER_S: u64 = 300;

#[derive(Default)]
pub struct Koordinator {
    samples: VecDeque<(u64, u64)>,
    sum_milli: u64,
    next_look_s: u64,
    wrote_s: Option<u64>,
}

impl Publisher for Koordinator {
    fn step(&mut self, node: &NodeSeen) -> Wish {
        Wish {
            write: self.write(node),
            must_evict: false,
        }
    }
}

impl Koordinator {
    fn write(&mut self, node: &NodeSeen) -> Write {
        let time_s = node.seen.time_s;
        self.samples.push_back((time_s, node.main_milli));
        self.sum_milli += node.main_milli;
        while let Some((old_s, milli)) = self.samples.front().copied()
            && old_s + MEAN_OVER_S <= time_s
        {
            self.samples.pop_front();
            self.sum_milli -= milli;
        }
        if time_s < self.next_look_s {
            return Write::Keep;
        }
        self.next_look_s = time_s + LOOK_EVERY_S;
        let mean_milli = self.sum_milli / self.samples.len() as u64;
        let wanted_milli = (node.cpus_milli * RECLAIM_PERCENT / 100).saturating_sub(mean_milli);
        let must_write = match node.seen.standing_milli {
            None => true,
            Some(standing_milli) => {
                let difference_milli = standing_milli.abs_diff(wanted_milli);
                let is_old = self
                    .wrote_s
                    .is_none_or(|wrote_s| time_s >= wrote_s + WRITE_AFTER_S);
                difference_milli * 100 > standing_milli * DIFFERENCE_PERCENT
                    || is_old && difference_milli > 0
            }
        };
        if !must_write {
            return Write::Keep;
        }
        self.wrote_s = Some(time_s);
        Write::Set(wanted_milli)
    }
}
