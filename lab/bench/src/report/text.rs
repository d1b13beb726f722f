//! The terminal's form.

use tidegate_api::cli::wrapped;

use super::{Headline, Report, Table};
use crate::stats;

pub fn render(report: &Report) -> String {
    let mut out = format!("{}: {}\n", report.command(), report.machine.line());
    if let Some(scenario) = &report.scenario
        && !scenario.about.is_empty()
    {
        out += &format!("\n{}", wrapped("", &scenario.about));
    }
    for t in &report.tables {
        out += &format!("\n{}\n{}", t.title, table(t));
    }
    if !report.headline.is_empty() {
        out += &format!("\nHeadline\n{}", table(&headline_table(&report.headline)));
    }
    for note in &report.notes {
        out += &format!("\n{}", wrapped("", note));
    }
    for file in report.files() {
        out += &format!("\n{}", file.display());
    }
    if !report.files().is_empty() {
        out.push('\n');
    }
    out
}

/// Published, ours, target, met.
pub fn headline_table(headline: &[Headline]) -> Table {
    let mut t = Table::new(
        "Headline",
        &["figure", "published", "ours", "unit", "target", ""],
    );
    for h in headline {
        t.push([
            h.name.clone(),
            h.published.map_or("-".into(), |s| short(s, None)),
            short(h.value, h.interval95),
            h.unit.clone(),
            h.target.clone().unwrap_or_else(|| "-".into()),
            match h.met {
                Some(true) => "met".into(),
                Some(false) => "NOT met".into(),
                None => String::new(),
            },
        ]);
    }
    t
}

pub fn short(value: f64, interval: Option<(f64, f64)>) -> String {
    if value.is_nan() {
        return "not measured".into();
    }
    if !value.is_finite() {
        return "not seen".into();
    }
    let digits = if value.abs() >= 100.0 {
        0
    } else if value.abs() >= 10.0 {
        1
    } else {
        2
    };
    stats::with_interval(value, interval, digits)
}

/// Columns as wide as their widest cell; numbers to the right, text to the left.
pub fn table(t: &Table) -> String {
    let mut lines = vec![String::new(); t.rows.len() + 2];
    for (i, head) in t.columns.iter().enumerate() {
        let cells = || t.rows.iter().map(|row| row[i].as_str());
        let all = std::iter::once(head.as_str()).chain(cells());
        let width = all.map(|cell| cell.chars().count()).max().unwrap_or(0);
        let rule = "─".repeat(width);
        let column = [head, rule.as_str()].into_iter().chain(cells());
        let is_numeric = cells().any(is_number);
        for (line, cell) in lines.iter_mut().zip(column) {
            *line += &match is_numeric {
                true => format!("  {cell:>width$}"),
                false => format!("  {cell:width$}"),
            };
        }
    }
    let lines = lines.iter().map(|line| line.trim_end());
    lines.map(|line| format!("{line}\n")).collect()
}

/// Whether a cell begins like a number, with its sign.
pub fn is_number(cell: &str) -> bool {
    cell.trim_start_matches(['+', '-', '−', '≥', '≤', ' '])
        .starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_line_up() {
        let mut t = Table::new("x", &["name", "n"]);
        t.push(["a".into(), "1".into()]);
        t.push(["long".into(), "-10.5".into()]);
        assert_eq!(
            table(&t),
            "  name      n\n  ────  ─────\n  a         1\n  long  -10.5\n"
        );
    }

    #[test]
    fn what_was_never_seen_says_so() {
        assert_eq!(short(f64::INFINITY, None), "not seen");
        assert_eq!(short(1.256, Some((1.1, 1.4))), "1.26 (1.10…1.40)");
    }
}
