//! What an arm comes to beside main alone, and what a finder of the headroom loses against the oracle.

use super::{MEAN_AIM, P99_AIM};

/// What an arm did: main's latency over main alone, and side's work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Done {
    /// Main's mean over main alone.
    pub mean: f64,
    /// Main's p99 over main alone.
    pub p99: f64,
    /// Side's work.
    pub work: f64,
}

impl Done {
    /// Whether main is unharmed.
    pub fn holds(self) -> bool {
        self.mean <= MEAN_AIM && self.p99 <= P99_AIM
    }

    /// How far main is from unharmed: 1 is at the aim.
    fn excess(self) -> f64 {
        (self.mean / MEAN_AIM).max(self.p99 / P99_AIM)
    }
}

/// What is lost against the oracle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regret {
    /// Side's work, percent of the oracle's; negative where more was done.
    pub work_pct: f64,
    /// Side's work itself.
    pub work: f64,
    /// Main's mean, percent of the oracle's.
    pub mean_pct: f64,
    /// Main's p99, percent of the oracle's.
    pub p99_pct: f64,
}

impl Regret {
    /// Of what was done.
    pub fn of(done: Done, oracle: Done) -> Self {
        let more = |ours: f64, best: f64| 100.0 * (ours / best - 1.0);
        Self {
            work_pct: -more(done.work, oracle.work),
            work: oracle.work - done.work,
            mean_pct: more(done.mean, oracle.mean),
            p99_pct: more(done.p99, oracle.p99),
        }
    }
}

/// The oracle's choice: the most side work where main is unharmed; where each of them harms main, the least harm.
pub fn oracle<A: Copy>(arms: &[(A, Done)]) -> Option<(A, Done)> {
    let unharmed = arms.iter().filter(|(_, done)| done.holds());
    let most = unharmed.max_by(|a, b| a.1.work.total_cmp(&b.1.work));
    let least = arms
        .iter()
        .min_by(|a, b| a.1.excess().total_cmp(&b.1.excess()));
    most.or(least).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(mean: f64, p99: f64, work: f64) -> Done {
        Done { mean, p99, work }
    }

    #[test]
    fn the_oracle_has_the_most_side_work_that_does_no_harm() {
        let arms = [
            ("as started", done(2.0, 3.0, 14.0)),
            ("idle", done(1.04, 1.2, 12.0)),
            ("10 %", done(1.04, 1.1, 11.0)),
            ("20 %", done(1.01, 1.0, 9.0)),
        ];
        assert_eq!(oracle(&arms).map(|best| best.0), Some("10 %"));
    }

    #[test]
    fn where_all_harm_main_the_oracle_harms_it_least() {
        let arms = [
            ("idle", done(1.3, 1.2, 12.0)),
            ("60 %", done(1.1, 1.3, 2.0)),
        ];
        assert_eq!(oracle(&arms).map(|best| best.0), Some("60 %"));
        assert!(oracle::<u8>(&[]).is_none());
    }

    #[test]
    fn regret_is_what_was_lost() {
        let regret = Regret::of(done(1.1, 1.0, 9.0), done(1.0, 1.25, 12.0));
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(regret.work_pct, 25.0) && near(regret.work, 3.0));
        assert!(near(regret.mean_pct, 10.0) && near(regret.p99_pct, -20.0));
    }
}
