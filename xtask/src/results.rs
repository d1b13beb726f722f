//! `cargo xtask results [RUN...]`: runs the experiments of the pages, keeps each report as
//! `docs/results/RUN.json`, and writes its figures between the markers of the pages.
//!
//! ```text
//! <!-- results: law-sim -->      the figures of docs/results/law-sim.json
//! <!-- end of results -->
//! <!-- table: readme -->         docs/results/readme.md, with the figure for each {RUN: NAME}
//! <!-- end of results -->
//! ```
//!
//! Without a name it repeats what is not of this commit, so a run that was stopped goes on.
//! `UPDATE_DOCS=1 cargo test -p xtask results` writes the pages and repeats nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

/// The name of a run, and its command. Those on the host need it quiet, and root.
const RUNS: [(&str, &str); 15] = [
    ("nginx-host", "scripts/nginx.py"),
    ("kernbench-host", "scripts/kernbench.py"),
    ("hashd-host", "scripts/hashd.py"),
    ("step-host", "tidegate-lab step --on host"),
    ("bursts-vm", "cargo xtask vm engine-bursts --kernel 6.18"),
    ("locks-vm", "cargo xtask vm engine-locks --kernel 6.18"),
    ("caps-vm", "tidegate-lab caps --on vm"),
    ("law-vm", "tidegate-lab law --on vm"),
    ("law-sim", "tidegate-lab law --on sim"),
    ("step-sim", "tidegate-lab step --on sim"),
    ("headroom-sim", "tidegate-lab headroom --on sim"),
    ("latency-sim", "tidegate-lab latency --on sim"),
    ("burst-sim", "tidegate-lab burst --on sim"),
    ("slices-sim", "tidegate-lab slices --on sim"),
    ("caps-sim", "tidegate-lab caps --on sim"),
];
const FOLDER: &str = "docs/results";
const BEGIN: &str = "<!-- results: ";
const END: &str = "<!-- end of results -->";
const TABLE: &str = "<!-- table: ";
/// The column of a figure without arms.
const MEASURED: &str = "measured";

pub fn main(names: &[String]) -> ExitCode {
    let unknown = |name: &&String| RUNS.iter().all(|(known, _)| known != name);
    if let Some(name) = names.iter().find(unknown) {
        let known: Vec<&str> = RUNS.iter().map(|(name, _)| *name).collect();
        eprintln!(
            "tidegate: results: {name}: no such run; known: {}",
            known.join(" ")
        );
        return ExitCode::from(2);
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    match all(&repository, names) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("tidegate: results: {why:#}");
            ExitCode::FAILURE
        }
    }
}

fn all(repository: &Path, names: &[String]) -> anyhow::Result<()> {
    let commit = commit(repository)?;
    for (name, command) in RUNS {
        let file = repository.join(FOLDER).join(name).with_extension("json");
        let wanted = match names {
            [] => read(&file).is_none_or(|kept| kept["commit"] != commit.as_str()),
            names => names.iter().any(|one| one == name),
        };
        if wanted {
            println!("{command}");
            let report = repeat(repository, name, command)?;
            let date = said(Command::new("date").args(["-u", "+%Y-%m-%d"]), repository)?;
            let kept = json!({
                "command": command, "commit": commit, "date": date, "report": report,
            });
            fs::create_dir_all(repository.join(FOLDER))?;
            fs::write(&file, serde_json::to_string(&kept)? + "\n")?;
        }
    }
    for page in pages(repository)? {
        let text = fs::read_to_string(&page)?;
        fs::write(&page, rendered(repository, &text)?)?;
    }
    Ok(())
}

/// The commit, marked where files other than pages differ from it.
fn commit(repository: &Path) -> anyhow::Result<String> {
    let git = |words: &[&str]| said(Command::new("git").args(words), repository);
    let commit = git(&["rev-parse", "--short=8", "HEAD"])?;
    let differs = git(&["status", "--porcelain", "--", ".", ":!docs", ":!README.md"])?;
    Ok(commit + if differs.is_empty() { "" } else { "-dirty" })
}

