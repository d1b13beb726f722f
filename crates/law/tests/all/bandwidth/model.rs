//! The slow model: one period at a time, 128 bits, written from the formulas of `law/bandwidth.md` and, for the stock kernel,
//! from its `fair.c`. It remembers more than the law does (when each CPU was throttled, what each period was given) so that
//! nothing in it is derived the way the header derives it.

use tidegate_law::bandwidth::{NONE, Terms};

/// How a group is metered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Law,
    Expiring,
    Kernel,
    OldKernel,
}

impl Kind {
    pub fn is_kernel(self) -> bool {
        matches!(self, Self::Kernel | Self::OldKernel)
    }

    fn expires(self) -> bool {
        matches!(self, Self::Expiring | Self::OldKernel)
    }
}

#[derive(Clone, Debug, Default)]
pub struct ModelSilo {
    pub remaining: i128,
    pub throttled: bool,
    /// The period of the last refill that this CPU's runtime came from.
    from_period: u64,
    throttled_since: i128,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelStat {
    pub periods: u64,
    pub throttled: u64,
    pub throttled_ns: i128,
    pub bursts: u64,
    pub burst_ns: i128,
    pub expired_ns: i128,
}

#[derive(Clone, Debug)]
pub struct Model {
    kind: Kind,
    quota: Option<i128>,
    period: i128,
    burst: i128,
    slice: i128,
    pub pool: i128,
    /// When the current period ends.
    pub end: i128,
    /// Quota given in the current period; none more may be if it is not known.
    given: Option<i128>,
    /// Runtime right after the last refill, less what a change of terms moved since.
    after_refill: i128,
    refills: u64,
    timer_runs: bool,
    taken_in_period: bool,
    pub silos: Vec<ModelSilo>,
    pub stat: ModelStat,
    /// Everything that refills and raises ever added, after clipping to what the pool can hold.
    pub added: i128,
}

impl Model {
    pub fn new(kind: Kind, cpus: usize, phase: u64) -> Self {
        Self {
            kind,
            quota: None,
            period: 100_000_000,
            burst: 0,
            slice: 5_000_000,
            pool: 0,
            end: i128::from(phase),
            given: Some(0),
            after_refill: 0,
            refills: 0,
            timer_runs: false,
            taken_in_period: false,
            silos: vec![ModelSilo::default(); cpus],
            stat: ModelStat::default(),
            added: 0,
        }
    }

    fn refill(&mut self, quota: i128) {
        let taken = self.after_refill - self.pool;
        if taken > quota {
            self.stat.bursts += 1;
            self.stat.burst_ns += taken - quota;
        }
        self.fill(quota);
        self.after_refill = self.pool;
        self.given = Some(quota);
        self.refills += 1;
    }

    fn fill(&mut self, amount: i128) {
        let Some(quota) = self.quota else { return };
        let full = (self.pool + amount).min(quota + self.burst);
        self.added += full - self.pool;
        self.pool = full;
    }

    /// One turnover, as the kernel's timer counts it.
    fn count_period(&mut self) {
        let throttled = self.silos.iter().any(|silo| silo.throttled);
        if throttled {
            self.stat.periods += 1;
            self.stat.throttled += 1;
            self.taken_in_period = true;
        } else if self.timer_runs {
            self.stat.periods += 1;
            self.timer_runs = self.taken_in_period;
            self.taken_in_period = false;
        }
    }

    /// All turnovers up to now; how many.
    pub fn turnover(&mut self, now: u64) -> u64 {
        let Some(quota) = self.quota else { return 0 };
        if self.kind.is_kernel() && !self.timer_runs {
            return 0;
        }
        let now = i128::from(now);
        let mut ended = 0;
        if self.kind.is_kernel() && now >= self.end {
            // The timer handles all of them as one, but counts each.
            let throttled = self.silos.iter().any(|silo| silo.throttled);
            while now >= self.end {
                self.end += self.period;
                ended += 1;
                self.stat.periods += 1;
                self.stat.throttled += u64::from(throttled);
            }
            if !throttled {
                self.timer_runs = self.taken_in_period;
            }
            self.taken_in_period = throttled;
            self.refill(quota);
        }
        while now >= self.end {
            self.end += self.period;
            ended += 1;
            self.count_period();
            self.refill(quota);
        }
        ended
    }

    fn wake_timer(&mut self, now: u64) {
        if self.timer_runs {
            return;
        }
        self.timer_runs = true;
        while i128::from(now) >= self.end {
            self.end += self.period;
        }
    }

