//! The numbers of the rule.

/// The numbers of the rule. The defaults are those that `tidegate-kube` uses; others are for
/// rehearsals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constants {
    pub window_s: u64,
    /// Of those samples in order, the part that lies below the promise.
    pub low_percent: u64,
    /// How far back they count for the mean that the promise falls to.
    pub mean_s: u64,
    /// Samples cover this before the first promise.
    pub warm_up_s: u64,
    /// A difference that is not larger than both this and [`Constants::slack_milli`] does not
    /// count.
    pub slack_percent: u64,
    pub slack_milli: u64,
    /// Between two rises of the promise.
    pub rise_gap_s: u64,
    /// One rise is at most the larger of this and [`Constants::rise_milli`].
    pub rise_percent: u64,
    pub rise_milli: u64,
    /// Between two writes, but for one that pods beyond the published amount demand.
    pub write_gap_s: u64,
    /// A smaller change is not written.
    pub write_milli: u64,
    /// For so long the scheduler and kubelet may act by an older state of the node: their watches
    /// pause for 30 to 60 s after a failure of the API server, and a pod that is placed takes a
    /// moment to be bound.
    pub settle_s: u64,
    /// After so long without a sample nothing is published.
    pub stale_s: u64,
    /// Between two changes of the condition, which are writes of their own.
    pub short_gap_s: u64,
    /// Side work stands at its tolerance this long before a pod must move.
    pub starved_s: u64,
    /// ... and the promise is below this part of what is bound.
    pub enough_percent: u64,
    /// Between two pods that must move.
    pub evict_gap_s: u64,
    /// After one the promise does not rise for so long: the pod that left would come back.
    pub no_rise_s: u64,
}

impl Default for Constants {
    fn default() -> Self {
        Constants {
            window_s: 900,
            low_percent: 25,
            mean_s: 180,
            warm_up_s: 180,
            slack_percent: 10,
            slack_milli: 250,
            rise_gap_s: 60,
            rise_percent: 10,
            rise_milli: 1_000,
            write_gap_s: 30,
            write_milli: 250,
            settle_s: 90,
            stale_s: 180,
            short_gap_s: 60,
            starved_s: 600,
            enough_percent: 60,
            evict_gap_s: 60,
            no_rise_s: 900,
        }
    }
}

/// Another value of one of the numbers, written as `low_percent=25`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    name: &'static str,
    value: u64,
}

impl std::str::FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text
            .split_once('=')
            .ok_or("no =; write it as low_percent=25")?;
        let value = value
            .parse()
            .map_err(|error| format!("{value}: {error}; give a whole number"))?;
        let names = Constants::default().named().map(|one| one.0);
        match names.into_iter().find(|one| *one == name) {
            Some(name) => Ok(Assignment { name, value }),
            None => Err(format!(
                "{name}: no such number; there are {}",
                names.join(", ")
            )),
        }
    }
}

impl Constants {
    /// The defaults with other values over them.
    pub fn with(assignments: &[Assignment]) -> Self {
        let mut constants = Constants::default();
        for (name, value) in constants.named() {
            if let Some(given) = assignments.iter().rfind(|one| one.name == name) {
                *value = given.value;
            }
        }
        constants
    }

    /// Each with its name.
    fn named(&mut self) -> [(&'static str, &mut u64); 18] {
        [
            ("window_s", &mut self.window_s),
            ("low_percent", &mut self.low_percent),
            ("mean_s", &mut self.mean_s),
            ("warm_up_s", &mut self.warm_up_s),
            ("slack_percent", &mut self.slack_percent),
            ("slack_milli", &mut self.slack_milli),
            ("rise_gap_s", &mut self.rise_gap_s),
            ("rise_percent", &mut self.rise_percent),
            ("rise_milli", &mut self.rise_milli),
            ("write_gap_s", &mut self.write_gap_s),
            ("write_milli", &mut self.write_milli),
            ("settle_s", &mut self.settle_s),
            ("stale_s", &mut self.stale_s),
            ("short_gap_s", &mut self.short_gap_s),
            ("starved_s", &mut self.starved_s),
            ("enough_percent", &mut self.enough_percent),
            ("evict_gap_s", &mut self.evict_gap_s),
            ("no_rise_s", &mut self.no_rise_s),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_given_by_its_name() {
        let given: Vec<Assignment> = ["mean_s=5", "mean_s=6"]
            .iter()
            .map(|text| text.parse().expect("well formed"))
            .collect();
        let want = Constants {
            mean_s: 6,
            ..Constants::default()
        };
        assert_eq!(Constants::with(&given), want);
        for (bad, says) in [
            ("mean_s", "no ="),
            ("mean=1", "write_gap_s"),
            ("mean_s=x", "x"),
        ] {
            let error = bad.parse::<Assignment>().expect_err(bad);
            assert!(error.contains(says), "{error}");
        }
    }
}
