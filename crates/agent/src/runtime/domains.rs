//! Headroom on main's own CPUs: which cpusets the main gates have, and what of their headrooms is kept where
//! ([`tidegate_engine::domain`] decides).
//!
//! Looked at with every change of the gates and once a second, since cpusets change without a word to us. A main whose
//! threads are confined by `sched_setaffinity` alone counts as one that may run everywhere: its threads may be told otherwise at any time.

use tidegate_cgroup::cpus::{format_list, online};
use tidegate_cgroup::group::GroupPath;
use tidegate_engine::control::Demand;
use tidegate_engine::domain::{Asked, DomainInputs, Keeps, both, resolve};
use tidegate_engine::sync::lock;
use tidegate_terms::Class;
use tracing::info;

use crate::gates::{Gate, Gates, demand};
use crate::kernel::Kernel;
use crate::runtime::Runtime;

/// A main gate without tasks for so long asks for no headroom; a restart takes less.
const VACANT_NS: u64 = 1_000_000_000;

/// Whether there is no task in the group, or the group is gone (a unit that is stopped). What cannot be read has tasks.
pub(crate) fn is_empty(kernel: &Kernel, group: &GroupPath) -> bool {
    match kernel.groups.populated(group) {
        Ok(populated) => !populated,
        Err(error) => error.is_gone(),
    }
}

/// The groups of these main gates that are empty, and since when.
fn empty_mains<'a>(
    runtime: &Runtime,
    gates: impl Iterator<Item = &'a Gate>,
) -> Vec<(GroupPath, u64)> {
    let now_ns = runtime.kernel.clock.now_ns();
    let mut known = lock(&runtime.empty_mains);
    let groups = gates.map(|gate| gate.record.attachment.group());
    let empty = groups.filter(|group| is_empty(&runtime.kernel, group));
    let since = |group: &GroupPath| {
        let before = known.iter().find(|(known, _)| known == group);
        before.map_or(now_ns, |(_, since_ns)| *since_ns)
    };
    let empty: Vec<_> = empty.map(|group| (group.clone(), since(group))).collect();
    known.clone_from(&empty);
    empty
}

/// What the gates ask for now, each headroom where it is to be kept.
pub(crate) fn demand_of(runtime: &Runtime, gates: &[Gate]) -> Demand {
    let named = || {
        let all = gates.iter();
        all.filter_map(|gate| Some((gate, gate.terms.headroom.value.ppm()?)))
    };
    let mains = named().map(|(gate, _)| gate);
    let mains = mains.filter(|gate| gate.class() == Class::Main);
    let empty = empty_mains(runtime, mains);
    let now_ns = runtime.kernel.clock.now_ns();
    let has_tasks = |gate: &Gate| {
        let group = gate.record.attachment.group();
        let since = empty.iter().find(|(empty, _)| empty == group);
        since.is_none_or(|(_, since_ns)| now_ns.saturating_sub(*since_ns) < VACANT_NS)
    };
    let with_tasks = gates.iter().filter(|gate| has_tasks(gate));
    let mut demand = Demand {
        // A promise to side work, whichever main is there.
        tolerance_ppm: demand(gates.iter(), &runtime.settings).tolerance_ppm,
        ..demand(with_tasks, &runtime.settings)
    };
    let asked: Vec<Asked> = named()
        .filter(|(gate, _)| has_tasks(gate))
        .map(|(gate, headroom_ppm)| Asked {
            cpus: (gate.class() == Class::Main)
                .then(|| cpus_of(&runtime.kernel, gate.record.attachment.group()))
                .flatten(),
            headroom_ppm,
            from: format!("gate {}", gate.record.name),
        })
        .collect();
    let mut notes = Vec::new();
    if asked.iter().any(|one| one.cpus.is_some()) {
        let resolved = resolve(&asked, &inputs(runtime, gates));
        let whole = resolved.whole;
        demand.domains_only = whole.is_none();
        let no_gate = || (0, "no gate: it is kept on main's own CPUs".to_owned());
        (demand.headroom_ppm, demand.headroom_from) = whole.unwrap_or_else(no_gate);
        demand.domains = resolved.domains;
        demand.outside_cpus = resolved.outside;
        notes = resolved.notes;
    }
    lock(&runtime.cpuset).set_notes(notes);
    demand
}

/// The cpusets may have changed since the gates did.
pub(crate) fn poll_domains(registry: &Gates, runtime: &Runtime) {
    let gates = registry.lock();
    let demand = demand_of(runtime, &gates);
    let mut control = runtime.control();
    if control.demand().domains != demand.domains {
        for domain in &demand.domains {
            let keeps = match domain.keeps {
                Keeps::Quota => "by quota",
                Keeps::Cpuset => "by side work's cpuset",
            };
            let list = format_list(&domain.cpus);
            info!("headroom of {} is kept on CPUs {list} {keeps}", domain.from);
        }
    }
    // Under the gates' lock: a change of them that comes meanwhile is not overwritten.
    control.set_demand(demand);
    drop(gates);
}

/// The CPUs that the group's work may use; `None` for all, or where that cannot be told.
fn cpus_of(kernel: &Kernel, group: &GroupPath) -> Option<Vec<u32>> {
    // What cannot be read (a group that has just gone) may run everywhere.
    kernel.groups.cpus_of_work(group).ok().flatten()
}

fn inputs(runtime: &Runtime, gates: &[Gate]) -> DomainInputs {
    let kernel = &runtime.kernel;
    let root = kernel.side_root();
    let all = online(&*kernel.fs).unwrap_or_default();
    let mut in_place = Vec::new();
    let (mut rooted, mut any) = (false, false);
    for gate in gates {
        match kernel.limited_group(gate) {
            Some(group) if group == root => (rooted, any) = (true, true),
            Some(group) => {
                any = true;
                let cpus = cpus_of(kernel, &group).unwrap_or_else(|| all.clone());
                in_place.push((group.to_string(), both(&cpus, &all)));
            }
            None => {}
        }
    }
    let parent = root.parent().unwrap_or_else(GroupPath::root);
    let allowed = kernel.groups.cpuset_allowed(&parent);
    // Before there is side work, it is taken to come by `run`.
    let allowed = || allowed.map_or_else(|_| all.clone(), |cpus| both(&cpus, &all));
    DomainInputs {
        root: (rooted || !any).then(allowed),
        online: all.clone(),
        in_place,
        by_cpu: runtime.control().tells_by_cpu().err(),
        refused: lock(&runtime.cpuset).refusal(),
    }
}
