//! Reads `tests/check/scenarios.txt` and `ext.txt`, whose heads tell their form.

use std::collections::BTreeSet;
use tidegate_sim::{CapScope, Class};

/// A group of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub name: String,
    pub parent: Option<usize>,
    pub weight: u32,
    pub idle: bool,
    pub quota_us: Option<u64>,
    pub period_us: u64,
    pub burst_us: u64,
    /// What it asks of the ext engine.
    pub gate: Gate,
}

/// A group's terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    pub class: Option<Class>,
    pub latency: i8,
    pub headroom_ppm: Option<u32>,
    pub tolerance_ppm: Option<u32>,
    pub cap_hard_ppt: Option<u32>,
    pub cap_soft_ppt: Option<u32>,
    pub cap_scope: Option<CapScope>,
}

impl Gate {
    /// False: no term of a gate.
    fn term(&mut self, key: &str, value: &str) -> Result<bool, String> {
        let percent = || match value.strip_suffix('%') {
            Some(text) => number::<u32>(text).map(|percent| percent * 10_000),
            None => Err(format!("not a percentage: '{value}'")),
        };
        let thousandths = || number(value.strip_suffix('m').unwrap_or("no 'm'"));
        match key {
            "class" => {
                self.class = Some(match value {
                    "main" => Class::Main,
                    "side" => Class::Side,
                    _ => return Err(format!("no such class: '{value}'")),
                });
            }
            "latency" => self.latency = number(value)?,
            "headroom" => self.headroom_ppm = Some(percent()?),
            "tolerance" => self.tolerance_ppm = Some(percent()?),
            "cap_hard" => self.cap_hard_ppt = Some(thousandths()?),
            "cap_soft" => self.cap_soft_ppt = Some(thousandths()?),
            "cap_scope" => {
                self.cap_scope = Some(match value {
                    "group" => CapScope::Group,
                    "process" => CapScope::Process,
                    "task" => CapScope::Task,
                    _ => return Err(format!("no such scope: '{value}'")),
                });
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Hog,
    Sleeper {
        period_us: u64,
        run_us: u64,
        /// What its work becomes, and how long after the start.
        then: Option<(u64, u64)>,
    },
    Messages {
        teams: u32,
        pairs: u32,
        /// 0: for ever.
        loops: u64,
    },
}

/// A task's policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Normal,
    Batch,
    Idle,
}

/// A kind of task in a group, some number of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    pub name: String,
    pub group: usize,
    pub kind: Kind,
    pub count: u32,
    pub nice: i8,
    pub policy: Policy,
    pub slice_us: Option<u64>,
    pub cpu: Option<u32>,
}

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Share,
    Periods,
    Throttled,
    Bursts,
    Latency,
    Done,
    Duration,
}

/// Of whom it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    Group(usize),
    Task(usize),
}

/// One scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    pub name: String,
    pub what: String,
    pub on: BTreeSet<String>,
    pub cpus: u32,
    pub warm_ms: u64,
    pub span_ms: u64,
    pub silo_slice_us: u64,
    pub groups: Vec<Group>,
    pub tasks: Vec<Task>,
    pub reads: Vec<(What, Whom, String)>,
    /// Which group's quota is written again, and how often.
    pub rewrite: Option<(usize, u64)>,
}

impl Scenario {
    fn new(name: &str) -> Scenario {
        Scenario {
            name: name.to_owned(),
            what: String::new(),
            on: BTreeSet::new(),
            cpus: 1,
            warm_ms: 500,
            span_ms: 4_000,
            silo_slice_us: 5_000,
            groups: Vec::new(),
            tasks: Vec::new(),
            reads: Vec::new(),
            rewrite: None,
        }
    }

    fn group(&self, name: &str) -> Result<usize, String> {
        let at = self.groups.iter().position(|group| group.name == name);
        at.ok_or_else(|| format!("no such group: '{name}'"))
    }

    fn line(&mut self, word: &str, rest: &str) -> Result<(), String> {
        let mut words = rest.split_whitespace();
        let first = words.next().unwrap_or_default();
        let pairs = || pairs(rest);
        match word {
            "what" => self.what = rest.to_owned(),
            "on" => self.on = rest.split_whitespace().map(str::to_owned).collect(),
            "cpus" => self.cpus = number(first)?,
            "warm_ms" => self.warm_ms = number(first)?,
            "span_ms" => self.span_ms = number(first)?,
            "silo_slice_us" => self.silo_slice_us = number(first)?,
            "group" => {
                let group = self.read_group(first, &pairs()?)?;
                self.groups.push(group);
            }
            "task" => {
                let task = self.read_task(first, &pairs()?)?;
                self.tasks.push(task);
            }
            "rewrite" => match pairs()?[..] {
                [("every_us", value)] => {
                    self.rewrite = Some((self.group(first)?, number(value)?));
                }
                _ => return Err("rewrite wants every_us=".into()),
            },
            "read" => {
                let name = words.next().unwrap_or_default();
                let what = what(first)?;
                let task = self.tasks.iter().position(|task| task.name == name);
                let whom = match task {
                    Some(task) => Whom::Task(task),
                    None => Whom::Group(self.group(name)?),
                };
                self.reads.push((what, whom, name.to_owned()));
            }
            other => return Err(format!("not understood: '{other}'")),
        }
        Ok(())
    }