fn repeat(repository: &Path, name: &str, command: &str) -> anyhow::Result<Value> {
    let lab = repository.join("target/release/tidegate-lab");
    let words: Vec<&str> = command.split(' ').collect();
    let mut program = match words[..] {
        ["tidegate-lab", ..] => {
            ensure!(lab.is_file(), "{}: build it by `make lab`", lab.display());
            let out = repository.join("target/results").join(name);
            let mut program = Command::new(&lab);
            program
                .args(&words[1..])
                .arg("--json")
                .arg("--out")
                .arg(out);
            program
        }
        _ => {
            let mut program = Command::new(words[0]);
            program.args(&words[1..]);
            program
        }
    };
    if let ["cargo", "xtask", "vm", ..] = words[..] {
        // A case that misses its bound is published as well.
        let output = program.current_dir(repository).output()?;
        return of_guest(repository, &words[3..], &String::from_utf8(output.stdout)?);
    }
    let report = said(&mut program, repository)?;
    serde_json::from_str(&report).with_context(|| format!("the JSON of {command}"))
}

/// What the cases of the VM have measured: lines of a name, a value and a unit.
fn of_guest(repository: &Path, words: &[&str], output: &str) -> anyhow::Result<Value> {
    let mut fetch = Command::new("cargo");
    fetch.args(["xtask", "vm", "fetch"]).args(&words[1..]);
    let kernel = said(&mut fetch, repository)?;
    let version = kernel.split(' ').nth(1).unwrap_or_default();
    let headline: Vec<Value> = output.lines().filter_map(measured).collect();
    ensure!(!headline.is_empty(), "it measured nothing: {output}");
    let line = format!("virtual time, Debian's Linux {version}, QEMU TCG");
    Ok(json!({ "machine": { "line": line }, "headline": headline }))
}

fn measured(line: &str) -> Option<Value> {
    let line = line.strip_prefix("         ")?;
    let (name, rest) = line.split_once(' ')?;
    let (value, unit) = rest.split_once(' ').unwrap_or((rest, ""));
    let value: f64 = value.parse().ok()?;
    Some(json!({ "name": name, "value": value, "unit": unit }))
}

fn said(command: &mut Command, repository: &Path) -> anyhow::Result<String> {
    let output = command.current_dir(repository).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {errors}");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn read(file: &Path) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(file).ok()?).ok()
}

/// The pages that may have tables.
fn pages(repository: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut pages = vec![repository.join("README.md")];
    for entry in fs::read_dir(repository.join("docs"))? {
        pages.push(entry?.path());
    }
    pages.retain(|page| page.extension().is_some_and(|end| end == "md"));
    Ok(pages)
}

/// A page with the figures as the JSON files have them.
fn rendered(repository: &Path, page: &str) -> anyhow::Result<String> {
    let kept = |name: &str| {
        let file = repository.join(FOLDER).join(name).with_extension("json");
        read(&file).with_context(|| format!("no {}; cargo xtask results {name}", file.display()))
    };
    let page = filled(page, BEGIN, |name| {
        Ok(format!("\n{}", markdown(&kept(name)?)))
    })?;
    filled(&page, TABLE, |name| {
        let file = repository.join(FOLDER).join(name).with_extension("md");
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        Ok(format!("\n{}", with_figures(&text, &kept)?))
    })
}

/// A text with the figure in place of each `{RUN: NAME}`.
fn with_figures(
    text: &str,
    kept: &impl Fn(&str) -> anyhow::Result<Value>,
) -> anyhow::Result<String> {
    let mut parts = text.split('{');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (wanted, rest) = part.split_once('}').context("a { without its }")?;
        let (run, name) = wanted.split_once(": ").context("it is {RUN: NAME}")?;
        let kept = kept(run)?;
        let mut figures = kept["report"]["headline"].as_array().into_iter().flatten();
        let found = figures.find(|figure| figure["name"] == name);
        let found = found.with_context(|| format!("{run} has no figure {name}"))?;
        let unit = found["unit"].as_str().unwrap_or("");
        out += &format!("{} {unit}{rest}", number(&found["value"]));
    }
    Ok(out)
}

/// The text after each marker `BEGIN… -->`, up to the end, replaced by what the marker names.
fn filled(
    page: &str,
    begin: &str,
    text_of: impl Fn(&str) -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    let (mut out, mut rest) = (String::new(), page);
    while let Some((before, after)) = rest.split_once(begin) {
        let (name, after) = after
            .split_once(" -->")
            .context("a marker without an end")?;
        let (_, after) = after
            .split_once(END)
            .with_context(|| format!("{name}: no `{END}` after its marker"))?;
        let text = text_of(name).with_context(|| name.to_owned())?;
        out += &format!("{before}{begin}{name} -->{text}{END}");
        rest = after;
    }
    Ok(out + rest)
}

