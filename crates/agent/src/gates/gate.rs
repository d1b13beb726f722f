//! One gate as the agent keeps it, and what all gates together ask for.

use tidegate_api::HeldView;
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::group::CpuStat;
use tidegate_cgroup::subgroups::Per;
use tidegate_engine::apply::fallback_of;
use tidegate_engine::control::{Demand, Figure, Objective as Found};
use tidegate_engine::held::TaskPoll;
use tidegate_engine::ledger::Fallback;
use tidegate_engine::limit::own_limit;
use tidegate_terms::{
    Burst, CapScope, Class, Config, Objective, Settings, Source, TermError, Terms, Weight, combine,
};

use crate::gates::{Attachment, HintState, Record};

#[derive(Clone, Debug)]
pub struct Gate {
    pub record: Record,
    pub terms: Terms,
    /// CPU it had used at the last poll, and when that was.
    pub usage: Option<(u64, u64)>,
    pub usage_cpus: f64,
    /// Looks in a row that found it empty.
    pub empty_polls: u32,
    /// The group of a unit, told from a later one with its path.
    pub group_id: Option<u64>,
    /// Its unit stands still: it has no group, so nothing acts on it until it is back.
    pub away: bool,
    pub(crate) hint: Option<HintState>,
    /// What the kernel counted for a limit of its own, at the last poll.
    pub stat: Option<CpuStat>,
    /// What held it back between the last two polls.
    pub(crate) held: HeldState,
    /// CPU time above its soft cap under the engine sched_ext, at the last poll,
    pub background_us: Option<u64>,
    /// ... and between the last two, in CPUs.
    pub background_cpus: f64,
    /// The most burst that the limits of the groups above leave it: what `burst = max` comes to,
    /// within the quota.
    pub burst_room_us: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct HeldState {
    /// The time of the last poll; 0 before the first.
    pub at_ns: u64,
    /// Periods in which its own limit throttled it so far.
    pub own: u64,
    /// Periods in which the quota that moves throttled the group that it is in.
    pub root: u64,
    /// Periods in which limits of other groups around it throttled those.
    pub parent: u64,
    pub tasks: TaskPoll,
    pub view: HeldView,
}

impl Gate {
    pub fn new(record: Record, config: &Config) -> Result<Self, TermError> {
        let terms = record.resolve(config)?;
        Ok(Self::with_terms(record, terms))
    }

    pub(super) fn with_terms(record: Record, terms: Terms) -> Self {
        Self {
            record,
            terms,
            usage: None,
            usage_cpus: 0.0,
            empty_polls: 0,
            group_id: None,
            away: false,
            hint: None,
            stat: None,
            held: HeldState::default(),
            background_us: None,
            background_cpus: 0.0,
            burst_room_us: u64::MAX,
        }
    }

    pub fn class(&self) -> Class {
        self.terms.class.value
    }

    pub fn is_limited(&self) -> bool {
        self.class() == Class::Side
    }

    /// Whether its work must be in a group that is not shared with other work: something is written
    /// to that.
    pub fn needs_group(&self) -> bool {
        self.is_limited() || self.terms.is_bounded()
    }

    /// The limit that its own terms ask for: its quota with period and burst, and a hard cap that
    /// counts for all of it.
    pub fn own_limit(&self) -> Option<Bandwidth> {
        self.limit_with_burst(match self.terms.burst.value {
            Burst::Of(span) => span.us(),
            Burst::Max => self.burst_room_us,
        })
    }

    /// The same with this burst, as far as quota and cap leave it.
    pub fn limit_with_burst(&self, burst_us: u64) -> Option<Bandwidth> {
        let terms = &self.terms;
        let quota = terms.quota_us().map(|quota_us| Bandwidth {
            quota_us: Some(quota_us),
            period_us: terms.period.value.us(),
            burst_us: burst_us.min(quota_us),
        });
        let for_all = terms.cap_scope.value == CapScope::Group;
        let cap_hard_ppt = terms.cap_hard.value.ppt().filter(|_| for_all);
        own_limit(quota, cap_hard_ppt)
    }

