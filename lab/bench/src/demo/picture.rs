//! The ways of placing side work as two panels of bars: the server's p99 latency, and side work
//! done. It brings its own background and colours, so that it reads the same by day and by night.

use std::fmt::Write as _;

use tidegate_api::cli::wrapped;

use super::stations::{SIDE_WORK, WAYS};
use crate::report::text::short;
use crate::report::{Report, escape};
use crate::stats::{least, median, most};

const WIDTH: f64 = 860.0;
/// Where the panels begin, and how long their longest bar is.
const PANELS: [f64; 2] = [214.0, 562.0];
const BAR: f64 = 190.0;
const TOP: f64 = 92.0;
const ROW: f64 = 40.0;
const THICK: f64 = 22.0;
const SMALL_PRINT: f64 = TOP + ROW * WAYS.len() as f64 + 12.0;
/// Okabe and Ito's palette, which tells apart for most colour-blind readers.
const COLOURS: [&str; WAYS.len()] = [
    "#8c959f", "#d55e00", "#e69f00", "#56b4e9", "#009e73", "#0072b2",
];
const INK: &str = "#1f2328";
const SOFT: &str = "#59636e";

pub fn draw(report: &Report) -> String {
    let ways = WAYS.map(|(key, _)| Way::of(report, key));
    let title = "What side work costs a server that takes 25 % of the machine";
    let small_print = small_print(report);
    let height = SMALL_PRINT + 15.0 * small_print.len() as f64;
    // Writing to a string cannot fail.
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\" aria-label=\"{}\" \
         font-family=\"-apple-system, 'Segoe UI', Helvetica, Arial, sans-serif\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#ffffff\"/>\n",
        escape(title)
    );
    text(&mut svg, (20.0, 32.0), (17, INK, "start"), title);
    let heads = [
        "The server's p99 latency, ms (less is better)",
        "Side work, % of the machine (more is better)",
    ];
    let longest = |of: fn(&Way) -> f64| {
        let finite = ways.iter().map(of).filter(|v| v.is_finite());
        BAR / finite.fold(f64::MIN_POSITIVE, f64::max)
    };
    let scales = [longest(|w| w.p99_ms.1), longest(|w| w.side_pct)];
    for (x, head) in PANELS.into_iter().zip(heads) {
        text(&mut svg, (x, TOP - 18.0), (13, SOFT, "start"), head);
    }
    for (i, way) in ways.iter().enumerate() {
        let y = TOP + ROW * i as f64;
        let middle = y + THICK / 2.0;
        let name = (PANELS[0] - 12.0, middle + 4.5);
        text(&mut svg, name, (14, INK, "end"), WAYS[i].1);
        let latency = match way.median_ms {
            ms if ms.is_infinite() => "no request done".into(),
            ms => short(ms, None),
        };
        let work = match way.side_pct {
            pct if pct.is_nan() && i == 0 => "none".into(),
            pct => short(pct, None),
        };
        let values = [way.median_ms, way.side_pct];
        let mut ends = PANELS;
        for panel in 0..2 {
            let length = scales[panel] * values[panel];
            let length = if length.is_finite() { length } else { 0.0 };
            ends[panel] += length;
            let _ = writeln!(
                svg,
                "<rect x=\"{}\" y=\"{y}\" width=\"{length:.1}\" height=\"{THICK}\" fill=\"{}\"/>",
                PANELS[panel], COLOURS[i]
            );
        }
        let (low, high) = way.p99_ms;
        if high.is_finite() && low < high {
            let [a, b] = [low, high].map(|ms| PANELS[0] + scales[0] * ms);
            let top = middle - 4.0;
            let _ = writeln!(
                svg,
                "<path d=\"M{a:.1} {middle}H{b:.1}M{a:.1} {top}v8M{b:.1} {top}v8\" stroke=\"{INK}\"/>"
            );
            ends[0] = ends[0].max(b);
        }
        for (end, label) in ends.into_iter().zip([latency, work]) {
            let place = (end + 7.0, middle + 4.5);
            text(&mut svg, place, (13, INK, "start"), &label);
        }
    }
    for (i, line) in small_print.iter().enumerate() {
        let place = (20.0, SMALL_PRINT + 15.0 * i as f64);
        text(&mut svg, place, (11, SOFT, "start"), line);
    }
    svg + "</svg>\n"
}

/// One arm over all rounds; NaN is not measured.
struct Way {
    median_ms: f64,
    /// The least and the most.
    p99_ms: (f64, f64),
    side_pct: f64,
}

impl Way {
    fn of(report: &Report, key: &str) -> Self {
        let rows = || {
            let own = report.rows.iter().filter(|row| row["part"] == SIDE_WORK);
            own.filter(|row| row["arm"] == key)
        };
        // A main that completed no request has no latency in its row: infinity.
        let ms = |us: &serde_json::Value| us.as_f64().map_or(f64::INFINITY, |us| us / 1e3);
        let p99s: Vec<f64> = rows().map(|row| ms(&row["p99_us"])).collect();
        let side = rows().filter_map(|row| row.get("side_ratio")?.as_f64());
        let side: Vec<f64> = side.map(|ratio| 100.0 * ratio).collect();
        Way {
            median_ms: median(&p99s).unwrap_or(f64::NAN),
            p99_ms: (least(p99s.clone()), most(p99s)),
            side_pct: median(&side).unwrap_or(f64::NAN),
        }
    }
}

/// The machine and the command, in lines.
fn small_print(report: &Report) -> Vec<String> {
    let rows = report.rows.iter().filter(|row| row["part"] == SIDE_WORK);
    let rounds = rows.filter_map(|row| row["round"].as_u64());
    let bars = match rounds.max() {
        None | Some(1) => String::new(),
        Some(n) => format!("Bars: median of {n} rounds; lines: least and most. "),
    };
    let (machine, command) = (report.machine.line(), report.command());
    let text = wrapped("", &format!("{machine}. {bars}Command: {command}"));
    text.lines().map(str::to_owned).collect()
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
    use crate::machine::{HostMachine, Machine};

    #[test]
    fn the_picture_has_every_bar_its_machine_and_its_command() {
        let machine = HostMachine {
            cpus: 2,
            model: "a <b> & c".into(),
            ..HostMachine::default()
        };
        let mut report = Report::new("demo", Machine::Host(machine));
        let row = |arm: &str, round: u32, p99_us: Value, work: Value| {
            let row = json!({
                "part": SIDE_WORK, "arm": arm, "round": round, "p99_us": p99_us, "side_ratio": work,
            });
            row.as_object().cloned().unwrap_or_default()
        };
        report.rows = vec![
            row("no_side", 1, json!(3000.0), Value::Null),
            row("no_side", 2, json!(3200.0), Value::Null),
            row("as_started", 1, json!(12_000.0), json!(0.6)),
            row("cpu_idle", 1, Value::Null, json!(0.57)),
        ];
        let svg = draw(&report);
        for words in [
            "3.10",
            "12.0",
            "60.0",
            "57.0",
            "no request done",
            "not measured",
            "a &lt;b&gt; &amp; c",
            "median of 2 rounds",
            "tidegate-lab demo",
        ] {
            assert!(svg.contains(words), "{words} is not in {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
