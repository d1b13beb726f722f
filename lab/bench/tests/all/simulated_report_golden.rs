//! The report on a scenario's run, over an outcome with made-up figures: what people and programs
//! read must not change without being seen. `TIDEGATE_BLESS=1` writes the expected files again.

use crate::support::golden;
use tidegate_lab::simulated_report;
use tidegate_sim::outcome::{GroupOutcome, Outcome, Sample, SeriesOutcome};
use tidegate_sim::scenario::{Scenario, Text};
use tidegate_sim::{Class, CpuStat, Histogram};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

fn histogram(values: impl IntoIterator<Item = u64>) -> Histogram {
    let mut histogram = Histogram::new();
    values.into_iter().for_each(|value| histogram.record(value));
    histogram
}

fn group(name: &str, class: Class, usage_ns: u64, limited: bool) -> GroupOutcome {
    GroupOutcome {
        name: name.into(),
        class,
        usage_ns,
        work_ns: usage_ns / 10 * 9,
        run_delay_ns: usage_ns / 50,
        wakeup: histogram((1..=100).map(|us| us * 1_000)),
        writes: if limited { 12 } else { 0 },
        stat: match limited {
            false => CpuStat::default(),
            true => CpuStat {
                nr_periods: 100,
                nr_throttled: 40,
                throttled_ns: 3 * S / 2,
                nr_bursts: 3,
                burst_ns: 5 * MS,
            },
        },
    }
}

fn outcome() -> Outcome {
    let side_ns = 4 * S;
    Outcome {
        seed: 1,
        cpus: 2,
        engine: "cgroup",
        measured_ns: 10 * S,
        events: 123_456,
        at_tolerance_ns: None,
        idle_ns: 20 * S - 6 * S - side_ns,
        groups: vec![
            group("root", Class::Neutral, 6 * S + side_ns, false),
            group("web", Class::Main, 6 * S, false),
            group("batch", Class::Side, side_ns, true),
        ],
        series: vec![
            SeriesOutcome {
                workload: "requests".into(),
                group: "web".into(),
                what: "latency",
                values: histogram((1..=1_000).map(|tenth| tenth * MS / 10)),
            },
            SeriesOutcome {
                workload: "build".into(),
                group: "batch".into(),
                what: "finish",
                values: Histogram::new(),
            },
        ],
        samples: (1..=3)
            .map(|window| Sample {
                at_ns: window * 100 * MS,
                usage_ns: vec![90 * MS, 60 * MS, 30 * MS],
            })
            .collect(),
        window_ns: 100 * MS,
        refusals: vec!["cgroup: a write was refused".into()],
    }
}

fn scenario() -> Scenario {
    let text = "about = \"a <made-up> run\"\n[machine]\ncpus = 2\ncontention = \"none\"\n[workload.requests]\nkind = \"hog\"\n";
    let text = Text {
        shown: "web.toml".into(),
        name: "web".into(),
        text: text.into(),
    };
    Scenario::resolve(&text, &[]).expect("a right scenario")
}

#[test]
fn a_run_is_a_report_with_a_plot() {
    let report = simulated_report::report(&scenario(), &outcome(), "tidegate-lab sim web.toml");
    golden("simulated.txt", &report.to_text());
    let html = report.to_html();
    assert!(html.contains("a &lt;made-up&gt; run") && html.matches("<svg").count() == 1);
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("JSON");
    assert_eq!(json["scenario"]["name"], "web");
    assert_eq!(json["machine"]["command"], "tidegate-lab sim web.toml");
    let row = &report.tables[0].rows[0];
    assert_eq!(row[..2], ["requests.latency", "cgroup"]);
    let of_batch = |row: &&serde_json::Map<String, serde_json::Value>| {
        row["part"] == "group" && row["group"] == "batch"
    };
    let batch: Vec<_> = report.rows.iter().filter(of_batch).collect();
    assert_eq!((report.rows.len(), batch.len()), (6, 1));
    assert_eq!(
        (&batch[0]["used_cpus"], &batch[0]["throttled_periods"]),
        (&0.4.into(), &40.0.into())
    );
}
