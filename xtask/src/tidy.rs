//! `cargo xtask tidy`: the rules of the tree that no library checks, over every file that git knows
//! or would add.
//!
//! | rule | where |
//! |---|---|
//! | no path or folder that exists only on one machine | all |
//! | no file without a module that names it | Rust |
//! | no import cycle between modules of a crate | Rust |
//! | each test that the page names exists | docs/failure-contract.md, docs/support.md |
//! | the first line names the licence of the folder | C |
//! | each relative link and its anchor exist | markdown |

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

mod layout;
mod links;
mod modules;

/// Pages that name tests.
const PROVED: [&str; 2] = ["docs/failure-contract.md", "docs/support.md"];

/// Written in two parts, so that this file does not break its own rule.
const ONE_MACHINE: &[(&str, &str)] = &[
    ("../sha", "red"),
    ("/wo", "rk/"),
    ("/ro", "ot/."),
    ("/home", "/"),
];

const OURS: &str = "MIT OR Apache-2.0";
const OURS_IN_KERNEL: &str = "GPL-2.0-only OR BSD-2-Clause";
/// The same licence by its name in the kernel (include/linux/license.h).
const FOR_KERNEL: &str = "SEC(\"license\") = \"Dual BSD/GPL\";";

/// A rule that is broken.
type Problem = String;