    /// The soft cap in parts per thousand of one CPU, where it forbids anything: none from the hard
    /// one up, which comes first.
    pub fn soft_ppt(&self) -> Option<u32> {
        let soft = self.terms.cap_soft.value.ppt()?;
        let hard = self.terms.cap_hard.value.ppt().unwrap_or(u32::MAX);
        (soft < hard).then_some(soft)
    }

    /// The soft cap, where it is one for all of the gate: 0 is the background for each and so for
    /// all.
    pub fn soft_for_all_ppt(&self) -> Option<u32> {
        let for_all = self.terms.cap_scope.value == CapScope::Group;
        self.soft_ppt().filter(|ppt| for_all || *ppt == 0)
    }

    /// The hard and the soft cap that count for each process or task alone, where there is either.
    pub fn caps_for_each(&self) -> Option<(Per, Option<u32>, Option<u32>)> {
        let per = match self.terms.cap_scope.value {
            CapScope::Group => return None,
            CapScope::Process => Per::Process,
            CapScope::Task => Per::Task,
        };
        // A task can use no more than one CPU.
        let binds = |ppt: &u32| per == Per::Process || *ppt < 1_000;
        let hard = self.terms.cap_hard.value.ppt().filter(binds);
        let soft = self.soft_ppt().filter(|ppt| *ppt > 0 && binds(ppt));
        (hard.is_some() || soft.is_some()).then_some((per, hard, soft))
    }

    /// What its own terms fall back to. They are no danger to main's headroom: where others have
    /// the floor, they stay.
    pub fn own_fallback(&self) -> Fallback {
        let wanted = fallback_of(self.terms.fallback.value, Bandwidth::unlimited());
        match (&self.record.attachment, wanted) {
            (Attachment::Owned { .. }, _) | (_, Fallback::Floor { .. }) => Fallback::Stay,
            (_, other) => other,
        }
    }

    pub fn weight(&self) -> u32 {
        match self.terms.weight.value {
            Weight::Idle => 1,
            Weight::Of(weight) => weight,
        }
    }
}

/// What an objective begins with where nothing names a headroom: it takes less later if main does
/// well with less.
const OBJECTIVE_START_PPM: u32 = 200_000;

/// What all gates ask for together, by the rule of [`combine`]. The machine's default holds where
/// no gate names a headroom. With an objective the default is only where its search begins.
pub fn demand<'g>(gates: impl Iterator<Item = &'g Gate> + Clone, settings: &Settings) -> Demand {
    let named = gates.clone().filter_map(|gate| {
        let ppm = gate.terms.headroom.value.ppm()?;
        Some((ppm, format!("gate {}", gate.record.name)))
    });
    let mut headroom = combine::headroom(named, |(ppm, _)| *ppm);
    let tolerance_ppm = gates
        .clone()
        .filter(|gate| !gate.terms.tolerance.is_default())
        .map(|gate| gate.terms.tolerance.value.ppm());
    let tolerance_ppm = combine::tolerance(tolerance_ppm, |ppm| *ppm);
    let mut objective = combine::objective(gates.filter_map(objective_of), |one| {
        (one.late_after_ns, one.figure.share_ppm())
    });
    let default = &settings.default_headroom;
    if let Some(objective) = objective.as_mut().filter(|_| headroom.is_none()) {
        let start_ppm = default.value.ppm().filter(|ppm| *ppm > 0);
        objective.start_ppm = start_ppm.unwrap_or(OBJECTIVE_START_PPM);
        headroom = Some((0, "found for the objective".to_owned()));
    }
    let (headroom_ppm, headroom_from) = headroom.unwrap_or_else(|| {
        let from = match &default.source {
            Source::Default | Source::WholeCores => default.source.to_string(),
            source => format!("default_headroom ({source})"),
        };
        (default.value.ppm().unwrap_or(0), from)
    });
    let tolerance_ppm = tolerance_ppm.unwrap_or(tidegate_terms::Tolerance::ONE_PERCENT.ppm());
    Demand {
        headroom_ppm,
        headroom_from,
        tolerance_ppm,
        objective,
    }
}

/// The objectives of gates other than the one in force, in its words.
pub fn unused_objectives(gates: &[Gate], in_force: &str) -> Vec<String> {
    let named = gates.iter().filter_map(objective_of).map(|one| one.from);
    named.filter(|from| from != in_force).collect()
}

