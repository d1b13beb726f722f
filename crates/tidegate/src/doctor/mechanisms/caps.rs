//! Rate caps, hard and soft.

use tidegate_cgroup::discover::Machine;

use super::{Facts, Mechanism, Now};

pub(super) fn hard(machine: Option<&Machine>) -> Mechanism {
    let quota = machine.map(|machine| &machine.features.quota);
    match quota.map(|quota| (quota.present, &quota.how)) {
        Some((Some(false), why)) => Mechanism::new(
            "hard caps",
            Now::No,
            format!("the kernel has no quotas: {why}"),
            Some("a kernel with CONFIG_CFS_BANDWIDTH".to_owned()),
        ),
        Some(_) => Mechanism::new(
            "hard caps",
            Now::Yes,
            "a quota, its period as long as its least of 1 ms needs: for all of the gate, or (cap_scope) for each process or \
                  task, in groups of their own that a look finds for what is forked; real-time tasks are left alone",
            None,
        ),
        None => Mechanism::new(
            "hard caps",
            Now::No,
            "the cgroup tree could not be understood",
            None,
        ),
    }
}

pub(super) fn soft(facts: &Facts, machine: Option<&Machine>) -> Mechanism {
    let idle = machine.is_some_and(|machine| machine.features.idle.is_present());
    let step = match &facts.bpf {
        Ok(()) => "every 5 ms",
        Err(_) => "every 50 ms (no BPF)",
    };
    let (now, class) = match (machine, idle) {
        (None, _) => (
            Now::No,
            "the cgroup tree could not be understood".to_owned(),
        ),
        (_, true) => (Now::Yes, "cpu.idle".to_owned()),
        (_, false) => (Now::Partly, "the least weight (no cpu.idle)".to_owned()),
    };
    Mechanism::new(
        "soft caps",
        now,
        match now {
            Now::No => class,
            _ => format!(
                "the group's use against a bucket, {step}: an empty one puts it into the background by {class}"
            ),
        },
        (now == Now::Partly).then(|| "a kernel of 5.15 or newer".to_owned()),
    )
}
