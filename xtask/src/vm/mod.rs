//! `cargo xtask vm`: the tests of `tests/vm/cases` in the bed of crates/vm. docs/vm.md tells how to use it.

mod options;

use options::{Action, Options};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use tidegate_vm::{Bed, Case, Mode, Progress, Setup, Suite, Tally, Trouble, catalog, fetch};

/// The checkout that this was built in; canonical, so that logs and messages show plain paths.
fn repository() -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    repository.canonicalize().unwrap_or(repository)
}

/// The bed of this checkout, with its own work folder below `target`.
pub fn setup(repository: &Path, work: &str, series: &str) -> Setup {
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
    let options = match options::parse(arguments) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("tidegate: xtask vm: {why}");
            return ExitCode::from(2);
        }
    };
    let repository = repository();
    let done = match options.action {
        Action::Help => {
            println!("{}", options::HELP);
            Ok(0)
        }
        Action::List => list(&repository),
        Action::Fetch => fetch_only(&repository, &options),
        Action::Run => run(&repository, &options),
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

fn list(repository: &Path) -> Result<u8, Trouble> {
    for case in catalog::read(&repository.join("tests/vm/cases"))? {
        let modes: Vec<&str> = case.modes.iter().map(|m| m.name()).collect();
        println!("{:26}{:14}{}", case.name, modes.join(" "), case.what);
    }
    Ok(0)
}

fn fetch_only(repository: &Path, options: &Options) -> Result<u8, Trouble> {
    match fetch::kernel(&cache(repository), &options.series, true) {
        Ok(kernel) => {
            println!(
                "{} {} {}",
                kernel.package,
                kernel.version,
                kernel.vmlinuz.display()
            );
            if let Some(note) = kernel.note {
                println!("note: {note}");
            }
            Ok(0)
        }
        Err(trouble) => {
            println!("skipped: {trouble}");
            Ok(77)
        }
    }
}

/// The tests asked for, by exact name or part of it; none named means all.
fn chosen(all: Vec<Case>, names: &[String]) -> Result<Vec<Case>, Trouble> {
    let matches = |case: &Case, name: &String| case.name.contains(name.as_str());
    if let Some(name) = names
        .iter()
        .find(|name| !all.iter().any(|case| matches(case, name)))
    {
        return Err(Trouble::new(
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

fn run(repository: &Path, options: &Options) -> Result<u8, Trouble> {
    let cases = chosen(
        catalog::read(&repository.join("tests/vm/cases"))?,
        &options.tests,
    )?;
    let runs: Vec<(Mode, &Case)> = options
        .modes
        .iter()
        .flat_map(|&mode| cases.iter().map(move |case| (mode, case)))
        .filter(|(m, c)| c.modes.contains(m))
        .collect();
    let mut tally = Tally::default();
    let mut setup = setup(repository, "vm", &options.series);
    if cases.iter().any(|case| case.needs_tidegate) {
        let tidegate = tidegate_binary(repository, options)?;
        setup.binaries.push(("bin/tidegate".into(), tidegate));
    }
    let bed = match Bed::prepare(&setup) {
        Ok(bed) => bed,
        Err(trouble) if trouble.is_lacking() => {
            println!("skipped: {trouble}");
            tally.skipped = runs.len();
            return Ok(close(&tally));
        }
        Err(trouble) => return Err(trouble),
    };
    println!("vm: {} {}", bed.kernel.package, bed.kernel.version);
    if let Some(note) = &bed.kernel.note {
        println!("vm: {note}");
    }
    let deadline = Instant::now() + Duration::from_secs(options.limit_s);
    let progress = Progress::new(runs.len());
    // Side by side: precise keeps one core busy and does not care who else is; smp mostly waits.
    let done: Vec<Result<Tally, Trouble>> = std::thread::scope(|scope| {
        let started = options.modes.iter().map(|&mode| {
            let cases = runs
                .iter()
                .filter(|(m, _)| *m == mode)
                .map(|(_, case)| *case)
                .collect();
            let suite = Suite {
                mode,
                bed: &bed,
                deadline,
                keep: options.keep,
            };
            let progress = &progress;
            scope.spawn(move || suite.run(cases, progress))
        });
        // All are started before the first is waited for.
        let started: Vec<_> = started.collect();
        started.into_iter().map(joined).collect()
    });
    for tallied in done {
        tally.add(tallied?);
    }
    println!("vm: logs in {}", bed.work.display());
    Ok(close(&tally))
}

/// A panic in one mode's thread is this program's.
fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn close(tally: &Tally) -> u8 {
    println!(
        "{} passed, {} failed, {} skipped",
        tally.passed, tally.failed, tally.skipped
    );
    tally.exit()
}

/// The binary under test, built now unless one was named.
fn tidegate_binary(repository: &Path, options: &Options) -> Result<PathBuf, Trouble> {
    if let Some(path) = &options.binary {
        return Ok(path.clone());
    }
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let built = Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "--package",
            "tidegate",
            "--profile",
            &options.profile,
        ])
        .current_dir(repository)
        .status()
        .map_err(|e| Trouble::io("build tidegate", repository, &e))?;
    if !built.success() {
        let place = repository.display().to_string();
        return Err(Trouble::new(
            "build tidegate",
            &place,
            "cargo failed",
            "see its message above",
        ));
    }
    let folder = if options.profile == "dev" {
        "debug"
    } else {
        options.profile.as_str()
    };
    Ok(repository.join("target").join(folder).join("tidegate"))
}
