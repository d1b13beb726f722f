//! Each kind of event that no command provokes, provoked here; the others are in the command's own
//! tests and in `policy`.

use tidegate_api::EventView;

use super::sched_ext::{bed as sched_ext_bed, eject};
use super::sched_ext_outside::supervise;
use super::steps::{Knob, steps};
use super::{Bed, KINDS, Kind, PIDS, begun, kinds, run_limited};
use crate::lifecycle::housekeeping::Housekeeping;
use crate::threads::{HOUSEKEEPING, once};

const SECOND: u32 = 200;

#[test]
fn an_agent_that_takes_up_gates_says_so() {
    for kind in KINDS {
        let bed = Bed::new(kind);
        let first = bed.agent().unwrap();
        run_limited(&first, PIDS[0]).unwrap();
        first.hand_over();
        assert_eq!(kinds(&bed.agent().unwrap()), ["agent.adopted"]);
    }
}

#[test]
fn a_fallback_of_the_guardian_is_an_event() {
    let (_bed, agent) = begun(Kind::V2);
    run_limited(&agent, PIDS[0]).unwrap();
    let mut housekeeping = Housekeeping::new(None);
    once(HOUSEKEEPING, &mut housekeeping, &agent);
    assert!(!kinds(&agent).contains(&"lease.expired".to_owned()));
    agent.runtime.control().fell_back(3_200_000_000);
    once(HOUSEKEEPING, &mut housekeeping, &agent);
    let events = agent.runtime.events.after(0).events;
    let silent = |event: &EventView| event.message.contains("silent for 3.2 s");
    assert!(events.iter().any(silent), "{events:?}");
    once(HOUSEKEEPING, &mut housekeeping, &agent);
    let told = kinds(&agent);
    assert_eq!(
        told.iter().filter(|kind| *kind == "lease.expired").count(),
        1
    );
}

#[test]
fn a_scheduler_that_comes_and_is_thrown_out_is_told_of() {
    let (bed, kernel) = sched_ext_bed(Kind::V2);
    let agent = bed.agent().unwrap();
    run_limited(&agent, PIDS[0]).unwrap();
    supervise(&agent, 0);
    assert!(kinds(&agent).contains(&"sched_ext.loaded".to_owned()));
    eject(&kernel);
    supervise(&agent, 1_000_000_000);
    assert!(kinds(&agent).contains(&"sched_ext.ejected".to_owned()));
}

#[test]
fn starvation_begins_and_ends() {
    let bed = Bed::new(Kind::V2);
    bed.main_uses(1_000_000);
    let agent = bed.agent().unwrap();
    run_limited(&agent, PIDS[0]).unwrap();
    let (mut knob, mut housekeeping) = (Knob::default(), Housekeeping::new(None));
    let mut pass = |seconds: u32| {
        for _ in 0..seconds {
            steps(&bed, &agent, &mut knob, SECOND);
            once(HOUSEKEEPING, &mut housekeeping, &agent);
        }
    };
    pass(10);
    let told = kinds(&agent);
    assert!(told.contains(&"starvation.began".to_owned()), "{told:?}");
    bed.main_uses(300_000);
    pass(60);
    let told = kinds(&agent);
    assert!(told.contains(&"starvation.ended".to_owned()), "{told:?}");
}
