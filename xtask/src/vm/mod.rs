//! `cargo xtask vm`: the tests of `tests/vm/cases` in the bed of lab/vm. docs/vm.md tells how to
//! use it.

mod options;

use clap::Parser;
use options::{Kernels, Options, Tier};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidegate_vm::catalog::{SERIES, Userland};
use tidegate_vm::{
    Bed, Case, Mode, Progress, Setup, Suite, Tally, VmError, catalog, fetch, userland,
};

/// So many tests of a lane may have a second try in `make test`.
const AGAIN_MAX: usize = 2;
/// So many tests share a guest. Fewer: more boots, of some 8 s of CPU time each; more: a core is
/// idle for longer in the end.
const LANE_CASES_MAX: usize = 24;
/// The tests that it names have none.
const CONTRACT: &str = "docs/failure-contract.md";

/// The checkout that this was built in; canonical, so that logs and messages show plain paths.
fn repository() -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    repository.canonicalize().unwrap_or(repository)
}

/// The bed of this checkout, with its own work folder below `target`.
fn setup(repository: &Path, work: &str, series: &str) -> Setup {
    Setup {
        cache: cache(repository),
        work: repository.join("target").join(work),
        series: series.into(),
        scripts: Some(repository.join("tests/vm")),
        binaries: Vec::new(),
    }
}

/// `cargo xtask vm ARGUMENTS`.
pub fn main(arguments: &[String]) -> ExitCode {
    let program = std::iter::once("cargo xtask vm");
    let options = Options::parse_from(program.chain(arguments.iter().map(String::as_str)));
    let repository = repository();
    let done = match options.tests.first().map(String::as_str) {
        _ if options.list => list(&repository),
        Some("fetch") => fetch_only(&repository, &options),
        _ => run(&repository, &options),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(trouble) => {
            eprintln!("tidegate: {trouble}");
            ExitCode::from(1)
        }
    }
}

fn cache(repository: &Path) -> PathBuf {
    repository.join(".cache/vm")
}

fn list(repository: &Path) -> Result<u8, VmError> {
    for case in catalog::read(&repository.join("tests/vm/cases"))? {
        let modes: Vec<&str> = case.modes.iter().map(|m| m.name()).collect();
        let kernels = case.kernels.join(" ");
        let modes = modes.join(" ");
        let long = match case.long_on.len() {
            0 => String::new(),
            some if some == SERIES.len() => "long".into(),
            _ => format!("long {}", case.long_on.join(" ")),
        };
        println!(
            "{:28}{modes:14}{kernels:10}{long:10}{}",
            case.name, case.what
        );
    }
    Ok(0)
}

fn fetch_only(repository: &Path, options: &Options) -> Result<u8, VmError> {
    let mut code = 0;
    for series in options.kernel.series() {
        match fetch::kernel(&cache(repository), series, true) {
            Ok(kernel) => {
                let place = kernel.vmlinuz.display();
                println!("{} {} {place}", kernel.package, kernel.version);
                if let Some(note) = kernel.note {
                    println!("note: {note}");
                }
            }
            Err(trouble) => {
                println!("skipped: {trouble}");
                code = 77;
            }
        }
    }
    Ok(code)
}

/// The tests asked for, by name or, where none has that name, by part of it; none named means all.
fn chosen(all: Vec<Case>, names: &[String]) -> Result<Vec<Case>, VmError> {
    let known: BTreeSet<String> = all.iter().map(|case| case.name.clone()).collect();
    let matches = |case: &Case, name: &String| match known.contains(name) {
        true => case.name == *name,
        false => case.name.contains(name.as_str()),
    };
    if let Some(name) = names
        .iter()
        .find(|name| !all.iter().any(|case| matches(case, name)))
    {
        return Err(VmError::new(
            "choose tests",
            name,
            "no test has that in its name",
            "see `cargo xtask vm --list`",
        ));
    }
    Ok(all
        .into_iter()
        .filter(|case| names.is_empty() || names.iter().any(|name| matches(case, name)))
        .collect())
}

/// A test that the failure contract names has no second try.
fn mark_promised(repository: &Path, cases: &mut [Case]) -> Result<(), VmError> {
    let trouble = |why: &str| {
        let remedy = "its rows name tests as `tests/vm/cases/NAME.sh`";
        VmError::new("find the promised tests", CONTRACT, why, remedy)
    };
    let contract = std::fs::read_to_string(repository.join(CONTRACT))
        .map_err(|error| trouble(&error.to_string()))?;
    if !contract.contains("`tests/vm/cases/") {
        return Err(trouble("no test is named"));
    }
    for case in cases {
        case.promised = contract.contains(&format!("`tests/vm/cases/{}.sh`", case.name));
    }
    Ok(())
}

/// Tests that share a kernel, a mode and a userland, and a guest unless one of them breaks it.
struct Lane<'a> {
    series: String,
    mode: Mode,
    userland: Userland,
    part: usize,
    cases: Vec<&'a Case>,
}

