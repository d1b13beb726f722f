//! Every simulated experiment in its quick form: it runs without privilege, is the same to the byte
//! from one seed on any number of threads, and its figures have the structure that the mechanisms
//! give them. Simulated time does not depend on this machine, so figures may be asserted; the
//! bounds are the mechanisms' own, not what one run happened to give.

use serde_json::Value;
use tidegate_lab::experiments::{BURST, CAPS, HEADROOM, LATENCY, LAW, SLICES, STEP};
use tidegate_lab::{Experiment, Headline, LabOptions, On, Report};

fn options(experiment: &'static Experiment) -> LabOptions {
    let mut options = LabOptions::new(experiment);
    options.on = On::Sim;
    options.quick = true;
    options.quiet = true;
    options
}

/// The report and the folder that it was written into, which goes when dropped.
fn run(options: &LabOptions) -> (Report, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    let mut options = options.clone();
    options.out = Some(dir.path().to_path_buf());
    let report = tidegate_lab::run(&options).unwrap_or_else(|e| panic!("{e}"));
    (report, dir)
}

fn bytes(report: &Report) -> Vec<Vec<u8>> {
    let read = |p: &std::path::PathBuf| std::fs::read(p).expect("a file of the report");
    report.files().iter().map(read).collect()
}

fn complete(report: &Report, experiment: &Experiment) {
    assert_eq!((report.on, report.experiment), ("sim", experiment.name));
    assert!(!report.rows.is_empty() && !report.tables.is_empty() && !report.plots.is_empty());
    for h in &report.headline {
        assert!(!h.value.is_nan(), "{}: nothing was measured", h.name);
    }
    let notes = report.notes.join(" ");
    for word in ["Mechanism:", "The model's:"] {
        assert!(
            notes.contains(word),
            "{}: {word} is missing",
            report.experiment
        );
    }
    let json: Value = serde_json::from_str(&report.to_json()).expect("JSON");
    let again = json["machine"]["command"].as_str().expect("a command");
    assert!(again.starts_with("tidegate-lab "), "{again}");
}

/// Rows for which every named field has the given value.
fn rows<'a>(
    report: &'a Report,
    fields: &[(&str, Value)],
) -> Vec<&'a serde_json::Map<String, Value>> {
    let found: Vec<_> = report
        .rows
        .iter()
        .filter(|r| {
            fields
                .iter()
                .all(|(name, value)| r.get(*name) == Some(value))
        })
        .collect();
    assert!(!found.is_empty(), "no row with {fields:?}");
    found
}

fn number(row: &serde_json::Map<String, Value>, name: &str) -> f64 {
    row[name]
        .as_f64()
        .unwrap_or_else(|| panic!("{name}: {:?}", row[name]))
}

#[test]
fn one_seed_is_one_report_on_any_number_of_threads_and_another_is_another() {
    for experiment in [&BURST, &STEP, &CAPS] {
        let mut o = options(experiment);
        o.rounds = Some(1);
        o.jobs = Some(1);
        let (one, _dir) = run(&o);
        o.jobs = Some(2);
        let (two, _dir) = run(&o);
        assert!(bytes(&one) == bytes(&two), "{}", experiment.name);
        if experiment.name != "caps" {
            // Caps have nothing random but names.
            o.seed = 2;
            let (other, _dir) = run(&o);
            assert!(one.rows != other.rows, "{}", experiment.name);
        }
    }
}

#[test]
fn slices_that_stay_give_the_quota_to_who_works() {
    let (report, _dir) = run(&options(&SLICES));
    complete(&report, &SLICES);
    let of = |arm: &str| {
        let fields = [("arm", arm.into()), ("slice_us", 5000.into())];
        number(rows(&report, &fields)[0], "busy_thread_cpus")
    };
    assert!(
        of("stay") > 5.0 * of("expire"),
        "{} and {}",
        of("stay"),
        of("expire")
    );
    for row in &report.rows {
        assert!(number(row, "used_of_quota_ratio") <= 1.1);
    }
}

#[test]
fn burst_carries_over_and_the_mean_stays_below_the_quota() {
    let (report, _dir) = run(&options(&BURST));
    complete(&report, &BURST);
    let of = |arm: &str, what: &str| number(rows(&report, &[("arm", arm.into())])[0], what);
    for burst in ["burst_fixed", "tidegate_max"] {
        for what in ["request_p99_us", "throttled_periods_ratio"] {
            assert!(of("quota", what) > of(burst, what), "{burst}: {what}");
        }
    }
    for arm in ["quota", "burst_fixed", "tidegate_max"] {
        assert!(of(arm, "used_of_quota_ratio") <= 1.0, "{arm}");
    }
}

