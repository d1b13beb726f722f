//! What uses CPU: gates, and beside them the units and other groups without a gate, so that a
//! recording tells what a gate would have acted on.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tidegate_api::{Decision, Limit};
use tidegate_cgroup::group::GroupPath;
use tidegate_recording::{Work, WorkSecond};
use tidegate_terms::Source;

use crate::gates::{Attachment, Gate, Gates};
use crate::runtime::Runtime;

/// Groups are looked for, and processes counted, each so many seconds.
const LOOK_POLLS: u32 = 10;

const WORKS_MAX: usize = 64;

const GROUPS_MAX: usize = 256;

const USED_MIN_CPUS: f64 = 0.001;

/// Below the root and slices: slices are looked into, other groups are one work each.
const DEPTH_MAX: u32 = 8;

/// A work that has not run for so many seconds is forgotten: sessions and jobs come and go by the
/// thousand.
const FORGOTTEN_POLLS: u32 = 3_600;

#[derive(Default)]
pub(super) struct Works {
    known: BTreeMap<u32, Work>,
    next_id: u32,
    ran: HashMap<u32, u32>,
    ids: HashMap<(String, bool), u32>,
    changed: BTreeSet<u32>,
    polls: u32,
    groups: Vec<GroupPath>,
    used: HashMap<GroupPath, (u64, u64)>,
    throttled_ns: HashMap<u32, u64>,
    processes: HashMap<u32, u32>,
}

struct Active {
    work: Work,
    used_cpus: f64,
    allowance_cpus: Option<f32>,
    limit: Limit,
    throttled_ns: Option<u64>,
    group: Option<GroupPath>,
}

impl Works {
    pub(super) fn poll(&mut self, registry: &Gates, runtime: &Runtime) -> Vec<WorkSecond> {
        let is_look = self.polls.is_multiple_of(LOOK_POLLS);
        self.polls = self.polls.wrapping_add(1);
        let decision = runtime.decision();
        let (mut active, gated) = {
            let gates = registry.lock();
            let gated: Vec<GroupPath> = gates
                .iter()
                .map(|gate| gate.record.attachment.group().clone())
                .collect();
            let active = gates
                .iter()
                .filter_map(|gate| of_gate(runtime, gate, &decision));
            (active.collect::<Vec<_>>(), gated)
        };
        if is_look {
            self.groups = groups(runtime, &gated);
            self.used.retain(|group, _| self.groups.contains(group));
            self.forget();
        }
        active.extend(self.read_groups(runtime));
        active.sort_by(|a, b| b.used_cpus.total_cmp(&a.used_cpus));
        active.truncate(WORKS_MAX);
        active
            .into_iter()
            .map(|active| self.second(runtime, active, is_look))
            .collect()
    }

    pub(super) fn known(&self) -> &BTreeMap<u32, Work> {
        &self.known
    }

    pub(super) fn take_changed(&mut self) -> impl Iterator<Item = u32> + use<> {
        std::mem::take(&mut self.changed).into_iter()
    }

    fn read_groups(&mut self, runtime: &Runtime) -> Vec<Active> {
        let kernel = &runtime.kernel;
        let mut active = Vec::new();
        for group in &self.groups {
            let Ok(Some(used_ns)) = kernel.groups.usage_ns(group) else {
                continue;
            };
            let now_ns = kernel.clock.now_ns();
            let before = self.used.insert(group.clone(), (now_ns, used_ns));
            let Some((then_ns, before_ns)) = before else {
                continue;
            };
            let wall_ns = now_ns.saturating_sub(then_ns).max(1);
            let used_cpus = used_ns.saturating_sub(before_ns) as f64 / wall_ns as f64;
            if used_cpus >= USED_MIN_CPUS {
                active.push(Active {
                    work: of_group(group),
                    used_cpus,
                    allowance_cpus: None,
                    limit: Limit::None,
                    throttled_ns: None,
                    group: Some(group.clone()),
                });
            }
        }
        active
    }

    fn second(&mut self, runtime: &Runtime, active: Active, is_look: bool) -> WorkSecond {
        let id = self.introduce(active.work);
        let throttled_ns = active.throttled_ns.map_or(0, |now_ns| {
            let before_ns = self.throttled_ns.insert(id, now_ns);
            before_ns.map_or(0, |before_ns| now_ns.saturating_sub(before_ns))
        });
        if let Some(group) = active.group
            && (is_look || !self.processes.contains_key(&id))
        {
            let count = runtime.kernel.processes_below(&group, 4) as u32;
            self.processes.insert(id, count);
        }
        WorkSecond {
            id,
            used_cpus: active.used_cpus as f32,
            allowance_cpus: active.allowance_cpus,
            limit: active.limit,
            throttled_us: u32::try_from(throttled_ns / 1_000).unwrap_or(u32::MAX),
            processes: self.processes.get(&id).copied().unwrap_or(0),
        }
    }

    fn forget(&mut self) {
        let polls = self.polls;
        let is_old = |ran: &u32| polls.wrapping_sub(*ran) > FORGOTTEN_POLLS;
        let old = self.ran.extract_if(|_, ran| is_old(ran));
        let old: BTreeSet<u32> = old.map(|(id, _)| id).collect();
        if old.is_empty() {
            return;
        }
        self.known.retain(|id, _| !old.contains(id));
        self.ids.retain(|_, id| !old.contains(id));
        self.throttled_ns.retain(|id, _| !old.contains(id));
        self.processes.retain(|id, _| !old.contains(id));
    }

