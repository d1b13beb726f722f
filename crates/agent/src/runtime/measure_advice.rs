//! What a measurement comes to: one sentence, and the command that puts it in force.

use tidegate_api::{EffectView, IntervalView, MeasureView};

/// A slowdown of main that is accepted, and a rise of the share of late runs.
const SLOWDOWN: f64 = 0.05;
const LATE: f64 = 0.0075;
/// Above this ratio of main's CPU times, side work gives main its work.
const PIPE: f64 = 1.5;
const LENGTH_MAX_S: f64 = 3_600.0;

type Advice = (String, Option<String>);

fn percent(ratio: f64) -> String {
    let percent = (1_000.0 * ratio).round() / 10.0;
    // No minus before a zero.
    format!("{} %", if percent == 0.0 { 0.0 } else { percent })
}

fn is_harmless(effect: &EffectView) -> bool {
    effect.slowdown_ratio.upper <= SLOWDOWN && effect.late_ratio.upper <= LATE
}

fn is_harmful(effect: &EffectView) -> bool {
    effect.slowdown_ratio.lower > SLOWDOWN || effect.late_ratio.lower > LATE
}

/// `times_longer`: how many times as long it had to be for narrow intervals. `asked_ratio`: the
/// headroom that the gates ask for.
pub(crate) fn measure_advice(
    view: &MeasureView,
    times_longer: Option<f64>,
    asked_ratio: f64,
) -> Advice {
    let main = view.main.join(", ");
    let effects = view.levels.iter().map(|level| &level.effect);
    let effects = effects.chain(view.gates.iter().map(|gate| &gate.effect));
    let effects: Vec<&EffectView> = effects.flatten().collect();
    if effects.is_empty() {
        let why = match view.main_cpus > 0.0 {
            true => "There are too few rounds to compare",
            false => "Main used no CPU, and a machine at rest says nothing about one at work",
        };
        let remedy = "measure again, for longer, while main works";
        return (
            format!("{why}: {remedy}."),
            Some("tidegate measure".to_owned()),
        );
    }
    if let Some(pipe) = effects.iter().find(|effect| effect.main_cpu_ratio > PIPE) {
        let text = format!(
            "Main used {:.1} times the CPU while side work ran: side work seems to give {main} its work, so this is no \
             slowdown.",
            pipe.main_cpu_ratio
        );
        return (text, None);
    }
    let most_cpus = effects
        .iter()
        .map(|effect| effect.side_cpus)
        .fold(0.0, f64::max);
    if most_cpus < 2.0 * view.reference_side_cpus {
        let text = format!(
            "Side work used at most {most_cpus:.2} CPUs, hardly more than at its tolerance: other work left it none, or it has \
             nothing to do, so this says nothing about its cost."
        );
        return (text, None);
    }
    match view.gates.is_empty() {
        true => of_levels(view, &main, times_longer, asked_ratio),
        false => of_gates(view, &main, times_longer),
    }
}

/// How long a measurement would take that tells, and its command if it may be that long.
fn longer(view: &MeasureView, times_longer: Option<f64>, more: &str) -> (String, Option<String>) {
    let length_s = view.elapsed_seconds.max(1.0) * times_longer.unwrap_or(2.0).max(1.5);
    if length_s > LENGTH_MAX_S {
        let text = "a measurement of an hour would not tell: measure while main has more to do";
        return (text.to_owned(), None);
    }
    let minutes = (length_s / 60.0).ceil();
    (
        format!("about {minutes} min would tell"),
        Some(format!("tidegate measure --for {minutes}m{more}")),
    )
}

