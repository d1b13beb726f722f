//! The four ways as two panels of bars: main's p99 latency, and side work done. It brings its own background and
//! colours, so that it reads the same by day and by night.

use std::fmt::Write as _;

use super::screen::{amount, ms};
use super::{Comparison, Way, host};

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

/// The drawing.
pub fn draw(c: &Comparison) -> String {
    let p99 = |way| c.figures(way).map(|f| f.p99_ms).filter(|v| v.is_finite());
    let work = |way| c.figures(way).and_then(|f| f.side_work);
    let most = |of: &dyn Fn(Way) -> Option<f64>| {
        let values = Way::ALL.into_iter().filter_map(of);
        values.fold(f64::MIN_POSITIVE, f64::max)
    };
    let ends = |way| c.figures(way).and_then(|f| f.p99_range_ms).map(|r| r.1);
    let longest = most(&p99).max(most(&|way| ends(way).filter(|v: &f64| v.is_finite())));
    let scales = [longest, most(&work)];

    let mut svg = frame(c);
    let heads = [
        "Main's p99 latency, ms (less is better)".to_string(),
        format!("Side work done, {} (more is better)", c.side_unit),
    ];
    for (x, head) in PANELS.into_iter().zip(heads) {
        text(&mut svg, (x, TOP - 18.0), (13, SOFT, "start"), &head);
    }
    for (i, way) in Way::ALL.into_iter().enumerate() {
        let y = TOP + ROW * i as f64;
        let middle = y + THICK / 2.0 + 4.5;
        text(
            &mut svg,
            (PANELS[0] - 12.0, middle),
            (14, INK, "end"),
            way.label(),
        );
        let latency = c
            .figures(way)
            .map_or("not measured".into(), |f| ms(f.p99_ms));
        let done = match (way, work(way)) {
            (Way::Alone, _) => "none".into(),
            (_, None) => "not measured".into(),
            (_, Some(w)) => match c.side_work_pct(way) {
                Some(pct) => format!("{} ({pct:.0} %)", amount(w)),
                None => amount(w),
            },
        };
        let values = [(p99(way), latency), (work(way), done)];
        for ((x, scale), (value, label)) in PANELS.into_iter().zip(scales).zip(values) {
            let length = BAR * value.unwrap_or(0.0) / scale;
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{length:.1}\" height=\"{THICK}\" fill=\"{}\"/>",
                COLOURS[i]
            );
            let range = c.figures(way).and_then(|f| f.p99_range_ms);
            let shown = range.filter(|r| x == PANELS[0] && r.1.is_finite());
            let mut end = x + length;
            if let Some((low, high)) = shown {
                let (a, b) = (x + BAR * low / scale, x + BAR * high / scale);
                let at = y + THICK / 2.0;
                let _ = writeln!(
                    svg,
                    "<path d=\"M{a:.1} {at}H{b:.1}M{a:.1} {}v8M{b:.1} {}v8\" stroke=\"{INK}\" fill=\"none\"/>",
                    at - 4.0,
                    at - 4.0
                );
                end = end.max(b);
            }
            text(&mut svg, (end + 7.0, middle), (13, INK, "start"), &label);
        }
    }
    small_print(&mut svg, c);
    svg + "</svg>\n"
}

/// The background and the title.
fn frame(c: &Comparison) -> String {
    let mut svg = String::new();
    let title = format!(
        "What side work costs main, a server that takes {:.0} % of {}",
        host::main_pct(),
        if c.is_measured() {
            "the machine"
        } else {
            "a simulated machine"
        }
    );
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

fn small_print(svg: &mut String, c: &Comparison) {
    let how = if c.is_measured() {
        "Measured"
    } else {
        "Simulated"
    };
    // A command of the user's may be of any length.
    let side: String = c.side.chars().take(64).collect();
    let rounds = c.windows.iter().map(|w| w.round + 1).max().unwrap_or(0);
    let bars = match rounds {
        0 | 1 => String::new(),
        n => format!("Bars: median of {n} rounds; lines: least and most. "),
    };
    let lines = [
        format!("{how}: {}", c.place()),
        format!("{bars}Side work: {side}. Command: {}", c.command),
    ];
    for (i, line) in lines.iter().enumerate() {
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

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
