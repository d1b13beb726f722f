//! A recording's demand and an arm's terms as the text of a scenario. It is read as every scenario
//! is: what `--scenario` writes is what was simulated.

use std::fmt::Write;

use tidegate_cgroup::subgroups::Per;
use tidegate_engine::limit::caps_for_each;
use tidegate_recording::Recording;
use tidegate_terms::{Class, Objective, Share, Source, Term, Terms, combine};

use crate::replay::arm::{Arm, Unnamed};
use crate::replay::demand::{Demand, ROUND_US, Wants, WorkDemand};
use crate::replay::rule::quoted;

/// Before the recording begins, its first second is played for so long: side work starts at the
/// tolerance.
pub const WARMUP_SECONDS: usize = 3;

/// What the simulator simulates in reasonable time, in requests of one run.
const REQUESTS_MAX: f64 = 20e6;
/// The longest request that it is made of then.
const REQUEST_US_MAX: f64 = 20_000.0;

/// A scenario's text, with the names of its groups.
#[derive(Clone, Debug)]
pub struct Written {
    pub text: String,
    /// The group of each of the arm's nodes.
    pub groups: Vec<String>,
    /// The workloads of each of the demand's works.
    pub workloads: Vec<Vec<String>>,
    /// The nodes whose tasks count as main.
    pub is_main: Vec<bool>,
    /// The topmost nodes of class side.
    pub side_tops: Vec<usize>,
    /// What the arm asks for that a scenario cannot have, in sentences.
    pub notes: Vec<String>,
}

/// A name for a group or workload: 1 to 40 letters, digits, - and _, and no other's.
fn unique_name(wanted: &str, taken: &[String]) -> String {
    let last = wanted.rsplit('/').next().unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = last.chars().map(plain).take(34).collect();
    let name = name.trim_matches('-');
    let name = if name.is_empty() { "work" } else { name };
    let is_taken =
        |name: &String| taken.contains(name) || name == "tidegate-side" || name == "root";
    let mut candidate = name.to_owned();
    let mut nth = 1;
    while is_taken(&candidate) {
        nth += 1;
        candidate = format!("{name}-{nth}");
    }
    candidate
}

pub fn write(recording: &Recording, demand: &Demand, arm: &Arm) -> Written {
    let mut written = Written {
        text: String::new(),
        groups: Vec::new(),
        workloads: Vec::new(),
        is_main: Vec::new(),
        side_tops: Vec::new(),
        notes: Vec::new(),
    };
    for node in &arm.nodes {
        let name = unique_name(&node.name, &written.groups);
        written.groups.push(name);
    }
    let class_of_parent = |at: usize| arm.nodes[at].parent.map(|parent| arm.class_of(parent));
    written.side_tops = (0..arm.nodes.len())
        .filter(|at| arm.class_of(*at) == Class::Side && class_of_parent(*at) != Some(Class::Side))
        .collect();
    let has_main = (0..arm.nodes.len()).any(|at| arm.class_of(at) == Class::Main);
    written.is_main = (0..arm.nodes.len())
        .map(|at| match has_main {
            true => arm.class_of(at) == Class::Main,
            // Anything unclassified counts as main.
            false => arm.class_of(at) != Class::Side,
        })
        .collect();
    write_top(&mut written.text, recording, demand, arm);
    written.write_engine(recording, arm);
    for at in 0..arm.nodes.len() {
        written.write_group(arm, at, has_main);
    }
    let coarser = coarser(demand);
    if coarser > 1.0 {
        written.notes.push(format!(
            "Requests are {coarser:.0} times as long as recorded, up to 20 ms each, so that the simulation ends in time: waits are coarser for it."
        ));
    }
    for (at, work) in demand.works.iter().enumerate() {
        let group = arm.node_of(at).map(|node| written.groups[node].clone());
        let names = write_work(
            &mut written.text,
            work,
            &group.unwrap_or_default(),
            demand.seconds,
            coarser,
        );
        written.workloads.push(names);
    }
    written
}

/// How many times as long requests are made.
fn coarser(demand: &Demand) -> f64 {
    let requests = demand.works.iter().map(|work| {
        let (cpus, request_us) = work.requests();
        cpus.iter().sum::<f64>() * 1e6 / request_us
    });
    (requests.sum::<f64>() / REQUESTS_MAX).max(1.0)
}