fn of_levels(
    view: &MeasureView,
    main: &str,
    times_longer: Option<f64>,
    asked_ratio: f64,
) -> Advice {
    let known = view.levels.iter();
    let known = known.filter_map(|level| Some((level.headroom_ratio, level.effect.as_ref()?)));
    let known: Vec<(f64, &EffectView)> = known.collect();
    let accepted = percent(SLOWDOWN);
    if let Some((level, effect)) = known.iter().find(|(_, effect)| is_harmless(effect)) {
        let level = percent(*level);
        let found = format!(
            "{level} headroom keeps the slowdown of {main} below {accepted} ({})",
            between(&effect.slowdown_ratio)
        );
        let now = percent(asked_ratio);
        if now == level {
            return (
                format!("{found}, and is what the gates ask for: nothing to change."),
                None,
            );
        }
        let first = view.main.first().map_or("", String::as_str);
        let command = format!("tidegate set {first} headroom={}", level.replace(' ', ""));
        return (format!("{found}; the gates ask for {now}."), Some(command));
    }
    let undecided = known.iter().find(|(_, effect)| !is_harmful(effect));
    if let Some((level, effect)) = undecided {
        let levels: Vec<String> = view
            .levels
            .iter()
            .map(|level| percent(level.headroom_ratio).replace(" %", ""))
            .collect();
        let (how_long, command) = longer(
            view,
            times_longer,
            &format!(" --levels {}", levels.join(",")),
        );
        let found = match effect.slowdown_ratio.upper > SLOWDOWN {
            true => between(&effect.slowdown_ratio),
            false => format!(
                "the mean {}, and {} more runs are late",
                between(&effect.slowdown_ratio),
                between(&effect.late_ratio)
            ),
        };
        let text = format!(
            "Whether {} headroom keeps the slowdown of {main} below {accepted} is not certain yet ({found}); \
             {how_long}.",
            percent(*level)
        );
        return (text, command);
    }
    let worst = known
        .last()
        .map_or((0.0, IntervalView::default()), |(level, effect)| {
            (*level, effect.slowdown_ratio)
        });
    let text = format!(
        "No level keeps the slowdown of {main} below {accepted}, not even {} ({}): idle CPU does not help against a shared \
         cache, memory or core; find the gate that costs most, and give it less.",
        percent(worst.0),
        between(&worst.1)
    );
    (text, Some("tidegate measure --by-gate".to_owned()))
}

fn between(interval: &IntervalView) -> String {
    let [lower, upper] = [interval.lower, interval.upper].map(percent);
    format!("{} to {upper}", lower.trim_end_matches(" %"))
}

