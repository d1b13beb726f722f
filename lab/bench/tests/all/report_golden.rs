//! The report's three forms, over a report with made-up figures: what people and programs read must
//! not change without being seen. `TIDEGATE_BLESS=1` writes the expected files again.

use crate::support::golden;
use serde_json::json;
use tidegate_lab::machine::{HostMachine, Machine};
use tidegate_lab::report::{Headline, Report, Table, plots};

fn sample() -> Report {
    let machine = HostMachine {
        kernel: "6.18.0-test".into(),
        hz: 250,
        preemption: "none".into(),
        base_slice_ms: Some(1.4),
        smt: Some(false),
        governor: "none".into(),
        steal_pct: 0.25,
        cpus: 2,
        model: "Test CPU".into(),
        cgroup: Some(1),
        ..HostMachine::default()
    };
    let mut report = Report::new("law", Machine::Host(machine));
    for (main, side, idle) in [(30, 40.1, 29.9), (80, 1.0, 19.0)] {
        let value =
            json!({"kind": "constant", "main": main, "side": side, "idle": idle, "note": "a, b"});
        report
            .rows
            .push(value.as_object().expect("an object").clone());
    }
    report.headline = vec![
        Headline {
            target: Some("≤ 1".into()),
            met: Some(true),
            ..Headline::new("idle against due", 0.12, "points")
        },
        Headline {
            published: Some(1.26),
            target: Some("≤ 1.05".into()),
            met: Some(false),
            interval95: Some((1.2, 1.4)),
            ..Headline::new("main's average over no side work", 1.31, "×")
        },
        Headline::new("never settled", f64::INFINITY, "ms"),
    ];
    let mut table = Table::new("A table", &["main", "side <b>", "idle"]);
    table.push(["30".into(), "40.1".into(), "29.9".into()]);
    table.push(["80".into(), "minimal".into(), "19.0".into()]);
    report.tables.push(table);
    let values = [("main".to_string(), vec![10.0, 90.0])];
    report
        .plots
        .extend(plots::dots("A plot", "Main rises.", &values));
    report.notes.push(
        "A note that is long enough to be wrapped on a terminal, because it goes on \
        for more than one hundred characters."
            .into(),
    );
    report
}

#[test]
fn text_and_json_are_as_expected() {
    let report = sample();
    golden("report.txt", &report.to_text());
    golden("report.json", &(report.to_json() + "\n"));
}

#[test]
fn the_page_stands_alone_and_knows_the_dark() {
    let page = sample().to_html();
    let foreign = page.replace("http://www.w3.org/2000/svg", "");
    for loads in ["http:", "https:", "<script", "@import", "url(", "src="] {
        assert!(
            !foreign.contains(loads),
            "the page loads something: {loads}"
        );
    }
    assert!(page.contains("color-scheme: light dark"));
    assert!(page.contains("<svg") && page.contains("Main rises."));
    assert!(page.contains("side &lt;b&gt;"), "text is escaped");
    assert!(page.contains("NOT met"));
}

#[test]
fn files_are_written_where_asked() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut report = sample();
    report
        .write_files(&dir.path().join("new/folder"))
        .expect("written");
    let names: Vec<_> = report
        .files()
        .iter()
        .filter_map(|f| f.file_name())
        .collect();
    assert_eq!(names, ["law.html", "law.json"]);
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&report.files()[1]).expect("read")).expect("JSON");
    assert_eq!(json["on"], "host");
    assert_eq!(json["headline"][1]["met"], false);
    assert!(json["headline"][2]["value"].is_null());
}
