//! `cargo xtask tidy`: the house rules that a machine can check, over every file that git knows or would take.
//!
//! | rule | where |
//! |---|---|
//! | at most 450 lines a file, 80 a function | Rust, C, shell |
//! | no leftover debug, no unfinished work without an explanation | all |
//! | nothing that exists only on one machine | all |
//! | integers only | law/ |
//! | no dead file: each module is named by its parent | Rust |
//! | at most two test programs a crate | Rust |
//! | each test that the failure contract names is there | docs/failure-contract.md |
//! | no trailing space, a line end at the end | all text |
//! | no issue by its number | code |
//! | no import cycle between modules, no type with `impl` in more than four files, no replaced word, a short README | [`structure`] |
//!
//! The limits stand a little above the style's 400 and 70, so that nobody splits an idea for one line.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

mod layout;
mod modules;
mod structure;
mod words;

const CONTRACT: &str = "docs/failure-contract.md";
const FILE_LINES_MAX: usize = 450;
const FUNCTION_LINES_MAX: usize = 80;

/// Written in two parts, so that this file does not break its own rules.
const LEFTOVERS: &[(&str, &str)] = &[("db", "g!("), ("tod", "o!("), ("unimplement", "ed!(")];
const UNFINISHED: &[(&str, &str)] = &[("TO", "DO"), ("FIX", "ME"), ("XX", "X")];
const ONE_MACHINE: &[(&str, &str)] = &[
    ("../sha", "red"),
    ("/wo", "rk/"),
    ("/ro", "ot/."),
    ("/home", "/"),
];

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
    let mut problems = Vec::new();
    let mut checked = 0;
    let all: Vec<(PathBuf, String)> = files
        .into_iter()
        .filter(|path| path.exists() && !generated(path))
        .filter_map(|path| std::fs::read_to_string(&path).ok().map(|text| (path, text)))
        .collect();
    for (path, text) in &all {
        checked += 1;
        problems.extend(check(path, text));
    }
    problems.extend(layout::dead_files(&all));
    problems.extend(layout::test_programs(&all));
    problems.extend(missing_proofs(&all));
    problems.extend(structure::check(&all));
    for problem in &problems {
        eprintln!("tidegate: tidy: {problem}");
    }
    if problems.is_empty() {
        println!("tidy: {checked} files keep the house rules");
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
    ])?;
    let unique: BTreeSet<PathBuf> = listed
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(PathBuf::from)
        .collect();
    Ok(unique.into_iter().collect())
}

/// What programs write: only its being up to date matters, which tests see to.
fn generated(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name == "Cargo.lock" || name == "vmlinux.h" || path.starts_with("docs/man")
}

fn check(path: &Path, text: &str) -> Vec<Problem> {
    let shown = path.display();
    let extension = path
        .extension()
        .and_then(|extension| extension.to_str())
        .unwrap_or_default();
    let mut problems = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    let is_code = matches!(extension, "rs" | "c" | "h" | "sh");
    if is_code && lines.len() > FILE_LINES_MAX {
        problems.push(format!(
            "{shown}: {} lines; more than {FILE_LINES_MAX} usually hold two ideas: split it",
            lines.len()
        ));
    }
    if is_code {
        for (start, length) in long_functions(extension, &lines) {
            problems.push(format!("{shown}:{start}: a function of {length} lines; more than {FUNCTION_LINES_MAX}: split it"));
        }
    }
    for (index, line) in lines.iter().enumerate() {
        let place = format!("{shown}:{}", index + 1);
        problems.extend(check_line(path, &place, line));
    }
    if !text.is_empty() && !text.ends_with('\n') {
        problems.push(format!("{shown}: no line end at the end; add one"));
    }
    problems
}

fn check_line(path: &Path, place: &str, line: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let found = |parts: &(&str, &str)| line.find(&format!("{}{}", parts.0, parts.1));
    // Golden outputs and markdown may need spaces at the end of a line.
    if line.ends_with([' ', '\t'])
        && !path
            .extension()
            .is_some_and(|ext| ext == "md" || ext == "txt")
    {
        problems.push(format!("{place}: space at the end; remove it"));
    }
    if ["<<<<<<< ", ">>>>>>> "]
        .iter()
        .any(|mark| line.starts_with(mark))
    {
        problems.push(format!("{place}: a mark of a merge; settle it"));
    }
    let is_page = path.extension().is_some_and(|ext| ext == "md");
    if !is_page && words::names_an_issue(line) {
        problems.push(format!("{place}: an issue by its number; say what it says"));
    }
    for word in LEFTOVERS {
        if found(word).is_some() {
            problems.push(format!(
                "{place}: leftover {}{}...); remove it",
                word.0, word.1
            ));
        }
    }
    for word in UNFINISHED {
        let name = format!("{}{}", word.0, word.1);
        let explained = |at: usize| {
            let rest = &line[at + name.len()..];
            rest.starts_with(':') && rest.trim().len() > 20
        };
        // As a word of its own: mktemp's pattern of the same letter is none.
        let alone = |at: usize| {
            let around = [
                line[..at].chars().next_back(),
                line[at + name.len()..].chars().next(),
            ];
            around
                .iter()
                .flatten()
                .all(|c| !c.is_alphanumeric() && *c != '_')
        };
        if found(word).is_some_and(|at| alone(at) && !explained(at)) {
            problems.push(format!(
                "{place}: {name} without an explanation; say after a colon what is missing and why"
            ));
        }
    }
    for word in ONE_MACHINE {
        if found(word).is_some() {
            problems.push(format!(
                "{place}: {}{} exists on one machine only; remove it",
                word.0, word.1
            ));
        }
    }
    let code = line.split("//").next().unwrap_or(line);
    let is_comment = line.trim_start().starts_with(['*', '/']);
    if path.starts_with("law") && !is_comment {
        for word in code.split(|c: char| !c.is_alphanumeric() && c != '_') {
            if matches!(word, "float" | "double") {
                problems.push(format!(
                    "{place}: {word} in the law, which is integers only (it runs in BPF)"
                ));
            }
        }
    }
    problems
}

