//! The one plot of a report: for each label a row of dots over a common logarithmic axis.
//!
//! Its only colour is `currentColor`, so that one drawing serves by day and by night.

use std::fmt::Write as _;

const WIDTH: f64 = 860.0;
const AXIS: (f64, f64) = (330.0, 500.0);
const ROW: f64 = 18.0;
const TOP: f64 = 30.0;

#[derive(Clone, Debug)]
pub struct Plot {
    pub title: String,
    pub see: String,
    pub svg: String,
}

/// Draws the values of each label. Values that are not positive and finite have no place on the
/// axis.
pub fn dots(title: &str, see: &str, rows: &[(String, Vec<f64>)]) -> Option<Plot> {
    let shown = |v: &f64| v.is_finite() && *v > 0.0;
    let logs = |values: &[f64]| -> Vec<f64> {
        let shown = values.iter().copied().filter(|v| shown(v));
        shown.map(f64::log10).collect()
    };
    let all = rows.iter().flat_map(|(_, values)| logs(values));
    let (low, high) = all.fold((f64::MAX, f64::MIN), |(a, b), y| (a.min(y), b.max(y)));
    if low > high {
        return None;
    }
    let (low, high) = (low - 0.05, high + 0.05);
    let x = |log: f64| AXIS.0 + AXIS.1 * (log - low) / (high - low);
    let height = TOP + ROW * rows.len() as f64 + 8.0;
    // Writing to a string cannot fail.
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-size=\"12\" fill=\"currentColor\">\n"
    );
    for tick in ticks(low, high) {
        let at = x(tick.log10());
        let _ = writeln!(
            svg,
            "<text x=\"{at:.1}\" y=\"14\" text-anchor=\"middle\">{tick}</text>\
             <rect x=\"{at:.1}\" y=\"20\" width=\"1\" height=\"{:.1}\" opacity=\"0.2\"/>",
            height - 24.0
        );
    }
    for (i, (label, values)) in rows.iter().enumerate() {
        let y = TOP + ROW * (i as f64 + 0.5);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            AXIS.0 - 12.0,
            y + 4.0,
            super::escape(label)
        );
        let logs = logs(values);
        for log in &logs {
            let at = x(*log);
            let _ = writeln!(
                svg,
                "<circle cx=\"{at:.1}\" cy=\"{y:.1}\" r=\"3\" opacity=\"0.6\"/>"
            );
        }
        if let Some(median) = crate::stats::median(&logs) {
            let (at, top) = (x(median) - 1.0, y - 7.0);
            let _ = writeln!(
                svg,
                "<rect x=\"{at:.1}\" y=\"{top:.1}\" width=\"2\" height=\"14\"/>"
            );
        }
    }
    svg += "</svg>\n";
    Some(Plot {
        title: title.into(),
        see: see.into(),
        svg,
    })
}

/// 1, 2 and 5 of each decade on the axis, or the decades alone if it has many.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let steps: &[f64] = if high - low > 3.0 {
        &[1.0]
    } else {
        &[1.0, 2.0, 5.0]
    };
    let decades = low.floor() as i32..=high.floor() as i32;
    let all = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
    all.filter(|tick| (low..=high).contains(&tick.log10()))
        .map(|tick| (tick * 1e6).round() / 1e6)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_were_never_seen_have_no_dot() {
        let rows = [
            ("a <b>".to_string(), vec![12.0, 15.0, f64::INFINITY, 0.0]),
            ("c".to_string(), vec![]),
        ];
        let plot = dots("t", "see", &rows).expect("drawn");
        assert_eq!(plot.svg.matches("<circle").count(), 2);
        assert!(
            plot.svg.contains("a &lt;b&gt;") && !plot.svg.contains("inf"),
            "{}",
            plot.svg
        );
        assert!(dots("t", "see", &rows[1..]).is_none());
    }

    #[test]
    fn ticks_lie_on_the_axis() {
        assert_eq!(ticks(0.9, 1.4), [10.0, 20.0]);
        assert_eq!(ticks(-0.1, 3.2), [1.0, 10.0, 100.0, 1000.0]);
    }
}
