//! Telling the loop, the guardian, the scheduler and the next agent what the gates are now.

use std::collections::HashMap;

use tidegate_api::ApiResult;
use tidegate_engine::control::QuotaTarget;
use tidegate_engine::sync::lock;
use tidegate_terms::Class;

use crate::errors::internal;
use crate::gates::{Attachment, Gate, stored};
use crate::kernel::limited_below;
use crate::runtime::Runtime;
use crate::runtime::demand::demand_of;
use crate::runtime::mechanisms::caps::publish_soft_caps;
use crate::runtime::supervise::tell_sched_ext;

pub(crate) fn publish(runtime: &Runtime, gates: &[Gate]) -> ApiResult<()> {
    let kernel = &runtime.kernel;
    let demand = demand_of(runtime, gates);
    let floor = runtime.control_loop.floor(&demand);
    let by_name = gates.iter().map(|gate| (gate.record.name.as_str(), gate));
    let by_name: HashMap<&str, &Gate> = by_name.collect();
    let own_of = |name: &str| by_name.get(name).and_then(|gate| gate.own_limit());
    runtime.journal().set_floor(floor, own_of);
    let root = kernel.side_root();
    let mut side = Vec::new();
    let mut main = Vec::new();
    let mut targets: Vec<QuotaTarget> = Vec::new();
    for gate in gates {
        let group = gate.record.attachment.group();
        match (gate.class(), &gate.record.attachment) {
            (_, Attachment::Observed { .. }) => {}
            (Class::Side, _) => {
                let Some(limited) = limited_below(&root, gate) else {
                    continue;
                };
                match targets.iter_mut().find(|known| known.group == *limited) {
                    Some(known) => {
                        known.unequal |= gate.terms.cpu_weight() != known.first_weight;
                        known.weight += gate.terms.cpu_weight();
                    }
                    None => targets.push(QuotaTarget {
                        weight: gate.terms.cpu_weight(),
                        first_weight: gate.terms.cpu_weight(),
                        unequal: false,
                        cap_ucpu: runtime.journal().limit_before(limited),
                        own: gate
                            .own_limit()
                            .filter(|_| limited == group)
                            .map(|own| kernel.as_kernel_has(own)),
                        group: limited.clone(),
                    }),
                }
            }
            (Class::Main, _) => main.extend(kernel.sensed(group)),
            (Class::Neutral, _) => {}
        }
    }
    side.extend(
        targets
            .iter()
            .filter_map(|limited| kernel.sensed(&limited.group)),
    );
    publish_soft_caps(runtime, gates);
    let mut control = runtime.control();
    control.set_demand(demand);
    control.quotas.set(targets, runtime.control_loop.tick_ns);
    control.set_groups(side, main);
    drop(control);
    runtime.control_loop.wake.now();
    tell_sched_ext(runtime, gates);
    save(runtime, gates)
}

pub(crate) fn save(runtime: &Runtime, gates: &[Gate]) -> ApiResult<()> {
    let records: Vec<_> = gates.iter().map(|gate| &gate.record).collect();
    let text = stored::written(&records, &lock(&runtime.unread_records)).map_err(internal)?;
    let kernel = &runtime.kernel;
    kernel
        .fs
        .replace(&kernel.run_dir.gates(), &text)
        .map_err(internal)
}
