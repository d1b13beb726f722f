//! `cargo xtask fuzz [--runs N] [--seed N] [HEADER...]`: libFuzzer over the law, one harness a header.
//!
//! Each `law/fuzz/HEADER.c` is built with clang-19, the address and undefined-behaviour sanitizers and a trap on unsigned
//! overflow (but for [`WRAPS`]), and run from the seed corpus in `law/fuzz/corpus/HEADER.hex` (one input a line) until it
//! has executed N inputs or found something. A finding is shown with the line that repeats it, and with the line to add to
//! the corpus once it is mended. The last line counts harnesses: `N passed, N failed, N skipped`.
//!
//! `--keep` writes what this run has learnt, made small, back to the corpus files.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Instant, SystemTime};

const CLANG: &str = "clang-19";
const RUNS: u64 = 10_000_000;
const SKIPPED: u8 = 77;
/// The longest input of each harness: enough for a hundred or so steps where there are steps.
const LENGTHS: &[(&str, u32)] = &[("bandwidth", 256), ("cap", 200), ("headroom", 96)];
const LENGTH: u32 = 128;
/// Harnesses of headers whose arithmetic wraps on purpose: virtual time does.
const WRAPS: &[&str] = &["latency"];
/// How much of a corpus is kept.
const KEPT_MAX: usize = 64;

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    runs: u64,
    seed: u32,
    keep: bool,
    headers: Vec<String>,
}

fn parse(arguments: &[String]) -> Result<Asked, String> {
    let mut asked = Asked {
        runs: RUNS,
        seed: 1,
        keep: false,
        headers: Vec::new(),
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut number = || {
            let text = words.next().ok_or(format!("{word}: a number is missing"))?;
            text.parse::<u64>()
                .map_err(|error| format!("{word} {text}: {error}; give a whole number"))
        };
        match word.as_str() {
            "--runs" => asked.runs = number()?,
            "--seed" => {
                asked.seed =
                    u32::try_from(number()?).map_err(|error| format!("--seed: {error}"))?;
            }
            "--keep" => asked.keep = true,
            option if option.starts_with('-') => {
                return Err(format!(
                    "{option}: no such option; there are --runs N, --seed N, --keep"
                ));
            }
            header => asked.headers.push(header.to_owned()),
        }
    }
    Ok(asked)
}

/// Runs the task.
pub fn main(arguments: &[String]) -> ExitCode {
    let asked = match parse(arguments) {
        Ok(asked) => asked,
        Err(why) => {
            eprintln!("tidegate: fuzz: {why}");
            return ExitCode::from(2);
        }
    };
    let all = match harnesses(Path::new("law/fuzz")) {
        Ok(all) => all,
        Err(why) => {
            eprintln!("tidegate: fuzz: law/fuzz: {why}; run it at the top of the checkout");
            return ExitCode::FAILURE;
        }
    };
    if let Some(unknown) = asked.headers.iter().find(|name| !all.contains(name)) {
        eprintln!(
            "tidegate: fuzz: {unknown}: no such harness; there are {}",
            all.join(", ")
        );
        return ExitCode::from(2);
    }
    let chosen: Vec<&String> = all
        .iter()
        .filter(|name| asked.headers.is_empty() || asked.headers.contains(name))
        .collect();
    if let Err(why) = runtime() {
        println!("skipped: {why}");
        println!("0 passed, 0 failed, {} skipped", chosen.len());
        return ExitCode::from(SKIPPED);
    }
    let mut failed = 0;
    for name in &chosen {
        let started = Instant::now();
        match fuzz(name, &asked) {
            Ok(runs) => {
                let seconds = started.elapsed().as_secs_f64();
                println!(
                    "{name}: {runs} executions, no finding ({seconds:.0} s, seed {})",
                    asked.seed
                );
            }
            Err(why) => {
                failed += 1;
                println!("{name}: FAILED: {why}");
            }
        }
    }
    println!(
        "{} passed, {failed} failed, 0 skipped",
        chosen.len() - failed
    );
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The harnesses by name: each C file is one.
fn harnesses(folder: &Path) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| error.to_string())?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

/// Is there a compiler, and the library that a fuzzer is linked with?
fn runtime() -> Result<(), String> {
    let output = Command::new(CLANG)
        .arg("-print-resource-dir")
        .output()
        .map_err(|_| format!("{CLANG} is not installed (apt-get install {CLANG})"))?;
    let resources = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    // One folder a platform, named in more than one way.
    let platforms = std::fs::read_dir(resources.join("lib"));
    let mut folders = platforms
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    match folders.any(|folder| has_fuzzer(&folder)) {
        true => Ok(()),
        false => Err(
            "the fuzzer's runtime library is not installed (apt-get install libclang-rt-19-dev)"
                .to_owned(),
        ),
    }
}

