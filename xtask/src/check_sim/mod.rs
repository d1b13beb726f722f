//! `cargo xtask check-sim`: the scenarios of `tests/check` on the emulated machine's kernel and on this machine's, under the
//! ext engine in the emulated machine, and in the simulator configured as each of them. docs/simulator.md says what is compared
//! and why it differs.
//!
//! The simulator's example `against_kernel` exports the scenarios for each kernel's runner (`kernelbed`). The figures go to `target/check-sim/{vm,host,ext-6.18,ext-7.3}.txt`; `against_kernel` reads
//! them, runs the same scenarios and judges. `--write` keeps the emulated machine's figures, which do not depend on the host,
//! in `tests/check` (plain `cargo test` compares the simulator with those), and the tables in the docs.

mod beds;

use beds::{Bed, Ext, Host, Missing, Vm};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use tidegate_vm::catalog::SERIES;

const HELP: &str = "\
usage: cargo xtask check-sim [--vm] [--host] [--ext] [--write] [--short] [--kernel SERIES]
                             [--span SECONDS] [PART...]

Runs the scenarios of tests/check (those with a PART in their names) on a real kernel and in the simulator and prints
the comparison. Without --vm, --host or --ext, all are asked, one after the other.

  --vm             the fair class in the precise virtual machine: virtual time, so its figures may fail a test
  --host           this machine's kernel, in control groups (as root); timing, so it is judged but fails nothing
  --ext            the ext engine in the precise virtual machine, on each of its kernels
  --kernel SERIES  with --ext, only on this one
  --short          what one boot of a minute shows: each idea once
  --write          keep the virtual machine's figures and the tables in the docs (whole runs only; what is not asked
                   now stays as last kept)
  --span SECONDS   the longest measurement on the host (4 by default)

Exit code 0 within the criteria, 1 outside them or failed, 2 usage, 77 skipped for a stated reason.";

const DOCUMENT: &str = "docs/simulator-check.md";
const WORK: &str = "target/check-sim";
/// Scenarios that show each idea once.
const SHORT: [&str; 14] = [
    "weights-nested",
    "cpu-idle",
    "wake-light",
    "wake-batch",
    "messages-4",
    "hint-first",
    "quota-nested",
    "quota-sleeper",
    "rewrite-4-10",
    "burst-20",
    "cap-sleeper",
    "cap-soft-beside",
    "headroom-40",
    "step-up",
];

struct Options {
    vm: bool,
    host: bool,
    ext: bool,
    write: bool,
    kernel: Option<String>,
    span_ms: u64,
    parts: Vec<String>,
}

/// `cargo xtask check-sim ARGUMENTS`.
pub fn main(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|word| word == "--help") {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let options = match parse(arguments) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("tidegate: xtask check-sim: {why}");
            return ExitCode::from(2);
        }
    };
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let repository = repository.canonicalize().unwrap_or(repository);
    match run(&repository, &options) {
        Ok(code) => ExitCode::from(code),
        Err(why) => {
            eprintln!("tidegate: check-sim: {why}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options {
        vm: false,
        host: false,
        ext: false,
        write: false,
        kernel: None,
        span_ms: 4_000,
        parts: Vec::new(),
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--vm" => options.vm = true,
            "--host" => options.host = true,
            "--ext" => options.ext = true,
            "--write" => options.write = true,
            "--short" => options.parts.extend(SHORT.map(str::to_owned)),
            "--kernel" => {
                let series = words.next().filter(|word| SERIES.contains(&word.as_str()));
                options.kernel = Some(series.ok_or(format!("--kernel: {SERIES:?}"))?.clone());
            }
            "--span" => {
                let seconds = words.next().and_then(|text| text.parse::<u64>().ok());
                let seconds = seconds.filter(|s| (1..=60).contains(s));
                options.span_ms = 1_000 * seconds.ok_or("--span: it is 1 to 60 seconds")?;
            }
            other if other.starts_with('-') => {
                return Err(format!(
                    "{other}: no such option; see `cargo xtask check-sim --help`"
                ));
            }
            part => options.parts.push(part.to_owned()),
        }
    }
    if !options.vm && !options.host && !options.ext {
        (options.vm, options.host, options.ext) = (true, true, true);
    }
    if options.write && !options.parts.is_empty() {
        return Err("--write: it wants all scenarios, not parts".into());
    }
    Ok(options)
}

/// What is compared in one table: scenarios, and the beds that they can run on.
struct Table {
    scenarios: &'static str,
    beds: Vec<Box<dyn Bed>>,
}

fn tables(options: &Options) -> Vec<Table> {
    let mut kernel: Vec<Box<dyn Bed>> = Vec::new();
    if options.vm {
        kernel.push(Box::new(Vm));
    }
    if options.host {
        kernel.push(Box::new(Host {
            span_ms: options.span_ms,
        }));
    }
    let mut ext: Vec<Box<dyn Bed>> = Vec::new();
    let wanted = |series: &str| options.kernel.as_ref().is_none_or(|only| only == series);
    for series in SERIES.into_iter().filter(|s| options.ext && wanted(s)) {
        ext.push(Box::new(Ext { series }));
    }
    let table = |scenarios, beds| Table { scenarios, beds };
    let mut tables = vec![
        table("tests/check/fair.toml", kernel),
        table("tests/check/ext.toml", ext),
    ];
    tables.retain(|table| !table.beds.is_empty());
    tables
}