fn userlands(mode: &Mode) -> [(&Mode, Userland); 2] {
    [(mode, Userland::Bare), (mode, Userland::Systemd)]
}

fn lanes<'a>(cases: &'a [Case], options: &Options) -> Vec<Lane<'a>> {
    let modes = options.mode.map_or(Mode::ALL.to_vec(), |mode| vec![mode]);
    let mut lanes = Vec::new();
    for series in options.kernel.series() {
        for (&mode, userland) in modes.iter().flat_map(userlands) {
            let belongs = |case: &&Case| {
                let named = case.kernels.iter().any(|kernel| kernel == series);
                let here = case.modes.contains(&mode) && case.userland == userland;
                let is_short = options.tier == Tier::Short;
                let left_out = is_short && case.long_on.iter().any(|kernel| kernel == series);
                here && !left_out && (named || options.kernel != Kernels::AsNamed)
            };
            let cases: Vec<&Case> = cases.iter().filter(belongs).collect();
            let parts = cases.chunks(LANE_CASES_MAX).enumerate();
            lanes.extend(parts.map(|(part, cases)| Lane {
                series: series.into(),
                mode,
                userland,
                part,
                cases: cases.to_vec(),
            }));
        }
    }
    lanes
}

fn run(repository: &Path, options: &Options) -> Result<u8, VmError> {
    let mut cases = chosen(
        catalog::read(&repository.join("tests/vm/cases"))?,
        &options.tests,
    )?;
    mark_promised(repository, &mut cases)?;
    let mut lanes = lanes(&cases, options);
    let mut tally = Tally::default();
    let mut binaries = guest_programs(repository, &options.profile)?;
    if let Some(path) = &options.binary {
        binaries[0].1 = path.clone();
    }
    let packages = match cases.iter().any(|case| case.needs("deb")) {
        true => packages(repository, &binaries)?,
        false => Vec::new(),
    };
    let mut beds: Vec<(String, Bed)> = Vec::new();
    let mut absent: Vec<String> = Vec::new();
    for lane in &lanes {
        let known = beds.iter().any(|(series, _)| *series == lane.series);
        if known || absent.contains(&lane.series) {
            continue;
        }
        let work = format!("vm/{}", lane.series);
        let mut setup = setup(repository, &work, &lane.series);
        setup.binaries.clone_from(&binaries);
        match Bed::prepare(&setup) {
            Ok(mut bed) => {
                // The service as it is packaged is a test's subject.
                let service = repository.join("packaging/tidegate.service");
                bed.add_files(vec![("vm/tidegate.service".into(), service)]);
                bed.add_files_for("deb", packages.clone());
                println!("vm: {} {}", bed.kernel.package, bed.kernel.version);
                if let Some(note) = &bed.kernel.note {
                    println!("vm: {note}");
                }
                beds.push((lane.series.clone(), bed));
            }
            Err(trouble) if trouble.is_lacking() => {
                println!("skipped: {trouble}");
                absent.push(lane.series.clone());
            }
            Err(trouble) => return Err(trouble),
        }
    }
    let is_absent = |lane: &&Lane| absent.contains(&lane.series);
    let cases_of = |lane: &Lane| lane.cases.len();
    tally.skipped = lanes.iter().filter(is_absent).map(cases_of).sum();
    let systemd = with_systemd(repository, &mut lanes, &mut tally)?;
    for tallied in run_lanes(&lanes, &beds, systemd.as_ref(), options) {
        tally.add(tallied?);
    }
    println!("vm: logs in {}", repository.join("target/vm").display());
    Ok(close(&tally))
}

/// The userland where a test asks for it; where it cannot be had, those tests are skipped with the
/// reason.
fn with_systemd(
    repository: &Path,
    lanes: &mut Vec<Lane>,
    tally: &mut Tally,
) -> Result<Option<userland::Userland>, VmError> {
    let asks = |lane: &Lane| lane.userland == Userland::Systemd;
    if !lanes.iter().any(asks) {
        return Ok(None);
    }
    match userland::systemd(&cache(repository)) {
        Ok(userland) => {
            println!("vm: systemd {}", userland.systemd);
            Ok(Some(userland))
        }
        Err(trouble) => {
            println!("skipped: {trouble}");
            tally.skipped += lanes
                .iter()
                .filter(|l| asks(l))
                .map(|l| l.cases.len())
                .sum::<usize>();
            lanes.retain(|lane| !asks(lane));
            Ok(None)
        }
    }
}

