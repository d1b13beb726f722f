//! The demonstration's one screen.

use std::path::{Path, PathBuf};

use super::{Comparison, Way, host};
use crate::report::build::LOUD;
use crate::report::{Table, text};

const WIDTH: usize = 80;

/// Which machine, and whether it was measured or simulated.
pub fn title(c: &Comparison) -> String {
    let how = if c.is_measured() {
        "Measured on this machine"
    } else {
        "Simulated, nothing measured"
    };
    format!("{how}: {}", c.place())
}

/// The four ways, each with main's latency and the side work done.
pub fn table(c: &Comparison) -> Table {
    let mut columns = vec!["side work", "p50, ms", "p99, ms"];
    let ranged = c.windows.iter().any(|w| w.round > 0);
    if ranged {
        columns.push("by round");
    }
    columns.extend([c.side_unit, "done"]);
    let mut t = Table::new(&title(c), &columns);
    for way in Way::ALL {
        let mut cells = vec![way.label().to_owned()];
        let Some(f) = c.figures(way) else {
            cells.push("not measured".into());
            cells.resize(columns.len(), "-".into());
            t.push(cells);
            continue;
        };
        cells.extend([ms(f.p50_ms), ms(f.p99_ms)]);
        if ranged {
            let range = |(a, b)| format!("{} to {}", ms(a), ms(b));
            cells.push(f.p99_range_ms.map_or("-".into(), range));
        }
        cells.push(f.side_work.map_or("-".into(), amount));
        let part = c.side_work_pct(way);
        cells.push(part.map_or("-".into(), |p| format!("{p:.0} %")));
        t.push(cells);
    }
    t
}

/// A latency to three digits; a main that completed nothing has none.
pub fn ms(value: f64) -> String {
    match value {
        v if !v.is_finite() => "no request done".into(),
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// An amount of side work.
pub fn amount(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

/// What the table says, in one sentence.
pub fn finding(c: &Comparison) -> String {
    let place = if c.is_measured() {
        "On this machine"
    } else {
        "On the simulated one"
    };
    let Some(started) = c.p99_ratio(Way::AsStarted) else {
        return format!("{place}, main's p99 with and without side work cannot be compared.");
    };
    let mut text = format!(
        "{place}, side work as people start it makes main's p99 {started:.1} times that of main alone"
    );
    let others = [
        (Way::CpuIdle, "; with cpu.idle it is"),
        (Way::Tidegate, "; with Tidegate it is"),
    ];
    for (way, words) in others {
        if let (Some(ratio), Some(pct)) = (c.p99_ratio(way), c.side_work_pct(way)) {
            text += &format!("{words} {ratio:.1} times, at {pct:.0} % of that side work");
        }
    }
    text + "."
}

/// The whole screen.
pub fn render(comparisons: &[Comparison; 2], pictures: &[PathBuf], pages: &[&Path]) -> String {
    let head = format!(
        "Main is a server that takes {:.0} % of the machine: its latency, and the side work done (100 %: as \
         much as where people start it).",
        host::main_pct()
    );
    let mut out = text::wrap(&head, WIDTH) + "\n";
    for c in comparisons {
        let title = text::wrap(&title(c), WIDTH);
        out += &format!("\n{title}\n{}", text::table(&table(c)));
    }
    let [here, larger] = comparisons;
    let findings = [
        finding(here),
        here.headroom.clone(),
        finding(larger),
        larger.headroom.clone(),
    ];
    let said = text::wrap(&findings.join(" "), WIDTH);
    out += &format!("\n{said}\n");
    for c in comparisons.iter().filter(|c| c.others_pct > 100.0 * LOUD) {
        let line = format!(
            "Other programs took {:.0} % of the machine meanwhile, so these figures say little; measure it again when it is quiet.",
            c.others_pct
        );
        out += &format!("\n{}\n", text::wrap(&line, WIDTH));
    }
    for line in comparisons.iter().flat_map(|c| &c.missing) {
        out += &format!("\n{line}\n");
    }
    let list = |paths: Vec<String>| paths.join(", ");
    let shown = pictures.iter().map(|p| p.display().to_string()).collect();
    let read = pages.iter().map(|p| p.display().to_string()).collect();
    out += &format!("\nPictures: {}\nPages:    {}\n", list(shown), list(read));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_keep_three_digits() {
        assert_eq!(
            [ms(0.9), ms(12.345), ms(123.4)],
            ["0.90", "12.3", "123"].map(String::from)
        );
        assert_eq!(ms(f64::INFINITY), "no request done");
    }
}
