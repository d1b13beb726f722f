//! `headroom = auto` in the agent: what is written, what the scheduler is told, and what is shown.

use std::sync::atomic::Ordering;

use tidegate_cgroup::KernelFs;

use super::steps::{Knob, steps};
use super::{Bed, Kind, PIDS, run_side};
use crate::agent::Agent;
use crate::ext::plan::ext_machine;
use crate::runtime::found_headroom;

fn bed_with_side_work(main_ppm: u64, tells_waits: bool) -> (Bed, Agent, Knob) {
    let bed = Bed::new(Kind::V2);
    bed.sensor.main_ppm.store(main_ppm, Ordering::Relaxed);
    bed.sensor.waits.store(tells_waits, Ordering::Relaxed);
    let agent = bed.agent().unwrap();
    run_side(&agent, PIDS[0]).unwrap();
    (bed, agent, Knob::default())
}

fn state(agent: &Agent) -> (String, f64) {
    let harm = agent.status().harm.unwrap();
    (harm.state, harm.level_pct)
}

const SECOND: u32 = 200;
/// 60 % of headroom and main leave 200,000 of two CPUs; the headroom law adds to that what side work does not use.
const LOW_UCPU: u64 = 300_000;

#[test]
fn side_work_that_does_no_harm_has_no_quota_in_the_end() {
    let (bed, agent, mut knob) = bed_with_side_work(300_000, true);
    let (mut low, mut steps_low) = (0_u32, 0_u32);
    for _ in 0..60 * SECOND {
        steps(&bed, &agent, &mut knob, 1);
        let holds = agent.runtime.control().compared_ppm().is_some();
        assert_eq!(
            ext_machine(&agent.runtime.control_loop),
            (if holds { 600_000 } else { 0 }, 10_000),
            "what the scheduler of ext is told"
        );
        if holds {
            steps_low += 1;
            // A write within 10 ms of another waits.
            low = if knob.ucpu() <= LOW_UCPU { 0 } else { low + 1 };
            assert!(low <= 3, "{} in LOW", knob.ucpu());
        }
    }
    assert!(
        steps_low > 10 * SECOND / 2,
        "half of some seconds: {steps_low}"
    );
    assert_eq!(state(&agent), ("known".to_owned(), 0.0));
    assert!(knob.ucpu() >= 2_000_000, "no quota: {}", knob.ucpu());
    let status = agent.status();
    assert_eq!(
        (status.headroom_pct, status.headroom_from.as_str()),
        (0.0, "auto")
    );
    let sentence = status.harm.unwrap().sentence;
    assert!(
        sentence.starts_with("side work costs main 0.0 % ("),
        "{sentence}"
    );
    let shown = agent.explain(&status.gates[0].name);
    let notes = shown.unwrap().gate.notes;
    assert!(
        notes.contains(&format!("headroom = auto: {sentence}")),
        "{notes:?}"
    );
}

#[test]
fn a_hog_alone_is_not_throttled() {
    let (bed, agent, mut knob) = bed_with_side_work(0, true);
    steps(&bed, &agent, &mut knob, SECOND);
    for _ in 0..60 * SECOND {
        steps(&bed, &agent, &mut knob, 1);
        assert!(knob.ucpu() >= 2_000_000, "{}", knob.ucpu());
    }
    assert_eq!(state(&agent), ("no main work".to_owned(), 0.0));
}

#[test]
fn a_sensor_without_waits_means_the_default() {
    let (bed, agent, mut knob) = bed_with_side_work(300_000, false);
    steps(&bed, &agent, &mut knob, 5 * SECOND);
    assert_eq!(state(&agent), ("unknown".to_owned(), 20.0));
    assert_eq!(agent.status().headroom_pct, 20.0);
    assert!(
        (900_000..1_010_000).contains(&knob.ucpu()),
        "{}",
        knob.ucpu()
    );
}

#[test]
fn the_next_agent_begins_at_the_headroom_that_was_found() {
    let (bed, agent, mut knob) = bed_with_side_work(300_000, true);
    agent.runtime.control().begin_headroom_at(20);
    let mut written = None;
    // Nothing is known yet.
    found_headroom::keep(&agent.runtime, &mut written);
    assert_eq!(written, None);
    agent.runtime.control().begin_headroom_at(0);
    steps(&bed, &agent, &mut knob, 60 * SECOND);
    assert_eq!(state(&agent), ("known".to_owned(), 0.0));
    found_headroom::keep(&agent.runtime, &mut written);
    let file = bed.run_dir().found_headroom();
    assert_eq!(
        bed.fake.text(&file.display().to_string()),
        r#"{"headroom_pct":0}"#
    );
    for (text, level_pct) in [(r#"{"headroom_pct":35}"#, 35.0), ("garbage", 0.0)] {
        bed.fake.write(&file, text).unwrap();
        let next = bed.agent().unwrap();
        run_side(&next, PIDS[1]).unwrap();
        steps(&bed, &next, &mut knob, 2 * SECOND);
        assert_eq!(state(&next), ("learning".to_owned(), level_pct), "{text}");
    }
}
