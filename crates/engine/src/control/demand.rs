//! What all gates together ask of the machine.

use tidegate_law::HeadroomTerms;
use tidegate_terms::{Settings, Source, Terms, Tolerance, combine};

use super::{Figure, Objective};

/// What an objective begins with where nothing names a headroom: it takes less later if main does
/// well with less.
const OBJECTIVE_START_PPM: u32 = 200_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    pub headroom_ppm: u32,
    pub headroom_from: String,
    pub tolerance_ppm: u32,
    /// How long main may wait to run, where an objective says so: then headroom is found on top of
    /// what is asked.
    pub objective: Option<Objective>,
}

impl Demand {
    /// What gates, each with its name, ask for together, by the rule of [`combine`]. The machine's
    /// default holds where no gate names a headroom. With an objective the default is only where
    /// its search begins.
    pub fn of<'g>(
        gates: impl Iterator<Item = (&'g str, &'g Terms)> + Clone,
        settings: &Settings,
    ) -> Self {
        let named = gates.clone().filter_map(|(name, terms)| {
            let ppm = terms.headroom.value.ppm()?;
            Some((ppm, format!("gate {name}")))
        });
        let mut headroom = combine::headroom(named, |(ppm, _)| *ppm);
        let tolerance_ppm = gates
            .clone()
            .filter(|(_, terms)| !terms.tolerance.is_default())
            .map(|(_, terms)| terms.tolerance.value.ppm());
        let tolerance_ppm = combine::tolerance(tolerance_ppm, |ppm| *ppm);
        let objectives = gates.filter_map(|(name, terms)| Objective::of(name, terms));
        let mut objective = combine::objective(objectives, |one| {
            (one.late_after_ns, one.figure.share_ppm())
        });
        let default = &settings.default_headroom;
        if let Some(objective) = objective.as_mut().filter(|_| headroom.is_none()) {
            let start_ppm = default.value.ppm().filter(|ppm| *ppm > 0);
            objective.start_ppm = start_ppm.unwrap_or(OBJECTIVE_START_PPM);
            headroom = Some((0, "the objective".to_owned()));
        }
        let (headroom_ppm, headroom_from) = headroom.unwrap_or_else(|| {
            let from = match &default.source {
                Source::Default | Source::WholeCores => default.source.to_string(),
                source => format!("default_headroom ({source})"),
            };
            (default.value.ppm().unwrap_or(0), from)
        });
        Self {
            headroom_ppm,
            headroom_from,
            tolerance_ppm: tolerance_ppm.unwrap_or(Tolerance::ONE_PERCENT.ppm()),
            objective,
        }
    }

    /// The terms of a law that is asked to keep this much, and what an objective adds.
    pub(super) fn terms(&self, asked_ppm: u32, extra_ppm: u32) -> HeadroomTerms {
        HeadroomTerms {
            headroom_ppm: asked_ppm.saturating_add(extra_ppm).min(1_000_000),
            tolerance_ppm: self.tolerance_ppm,
        }
    }
}

impl Objective {
    /// The objective of the gate of this name, if it has one.
    pub fn of(gate: &str, terms: &Terms) -> Option<Self> {
        use tidegate_terms::Objective as Term;
        let (figure, span) = match terms.objective.value {
            Term::None => return None,
            Term::Delay { late_ppm, span } => (
                Figure::RunDelay {
                    share_ppm: late_ppm,
                },
                span,
            ),
            Term::Reported { span } => (Figure::Reported, span),
        };
        Some(Self {
            gate: gate.to_owned(),
            figure,
            late_after_ns: span.ns(),
            start_ppm: 0,
            from: format!("{} of gate {gate}", terms.objective.value),
        })
    }
}
