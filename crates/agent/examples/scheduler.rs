//! The sched_ext engine's scheduler by itself, without an agent: the virtual machine's tests drive
//! it, so that their figures are the scheduler's alone. It prints its statistics as JSON and gives
//! all tasks back at SIGINT.
//!
//! ```text
//! scheduler [--gate 'cgroup:/PATH TERM=VALUE ...']... [--json] [--audit] [--cost] [--caches N]
//! scheduler --verify CPUS,CACHES
//! ```
//!
//! `--json`: a line each second, not only the last.
//! `--audit`: `miscounted` says how many members of run queues do not exist or are not counted (not
//! exact while tasks wake up). `--cost`: the kernel counts what callbacks cost. `--caches`: the
//! CPUs are dealt out to so many last-level caches. `--verify`: the kernel checks the programs for
//! a machine of so many CPUs, two to a core, and none runs.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use serde::Serialize;
use tidegate_agent::sched_ext::machine;
use tidegate_cgroup::RealFs;
use tidegate_cgroup::discover;
use tidegate_sched_ext::{
    CapStat, CapTerms, CpuPlace, CpuStats, GateStat, GateTerms, Kind, LimitStat, Machine, Options,
    ProgramCost, SchedExt, SchedulerEnd, Stats,
};
use tidegate_terms::{Class, Config, RawTerms, Source, Terms};

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("scheduler: {why}");
            ExitCode::FAILURE
        }
    }
}

/// What was typed.
#[derive(clap::Parser)]
struct Args {
    #[arg(long = "gate")]
    gates: Vec<String>,
    #[arg(long)]
    json: bool,
    #[arg(long)]
    audit: bool,
    #[arg(long)]
    cost: bool,
    #[arg(long)]
    caches: Option<u32>,
    #[arg(long)]
    verify: Option<String>,
}

fn run() -> Result<(), Failure> {
    let args = Args::parse();
    if let Some(text) = &args.verify {
        return verify(text);
    }
    let signals = Signals::block();
    let _counted = args.cost.then(tidegate_sched_ext::count_cost).transpose()?;
    let mut options = machine::options(&RealFs::new(), args.caches)?;
    // As the agent does where no gate names one.
    let by_default = Config::default().settings().default_headroom.value;
    options.headroom_ppm = by_default.ppm().unwrap_or(0);
    let mut names = BTreeMap::new();
    let mut sched_ext = load(&options, &args.gates, &mut names)?;
    let began = Instant::now();
    loop {
        let asked = signals.wait(Duration::from_secs(1));
        let (stats, ended) = (sched_ext.stats()?, sched_ext.ended()?);
        if args.json || asked || ended.is_some() {
            let miscounted = (args.audit && ended.is_none())
                .then(|| sched_ext.audit())
                .transpose()?;
            let uptime = began.elapsed();
            println!(
                "{}",
                line(uptime, &names, &stats, ended.as_ref(), miscounted)?
            );
        }
        if let Some(ended) = ended {
            return Err(ejected(&ended));
        }
        if asked {
            break;
        }
    }
    match sched_ext.unload()? {
        Some(ended) if !ended.is_ours() => Err(ejected(&ended)),
        _ => Ok(()),
    }
}

fn ejected(ended: &SchedulerEnd) -> Failure {
    eprintln!("{}", ended.dump);
    format!("the scheduler was ejected: {ended}").into()
}

fn verify(text: &str) -> Result<(), Failure> {
    let (cpus, caches) = text.split_once(',').ok_or("no CPUS,CACHES, as in 64,4")?;
    let (cpus, caches): (u32, u32) = (cpus.parse()?, caches.parse()?);
    let each = cpus.div_ceil(caches.max(1)).max(1);
    let place = |cpu| CpuPlace {
        cpu,
        core: cpu / 2,
        llc: cpu / each,
    };
    let machine = Machine::new(cpus, &(0..cpus).map(place).collect::<Vec<_>>())?;
    for program in tidegate_sched_ext::verify(&Options::new(machine))? {
        println!("{:22}{:>8}", program.name, program.verified_insns);
    }
    Ok(())
}

/// What this program honours of a gate's terms.
const HONOURED: [&str; 8] = [
    "class",
    "headroom",
    "tolerance",
    "latency",
    "cap",
    "cap_hard",
    "cap_soft",
    "cap_scope",
];