/// The figures of the report with their targets; the rounds are in the JSON.
fn markdown(kept: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let report = &kept["report"];
    let rows = rows(report["headline"].as_array().map_or(&[], Vec::as_slice));
    let mut arms: Vec<&str> = Vec::new();
    for (arm, _) in rows.iter().flat_map(|row| &row.figures) {
        if !arms.contains(arm) {
            arms.push(arm);
        }
    }
    let mut bounds = vec!["published", "target"];
    bounds.retain(|key| rows.iter().any(|row| row.bound(key).is_some()));
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | ").trim_end());
    let head = ["figure"].iter().chain(&bounds).chain(&arms);
    let mut out = format!(
        "`{}`, {}, commit {}.\n{}.\n\n{}{}|\n",
        text(&kept["command"]),
        text(&kept["date"]),
        text(&kept["commit"]),
        text(&report["machine"]["line"]),
        line(head.map(|name| (*name).to_owned()).collect()),
        "|---".repeat(1 + bounds.len() + arms.len()),
    );
    for row in &rows {
        let bound = |key: &&str| row.bound(key).map_or("–".to_owned(), shown);
        let mut cells = vec![row.name.replace('|', "\\|")];
        cells.extend(bounds.iter().map(bound));
        cells.extend(arms.iter().map(|arm| row.cell(arm)));
        out += &line(cells);
    }
    out
}

/// Figures that differ only in the arm, or in the number of CPUs.
struct Row<'a> {
    name: &'a str,
    figures: Vec<(&'a str, &'a Value)>,
}

impl<'a> Row<'a> {
    fn bound(&self, key: &str) -> Option<&'a Value> {
        let mut bounds = self.figures.iter().map(|(_, figure)| &figure[key]);
        bounds.find(|bound| !bound.is_null())
    }

    /// Whether the row's target and published figure are those of this figure as well.
    fn is_of(&self, figure: &Value) -> bool {
        let (target, wanted) = (self.bound("target"), &figure["target"]);
        self.figures[0].1["published"] == figure["published"]
            && (wanted.is_null() || target.is_none_or(|target| target == wanted))
    }

    fn cell(&self, arm: &str) -> String {
        let figure = self.figures.iter().find(|(known, _)| *known == arm);
        figure.map_or(String::new(), |(_, figure)| value(figure))
    }
}

fn rows(figures: &[Value]) -> Vec<Row<'_>> {
    let names: Vec<(&str, &str)> = figures.iter().map(split).collect();
    let is_shared = |name: &&(&str, &str)| {
        let in_row = names.iter().filter(|other| other.0 == name.0);
        let in_column = names.iter().filter(|other| other.1 == name.1);
        in_row.count() > 1 && in_column.count() > 1
    };
    let arms: Vec<&str> = names.iter().filter(is_shared).map(|name| name.1).collect();
    let mut rows: Vec<Row> = Vec::new();
    for (figure, (name, arm)) in figures.iter().zip(&names) {
        let (name, arm) = if arms.contains(arm) {
            (*name, *arm)
        } else {
            (figure["name"].as_str().unwrap_or_default(), MEASURED)
        };
        let is_its = |row: &&mut Row| row.name == name && row.is_of(figure);
        match rows.iter_mut().find(is_its) {
            Some(row) => row.figures.push((arm, figure)),
            None => rows.push(Row {
                name,
                figures: vec![(arm, figure)],
            }),
        }
    }
    rows
}

/// What is measured, and the number of CPUs, the arm, or the last word of a guest's name.
fn split(figure: &Value) -> (&str, &str) {
    let name = figure["name"].as_str().unwrap_or_default();
    let cpus = name.rsplit_once(", ");
    cpus.filter(|(_, last)| last.ends_with(" CPUs"))
        .or_else(|| name.split_once(": "))
        .or_else(|| name.rsplit_once('_'))
        .unwrap_or((name, MEASURED))
}

/// A figure with its interval and unit, bold if it misses its target.
fn value(figure: &Value) -> String {
    let interval = match figure["interval95"].as_array().map(Vec::as_slice) {
        Some([from, to]) => format!(" ({}–{})", number(from), number(to)),
        _ => String::new(),
    };
    let unit = figure["unit"].as_str().unwrap_or("");
    let text = format!("{}{interval} {unit}", number(&figure["value"]));
    match figure["met"].as_bool() {
        _ if figure["value"].is_null() => number(&figure["value"]),
        Some(false) => format!("**{}**", text.trim_end()),
        _ => text.trim_end().to_owned(),
    }
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| number(value), str::to_owned)
}

fn number(value: &Value) -> String {
    value.as_f64().map_or("–".to_owned(), short)
}

