//! `[workload.NAME]`: the keys that every workload has; those of its kind are read by the kind
//! itself.

use serde::Deserialize;
use serde::de::Deserializer;
use tidegate_engine::limit::caps_for_each;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Held;
use super::document::{Findings, join};
use super::groups::{self, Group, GroupRef};
use super::patterns::OpenLoopKeys;
use crate::cpuset::CpuSet;
use crate::ids::GroupId;
use crate::spec::Policy;
use crate::values::{self, any_time, count, cpu_list, level, share, some_time, truth};
use crate::workloads::{
    ClosedLoop, Common, Cyclictest, Fibtest, ForkStorm, Frames, Hackbench, Hog, Kind,
};

#[derive(Clone, Debug)]
pub struct Workload {
    /// What its tasks have in common. The group, the warm-up and the seed are filled in when the
    /// machine is built.
    pub common: Common,
    pub group: GroupRef,
    pub kind: Kind,
}

/// The values of keys that a workload leaves out, by its kind.
const DEFAULTS: &str = r#"
[open-loop]
workers = "2*cpus"
work = "1ms"
work_shape = "uniform"
[closed-loop]
clients = "cpus"
work = "1ms"
work_shape = "uniform"
think = "10ms"
think_shape = "exponential"
[hog]
tasks = "cpus"
[frames]
workers = "cpus"
work = "8ms"
work_shape = "uniform"
serial = "1ms"
serial_shape = "fixed"
[hackbench]
groups = 1
pairs = 20
loops = 100
message = "1us"
capacity = 655
[cyclictest]
threads = "cpus"
interval = "1ms"
distance = "500us"
pinned = false
work = "0s"
[fibtest]
threads = "cpus"
fast = 1
chunk = "500us"
work = "1us"
sleep = "10ms"
[fork-storm]
parents = 1
children = 1000
work = "1ms"
work_shape = "exponential"
"#;

/// The keys that are not the kind's own.
const COMMON: &[&str] = &[
    "group",
    "policy",
    "nice",
    "slice",
    "latency",
    "latency_inherit",
    "cpus",
    "start",
    "end",
];

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CommonKeys {
    group: Option<String>,
    #[serde(deserialize_with = "policy")]
    policy: Option<Policy>,
    #[serde(deserialize_with = "level")]
    nice: i8,
    #[serde(deserialize_with = "values::slice")]
    slice: Option<u64>,
    #[serde(deserialize_with = "level")]
    latency: i8,
    #[serde(deserialize_with = "truth")]
    latency_inherit: Option<bool>,
    #[serde(deserialize_with = "cpu_list")]
    cpus: Option<CpuSet>,
    #[serde(deserialize_with = "any_time")]
    start: u64,
    #[serde(deserialize_with = "some_time")]
    end: Option<u64>,
}

fn policy<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Policy>, D::Error> {
    values::by(from, "normal or idle", |text| match text {
        "normal" => Ok(Policy::Normal),
        "idle" => Ok(Policy::Idle),
        _ => Err("is no policy".into()),
    })
}

/// The keys of each kind: the kind itself, where each of its keys stands for itself.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum KindKeys {
    OpenLoop(OpenLoopKeys),
    ClosedLoop(ClosedLoop),
    Hog(HogKeys),
    Frames(Frames),
    Hackbench(Hackbench),
    Cyclictest(Cyclictest),
    Fibtest(Fibtest),
    ForkStorm(ForkStorm),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HogKeys {
    #[serde(deserialize_with = "count")]
    tasks: u32,
    #[serde(default, deserialize_with = "share")]
    busy: Option<u32>,
    #[serde(default, deserialize_with = "some_time")]
    period: Option<u64>,
}

/// A workload's keys by its name.
pub(super) struct WorkloadKeys {
    name: String,
    common: CommonKeys,
    kind: KindKeys,
}

