//! `tidegate-lab sim`: a scenario on a simulated machine.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use tidegate_lab::simulated_report;
use tidegate_sim::outcome::Outcome;
use tidegate_sim::run::Stage;
use tidegate_sim::scenario::{BUILTIN, EngineKind, Override, Scenario, Text};
use tidegate_sim::sweep::{self, Sweep};
use tidegate_sim::tracers::{Perfetto, Sink};
use tidegate_sim::{Tracer, registry};

use crate::cmd::{sim_asked, sim_fleet};
use tidegate_api::Exit;
use tidegate_api::cli::Progress;
use tidegate_api::cli::{self, Failure};

const NOTES: &str = "\
A scenario is a TOML file: a machine, groups with their terms, and what runs in
them. docs/scenarios.md explains every key. It needs no privilege and touches
nothing on this machine; the same scenario and seed give the same bytes.

  tidegate-lab sim --list
  tidegate-lab sim web-server-and-encoder --engine cgroup
  tidegate-lab sim web-server-and-encoder --print > web.toml
  tidegate-lab sim web.toml --engine cgroup --sweep engine.headroom=10%,30%";

/// Rehearse a scenario on a simulated machine
#[derive(clap::Args)]
#[command(after_help = NOTES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    instead: Option<Instead>,
    /// A file, or the name of a scenario that comes with tidegate
    #[arg(required_unless_present = "list")]
    scenario: Option<String>,
    /// List the scenarios that come with tidegate, and the policies
    #[arg(long, conflicts_with_all = ["scenario", "json"])]
    list: bool,
    /// Print the scenario's file, as it is, instead of running it
    #[arg(long, conflicts_with_all = ["cpus", "seed", "engine", "policy", "set", "sweep", "trace", "out", "json"])]
    print: bool,
    /// CPUs of the machine
    #[arg(long, value_name = "N")]
    cpus: Option<u32>,
    /// Seed of every random choice
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Who limits side work: none or cgroup
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
    /// cgroup: who decides
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Lay a value over the file, as in group.web.weight=200; repeat for more
    #[arg(long, value_name = "KEY=VALUE", value_parser = Override::from_assignment)]
    set: Vec<Override>,
    /// Run once for each value; several sweeps give every combination
    #[arg(long, value_name = "KEY=A,B,C", value_parser = Sweep::parse)]
    sweep: Vec<Sweep>,
    /// Run this many points of a sweep at a time [default: one a CPU]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Write a trace for ui.perfetto.dev into this file (of a sweep: one file a point)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write the page and JSON into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// No progress on standard error
    #[arg(short, long)]
    quiet: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// What is rehearsed instead of one machine.
#[derive(clap::Subcommand)]
enum Instead {
    Fleet(Box<sim_fleet::Args>),
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    if let Some(Instead::Fleet(args)) = &args.instead {
        return sim_fleet::main(args);
    }
    let Some(asked) = args.scenario.as_ref().filter(|_| !args.list) else {
        return list();
    };
    let usage = |why: String| Failure::new(Exit::Usage, format!("sim: {why}"));
    let text = Text::load(asked).map_err(|error| Failure {
        exit: match Path::new(asked).exists() {
            true => Exit::Usage,
            false => Exit::NoTarget,
        },
        ..usage(error.to_string())
    })?;
    if args.print {
        return cli::print(&text.text);
    }
    if let Some(why) = sim_asked::swept_twice(&args.sweep) {
        return Err(Failure::new(Exit::Usage, why));
    }
    let points = points(args, &text)?;
    refuse_what_is_lost(args, &points)?;
    if let Some(out) = &args.out {
        tidegate_lab::make_folder(out)
            .map_err(|error| Failure::new(Exit::Failure, format!("sim: {error}")))?;
    }
    let outcomes = run_all(args, &points)?;
    let again = again(args, &[]);
    let Some(first) = points.first() else {
        return Ok(Exit::Ok);
    };
    let failed = |error: tidegate_lab::LabError| {
        Failure::new(
            Exit::Failure,
            format!("sim: report: {error}; again: {again}"),
        )
    };
    let mut report = simulated_report::report(&first.scenario, &outcomes, &again);
    if let Some(out) = &args.out {
        report.write_files(out).map_err(failed)?;
    }
    let shown = if args.json {
        report.to_json()
    } else {
        report.to_text()
    };
    cli::print(&format!("{}\n", shown.trim_end()))
}