fn has_fuzzer(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|entries| {
        entries.flatten().any(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .starts_with("libclang_rt.fuzzer")
        })
    })
}

/// Builds and runs one harness; how many inputs it executed.
fn fuzz(name: &str, asked: &Asked) -> Result<u64, String> {
    let binary = build(name)?;
    let corpus = PathBuf::from(format!("target/fuzz/corpus/{name}"));
    let seeds = PathBuf::from(format!("law/fuzz/corpus/{name}.hex"));
    unpack(&seeds, &corpus)?;
    let length = LENGTHS.iter().find(|(header, _)| *header == name);
    let length = length.map_or(LENGTH, |(_, length)| *length);
    let findings = format!("target/fuzz/finding-{name}-");
    let log_path = format!("target/fuzz/{name}.log");
    let mut fuzzer = Command::new(&binary);
    fuzzer
        .arg(format!("-runs={}", asked.runs))
        .arg(format!("-seed={}", asked.seed))
        .arg(format!("-max_len={length}"))
        .arg(format!("-artifact_prefix={findings}"))
        .arg("-verbosity=1");
    let said = run_fuzzer(&mut fuzzer, &binary, &corpus, &seeds, &log_path)?;
    let runs = executed(&said).ok_or(format!(
        "{log_path}: it does not say how many inputs it ran"
    ))?;
    if runs < asked.runs {
        return Err(format!(
            "only {runs} of {} executions; see {log_path}",
            asked.runs
        ));
    }
    if asked.keep {
        keep(name, &binary, &corpus, &seeds)?;
    }
    Ok(runs)
}

/// Runs a fuzzer, with its own options set, over `corpus`: what it said. `again` is what a person runs to see a finding again.
pub(crate) fn run_fuzzer(
    fuzzer: &mut Command,
    again: &Path,
    corpus: &Path,
    seeds: &Path,
    log_path: &str,
) -> Result<String, String> {
    let log = std::fs::File::create(log_path).map_err(|error| format!("{log_path}: {error}"))?;
    let status = fuzzer
        .args(["-timeout=10", "-print_final_stats=1"])
        .arg(corpus)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .status()
        .map_err(|error| format!("{}: {error}", again.display()))?;
    let said = std::fs::read(log_path).map_err(|error| format!("{log_path}: {error}"))?;
    let said = String::from_utf8_lossy(&said).into_owned();
    match status.success() {
        true => Ok(said),
        false => Err(finding(&said, again, seeds)),
    }
}

/// What libFuzzer counted.
pub(crate) fn executed(said: &str) -> Option<u64> {
    let count = said
        .lines()
        .find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?;
    count.trim().parse().ok()
}

