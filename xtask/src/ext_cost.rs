//! `cargo xtask ext-cost`: what each callback of the ext engine costs, recorded by kernel in `tests/vm/ext-cost.tsv`.
//!
//! `--write` measures again in the VM (the test `ext-cost`, on both kernels) and writes the record and the table of docs/ext.md
//! that is made of it. Without it, the table is compared with the record. The test holds each callback to a quarter more
//! verified instructions than are recorded.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tidegate_vm::{Bed, Mode, Progress, Suite, catalog};

use crate::vm;

const HELP: &str = "\
usage: cargo xtask ext-cost [--write]

Compares the table of docs/ext.md with tests/vm/ext-cost.tsv, which records what the callbacks of the ext engine cost.
--write measures both kernels in the virtual machine and writes both files.

Exit code 0 the same or written, 1 not so, 2 usage.";

const KERNELS: [&str; 2] = ["6.18", "7.3"];
const DOCS: &str = "docs/ext.md";
const CASE: &str = "ext-cost";
/// What the test takes for: measure, and do not judge.
const RECORD: &str = "record\n";
const LIMIT: Duration = Duration::from_secs(600);
const BEGIN: &str = "<!-- cost table: written by cargo xtask ext-cost --write -->\n";
const END: &str = "<!-- end of cost table -->";

/// One callback on one kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cost {
    insns: u64,
    /// None: it was not called.
    ns: Option<u64>,
}

/// By callback and kernel.
type Costs = BTreeMap<(String, String), Cost>;

/// `cargo xtask ext-cost ARGUMENTS`.
pub fn main(arguments: &[String]) -> ExitCode {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let done = match arguments {
        [] => check(&repository),
        [one] if one == "--write" => write(&repository),
        [one] if one == "--help" => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("tidegate: ext-cost: {why:#}");
            ExitCode::FAILURE
        }
    }
}

fn check(repository: &Path) -> anyhow::Result<()> {
    let docs = std::fs::read_to_string(repository.join(DOCS))?;
    let costs = parse(&std::fs::read_to_string(repository.join(vm::EXT_COSTS))?)?;
    ensure!(
        put(&docs, &table(&costs)).as_deref() == Some(docs.as_str()),
        "{DOCS}: its table of costs is not what {} says; run `cargo xtask ext-cost --write`",
        vm::EXT_COSTS
    );
    println!("{} callbacks as recorded", costs.len());
    Ok(())
}

fn write(repository: &Path) -> anyhow::Result<()> {
    let record = repository.join("target/ext-cost.record");
    std::fs::write(&record, RECORD)?;
    let programs = vm::guest_programs(repository, "dev")?;
    let mut costs = Costs::new();
    for series in KERNELS {
        let measured = measure(repository, series, &programs, &record)
            .with_context(|| format!("measure on {series}"))?;
        take(&mut costs, series, &measured)?;
    }
    let path = repository.join(DOCS);
    let docs = std::fs::read_to_string(&path)?;
    let docs = put(&docs, &table(&costs)).with_context(|| format!("{DOCS}: no markers"))?;
    std::fs::write(&path, docs)?;
    std::fs::write(repository.join(vm::EXT_COSTS), text(&costs))?;
    println!("wrote {} and {DOCS}", vm::EXT_COSTS);
    Ok(())
}

type Measures = Vec<(String, String, String)>;

fn measure(
    repository: &Path,
    series: &str,
    programs: &[(String, PathBuf)],
    record: &Path,
) -> anyhow::Result<Measures> {
    let cases = catalog::read(&repository.join("tests/vm/cases"))?;
    let case: Vec<_> = cases.iter().filter(|case| case.name == CASE).collect();
    let mut setup = vm::setup(repository, &format!("ext-cost-vm/{series}"), series);
    setup.binaries = programs.to_vec();
    let mut bed = Bed::prepare(&setup)?;
    bed.add_files(vec![("vm/ext-cost.tsv".into(), record.to_owned())]);
    let suite = Suite {
        label: format!("precise {series}"),
        mode: Mode::Precise,
        userland: None,
        bed: &bed,
        deadline: Instant::now() + LIMIT,
        keep: false,
        part: 0,
        again_max: 0,
    };
    let tally = suite.run(case, &Progress::new(1))?;
    ensure!(tally.passed == 1, "the test {CASE} did not pass; see above");
    Ok(tally.measures)
}

