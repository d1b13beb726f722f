//! Every simulated experiment in its quick form: it runs without privilege, is the same to the byte
//! from one seed on any number of threads, and its figures have the structure that the mechanisms give
//! them. Simulated time does not depend on this machine, so figures may be asserted; the bounds are the
//! mechanisms' own, not what one run happened to give.

use serde_json::Value;
use tidegate_lab::{Engine, Experiment, Headline, LabOptions, On, Report};

fn options(experiment: Experiment) -> LabOptions {
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

/// What every report owes its readers.
fn complete(report: &Report, experiment: Experiment) {
    assert_eq!((report.on, report.experiment), ("sim", experiment.name()));
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
    assert!(again.starts_with("tidegate lab "), "{again}");
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
    for experiment in [Experiment::Burst, Experiment::Step, Experiment::Caps] {
        let mut o = options(experiment);
        o.rounds = Some(1);
        o.jobs = Some(1);
        let (one, _dir) = run(&o);
        o.jobs = Some(2);
        let (two, _dir) = run(&o);
        assert!(bytes(&one) == bytes(&two), "{}", experiment.name());
        if experiment != Experiment::Caps {
            // Caps have nothing random but names.
            o.seed = 2;
            let (other, _dir) = run(&o);
            assert!(one.to_csv() != other.to_csv(), "{}", experiment.name());
        }
    }
}

#[test]
fn slices_that_stay_give_the_quota_to_who_works() {
    let (report, _dir) = run(&options(Experiment::Slices));
    complete(&report, Experiment::Slices);
    let of = |expire: bool| {
        let fields = [("slices_expire", expire.into()), ("slice_us", 5000.into())];
        number(rows(&report, &fields)[0], "busy_thread_ms_per_s")
    };
    assert!(of(false) > 5.0 * of(true), "{} and {}", of(false), of(true));
    for row in &report.rows {
        assert!(number(row, "used_pct_of_quota") <= 110.0);
    }
}

#[test]
fn burst_carries_over_and_the_mean_stays_below_the_quota() {
    let (report, _dir) = run(&options(Experiment::Burst));
    complete(&report, Experiment::Burst);
    let of = |arm: &str, what: &str| number(rows(&report, &[("arm", arm.into())])[0], what);
    assert!(of("burst_0", "periods_asking_over_pct") > 0.0);
    assert!(of("burst_0", "request_p99_us") > of("burst_400", "request_p99_us"));
    assert!(of("burst_0", "throttled_periods_pct") > of("burst_400", "throttled_periods_pct"));
    assert!(of("auto", "request_p99_us") < of("burst_0", "request_p99_us"));
    for arm in ["burst_0", "burst_400", "auto"] {
        assert!(of(arm, "used_pct_of_quota") <= 100.0, "{arm}");
    }
}

#[test]
fn an_objective_finds_the_headroom_where_side_work_is_the_cause() {
    let (report, _dir) = run(&options(Experiment::Objective));
    complete(&report, Experiment::Objective);
    let of = |load: &str, arm: &str, what: &str| {
        let fields = [("load", load.into()), ("arm", arm.into())];
        number(rows(&report, &fields)[0], what)
    };
    for load in ["middle", "stairs"] {
        assert!(of(load, "headroom_20", "late_pct") > 2.0);
        assert!(of(load, "objective_0", "late_pct") < 1.0);
        let (found, asked) = (
            of(load, "objective_0", "latency_p99_us"),
            of(load, "headroom_20", "latency_p99_us"),
        );
        assert!(found < 0.8 * asked, "{load}: {found} and {asked}");
    }
    assert!(of("low", "objective_0", "late_pct") < 1.1);
    // Main waits for itself: side work keeps what it had.
    for load in ["high", "bursts"] {
        let side = |arm| of(load, arm, "side_work_cpus");
        assert!(side("objective_20") > 0.85 * side("headroom_20"), "{load}");
    }
}

#[test]
fn a_moving_quota_bounds_the_wait_for_a_lock_of_side_work() {
    let (report, _dir) = run(&options(Experiment::Inversion));
    complete(&report, Experiment::Inversion);
    let worst = |arm: &str, busy: u32| {
        let fields = [("arm", arm.into()), ("main_busy_pct", busy.into())];
        number(rows(&report, &fields)[0], "wait_max_us")
    };
    // 1 % of four CPUs is 1 ms in 25: the lock's 2 ms beside three hogs take eight periods at most.
    assert!(worst("knobs", 75) < 200_000.0, "{}", worst("knobs", 75));
    assert!(worst("standing", 75) > 2.0 * worst("knobs", 75));
}

#[test]
fn a_hint_moves_latency_and_not_shares() {
    let (report, _dir) = run(&options(Experiment::Latency));
    complete(&report, Experiment::Latency);
    let of = |class: &str, hint: i32| {
        let fields = [
            ("part", "cyclictest".into()),
            ("class", class.into()),
            ("hint", hint.into()),
            ("beside_hackbench", true.into()),
        ];
        number(rows(&report, &fields)[0], "p99_us")
    };
    for class in ["cfs_patched", "eevdf", "ext"] {
        assert!(of(class, -20) <= of(class, 0), "{class}");
    }
    for row in rows(&report, &[("part", "fairness".into())]) {
        if row["class"] != "cfs" && row["class"] != "cfs_patched" {
            assert!(number(row, "worst_share_off_pct") <= 1.0, "{row:?}");
        }
    }
}

#[test]
fn caps_hold_and_a_storm_does_not_multiply_a_groups() {
    let (report, _dir) = run(&options(Experiment::Caps));
    complete(&report, Experiment::Caps);
    for row in rows(
        &report,
        &[("kind", "continuous".into()), ("engine", "ext".into())],
    ) {
        let (cap, used) = (number(row, "cap_ppt"), number(row, "used_ppt"));
        assert!(used <= cap + 1.0, "{row:?}");
    }
    let storm = |scope: &str| {
        let fields = [
            ("kind", "storm".into()),
            ("engine", "ext".into()),
            ("scope", scope.into()),
        ];
        number(rows(&report, &fields)[0], "used_ppt")
    };
    assert!(storm("group") <= 105.0, "{}", storm("group"));
    assert!(storm("task") > 2.0 * storm("group"), "{}", storm("task"));
    let named = |h: &&Headline| h.name.starts_with("a build with caps that never bind");
    let longer = report.headline.iter().find(named).expect("a build").value;
    // Their buckets begin at zero, which a cap that is off would not show: the build takes another course, and no longer.
    assert!(longer != 0.0 && longer.abs() < 1.0, "{longer}");
}

#[test]
fn idle_is_kept_at_every_level_of_main() {
    let (report, _dir) = run(&options(Experiment::Law));
    complete(&report, Experiment::Law);
    for row in rows(&report, &[("kind", "constant".into())]) {
        let off = number(row, "idle_pct") - number(row, "due_idle_pct");
        assert!(off.abs() <= 3.0, "{row:?}");
        assert!(number(row, "side_pct") > 0.5, "side work starves: {row:?}");
    }
}

#[test]
fn side_gives_way_sooner_than_under_published_laws() {
    let (report, _dir) = run(&options(Experiment::Step));
    complete(&report, Experiment::Step);
    let worst = |controller: &str| {
        let steps = rows(&report, &[("controller", controller.into())]);
        let settled = steps
            .iter()
            .map(|r| r["settle_ms"].as_f64().unwrap_or(f64::INFINITY));
        settled.fold(0.0, f64::max)
    };
    for ours in ["ext", "knobs", "knobs_usage"] {
        for theirs in ["sideloader", "koordlet", "katalyst"] {
            assert!(worst(ours) < worst(theirs), "{ours} against {theirs}");
        }
    }
}

#[test]
fn headroom_protects_main_better_than_the_lowest_weight() {
    let mut o = options(Experiment::Headroom);
    o.loads = Some(vec![1.0, 1.4]);
    let (report, _dir) = run(&o);
    complete(&report, Experiment::Headroom);
    let of = |arm: &str, what: &str| {
        let fields = [
            ("arm", arm.into()),
            ("load", 1.4.into()),
            ("contention", "as shipped".into()),
        ];
        number(rows(&report, &fields)[0], what)
    };
    for arm in ["knobs_30", "ext_30"] {
        assert!(of(arm, "avg_us") < of("weight_1", "avg_us"), "{arm}");
        assert!(of(arm, "idle_pct") > 25.0, "{arm}");
        assert!(of(arm, "side_pct") > 10.0, "{arm}");
    }
    assert!(of("cpu_idle", "idle_pct") < 5.0);
}

#[test]
fn what_the_host_cannot_do_is_said() {
    let (knobs, ext) = (Engine::Knobs, Engine::Ext);
    for (experiment, on, engine, mend) in [
        (Experiment::Objective, On::Host, knobs, "give --on sim"),
        (
            Experiment::Headroom,
            On::Vm,
            knobs,
            "give --on host or --on sim or --on vm --engine ext",
        ),
        (
            Experiment::Law,
            On::Sim,
            ext,
            "simulated reports have both engines in them; give --on host or --on vm or --on sim",
        ),
    ] {
        let mut o = options(experiment);
        (o.on, o.engine) = (on, engine);
        let message = tidegate_lab::run(&o).expect_err("refused").to_string();
        assert!(message.ends_with(mend), "{message}");
    }
    let mut o = options(Experiment::Headroom);
    o.main_cmd = Some("true".into());
    assert!(tidegate_lab::run(&o).is_err());
}
