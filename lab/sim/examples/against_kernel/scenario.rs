//! The scenarios of `tests/check`: the simulator's own, with the kernels that they run on and what is read of them.
//! The head of `tests/check/fair.toml` tells the three keys that are the check's.

use crate::export;
use tidegate_sim::scenario::{self, Own, ScenarioError, ScenarioErrors, Text};
use tidegate_terms::TimeSpan;

/// The kernels that a scenario may run on.
pub const BEDS: [&str; 3] = ["vm", "host", "ext"];

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

/// Each by its word, as a scenario and the exported lines have it.
pub const WHATS: [(&str, What); 7] = [
    ("share", What::Share),
    ("periods", What::Periods),
    ("throttled", What::Throttled),
    ("bursts", What::Bursts),
    ("latency", What::Latency),
    ("done", What::Done),
    ("duration", What::Duration),
];

/// Of whom it is read: an index into the scenario's groups or workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    Group(usize),
    Workload(usize),
}

impl Whom {
    pub fn index(self) -> usize {
        match self {
            Whom::Group(at) | Whom::Workload(at) => at,
        }
    }
}

/// One figure to read, or one set of percentiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Its row in [`WHATS`].
    pub word: &'static str,
    pub what: What,
    pub whom: Whom,
    pub name: String,
}

/// One scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// As the simulator reads it. Its machine tells how many CPUs the tasks may use and the silo slice; the rest is as the
    /// kernel's machine is.
    pub of: scenario::Scenario,
    pub on: Vec<String>,
    pub reads: Vec<Read>,
    /// The quotas are written again, unchanged, this often.
    pub rewrite_ns: Option<u64>,
}

impl Scenario {
    pub fn cpus(&self) -> u32 {
        self.of.machine.topology.cpus()
    }

    pub fn span_ns(&self) -> u64 {
        self.of.duration_ns - self.of.warmup_ns
    }

    fn new(of: scenario::Scenario, own: &[Own]) -> Result<Scenario, ScenarioError> {
        let mut scenario = Scenario {
            of,
            on: Vec::new(),
            reads: Vec::new(),
            rewrite_ns: None,
        };
        for key in own {
            scenario.take(key).map_err(|(why, mend)| ScenarioError {
                key: format!("{}.{}", scenario.of.name, key.key),
                place: key.place.clone(),
                why,
                mend,
            })?;
        }
        Ok(scenario)
    }

    /// One of the check's own keys; an error is why, and the mend.
    fn take(&mut self, own: &Own) -> Result<(), (String, String)> {
        for text in &own.values {
            match own.key.as_str() {
                "on" if BEDS.contains(&text.as_str()) => self.on.push(text.clone()),
                "on" => return Err((format!("no kernel \"{text}\""), format!("write {BEDS:?}"))),
                "rewrite" => {
                    let every_ns = TimeSpan::parse(text).map_or(0, TimeSpan::ns);
                    self.rewrite_ns = Some(every_ns).filter(|ns| *ns > 0);
                    if self.rewrite_ns.is_none() {
                        let why = format!("\"{text}\" is no time between two writes");
                        return Err((why, "write one as in 10303us".to_owned()));
                    }
                }
                _ => self.reads.push(self.read(text)?),
            }
        }
        Ok(())
    }

    fn read(&self, text: &str) -> Result<Read, (String, String)> {
        let (word, name) = text.split_once(' ').unwrap_or((text, ""));
        let row = WHATS.iter().find(|row| row.0 == word);
        let Some(&(word, what)) = row else {
            let words = WHATS.map(|row| row.0).join(", ");
            return Err((
                format!("nothing to read: \"{word}\""),
                format!("write one of {words}"),
            ));
        };
        let workload = self.of.workloads.iter().position(|w| w.common.name == name);
        let group = self.of.groups.iter().position(|g| g.spec.name == name);
        // A group keeps the counters of its quota, a workload its times; both have a share.
        let whom = match what {
            What::Share => workload.map(Whom::Workload).or(group.map(Whom::Group)),
            What::Periods | What::Throttled | What::Bursts => group.map(Whom::Group),
            What::Latency | What::Done | What::Duration => workload.map(Whom::Workload),
        };
        let whom = whom.ok_or_else(|| {
            let why = format!("there is no {word} of \"{name}\"");
            (why, "name a group or a workload of the scenario".to_owned())
        })?;
        Ok(Read {
            word,
            what,
            whom,
            name: name.to_owned(),
        })
    }
}

/// All scenarios of a file.
pub fn load(path: &str) -> Result<Vec<Scenario>, String> {
    parse(&Text::load(path).map_err(|error| error.to_string())?)
}

/// All scenarios of a text; one that the C program cannot run is refused here, too.
pub fn parse(text: &Text) -> Result<Vec<Scenario>, String> {
    let each = scenario::Scenario::resolve_each(text, &["on", "read", "rewrite"]);
    let each = each.map_err(|errors| errors.to_string())?;
    let mut all = Vec::new();
    for (of, own) in each {
        let scenario = Scenario::new(of, &own);
        let scenario = scenario.map_err(|error| ScenarioErrors(vec![error]).to_string())?;
        export::lines(&scenario)
            .map_err(|why| format!("{}: {}: {why}", text.shown, scenario.of.name))?;
        all.push(scenario);
    }
    Ok(all)
}
