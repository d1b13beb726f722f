//! The four ways as two panels of bars: main's p99 latency, and side work done. It brings its own
//! background and colours, so that it reads the same by day and by night.

use std::fmt::Write as _;

use super::WAYS;
use crate::machine::{Guest, Machine};
use crate::report::{Report, escape};
use crate::stats::{least, mean, median, most};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 292.0;
/// Where the panels begin, and how long their longest bar is.
const PANELS: [f64; 2] = [214.0, 562.0];
const BAR: f64 = 190.0;
const TOP: f64 = 92.0;
const ROW: f64 = 40.0;
const THICK: f64 = 22.0;
/// Okabe and Ito's palette, which tells apart for most colour-blind readers.
const COLOURS: [&str; 4] = ["#8c959f", "#d55e00", "#56b4e9", "#009e73"];
const INK: &str = "#1f2328";
const SOFT: &str = "#59636e";

pub fn draw(report: &Report) -> String {
    let ways = WAYS.map(|(key, label)| Way::of(report, key, label));
    let longest = |of: fn(&Way) -> f64| {
        let finite = ways.iter().map(of).filter(|v| v.is_finite());
        finite.fold(f64::MIN_POSITIVE, f64::max)
    };
    let scales = [longest(|w| w.p99_range_ms.1), longest(|w| w.side_work)];
    let mut svg = frame(report);
    let unit = report
        .rows
        .first()
        .and_then(|row| row["side_unit"].as_str());
    let heads = [
        "Main's p99 latency, ms (less is better)".to_string(),
        format!("Side work done, {} (more is better)", unit.unwrap_or("-")),
    ];
    for (x, head) in PANELS.into_iter().zip(heads) {
        text(&mut svg, (x, TOP - 18.0), (13, SOFT, "start"), &head);
    }
    for (i, way) in ways.iter().enumerate() {
        let y = TOP + ROW * i as f64;
        let middle = y + THICK / 2.0 + 4.5;
        let place = (PANELS[0] - 12.0, middle);
        text(&mut svg, place, (14, INK, "end"), way.label);
        let work = match way.side_work / ways[1].side_work {
            _ if way.side_work.is_nan() && i == 0 => "none".into(),
            _ if way.side_work.is_nan() => "not measured".into(),
            part if part.is_nan() => format!("{:.1}", way.side_work),
            part => format!("{:.1} ({:.0} %)", way.side_work, 100.0 * part),
        };
        let values = [(way.p99_ms, way.latency()), (way.side_work, work)];
        for ((x, scale), (value, label)) in PANELS.into_iter().zip(scales).zip(values) {
            let length = if value.is_finite() {
                BAR * value / scale
            } else {
                0.0
            };
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{length:.1}\" height=\"{THICK}\" fill=\"{}\"/>",
                COLOURS[i]
            );
            let mut end = x + length;
            let (low, high) = way.p99_range_ms;
            if x == PANELS[0] && high.is_finite() && low < high {
                let (a, b, at) = (
                    x + BAR * low / scale,
                    x + BAR * high / scale,
                    y + THICK / 2.0,
                );
                let top = at - 4.0;
                let _ = writeln!(
                    svg,
                    "<path d=\"M{a:.1} {at}H{b:.1}M{a:.1} {top}v8M{b:.1} {top}v8\" stroke=\"{INK}\" fill=\"none\"/>"
                );
                end = end.max(b);
            }
            text(&mut svg, (end + 7.0, middle), (13, INK, "start"), &label);
        }
    }
    small_print(&mut svg, report);
    svg + "</svg>\n"
}

/// One arm over all rounds; NaN is not measured.
struct Way {
    label: &'static str,
    p99_ms: f64,
    p99_range_ms: (f64, f64),
    side_work: f64,
}

impl Way {
    fn of(report: &Report, key: &str, label: &'static str) -> Self {
        let of_way = |row: &&serde_json::Map<String, serde_json::Value>| row["arm"] == key;
        let rows: Vec<_> = report.rows.iter().filter(of_way).collect();
        // A main that completed no request has no latency in its row: infinity.
        let ms = |us: &serde_json::Value| us.as_f64().map_or(f64::INFINITY, |us| us / 1e3);
        let p99s: Vec<f64> = rows.iter().map(|row| ms(&row["p99_us"])).collect();
        let work = rows
            .iter()
            .filter_map(|row| row["side_work_per_second"].as_f64());
        Way {
            label,
            p99_ms: median(&p99s).unwrap_or(f64::NAN),
            p99_range_ms: (least(p99s.clone()), most(p99s)),
            side_work: mean(&work.collect::<Vec<_>>()).unwrap_or(f64::NAN),
        }
    }

