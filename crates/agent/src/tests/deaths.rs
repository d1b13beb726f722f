//! The agent dies after each operation of a `set`; the next one finds what is there, and everything
//! comes back. `matrix` has the other calls.

use tidegate_cgroup::testkit::{Fault, Rule};

use super::{Bed, KINDS, PIDS, alerts, gate_names, in_journal, set_limited, unset};
use crate::agent::Agent;

/// A `set` that is cut off at its `nth` operation, and the agent that comes after; `None` once the
/// call is shorter.
fn death_at(bed: &Bed, nth: u64, target: &str) -> Option<Agent> {
    let agent = bed.agent().unwrap();
    bed.fs.add(Rule {
        fault: Fault::Halt,
        ..Rule::nth(bed.fs.count() + nth, 0)
    });
    let before = bed.fs.count();
    drop(set_limited(&agent, target));
    let reached = bed.fs.count() - before >= nth;
    drop(agent);
    bed.fs.clear();
    reached.then(|| bed.agent().unwrap())
}

#[test]
fn a_set_that_was_cut_off_is_undone_or_stands() {
    let of_process = format!("pid:{}", PIDS[0]);
    for kind in KINDS {
        for target in [of_process.as_str(), "cgroup:/other"] {
            for nth in 1.. {
                let bed = Bed::new(kind);
                let fresh = bed.values("/other");
                let Some(next) = death_at(&bed, nth, target) else {
                    assert!(nth > 5);
                    break;
                };
                let what = format!("{target}, death at operation {nth}");
                assert_eq!(alerts(&next), "", "{what}");
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
                assert_eq!(in_journal(&next), [], "{what}");
            }
        }
    }
}
