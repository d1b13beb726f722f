//! Run delay in wide numbers and plain words, written from law/delay.md.

use tidegate_law::delay::{Config, Evidence};

/// The same in wide numbers and plain words, written from law/delay.md.
#[derive(Clone, Debug)]
pub struct Reference {
    cfg: Config,
    share: u128,
    extra_ppb: u128,
    score: u128,
    side_ppm: u128,
    quiet_us: u128,
    top_us: u128,
    rest_us: u128,
    open: (u128, u128),
    before: (u128, u128),
    top: (u128, u128),
    quiet: (u128, u128),
    home_ppb: u128,
}

impl Reference {
    pub fn new(cfg: Config, share: u32, home: u32) -> Self {
        let cfg = Config {
            alarm: cfg.alarm.clamp(1, 1000),
            most_ppm: cfg.most_ppm.min(1_000_000),
            step_ppm: cfg.step_ppm.clamp(1, 1_000_000),
            release_ppm_per_s: cfg.release_ppm_per_s.min(100_000_000),
            side_ppm: cfg.side_ppm.min(1_000_000),
            dt_max_us: cfg.dt_max_us.min(10_000_000),
            ..cfg
        };
        Self {
            share: u128::from(share.clamp(1, 1_000_000)),
            extra_ppb: u128::from(home.min(cfg.most_ppm)) * 1000,
            home_ppb: u128::from(home.min(cfg.most_ppm)) * 1000,
            quiet: (0, 0),
            cfg,
            score: 0,
            side_ppm: 0,
            quiet_us: 0,
            top_us: 0,
            rest_us: 0,
            open: (0, 0),
            before: (0, 0),
            top: (0, 0),
        }
    }

    pub fn extra_ppm(&self) -> u32 {
        let grains = self.extra_ppb.div_ceil(10_000_000) * 10_000;
        grains.min(u128::from(self.cfg.most_ppm)) as u32
    }

    fn at_top(&self) -> bool {
        self.extra_ppb == u128::from(self.cfg.most_ppm) * 1000
    }

    fn clear(&mut self) {
        (self.score, self.open) = (0, (0, 0));
    }

    fn weigh(&mut self, e: &Evidence) {
        let million = 1_000_000;
        let runs = u128::from(e.runs.min(1 << 24));
        let late = u128::from(e.late).min(runs);
        self.score = (self.score + late * million).saturating_sub(runs * self.share);
        self.open = match self.score {
            0 => (0, 0),
            _ => (self.open.0 + runs, self.open.1 + late),
        };
        if self.at_top() {
            self.top = (self.top.0 + runs, self.top.1 + late);
        }
    }

    fn alarm(&mut self, cause: bool) {
        let again = self.quiet_us < 4 * u128::from(self.cfg.settle_us);
        let most = match cause {
            true => u128::from(self.cfg.most_ppm) * 1000,
            false => self.home_ppb,
        };
        (self.quiet_us, self.quiet) = (0, (0, 0));
        let share = |(runs, late): (u128, u128)| (late, runs.max(1));
        if self.extra_ppb < most {
            if self.before.0 == 0 {
                self.before = self.open;
            }
            let half = if again { self.extra_ppb / 2 } else { 0 };
            let by = (u128::from(self.cfg.step_ppm) * 1000).max(half);
            self.extra_ppb = (self.extra_ppb + by).min(most);
            (self.top_us, self.top) = (0, (0, 0));
        } else if self.top_us >= u128::from(self.cfg.vain_us) {
            let ((late, runs), (late_before, runs_before)) = (share(self.top), share(self.before));
            if 2 * late * runs_before >= late_before * runs {
                self.extra_ppb = self.home_ppb;
                self.rest_us = u128::from(self.cfg.rest_us);
                self.before = (0, 0);
            }
        }
        self.clear();
    }

    pub fn step(&mut self, e: &Evidence, valid: bool) -> u32 {
        let wide = |x: u64| u128::from(x);
        let dt_us = wide(e.dt_ns / 1000);
        let sane = valid
            && e.dt_ns >= 1000
            && dt_us <= u128::from(self.cfg.dt_max_us)
            && e.capacity_ns >= 1000
            && wide(e.capacity_ns / 8192) <= wide(e.dt_ns)
            && e.late <= e.runs;
        if !sane {
            self.clear();
            return self.extra_ppm();
        }
        let used = wide(e.side_ns.min(e.capacity_ns) / 1000);
        let side = used * 1_000_000 / wide(e.capacity_ns / 1000);
        let weight = (dt_us * 65_536 / 100_000).clamp(1, 65_536);
        self.side_ppm = if side >= self.side_ppm {
            self.side_ppm + ((side - self.side_ppm) * weight + 32_768) / 65_536
        } else {
            self.side_ppm - ((self.side_ppm - side) * weight + 32_768) / 65_536
        };
        self.quiet_us = (self.quiet_us + dt_us).min(1 << 40);
        if self.rest_us > 0 {
            self.rest_us = self.rest_us.saturating_sub(dt_us);
            return self.extra_ppm();
        }
        if self.at_top() {
            self.top_us = (self.top_us + dt_us).min(1 << 40);
        }
        let least = u128::from(e.floor_ppm.min(1_000_000)) + u128::from(self.cfg.side_ppm);
        let cause = self.side_ppm >= least;
        let share = self.share;
        if self.quiet_us > u128::from(self.cfg.settle_us) {
            let runs = e.runs.min(1 << 24);
            self.quiet.0 += u128::from(runs);
            self.quiet.1 += u128::from(e.late.min(runs));
            if cause || self.extra_ppb < self.home_ppb {
                self.weigh(e);
            }
            if self.score >= u128::from(self.cfg.alarm) * 1_000_000 {
                self.alarm(cause);
            }
        }
        if self.extra_ppb > 0 && self.quiet_us >= u128::from(self.cfg.hold_us) {
            let by = (u128::from(self.cfg.release_ppm_per_s) * dt_us / 1000).max(1);
            let may = self.quiet.0 * share;
            let enough = may >= 2_000_000 * u128::from(self.cfg.alarm);
            let met = enough && self.quiet.1 <= may / 2_000_000;
            let least = if met {
                0
            } else {
                self.home_ppb.min(self.extra_ppb)
            };
            self.extra_ppb = self.extra_ppb.saturating_sub(by).max(least);
            if self.extra_ppb <= self.home_ppb {
                self.before = (0, 0);
            }
        }
        self.extra_ppm()
    }
}