/// What the test measured: `verified_NAME` and, of what was called, `cost_NAME`.
fn take(costs: &mut Costs, series: &str, measures: &Measures) -> anyhow::Result<()> {
    for (name, value, _) in measures {
        let number = || {
            value
                .parse::<u64>()
                .with_context(|| format!("{name} is {value}"))
        };
        let (program, insns, ns) = match name.split_once('_') {
            Some(("verified", program)) => (program, Some(number()?), None),
            Some(("cost", program)) => (program, None, Some(number()?)),
            _ => continue,
        };
        let cost = costs
            .entry((program.to_owned(), series.to_owned()))
            .or_default();
        cost.insns = insns.unwrap_or(cost.insns);
        cost.ns = ns.or(cost.ns);
    }
    Ok(())
}

fn text(costs: &Costs) -> String {
    let mut text = "# What the ext engine's callbacks cost: kernel, callback, verified instructions, ns a call (- where there \
                    was none).\n# cargo xtask ext-cost --write makes it again.\n"
        .to_owned();
    for ((program, series), cost) in costs {
        let ns = cost.ns.map_or("-".to_owned(), |ns| ns.to_string());
        // Writing to a string does not fail.
        let _ = writeln!(text, "{series}\t{program}\t{}\t{ns}", cost.insns);
    }
    text
}

fn parse(text: &str) -> anyhow::Result<Costs> {
    let mut costs = Costs::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split('\t').collect();
        let [series, program, insns, ns] = words[..] else {
            anyhow::bail!("{}: \"{line}\" has no four columns", vm::EXT_COSTS);
        };
        let cost = Cost {
            insns: insns.parse().with_context(|| line.to_owned())?,
            ns: match ns {
                "-" => None,
                ns => Some(ns.parse().with_context(|| line.to_owned())?),
            },
        };
        costs.insert((program.to_owned(), series.to_owned()), cost);
    }
    Ok(costs)
}

/// The docs' table: a row for each callback, most instructions first.
fn table(costs: &Costs) -> String {
    let mut programs: Vec<&str> = costs.keys().map(|(program, _)| program.as_str()).collect();
    programs.dedup();
    let of = |program: &str, series: &str| {
        let key = (program.to_owned(), series.to_owned());
        costs.get(&key).copied()
    };
    let most = |program: &&str| {
        KERNELS
            .iter()
            .filter_map(|s| of(program, s))
            .map(|c| c.insns)
            .max()
    };
    programs.sort_by_key(|program| (std::cmp::Reverse(most(program)), *program));
    let mut table = "| callback |".to_owned();
    for series in KERNELS {
        let _ = write!(table, " {series}: verified | ns a call |");
    }
    table.push_str("\n|---|---:|---:|---:|---:|\n");
    for program in programs {
        let _ = write!(table, "| {program} |");
        for series in KERNELS {
            let cost = of(program, series);
            let insns = cost.map_or("–".to_owned(), |cost| cost.insns.to_string());
            let ns = cost.and_then(|cost| cost.ns);
            let ns = ns.map_or("–".to_owned(), |ns| ns.to_string());
            let _ = write!(table, " {insns} | {ns} |");
        }
        table.push('\n');
    }
    table
}

/// The docs with this table between the markers; None: they are not there.
fn put(docs: &str, table: &str) -> Option<String> {
    let (before, rest) = docs.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(name: &str, value: &str) -> (String, String, String) {
        (name.to_owned(), value.to_owned(), String::new())
    }

    #[test]
    fn what_is_measured_is_recorded_and_read_again() {
        let mut costs = Costs::new();
        let measures = vec![
            measured("verified_update_idle", "644"),
            measured("cost_update_idle", "135"),
            measured("verified_dispatch", "29858"),
            measured("other", "1"),
        ];
        take(&mut costs, "7.3", &measures).unwrap();
        let back = parse(&text(&costs)).unwrap();
        assert_eq!(back, costs);
        let rows: Vec<String> = table(&back).lines().skip(2).map(str::to_owned).collect();
        assert_eq!(
            rows,
            [
                "| dispatch | – | – | 29858 | – |",
                "| update_idle | – | – | 644 | 135 |"
            ]
        );
    }

    #[test]
    fn a_line_that_is_none_is_refused() {
        assert!(parse("6.18\tdispatch\t1\n").is_err());
        assert!(parse("6.18\tdispatch\tmany\t-\n").is_err());
    }

    #[test]
    fn only_the_table_between_the_markers_changes() {
        let docs = format!("a\n{BEGIN}old\n{END}\nb\n");
        assert_eq!(
            put(&docs, "new\n").unwrap(),
            format!("a\n{BEGIN}new\n{END}\nb\n")
        );
        assert!(put("none", "new\n").is_none());
    }
}