    /// Three digits.
    fn latency(&self) -> String {
        match self.p99_ms {
            v if v.is_nan() => "not measured".into(),
            v if v.is_infinite() => "no request done".into(),
            v if v >= 100.0 => format!("{v:.0}"),
            v if v >= 10.0 => format!("{v:.1}"),
            v => format!("{v:.2}"),
        }
    }
}

fn frame(report: &Report) -> String {
    let mut svg = String::new();
    let machine = match &report.machine {
        Machine::Simulated(_) => "a simulated machine",
        _ => "the machine",
    };
    let title = format!("What side work costs main, a server that takes 25 % of {machine}");
    // Writing to a string cannot fail.
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         role=\"img\" aria-label=\"{}\" font-family=\"-apple-system, 'Segoe UI', Helvetica, Arial, sans-serif\">\n\
         <rect x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\" fill=\"#ffffff\" stroke=\"#d1d9e0\"/>\n",
        escape(&title),
        WIDTH - 1.0,
        HEIGHT - 1.0
    );
    text(&mut svg, (20.0, 32.0), (17, INK, "start"), &title);
    svg
}

fn small_print(svg: &mut String, report: &Report) {
    let (how, command) = match &report.machine {
        Machine::Simulated(s) => {
            let cpus = s.cpus.iter().sum::<u32>();
            let how = format!(
                "Simulated: {cpus} CPUs, {} threads a core, {}, seed {}",
                s.threads_per_core, s.scheduler, s.seed
            );
            (how, s.command.clone())
        }
        Machine::Host(m) | Machine::Guest(Guest { machine: m, .. }) => {
            let how = format!(
                "Measured: {} CPUs ({}), Linux {}, steal {:.1} %",
                m.cpus, m.model, m.kernel, m.steal_pct
            );
            (how, "tidegate-lab demo".into())
        }
    };
    let rounds = report
        .rows
        .iter()
        .filter_map(|row| row["round"].as_u64())
        .max();
    let bars = match rounds {
        None | Some(1) => String::new(),
        Some(n) => format!("Bars: median of {n} rounds; lines: least and most. "),
    };
    for (i, line) in [how, format!("{bars}Command: {command}")]
        .iter()
        .enumerate()
    {
        let y = HEIGHT - 32.0 + 17.0 * i as f64;
        text(svg, (20.0, y), (11, SOFT, "start"), line);
    }
}

/// Text at a place, with its size, colour and anchor.
fn text(
    svg: &mut String,
    (x, y): (f64, f64),
    (size, fill, anchor): (u32, &str, &str),
    words: &str,
) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{fill}\" text-anchor=\"{anchor}\">{}</text>",
        escape(words)
    );
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::machine::HostMachine;

    #[test]
    fn the_picture_has_every_bar_its_machine_and_its_command() {
        let machine = HostMachine {
            cpus: 2,
            model: "a <b> & c".into(),
            ..HostMachine::default()
        };
        let mut report = Report::new("demo", Machine::Host(machine));
        let row = |arm: &str, round: u32, p99_us: Value, work: Value| {
            crate::report::row(json!({
                "arm": arm, "round": round, "side_unit": "frames/s", "p99_us": p99_us,
                "side_work_per_second": work,
            }))
        };
        report.rows = vec![
            row("alone", 1, json!(3000.0), Value::Null),
            row("alone", 2, json!(3200.0), Value::Null),
            row("as_started", 1, json!(12_000.0), json!(60.0)),
            row("cpu_idle", 1, Value::Null, json!(57.0)),
        ];
        let svg = draw(&report);
        for words in [
            "3.10",
            "12.0",
            "60.0 (100 %)",
            "57.0 (95 %)",
            "no request done",
            "not measured",
            "frames/s",
            "a &lt;b&gt; &amp; c",
            "median of 2 rounds",
            "tidegate-lab demo",
        ] {
            assert!(svg.contains(words), "{words} is not in {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