    fn read_group(&self, name: &str, pairs: &[(&str, &str)]) -> Result<Group, String> {
        let mut group = Group {
            name: name.to_owned(),
            weight: 100,
            ..Group::default()
        };
        for &(key, value) in pairs {
            match key {
                "parent" => group.parent = Some(self.group(value)?),
                "weight" => group.weight = number(value)?,
                "idle" => group.idle = number::<u32>(value)? != 0,
                "quota_us" => group.quota_us = Some(number(value)?),
                "period_us" => group.period_us = number(value)?,
                "burst_us" => group.burst_us = number(value)?,
                other if group.gate.term(other, value)? => {}
                other => return Err(format!("a group has no '{other}'")),
            }
        }
        Ok(group)
    }

    fn read_task(&self, name: &str, pairs: &[(&str, &str)]) -> Result<Task, String> {
        let get = |key: &str| pairs.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        let wanted = |key: &str| get(key).ok_or_else(|| format!("task {name}: no {key}="));
        const KEYS: [&str; 14] = [
            "group",
            "kind",
            "count",
            "nice",
            "policy",
            "slice_us",
            "cpu",
            "period_us",
            "run_us",
            "then_us",
            "at_ms",
            "teams",
            "pairs",
            "loops",
        ];
        if let Some((key, _)) = pairs.iter().find(|(key, _)| !KEYS.contains(key)) {
            return Err(format!("a task has no '{key}'"));
        }
        let kind = match wanted("kind")? {
            "hog" => Kind::Hog,
            kind @ ("sleeper" | "stepper") => Kind::Sleeper {
                period_us: number(wanted("period_us")?)?,
                run_us: number(wanted("run_us")?)?,
                then: match kind {
                    "stepper" => Some((number(wanted("then_us")?)?, number(wanted("at_ms")?)?)),
                    _ => None,
                },
            },
            "messages" => Kind::Messages {
                teams: number(wanted("teams")?)?,
                pairs: number(wanted("pairs")?)?,
                loops: number(wanted("loops")?)?,
            },
            other => return Err(format!("no such kind: '{other}'")),
        };
        let policy = match get("policy").unwrap_or("normal") {
            "normal" => Policy::Normal,
            "batch" => Policy::Batch,
            "idle" => Policy::Idle,
            other => return Err(format!("no such policy: '{other}'")),
        };
        Ok(Task {
            name: name.to_owned(),
            group: self.group(wanted("group")?)?,
            kind,
            count: get("count").map_or(Ok(1), number)?,
            nice: get("nice").map_or(Ok(0), number)?,
            policy,
            slice_us: get("slice_us").map(number).transpose()?,
            cpu: get("cpu").map(number).transpose()?,
        })
    }
}

fn what(word: &str) -> Result<What, String> {
    Ok(match word {
        "share" => What::Share,
        "periods" => What::Periods,
        "throttled" => What::Throttled,
        "bursts" => What::Bursts,
        "latency" => What::Latency,
        "done" => What::Done,
        "duration" => What::Duration,
        other => return Err(format!("nothing to read: '{other}'")),
    })
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("not a number: '{text}'"))
}

/// The `key=value` words of a line, after its name.
fn pairs(rest: &str) -> Result<Vec<(&str, &str)>, String> {
    let words = rest.split_whitespace().skip(1);
    words
        .map(|word| {
            word.split_once('=')
                .ok_or_else(|| format!("not key=value: '{word}'"))
        })
        .collect()
}

/// All scenarios of a file; an error names its line.
pub fn parse(text: &str) -> Result<Vec<Scenario>, String> {
    let mut all: Vec<Scenario> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        let done = match (word, all.last_mut()) {
            ("scenario", _) => {
                all.push(Scenario::new(rest));
                Ok(())
            }
            (_, Some(scenario)) => scenario.line(word, rest),
            (_, None) => Err("before the first scenario".to_owned()),
        };
        done.map_err(|why| format!("scenarios: line {}: {why}", index + 1))?;
    }
    Ok(all)
}
