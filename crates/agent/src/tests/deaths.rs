//! The agent dies after each operation on a kernel file; the next one finds what is there, and everything comes back.

use tidegate_cgroup::testkit::{Fault, Rule};
use tidegate_engine::sync::lock;

use super::{Bed, KINDS, PIDS, gate_names, in_journal, run_limited, set_limited, unset};
use crate::agent::Agent;

/// A call that is cut off at its `nth` operation, and the agent that comes after; `None` once the call is shorter.
fn death_at(bed: &Bed, nth: u64, call: impl Fn(&Agent)) -> Option<Agent> {
    let agent = bed.agent().unwrap();
    let halt = Rule {
        nth: Some(bed.fs.count() + nth),
        ..Rule::nth(0, 0)
    };
    bed.fs.add(Rule {
        fault: Fault::Halt,
        ..halt
    });
    let before = bed.fs.count();
    call(&agent);
    let reached = bed.fs.count() - before >= nth;
    drop(agent);
    bed.fs.clear();
    reached.then(|| bed.agent().unwrap())
}

#[test]
fn a_run_that_was_cut_off_is_limited_or_not_begun() {
    for kind in KINDS {
        for nth in 1.. {
            let bed = Bed::new(kind);
            let Some(next) = death_at(&bed, nth, |agent| drop(run_limited(agent, PIDS[0]))) else {
                assert!(nth > 5, "{kind:?}");
                break;
            };
            let what = format!("{kind:?}, death at operation {nth}");
            assert_eq!(
                lock(&next.runtime.alerts).len(),
                0,
                "{what}: {:?}",
                lock(&next.runtime.alerts)
            );
            if bed.place(PIDS[0]).contains("/tg-side/job") {
                assert!(bed.is_limited("/tg-side"), "{what}");
                assert_eq!(gate_names(&next), ["job"], "{what}");
            }
            // The command asks the next agent, as it had no answer.
            run_limited(&next, PIDS[0]).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(gate_names(&next), ["job"], "{what}");
            assert!(
                bed.place(PIDS[0]).contains("/tg-side/job") && bed.is_limited("/tg-side"),
                "{what}"
            );
            bed.fs.inner().end_process(PIDS[0]);
            next.leave();
            assert!(!bed.exists("/tg-side"), "{what}");
            assert!(
                in_journal(&next).is_empty(),
                "{what}: {:?}",
                in_journal(&next)
            );
        }
    }
}

#[test]
fn a_set_that_was_cut_off_is_undone_or_stands() {
    let of_process = format!("pid:{}", PIDS[0]);
    for kind in KINDS {
        for target in [of_process.as_str(), "cgroup:/other"] {
            for nth in 1.. {
                let bed = Bed::new(kind);
                let fresh = bed.values("/other");
                let Some(next) = death_at(&bed, nth, |agent| drop(set_limited(agent, target)))
                else {
                    assert!(nth > 5, "{kind:?}");
                    break;
                };
                let what = format!("{kind:?}, {target}, death at operation {nth}");
                assert_eq!(
                    lock(&next.runtime.alerts).len(),
                    0,
                    "{what}: {:?}",
                    lock(&next.runtime.alerts)
                );
                assert!(bed.is_home_or_limited(0), "{what}: {}", bed.place(PIDS[0]));
                if gate_names(&next).is_empty() {
                    assert!(bed.is_home(0), "{what}: {}", bed.place(PIDS[0]));
                    assert_eq!(bed.values("/other"), fresh, "{what}");
                } else {
                    unset(&next, target).unwrap_or_else(|error| panic!("{what}: {error}"));
                }
                next.leave();
                assert!(bed.is_home(0), "{what}: {}", bed.place(PIDS[0]));
                assert_eq!(bed.values("/other"), fresh, "{what}");
                assert!(!bed.exists("/tg-side"), "{what}");
                assert!(
                    in_journal(&next).is_empty(),
                    "{what}: {:?}",
                    in_journal(&next)
                );
            }
        }
    }
}

#[test]
fn an_unset_that_was_cut_off_is_finished_by_the_next() {
    let of_process = format!("pid:{}", PIDS[0]);
    for kind in KINDS {
        for target in [of_process.as_str(), "cgroup:/other"] {
            for nth in 1.. {
                let bed = Bed::new(kind);
                let fresh = bed.values("/other");
                set_limited(&bed.agent().unwrap(), target).unwrap();
                let Some(next) = death_at(&bed, nth, |agent| drop(unset(agent, target))) else {
                    break;
                };
                let what = format!("{kind:?}, {target}, death at operation {nth}");
                if !gate_names(&next).is_empty() {
                    unset(&next, target).unwrap_or_else(|error| panic!("{what}: {error}"));
                }
                next.leave();
                assert!(bed.is_home(0), "{what}: {}", bed.place(PIDS[0]));
                assert_eq!(bed.values("/other"), fresh, "{what}");
                assert!(!bed.exists("/tg-side"), "{what}");
            }
        }
    }
}