fn run(repository: &Path, options: &Options) -> Result<u8, String> {
    let work = repository.join(WORK);
    fs::create_dir_all(&work).map_err(|e| format!("{}: {e}", work.display()))?;
    let bed = compiled(repository, &work)?;
    let tidegate = crate::vm::tidegate_binary(repository, "dev").map_err(|e| e.to_string())?;
    let place = beds::Place {
        repository,
        work: &work,
        kernelbed: &bed,
        against_kernel: &tidegate.with_file_name("examples/against_kernel"),
    };
    let (mut code, mut asked, mut skipped) = (0, 0, 0);
    for table in tables(options) {
        let figures = ask(&place, &table, &options.parts, &mut skipped)?;
        if figures.is_empty() {
            continue;
        }
        asked += figures.len();
        code |= compare(&place, &table, figures, options)?;
    }
    if asked == 0 {
        println!("0 passed, 0 failed, {skipped} skipped");
        return Ok(77);
    }
    Ok(code)
}

/// Asks each kernel of the table; gives the files with what they said.
fn ask(
    place: &beds::Place<'_>,
    table: &Table,
    parts: &[String],
    skipped: &mut u32,
) -> Result<Vec<(String, PathBuf)>, String> {
    let mut figures = Vec::new();
    for bed in &table.beds {
        let name = bed.name();
        println!("check-sim: asking the kernel: {name}");
        let exported = exported(place, table, bed.as_ref(), parts)?;
        match bed.ask(place, &exported) {
            Ok(text) => {
                let file = place.work.join(format!("{name}.txt"));
                fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
                figures.push((name, file));
            }
            Err(Missing::Lacking(why)) => {
                println!("skipped: {why}");
                *skipped += 1;
            }
            Err(Missing::Failed(why)) => return Err(why),
        }
    }
    Ok(figures)
}

/// The table's scenarios for a kernel, in the form that the runner reads.
fn exported(
    place: &beds::Place<'_>,
    table: &Table,
    bed: &dyn Bed,
    parts: &[String],
) -> Result<PathBuf, String> {
    let done = Command::new(place.against_kernel)
        .arg(format!("scenarios={}", table.scenarios))
        .arg(format!("export={}", bed.on()))
        .args(parts.iter().map(|part| format!("part={part}")))
        .current_dir(place.repository)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("against_kernel: {e}"))?;
    if !done.status.success() {
        return Err(format!(
            "{}: cannot be exported; see above",
            table.scenarios
        ));
    }
    let file = place.work.join(format!("{}.scenarios", bed.name()));
    fs::write(&file, done.stdout).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(file)
}

/// The runner, static, so that the guest needs no libraries.
fn compiled(repository: &Path, work: &Path) -> Result<PathBuf, String> {
    let sources = ["bed", "costs", "groups", "scenario", "tasks"];
    let bed = work.join("kernelbed");
    let folder = repository.join("tests/check");
    let done = Command::new("cc")
        .args(["-O2", "-static", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&bed)
        .args(sources.map(|name| folder.join(format!("{name}.c"))))
        .status()
        .map_err(|e| format!("cc: {e}; apt-get install gcc libc6-dev"))?;
    if done.success() {
        Ok(bed)
    } else {
        Err("cc: tests/check does not compile; see above".into())
    }
}

fn compare(
    place: &beds::Place<'_>,
    table: &Table,
    mut figures: Vec<(String, PathBuf)>,
    options: &Options,
) -> Result<u8, String> {
    let mut command = Command::new(place.against_kernel);
    command
        .arg(format!("scenarios={}", table.scenarios))
        .arg(format!("host_span_ms={}", options.span_ms))
        .current_dir(place.repository);
    if options.write {
        // The table is whole: what was not asked now is as last kept.
        for kept in beds::kept(table.scenarios) {
            let file = place.repository.join(format!("tests/check/{kept}.txt"));
            match figures.iter().find(|(name, _)| name == kept) {
                Some((_, now)) => {
                    fs::copy(now, &file).map_err(|e| format!("{}: {e}", file.display()))?;
                }
                None => figures.push(((*kept).to_owned(), file)),
            }
        }
        command.arg(format!("write={DOCUMENT}"));
    }
    for (name, file) in figures {
        command.arg(format!("{name}={}", file.display()));
    }
    let done = command
        .status()
        .map_err(|e| format!("against_kernel: {e}"))?;
    Ok(if done.success() { 0 } else { 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &str) -> Result<Options, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        parse(&words)
    }

    #[test]
    fn without_a_choice_both_kernels_are_asked() {
        let options = of("").unwrap();
        assert!(options.vm && options.host && options.ext && !options.write);
        let options = of("--vm --span 3 weights").unwrap();
        assert!(options.vm && !options.host && !options.ext);
        assert_eq!((options.span_ms, options.parts.len()), (3_000, 1));
    }

    #[test]
    fn a_part_is_never_written_as_the_whole() {
        assert!(of("--write weights").is_err());
        assert!(of("--span 0").is_err());
        assert!(of("--fast").is_err());
        assert!(of("--write --short").is_err());
        assert!(of("--ext --kernel 5.4").is_err());
    }
}