/// The keys of each workload; none when one cannot be read.
pub(super) fn read<'t>(
    findings: &Findings<'t>,
    tree: &mut DeTable<'t>,
    cpus: u32,
) -> Option<Vec<WorkloadKeys>> {
    // A text of our own.
    let defaults = DeTable::parse(DEFAULTS)
        .map(Spanned::into_inner)
        .unwrap_or_default();
    let tables = findings.tables(tree, "workload").into_iter();
    let workloads: Vec<Option<WorkloadKeys>> = tables
        .map(|(name, table)| {
            let path = join("workload", &name);
            let span = table.span();
            let mut own = table.into_inner();
            let common: DeTable<'_> = COMMON
                .iter()
                .filter_map(|key| own.remove_entry(*key))
                .collect();
            let common = findings.read(&path, Spanned::new(span.clone(), common));
            let Some((kind, Some(of))) = own
                .remove_entry("kind")
                .map(|(key, of)| (key, of.get_ref().as_str().map(str::to_owned)))
            else {
                findings.refuse(&path, "kind is missing; add kind = \"open-loop\"");
                return None;
            };
            if let Some(DeValue::Table(defaults)) = defaults.get(of.as_str()).map(Spanned::get_ref)
            {
                for (key, value) in defaults.iter() {
                    if !own.contains_key(key) {
                        own.insert(key.clone(), value.clone());
                    }
                }
            }
            for (_, value) in own.iter_mut() {
                let count = value
                    .get_ref()
                    .as_str()
                    .and_then(|text| values::of_cpus(text, cpus));
                if let Some(count) = count {
                    *value.get_mut() = DeValue::String(count.to_string().into());
                }
            }
            join_shapes(&mut own);
            let own = Spanned::new(span.clone(), DeValue::Table(own));
            let tagged = [(Spanned::new(kind.span(), of.into()), own)];
            let kind = findings.read(&path, Spanned::new(span, tagged.into_iter().collect()));
            Some(WorkloadKeys {
                name,
                common: common?,
                kind: kind?,
            })
        })
        .collect();
    workloads.into_iter().collect()
}

/// `work` and `work_shape` become `work = { mean, shape }`, and so do the others of that form.
fn join_shapes(table: &mut DeTable<'_>) {
    let keys = table.keys().map(|key| key.get_ref().to_string());
    let shapes: Vec<String> = keys.filter(|key| key.ends_with("_shape")).collect();
    for key in shapes {
        let mean_key = key.trim_end_matches("_shape").to_owned();
        let (Some(shape), Some(mean)) =
            (table.remove(key.as_str()), table.remove(mean_key.as_str()))
        else {
            continue;
        };
        let span = mean.span();
        let named = |name: &'static str| Spanned::new(span.clone(), name.into());
        let work = [(named("mean"), mean), (named("shape"), shape)];
        let work = DeValue::Table(work.into_iter().collect());
        table.insert(
            Spanned::new(span.clone(), mean_key.into()),
            Spanned::new(span, work),
        );
    }
}

/// What the keys of a workload are resolved against.
pub(super) struct Context<'c> {
    pub(super) groups: &'c [Group],
    pub(super) held: &'c Held<'c>,
    pub(super) findings: &'c Findings<'c>,
    /// CPUs of the machine.
    pub(super) cpus: u32,
}

impl Context<'_> {
    fn group(&self, path: &str, asked: Option<&str>) -> GroupRef {
        let asked = asked?;
        let found = self
            .groups
            .iter()
            .position(|group| group.spec.name == asked);
        if found.is_none() {
            let names = self.groups.iter().map(|group| group.spec.name.clone());
            let why = groups::no_group(asked, &names.collect::<Vec<_>>());
            self.findings.refuse(&join(path, "group"), why);
        }
        found
    }
}

