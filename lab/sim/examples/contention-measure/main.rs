//! Measures on this machine how much a busy neighbour slows a CPU, and writes the simulator's coefficients.
//!
//! `cargo run --release -p tidegate-sim --example contention-measure -- [--rounds N] [--write FILE]`
//! (`make contention` rewrites lab/sim/data/contention.toml.)
//!
//! Two workers: `arithmetic` (independent multiply-and-add chains, in registers) and `cache` (random reads
//! of 8 MiB: past a core's own cache, inside the shared one). In each round each worker runs for a quantum on
//! CPU 0 while CPU 1 idles, runs `arithmetic`, or runs `cache`; the order turns from round to round. Speed is
//! work per second of the worker's own CPU time, so time lost to other processes does not count; a ratio is
//! taken within one round, against the same worker beside the idle neighbour.
//! `--rounds` says how many undisturbed rounds each pair wants; at most four times as many are made.
//! A quantum whose neighbour was not what it should be (others ran on the "idle" CPU, or the hypervisor took
//! a CPU away) is dropped; how many were kept is printed. The answer is the median of the ratios with the
//! interval that holds the true median in 95 of 100 repetitions (order statistics: nothing is assumed of the
//! noise). How each coefficient follows is in report.rs and in the file that it writes.

mod report;
mod workers;

use std::process::ExitCode;
use std::time::Duration;

use report::Pair;
use workers::{Bench, Kind};

const QUANTUM: Duration = Duration::from_millis(60);
const ROUNDS: usize = 40;
const ATTEMPTS: usize = 4;
const NEIGHBOURS: [Option<Kind>; 3] = [None, Some(Kind::Arithmetic), Some(Kind::Cache)];

struct Options {
    rounds: usize,
    write: Option<std::path::PathBuf>,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        rounds: ROUNDS,
        write: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let value = arguments
            .next()
            .ok_or_else(|| format!("{flag}: no value; give one"))?;
        match flag.as_str() {
            "--rounds" => {
                options.rounds = value
                    .parse()
                    .map_err(|why| format!("--rounds: {value}: {why}; give a count"))?;
            }
            "--write" => options.write = Some(value.into()),
            _ => {
                return Err(format!(
                    "{flag}: no such option; there are --rounds N and --write FILE"
                ));
            }
        }
    }
    Ok(options)
}

fn measure(rounds: usize) -> Result<Vec<Pair>, String> {
    let bench = Bench::new()?;
    let mut pairs = report::empty_pairs();
    // A busy machine costs more rounds, up to a bound; a quiet one stops at what was asked for.
    for round in 0..rounds * ATTEMPTS {
        if pairs.iter().all(|pair| pair.ratios_ppm.len() >= rounds) {
            break;
        }
        for own in Kind::ALL {
            let mut rates = [None; 3];
            for step in 0..NEIGHBOURS.len() {
                let cell = (step + round) % NEIGHBOURS.len();
                rates[cell] = bench.rate(own, NEIGHBOURS[cell], QUANTUM)?;
            }
            for pair in pairs.iter_mut().filter(|pair| pair.own == own) {
                let beside = NEIGHBOURS
                    .iter()
                    .position(|&kind| kind == Some(pair.neighbour))
                    .map(|cell| rates[cell]);
                if let (Some(alone), Some(Some(beside))) = (rates[0], beside) {
                    pair.ratios_ppm.push((beside * 1e6 / alone).round() as u32);
                }
            }
        }
    }
    Ok(pairs)
}

fn run() -> Result<(), String> {
    let options = options()?;
    let mut pairs = measure(options.rounds)?;
    for pair in &mut pairs {
        pair.ratios_ppm.sort_unstable();
    }
    let text = report::file(&pairs, options.rounds, QUANTUM)?;
    print!("{text}");
    if let Some(path) = options.write {
        std::fs::write(&path, text).map_err(|why| format!("{}: {why}", path.display()))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("tidegate: contention-measure: {message}");
            ExitCode::FAILURE
        }
    }
}
