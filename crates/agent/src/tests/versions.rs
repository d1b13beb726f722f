//! Agents of several versions after one another, as at an upgrade and its undoing: what one does
//! not know, it leaves as it is, tells of and keeps for the other. No work is without its limits
//! meanwhile.

use std::path::PathBuf;

use tidegate_cgroup::KernelFs;

use super::{
    Bed, KINDS, PIDS, alerts, begun, gate_names, in_journal, path, run_limited, set, set_limited,
    unset,
};
use crate::After;
use crate::lifecycle::leave_if_unused;
use crate::lifecycle::repair::repair_with;

fn gates_file(bed: &Bed) -> PathBuf {
    bed.run_dir().gates()
}

fn text(bed: &Bed) -> String {
    bed.fs.read(&gates_file(bed)).unwrap()
}

/// Rewrites the file of gates, as another version would have written it.
fn rewrite(bed: &Bed, from: &str, to: &str) {
    let before = text(bed);
    assert!(before.contains(from), "{before}");
    let after = before.replace(from, to);
    bed.fs.replace(&gates_file(bed), after.as_bytes()).unwrap();
}

#[test]
fn a_term_of_a_newer_version_costs_a_gate_no_other_term() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        run_limited(&agent, PIDS[0]).unwrap();
        drop(agent);
        let class = r#""class":{"text":"side""#;
        let source = r#""source":"run_flag""#;
        rewrite(
            &bed,
            class,
            &format!(
                r#""turbo":{{"text":"on",{source}}},"weight":{{"text":"featherlight",{source}}},{class}"#
            ),
        );

        let agent = bed.agent().unwrap();
        assert_eq!(gate_names(&agent), ["job"]);
        assert!(bed.is_limited("/tg-side"));
        let told = alerts(&agent);
        assert!(
            told.contains("turbo") && told.contains("featherlight") && told.contains("gate job"),
            "{told}"
        );
        // The gate can be changed, and what is not known stays with it.
        set(&agent, "gate:job", &[("weight", "50")]).unwrap();
        assert!(text(&bed).contains("turbo"), "kept for the newer one");
        drop(agent);
        let agent = bed.agent().unwrap();
        assert_eq!(agent.gates.lock()[0].terms.cpu_weight(), 50);
        assert!(text(&bed).contains("turbo"));
        assert!(!text(&bed).contains("featherlight"), "it was set again");
    }
}

/// Side work of a class that is not known is not let loose.
#[test]
fn a_class_of_a_newer_version_leaves_the_gate_to_it() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let fresh = bed.values("/other");
        set_limited(&agent, "cgroup:/other").unwrap();
        drop(agent);
        rewrite(
            &bed,
            r#""class":{"text":"side""#,
            r#""class":{"text":"tidal""#,
        );
        let older = bed.agent().unwrap();
        assert!(bed.is_limited("/other"));
        assert!(alerts(&older).contains("tidal"), "{}", alerts(&older));
        // Its name is taken, and an agent with nothing else to do does not leave it alone.
        let again = set(&older, "cgroup:/other", &[("class", "main")]);
        assert!(again.is_err() || !gate_names(&older).contains(&"other".to_owned()));
        leave_if_unused(&older.gates, &older.runtime, &older.life);
        assert!(!older.runtime.control_loop.lease.left());
        // A stop ends all gates.
        older.leave();
        assert_eq!(bed.values("/other"), fresh);
        assert!(in_journal(&older).is_empty());
    }
}

#[test]
fn a_gate_of_a_newer_version_is_forgotten_with_its_group() {
    let (bed, agent) = begun(KINDS[0]);
    set_limited(&agent, "cgroup:/other").unwrap();
    drop(agent);
    rewrite(
        &bed,
        r#""attachment":{"in_place""#,
        r#""attachment":{"hologram""#,
    );
    let older = bed.agent().unwrap();
    assert_eq!(older.runtime.unread_names().len(), 1);
    let group = older.groups().remove(&path("/other"));
    assert!(group.unwrap());
    assert!(older.runtime.unread_names().is_empty());
    leave_if_unused(&older.gates, &older.runtime, &older.life);
    assert!(older.runtime.control_loop.lease.left());
}

