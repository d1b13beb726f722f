//! `cargo xtask results [RUN...]`: runs the laboratory's experiments for the pages, keeps each
//! report as `docs/results/RUN.json`, and writes its figures between the markers of the pages.
//!
//! ```text
//! <!-- results: law-sim -->      the figures of docs/results/law-sim.json
//! <!-- end of results -->
//! <!-- figure: caps-sim: NAME --> 0.16 ‰ <!-- end --> one of them, within a line
//! ```
//!
//! Without a name it repeats what is not of this commit, so a run that was stopped goes on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

/// The name of a run, and what `tidegate-lab` is told.
const RUNS: [(&str, &str); 8] = [
    ("law-vm", "law --on vm"),
    ("law-sim", "law --on sim"),
    ("step-sim", "step --on sim"),
    ("headroom-sim", "headroom --on sim"),
    ("latency-sim", "latency --on sim"),
    ("burst-sim", "burst --on sim"),
    ("slices-sim", "slices --on sim"),
    ("caps-sim", "caps --on sim"),
];
const FOLDER: &str = "docs/results";
const BEGIN: &str = "<!-- results: ";
const END: &str = "<!-- end of results -->";
const FIGURE: &str = "<!-- figure: ";
const FIGURE_END: &str = "<!-- end -->";

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
    for (name, words) in RUNS {
        let file = repository.join(FOLDER).join(name).with_extension("json");
        let wanted = match names {
            [] => read(&file).is_none_or(|kept| kept["commit"] != commit.as_str()),
            names => names.iter().any(|one| one == name),
        };
        if wanted {
            println!("tidegate-lab {words}");
            let kept = repeat(repository, name, words, &commit)?;
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

fn repeat(repository: &Path, name: &str, words: &str, commit: &str) -> anyhow::Result<Value> {
    let lab = repository.join("target/release/tidegate-lab");
    ensure!(lab.is_file(), "{}: build it by `make lab`", lab.display());
    let mut command = Command::new(&lab);
    command.args(words.split(' ')).arg("--json");
    let out = repository.join("target/results").join(name);
    let report = said(command.arg("--out").arg(&out), repository)?;
    let date = said(Command::new("date").args(["-u", "+%Y-%m-%d"]), repository)?;
    let report: Value = serde_json::from_str(&report).context("the laboratory's JSON")?;
    Ok(json!({
        "command": format!("tidegate-lab {words}"),
        "commit": commit,
        "date": date,
        "report": report,
    }))
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
    let page = filled(page, BEGIN, END, |name| {
        Ok(format!("\n{}", markdown(&kept(name)?)))
    })?;
    filled(&page, FIGURE, FIGURE_END, |wanted| {
        let (run, name) = wanted.split_once(": ").context("it is RUN: NAME")?;
        let kept = kept(run)?;
        let mut figures = kept["report"]["headline"].as_array().into_iter().flatten();
        let found = figures.find(|figure| figure["name"] == name);
        let found = found.with_context(|| format!("{run} has no such figure"))?;
        Ok(format!(" {} ", value(found)))
    })
}

/// The text after each marker `BEGIN… -->`, up to the end, replaced by what the marker names.
fn filled(
    page: &str,
    begin: &str,
    end: &str,
    text_of: impl Fn(&str) -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    let (mut out, mut rest) = (String::new(), page);
    while let Some((before, after)) = rest.split_once(begin) {
        let (name, after) = after
            .split_once(" -->")
            .context("a marker without an end")?;
        let (_, after) = after
            .split_once(end)
            .with_context(|| format!("{name}: no `{end}` after its marker"))?;
        let text = text_of(name).with_context(|| name.to_owned())?;
        out += &format!("{before}{begin}{name} -->{text}{end}");
        rest = after;
    }
    Ok(out + rest)
}

/// Each figure of the report with its target; the rounds are in the JSON.
fn markdown(kept: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let report = &kept["report"];
    let figures = report["headline"].as_array().into_iter().flatten();
    let mut out = format!(
        "`{}`, {}, commit {}.\n{}.\n",
        text(&kept["command"]),
        text(&kept["date"]),
        text(&kept["commit"]),
        text(&report["machine"]["line"])
    );
    out += "\n| figure | published | ours | target | |\n|---|---|---|---|---|\n";
    out + &figures.map(headline).collect::<String>()
}

fn headline(line: &Value) -> String {
    let text = |key: &str| line[key].as_str().unwrap_or("").replace('|', "\\|");
    let met = match line["met"].as_bool() {
        Some(true) => "met",
        Some(false) => "**missed**",
        None => "",
    };
    format!(
        "| {} | {} | {} | {} | {met} |\n",
        text("name"),
        number(&line["published"]),
        value(line),
        text("target"),
    )
}

/// A figure with its interval and unit.
fn value(figure: &Value) -> String {
    let interval = match figure["interval95"].as_array().map(Vec::as_slice) {
        Some([from, to]) => format!(" ({}–{})", number(from), number(to)),
        _ => String::new(),
    };
    let unit = figure["unit"].as_str().unwrap_or("");
    format!("{}{interval} {unit}", number(&figure["value"]))
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
            assert!(now == text, "{}: run cargo xtask results", page.display());
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
            let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
            let run = RUNS.iter().find(|(known, _)| *known == name);
            let (_, words) = run.unwrap_or_else(|| panic!("{name}: no such run"));
            let kept = read(&file).unwrap_or_else(|| panic!("{name}: no JSON"));
            assert_eq!(kept["command"], format!("tidegate-lab {words}"));
            let marker = format!("{BEGIN}{name} -->");
            assert!(
                pages.iter().any(|page| page.contains(&marker)),
                "{name}: on no page"
            );
        }
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
        let row = "| idle | – | 1.50 (1.00–2.00) % | ≤ 2 | met |\n";
        assert!(found.ends_with(row), "{found}");
        let page = "a <!-- figure: x: y --> old <!-- end --> b";
        let filled = filled(page, FIGURE, FIGURE_END, |name| Ok(format!(" {name} "))).unwrap();
        assert_eq!(filled, "a <!-- figure: x: y --> x: y <!-- end --> b");
    }
}