fn write_top(text: &mut String, recording: &Recording, demand: &Demand, arm: &Arm) {
    let machine = &recording.machine;
    let cpus = machine.cpus.clamp(1, 1024);
    let threads = machine.threads_per_core;
    let _ = writeln!(
        text,
        "about = {}",
        quoted(&format!("recorded demand under {}", arm.name))
    );
    let seconds = demand.seconds + WARMUP_SECONDS;
    let _ = writeln!(
        text,
        "duration = \"{seconds}s\"\nwarmup = \"{WARMUP_SECONDS}s\"\nwindow = \"1s\"\n\n[machine]\ncpus = {cpus}"
    );
    if (2..=8).contains(&threads) && cpus.is_multiple_of(threads) {
        let _ = writeln!(text, "threads_per_core = {threads}");
    }
    // What was recorded is CPU time as the machine was, with the neighbours that it had.
    let _ = writeln!(text, "contention = \"none\"");
}

fn share(ppm: u32) -> String {
    Share::from_ppm(ppm).unwrap_or(Share::WHOLE).to_string()
}

impl Written {
    /// Headroom, tolerance and sensing, by the rule that the agent has for several gates.
    fn write_engine(&mut self, recording: &Recording, arm: &Arm) {
        let text = &mut self.text;
        let _ = writeln!(text, "\n[engine]\nname = \"cgroup\"");
        if recording.machine.sensing == "usage" {
            let _ = writeln!(text, "sense = \"usage\"");
        }
        let has_any_main = self.is_main.iter().any(|is_main| *is_main);
        if self.side_tops.is_empty() || !has_any_main {
            return;
        }
        let gates = || arm.nodes.iter().filter_map(|node| node.terms.as_ref());
        let named = gates().filter_map(|terms| terms.headroom.value.ppm());
        let headroom = combine::headroom(named, |ppm| *ppm);
        let tolerances = gates().filter(|terms| !terms.tolerance.is_default());
        let tolerances = tolerances.map(|terms| terms.tolerance.value);
        let tolerance = combine::tolerance(tolerances, |tolerance| tolerance.ppm());
        let searches = objective(arm).is_some();
        match (headroom, arm.unnamed) {
            (None, Unnamed::Default { .. }) if searches => {}
            (Some(ppm), _) | (None, Unnamed::Recorded { ppm } | Unnamed::Default { ppm }) => {
                let _ = writeln!(text, "headroom = \"{}\"", share(ppm));
            }
        }
        if let Some(tolerance) = tolerance {
            let _ = writeln!(self.text, "tolerance = \"{tolerance}\"");
        }
        self.note_objective(arm);
    }

    fn note_objective(&mut self, arm: &Arm) {
        let values = arm.nodes.iter().filter_map(|node| node.terms.as_ref());
        let is_reported =
            |terms: &Terms| matches!(terms.objective.value, Objective::Reported { .. });
        if values.clone().any(is_reported) {
            self.notes.push(format!(
                "{}: an objective of what is reported from outside cannot be simulated and is left out.",
                arm.name
            ));
        }
    }

    fn write_group(&mut self, arm: &Arm, at: usize, has_main: bool) {
        let node = &arm.nodes[at];
        let text = &mut self.text;
        let _ = writeln!(text, "\n# {}", node.name.escape_debug());
        let _ = writeln!(text, "[group.{}]", self.groups[at]);
        if let Some(parent) = node.parent {
            let _ = writeln!(text, "parent = \"{}\"", self.groups[parent]);
        }
        let own = node.terms.as_ref().map(|terms| terms.class.value);
        let class = match own {
            // A group without main gates beside it is main's, so that there is one to keep headroom
            // for.
            None | Some(Class::Neutral) if !has_main && self.is_main[at] => Class::Main,
            other => other.unwrap_or_default(),
        };
        let _ = writeln!(text, "class = \"{class}\"");
        let is_first_main = (0..at).all(|before| !self.is_main[before]);
        if let Some(objective) = objective(arm)
            && self.is_main[at]
            && is_first_main
            && !self.side_tops.is_empty()
        {
            let _ = writeln!(text, "objective = \"{objective}\"");
        }
        if let Some(terms) = &node.terms {
            let has_caps = match caps_for_each(terms) {
                Some((Per::Process, ..)) | Some((Per::Task, _, Some(_))) => {
                    self.notes.push(format!(
                        "{}: {}: a cap for each process, or a soft one for each task, cannot be \
                         simulated and is left out.",
                        arm.name, node.name
                    ));
                    false
                }
                _ => true,
            };
            write_terms(text, terms, has_caps);
        }
    }
}