#[test]
fn a_gate_of_a_newer_version_keeps_its_limits_and_its_record() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        set_limited(&agent, "cgroup:/other").unwrap();
        run_limited(&agent, PIDS[0]).unwrap();
        drop(agent);
        assert!(bed.is_limited("/other"));
        let (known, newer) = (r#""attachment":{"in_place""#, r#""attachment":{"hologram""#);
        rewrite(&bed, known, newer);

        let older = bed.agent().unwrap();
        assert_eq!(gate_names(&older), ["job"]);
        assert!(bed.is_limited("/other"), "{:?}", bed.values("/other"));
        let told = alerts(&older);
        assert!(
            told.contains("hologram") && told.contains("kept for that version"),
            "{told}"
        );
        bed.fake.end_process(PIDS[0]);
        run_limited(&older, PIDS[1]).unwrap();
        drop(older);
        assert!(bed.is_limited("/other"));

        rewrite(&bed, newer, known);
        let again = bed.agent().unwrap();
        assert!(gate_names(&again).iter().any(|name| name == "other"));
        assert_eq!(alerts(&again), "");
        unset(&again, "cgroup:/other").unwrap();
        assert!(!bed.is_limited("/other"));
    }
}

#[test]
fn where_the_file_of_gates_is_none_the_groups_names_are_left_to_go_by() {
    let (bed, agent) = begun(KINDS[0]);
    run_limited(&agent, PIDS[0]).unwrap();
    drop(agent);
    bed.fs.replace(&gates_file(&bed), b"{}").unwrap();
    let agent = bed.agent().unwrap();
    assert_eq!(gate_names(&agent), ["job"]);
    assert!(
        alerts(&agent).contains("groups' names"),
        "{}",
        alerts(&agent)
    );
    assert!(bed.is_limited("/tg-side"));
}

#[test]
fn a_restart_keeps_every_gate_and_writes_to_no_limit() {
    let of_process = format!("pid:{}", PIDS[1]);
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let fresh = bed.values("/other");
        run_limited(&agent, PIDS[0]).unwrap();
        set_limited(&agent, "cgroup:/other").unwrap();
        set_limited(&agent, &of_process).unwrap();
        let (names, standing) = (gate_names(&agent), bed.values("/other"));
        let values = [bed.values("/tg-side"), bed.values("/tg-side/job")];
        agent.hand_over();
        assert!(agent.runtime.control_loop.lease.is_handed_over());
        drop(agent);
        // As the service's ExecStopPost.
        let (groups, mut journal) = bed.without_agent();
        repair_with(&groups, &mut journal, &bed.run_dir(), After::HandOver).unwrap();
        assert_eq!(bed.values("/other"), standing);
        assert_eq!([bed.values("/tg-side"), bed.values("/tg-side/job")], values);

        let next = bed.agent().unwrap();
        assert_eq!(gate_names(&next), names);
        assert_eq!(alerts(&next), "");
        assert!(bed.is_limited("/other") && bed.is_limited("/tg-side") && !bed.is_home(1));
        for target in ["cgroup:/other", &of_process] {
            unset(&next, target).unwrap();
        }
        assert_eq!(bed.values("/other"), fresh);
        assert!(bed.is_home(1));
    }
}

/// A call that holds the gates' lock does not delay the hand-over mark in the lease, which a
/// waiting agent reads when it gets SIGTERM.
#[test]
fn a_hand_over_is_known_before_the_gates_are_free() {
    let (_bed, agent) = begun(KINDS[0]);
    let lease = &agent.runtime.control_loop.lease;
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        let gates = agent.gates.lock();
        scope.spawn(|| agent.hand_over());
        while !lease.is_handed_over() && began.elapsed().as_secs() < 10 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        drop(gates);
    });
    assert!(began.elapsed().as_secs() < 10);
}