/// Newer than all it is made of, or built again.
fn build(name: &str) -> Result<PathBuf, String> {
    let binary = PathBuf::from(format!("target/fuzz/{name}"));
    let source = format!("law/fuzz/{name}.c");
    let changed = |path: &Path| path.metadata().and_then(|meta| meta.modified()).ok();
    let newest = [Path::new("law"), Path::new("law/fuzz")]
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "h" || extension == "c")
        })
        .filter_map(|path| changed(&path))
        .max()
        .unwrap_or(SystemTime::UNIX_EPOCH);
    if changed(&binary).is_some_and(|built| built > newest) {
        return Ok(binary);
    }
    std::fs::create_dir_all("target/fuzz").map_err(|error| format!("target/fuzz: {error}"))?;
    let mut checks = "-fsanitize=fuzzer,address,undefined".to_owned();
    if !WRAPS.contains(&name) {
        checks.push_str(",unsigned-integer-overflow");
    }
    let output = Command::new(CLANG)
        .args([
            "-O2",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            &checks,
            "-fno-sanitize-recover=all",
        ])
        .args(["-I", "law", &source, "-o"])
        .arg(&binary)
        .output()
        .map_err(|error| format!("{CLANG}: {error}"))?;
    match output.status.success() {
        true => Ok(binary),
        false => Err(format!(
            "{source} does not build:\n{}",
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

/// One file an input, as libFuzzer wants them; a folder that is there grows.
pub(crate) fn unpack(seeds: &Path, corpus: &Path) -> Result<(), String> {
    std::fs::create_dir_all(corpus).map_err(|error| format!("{}: {error}", corpus.display()))?;
    let text = std::fs::read_to_string(seeds)
        .map_err(|error| format!("{}: {error}; every harness has seeds", seeds.display()))?;
    for (number, line) in text.lines().enumerate() {
        if line.starts_with('#') {
            continue;
        }
        let input = from_hex(line).ok_or(format!(
            "{}:{}: not hexadecimal",
            seeds.display(),
            number + 1
        ))?;
        let path = corpus.join(format!("seed-{number:03}"));
        std::fs::write(&path, input).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn from_hex(line: &str) -> Option<Vec<u8>> {
    let digits = line.as_bytes();
    let pairs = digits.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

fn to_hex(input: &[u8]) -> String {
    let mut text = String::with_capacity(2 * input.len());
    for byte in input {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// What failed, how to see it again, and the input as a line for the corpus.
fn finding(said: &str, binary: &Path, seeds: &Path) -> String {
    let what = said
        .lines()
        .find(|line| line.starts_with("tidegate: fuzz:") || line.contains("runtime error:"))
        .or_else(|| said.lines().find(|line| line.contains("ERROR:")))
        .unwrap_or("it crashed");
    let input = said.lines().find_map(|line| {
        line.split_once("Test unit written to ")
            .map(|(_, path)| path.trim())
    });
    let Some(input) = input else {
        return format!("{what}; no input was written");
    };
    let line = std::fs::read(input)
        .map(|bytes| to_hex(&bytes))
        .unwrap_or_default();
    format!(
        "{what}\n  again: {} {input}\n  when mended, add to {}:\n{line}",
        binary.display(),
        seeds.display()
    )
}

/// The fewest inputs that reach all that the corpus reaches, the shortest of them, as lines.
fn keep(name: &str, binary: &Path, corpus: &Path, seeds: &Path) -> Result<(), String> {
    let small = PathBuf::from(format!("target/fuzz/small/{name}"));
    let failed = |error: std::io::Error| format!("{}: {error}", small.display());
    let _ = std::fs::remove_dir_all(&small);
    std::fs::create_dir_all(&small).map_err(failed)?;
    let status = Command::new(binary)
        .arg("-merge=1")
        .args([&small, corpus])
        .stderr(Stdio::null())
        .status()
        .map_err(failed)?;
    if !status.success() {
        return Err(format!("{}: -merge=1: {status}", binary.display()));
    }
    let entries = std::fs::read_dir(&small).map_err(failed)?;
    let mut lines: Vec<String> = entries
        .flatten()
        .filter_map(|entry| Some(to_hex(&std::fs::read(entry.path()).ok()?)))
        .collect();
    lines.sort_by_key(|line| (line.len(), line.clone()));
    // All lengths, where there are too many: a long input is a long history.
    let step = lines.len().div_ceil(KEPT_MAX).max(1);
    let kept: Vec<&String> = lines.iter().step_by(step).collect();
    let mut text = format!(
        "# Seeds of law/fuzz/{name}.c: one input a line; cargo xtask fuzz --keep rewrites them.\n"
    );
    for line in kept {
        text.push_str(line);
        text.push('\n');
    }
    std::fs::write(seeds, text).map_err(|error| format!("{}: {error}", seeds.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn options_are_read() {
        let asked = parse(&words("--runs 5 cap --seed 9 burst")).unwrap();
        assert_eq!((asked.runs, asked.seed, asked.keep), (5, 9, false));
        assert_eq!(asked.headers, ["cap", "burst"]);
        assert_eq!(parse(&[]).unwrap().runs, RUNS);
        for bad in ["--runs", "--runs x", "--quick", "--seed -1"] {
            assert!(parse(&words(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn hexadecimal_both_ways() {
        assert_eq!(from_hex(&to_hex(&[0, 255, 16])).unwrap(), [0, 255, 16]);
        assert_eq!(from_hex("").unwrap(), [0; 0]);
        assert!(from_hex("0").is_none() && from_hex("zz").is_none());
    }

    #[test]
    fn a_finding_says_how_to_see_it_again() {
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("finding-cap-1");
        std::fs::write(&input, [1, 2]).unwrap();
        let said = format!(
            "x\ntidegate: fuzz: a.c:1: does not hold: b\nTest unit written to {}\n",
            input.display()
        );
        let told = finding(&said, Path::new("target/fuzz/cap"), Path::new("cap.hex"));
        assert!(told.starts_with("tidegate: fuzz: a.c:1: does not hold: b\n"));
        assert!(told.contains("again: target/fuzz/cap ") && told.ends_with("\n0102"));
        assert_eq!(executed("stat::number_of_executed_units: 12\n"), Some(12));
        assert_eq!(executed("Done"), None);
    }
}
