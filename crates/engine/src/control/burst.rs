//! `burst = auto`: windows of evidence for the law of adaptive burst (`law/burst.h`), and when its answer is worth a write.
//!
//! The agent runs it beside its loop, the simulator in its own: counters and the time come in with the call, the burst to
//! write comes out. A write refills the group's pool, so small changes wait until they are a tenth of the quota.

use tidegate_law::burst::{self, AutoBurst, Evidence};

use tidegate_cgroup::bandwidth::Bandwidth;

/// Evidence is gathered over this long.
pub const BURST_WINDOW_NS: u64 = 100_000_000;
/// Windows longer than this hold a pause, not a measurement.
const WINDOW_MAX_NS: u64 = 2_000_000_000;
const WORTH_PPM: u64 = 100_000;

/// Running counters of one group and of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BurstSeen {
    /// When the group's were read.
    pub at_ns: u64,
    /// CPU time of the group.
    pub used_ns: u64,
    /// Its periods that ended in throttling.
    pub nr_throttled: u64,
    /// When the machine's were read.
    pub machine_at_ns: u64,
    /// CPU time there was.
    pub capacity_ns: u64,
    /// ... and that was not used.
    pub idle_ns: u64,
}

/// The adaptive burst of one group.
#[derive(Clone, Debug)]
pub struct BurstLoop {
    law: AutoBurst,
    limit: Bandwidth,
    since: Option<BurstSeen>,
}

impl BurstLoop {
    /// For a group with this quota and period, whose burst stands at what `limit` says.
    pub fn new(limit: Bandwidth) -> Self {
        Self {
            law: AutoBurst::resumed(burst::Config::default(), limit.burst_us * 1_000),
            limit,
            since: None,
        }
    }

    /// The burst that was last asked to be written.
    pub fn burst_us(&self) -> u64 {
        self.limit.burst_us
    }

    /// Another quota or period: what was learnt of the old one goes.
    pub fn set_limit(&mut self, limit: Bandwidth) {
        if (limit.quota_us, limit.period_us) != (self.limit.quota_us, self.limit.period_us) {
            *self = Self::new(limit);
        }
    }

