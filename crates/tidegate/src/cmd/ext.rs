//! `tidegate ext`: the scheduler in the foreground.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use serde::Serialize;
use tidegate_ext::{
    CapStat, CpuStats, Ended, Ext, ExtError, GateStat, GateTerms, HeadroomStats, LimitStat,
    Machine, Options, ProgramCost, RestStat, Stats,
};

use crate::exit::{Exit, Failure};
use crate::ext_options::{self, Gate, Task};
use crate::render;
use crate::render::ext::{Names, table};
use crate::signals::Signals;

const NOTES: &str = "\
Puts every ordinary task of this machine under Tidegate's own scheduler, until
Ctrl-C, SIGTERM or the end of --seconds; then, and also if this process is
killed or the scheduler fails, the kernel's own scheduler takes them back. It
honours cpu.weight, cpu.idle and cpu.max of all groups, nice levels, and the
gates' terms. Needs root and a kernel with sched_ext (tidegate doctor tells):
6.18 and 7.3 are tested; from 6.12 on it should work, by the kernel's sources
(for cpu.max from 6.17 on).

  sudo tidegate ext
  sudo tidegate ext --gate 'cgroup:/web latency=-10' --gate 'cgroup:/batch class=side'
  sudo tidegate ext --task '4711 cap_hard=200‰'

On a terminal it shows each second, for every gate: CPUs used; how often its
tasks woke, and how long half of them and 99 % of them waited to run at most
(P50, P99); the periods in which its quota was used up; and how many of its
tasks a cap held back, on average. A task counts for the nearest gate above it.
If no gate names a headroom, 20% is kept while there is side work.

--json prints one object a line, one line a second; docs/ext.md says what its
fields mean. Once nobody reads what it prints (tidegate ext --json | head), it
ends as with Ctrl-C.";

/// Some thirty years; a clock need not have what is beyond.
const SECONDS_MOST: u64 = 1_000_000_000;

/// Run the machine's tasks under Tidegate's own scheduler, in the foreground
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Args {
    /// What the scheduler takes over: full, all ordinary tasks (side, only side work, is refused with the reason)
    #[arg(long, value_name = "MODE", default_value = "full", value_parser = ["full", "side"])]
    mode: String,
    /// For tests: take over only tasks of SCHED_EXT, which is what a side mode would be
    #[arg(long, hide = true)]
    partial: bool,
    /// Ask something of a group and all below it; repeat for more
    #[arg(long, value_name = "cgroup:/PATH TERMS", value_parser = Gate::parse)]
    gate: Vec<Gate>,
    /// Cap one task (a thread, by its number) and all that it forks; repeat for more
    #[arg(long, value_name = "PID TERMS", value_parser = Task::parse)]
    task: Vec<Task>,
    /// End after so many seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=SECONDS_MOST))]
    seconds: Option<u64>,
    /// For tests: deal the CPUs out to so many last-level caches
    #[arg(long, value_name = "N", hide = true)]
    caches: Option<u32>,
    /// Have the kernel count what the scheduler's callbacks cost
    #[arg(long)]
    cost: bool,
    /// Have the kernel check the scheduler's programs, say what it walked, and run none of them
    #[arg(long, conflicts_with_all = ["gate", "task", "seconds", "cost"])]
    verify: bool,
    /// For tests: verify for a machine of so many CPUs, two to a core, and last-level caches
    #[arg(long, value_name = "CPUS,CACHES", hide = true, requires = "verify", value_parser = ext_options::machine)]
    machine: Option<Machine>,
    /// Print statistics as JSON, one object a line, each second
    #[arg(long)]
    json: bool,
}

impl Args {
    fn mode(&self) -> &'static str {
        if self.partial { "partial" } else { "full" }
    }
}

/// A line of `--json`. Its fields, and those of what is in it, are told in docs/ext.md.
#[derive(Serialize)]
struct Line<'a> {
    uptime_s: f64,
    mode: &'a str,
    state: &'static str,
    ended: Option<&'a Ended>,
    total: &'a CpuStats,
    limits: &'a [LimitStat],
    limits_refused: u32,
    headroom: Option<&'a HeadroomStats>,
    caps: &'a [CapStat],
    gates: Vec<GateLine<'a>>,
    rest: &'a RestStat,
    programs: &'a [ProgramCost],
}

/// The line of `--verify --json`.
#[derive(Serialize)]
struct Verified {
    programs: Vec<ProgramCost>,
}

/// A gate with its group's name.
#[derive(Serialize)]
struct GateLine<'a> {
    group: &'a str,
    #[serde(flatten)]
    stat: &'a GateStat,
}