/// Runs the check from anywhere in the repository.
pub fn main() -> ExitCode {
    let files = match files() {
        Ok(files) => files,
        Err(why) => {
            eprintln!("tidegate: tidy: git ls-files: {why}; run it in a checkout");
            return ExitCode::FAILURE;
        }
    };
    let all: Vec<(PathBuf, String)> = files
        .iter()
        .filter_map(|path| Some((path.clone(), std::fs::read_to_string(path).ok()?)))
        .collect();
    let mut problems: Vec<Problem> = all
        .iter()
        .flat_map(|(path, text)| check(path, text))
        .collect();
    problems.extend(layout::dead_files(&all));
    problems.extend(missing_proofs(&all));
    problems.extend(links::dead(&files, &all));
    for (folder, (count, shortest)) in modules::cycles(&all) {
        problems.push(format!(
            "{folder}: {count} modules in import cycles: {shortest}: move what both need into a module below them"
        ));
    }
    for problem in &problems {
        eprintln!("tidegate: tidy: {problem}");
    }
    if problems.is_empty() {
        println!("tidy: {} files keep the rules", all.len());
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Tracked files and those that could be added, from the top of the checkout.
fn files() -> Result<Vec<PathBuf>, String> {
    let run = |args: &[&str]| {
        let output = Command::new("git")
            .args(args)
            .output()
            .map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    };
    let top = run(&["rev-parse", "--show-toplevel"])?;
    std::env::set_current_dir(top.trim()).map_err(|error| error.to_string())?;
    let listed = run(&[
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
        "--deduplicate",
    ])?;
    let names = listed.split('\0').filter(|name| !name.is_empty());
    Ok(names.map(PathBuf::from).collect())
}

fn check(path: &Path, text: &str) -> Vec<Problem> {
    let shown = path.display();
    let mut problems: Vec<Problem> = mislabelled(path, text).into_iter().collect();
    for (number, line) in (1..).zip(text.lines()) {
        for (first, second) in ONE_MACHINE {
            let word = format!("{first}{second}");
            if line.contains(&word) {
                problems.push(format!(
                    "{shown}:{number}: {word} exists on one machine only; remove it"
                ));
            }
        }
    }
    problems
}

/// A C file whose licence is not that of its folder.
fn mislabelled(path: &Path, text: &str) -> Option<Problem> {
    let name = path
        .to_str()
        .filter(|name| name.ends_with(".c") || name.ends_with(".h"))?;
    let in_kernel = name.starts_with("law/") || name.contains("/bpf/");
    let licence = if in_kernel { OURS_IN_KERNEL } else { OURS };
    let first = text.lines().next().unwrap_or_default();
    let named = first.split_once("SPDX-License-Identifier: ");
    if named.map(|(_, named)| named.trim_end_matches("*/").trim()) != Some(licence) {
        return Some(format!(
            "{name}: the first line must be \"SPDX-License-Identifier: {licence}\" (see LICENSE)"
        ));
    }
    (name.ends_with(".bpf.c") && !text.contains(FOR_KERNEL))
        .then(|| format!("{name}: the program's licence must be `{FOR_KERNEL}`"))
}

/// `FILE: FUNCTION` and `tests/vm/cases/NAME.sh` in a page of [`PROVED`] that do not exist.
fn missing_proofs(all: &[(PathBuf, String)]) -> Vec<Problem> {
    let text_of = |name: &str| {
        let found = all.iter().find(|(path, _)| path == Path::new(name));
        found.map(|(_, text)| text.as_str())
    };
    let is_missing = |word: &&str| match word.split_once(": ") {
        Some((file, function)) => {
            let head = format!("fn {function}(");
            !text_of(file).is_some_and(|text| text.contains(&head))
        }
        None => text_of(word).is_none(),
    };
    let mut problems = Vec::new();
    for page in PROVED {
        let Some(text) = text_of(page) else {
            problems.push(format!("{page}: the file is missing"));
            continue;
        };
        let quoted = text.split('`').skip(1).step_by(2);
        let named = quoted.filter(|word| {
            let file = word.split(": ").next().unwrap_or_default();
            file.contains('/') && (file.ends_with(".rs") || file.ends_with(".sh"))
        });
        problems.extend(named.filter(is_missing).map(|word| {
            format!("{page}: {word}: there is no such test; name the one that proves it")
        }));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(name: &str, text: &str) -> usize {
        check(Path::new(name), text).len()
    }

    #[test]
    fn each_rule_finds_its_breach() {
        assert_eq!(problems("a.rs", "fn a() {}\n"), 0);
        assert_eq!(
            problems("a.md", &format!("see {}red/design.md\n", "../sha")),
            1
        );
    }

    #[test]
    fn a_c_file_names_the_licence_of_its_folder_and_a_program_tells_the_kernel() {
        let ours = format!("// SPDX-License-Identifier: {OURS}\n");
        let in_kernel = format!("/* SPDX-License-Identifier: {OURS_IN_KERNEL} */\n");
        assert_eq!(problems("tests/vm/tool.c", &ours), 0);
        assert_eq!(problems("law/cap.h", &in_kernel), 0);
        assert_eq!(problems("law/cap.h", &ours), 1);
        assert_eq!(problems("tests/vm/tool.c", "int main;"), 1);
        let program = format!("{in_kernel}char LICENSE[] {FOR_KERNEL}\n");
        assert_eq!(problems("crates/x/bpf/main.bpf.c", &program), 0);
        assert_eq!(problems("crates/x/bpf/main.bpf.c", &in_kernel), 1);
    }

    #[test]
    fn a_proof_that_does_not_exist_is_found() {
        let files = |contract: &str| {
            let file = |name: &str, text: &str| (PathBuf::from(name), text.to_owned());
            let test = "#[test]\nfn it_holds() {}\n";
            [
                file(PROVED[0], contract),
                file(PROVED[1], ""),
                file("a/b.rs", test),
                file("tests/c.sh", "true\n"),
            ]
        };
        let count = |contract: &str| missing_proofs(&files(contract)).len();
        assert_eq!(
            count("`a/b.rs: it_holds` `tests/c.sh` `cpu.idle` `x: y`\n"),
            0
        );
        assert_eq!(
            count("`a/b.rs: it_hold` `tests/d.sh` `a/c.rs: it_holds`\n"),
            3
        );
        assert_eq!(missing_proofs(&[]).len(), 2);
    }
}
