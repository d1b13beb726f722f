//! `tidegate lab`: the experiments.

use std::path::PathBuf;

use tidegate_lab::{Engine, Experiment, LabError, LabOptions, On, Report, Sense};

use crate::exit::{self, Exit, Failure};
use crate::render;

const NOTES: &str = "\
Experiments, on this machine, on a stock kernel in virtual time (--on vm), or
simulated (--on sim):
  law       main constant at 30 to 80 % of the machine: what side work gets and
            what stays idle, beside the table of the cpu.headroom patches
            (2019); and varying main
  headroom  main's latency at several loads, with side work placed as people
            start it, in ways the kernel offers, and by Tidegate
  step      main steps from 10 to 80 % of the machine: how soon side work gives
            way, beside published control laws
  latency   latency hints: cyclictest beside hackbench, hackbench itself, and
            what others keep of their shares
  burst     a quota with burst under a load that exceeds it now and then
  caps      rate caps: how exact, how smooth and at what cost, beside
            cpulimit's law; how soon soft caps yield
  slices    a small quota on 80 CPUs: slices that expire and that do not
            (--on sim); the ext engine on eight (--on vm --engine ext)
  all       every one that can run there
  demo      main's latency and the side work done, alone, with side work as
            people start it, with cpu.idle and under Tidegate: measured here,
            then simulated on 64 CPUs; one screen and two pictures, in about
            80 seconds
Simulated only:
  objective headroom that is found from main's run delay, beside asked for
  inversion main waits for a lock that throttled side work holds
With --on vm and on a host whose kernel has sched_ext:
  peers     ordinary work (hackbench, schbench, cyclictest, stress-ng, a shell)
            under the kernel's own scheduler, the ext engine, and scx_lavd,
            scx_bpfland, scx_layered and scx_cosmos, which --on vm builds with
            cargo into its cache (apt-get install clang-19 rt-tests stress-ng
            libelf-dev zlib1g-dev libseccomp-dev); not a part of all
Not with --on vm: headroom and step, which one emulated CPU cannot show; but
these two with --engine ext, which compares Tidegate's own scheduler with the
kernel's and with the knobs, on a kernel that has sched_ext or on the bed's.

Each prints a table and writes a page (HTML), CSV and JSON. With --json an
experiment prints one object; all and demo print one array of them. The
simulator needs no privilege and touches nothing on this machine; the same seed
gives the same bytes. --on vm boots the newest stock kernel of a series under
qemu (apt-get install qemu-system-x86 busybox-static binutils): one CPU on which
an instruction is a nanosecond, so that figures are exact whatever else runs
here.";

/// Measure on this machine what Tidegate does
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Args {
    /// law, headroom, step, latency, burst, caps, slices, objective, inversion, peers, all or demo
    #[arg(value_parser = parse_what)]
    experiment: What,
    /// Where: host, vm or sim
    #[arg(long, value_name = "WHERE", default_value = "host")]
    on: On,
    /// Which engine: knobs, or ext (Tidegate's own scheduler in the kernel, with the kernel's own and the knobs beside it)
    #[arg(long, value_name = "ENGINE", default_value = "knobs")]
    engine: Engine,
    /// Under a minute: shorter windows, fewer rounds
    #[arg(long)]
    quick: bool,
    /// Repeat each arm this often
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Write the page, CSV and JSON into this folder [default: ./tidegate-lab]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// headroom: a shell command as main instead of the built-in server
    #[arg(long, value_name = "COMMAND")]
    main_cmd: Option<String>,
    /// headroom: a shell command as side work instead of ffmpeg or the burner
    #[arg(long, value_name = "COMMAND")]
    side_cmd: Option<String>,
    /// headroom: load levels, where 1.0 is 25 % of the machine
    #[arg(long, value_name = "L,L,...", value_delimiter = ',')]
    loads: Option<Vec<f64>>,
    /// The sensor of Tidegate's arms: bpf or usage
    #[arg(long, value_name = "HOW")]
    sense: Option<Sense>,
    /// Seed of every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// peers: only the kernel's own scheduler and the ext engine
    #[arg(long)]
    without_peers: bool,
    /// peers: schbench by Chris Mason, which no distribution has [default: as found on the PATH]
    #[arg(long, value_name = "PROGRAM")]
    schbench: Option<PathBuf>,
    /// sim: sizes of the simulated machine [default: the experiment's own]; peers --on vm: CPUs of the guest [default: 1]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    cpus: Option<Vec<u32>>,
    /// sim: simulate on this many threads [default: one a CPU]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// vm: the kernel's series [default: 6.18]
    #[arg(long, value_name = "SERIES")]
    kernel: Option<String>,
    /// Write the whole report too, for the host of this guest
    #[arg(long, hide = true)]
    serialise: bool,
    /// No progress on standard error
    #[arg(short, long)]
    quiet: bool,
    /// Print the report as JSON: an object; an array of them for all and demo
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug)]
enum What {
    One(Experiment),
    All,
    Demo,
}