fn objective_of(gate: &Gate) -> Option<Found> {
    let (figure, span) = match gate.terms.objective.value {
        Objective::None => return None,
        Objective::Delay { late_ppm, span } => (
            Figure::RunDelay {
                share_ppm: late_ppm,
            },
            span,
        ),
        Objective::Reported { span } => (Figure::Reported, span),
    };
    Some(Found {
        gate: gate.record.name.clone(),
        figure,
        late_after_ns: span.ns(),
        start_ppm: 0,
        from: format!(
            "{} of gate {}",
            gate.terms.objective.value, gate.record.name
        ),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use tidegate_cgroup::group::GroupPath;
    use tidegate_terms::RawTerms;

    use super::*;

    pub(crate) fn gate(name: &str, pairs: &[(&str, &str)]) -> Gate {
        let mut raw = RawTerms::default();
        for (term, text) in pairs {
            raw.insert(term, text, Source::RunFlag);
        }
        let attachment = Attachment::Owned {
            group: GroupPath::parse(&format!("/{name}")).unwrap(),
        };
        let record = Record::new(name.to_owned(), "run", raw, attachment);
        Gate::new(record, &Config::default()).unwrap()
    }

    #[test]
    fn the_largest_headroom_and_the_smallest_tolerance_count() {
        let settings = Config::default().settings();
        let gates = [
            gate(
                "web",
                &[("class", "main"), ("headroom", "30%"), ("tolerance", "2%")],
            ),
            gate(
                "db",
                &[("class", "main"), ("headroom", "40%"), ("tolerance", "5%")],
            ),
            gate("encode", &[("class", "side")]),
        ];
        let demand = demand(gates.iter(), &settings);
        assert_eq!(
            (demand.headroom_ppm, demand.tolerance_ppm),
            (400_000, 20_000)
        );
        assert_eq!(demand.headroom_from, "gate db");
    }

    #[test]
    fn the_shortest_objective_counts_and_the_search_begins_at_the_default() {
        let settings = Config::default().settings();
        let web = gate("web", &[("class", "main"), ("objective", "p99<5ms")]);
        let db = gate("db", &[("class", "main"), ("objective", "p99.9<5ms")]);
        let slow = gate("slow", &[("class", "main"), ("objective", "p99.99<1s")]);
        let found = demand([&web, &db, &slow].into_iter(), &settings);
        let objective = found.objective.unwrap();
        assert_eq!(objective.from, "p99.9<5ms of gate db");
        assert_eq!(
            (objective.late_after_ns, objective.figure.share_ppm()),
            (5_000_000, 1_000)
        );
        assert_eq!((found.headroom_ppm, objective.start_ppm), (0, 200_000));
        let side = gate("side", &[("class", "side"), ("headroom", "10%")]);
        let asked = demand([&web, &side].into_iter(), &settings);
        assert_eq!(asked.headroom_ppm, 100_000, "never below what was asked");
        assert_eq!(asked.objective.unwrap().start_ppm, 0);
    }

    #[test]
    fn without_a_named_headroom_the_machines_default_holds_which_is_none() {
        let side = gate("encode", &[("class", "side")]);
        let by_default = demand([&side].into_iter(), &Config::default().settings());
        assert_eq!(
            (by_default.headroom_ppm, by_default.tolerance_ppm),
            (0, 10_000)
        );
        assert_eq!(by_default.headroom_from, "default");
        let file = std::path::Path::new("tidegate.toml");
        let on_whole_cores = Config::default().settings().on_whole_cores();
        let by_cores = demand([&side].into_iter(), &on_whole_cores);
        assert_eq!(by_cores.headroom_ppm, 200_000);
        assert_eq!(by_cores.headroom_from, "default on whole cores");
        let config = Config::from_text(file, "[side]\ndefault_headroom = '30%'").unwrap();
        let by_file = demand([&side].into_iter(), &config.settings());
        assert_eq!(by_file.headroom_ppm, 300_000);
        let bare = gate("encode", &[("class", "side"), ("headroom", "0%")]);
        let bare = demand([&bare].into_iter(), &config.settings());
        assert_eq!(bare.headroom_ppm, 0, "a named 0 % goes before the default");
    }
}