/// Two lanes in virtual time at once, each of which keeps one core busy, and beside them one in
/// real time, which mostly waits.
fn run_lanes(
    lanes: &[Lane],
    beds: &[(String, Bed)],
    systemd: Option<&userland::Userland>,
    options: &Options,
) -> Vec<Result<Tally, VmError>> {
    let deadline = Instant::now() + Duration::from_secs(options.limit);
    let progress = Progress::new(lanes.iter().map(|lane| lane.cases.len()).sum());
    let run_lane = |lane: &Lane| {
        let Some((series, bed)) = beds.iter().find(|(series, _)| *series == lane.series) else {
            return Ok(Tally::default());
        };
        let mut label = format!("{:8}", lane.mode.name());
        if beds.len() > 1 {
            label.push_str(series);
        }
        let suite = Suite {
            label,
            mode: lane.mode,
            part: lane.part,
            userland: systemd.filter(|_| lane.userland == Userland::Systemd),
            bed,
            deadline,
            keep: options.keep,
            // A soak, and a run of one test, shows each failure.
            again_max: if options.tier == Tier::Short {
                AGAIN_MAX
            } else {
                0
            },
        };
        suite.run(lane.cases.clone(), &progress)
    };
    let (real, mut virtual_time): (Vec<&Lane>, Vec<&Lane>) =
        lanes.iter().partition(|lane| lane.mode == Mode::Smp);
    // The longest first, so that both end at about the same time; a wide one takes a minute to
    // boot, and a case with systemd takes long.
    virtual_time.sort_by_key(|lane| {
        (
            lane.mode != Mode::Wide,
            lane.userland == Userland::Bare,
            std::cmp::Reverse(lane.cases.len()),
        )
    });
    let queues = [real, virtual_time].map(|lanes| Mutex::new(lanes.into_iter()));
    let work = |queue: &Mutex<std::vec::IntoIter<&Lane>>| -> Vec<_> {
        let take = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        std::iter::from_fn(take).map(run_lane).collect()
    };
    let (work, queues) = (&work, &queues);
    std::thread::scope(|scope| {
        let started = [0, 1, 1].map(|nth| scope.spawn(move || work(&queues[nth])));
        started.into_iter().flat_map(joined).collect()
    })
}

/// The result of a thread; its panic is this program's.
fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn close(tally: &Tally) -> u8 {
    for one in &tally.flaky {
        println!("flaky: {one}");
    }
    println!(
        "{} passed, {} failed, {} skipped",
        tally.passed, tally.failed, tally.skipped
    );
    tally.exit()
}

/// The package in two versions, made of the binary under test. Where it cannot be made, the test
/// skips itself.
fn packages(
    repository: &Path,
    binaries: &[(String, PathBuf)],
) -> Result<Vec<(String, PathBuf)>, VmError> {
    let mut files = Vec::new();
    for (name, version) in [("old", "0.0.1-1"), ("new", "0.0.2-1")] {
        let script = "scripts/deb.sh";
        let mut command = Command::new(repository.join(script));
        command
            .current_dir(repository)
            .env("VERSION", version)
            .env("LAB", "")
            .env("KUBE", "")
            .env("COMPRESS", "none")
            .env("OUT", repository.join("target/vm/deb"));
        if let Some((_, binary)) = binaries.first() {
            command.env("BINARY", binary);
        }
        let output = command
            .output()
            .map_err(|e| VmError::io("make the package", Path::new(script), &e))?;
        match output.status.code() {
            Some(0) => {}
            Some(77) => return Ok(Vec::new()),
            _ => {
                let why = String::from_utf8_lossy(&output.stderr);
                let remedy = "run it by hand";
                return Err(VmError::new("make the package", script, why.trim(), remedy));
            }
        }
        let file = String::from_utf8_lossy(&output.stdout);
        files.push((format!("vm/deb/{name}.deb"), file.trim().into()));
    }
    Ok(files)
}

/// What the tests run, built now: the binary under test, and the scheduler without an agent.
fn guest_programs(repository: &Path, profile: &str) -> Result<Vec<(String, PathBuf)>, VmError> {
    let folder = built(repository, profile)?;
    Ok(vec![
        ("bin/tidegate".into(), folder.join("tidegate")),
        ("bin/scheduler".into(), folder.join("examples/scheduler")),
    ])
}

/// Builds programs and examples; the profile's folder. In `dev`, those of the whole workspace: so
/// they have the features that `cargo test` builds them with, and nothing is compiled twice.
fn built(repository: &Path, profile: &str) -> Result<PathBuf, VmError> {
    let what: &[&str] = match profile {
        "dev" => &["--workspace", "--bins", "--examples"],
        _ => &[
            "--package=tidegate",
            "--package=tidegate-agent",
            "--bin=tidegate",
            "--example=scheduler",
        ],
    };
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--profile", profile])
        .args(what)
        .current_dir(repository)
        .status()
        .map_err(|e| VmError::io("build tidegate", repository, &e))?;
    if !status.success() {
        let place = repository.display().to_string();
        return Err(VmError::new(
            "build tidegate",
            &place,
            "cargo failed",
            "see its message above",
        ));
    }
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(repository.join("target").join(folder))
}