/// The objective that counts of all gates'; the headroom that was recorded was found for it
/// already.
fn objective(arm: &Arm) -> Option<Objective> {
    if matches!(arm.unnamed, Unnamed::Recorded { .. }) {
        return None;
    }
    let values = arm.nodes.iter().filter_map(|node| node.terms.as_ref());
    let delays = values.filter_map(|terms| match terms.objective.value {
        Objective::Delay { late_ppm, span } => Some((span.ns(), late_ppm, terms.objective.value)),
        _ => None,
    });
    combine::objective(delays, |one| (one.0, one.1)).map(|one| one.2)
}

/// The terms that the engine's table does not have already, as they would be set.
fn write_terms(text: &mut String, terms: &Terms, has_caps: bool) {
    const ELSEWHERE: [Term; 6] = [
        Term::Class,
        Term::Headroom,
        Term::Tolerance,
        Term::Objective,
        Term::LatencyInherit,
        Term::Fallback,
    ];
    for view in terms.views() {
        let is_here = !ELSEWHERE.iter().any(|term| term.name() == view.name);
        let is_here = is_here && (has_caps || !view.name.starts_with("cap_"));
        if is_here && view.source != Source::Default {
            let _ = writeln!(text, "{} = \"{}\"", view.name, view.value);
        }
    }
}

/// A work's workloads; their names.
fn write_work(
    text: &mut String,
    work: &WorkDemand,
    group: &str,
    seconds: usize,
    coarser: f64,
) -> Vec<String> {
    let mut names = Vec::new();
    let (cpus, request_us) = work.requests();
    let request_us = (request_us * coarser).min(REQUEST_US_MAX.max(request_us));
    if write_requests(text, &cpus, group, request_us) {
        names.push(group.to_owned());
    }
    let Wants::More {
        tasks,
        spans,
        pause_us,
        ..
    } = &work.wants
    else {
        return names;
    };
    let kind = match *pause_us > 0.0 {
        true => format!(
            "kind = \"closed-loop\"\ngroup = \"{group}\"\nclients = {tasks}\nwork = \"{ROUND_US:.0}us\"\nthink = \"{pause_us:.0}us\""
        ),
        false => format!("kind = \"hog\"\ngroup = \"{group}\"\ntasks = {tasks}"),
    };
    for (nth, (from, to)) in spans.iter().enumerate() {
        let name = match (spans.len(), names.is_empty()) {
            (1, true) => group.to_owned(),
            _ => format!("{group}_{}", nth + 1),
        };
        let _ = writeln!(text, "\n[workload.{name}]\n{kind}");
        if *from > 0 {
            let _ = writeln!(text, "start = \"{}s\"", from + WARMUP_SECONDS);
        }
        if *to < seconds {
            let _ = writeln!(text, "end = \"{}s\"", to + WARMUP_SECONDS);
        }
        names.push(name);
    }
    names
}

/// An open loop whose rate follows what was used: a step a second. False where that is nothing.
fn write_requests(text: &mut String, cpus: &[f64], group: &str, request_us: f64) -> bool {
    let peak_cpus = cpus.iter().copied().fold(0.0, f64::max);
    // The language has no higher one: 1024 CPUs of the shortest requests are twice that.
    let rate = (peak_cpus * 1e6 / request_us).min(1e7);
    if rate < 0.001 {
        return false;
    }
    // To a thousandth of the peak, so that equal seconds are one step.
    let steps: Vec<u32> = cpus
        .iter()
        .map(|cpus| (cpus / peak_cpus * 1e3).round() as u32)
        .collect();
    let mut points = Vec::new();
    let mut last = None;
    for (nth, step) in steps.iter().enumerate() {
        let at_ms = (nth + WARMUP_SECONDS) * 1_000;
        let text_of = |ms: usize, step: u32| format!("[\"{ms}ms\", \"{}\"]", share(step * 1_000));
        match last {
            None => points.push(text_of(0, *step)),
            Some(before) if before != *step => {
                points.push(text_of(at_ms - 1, before));
                points.push(text_of(at_ms, *step));
            }
            Some(_) => {}
        }
        last = Some(*step);
    }
    // Enough threads for twice what was ever used: of how many there were, nothing is known.
    let workers = (peak_cpus * 2.0).ceil() as u32 + 1;
    let _ = writeln!(
        text,
        "\n[workload.{group}]\nkind = \"open-loop\"\ngroup = \"{group}\"\nworkers = {workers}\n\
         work = \"{}ns\"\nwork_shape = \"exponential\"\nrate = \"{rate:.3}/s\"\narrivals = \"curve\"\npoints = [{}]",
        (request_us * 1e3).round() as u64,
        points.join(", ")
    );
    true
}
