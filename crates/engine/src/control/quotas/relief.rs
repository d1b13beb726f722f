//! Side work that starves at its tolerance leaves the idle class until the tolerance is over.
//!
//! The tolerance is a promise to side work too, and the idle class breaks it: when main takes every
//! CPU, an idle group gets three thousandths of one. Out of the idle class, only the quota bounds
//! what side work costs main, so that quota is the tolerance the whole time: it is written before
//! the group leaves the idle class, and rises only after the group is back.

use super::{Quotas, Target};
use crate::control::apply::Apply;
use crate::control::meter::Use;
use crate::control::write_log::Write;

/// Side work that starves below its tolerance for this long is helped.
const RELIEF_AFTER_NS: u64 = 1_000_000_000;

#[derive(Default)]
pub struct Relief {
    /// It starves: its quota is the tolerance, and once that stands it leaves the idle class.
    asked: bool,
    out: bool,
    /// After a refused change of class: not before.
    again_ns: u64,
}

impl Relief {
    pub fn is_out(&self) -> bool {
        self.out
    }

    pub fn holds_at_floor(&self) -> bool {
        self.asked || self.out
    }
}

impl Target {
    /// The quota that is known to stand is no more than `floor_ucpu`, up to a period's rounding to
    /// whole microseconds.
    fn stands_at_floor(&self, floor_ucpu: u64) -> bool {
        self.standing()
            .and_then(|standing| standing.rate_ucpu())
            .is_some_and(|rate_ucpu| rate_ucpu <= floor_ucpu + floor_ucpu / 1_000)
    }

    fn write_class(&mut self, now_ns: u64, out: bool, apply: &mut dyn Apply) -> Option<Write> {
        if now_ns < self.relief.again_ns {
            return None;
        }
        if let Err(why) = apply.set_yielding(&self.group, !out) {
            // Each try rewrites the ledger: not at every step.
            self.relief.again_ns = now_ns.saturating_add(RELIEF_AFTER_NS);
            self.class_error.set(why.message);
            return None;
        }
        self.class_error.clear();
        self.relief.out = out;
        let (value, reason) = match out {
            true => ("not idle class", "starved below the tolerance"),
            false => ("idle class", "tolerance is over"),
        };
        Some(Write {
            at_ns: now_ns,
            path: self.group.to_string(),
            value: value.to_owned(),
            was: None,
            reason: reason.to_owned(),
        })
    }
}

impl Quotas {
    /// Before the quotas are written: side work that was at the tolerance for [`RELIEF_AFTER_NS`]
    /// and got less than half of it in the last second or two is to be helped; where the tolerance
    /// is over, it goes back into the idle class.
    pub(super) fn ask_relief(&mut self, now_ns: u64, floor_ucpu: u64, apply: &mut dyn Apply) {
        let span = &self.floor_span;
        let promised_ns = u128::from(floor_ucpu) * u128::from(span.wall_ns) / 1_000_000;
        let starved = span.wall_ns >= RELIEF_AFTER_NS && u128::from(span.side_ns) < promised_ns / 2;
        let at_floor = span.wall_ns > 0;
        for target in &mut self.targets {
            let starved = starved && target.is_awake;
            target.relief.asked = at_floor && (target.relief.asked || starved);
            if target.relief.out && !target.relief.asked {
                let written = target.write_class(now_ns, false, apply);
                written.into_iter().for_each(|write| self.log.add(write));
            }
        }
        let span = &mut self.floor_span;
        if starved {
            *span = Use {
                wall_ns: 1,
                ..Use::default()
            };
        } else if span.wall_ns >= 2 * RELIEF_AFTER_NS {
            // Use of long ago does not hide that side work starves now.
            (span.wall_ns, span.side_ns) = (span.wall_ns / 2, span.side_ns / 2);
        }
    }

    /// After the quotas were written: a group that is to be helped leaves the idle class, now that
    /// its quota is the tolerance.
    pub(super) fn relieve(&mut self, now_ns: u64, floor_each_ucpu: u64, apply: &mut dyn Apply) {
        for target in &mut self.targets {
            let relief = &target.relief;
            if relief.asked && !relief.out && target.stands_at_floor(floor_each_ucpu) {
                let written = target.write_class(now_ns, true, apply);
                written.into_iter().for_each(|write| self.log.add(write));
            }
        }
    }
}