impl<'a> Line<'a> {
    fn of(shown: &'a Shown<'_>, stats: &'a Stats, ended: Option<&'a Ended>) -> Line<'a> {
        let name = |stat: &GateStat| shown.names.get(&stat.cgroup_id).map_or("", String::as_str);
        let gates = stats.gates.iter().map(|stat| GateLine {
            group: name(stat),
            stat,
        });
        Line {
            uptime_s: shown.began.elapsed().as_secs_f64(),
            mode: shown.args.mode(),
            state: if ended.is_some() {
                "ejected"
            } else {
                "enabled"
            },
            ended,
            total: &stats.total,
            limits: &stats.limits,
            limits_refused: stats.limits_refused,
            headroom: stats.headroom.as_ref(),
            caps: &stats.caps,
            gates: gates.collect(),
            rest: &stats.rest,
            programs: &stats.programs,
        }
    }
}

/// What `--mode side` is answered.
const NO_SIDE_MODE: &str = "ext: --mode side: refused: while side work waits in the kernel's run queues, the kernel's own scheduler \
    takes their CPUs for busy: main's tasks queue beside idle CPUs, and one that wants all CPUs loses at least a whole one \
    (measured: docs/ext.md); use --mode full, or knobs (tidegate run --side)";

pub fn main(args: &Args) -> Result<Exit, Failure> {
    if args.mode == "side" {
        return Err(Failure::new(Exit::Refused, NO_SIDE_MODE.to_owned()));
    }
    if args.verify {
        return verified(args);
    }
    let signals = Signals::block();
    let mut names = Names::new();
    let mut gates = Vec::new();
    for gate in &args.gate {
        let id = gate.cgroup_id()?;
        names.insert(id, format!("/{}", gate.path.display()));
        gates.push((id, gate.terms));
    }
    for task in &args.task {
        task.exists()?;
    }
    let _counted = args.cost.then(tidegate_ext::count_cost).transpose()?;
    let mut options = ext_options::options(args.caches)?;
    options.partial = args.partial;
    for gate in &args.gate {
        let name = format!("cgroup:/{}", gate.path.display());
        tidegate_ext::feasible(&name, &gate.terms, options.machine.cpus(), gate.tasks()?)?;
    }
    let mut ext = load(&options, &gates)?;
    for task in &args.task {
        ext.set_task_cap(task.pid, Some(&task.cap))?;
    }
    let mut shown = Shown::begin(args, names, ext.stats()?)?;
    let until = args
        .seconds
        .map(|seconds| shown.began + Duration::from_secs(seconds));
    loop {
        let second = Instant::now() + Duration::from_secs(1);
        let next = until.map_or(second, |until| until.min(second));
        let asked = signals.wait_until(next)
            || until.is_some_and(|until| Instant::now() >= until)
            || !render::is_read();
        if let Some(ended) = ext.ended()? {
            let failure = ejected(&ended);
            // Why it ended is told also where nothing else can be.
            let _ = ext.stats().map(|stats| shown.next(stats, Some(&ended)));
            return Err(failure);
        }
        shown.next(ext.stats()?, None)?;
        if asked {
            break;
        }
    }
    match ext.unload()? {
        // Between the last look and now.
        Some(ended) if !ended.is_ours() => {
            let failure = ejected(&ended);
            let _ = shown.found_ejected(&ended);
            Err(failure)
        }
        ended => shown.end(ended.as_ref()),
    }
}

fn load(options: &Options, gates: &[(u64, GateTerms)]) -> Result<Ext, ExtError> {
    let mut ext = Ext::prepare(options)?;
    // Before any task is under it: side work is not main for a moment.
    for (id, terms) in gates {
        ext.set_gate(*id, terms)?;
    }
    ext.attach()?;
    Ok(ext)
}

/// The verifier's figures alone.
fn verified(args: &Args) -> Result<Exit, Failure> {
    let mut options = ext_options::options(args.caches)?;
    if let Some(machine) = &args.machine {
        options = Options::new(machine.clone());
    }
    let programs = tidegate_ext::verify(&options)?;
    if args.json {
        return render::json_line(&Verified { programs });
    }
    let lines = programs
        .iter()
        .map(|program| format!("{:22}{:>8}\n", program.name, program.verified_insns));
    render::print(&lines.collect::<String>())
}

/// The kernel's report of an ejection goes to standard error, the cause into the message.
fn ejected(ended: &Ended) -> Failure {
    if !ended.dump.is_empty() {
        // Nobody is left to tell when standard error is closed.
        let _ = writeln!(std::io::stderr(), "{}", ended.dump);
    }
    let exit = if ended.is_failure() {
        Exit::Failure
    } else {
        Exit::Refused
    };
    Failure::new(
        exit,
        format!("ext: the scheduler was ejected: {ended}; the kernel's own runs, see docs/ext.md"),
    )
}