/// Functions that are too long, as (first line, lines). By shape: formatters put a function's last brace under its first
/// word.
fn long_functions(extension: &str, lines: &[&str]) -> Vec<(usize, usize)> {
    let mut long = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let starts = match extension {
            "rs" => is_rust_function(line.trim_start()),
            "sh" => indent == 0 && line.trim_end().ends_with("() {"),
            // Kernel style: the body's brace stands alone at the left.
            _ => *line == "{",
        };
        if !starts {
            continue;
        }
        let closing = format!("{}}}", &line[..indent]);
        let length = lines[index..]
            .iter()
            .position(|line| **line == closing)
            .map_or(0, |end| end + 1);
        if length > FUNCTION_LINES_MAX {
            long.push((index + 1, length));
        }
    }
    long
}

fn is_rust_function(line: &str) -> bool {
    let mut words = line.split_whitespace().skip_while(|word| {
        word.starts_with("pub")
            || matches!(
                *word,
                "const" | "async" | "unsafe" | "extern" | "\"C\"" | "in"
            )
    });
    // A declaration without a body has no closing brace of its own.
    words.next() == Some("fn") && !line.trim_end().ends_with(';') && !line.trim_end().ends_with('}')
}

/// `FILE: FUNCTION` and `tests/vm/cases/NAME.sh` in the failure contract that are not there.
fn missing_proofs(all: &[(PathBuf, String)]) -> Vec<Problem> {
    let text_of = |name: &str| {
        let found = all.iter().find(|(path, _)| path == Path::new(name));
        found.map(|(_, text)| text.as_str())
    };
    let Some(contract) = text_of(CONTRACT) else {
        return vec![format!(
            "{CONTRACT}: it is not there; the contract is published"
        )];
    };
    let quoted = contract.split('`').skip(1).step_by(2);
    let named = quoted.filter(|word| {
        let file = word.split(": ").next().unwrap_or_default();
        file.contains('/') && (file.ends_with(".rs") || file.ends_with(".sh"))
    });
    named
        .filter(|word| match word.split_once(": ") {
            Some((file, function)) => {
                let head = format!("fn {function}(");
                !text_of(file).is_some_and(|text| text.contains(&head))
            }
            None => text_of(word).is_none(),
        })
        .map(|word| {
            format!("{CONTRACT}: {word}: there is no such test; name the one that proves it")
        })
        .collect()
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
        assert_eq!(problems("a.rs", &format!("    {}g!(x);\n", "db")), 1);
        assert_eq!(problems("a.rs", &format!("// {}DO\n", "TO")), 1);
        assert_eq!(
            problems(
                "a.rs",
                &format!("// {}DO: kernels before 5.4 lack this file, see #7\n", "TO")
            ),
            0
        );
        assert_eq!(
            problems("a.sh", &format!("mktemp /tmp/a.{}XXXX\n", "XX")),
            0
        );
        assert_eq!(
            problems("a.md", &format!("see {}red/design.md\n", "../sha")),
            1
        );
        assert_eq!(problems("a.rs", "a \n"), 1);
        assert_eq!(problems("a.md", &format!("{} HEAD\n", "<".repeat(7))), 1);
        assert_eq!(problems("a.rs", "a"), 1);
        assert_eq!(problems("law/a.h", "static double x;\n"), 1);
        assert_eq!(
            problems("law/a.h", " * no float here\nint x; // nor double\n"),
            0
        );
        assert_eq!(problems("a.rs", &"x\n".repeat(FILE_LINES_MAX + 1)), 1);
    }

    #[test]
    fn a_proof_that_is_not_there_is_found() {
        let files = |contract: &str| {
            let file = |name: &str, text: &str| (PathBuf::from(name), text.to_owned());
            let test = "#[test]\nfn it_holds() {}\n";
            [
                file(CONTRACT, contract),
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
        assert_eq!(missing_proofs(&[]).len(), 1);
    }

    #[test]
    fn long_functions_are_found_in_each_language() {
        let body = "    x;\n".repeat(FUNCTION_LINES_MAX);
        assert_eq!(problems("a.rs", &format!("pub fn a() {{\n{body}}}\n")), 1);
        assert_eq!(problems("a.c", &format!("int a(void)\n{{\n{body}}}\n")), 1);
        assert_eq!(problems("a.sh", &format!("a() {{\n{body}}}\n")), 1);
        let short = "    x;\n".repeat(10);
        assert_eq!(
            problems(
                "a.rs",
                &format!("impl A {{\n    fn a() {{\n{short}    }}\n}}\n")
            ),
            0
        );
    }
}