/// To three digits, or to the unit.
fn short(value: f64) -> String {
    let places = match value.abs() {
        0.0 => 0,
        v if v < 1.0 => 3,
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.places$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn the_pages_have_what_the_json_files_have() {
        for page in pages(&repository()).unwrap() {
            let text = fs::read_to_string(&page).unwrap();
            let now = rendered(&repository(), &text).unwrap();
            if std::env::var_os("UPDATE_DOCS").is_some() {
                fs::write(&page, &now).unwrap();
                continue;
            }
            assert!(
                now == text,
                "{}: run UPDATE_DOCS=1 cargo test -p xtask results",
                page.display()
            );
        }
    }

    #[test]
    fn each_kept_run_is_one_of_ours_and_on_a_page() {
        let pages: Vec<String> = pages(&repository())
            .unwrap()
            .iter()
            .map(|page| fs::read_to_string(page).unwrap())
            .collect();
        for entry in fs::read_dir(repository().join(FOLDER)).unwrap() {
            let file = entry.unwrap().path();
            if file.extension().is_none_or(|end| end != "json") {
                continue;
            }
            let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
            let run = RUNS.iter().find(|(known, _)| *known == name);
            let (_, command) = run.unwrap_or_else(|| panic!("{name}: no such run"));
            let kept = read(&file).unwrap_or_else(|| panic!("{name}: no JSON"));
            assert_eq!(kept["command"], *command);
            let marker = format!("{BEGIN}{name} -->");
            assert!(
                pages.iter().any(|page| page.contains(&marker)),
                "{name}: on no page"
            );
        }
    }

    #[test]
    fn what_a_guest_measured_is_read_from_its_line() {
        let found = measured("         2_idle_fresh_6_p99 8105 us").unwrap();
        let wanted = json!({ "name": "2_idle_fresh_6_p99", "value": 8105.0, "unit": "us" });
        assert_eq!(found, wanted);
        assert_eq!(
            measured("         looks 191 times").unwrap()["value"],
            191.0
        );
        assert_eq!(measured("  ok   wide 6.18 engine-bursts  (2 s)"), None);
    }

    #[test]
    fn a_report_becomes_a_table() {
        let kept = json!({
            "command": "tidegate-lab law", "date": "2026-11-29", "commit": "abc",
            "report": {
                "machine": { "line": "2 CPUs" },
                "headline": [{ "name": "idle", "value": 1.5, "unit": "%", "published": null,
                    "target": "≤ 2", "met": true, "interval95": [1.0, 2.0] }],
            },
        });
        let found = markdown(&kept);
        assert!(found.starts_with("`tidegate-lab law`, 2026-11-29, commit abc.\n2 CPUs.\n"));
        let table = "\n| figure | target | measured |\n|---|---|---|\n| idle | ≤ 2 | 1.50 (1.00–2.00) % |\n";
        assert!(found.ends_with(table), "{found}");
        let page = format!("a {TABLE}x --> old {END} b");
        let now = filled(&page, TABLE, |name| Ok(format!(" {name} "))).unwrap();
        assert_eq!(now, format!("a {TABLE}x --> x {END} b"));
        let text = "| idle {law: idle} | and |";
        let now = with_figures(text, &|run| {
            (run == "law").then(|| kept.clone()).context("no run")
        });
        assert_eq!(now.unwrap(), "| idle 1.50 % | and |");
        assert!(with_figures("{law: busy}", &|_| Ok(kept.clone())).is_err());
    }

    #[test]
    fn arms_are_columns_where_several_rows_have_them() {
        let figure = |name: &str, value: f64, met: Option<bool>| {
            let target = met.map(|_| "≤ 1");
            json!({ "name": name, "value": value, "unit": "ms", "target": target, "met": met })
        };
        let headline = [
            figure("mean: alone", 1.0, None),
            figure("mean: ours", 2.0, Some(false)),
            figure("p99: alone", 3.0, None),
            figure("p99: ours", 4.0, None),
            figure("writes: never", 5.0, None),
        ];
        let found = markdown(&json!({ "report": { "headline": headline } }));
        let table = "| figure | target | alone | ours | measured |\n|---|---|---|---|---|\n\
                     | mean | ≤ 1 | 1.00 ms | **2.00 ms** | |\n\
                     | p99 | – | 3.00 ms | 4.00 ms | |\n\
                     | writes: never | – |  |  | 5.00 ms |\n";
        assert!(found.ends_with(table), "{found}");
    }
}