/// Gates are set before any task is under it: side work is not main for a moment.
fn load(
    options: &Options,
    gates: &[String],
    names: &mut BTreeMap<u64, String>,
) -> Result<SchedExt, Failure> {
    let mount = discover::discover(&RealFs::new(), None)?.cpu.mount;
    let mut sched_ext = SchedExt::prepare(options)?;
    for gate in gates {
        let (target, terms) = gate.split_once(' ').unwrap_or((gate, ""));
        let terms = gate_terms(terms)?;
        let path = target.strip_prefix("cgroup:/").ok_or("no cgroup:/")?;
        let id = std::fs::metadata(mount.join(path))?.ino();
        names.insert(id, format!("/{path}"));
        sched_ext.set_gate(id, &terms)?;
    }
    sched_ext.attach()?;
    Ok(sched_ext)
}

fn gate_terms(text: &str) -> Result<GateTerms, Failure> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let asked = RawTerms::from_assignments(&words, &Source::Set)?;
    let honoured = |name: &String| HONOURED.contains(&name.as_str());
    if let Some(name) = asked.0.keys().find(|name| !honoured(name)) {
        return Err(format!("{name}: this program does not honour it").into());
    }
    let terms = Config::default().resolve(&[&asked])?;
    let says = |name: &str| asked.0.contains_key(name);
    let kind = match terms.class.value {
        Class::Side => Kind::Side,
        _ => Kind::Main,
    };
    Ok(GateTerms {
        hint: says("latency").then(|| i32::from(terms.latency.value.hint())),
        kind: says("class").then_some(kind),
        headroom_ppm: terms.headroom.value.ppm(),
        tolerance_ppm: says("tolerance").then(|| terms.tolerance.value.ppm()),
        cap: cap(&terms),
        idle_is_mirror: false,
    })
}

fn cap(terms: &Terms) -> Option<CapTerms> {
    let cap = CapTerms {
        hard_ppt: terms.cap_hard.value.ppt(),
        soft_ppt: terms.cap_soft.value.ppt(),
        scope: terms.cap_scope.value,
    };
    (cap.hard_ppt.is_some() || cap.soft_ppt.is_some()).then_some(cap)
}

#[derive(Serialize)]
struct Line<'a> {
    uptime_s: f64,
    ended: Option<&'a SchedulerEnd>,
    total: &'a CpuStats,
    limits: &'a [LimitStat],
    limits_refused: u32,
    caps: &'a [CapStat],
    gates: Vec<GateLine<'a>>,
    programs: &'a [ProgramCost],
    #[serde(skip_serializing_if = "Option::is_none")]
    miscounted: Option<u32>,
}

/// A gate with its group's name.
#[derive(Serialize)]
struct GateLine<'a> {
    group: &'a str,
    #[serde(flatten)]
    stat: &'a GateStat,
}

fn line(
    uptime: Duration,
    names: &BTreeMap<u64, String>,
    stats: &Stats,
    ended: Option<&SchedulerEnd>,
    miscounted: Option<u32>,
) -> serde_json::Result<String> {
    let gates = stats.gates.iter().map(|stat| GateLine {
        group: names.get(&stat.cgroup_id).map_or("", String::as_str),
        stat,
    });
    serde_json::to_string(&Line {
        uptime_s: uptime.as_secs_f64(),
        ended,
        total: &stats.total,
        limits: &stats.limits,
        limits_refused: stats.limits_refused,
        caps: &stats.caps,
        gates: gates.collect(),
        programs: &stats.programs,
        miscounted,
    })
}

/// Signals that ask for the end, held back so that the scheduler is always taken out in order.
struct Signals(libc::sigset_t);

impl Signals {
    fn block() -> Signals {
        // SAFETY: the set is initialised by sigemptyset before it is read, and lives on the stack
        // of this call alone.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGINT, libc::SIGTERM] {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            Signals(set)
        }
    }

    /// Waits for one of them; false: the time is over.
    fn wait(&self, span: Duration) -> bool {
        let timeout = libc::timespec {
            tv_sec: span.as_secs() as libc::time_t,
            tv_nsec: span.subsec_nanos() as libc::c_long,
        };
        // SAFETY: both pointers are to values that live for the call; no information is asked for.
        unsafe { libc::sigtimedwait(&self.0, std::ptr::null_mut(), &timeout) > 0 }
    }
}
