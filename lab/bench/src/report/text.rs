//! The terminal's form, and CSV.

use serde_json::{Map, Value};

use super::{Headline, Met, Report, Table};
use crate::stats;

pub fn render(report: &Report) -> String {
    let mut out = format!("{}: {}\n", report.command(), report.machine.line());
    if let Some(scenario) = &report.scenario
        && !scenario.about.is_empty()
    {
        out += &format!("\n{}\n", wrap(&scenario.about, 100));
    }
    for t in &report.tables {
        out += &format!("\n{}\n{}", t.title, table(t));
    }
    if !report.headline.is_empty() {
        out += &format!("\nHeadline\n{}", table(&headline_table(&report.headline)));
    }
    for note in &report.notes {
        out += &format!("\n{}\n", wrap(note, 100));
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
            h.met.word().to_string(),
        ]);
    }
    t
}

/// Every headline of every report in one table, and the count of targets.
pub fn headlines(reports: &[Report]) -> String {
    let mut all = Table::new(
        "",
        &["", "figure", "published", "ours", "unit", "target", ""],
    );
    let (mut met, mut targets) = (0, 0);
    for report in reports {
        for (h, cells) in report
            .headline
            .iter()
            .zip(headline_table(&report.headline).rows)
        {
            targets += u32::from(h.met != Met::Unknown);
            met += u32::from(h.met == Met::Yes);
            all.push(std::iter::once(report.experiment.to_string()).chain(cells));
        }
    }
    format!(
        "All headlines\n{}\n{met} of {targets} targets met.\n",
        table(&all)
    )
}

fn short(value: f64, interval: Option<(f64, f64)>) -> String {
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
    let width = |i: usize| {
        let cells = t
            .rows
            .iter()
            .filter_map(|r| r.get(i))
            .chain(t.columns.get(i));
        cells.map(|c| c.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..t.columns.len()).map(width).collect();
    let numeric: Vec<bool> = (0..t.columns.len())
        .map(|i| t.rows.iter().filter_map(|r| r.get(i)).any(|c| is_number(c)))
        .collect();
    let line = |cells: &[String]| {
        let mut text = String::from(" ");
        for (i, cell) in cells.iter().enumerate().take(widths.len()) {
            let pad = " ".repeat(widths[i] - cell.chars().count());
            let joined = if numeric[i] {
                format!(" {pad}{cell} ")
            } else {
                format!(" {cell}{pad} ")
            };
            text += &joined;
        }
        text.trim_end().to_string() + "\n"
    };
    let rule: Vec<String> = widths.iter().map(|w| "─".repeat(*w)).collect();
    let mut out = line(&t.columns) + &line(&rule);
    for row in &t.rows {
        out += &line(row);
    }
    out
}

/// Whether a cell begins like a number, with its sign.
pub fn is_number(cell: &str) -> bool {
    cell.trim_start_matches(['+', '-', '−', '≥', '≤', ' '])
        .starts_with(|c: char| c.is_ascii_digit())
}

pub fn wrap(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            out.push('\n');
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out += word;
        column += length;
    }
    out
}

/// RFC 4180, with a header.
pub fn csv(rows: &[Map<String, Value>]) -> String {
    let mut columns: Vec<&str> = Vec::new();
    for name in rows.iter().flat_map(|r| r.keys()) {
        if !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    let mut out = columns.join(",") + "\n";
    for row in rows {
        let cells: Vec<String> = columns.iter().map(|c| cell(row.get(*c))).collect();
        out += &(cells.join(",") + "\n");
    }
    out
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(s)) if s.contains([',', '"', '\n']) => {
            format!("\"{}\"", s.replace('"', "\"\""))
        }
        Some(Value::String(s)) => s.clone(),
        Some(other) => other.to_string(),
    }
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
    fn csv_quotes_what_it_must() {
        let rows = vec![
            super::super::row(serde_json::json!({"a": "x,y", "b": 1.5})),
            super::super::row(serde_json::json!({"a": "say \"hi\"", "c": null})),
        ];
        let text = csv(&rows);
        assert!(text.starts_with("a,b,c\n"));
        assert!(text.contains("\"x,y\",1.5,\n") && text.contains("\"say \"\"hi\"\"\",,\n"));
    }

    #[test]
    fn wrapping_keeps_every_word() {
        let text = "one two three four";
        assert_eq!(wrap(text, 9), "one two\nthree\nfour");
    }

    #[test]
    fn what_was_never_seen_says_so() {
        assert_eq!(short(f64::INFINITY, None), "not seen");
        assert_eq!(short(1.256, Some((1.1, 1.4))), "1.26 (1.10…1.40)");
    }
}