impl From<ExtError> for Failure {
    fn from(error: ExtError) -> Failure {
        let exit = match error {
            ExtError::Unsupported { .. } | ExtError::Taken { .. } | ExtError::NotRoot => {
                Exit::Refused
            }
            _ => Exit::Failure,
        };
        Failure::new(exit, format!("ext: {error}"))
    }
}

/// Statistics as they are shown: a table that is written over on a terminal, JSON, or the beginning and the end.
struct Shown<'a> {
    args: &'a Args,
    live: bool,
    names: Names,
    began: Instant,
    first: Stats,
    last: Stats,
    at: Instant,
    /// Lines on the terminal that the next table is written over.
    lines: usize,
}

impl<'a> Shown<'a> {
    fn begin(args: &'a Args, names: Names, stats: Stats) -> Result<Shown<'a>, Failure> {
        if !args.json {
            let programs = stats.programs.len();
            let insns: u64 = stats
                .programs
                .iter()
                .map(|p| u64::from(p.verified_insns))
                .sum();
            render::print(&format!(
                "sched_ext: enabled, {} mode, {programs} programs, {insns} instructions verified\n",
                args.mode()
            ))?;
        }
        Ok(Shown {
            args,
            live: std::io::stdout().is_terminal() && !args.json,
            names,
            began: Instant::now(),
            first: stats.clone(),
            last: stats,
            at: Instant::now(),
            lines: 0,
        })
    }

    fn next(&mut self, stats: Stats, ended: Option<&Ended>) -> Result<(), Failure> {
        if self.args.json {
            render::json_line(&Line::of(self, &stats, ended))?;
        } else if self.live {
            let mut text = self.rates(&stats.total);
            text.push_str(&table(&stats, &self.last, self.at.elapsed(), &self.names));
            text.push_str(&below(&stats));
            render::write_over(self.lines, &text)?;
            self.lines = text.lines().count();
        }
        self.last = stats;
        self.at = Instant::now();
        Ok(())
    }

    /// It was gone before it was taken out: the last counts once more, with the cause.
    fn found_ejected(&self, ended: &Ended) -> Result<(), Failure> {
        if self.args.json {
            render::json_line(&Line::of(self, &self.last, Some(ended)))?;
        }
        Ok(())
    }

    fn rates(&self, now: &CpuStats) -> String {
        let span_s = self.at.elapsed().as_secs_f64().max(1e-3);
        let before = &self.last.total;
        let rate = |now: u64, before: u64| (now.saturating_sub(before)) as f64 / span_s;
        format!(
            "main {} side {} CPUs, {:.0} runs/s, {:.0} direct, {:.0} queued, {:.0} preempting\n",
            render::cpus(rate(now.main_ns, before.main_ns) / 1e9),
            render::cpus(rate(now.side_ns, before.side_ns) / 1e9),
            rate(now.runs, before.runs),
            rate(now.direct, before.direct),
            rate(now.queued, before.queued),
            rate(now.preempted, before.preempted),
        )
    }

    /// The whole time in short.
    fn end(&self, ended: Option<&Ended>) -> Result<Exit, Failure> {
        if self.args.json {
            return Ok(Exit::Ok);
        }
        let span = self.began.elapsed();
        let total = &self.last.total;
        let how = ended.map_or_else(String::new, |ended| format!(" ({})", ended.reason));
        let mut text = format!(
            "sched_ext: disabled after {}{how}: {} runs, {} direct, {} queued, {} preempting, {} kept\n",
            render::span(span.as_secs_f64()),
            total.runs,
            total.direct,
            total.queued,
            total.preempted,
            total.kept,
        );
        text.push_str(&table(&self.last, &self.first, span, &self.names));
        text.push_str(&below(&self.last));
        if self.args.cost {
            text.push_str(&render::ext::cost(&self.last.programs, span));
        }
        render::print(&text)
    }
}

/// What stands below the table.
fn below(stats: &Stats) -> String {
    let mut text = render::ext::quotas(stats) + &render::ext::caps(stats);
    if let Some(headroom) = &stats.headroom {
        text.push_str(&render::ext::headroom(headroom));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_verifier_says_is_one_object_on_one_line() {
        let program = ProgramCost {
            name: "tick".to_owned(),
            verified_insns: 203,
            runs: 0,
            run_ns: 0,
        };
        let programs = vec![program];
        let line = serde_json::to_string(&Verified { programs }).unwrap();
        let whole = r#"{"programs":[{"name":"tick","verified_insns":203,"runs":0,"run_ns":0}]}"#;
        assert_eq!(line, whole);
    }
}
