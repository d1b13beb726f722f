use std::collections::BTreeMap;

use tidegate_recording::{Event, Machine};

use super::*;

/// Ten minutes from 1970-01-02 03:00:00 UTC, of which the fifth is missing: side work ran from the
/// third on.
fn playback() -> Playback {
    let began_s = (24 + 3) * 3_600;
    let encode = Work {
        name: "encode".to_owned(),
        is_gate: true,
        class: "side".to_owned(),
        terms: vec![("weight".into(), "50".into(), "set".into())],
        ..Work::default()
    };
    let second = |nth: u64| Second {
        unix_ms: (began_s + nth) * 1_000,
        capacity_cpus: 2.0,
        main_cpus: 0.5,
        side_cpus: if nth < 180 { 0.0 } else { 1.0 },
        allowance_cpus: 1.1,
        main_turns: 100,
        main_wait_us: 5_000,
        works: match nth {
            0..180 => Vec::new(),
            _ => vec![WorkSecond {
                used_cpus: 1.0,
                allowance_cpus: Some(1.1),
                limit: Limit::Headroom,
                throttled_us: 100_000,
                ..WorkSecond::default()
            }],
        },
        ..Second::default()
    };
    let seconds = (0..600).filter(|nth| !(240..300).contains(nth));
    Playback::new(Recording {
        machine: Machine {
            cpus: 2,
            ..Machine::default()
        },
        works: BTreeMap::from([(0, encode)]),
        seconds: seconds.map(second).collect(),
        events: vec![Event {
            unix_ms: (began_s + 200) * 1_000,
            kind: "objective.missed".into(),
            ..Event::default()
        }],
        ..Recording::default()
    })
}

fn at(playback: &Playback) -> u64 {
    playback.unix_s() - (24 + 3) * 3_600
}

#[test]
fn steps_go_over_a_pause_and_end_at_the_ends() {
    let mut playback = playback();
    assert_eq!(at(&playback), 599);
    let mut go = |to, expected: u64| {
        playback.go(to).unwrap();
        assert_eq!(at(&playback), expected, "{to:?}");
    };
    go(Move::By(1), 599);
    go(Move::By(-60), 539);
    go(Move::By(-239), 300);
    go(Move::By(-1), 239);
    go(Move::By(1), 300);
    go(Move::By(-1_000), 0);
    go(Move::By(-1), 0);
    go(Move::By(2), 2);
}

#[test]
fn it_plays_at_its_speed_and_stops_at_the_end() {
    let mut playback = playback();
    playback.go(Move::Play).unwrap();
    assert_eq!(at(&playback), 0, "from the beginning");
    (0..3).for_each(|_| playback.go(Move::Speed(1)).unwrap());
    assert!(playback.tick());
    assert_eq!(at(&playback), 10);
    while playback.tick() {}
    assert_eq!(at(&playback), 599);
    assert!(!playback.is_playing);
}

#[test]
fn a_time_of_the_day_is_found_or_refused_with_those_there_are() {
    let mut playback = playback();
    let there = second_of_the_day(playback.recording.seconds[10].unix_ms / 1_000);
    playback.go(Move::To(there)).unwrap();
    assert_eq!(at(&playback), 10);
    let why = playback.go(Move::To((there + 7_200) % 86_400)).unwrap_err();
    assert!(why.contains("write a time from"), "{why}");
    assert_eq!(at(&playback), 10);
    assert_eq!(time_of_day("03:04"), Some(3 * 3_600 + 240));
    assert_eq!(time_of_day(" 23:59:59"), Some(86_399));
    for wrong in ["", "24:00", "3", "03:60", "03:00:60", "a:b"] {
        assert_eq!(time_of_day(wrong), None, "{wrong}");
    }
}

#[test]
fn it_says_what_an_agent_would_have_said_then() {
    let mut playback = playback();
    playback.go(Move::By(-1_000)).unwrap();
    assert!(playback.status().gates.is_empty());
    assert!(
        playback
            .explain("encode")
            .unwrap_err()
            .contains("used no CPU")
    );
    playback.go(Move::By(190)).unwrap();
    let status = playback.status();
    assert_eq!(status.gates[0].name, "encode");
    assert_eq!(status.gates[0].held.limit, Limit::Headroom);
    assert!((status.gates[0].throttled_seconds - 1.1).abs() < 1e-9);
    assert!(
        status
            .decision
            .sentence
            .contains("waited 50 us in the mean"),
        "{}",
        status.decision.sentence
    );
    let events = |playback: &Playback| match &playback.news()[1] {
        News::Events(events) => events.len(),
        _ => 0,
    };
    assert_eq!(events(&playback), 0);
    playback.go(Move::By(60)).unwrap();
    assert_eq!(events(&playback), 1);
    assert!(
        playback
            .explain("encode")
            .unwrap()
            .summary
            .contains("1.00 CPUs of the 1.10")
    );
}