    /// Whether a window has gone by at `now_ns`, so that reading counters is worth while.
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.since
            .is_none_or(|since| now_ns.saturating_sub(since.at_ns) >= BURST_WINDOW_NS)
    }

    /// One reading in; the limit to write out, where it is worth a write. `room_ns` is the most burst that limited parents
    /// (and a hard cap) leave, or [`burst::NO_PARENT`].
    pub fn step(&mut self, now: &BurstSeen, room_ns: u64) -> Option<Bandwidth> {
        let quota_us = self.limit.quota_us?;
        let Some(since) = self.since else {
            self.since = Some(*now);
            return None;
        };
        let dt_ns = now.at_ns.saturating_sub(since.at_ns);
        let machine_dt_ns = now.machine_at_ns.saturating_sub(since.machine_at_ns);
        if dt_ns < BURST_WINDOW_NS || machine_dt_ns == 0 {
            // Nothing new of the machine: what was learnt stands.
            return None;
        }
        self.since = Some(*now);
        if dt_ns > WINDOW_MAX_NS || machine_dt_ns > WINDOW_MAX_NS {
            return None;
        }
        // The machine's counters are of another moment: their rates are taken, over the group's window.
        let over_window = |now: u64, since: u64| {
            let ns = u128::from(now.saturating_sub(since)) * u128::from(dt_ns);
            u64::try_from(ns / u128::from(machine_dt_ns)).unwrap_or(u64::MAX)
        };
        let throttled = now.nr_throttled.saturating_sub(since.nr_throttled);
        let evidence = Evidence {
            dt_ns,
            quota_ns: quota_us.saturating_mul(1_000),
            period_ns: self.limit.period_us.saturating_mul(1_000),
            used_ns: now.used_ns.saturating_sub(since.used_ns),
            room_ns,
            capacity_ns: over_window(now.capacity_ns, since.capacity_ns),
            idle_ns: over_window(now.idle_ns, since.idle_ns),
            throttled: u32::try_from(throttled).unwrap_or(u32::MAX),
            ..Evidence::default()
        }
        .vouched(true);
        let burst_us = (self.law.step(&evidence) / 1_000).min(quota_us);
        self.worth_writing(burst_us, quota_us).then(|| {
            self.limit.burst_us = burst_us;
            self.limit
        })
    }

    fn worth_writing(&self, burst_us: u64, quota_us: u64) -> bool {
        let standing_us = self.limit.burst_us;
        let worth_us = (quota_us * WORTH_PPM / 1_000_000).max(1);
        let an_end = burst_us == quota_us || burst_us == 0;
        burst_us.abs_diff(standing_us) >= worth_us || (an_end && burst_us != standing_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Bandwidth = Bandwidth::limit(40_000, 100_000);
    const MS: u64 = 1_000_000;

    /// `windows` of 100 ms on two CPUs, each with `used_ms` used, `idle_ms` idle and one throttled period.
    fn run(
        auto: &mut BurstLoop,
        seen: &mut BurstSeen,
        windows: u32,
        used_ms: u64,
        idle_ms: u64,
    ) -> u32 {
        let mut writes = 0;
        for _ in 0..windows {
            seen.at_ns += 100 * MS;
            seen.machine_at_ns = seen.at_ns - 30 * MS;
            seen.used_ns += used_ms * MS;
            seen.capacity_ns += 200 * MS;
            seen.idle_ns += idle_ms * MS;
            seen.nr_throttled += 1;
            writes += u32::from(auto.step(seen, burst::NO_PARENT).is_some());
        }
        writes
    }

    #[test]
    fn grows_while_throttled_below_quota_in_few_writes_and_goes_when_the_machine_is_short() {
        let mut auto = BurstLoop::new(LIMIT);
        let mut seen = BurstSeen {
            at_ns: 1_000 * MS,
            ..BurstSeen::default()
        };
        assert_eq!(
            run(&mut auto, &mut seen, 11, 30, 100),
            0,
            "a second of calm"
        );
        let writes = run(&mut auto, &mut seen, 20, 30, 100);
        assert_eq!(auto.burst_us(), 40_000, "all of the quota");
        assert_eq!(writes, 1, "each is a refill");
        run(&mut auto, &mut seen, 20, 30, 1);
        assert_eq!(auto.burst_us(), 0);
    }

    #[test]
    fn above_its_quota_on_average_it_gets_none() {
        let mut auto = BurstLoop::new(LIMIT);
        let mut seen = BurstSeen::default();
        assert_eq!(run(&mut auto, &mut seen, 60, 42, 100), 0);
    }

    #[test]
    fn what_stood_before_a_restart_is_where_it_goes_on() {
        let standing = Bandwidth {
            burst_us: 20_000,
            ..LIMIT
        };
        let mut auto = BurstLoop::new(standing);
        let mut seen = BurstSeen::default();
        run(&mut auto, &mut seen, 3, 30, 100);
        assert!(auto.burst_us() >= 20_000, "{}", auto.burst_us());
        auto.set_limit(Bandwidth::limit(10_000, 100_000));
        assert_eq!(auto.burst_us(), 0, "another quota begins anew");
    }

    #[test]
    fn parents_bound_it_and_pauses_are_no_evidence() {
        let mut auto = BurstLoop::new(LIMIT);
        let mut seen = BurstSeen::default();
        for _ in 0..60 {
            seen.at_ns += 100 * MS;
            seen.machine_at_ns = seen.at_ns;
            seen.capacity_ns += 200 * MS;
            seen.idle_ns += 150 * MS;
            seen.used_ns += 30 * MS;
            seen.nr_throttled += 1;
            auto.step(&seen, 7 * MS);
        }
        assert!(auto.burst_us() == 7_000, "{}", auto.burst_us());
        let before_us = auto.burst_us();
        seen.at_ns += 60_000 * MS;
        seen.machine_at_ns = seen.at_ns;
        assert_eq!(auto.step(&seen, 0), None);
        assert_eq!(auto.burst_us(), before_us);
    }
}