#[test]
fn a_hint_moves_latency_and_not_shares() {
    let (report, _dir) = run(&options(&LATENCY));
    complete(&report, &LATENCY);
    let of = |arm: &str| {
        let fields = [
            ("part", "cyclictest".into()),
            ("arm", arm.into()),
            ("beside", "hackbench".into()),
        ];
        number(rows(&report, &fields)[0], "p99_us")
    };
    assert!(of("eevdf_hint") <= of("eevdf"));
    for row in rows(&report, &[("part", "fairness".into())]) {
        assert!(number(row, "worst_share_off_ratio") <= 0.01, "{row:?}");
    }
}

#[test]
fn caps_hold_and_a_storm_does_not_multiply_a_groups() {
    let (report, _dir) = run(&options(&CAPS));
    complete(&report, &CAPS);
    for row in rows(
        &report,
        &[("part", "hard".into()), ("arm", "tidegate".into())],
    ) {
        let (cap, used) = (number(row, "cap_cpus"), number(row, "used_cpus"));
        assert!(used <= 1.01 * cap + 0.001, "{row:?}");
    }
    let forks = [
        ("load", "forks".into()),
        ("cap_cpus", 0.1.into()),
        ("arm", "tidegate".into()),
    ];
    assert!(
        number(rows(&report, &forks)[0], "used_cpus") > 0.09,
        "a storm is not starved"
    );
    let unused = rows(
        &report,
        &[("part", "build".into()), ("arm", "unused".into())],
    );
    let none = rows(&report, &[("part", "build".into()), ("arm", "none".into())]);
    let seconds = |rows: &[&serde_json::Map<String, Value>]| number(rows[0], "elapsed_seconds");
    assert!((seconds(&unused) / seconds(&none) - 1.0).abs() < 0.01);
}

#[test]
fn the_table_of_the_patches_comes_out_on_any_machine() {
    let mut o = options(&LAW);
    o.cpus = Some(vec![2, 16]);
    let (report, _dir) = run(&o);
    complete(&report, &LAW);
    // What Poisson arrivals and a square wave do to the worst second is a finding, not a rule.
    let is_rule = |h: &&Headline| !h.name.contains("varying main");
    are_met(report.headline.iter().filter(is_rule));
    for row in rows(&report, &[("part", "constant".into())]) {
        assert!(number(row, "off_ratio").abs() <= 0.01, "{row:?}");
        assert!(number(row, "writes_per_second") <= 2.0, "{row:?}");
    }
}

fn are_met<'a>(headline: impl Iterator<Item = &'a Headline>) {
    let mut judged = 0;
    for h in headline.filter(|h| h.target.is_some()) {
        assert_eq!(h.met, Some(true), "{}: {}", h.name, h.value);
        judged += 1;
    }
    assert!(judged > 0, "no target was judged");
}

#[test]
fn side_gives_way_sooner_than_under_published_laws() {
    let mut o = options(&STEP);
    o.cpus = Some(vec![2, 16]);
    let (report, _dir) = run(&o);
    complete(&report, &STEP);
    are_met(report.headline.iter());
    let worst = |arm: &str| {
        let steps = rows(&report, &[("arm", arm.into())]);
        let settled = steps
            .iter()
            .map(|r| r["settle_us"].as_f64().unwrap_or(f64::INFINITY));
        settled.fold(0.0, f64::max)
    };
    for ours in ["tidegate_30_bpf", "tidegate_30_usage"] {
        for theirs in ["sideloader", "koordlet", "katalyst"] {
            assert!(worst(ours) < worst(theirs), "{ours} against {theirs}");
        }
    }
}

#[test]
fn headroom_protects_main_better_than_the_lowest_weight() {
    let (report, _dir) = run(&options(&HEADROOM));
    complete(&report, &HEADROOM);
    let of = |arm: &str, what: &str| {
        let fields = [
            ("part", "loads".into()),
            ("arm", arm.into()),
            ("load", 1.4.into()),
        ];
        number(rows(&report, &fields)[0], what)
    };
    assert!(of("tidegate_30", "avg_us") < of("weight_1", "avg_us"));
    assert!(of("tidegate_30", "idle_ratio") > 0.25 && of("tidegate_30", "side_ratio") > 0.1);
    assert!(of("cpu_idle", "idle_ratio") < 0.05);
}

#[test]
fn an_experiment_that_does_not_run_there_says_where_it_does() {
    for (experiment, on, remedy) in [
        (&STEP, On::Vm, "give --on host or --on sim"),
        (&SLICES, On::Host, "give --on sim"),
    ] {
        let mut o = options(experiment);
        o.on = on;
        let message = tidegate_lab::run(&o).expect_err("refused").to_string();
        assert!(message.ends_with(remedy), "{message}");
    }
}
