use std::collections::BTreeMap;

use tidegate_recording::{Machine, Work};

use super::*;

#[test]
fn a_group_lies_in_those_above_it_alone() {
    assert!(is_within("/a/b/c", "/a/b") && is_within("/a/b", "/a/"));
    for around in ["/a/b", "/a/bc", "/", "", "/b"] {
        assert!(!is_within("/a/b", around), "{around}");
    }
    let groups = ["/a", "/a/b", "", "/a/bc"];
    assert_eq!(nearest_around(&groups, "/a/b/c"), Some(1));
    assert_eq!(nearest_around(&groups, "/x"), None);
}

fn one(id: u32, used_cpus: f32) -> WorkSecond {
    WorkSecond {
        id,
        used_cpus,
        ..WorkSecond::default()
    }
}

fn recording(works: &[(&str, &str)], seconds: Vec<Second>) -> Recording {
    let work = |(id, (cgroup, class)): (usize, &(&str, &str))| {
        let work = Work {
            id: id as u32,
            name: (*cgroup).to_owned(),
            is_gate: *class != "neutral",
            class: (*class).to_owned(),
            cgroup: (*cgroup).to_owned(),
            ..Work::default()
        };
        (id as u32, work)
    };
    Recording {
        machine: Machine {
            cpus: 4,
            ..Machine::default()
        },
        works: works
            .iter()
            .enumerate()
            .map(work)
            .collect::<BTreeMap<_, _>>(),
        seconds,
        ..Recording::default()
    }
}

#[test]
fn what_works_within_a_work_used_counts_once_and_the_rest_is_everything_else() {
    let second = Second {
        main_cpus: 1.0,
        idle_cpus: 3.0,
        works: vec![one(0, 0.6), one(1, 0.2)],
        ..Second::default()
    };
    let recording = recording(&[("/a", "main"), ("/a/b", "neutral")], vec![second; 3]);
    let demand = Demand::of(&recording);
    let own: Vec<f64> = demand
        .works
        .iter()
        .map(|work| mean(&work.own_cpus))
        .collect();
    for (own, expected) in own.iter().zip([0.4, 0.2, 0.4]) {
        assert!((own - expected).abs() < 1e-6, "{own} is not {expected}");
    }
    assert_eq!(demand.works[2].name, EVERYTHING_ELSE);
}

#[test]
fn a_work_that_filled_the_machine_wants_more_and_a_small_one_does_not() {
    let second = |idle_cpus: f32, hog_cpus: f32| Second {
        main_cpus: 4.0 - idle_cpus,
        idle_cpus,
        works: vec![one(0, 0.3), one(1, hog_cpus), one(2, 0.9)],
        ..Second::default()
    };
    let works = [("/small", "neutral"), ("/hog", "neutral"), ("/web", "main")];
    let wants = |seconds: Vec<Second>| {
        let demand = Demand::of(&recording(&works, seconds));
        demand
            .works
            .into_iter()
            .map(|work| work.wants)
            .collect::<Vec<_>>()
    };
    let full = wants(vec![second(0.0, 2.8); 5]);
    let used = Wants::Used {
        request_us: REQUEST_US,
    };
    assert_eq!((&full[0], &full[2]), (&used, &used));
    let more = Wants::More {
        tasks: 4,
        spans: vec![(0, 5)],
        pause_us: 0.0,
        request_us: REQUEST_US,
    };
    assert_eq!(full[1], more);
    assert_eq!(wants(vec![second(1.0, 1.8); 5])[1], used);
    // A pause ends a span, a short one does not.
    let mut seconds = vec![second(0.0, 2.8); 40];
    for nth in (5..8).chain(20..35) {
        seconds[nth].works.retain(|one| one.id != 1);
    }
    let Wants::More { spans, .. } = &wants(seconds)[1] else {
        panic!("no more is wanted");
    };
    assert_eq!(*spans, [(0, 20), (35, 40)]);
    // Where the machine was not full, it wanted what it used; a moment in which it was is a burst.
    let mut seconds = vec![second(0.0, 2.8); 40];
    seconds[10..30].fill(second(1.0, 1.8));
    seconds[20..22].fill(second(0.0, 2.8));
    let works = Demand::of(&recording(&works, seconds)).works;
    let Wants::More { spans, .. } = &works[1].wants else {
        panic!("no more is wanted");
    };
    assert_eq!(*spans, [(0, 10), (30, 40)]);
    let (cpus, _) = works[1].requests();
    assert_eq!((cpus[5], cpus[15] as f32, cpus[35]), (0.0, 1.8, 0.0));
}

#[test]
fn gates_at_a_tolerance_that_they_share_want_more() {
    let second = Second {
        main_cpus: 2.0,
        idle_cpus: 1.9,
        works: [0, 1]
            .map(|id| WorkSecond {
                allowance_cpus: Some(0.1),
                limit: Binding::Tolerance,
                ..one(id, 0.05)
            })
            .to_vec(),
        ..Second::default()
    };
    let works = [("/a", "side"), ("/b", "side")];
    let demand = Demand::of(&recording(&works, vec![second; 5]));
    for work in &demand.works[..2] {
        assert!(matches!(work.wants, Wants::More { .. }), "{work:?}");
    }
}

#[test]
fn a_work_that_left_a_little_idle_pauses_for_itself() {
    let second = |used_cpus: f32, idle_cpus: f32| Second {
        main_cpus: 4.0 - idle_cpus,
        idle_cpus,
        works: vec![WorkSecond {
            processes: 4,
            ..one(0, used_cpus)
        }],
        ..Second::default()
    };
    let pause_us = |used_cpus, idle_cpus| {
        let seconds = vec![second(used_cpus, idle_cpus); 5];
        let demand = Demand::of(&recording(&[("/encode", "neutral")], seconds));
        match demand.works[0].wants {
            Wants::More { pause_us, .. } => pause_us,
            Wants::Used { .. } => panic!("no more is wanted"),
        }
    };
    assert_eq!(pause_us(3.0, 0.0), 0.0);
    // 0.8 of a CPU each where 0.85 were to be had: 10 ms / 0.8 less 10 ms / 0.85.
    assert!((pause_us(3.2, 0.2) - 735.3).abs() < 1.0);
}