fn parse_what(text: &str) -> Result<What, String> {
    match text {
        "all" => Ok(What::All),
        "demo" => Ok(What::Demo),
        _ => text.parse().map(What::One),
    }
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    match args.experiment {
        What::One(experiment) => {
            let report =
                perform(args, experiment, args.on).map_err(|error| failure(experiment, &error))?;
            show(args, &report)
        }
        What::All => all(args),
        What::Demo => demo(args),
    }
}

/// Every experiment that can run there; one that fails is told and the others still run.
fn all(args: &Args) -> Result<Exit, Failure> {
    let mut reports: Vec<Report> = Vec::new();
    let mut failed = Vec::new();
    for experiment in Experiment::all_on(args.on, args.engine) {
        match perform(args, experiment, args.on) {
            Ok(report) => {
                if !args.json {
                    show(args, &report)?;
                }
                reports.push(report);
            }
            Err(error @ LabError::Interrupted) => {
                return Err(Failure::new(Exit::Failure, said(experiment, &error)));
            }
            Err(error) => {
                exit::report(&said(experiment, &error));
                failed.push(experiment.name());
            }
        }
    }
    render::print(&if args.json {
        tidegate_lab::to_json_array(&reports) + "\n"
    } else {
        format!("\n{}", tidegate_lab::headlines(&reports))
    })?;
    if failed.is_empty() {
        return Ok(Exit::Ok);
    }
    let why = format!("lab: all: {} failed; see above", failed.join(", "));
    Err(Failure::new(Exit::Failure, why))
}

/// Four ways of placing side work, here and simulated, on one screen.
fn demo(args: &Args) -> Result<Exit, Failure> {
    let fixed = [
        ("--engine", args.engine != Engine::Knobs),
        ("--on", args.on != On::Host),
        ("--loads", args.loads.is_some()),
        ("--cpus", args.cpus.is_some()),
        ("--main-cmd", args.main_cmd.is_some()),
    ];
    if let Some((option, _)) = fixed.iter().find(|(_, given)| *given) {
        let why = format!(
            "lab: demo: {option}: its comparison is always the same; give an experiment, or all"
        );
        return Err(Failure::new(Exit::Usage, why));
    }
    // The simulated machine has the experiment's name in its commands.
    let options = options(args, Experiment::Headroom, On::Host);
    let demo = tidegate_lab::demo::run(&options).map_err(|error| {
        let exit = exit_of(&error);
        Failure::new(exit, format!("lab: demo: {error}"))
    })?;
    render::print(&if args.json {
        tidegate_lab::to_json_array(&demo.reports) + "\n"
    } else {
        format!("\n{}", demo.to_text())
    })
}

fn perform(args: &Args, experiment: Experiment, on: On) -> Result<Report, LabError> {
    tidegate_lab::run(&options(args, experiment, on))
}

fn said(experiment: Experiment, error: &LabError) -> String {
    format!("lab: {}: {error}", experiment.name())
}

fn failure(experiment: Experiment, error: &LabError) -> Failure {
    Failure::new(exit_of(error), said(experiment, error))
}

/// What this machine or this user lacks, and what was asked wrongly, have exit codes of their own.
fn exit_of(error: &LabError) -> Exit {
    match error {
        LabError::Needs { .. } => Exit::Refused,
        LabError::Bed(trouble) if trouble.is_lacking() => Exit::Refused,
        LabError::Asked { .. } => Exit::Usage,
        _ => Exit::Failure,
    }
}

fn show(args: &Args, report: &Report) -> Result<Exit, Failure> {
    let text = if args.json {
        report.to_json()
    } else {
        report.to_text()
    };
    render::print(&format!("{}\n", text.trim_end()))
}

fn options(args: &Args, experiment: Experiment, on: On) -> LabOptions {
    let mut options = LabOptions::new(experiment);
    options.on = on;
    options.engine = args.engine;
    options.without_peers = args.without_peers;
    options.schbench = args.schbench.clone();
    options.cpus = args.cpus.clone();
    options.jobs = args.jobs;
    options.kernel = args.kernel.clone();
    options.serialise = args.serialise;
    options.quick = args.quick;
    options.rounds = args.rounds;
    options.out = args.out.clone();
    options.main_cmd = args.main_cmd.clone();
    options.side_cmd = args.side_cmd.clone();
    options.loads = args.loads.clone();
    options.sense = args.sense;
    options.seed = args.seed;
    options.quiet = args.quiet;
    options
}