fn refuse_what_is_lost(args: &Args, points: &[Point]) -> Result<(), Failure> {
    let mut typed = overrides(args);
    typed.extend(points.iter().flat_map(|point| point.overrides.clone()));
    let engines: Vec<EngineKind> = points.iter().map(|one| one.scenario.engine.kind).collect();
    let mut refused = sim_asked::unread(&typed, &engines);
    // The points of a sweep write files of their own names.
    if points.len() == 1 {
        let asked = args.scenario.as_deref().unwrap_or_default();
        let lost = sim_asked::overwritten(asked, args.trace.as_deref());
        refused.extend(lost.map(|why| format!("sim: {why}")));
    }
    if refused.is_empty() {
        Ok(())
    } else {
        Err(Failure::new(Exit::Usage, refused.join("\n")))
    }
}

fn list() -> Result<Exit, Failure> {
    let mut text = String::from("Scenarios:\n");
    let width = BUILTIN.iter().map(|one| one.name.len()).max().unwrap_or(0);
    for builtin in BUILTIN {
        let resolved = Text::load(builtin.name)
            .ok()
            .and_then(|text| Scenario::resolve(&text, &[]).ok());
        let about = resolved.map(|scenario| scenario.about).unwrap_or_default();
        text += &format!("  {:width$}  {about}\n", builtin.name);
    }
    text += "\nPolicies of the engine cgroup (--policy):\n";
    let width = registry::policies()
        .map(|one| one.name.len())
        .max()
        .unwrap_or(0);
    for policy in registry::policies() {
        text += &format!("  {:width$}  {}\n", policy.name, policy.about);
    }
    cli::print(&text)
}

struct Point {
    scenario: Scenario,
    /// What the sweep lays over the file for it.
    overrides: Vec<Override>,
    /// The command that repeats it.
    again: String,
    /// From 1, when there are several.
    number: Option<usize>,
}

/// What flags lay over the file, each under the name of the flag that was typed.
fn overrides(args: &Args) -> Vec<Override> {
    let mut all = args.set.clone();
    let mut flag = |flag: &str, key: &str, value: Option<String>| {
        if let Some(value) = value {
            let flag = format!("{flag} {value}");
            all.push(Override {
                flag,
                ..Override::new(key, &value)
            });
        }
    };
    flag("--cpus", "machine.cpus", args.cpus.map(|n| n.to_string()));
    flag("--seed", "seed", args.seed.map(|n| n.to_string()));
    flag("--engine", "engine.name", args.engine.clone());
    flag("--policy", "engine.policy", args.policy.clone());
    all
}

/// Every point of the sweeps, resolved before any of them runs.
fn points(args: &Args, text: &Text) -> Result<Vec<Point>, Failure> {
    let all = sweep::points(&args.sweep);
    let several = all.len() > 1;
    let mut points = Vec::new();
    let mut problems: Vec<String> = Vec::new();
    for (index, point) in all.into_iter().enumerate() {
        let mut laid = overrides(args);
        laid.extend(point.iter().cloned());
        match Scenario::resolve(text, &laid) {
            Ok(scenario) => points.push(Point {
                scenario,
                again: again(args, &point),
                overrides: point,
                number: several.then_some(index + 1),
            }),
            Err(errors) => {
                let said = errors.0.iter().map(ToString::to_string);
                problems.extend(
                    said.filter(|line| !problems.contains(line))
                        .collect::<Vec<_>>(),
                );
            }
        }
    }
    if problems.is_empty() {
        Ok(points)
    } else {
        Err(Failure::new(Exit::Usage, problems.join("\n")))
    }
}

