//! `[workload.NAME]`: the keys that every workload has; those of its kind are read by the kind
//! itself.

use serde::Deserialize;
use serde::de::Deserializer;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::document::{Document, join, refused, tables};
use super::groups::{self, Group, GroupRef};
use super::patterns::OpenLoopKeys;
use super::{EngineKind, ScenarioError};
use crate::cpuset::CpuSet;
use crate::ids::GroupId;
use crate::spec::Policy;
use crate::values::{self, any_time, count, cpu_list, level, share, some_time};
use crate::workloads::{ClosedLoop, Common, Cyclictest, Frames, Hog, Kind};

#[derive(Clone, Debug)]
pub struct Workload {
    /// What its tasks have in common. The group, the warm-up and the seed are filled in when the
    /// machine is built.
    pub common: Common,
    pub group: GroupRef,
    /// The latency hint of its tasks, −20..=19, which the engine `cgroup` turns into a slice.
    pub hint: i8,
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
[cyclictest]
interval = "1ms"
work = "0s"
"#;

/// The keys that are not the kind's own.
const COMMON: &[&str] = &[
    "group", "policy", "nice", "slice", "latency", "cpus", "start", "end",
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
    Cyclictest(Cyclictest),
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

/// The workloads of the text, in groups that are read already.
pub(super) fn read<'t>(
    document: &Document<'t>,
    tree: &mut DeTable<'t>,
    groups: &[Group],
    engine: EngineKind,
    cpus: u32,
) -> Result<Vec<Workload>, ScenarioError> {
    // A text of our own.
    let defaults = DeTable::parse(DEFAULTS)
        .map(Spanned::into_inner)
        .unwrap_or_default();
    let mut workloads = Vec::new();
    for (name, table) in tables(tree, "workload")? {
        let path = join("workload", &name);
        let span = table.span();
        let mut own = table.into_inner();
        let common = COMMON.iter().filter_map(|key| own.remove_entry(*key));
        let common = Spanned::new(span.clone(), common.collect());
        let common: CommonKeys = document.read(&path, common)?;
        let kind = own.remove_entry("kind");
        let kind = kind.map(|(key, of)| (key, of.get_ref().as_str().map(str::to_owned)));
        let Some((kind, Some(of))) = kind else {
            return refused(&path, "kind is missing; add kind = \"open-loop\"");
        };
        if let Some(DeValue::Table(defaults)) = defaults.get(of.as_str()).map(Spanned::get_ref) {
            for (key, value) in defaults.iter() {
                if !own.contains_key(key) {
                    own.insert(key.clone(), value.clone());
                }
            }
        }
        for (_, value) in own.iter_mut() {
            let text = value.get_ref().as_str();
            if let Some(count) = text.and_then(|text| values::of_cpus(text, cpus)) {
                *value.get_mut() = DeValue::String(count.to_string().into());
            }
        }
        join_shapes(&mut own);
        let own = Spanned::new(span.clone(), DeValue::Table(own));
        let tagged = [(Spanned::new(kind.span(), of.into()), own)];
        let tagged = Spanned::new(span, tagged.into_iter().collect());
        let kind: KindKeys = document.read(&path, tagged)?;
        let group = groups::find(groups, &join(&path, "group"), common.group.as_deref())?;
        if let Some(cpu_list) = &common.cpus {
            groups::check_cpus(&join(&path, "cpus"), cpu_list, groups, group, cpus)?;
        }
        if let Some((key, why)) = mistake(&common, &kind, engine) {
            return refused(&join(&path, key), why);
        }
        workloads.push(Workload {
            common: Common {
                policy: common.policy.unwrap_or(Policy::Normal),
                nice: common.nice,
                slice_ns: common.slice,
                cpus: common.cpus,
                start_ns: common.start,
                end_ns: common.end,
                ..Common::new(&name, GroupId::ROOT)
            },
            group,
            hint: common.latency,
            kind: kind.resolve(&path, cpus)?,
        });
    }
    match workloads.is_empty() {
        true => refused("workload", "is missing; add one, as in [workload.web]"),
        false => Ok(workloads),
    }
}

/// Keys that do not go together.
fn mistake(
    keys: &CommonKeys,
    kind: &KindKeys,
    engine: EngineKind,
) -> Option<(&'static str, &'static str)> {
    // The tasks of other kinds wait for each other.
    let can_end = matches!(
        kind,
        KindKeys::OpenLoop(_) | KindKeys::ClosedLoop(_) | KindKeys::Hog(_)
    );
    if keys.latency != 0
        && let Some(why) = engine.no_hints()
    {
        return Some(("latency", why));
    }
    match (keys.end, kind) {
        (Some(_), _) if !can_end => Some(("end", "means nothing to this kind; leave it out")),
        (Some(end), _) if end <= keys.start => Some((
            "end",
            "is not after its start; make it later, or start earlier",
        )),
        (_, KindKeys::Hog(hog)) if hog.period.is_some() && hog.busy.is_none() => {
            Some(("period", "means nothing without busy; add busy = \"30%\""))
        }
        _ => None,
    }
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

impl KindKeys {
    fn resolve(self, path: &str, cpus: u32) -> Result<Kind, ScenarioError> {
        Ok(match self {
            KindKeys::OpenLoop(keys) => Kind::OpenLoop(keys.resolve(path, cpus)?),
            KindKeys::ClosedLoop(kind) => Kind::ClosedLoop(kind),
            KindKeys::Hog(keys) => Kind::Hog(keys.resolve()),
            KindKeys::Frames(kind) => Kind::Frames(kind),
            KindKeys::Cyclictest(kind) => Kind::Cyclictest(kind),
        })
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
