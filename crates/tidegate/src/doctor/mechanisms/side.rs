//! How side work is kept back: headroom, objective, tolerance, weight, the idle class, the lease.

use tidegate_cgroup::discover::Machine;

use super::{Facts, Mechanism, Now};

pub(super) fn headroom(facts: &Facts, machine: Option<&Machine>) -> Mechanism {
    let idle = machine.is_some_and(|machine| machine.features.idle.is_present());
    let class = if idle { "cpu.idle" } else { "the least weight" };
    let group = format!("all side work in one group with {class} and one moving quota");
    let (now, how, change) = match &facts.bpf {
        Ok(()) => (
            Now::Yes,
            format!("{group}; steps of 5 ms by BPF sensing"),
            None,
        ),
        Err(why) => (
            Now::Partly,
            format!("{group}; steps of 50 ms by group usage, so bursts of main are seen later"),
            Some(format!("for BPF sensing: {why}")),
        ),
    };
    Mechanism::new("headroom", now, how, change)
}

pub(super) fn tolerance(machine: Option<&Machine>) -> Mechanism {
    let cpus = machine.map_or(1, |machine| machine.online_cpus.len().max(1));
    // 1 ms is the least quota, and 100 ms the longest period of the loop's: 1 % of one CPU.
    let least_pct = 1.0 / cpus as f64;
    Mechanism::new(
        "tolerance",
        Now::Yes,
        format!(
            "the quota is never below it; minimum: {least_pct:.3} % of this machine (0.01 CPUs)"
        ),
        None,
    )
}

pub(super) fn weight() -> Mechanism {
    Mechanism::new(
        "weight",
        Now::Yes,
        "cpu.weight (v1: cpu.shares) of each gate's group; the quota's period is 50 ms while weights are unequal, \
              since the kernel loses them below shorter ones",
        None,
    )
}

pub(super) fn idle(facts: &Facts, machine: Option<&Machine>) -> Mechanism {
    let present = machine.is_some_and(|machine| machine.features.idle.is_present());
    let ends_turns = facts.types.has_workqueues && facts.bpf.is_ok();
    // There, the idle class of a group says nothing to a task that wakes.
    let preempts = match facts.types.has_one_queue {
        true => "a task that wakes runs after 0.1 ms at the latest, for so long are its turns",
        false => "any other task that wakes preempts it at once",
    };
    Mechanism::new(
        "idle class",
        if present { Now::Yes } else { Now::Partly },
        match (present, ends_turns) {
            (true, true) => format!(
                "cpu.idle on all side work: {preempts}, and one that gave way to it runs again after some 20 us"
            ),
            (true, false) if facts.types.has_one_queue => {
                format!("cpu.idle on all side work: {preempts}")
            }
            (true, false) => format!(
                "cpu.idle on all side work: {preempts}; one that has used its slice may give way to it until the next \
                 tick (from Linux 6.10 on, BPF sensing ends that)"
            ),
            (false, _) => {
                "this kernel has no cpu.idle; side work gets the least weight instead".to_owned()
            }
        },
        (!present).then(|| "a kernel of 5.15 or newer".to_owned()),
    )
}

pub(super) fn lease(facts: &Facts) -> Mechanism {
    Mechanism::new(
        "lease",
        Now::Yes,
        format!(
            "a guardian process writes the fallback when the agent is silent (2 s unless configured); state in {}",
            facts.run_dir
        ),
        None,
    )
}

pub(super) fn objective(facts: &Facts) -> Mechanism {
    let (now, how, change) = match &facts.bpf {
        Ok(()) => (
            Now::Yes,
            "headroom is found: run delay of main, measured at each switch, against what was asked (p99<5ms)".to_owned(),
            None,
        ),
        Err(why) => (
            Now::No,
            "needs main's run delay, which only BPF sensing knows; the headroom asked for holds. A figure of your own needs none (objective='reported<80ms')".to_owned(),
            Some(format!("for BPF sensing: {why}")),
        ),
    };
    Mechanism::new("objective", now, how, change)
}
