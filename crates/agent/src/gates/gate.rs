//! One gate as the agent keeps it, and what all gates together ask for.

use tidegate_api::HeldView;
use tidegate_cgroup::bandwidth::Bandwidth;
use tidegate_cgroup::group::CpuStat;
use tidegate_engine::apply::fallback_of;
use tidegate_engine::control::{Demand, Objective};
use tidegate_engine::held::TaskPoll;
use tidegate_engine::ledger::Fallback;
use tidegate_engine::limit;
use tidegate_terms::{Class, Config, Settings, TermError, Terms};

use crate::gates::{Attachment, HintState, Record};

#[derive(Clone, Debug)]
pub struct Gate {
    pub record: Record,
    pub terms: Terms,
    /// CPU it had used at the last poll, and when that was.
    pub usage: Option<(u64, u64)>,
    /// None where it is unknown.
    pub usage_cpus: Option<f64>,
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
    /// Periods in which the quota that moves throttled the group that it is in; none where that was
    /// not read, as while the gate sleeps.
    pub root: Option<u64>,
    /// Periods in which limits of other groups around it throttled those; the same.
    pub parent: Option<u64>,
    /// How long it had been in the background for its soft cap.
    pub background_ns: u64,
    pub tasks: TaskPoll,
    /// At the last poll none of its tasks ran or waited for a CPU.
    pub sleeps: bool,
    /// At the last poll tasks were in its group, or its process lived.
    pub has_tasks: bool,
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
            usage_cpus: None,
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
        limit::of_terms(&self.terms, self.burst_room_us)
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
}

/// What all gates ask for together.
pub fn demand<'g>(gates: impl Iterator<Item = &'g Gate> + Clone, settings: &Settings) -> Demand {
    let gates = gates.map(|gate| (gate.record.name.as_str(), &gate.terms));
    Demand::of(gates, settings)
}

/// The objectives of gates other than the one in force, in its words.
pub fn unused_objectives(gates: &[Gate], in_force: &str) -> Vec<String> {
    let named = gates
        .iter()
        .filter_map(|gate| Objective::of(&gate.record.name, &gate.terms));
    let from = named.map(|one| one.from);
    from.filter(|from| from != in_force).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use tidegate_cgroup::group::GroupPath;
    use tidegate_terms::{RawTerms, Source};

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
