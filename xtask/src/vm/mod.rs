//! The VM bed: boots a stock Debian kernel under software emulation and runs the tests of `tests/vm` in it on
//! cgroup v2. docs/vm.md tells how to use it and how far its figures can be trusted.

mod apt;
mod boot;
mod catalog;
mod command;
mod cpio;
mod emulator;
mod fetch;
mod frames;
mod image;
mod measure;
mod options;
mod progress;
mod suite;

pub use measure::measures;

use catalog::{Case, Mode};
use fetch::Kernel;
use image::Parts;
use options::{Action, Options};
use progress::Progress;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use suite::{Suite, Tally};

/// A failure on one line: what, where, why, and the mend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    what: String,
    place: String,
    why: String,
    mend: String,
    /// The machine lacks something, as opposed to the repository being wrong: the suite is skipped, not failed.
    lacking: bool,
}

impl Trouble {
    fn new(what: &str, place: &str, why: &str, mend: &str) -> Trouble {
        Trouble {
            what: what.into(),
            place: place.into(),
            why: why.into(),
            mend: mend.into(),
            lacking: false,
        }
    }

    /// Whether this machine lacks something, as opposed to the repository being wrong.
    pub fn is_lacking(&self) -> bool {
        self.lacking
    }

    /// The same, as something that this machine lacks.
    fn lacking(self) -> Trouble {
        Trouble {
            lacking: true,
            ..self
        }
    }

    fn io(what: &str, path: &Path, error: &std::io::Error) -> Trouble {
        let mend = match error.kind() {
            std::io::ErrorKind::NotFound => "check that it is installed and spelt so",
            std::io::ErrorKind::PermissionDenied => "run it as a user who may",
            std::io::ErrorKind::StorageFull => "make room on that file system",
            _ => "see the error",
        };
        Trouble::new(what, &path.display().to_string(), &error.to_string(), mend)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}: {}; {}",
            self.what, self.place, self.why, self.mend
        )
    }
}

/// Where `program` is, or what to install.
fn tool(program: &str) -> Result<PathBuf, Trouble> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&search)
        .map(|p| p.join(program))
        .find(|p| p.is_file());
    found.ok_or_else(|| {
        let package = match program {
            "qemu-system-x86_64" => "qemu-system-x86",
            "busybox" => "busybox-static",
            "strip" => "binutils",
            "cc" => "gcc libc6-dev",
            "dpkg" | "dpkg-deb" | "apt-get" | "apt-cache" => "apt (a Debian or Ubuntu machine)",
            other => other,
        };
        Trouble::new(
            "find a program",
            program,
            "it is not on the PATH",
            &format!("apt-get install {package}"),
        )
        .lacking()
    })
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
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    // Canonical, so that logs and messages show plain paths; it exists, as this was built in it.
    let repository = repository.canonicalize().unwrap_or(repository);
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
    let bed = match Bed::prepare(repository, options, &cases) {
        Ok(bed) => bed,
        Err(trouble) if trouble.lacking => {
            println!("skipped: {trouble}");
            tally.skipped = runs.len();
            return Ok(close(&tally));
        }
        Err(trouble) => return Err(trouble),
    };
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

/// What every boot of a run has in common.
struct Bed {
    kernel: Kernel,
    parts: Parts,
    work: PathBuf,
    /// Held while the work folder is in use.
    _lock: File,
}

impl Bed {
    fn prepare(repository: &Path, options: &Options, cases: &[Case]) -> Result<Bed, Trouble> {
        tool("qemu-system-x86_64")?;
        let kernel =
            fetch::kernel(&cache(repository), &options.series, false).map_err(Trouble::lacking)?;
        println!("vm: {} {}", kernel.package, kernel.version);
        if let Some(note) = &kernel.note {
            println!("vm: {note}");
        }
        let work = repository.join(options.work);
        fs::create_dir_all(&work).map_err(|e| Trouble::io("make the work folder", &work, &e))?;
        let lock = locked(&work.join("lock"))?;
        let wanted = cases.iter().any(|case| case.needs_tidegate);
        let tidegate = wanted
            .then(|| tidegate_binary(repository, options))
            .transpose()?;
        let parts = Parts::gather(repository, &work, tidegate.as_deref())?;
        Ok(Bed {
            kernel,
            parts,
            work,
            _lock: lock,
        })
    }
}

/// Waits until no other run uses the work folder.
fn locked(path: &Path) -> Result<File, Trouble> {
    let io = |e| Trouble::io("lock the work folder", path, &e);
    let file = File::create(path).map_err(io)?;
    if file.try_lock().is_err() {
        eprintln!("vm: waiting for another run to end");
        file.lock().map_err(io)?;
    }
    Ok(file)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_one_line_with_its_mend() {
        let trouble = tool("no-such-program-here").unwrap_err().to_string();
        assert_eq!(
            trouble,
            "find a program: no-such-program-here: it is not on the PATH; apt-get install no-such-program-here"
        );
    }
}
