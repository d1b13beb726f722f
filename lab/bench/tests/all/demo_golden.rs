//! The demonstration's screen and pictures, over made-up figures. `TIDEGATE_BLESS=1` rewrites the expected files.

use std::path::{Path, PathBuf};

use crate::support::golden;
use tidegate_lab::beds::host::machine::Machine;
use tidegate_lab::beds::{Bed, Simulated};
use tidegate_lab::demo::{Comparison, Way, Window, picture, screen};

fn windows(rounds: u32, ways: &[(Way, f64, f64, f64)]) -> Vec<Window> {
    let round = |round| {
        ways.iter().map(move |(way, p50, p99, work)| Window {
            way: *way,
            round,
            p50_ms: Some(p50 + f64::from(round) / 100.0),
            p99_ms: Some(p99 + f64::from(round) / 10.0),
            side_work: *work,
        })
    };
    (0..rounds).flat_map(round).collect()
}

fn measured(ways: &[(Way, f64, f64, f64)]) -> Comparison {
    let machine = Machine {
        kernel: "6.18.0-test".into(),
        cpus: 2,
        model: "Test CPU".into(),
        cgroup: Some(1),
        steal_pct: 0.25,
        ..Machine::default()
    };
    Comparison {
        bed: Bed::Host(machine),
        main: "the built-in server".into(),
        side: "ffmpeg".into(),
        side_unit: "frames/s",
        windows: windows(3, ways),
        missing: Vec::new(),
        headroom: "Here Tidegate was asked for no headroom: side work is in the idle class, without a quota.".into(),
        others_pct: 3.0,
        command: "tidegate lab demo".into(),
    }
}

fn simulated() -> Comparison {
    let bed = Simulated {
        cpus: vec![64],
        threads_per_core: 2,
        scheduler: "EEVDF".into(),
        seed: 1,
        ..Simulated::default()
    };
    let ways = [
        (Way::Alone, 1.1, 2.0, 0.0),
        (Way::AsStarted, 3.0, 40.0, 30.0),
        (Way::CpuIdle, 1.9, 5.0, 28.0),
        (Way::Tidegate, 1.2, 2.2, 20.0),
    ];
    Comparison {
        bed: Bed::Sim(bed),
        main: "a server".into(),
        side: "hogs".into(),
        side_unit: "CPUs",
        windows: windows(1, &ways),
        missing: Vec::new(),
        headroom: "There Tidegate was asked for 30 % of headroom.".into(),
        others_pct: 0.0,
        command: "tidegate lab demo --seed 1".into(),
    }
}

fn shown(host: Comparison) -> String {
    let pictures = ["out/demo.svg", "out/demo-sim.svg"].map(PathBuf::from);
    let pages = ["out/demo.html", "out/demo-sim.html"].map(Path::new);
    screen::render(&[host, simulated()], &pictures, &pages)
}

#[test]
fn everything_measured_is_one_screen() {
    let text = shown(measured(&[
        (Way::Alone, 1.0, 3.0, 0.0),
        (Way::AsStarted, 2.0, 12.0, 60.0),
        (Way::CpuIdle, 1.1, 4.0, 57.0),
        (Way::Tidegate, 1.1, 3.9, 39.0),
    ]));
    golden("demo.txt", &text);
    assert!(text.lines().count() <= 32, "{text}");
    assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
}

#[test]
fn what_a_user_without_groups_cannot_measure_is_named() {
    let mut host = measured(&[
        (Way::Alone, 1.0, 3.0, 0.0),
        (Way::AsStarted, 2.0, 12.0, 60.0),
    ]);
    host.missing = vec!["Not measured, the arms that need groups: no rights; run as root.".into()];
    golden("demo-user.txt", &shown(host));
}

#[test]
fn a_busy_machine_says_so() {
    let mut host = measured(&[
        (Way::Alone, 1.0, 3.0, 0.0),
        (Way::AsStarted, 2.0, 12.0, 60.0),
    ]);
    assert!(!shown(host.clone()).contains("Other programs"));
    host.others_pct = 40.0;
    assert!(shown(host).contains("Other programs took 40 % of the machine"));
}

#[test]
fn a_main_that_completes_nothing_gives_no_ratio() {
    let mut host = measured(&[
        (Way::Alone, 1.0, 3.0, 0.0),
        (Way::AsStarted, 2.0, 12.0, 60.0),
    ]);
    for window in &mut host.windows {
        if window.way == Way::AsStarted {
            (window.p50_ms, window.p99_ms) = (None, None);
        }
    }
    assert_eq!(host.p99_ratio(Way::AsStarted), None);
    let text = shown(host.clone());
    assert!(text.contains("no request done"), "{text}");
    assert!(!text.contains("inf"), "{text}");
    host.windows.clear();
    assert!(shown(host).contains("cannot be compared"));
}

#[test]
fn the_picture_has_every_bar_its_machine_and_its_command() {
    let mut host = measured(&[
        (Way::Alone, 1.0, 3.0, 0.0),
        (Way::AsStarted, 2.0, 12.0, 60.0),
    ]);
    host.side = "a <b> & c".into();
    let svg = picture::draw(&host);
    for words in [
        "12.1",
        "60.0 (100 %)",
        "not measured",
        "2 CPUs (Test CPU)",
        "tidegate lab demo",
        "a &lt;b&gt; &amp; c",
        "median of 3 rounds",
    ] {
        assert!(svg.contains(words), "{words} is not in {svg}");
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    golden("demo-sim.svg", &picture::draw(&simulated()));
}
