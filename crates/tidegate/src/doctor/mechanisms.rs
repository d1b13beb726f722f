//! Each mechanism of the design against the facts. What is not in this version says so.

use tidegate_knobs::discover::{Feature, Machine};

use super::{Facts, Mechanism, Now};

/// The first thing that keeps headroom from being enforced.
pub struct Obstacle {
    /// Why.
    pub why: String,
    /// What to do.
    pub mend: String,
}

fn obstacle_of(why: impl Into<String>, mend: impl Into<String>) -> Option<Obstacle> {
    Some(Obstacle {
        why: why.into(),
        mend: mend.into(),
    })
}

/// Looks for what is in the way, the most fundamental first.
pub fn obstacle(facts: &Facts) -> Option<Obstacle> {
    // An owner that answers has all that it needs; what the caller lacks does not matter then.
    if let Ok(Some(_)) = &facts.owner {
        return None;
    }
    let machine = match &facts.machine {
        Ok(machine) => machine,
        Err(why) => return obstacle_of("the cgroup tree could not be understood", why.clone()),
    };
    if machine.features.quota.present == Some(false) {
        return obstacle_of(
            format!(
                "this kernel has no CPU quotas ({})",
                machine.features.quota.how
            ),
            "boot a kernel with CONFIG_CFS_BANDWIDTH",
        );
    }
    if let Some(why) = machine.refusal() {
        let mend = match facts.root {
            false => "put sudo before tidegate, or have the service started",
            true => {
                "make the cgroup tree writable (in a container: mount it read-write), or run on the host"
            }
        };
        return obstacle_of(why, mend);
    }
    if !facts.run_dir_writable {
        let mend = if facts.root {
            "make it writable"
        } else {
            "put sudo before tidegate"
        };
        return obstacle_of(format!("{} cannot be written", facts.run_dir), mend);
    }
    if let (Err(_), Err(why)) = (&facts.bpf, &facts.usage) {
        return obstacle_of("use cannot be measured", why.clone());
    }
    None
}

/// Every mechanism, in the order of the terms.
pub fn all(facts: &Facts, obstacle: Option<&Obstacle>) -> Vec<Mechanism> {
    let machine = facts.machine.as_ref().ok();
    let mut rows = vec![
        headroom(facts, machine),
        tolerance(machine),
        weight(),
        idle(machine),
        lease(facts),
    ];
    if let Some(obstacle) = obstacle {
        for row in &mut rows {
            row.now = Now::No;
            row.engine = "";
            row.change = Some(obstacle.mend.clone());
        }
    }
    rows.extend([
        objective(),
        quota(machine),
        burst(machine),
        slice(facts),
        caps(machine),
        latency(machine),
    ]);
    rows
}

fn headroom(facts: &Facts, machine: Option<&Machine>) -> Mechanism {
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
    Mechanism {
        name: "headroom",
        now,
        engine: "knobs",
        how,
        change,
    }
}

fn tolerance(machine: Option<&Machine>) -> Mechanism {
    let cpus = machine.map_or(1, |machine| machine.online_cpus.len().max(1));
    // 1 ms is the least quota and 1 s the longest period: 0.1 % of one CPU.
    let least_pct = 0.1 / cpus as f64;
    Mechanism {
        name: "tolerance",
        now: Now::Yes,
        engine: "knobs",
        how: format!(
            "the quota is never below it; the least that the kernel's quotas can say is {least_pct:.3} % of this machine"
        ),
        change: None,
    }
}

fn weight() -> Mechanism {
    Mechanism {
        name: "weight",
        now: Now::Yes,
        engine: "knobs",
        how: "cpu.weight (v1: cpu.shares) of each gate's group; the quota's period is 50 ms while weights are unequal, \
              since the kernel loses them below shorter ones"
            .to_owned(),
        change: None,
    }
}

fn idle(machine: Option<&Machine>) -> Mechanism {
    let present = machine.is_some_and(|machine| machine.features.idle.is_present());
    Mechanism {
        name: "idle class",
        now: if present { Now::Yes } else { Now::Partly },
        engine: "knobs",
        how: match present {
            true => "cpu.idle on all side work: any other task that wakes preempts it at once"
                .to_owned(),
            false => {
                "this kernel has no cpu.idle; side work gets the least weight instead".to_owned()
            }
        },
        change: (!present).then(|| "a kernel of 5.15 or newer".to_owned()),
    }
}

fn lease(facts: &Facts) -> Mechanism {
    Mechanism {
        name: "lease",
        now: Now::Yes,
        engine: "knobs",
        how: format!(
            "a guardian process writes the fallback when the owner is silent (2 s unless configured); state in {}",
            facts.run_dir
        ),
        change: None,
    }
}

/// Something that is in the design and not in this version.
fn not_yet(name: &'static str, how: String) -> Mechanism {
    Mechanism {
        name,
        now: Now::NotYet,
        engine: "",
        how,
        change: None,
    }
}

const NOT_YET: &str = "this version of Tidegate does not enforce it yet";