/// The command that repeats a run: of the whole sweep without a point, of one point with its
/// values. What does not change the figures is left out.
fn again(args: &Args, point: &[Override]) -> String {
    let mut line = String::from("tidegate-lab sim");
    let mut add = |words: &str| {
        line.push(' ');
        line.push_str(words);
    };
    add(&word(args.scenario.as_deref().unwrap_or_default()));
    for one in overrides(args).iter().chain(point) {
        // A flag is a name, a space and a value.
        let (name, value) = one.flag.split_once(' ').unwrap_or((&one.flag, ""));
        add(&format!("{name} {}", word(value)));
    }
    if point.is_empty() {
        for sweep in &args.sweep {
            let text = format!("{}={}", sweep.key, sweep.values.join(","));
            add(&format!("--sweep {}", word(&text)));
        }
    }
    line
}

/// A word as a shell takes it.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=,%:+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

fn run_all(args: &Args, points: &[Point]) -> Result<Vec<Outcome>, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let total_ns: u64 = points.iter().map(|point| point.scenario.duration_ns).sum();
    let progress = Progress::new("sim", total_ns, args.quiet || args.json);
    let results = sweep::parallel(args.jobs.unwrap_or(cores), points.len(), |at| {
        run_one(args, &points[at], &progress)
    });
    progress.finish();
    let mut outcomes = Vec::new();
    let mut failures = Vec::new();
    for (point, result) in points.iter().zip(results) {
        match result {
            Ok(outcome) => outcomes.push(outcome),
            Err(why) => failures.push(format!(
                "sim: {}: {why}; again: {}",
                point.scenario.name, point.again
            )),
        }
    }
    if failures.is_empty() {
        Ok(outcomes)
    } else {
        Err(Failure::new(Exit::Failure, failures.join("\n")))
    }
}

fn run_one(args: &Args, point: &Point, progress: &Progress) -> Result<Outcome, String> {
    let scenario = &point.scenario;
    let stage = Stage::new(scenario).map_err(|error| error.to_string())?;
    let mut tracers: Vec<Box<dyn Tracer>> = Vec::new();
    let mut trace = None;
    if let Some(file) = &args.trace {
        let (path, sink) = open(file, point.number)?;
        let cpus = scenario.machine.topology.cpus();
        let perfetto = Perfetto::new(sink.clone(), &stage.names, cpus, &point.again);
        tracers.push(Box::new(perfetto.clone()));
        trace = Some((perfetto, path, sink));
    }
    let mut done_ns = 0;
    let mut step = |now_ns: u64| {
        progress.done(now_ns - done_ns);
        done_ns = now_ns;
        true
    };
    let ran = stage.run(scenario, tracers, &mut step);
    // What was written up to a failure is what one wants to look at: closed in either case.
    if let Some((perfetto, path, sink)) = &trace {
        perfetto.finish(ran.is_ok().then_some(scenario.duration_ns));
        sink.close().map_err(|error| unwritable(path, &error))?;
    }
    let mut outcome = ran.map_err(|error| error.to_string())?;
    outcome.point = point.overrides.clone();
    Ok(outcome)
}

/// `run.json` for one run, `run.3.json` for the third point of a sweep.
fn open(path: &Path, number: Option<usize>) -> Result<(PathBuf, Sink), String> {
    let path = match number {
        None => path.to_owned(),
        Some(number) => {
            let extension = path
                .extension()
                .map(|ext| ext.to_string_lossy().into_owned());
            let ending = match extension {
                Some(extension) => format!("{number}.{extension}"),
                None => number.to_string(),
            };
            path.with_extension(ending)
        }
    };
    let file = File::create(&path).map_err(|error| unwritable(&path, &error))?;
    Ok((path, Sink::new(Box::new(BufWriter::new(file)))))
}

fn unwritable(path: &Path, error: &std::io::Error) -> String {
    format!(
        "{}: cannot be written: {error}; choose another place",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(word("group.web.headroom=30%"), "group.web.headroom=30%");
        assert_eq!(word("a b"), "'a b'");
        assert_eq!(word("it's"), r"'it'\''s'");
        assert_eq!(word(""), "''");
    }
}
