//! `cargo xtask check-sim`: the scenarios of `tests/check` on the emulated machine's kernel and on this machine's, and
//! in the simulator configured as each of them. docs/simulator.md says what is compared and why it differs.
//!
//! The kernels' figures go to `target/check-sim/{vm,host}.txt`; the simulator's example `against_kernel` reads them,
//! runs the same scenarios and judges. `--write` keeps the emulated machine's figures, which do not depend on the host,
//! in `tests/check/vm.txt` (plain `cargo test` compares the simulator with those), and the table in the docs.

use crate::vm;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use tidegate_vm::catalog::DEFAULT_SERIES;

const HELP: &str = "\
usage: cargo xtask check-sim [--vm] [--host] [--write] [--span SECONDS] [PART...]

Runs the scenarios of tests/check (those with a PART in their names) on a real kernel and in the simulator and prints
the comparison. Without --vm or --host, both kernels are asked, one after the other.

  --vm             the precise virtual machine: virtual time, so its figures may fail a test
  --host           this machine's kernel, in control groups (as root); timing, so it is judged but fails nothing
  --write          keep the virtual machine's figures and the table in the docs (whole runs only; without --vm,
                   the virtual machine's as last kept)
  --span SECONDS   the longest measurement on the host (4 by default)

Exit code 0 within the criteria, 1 outside them or failed, 2 usage, 77 skipped for a stated reason.";

const SCENARIOS: &str = "tests/check/scenarios.txt";
const FROZEN: &str = "tests/check/vm.txt";
const DOCUMENT: &str = "docs/simulator.md";
const WORK: &str = "target/check-sim";
/// The whole of the scenarios takes the emulator a minute on an idle core.
const VM_LIMIT: Duration = Duration::from_secs(540);

struct Options {
    vm: bool,
    host: bool,
    write: bool,
    span_ms: u64,
    parts: Vec<String>,
}

/// A kernel that could not be asked, or that failed.
enum Missing {
    Lacking(String),
    Failed(String),
}

impl From<tidegate_vm::Trouble> for Missing {
    fn from(trouble: tidegate_vm::Trouble) -> Missing {
        if trouble.is_lacking() {
            Missing::Lacking(trouble.to_string())
        } else {
            Missing::Failed(trouble.to_string())
        }
    }
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
        write: false,
        span_ms: 4_000,
        parts: Vec::new(),
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--vm" => options.vm = true,
            "--host" => options.host = true,
            "--write" => options.write = true,
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
    if !options.vm && !options.host {
        (options.vm, options.host) = (true, true);
    }
    if options.write && !options.parts.is_empty() {
        return Err("--write: it wants all scenarios, not parts".into());
    }
    Ok(options)
}