fn by_feature(name: &'static str, what: &str, feature: Option<&Feature>, since: &str) -> Mechanism {
    match feature {
        Some(feature) if feature.present == Some(false) => Mechanism {
            name,
            now: Now::No,
            engine: "",
            how: format!("the kernel cannot: {}; {NOT_YET}", feature.how),
            change: Some(since.to_owned()),
        },
        Some(feature) if feature.is_present() => {
            not_yet(name, format!("the kernel can ({what}); {NOT_YET}"))
        }
        _ => not_yet(
            name,
            format!("whether the kernel can could not be found out; {NOT_YET}"),
        ),
    }
}

fn objective() -> Mechanism {
    not_yet("objective", format!("needs main's run delay; {NOT_YET}"))
}

fn quota(machine: Option<&Machine>) -> Mechanism {
    let feature = machine.map(|machine| &machine.features.quota);
    by_feature(
        "quota, period",
        "cpu.max; as a term of gates",
        feature,
        "a kernel with CONFIG_CFS_BANDWIDTH",
    )
}

fn burst(machine: Option<&Machine>) -> Mechanism {
    let feature = machine.map(|machine| &machine.features.burst);
    by_feature(
        "burst",
        "cpu.max.burst",
        feature,
        "a kernel of 5.14 or newer",
    )
}

fn slice(facts: &Facts) -> Mechanism {
    match facts.bandwidth_slice_us {
        Some(us) => not_yet(
            "slice",
            format!(
                "one sysctl for the whole machine, {} ms now, not a gate's; {NOT_YET}",
                us as f64 / 1e3
            ),
        ),
        None => not_yet(
            "slice",
            format!("the kernel's sysctl cannot be read; {NOT_YET}"),
        ),
    }
}

fn caps(machine: Option<&Machine>) -> Mechanism {
    let ext = machine.is_some_and(|machine| machine.features.sched_ext.is_present());
    Mechanism {
        name: "caps",
        now: Now::NotYet,
        engine: "",
        how: format!("the kernel can cap a group (cpu.max; hard caps, 1 ms at least); {NOT_YET}"),
        change: (!ext).then(|| {
            "for many single tasks: a kernel of 6.12 or newer with CONFIG_SCHED_CLASS_EXT"
                .to_owned()
        }),
    }
}

fn latency(machine: Option<&Machine>) -> Mechanism {
    let slices = machine
        .and_then(|machine| version_of(&machine.kernel))
        .is_some_and(|version| version >= (6, 12));
    Mechanism {
        name: "latency hints",
        now: if slices { Now::NotYet } else { Now::No },
        engine: "",
        how: match slices {
            true => format!("the kernel can (slices of sched_setattr, by its version); {NOT_YET}"),
            false => format!("the kernel has no slices of tasks; {NOT_YET}"),
        },
        change: (!slices).then(|| "a kernel of 6.12 or newer".to_owned()),
    }
}

/// `6.18.5-foo` to (6, 18).
fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_versions_are_compared_as_numbers() {
        assert_eq!(version_of("6.18.5-cloud"), Some((6, 18)));
        assert!(version_of("6.9").unwrap() < (6, 12));
        assert_eq!(version_of("garbage"), None);
    }

    fn facts(machine: Result<Machine, String>) -> Facts {
        Facts {
            root: false,
            machine,
            bpf: Err("no".to_owned()),
            usage: Ok(()),
            owner: Ok(None),
            systemd: Ok("257".to_owned()),
            config: Ok(()),
            bandwidth_slice_us: Some(5000),
            run_dir: "/run/tidegate".to_owned(),
            run_dir_writable: false,
        }
    }

    #[test]
    fn without_a_tree_nothing_is_promised_and_the_reason_is_said() {
        let report = super::super::report(&facts(Err("no cgroup mount".to_owned())));
        assert!(
            !report.enforceable && report.verdict.contains("no cgroup mount"),
            "{}",
            report.verdict
        );
        assert!(
            report
                .mechanisms
                .iter()
                .all(|row| row.now != Now::Yes && row.now != Now::Partly)
        );
    }

    #[test]
    fn an_owner_that_answers_is_enough() {
        let mut facts = facts(Err("hidden in this container".to_owned()));
        facts.owner = Ok(Some("runs".to_owned()));
        assert!(super::super::report(&facts).enforceable);
    }

    #[test]
    fn the_page_fits_a_terminal() {
        let report = super::super::report(&facts(Err("x".repeat(300))));
        let page = crate::render::doctor::page(&report);
        let page = anstream::adapter::strip_str(&page).to_string();
        assert!(
            page.lines()
                .all(|line| line.chars().count() <= crate::render::WIDTH),
            "{page}"
        );
        assert!(
            page.contains("No: headroom cannot be enforced now"),
            "{page}"
        );
    }

    #[test]
    fn every_mechanism_has_a_row() {
        let report = super::super::report(&facts(Err(String::new())));
        let names: Vec<_> = report.mechanisms.iter().map(|row| row.name).collect();
        assert_eq!(
            names,
            [
                "headroom",
                "tolerance",
                "weight",
                "idle class",
                "lease",
                "objective",
                "quota, period",
                "burst",
                "slice",
                "caps",
                "latency hints"
            ]
        );
    }
}