impl WorkloadKeys {
    pub(super) fn resolve(self, context: &Context<'_>) -> Workload {
        let path = join("workload", &self.name);
        let keys = &self.common;
        let group = context.group(&path, keys.group.as_deref());
        let common = Common {
            policy: keys.policy.unwrap_or(Policy::Normal),
            nice: keys.nice,
            latency: keys.latency,
            latency_inherit: keys.latency_inherit.unwrap_or(true),
            slice_ns: keys.slice,
            cpus: keys.cpus,
            start_ns: keys.start,
            end_ns: keys.end,
            ..Common::new(&self.name, GroupId::ROOT)
        };
        if let Some(own) = &common.cpus {
            let (findings, key) = (context.findings, join(&path, "cpus"));
            groups::refuse_no_cpus(&key, own, context.groups, group, findings, context.cpus);
        }
        if keys.latency != 0
            && let Some(why) = context.held.no_hints()
        {
            context.findings.refuse(&join(&path, "latency"), why);
        }
        let has_task_caps = |group: GroupRef| {
            group.is_some_and(|at| caps_for_each(&context.groups[at].terms).is_some())
        };
        if matches!(self.kind, KindKeys::ForkStorm(_)) && has_task_caps(group) {
            let why = "has a cap for each task, and the simulator moves no forks into groups of \
                       their own; write cap_scope = \"group\", or another kind";
            context.findings.refuse(&join(&path, "group"), why);
        }
        for (key, why) in self.mistakes() {
            context.findings.refuse(&join(&path, key), why);
        }
        Workload {
            common,
            group,
            kind: self.kind.resolve(&path, context),
        }
    }

    /// Keys that do not go together.
    fn mistakes(&self) -> Vec<(&'static str, &'static str)> {
        let keys = &self.common;
        let ends = match self.kind {
            KindKeys::OpenLoop(_) | KindKeys::ClosedLoop(_) | KindKeys::Hog(_) => true,
            // Their tasks wait for each other.
            _ => false,
        };
        let mut mistakes = Vec::new();
        if keys.end.is_some() && !ends {
            mistakes.push(("end", "means nothing to this kind; leave it out"));
        }
        if keys.end.is_some_and(|end| end <= keys.start) {
            mistakes.push((
                "end",
                "is not after its start; make it later, or start earlier",
            ));
        }
        if let KindKeys::Hog(hog) = &self.kind
            && hog.period.is_some()
            && hog.busy.is_none()
        {
            mistakes.push(("period", "means nothing without busy; add busy = \"30%\""));
        }
        mistakes
    }
}

impl KindKeys {
    fn resolve(self, path: &str, context: &Context<'_>) -> Kind {
        let cpus = context.cpus;
        match self {
            KindKeys::OpenLoop(keys) => Kind::OpenLoop(keys.resolve(path, context)),
            KindKeys::ClosedLoop(kind) => Kind::ClosedLoop(kind),
            KindKeys::Hog(keys) => Kind::Hog(keys.resolve()),
            KindKeys::Frames(kind) => Kind::Frames(kind),
            KindKeys::Hackbench(kind) => Kind::Hackbench(kind),
            KindKeys::Cyclictest(kind) => {
                if kind.pinned && kind.threads > cpus {
                    let threads = kind.threads;
                    let why = format!("there are more threads ({threads}) than CPUs ({cpus})");
                    context.findings.refuse(&join(path, "pinned"), why);
                }
                Kind::Cyclictest(kind)
            }
            KindKeys::Fibtest(kind) => Kind::Fibtest(Fibtest { cpus, ..kind }),
            KindKeys::ForkStorm(kind) => Kind::ForkStorm(kind),
        }
    }
}

impl HogKeys {
    fn resolve(&self) -> Hog {
        let period_ns = self.period.unwrap_or(10_000_000);
        let busy = self.busy.map(|ppm| {
            // A day · 10^6 is above 2^64; the quotient is at most the period.
            let work_ns = u128::from(period_ns) * u128::from(ppm) / 1_000_000;
            (work_ns.max(1) as u64, period_ns)
        });
        Hog {
            tasks: self.tasks,
            busy,
        }
    }
}