fn of_gates(view: &MeasureView, main: &str, times_longer: Option<f64>) -> Advice {
    let known = view.gates.iter();
    let known = known.filter_map(|gate| Some((gate.gate.as_str(), gate.effect.as_ref()?)));
    let costs = |(gate, effect): &(&str, &EffectView)| {
        let found = &effect.slowdown_ratio;
        format!(
            "{gate} costs {main} {} ({})",
            percent(found.estimate),
            between(found)
        )
    };
    let mut known: Vec<(&str, &EffectView)> = known.collect();
    let sentence = known.iter().map(costs).collect::<Vec<_>>().join(", ");
    known.retain(|(_, effect)| is_harmful(effect));
    let cost = |effect: &EffectView| effect.slowdown_ratio.estimate;
    known.sort_by(|a, b| cost(b.1).total_cmp(&cost(a.1)));
    match known.first() {
        Some((gate, effect)) => {
            // Half of what it used, at least a twentieth of a CPU.
            let cpus = (effect.side_cpus / 2.0).max(0.05);
            let command = format!("tidegate set {gate} quota={cpus:.2}cpu");
            (
                format!("{sentence}; to halve what {gate} uses:"),
                Some(command),
            )
        }
        None if times_longer.is_some() => {
            let (how_long, command) = longer(view, times_longer, " --by-gate");
            (format!("{sentence}; {how_long}."), command)
        }
        None => (
            format!("{sentence}; no gate costs more than {}.", percent(SLOWDOWN)),
            None,
        ),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_api::{MeasuredGateView, MeasuredLevelView};

    use super::*;

    fn effect(lower: f64, upper: f64) -> EffectView {
        EffectView {
            rounds: 60,
            slowdown_ratio: IntervalView {
                estimate: (lower + upper) / 2.0,
                lower,
                upper,
            },
            side_cpus: 1.2,
            main_cpu_ratio: 1.0,
            ..EffectView::default()
        }
    }

    fn advice(levels: &[(f64, f64, f64)], times_longer: Option<f64>) -> Advice {
        let level = |(headroom_ratio, lower, upper): &(f64, f64, f64)| MeasuredLevelView {
            headroom_ratio: *headroom_ratio,
            effect: Some(effect(*lower, *upper)),
        };
        let view = MeasureView {
            main: vec!["web".to_owned()],
            elapsed_seconds: 120.0,
            main_cpus: 0.5,
            levels: levels.iter().map(level).collect(),
            ..MeasureView::default()
        };
        measure_advice(&view, times_longer, 0.0)
    }

    #[test]
    fn the_least_headroom_that_surely_is_enough_is_advised() {
        let (text, command) = advice(&[(0.0, 0.08, 0.12), (0.2, 0.01, 0.04)], None);
        let expected =
            "20 % headroom keeps the slowdown of web below 5 % (1 to 4 %); the gates ask for 0 %.";
        assert_eq!(text, expected);
        assert_eq!(command.unwrap(), "tidegate set web headroom=20%");
        let (text, command) = advice(&[(0.0, -0.01, 0.02), (0.2, 0.0, 0.01)], None);
        assert!(text.ends_with("nothing to change."), "{text}");
        assert_eq!(command, None);
    }

    #[test]
    fn where_nothing_is_certain_more_time_is_advised_and_where_all_harm_the_gates() {
        let (text, command) = advice(&[(0.0, 0.02, 0.12), (0.2, 0.01, 0.08)], Some(4.0));
        assert!(text.contains("about 8 min"), "{text}");
        assert_eq!(command.unwrap(), "tidegate measure --for 8m --levels 0,20");
        let (text, command) = advice(&[(0.0, 0.02, 0.12), (0.2, 0.01, 0.08)], Some(700.0));
        assert!(text.contains("an hour would not tell"), "{text}");
        assert_eq!(command, None);
        let (text, command) = advice(&[(0.0, 0.2, 0.3), (0.2, 0.1, 0.15)], None);
        assert!(text.contains("not even 20 % (10 to 15 %)"), "{text}");
        assert_eq!(command.unwrap(), "tidegate measure --by-gate");
    }

    #[test]
    fn the_gate_that_costs_most_is_to_have_less() {
        let gate = |name: &str, lower, upper| MeasuredGateView {
            gate: name.to_owned(),
            effect: Some(effect(lower, upper)),
        };
        let view = MeasureView {
            main: vec!["web".to_owned()],
            main_cpus: 0.5,
            gates: vec![gate("backup", 0.08, 0.16), gate("build", -0.009, 0.015)],
            ..MeasureView::default()
        };
        let (text, command) = measure_advice(&view, None, 0.0);
        let begin = "backup costs web 12 % (8 to 16 %), build costs web 0.3 % (-0.9 to 1.5 %)";
        assert!(text.starts_with(begin), "{text}");
        assert_eq!(command.unwrap(), "tidegate set backup quota=0.60cpu");
    }

    #[test]
    fn main_at_rest_and_main_fed_by_side_work_are_not_judged() {
        let view = MeasureView::default();
        assert!(measure_advice(&view, None, 0.0).0.contains("at rest"));
        let fed = EffectView {
            main_cpu_ratio: 1.8,
            ..effect(0.5, 0.9)
        };
        let view = MeasureView {
            levels: vec![MeasuredLevelView {
                headroom_ratio: 0.0,
                effect: Some(fed),
            }],
            ..MeasureView::default()
        };
        assert!(measure_advice(&view, None, 0.0).0.contains("1.8 times"));
    }
}