    /// Its number; a work whose terms changed is told once more.
    fn introduce(&mut self, work: Work) -> u32 {
        let key = (work.name.clone(), work.is_gate);
        let id = *self.ids.entry(key).or_insert_with(|| {
            self.next_id = self.next_id.wrapping_add(1);
            self.next_id
        });
        self.ran.insert(id, self.polls);
        let work = Work { id, ..work };
        if self.known.get(&id) != Some(&work) {
            self.known.insert(id, work);
            self.changed.insert(id);
        }
        id
    }
}

/// The gate's entry; a gate that does nothing, or has no known CPU use, has none.
fn of_gate(runtime: &Runtime, gate: &Gate, decision: &Decision) -> Option<Active> {
    let used_cpus = gate.usage_cpus?;
    if used_cpus < USED_MIN_CPUS && gate.held.view.own_throttled_periods == 0 {
        return None;
    }
    let record = &gate.record;
    let limited = runtime.kernel.limited_group(gate);
    let given = limited.and_then(|group| decision.group(group.as_str()));
    let terms = gate
        .terms
        .views()
        .into_iter()
        .filter(|view| view.source != Source::Default);
    let is_process = matches!(record.attachment, Attachment::Observed { .. });
    Some(Active {
        work: Work {
            name: record.name.clone(),
            is_gate: true,
            class: gate.class().to_string(),
            cgroup: record.attachment.group().to_string(),
            exe: record.command.first().cloned().unwrap_or_default(),
            uid: record.uid,
            parent: record.parent.clone(),
            rule: record.rule.clone(),
            terms: terms
                .map(|view| {
                    (
                        view.name.to_owned(),
                        view.value.clone(),
                        view.source.to_string(),
                    )
                })
                .collect(),
            ..Work::default()
        },
        used_cpus,
        allowance_cpus: given
            .and_then(|one| one.allowance_cpus)
            .map(|cpus| cpus as f32),
        limit: gate.held.view.limit,
        throttled_ns: gate.stat.map(|stat| stat.throttled_ns),
        group: (!is_process).then(|| record.attachment.group().clone()),
    })
}

fn of_group(group: &GroupPath) -> Work {
    Work {
        name: group.to_string(),
        class: "neutral".to_owned(),
        cgroup: group.to_string(),
        ..Work::default()
    }
}

/// The groups without a gate: units, and others at their level.
fn groups(runtime: &Runtime, gated: &[GroupPath]) -> Vec<GroupPath> {
    let mut found = Vec::new();
    below(runtime, &GroupPath::root(), gated, DEPTH_MAX, &mut found);
    found
}

fn below(
    runtime: &Runtime,
    group: &GroupPath,
    gated: &[GroupPath],
    depth: u32,
    found: &mut Vec<GroupPath>,
) {
    let kernel = &runtime.kernel;
    for child in kernel.groups.children(group).unwrap_or_default() {
        if found.len() == GROUPS_MAX {
            return;
        }
        if kernel.is_ours(&child) || gated.contains(&child) {
            continue;
        }
        let holds_gate = gated.iter().any(|gate| gate.is_within(&child));
        let is_slice = child.name().ends_with(".slice") || child.name().starts_with("kubepods");
        match (is_slice || holds_gate) && depth > 0 {
            true => below(runtime, &child, gated, depth - 1, found),
            false => found.push(child),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Bed, Kind, make_group};

    fn path(text: &str) -> GroupPath {
        GroupPath::parse(text).unwrap()
    }

    #[test]
    fn slices_are_looked_into_and_what_has_a_gate_is_not_told_twice() {
        for kind in [Kind::V1, Kind::V2] {
            let bed = Bed::new(kind);
            let agent = bed.agent().unwrap();
            let own = agent.runtime.kernel.side_root().join("encode").unwrap();
            make_group(&agent, &own);
            for name in [
                "/system.slice/web.service/worker",
                "/system.slice/backup.service",
                "/user.slice/user-1000.slice/session-1.scope",
                "/batch",
            ] {
                make_group(&agent, &path(name));
            }
            let gated = [path("/system.slice/web.service")];
            let mut found: Vec<String> = groups(&agent.runtime, &gated)
                .iter()
                .map(ToString::to_string)
                .collect();
            found.sort();
            found.retain(|group| group != "/other" && group != "/theirs");
            let expected = [
                "/batch",
                "/system.slice/backup.service",
                "/user.slice/user-1000.slice/session-1.scope",
            ];
            assert_eq!(found, expected, "{kind:?}");
        }
    }

    #[test]
    fn a_work_keeps_its_number_and_is_told_again_with_other_terms() {
        let mut works = Works::default();
        let work = of_group(&path("/batch"));
        assert_eq!(works.introduce(work.clone()), 1);
        assert_eq!(works.introduce(of_group(&path("/other"))), 2);
        assert_eq!(works.take_changed().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(works.introduce(work.clone()), 1);
        assert_eq!(works.take_changed().count(), 0);
        let side = Work {
            class: "side".to_owned(),
            ..work
        };
        assert_eq!(works.introduce(side), 1);
        assert_eq!(works.take_changed().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn works_that_ended_long_ago_are_forgotten() {
        let mut works = Works::default();
        works.introduce(of_group(&path("/batch")));
        for poll in 0..10_000 {
            works.polls = poll;
            works.introduce(of_group(&path(&format!("/session-{poll}"))));
            works.introduce(of_group(&path("/batch")));
            works.forget();
        }
        let bound = FORGOTTEN_POLLS as usize + 3;
        assert!(works.known().len() <= bound && works.ids.len() <= bound);
        assert_eq!(
            works.introduce(of_group(&path("/batch"))),
            1,
            "it ran all the time"
        );
        let last = works.introduce(of_group(&path("/session-0")));
        assert_eq!(last, 10_002, "no number is used twice");
    }
}
