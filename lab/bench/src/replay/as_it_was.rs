//! The arm that was recorded.

use tidegate_recording::{Recording, Second};

use crate::replay::demand::{Demand, mean};
use crate::replay::simulate::{coarse, figure};
use crate::replay::view::{
    AS_IT_WAS, ArmView, EventView, FiguresView, PointView, RecordingView, WorkView,
};

fn point(second: &Second) -> PointView {
    PointView {
        time_unix_seconds: second.unix_ms as f64 / 1e3,
        main_cpus: second.main_cpus.into(),
        side_cpus: second.side_cpus.into(),
        idle_cpus: second.idle_cpus.into(),
        allowance_cpus: Some(second.allowance_cpus.into()),
    }
}

pub(crate) fn arm(recording: &Recording, demand: &Demand) -> ArmView {
    let seconds = &recording.seconds;
    let of = |get: fn(&Second) -> f64| seconds.iter().map(get).collect::<Vec<f64>>();
    let whole: f64 = of(|second| second.capacity_cpus.into()).iter().sum();
    let idle: f64 = of(|second| second.idle_cpus.into()).iter().sum();
    let turns: f64 = of(|second| second.main_turns.into()).iter().sum();
    let wait_us: f64 = of(|second| second.main_wait_us as f64).iter().sum();
    let p99: f64 = seconds
        .iter()
        .map(|second| f64::from(second.main_wait_p99_us) * f64::from(second.main_turns))
        .sum();
    let one = |value: Option<f64>| value.and_then(|value| figure(&[value]));
    let counted = |value: f64| (turns > 0.0).then_some(value / turns);
    let at_tolerance = of(|second| f64::from(u8::from(second.is_at_tolerance)));
    let has_side = seconds.iter().any(|second| second.allowance_cpus > 0.0);
    ArmView {
        name: AS_IT_WAS.to_owned(),
        is_recorded: true,
        points: coarse(&seconds.iter().map(point).collect::<Vec<_>>()),
        figures: FiguresView {
            idle_kept_pct: one((whole > 0.0).then_some(idle * 100.0 / whole)),
            side_cpus: one(Some(mean(&of(|second| second.side_cpus.into())))),
            main_cpus: one(Some(mean(&of(|second| second.main_cpus.into())))),
            main_wait_mean_us: one(counted(wait_us)),
            main_wait_p99_us: one(counted(p99)),
            at_tolerance_pct: one(has_side.then(|| mean(&at_tolerance) * 100.0)),
        },
        works: works(recording, demand),
    }
}

fn works(recording: &Recording, demand: &Demand) -> Vec<WorkView> {
    let each = demand.works.iter().map(|work| {
        let recorded = work.id.and_then(|id| recording.works.get(&id));
        WorkView {
            name: work.name.clone(),
            class: recorded.map_or("neutral".to_owned(), |one| one.class.clone()),
            used_cpus: work.used_cpus,
        }
    });
    each.collect()
}

pub(crate) fn span(recording: &Recording) -> RecordingView {
    let (first_ms, last_ms) = recording.span_ms().unwrap_or_default();
    RecordingView {
        // A second is told by its end.
        from_unix_seconds: first_ms.saturating_sub(1_000) as f64 / 1e3,
        to_unix_seconds: last_ms as f64 / 1e3,
        cpus: recording.machine.cpus,
        seconds: recording.len_s(),
    }
}

pub(crate) fn events(recording: &Recording) -> Vec<EventView> {
    let each = recording.events.iter().map(|event| EventView {
        time_unix_seconds: event.unix_ms as f64 / 1e3,
        kind: event.kind.clone(),
        gate: event.gate.clone(),
        message: event.message.clone(),
    });
    each.collect()
}