fn run(repository: &Path, options: &Options) -> Result<u8, String> {
    let work = repository.join(WORK);
    fs::create_dir_all(&work).map_err(|e| format!("{}: {e}", work.display()))?;
    let bed = compiled(repository, &work)?;
    let mut kernels: Vec<(&str, PathBuf)> = Vec::new();
    let mut skipped = 0;
    for (name, wanted) in [("vm", options.vm), ("host", options.host)] {
        if !wanted {
            continue;
        }
        println!("check-sim: asking the kernel: {name}");
        let figures = match name {
            "vm" => ask_vm(repository, &work, &bed, &options.parts),
            _ => ask_host(repository, &bed, options),
        };
        match figures {
            Ok(text) => {
                let file = work.join(format!("{name}.txt"));
                fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
                kernels.push((name, file));
            }
            Err(Missing::Lacking(why)) => {
                println!("skipped: {why}");
                skipped += 1;
            }
            Err(Missing::Failed(why)) => return Err(why),
        }
    }
    if kernels.is_empty() {
        println!("0 passed, 0 failed, {skipped} skipped");
        return Ok(77);
    }
    if options.write
        && let Some((_, file)) = kernels.iter().find(|(name, _)| *name == "vm")
    {
        let kept = repository.join(FROZEN);
        fs::copy(file, &kept).map_err(|e| format!("{}: {e}", kept.display()))?;
    }
    if options.write && !kernels.iter().any(|(name, _)| *name == "vm") {
        // The table is whole: what was not asked now is as last kept.
        kernels.push(("vm", repository.join(FROZEN)));
    }
    compare(repository, &kernels, options)
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

fn ask_vm(repository: &Path, work: &Path, bed: &Path, parts: &[String]) -> Result<String, Missing> {
    let list = work.join("scenarios.parts");
    fs::write(&list, parts.join(" "))
        .map_err(|e| Missing::Failed(format!("{}: {e}", list.display())))?;
    let extras = vec![
        ("bin/kernelbed".into(), bed.to_owned()),
        ("lib/scenarios.txt".into(), repository.join(SCENARIOS)),
        ("lib/scenarios.parts".into(), list),
    ];
    // Its own folder, so that it does not wait for the suite.
    let setup = vm::setup(repository, "check-sim", DEFAULT_SERIES);
    let measured =
        tidegate_vm::measures(&setup, &repository.join("tests/check"), extras, VM_LIMIT)?;
    let mut text = format!("# {}\n", measured.kernel);
    for (name, value, unit) in measured.measures {
        text.push_str(&format!("{name} {value} {unit}\n"));
    }
    Ok(text)
}

fn ask_host(repository: &Path, bed: &Path, options: &Options) -> Result<String, Missing> {
    if !rustix::process::geteuid().is_root() {
        return Err(Missing::Lacking(
            "the host's kernel: not root, so no control groups can be made".into(),
        ));
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut scenarios = Command::new(bed);
    scenarios
        .arg(repository.join(SCENARIOS))
        .arg("host")
        .arg(options.span_ms.to_string())
        .args(&options.parts);
    // What else ran shows in the figures, so it is said beside them.
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: Vec<&str> = load.split(' ').take(2).collect();
    let mut text = format!(
        "# {}, load average {} as it began\n",
        release.trim(),
        load.join(" ")
    );
    text.push_str(&figures(Command::new(bed).arg("costs"))?);
    text.push_str(&figures(&mut scenarios)?);
    Ok(text)
}

/// What the runner measured, a line each: name, value, unit.
fn figures(bed: &mut Command) -> Result<String, Missing> {
    let output = bed
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| Missing::Failed(format!("kernelbed: {e}")))?;
    if !output.status.success() {
        let why = "the host's kernel: its run failed; see above";
        return Err(Missing::Failed(why.into()));
    }
    let mut text = String::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        // "@@tg UPTIME measure check NAME VALUE UNIT"
        let words: Vec<&str> = line.split(' ').collect();
        if let ["@@tg", _, "measure", "check", name, value, unit] = words[..] {
            text.push_str(&format!("{name} {value} {unit}\n"));
        }
    }
    Ok(text)
}

fn compare(
    repository: &Path,
    kernels: &[(&str, PathBuf)],
    options: &Options,
) -> Result<u8, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["run", "--quiet", "--package", "tidegate-sim"])
        .args(["--example", "against_kernel", "--"])
        .arg(format!("scenarios={SCENARIOS}"))
        .arg(format!("host_span_ms={}", options.span_ms))
        .current_dir(repository);
    for (name, file) in kernels {
        command.arg(format!("{name}={}", file.display()));
    }
    if options.write {
        command.arg(format!("write={DOCUMENT}"));
    }
    let done = command.status().map_err(|e| format!("cargo: {e}"))?;
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
        assert!(options.vm && options.host && !options.write);
        let options = of("--vm --span 3 weights").unwrap();
        assert!(options.vm && !options.host);
        assert_eq!((options.span_ms, options.parts.len()), (3_000, 1));
    }

    #[test]
    fn a_part_is_never_written_as_the_whole() {
        assert!(of("--write weights").is_err());
        assert!(of("--span 0").is_err());
        assert!(of("--fast").is_err());
    }
}
