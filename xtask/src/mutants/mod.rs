//! `cargo xtask mutants`: does the law's test suite notice when the law is broken?
//!
//! Each entry of the tables is one line of one header, broken. The law is copied to target/mutants together with crates/law and its
//! tests; there the C part is a shared object, so that the tests are built once and every mutant costs one run of the C compiler.
//! A mutant is caught when a test of its header fails, crashes or hangs; one that survives is a failure, as is a table entry
//! whose text the header no longer has exactly once, and a test that fails on the law as it is.

mod bed;
mod table_bandwidth;
mod table_delay;
mod table_headroom;
mod table_limits;
mod table_scheduler;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bed::{Bed, Verdict};

const USAGE: &str = "\
usage: cargo xtask mutants [--short] [WORD...]

Breaks the law in one line after the other and demands that its tests notice. With words, only the mutants whose
header or description has one of them; with --short, every tenth. Ends with `N passed, N failed, N skipped`: caught,
survived (or no longer to be applied), none.";
/// `--short` takes one mutant of so many: what `make test` has time for.
const SHORT: usize = 10;

/// One line of a header, broken.
#[derive(Debug)]
pub struct Mutant {
    /// The file in law/.
    pub header: &'static str,
    /// What is wrong with it.
    pub what: &'static str,
    /// Text that is in the header exactly once.
    pub from: &'static str,
    /// What stands there instead.
    pub to: &'static str,
}

fn all() -> impl Iterator<Item = &'static Mutant> {
    let tables = [
        table_headroom::TABLE,
        table_bandwidth::TABLE,
        table_limits::TABLE,
        table_delay::TABLE,
        table_scheduler::TABLE,
    ];
    tables.into_iter().flatten()
}

/// The tests that are to notice, by the start of their modules' names.
fn tests_of(header: &str) -> &'static [&'static str] {
    match header {
        "bandwidth.h" | "bandwidth_types.h" | "bandwidth_tree.h" | "bandwidth_kernel.h" => {
            &["bandwidth"]
        }
        "burst.h" => &["burst"],
        "cap.h" => &["cap"],
        "delay.h" => &["delay"],
        "latency.h" => &["latency"],
        "share.h" => &["share"],
        "hweight.h" => &["hweight"],
        "runqueue.h" => &["runqueue"],
        "side_cpus.h" => &["side_cpus"],
        "headroom.h" | "headroom_types.h" | "estimate.h" | "noise.h" | "contend.h" => {
            &["headroom", "contract"]
        }
        _ => &[""],
    }
}

/// The command.
pub fn main(words: &[String]) -> ExitCode {
    let (options, words): (Vec<&String>, Vec<&String>) =
        words.iter().partition(|word| word.starts_with('-'));
    let short = options.iter().any(|option| *option == "--short");
    if options.len() > usize::from(short) {
        println!("{USAGE}");
        return ExitCode::from(2);
    }
    match run(&words, short) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("tidegate: mutants: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&String], short: bool) -> Result<bool, String> {
    let wanted = |mutant: &&Mutant| {
        let text = format!("{}: {}", mutant.header, mutant.what);
        words.is_empty() || words.iter().any(|word| text.contains(word.as_str()))
    };
    let mutants: Vec<&Mutant> = all()
        .filter(wanted)
        .step_by(if short { SHORT } else { 1 })
        .collect();
    if mutants.is_empty() {
        return Err(
            "no mutant has any of these words; see xtask/src/mutants/table_*.rs".to_owned(),
        );
    }
    let started = Instant::now();
    let bed = Bed::new(&PathBuf::from("."), &PathBuf::from("target/mutants"))?;
    println!("the law as it is: {} tests pass", bed.sound(&mutants)?);

    let next = AtomicUsize::new(0);
    let sums = Mutex::new([0usize; 3]);
    let workers = std::thread::available_parallelism().map_or(1, |cpus| cpus.get().min(4));
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let (bed, mutants, next, sums) = (&bed, &mutants, &next, &sums);
            scope.spawn(move || {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let since = Instant::now();
                    let verdict = bed.judge(mutant, worker);
                    let mut sums = sums
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner);
                    sums[say(mutant, &verdict, since.elapsed().as_secs_f64())] += 1;
                }
            });
        }
    });
    let [caught, survived, errors] = *sums
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    println!(
        "{caught} mutants caught, {survived} survived, {errors} could not be applied, in {:.0} s",
        started.elapsed().as_secs_f64()
    );
    println!("{caught} passed, {} failed, 0 skipped", survived + errors);
    Ok(survived + errors == 0)
}

/// Prints one mutant's fate; which of the three sums it belongs to.
fn say(mutant: &Mutant, verdict: &Verdict, seconds: f64) -> usize {
    let Mutant { header, what, .. } = mutant;
    match verdict {
        Verdict::Caught(by) => {
            println!("caught    {header}: {what}: by {by} ({seconds:.1} s)");
            0
        }
        Verdict::Survived => {
            println!("SURVIVED  {header}: {what}");
            1
        }
        Verdict::Error(why) => {
            println!("ERROR     {header}: {what}: {why}");
            2
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_applies_to_the_law_as_it_is() {
        let law = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../law");
        let mut seen = std::collections::BTreeSet::new();
        for mutant in all() {
            let text = std::fs::read_to_string(law.join(mutant.header)).unwrap();
            let broken = bed::broken(&text, mutant).unwrap();
            assert_ne!(broken, text);
            assert!(seen.insert((mutant.header, mutant.what)), "{}", mutant.what);
        }
        assert!(seen.len() >= 25, "{}", seen.len());
    }

    #[test]
    fn an_entry_that_fits_nowhere_or_twice_is_an_error() {
        let mutant = |from| Mutant {
            header: "a.h",
            what: "w",
            from,
            to: "z",
        };
        assert_eq!(bed::broken("x y y", &mutant("x")).unwrap(), "z y y");
        assert!(bed::broken("x y y", &mutant("y")).is_err());
        assert!(bed::broken("x y y", &mutant("q")).is_err());
    }
}