    fn drop_expired(&mut self, cpu: usize) {
        let silo = &mut self.silos[cpu];
        if self.kind.expires() && silo.from_period != self.refills && silo.remaining > 0 {
            self.stat.expired_ns += silo.remaining;
            silo.remaining = 0;
        }
    }

    fn give(&mut self, cpu: usize, amount: i128) {
        let amount = amount.min(self.pool);
        self.pool -= amount;
        self.silos[cpu].remaining += amount;
        self.silos[cpu].from_period = self.refills;
    }

    /// Fill the silo to `want`; true: it has something.
    pub fn take(&mut self, cpu: usize, want: i128, now: u64) -> bool {
        if self.quota.is_none() {
            return true;
        }
        if self.kind.is_kernel() {
            self.wake_timer(now);
        } else {
            self.turnover(now);
        }
        self.drop_expired(cpu);
        if self.silos[cpu].remaining > 0 {
            return true;
        }
        if self.pool > 0 {
            self.give(cpu, want - self.silos[cpu].remaining);
            self.taken_in_period = true;
            self.timer_runs = true;
        }
        self.silos[cpu].remaining > 0
    }

    pub fn run(&mut self, cpu: usize, delta: u64, now: u64) -> bool {
        if self.quota.is_none() {
            return true;
        }
        let silo = &mut self.silos[cpu];
        silo.remaining -= i128::from(delta);
        let stale = self.kind.expires() && silo.from_period != self.refills;
        if silo.remaining > 0 && !stale {
            return true;
        }
        !silo.throttled && self.take(cpu, self.slice, now)
    }

    pub fn throttle(&mut self, cpu: usize, now: u64) -> bool {
        if self.silos[cpu].throttled {
            return true;
        }
        if self.take(cpu, 1, now) {
            return false;
        }
        self.silos[cpu].throttled = true;
        self.silos[cpu].throttled_since = i128::from(now);
        true
    }

    fn unthrottle(&mut self, cpu: usize, now: u64) {
        if self.silos[cpu].throttled {
            self.silos[cpu].throttled = false;
            self.stat.throttled_ns += i128::from(now) - self.silos[cpu].throttled_since;
        }
    }

    pub fn distribute(&mut self, cpu: usize, now: u64) -> bool {
        if !self.kind.is_kernel() {
            self.turnover(now);
        }
        let owed = 1 - self.silos[cpu].remaining;
        if self.quota.is_some() && self.silos[cpu].throttled && owed > 0 {
            let pays = self.pool >= owed;
            self.give(cpu, owed);
            if !pays {
                return false;
            }
        }
        self.unthrottle(cpu, now);
        true
    }

    pub fn give_back(&mut self, cpu: usize) {
        if self.quota.is_none() {
            return;
        }
        let slack = (self.silos[cpu].remaining - 1_000_000).max(0);
        self.silos[cpu].remaining -= slack;
        if slack > 0 && self.kind.expires() && self.silos[cpu].from_period != self.refills {
            self.stat.expired_ns += slack;
        } else {
            self.pool += slack;
        }
    }

    /// A change of terms, by the law or as a write of the kernel's file.
    pub fn set(&mut self, terms: &Terms, now: u64) {
        let (was, period) = (self.quota, i128::from(terms.period_ns));
        if !self.kind.is_kernel() {
            self.turnover(now);
        }
        if self.period != period {
            self.given = None;
        }
        self.period = period;
        self.slice = i128::from(terms.slice_ns);
        self.burst = i128::from(terms.burst_ns.min(terms.quota_ns));
        self.quota = (terms.quota_ns != NONE).then_some(i128::from(terms.quota_ns));
        if self.kind.is_kernel() {
            for cpu in 0..self.silos.len() {
                self.silos[cpu].remaining = 1;
                self.unthrottle(cpu, now);
            }
        }
        let Some(quota) = self.quota else {
            (self.timer_runs, self.taken_in_period) = (false, false);
            return;
        };
        if self.kind.is_kernel() {
            self.refill(quota);
            self.wake_timer(now);
            return;
        }
        if was.is_none() {
            self.end = i128::from(now) + period;
            (self.pool, self.after_refill, self.given) = (0, 0, Some(0));
            (self.timer_runs, self.taken_in_period) = (true, true);
        }
        let taken = (self.after_refill - self.pool).max(0);
        if let Some(given) = self.given {
            self.fill((quota - given).max(0));
            self.given = Some(given.max(quota));
        } else {
            self.fill(0);
        }
        self.after_refill = self.pool + taken;
    }
}
