//! `cargo xtask shared-lines`: which cache lines the kernel moves between CPUs at a task switch, under each scheduler.
//!
//! A guest of several CPUs in virtual time runs pairs of threads that wake each other, and programs that do much the same,
//! while a plugin of the emulator (`plugin.c`) follows who has each line, as if every CPU had a cache without end: an access
//! to a line that another CPU has written since, or a write to one that others have, is a move. What is emulated takes no
//! time for it, so the figures say how much there is to wait for on a real machine, not how long.

mod report;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tidegate_vm::catalog::DEFAULT_SERIES;
use tidegate_vm::{Job, Mode, tool};

use crate::vm;

const HELP: &str = "\
usage: cargo xtask shared-lines [OPTIONS]

Boots a stock kernel on several emulated CPUs and counts which cache lines it moves between them at a task switch: under its
own scheduler, under the ext engine, and under those of sched_ext that `tidegate lab peers` has built.

  --kernel SERIES     6.18 (the default) or another
  --cpus N            2 to 8 (4 by default): threads of a core first, then cores of a socket, from the fifth on both sockets
  --ms N              the guest's time for each load (50 by default)
  --scheduler PATH    this scheduler (crates/agent/examples/scheduler.rs) instead of building it
  --load WORDS        this load instead of all: `pairs N`, or a program and its arguments; may be given again
  --without-peers     only the kernel's own scheduler and the ext engine
  --all               where the kernel's time goes and what it moves for each load, not only for the last

Exit code 0 done, 1 failed, 2 usage.";

const LOADS: [&str; 6] = [
    "pairs 1",
    "pairs 2",
    "pairs 4",
    "pairs 8",
    "hackbench -g 1 -p -T -l 100000000",
    "stress-ng --switch 4 --timeout 600",
];
const PEERS: [&str; 2] = ["scx_cosmos", "scx_bpfland"];
const WORK: &str = "shared-lines";
/// A turn of the bed's CPUs is 10 us, in which a CPU would switch more than once; with this timer it is shorter.
const SHORT_TURNS: [&str; 4] = [
    "-netdev",
    "hubport,hubid=1,id=short-turns",
    "-object",
    "filter-buffer,id=short-turn,netdev=short-turns,interval=2",
];

struct Options {
    series: String,
    cpus: u32,
    ms: u32,
    scheduler: Option<PathBuf>,
    loads: Vec<String>,
    has_peers: bool,
    is_all: bool,
}

/// `cargo xtask shared-lines ARGUMENTS`.
pub fn main(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|word| word == "--help") {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let options = match parse(arguments) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("tidegate: xtask shared-lines: {why:#}");
            return ExitCode::from(2);
        }
    };
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    match run(&repository, &options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("tidegate: shared-lines: {why:#}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> anyhow::Result<Options> {
    let mut options = Options {
        series: DEFAULT_SERIES.into(),
        cpus: 4,
        ms: 50,
        scheduler: None,
        loads: Vec::new(),
        has_peers: true,
        is_all: false,
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word}: no value"));
        match word.as_str() {
            "--kernel" => options.series.clone_from(value()?),
            "--cpus" => options.cpus = number(word, value()?)?,
            "--ms" => options.ms = number(word, value()?)?,
            "--scheduler" => options.scheduler = Some(value()?.into()),
            "--load" => options.loads.push(value()?.clone()),
            "--without-peers" => options.has_peers = false,
            "--all" => options.is_all = true,
            _ => bail!("{word}: no such option; see `cargo xtask shared-lines --help`"),
        }
    }
    ensure!(
        (2..=8).contains(&options.cpus),
        "--cpus {}: give 2 to 8",
        options.cpus
    );
    if options.loads.is_empty() {
        options.loads = LOADS.map(str::to_owned).to_vec();
    }
    Ok(options)
}

fn number(option: &str, value: &str) -> anyhow::Result<u32> {
    let found = value.parse();
    found.with_context(|| format!("{option} {value}: give a whole number"))
}

fn run(repository: &Path, options: &Options) -> anyhow::Result<()> {
    let bed = format!("{WORK}/{}-{}", options.series, options.cpus);
    let work = repository.join("target").join(&bed);
    std::fs::create_dir_all(&work)?;
    let plugin = compiled(repository, &work, "plugin", &["-shared", "-fPIC"])?;
    let guest = compiled(repository, &work, "guest", &["-static", "-pthread"])?;
    let counted = work.join("counted");
    let loads = work.join("loads");
    std::fs::write(&loads, options.loads.join("\n") + "\n")?;
    let mut setup = vm::setup(repository, &bed, &options.series);
    setup.scripts = None;
    setup.binaries = vec![("bin/lines".into(), guest)];
    let scheduler = match &options.scheduler {
        Some(path) => path.clone(),
        None => vm::guest_programs(repository, "dev")?.remove(1).1,
    };
    setup.binaries.push(("bin/tidegate".into(), scheduler));
    for program in ["hackbench", "stress-ng"] {
        setup
            .binaries
            .push((format!("bin/{program}"), tool(program)?));
    }
    let mut schedulers = vec!["tidegate"];
    for name in PEERS.into_iter().filter(|_| options.has_peers) {
        match peer(&setup.cache, name) {
            Some(file) => {
                setup.binaries.push((format!("bin/{name}"), file));
                schedulers.push(name);
            }
            None => println!("{name} is not built; `tidegate lab peers` does"),
        }
    }
    let mut emulator = SHORT_TURNS.map(str::to_owned).to_vec();
    emulator.push("-plugin".into());
    emulator.push(format!("{},out={}", plugin.display(), counted.display()));
    let job = Job {
        setup,
        mode: Mode::Wide,
        emulator,
        idle_polls: false,
        cpus: options.cpus,
        command: ["sh", "/vm/shared-lines.sh"].map(str::to_owned).to_vec(),
        environment: vec![
            ("SCHEDULERS".into(), schedulers.join(" ")),
            ("LOADS".into(), "/vm/loads".into()),
            ("COUNT_MS".into(), options.ms.to_string()),
        ],
        files: vec![
            (
                "vm/shared-lines.sh".into(),
                repository.join("xtask/src/shared_lines/guest.sh"),
            ),
            ("vm/loads".into(), loads),
        ],
        limit_s: 1000,
        wall_limit: Duration::from_secs(3 * 3600),
    };
    let done = job.run(&mut |line| eprintln!("vm: {line}"))?;
    ensure!(
        done.status == 0,
        "the guest's script ended with {}",
        done.status
    );
    println!(
        "{}, {} CPUs, {} ms each\n",
        done.kernel, options.cpus, options.ms
    );
    report::print(&done, &counted, options.is_all)
}

fn compiled(repository: &Path, work: &Path, name: &str, how: &[&str]) -> anyhow::Result<PathBuf> {
    let to = work.join(name);
    let source = repository.join(format!("xtask/src/shared_lines/{name}.c"));
    let status = Command::new(tool("cc")?)
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden"])
        .args(how)
        .arg("-o")
        .arg(&to)
        .arg(&source)
        .status()?;
    ensure!(status.success(), "{} does not compile", source.display());
    // The emulator takes a name without a slash for a library of the system.
    Ok(to.canonicalize()?)
}

/// The scheduler as `tidegate lab peers` builds it, whatever its version.
fn peer(cache: &Path, name: &str) -> Option<PathBuf> {
    let folders = std::fs::read_dir(cache.join("peers")).ok()?;
    let mut found: Vec<PathBuf> = folders
        .flatten()
        .map(|folder| folder.path().join("bin").join(name))
        .filter(|file| file.is_file())
        .collect();
    found.sort();
    found.pop()
}
