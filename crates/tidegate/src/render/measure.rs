//! What a measurement found, as a table and a sentence of advice.

use tidegate_api::{EffectView, IntervalView, MeasureView, MeasuredLevelView};

use super::{BOLD, cpus, fit, span, styled, wrapped};

const NAME: usize = 14;

pub fn page(view: &MeasureView) -> String {
    let mut text = String::new();
    let head = format!(
        "{} used {} CPUs beside {}; {} of {}",
        styled(BOLD, &fit(&view.main.join(", "), 40)),
        cpus(view.main_cpus),
        fit(&view.side.join(", "), 40),
        span(view.elapsed_seconds),
        span(view.length_seconds)
    );
    text += &format!("{head}\n");
    if let Some(why) = &view.ended_because {
        text += &wrapped("Ended early: ", why);
    }
    let name = if view.gates.is_empty() {
        "headroom"
    } else {
        "gate"
    };
    text += &format!(
        "\n{name:<NAME$}{:>10}  {:<18}{:>10}  {:<16}{:>9}\n",
        "slowdown", "95 % interval", "late runs", "interval", "side CPUs"
    );
    for level in &view.levels {
        let name = format!("{} %", number(level.headroom_ratio, 1));
        text += &row(&name, level.effect.as_ref());
    }
    for gate in &view.gates {
        text += &row(&gate.gate, gate.effect.as_ref());
    }
    if view.gates.is_empty() {
        let reference = format!(
            "Reference: side work at its tolerance of {} %, where it used {} CPUs. A run is late after a wait of {:.0} us.",
            number(view.tolerance_ratio, 1),
            cpus(view.reference_side_cpus),
            view.late_after_us
        );
        text += "\n";
        text += &wrapped("", &reference);
        text += &behind_side(view);
    }
    if let Some(advice) = &view.advice {
        text += "\n";
        text += &wrapped("Advice: ", advice);
    }
    if let Some(command) = &view.command {
        text += &format!("  {command}\n");
    }
    text
}

/// What other work waited behind side work at each level.
fn behind_side(view: &MeasureView) -> String {
    let of_level = |level: &MeasuredLevelView| {
        let waited = level.effect.as_ref()?.behind_side_ratio?;
        let headroom = number(level.headroom_ratio, 1);
        Some(format!("{:.2} ms a second at {headroom} %", waited * 1e3))
    };
    let levels: Vec<String> = view.levels.iter().filter_map(of_level).collect();
    match levels.is_empty() {
        true => String::new(),
        false => wrapped(
            "",
            &format!("Other work waited behind side work {}.", levels.join(", ")),
        ),
    }
}

fn number(ratio: f64, digits: usize) -> String {
    let text = format!("{:.digits$}", 100.0 * ratio);
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    match text {
        "-0" => "0".to_owned(),
        text => text.to_owned(),
    }
}

fn row(name: &str, effect: Option<&EffectView>) -> String {
    let name = fit(name, NAME - 1);
    let Some(effect) = effect else {
        return format!("{name:<NAME$}{:>10}  too few rounds\n", "–");
    };
    let between = |of: &IntervalView, digits| {
        format!(
            "{} to {} %",
            number(of.lower, digits),
            number(of.upper, digits)
        )
    };
    let (slowdown, late) = (&effect.slowdown_ratio, &effect.late_ratio);
    format!(
        "{name:<NAME$}{:>8} %  {:<18}{:>8} %  {:<16}{:>9}\n",
        number(slowdown.estimate, 1),
        between(slowdown, 1),
        format!("{:+.2}", 100.0 * late.estimate),
        between(late, 2),
        cpus(effect.side_cpus)
    )
}
