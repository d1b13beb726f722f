//! `cargo xtask licences`: everything that is linked into Tidegate must be usable under GPL-2.0-only.
//!
//! A dependency passes if one of the licences that it offers is compatible. Apache-2.0 alone is not (its patent terms are
//! a further restriction under GPL version 2). What only builds or tests Tidegate is not distributed in it; such
//! dependencies may be named in [`NOT_LINKED`], each with its reason, and are refused there once they are linked.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, ExitCode};

use serde_json::Value;

const COMPATIBLE: &[&str] = &[
    "0BSD",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "GPL-2.0-only",
    "GPL-2.0-or-later",
    "ISC",
    "LGPL-2.1-only",
    "LGPL-2.1-or-later",
    "MIT",
    "MIT-0",
    "NCSA",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Dependencies without a compatible licence that never become part of what is distributed.
const NOT_LINKED: &[(&str, &str)] = &[
    (
        "normalize-line-endings",
        "of trycmd, which runs golden tests",
    ),
    ("similar", "of trycmd, which runs golden tests"),
];

/// Runs the check.
pub fn main() -> ExitCode {
    let report = metadata().and_then(|metadata| check(&metadata));
    match report {
        Ok(checked) => {
            println!("licences: {checked} dependencies, all usable under GPL-2.0-only");
            ExitCode::SUCCESS
        }
        Err(lines) => {
            for line in lines {
                eprintln!("tidegate: licences: {line}");
            }
            ExitCode::FAILURE
        }
    }
}

/// The resolved packages for the platform that we ship.
fn metadata() -> Result<Value, Vec<String>> {
    let host = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .output()
        .map_err(|error| vec![format!("cargo metadata: {error}; is cargo in PATH?")])?;
    if !host.status.success() {
        return Err(vec![format!(
            "cargo metadata: {}",
            String::from_utf8_lossy(&host.stderr).trim()
        )]);
    }
    serde_json::from_slice(&host.stdout).map_err(|error| vec![format!("cargo metadata: {error}")])
}

fn check(metadata: &Value) -> Result<usize, Vec<String>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let ours: BTreeSet<String> = list(&metadata["workspace_members"])
        .iter()
        .map(text)
        .collect();
    let linked = linked(metadata, &ours);
    let (mut problems, mut checked) = (Vec::new(), 0);
    let mut excused: BTreeSet<&str> = BTreeSet::new();
    for package in list(&metadata["packages"]) {
        let (id, name, licence) = (
            text(&package["id"]),
            text(&package["name"]),
            text(&package["license"]),
        );
        if ours.contains(&id) {
            continue;
        }
        checked += 1;
        if compatible(&licence) {
            continue;
        }
        let linked = linked.contains(&id);
        match NOT_LINKED.iter().find(|(excepted, _)| *excepted == name) {
            Some((excepted, _)) if !linked => {
                excused.insert(excepted);
            }
            _ => problems.push(format!(
                "{name}: offers \"{licence}\", which GPL-2.0-only code cannot be {} with; use another crate",
                if linked { "linked" } else { "distributed" }
            )),
        }
    }
    for (name, _) in NOT_LINKED
        .iter()
        .filter(|(name, _)| !excused.contains(name))
    {
        problems.push(format!(
            "{name}: is excepted and needs no exception; remove it from NOT_LINKED"
        ));
    }
    if problems.is_empty() {
        Ok(checked)
    } else {
        Err(problems)
    }
}

/// Everything that is reachable from our crates by dependencies that are linked in: not through build or dev edges, not
/// from xtask, and not what stands behind a procedural macro, which runs in the compiler.
fn linked(metadata: &Value, ours: &BTreeSet<String>) -> BTreeSet<String> {
    let mut edges: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in metadata["resolve"]["nodes"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let targets = node["deps"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|dep| {
                let kinds = dep["dep_kinds"].as_array()?;
                let normal = kinds.iter().any(|kind| kind["kind"].is_null());
                if normal { dep["pkg"].as_str() } else { None }
            });
        edges.insert(node["id"].as_str().unwrap_or_default(), targets.collect());
    }
    let packages = metadata["packages"].as_array();
    let macros: BTreeSet<&str> = packages
        .into_iter()
        .flatten()
        .filter(|package| {
            package["targets"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|target| {
                    target["kind"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .any(|kind| kind == "proc-macro")
                })
        })
        .filter_map(|package| package["id"].as_str())
        .collect();
    let mut todo: Vec<&str> = ours
        .iter()
        .map(String::as_str)
        .filter(|id| !id.contains("/xtask#"))
        .collect();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    while let Some(id) = todo.pop() {
        if !macros.contains(id) && seen.insert(id.to_owned()) {
            todo.extend(edges.get(id).into_iter().flatten());
        }
    }
    seen
}

/// Whether an SPDX expression offers a compatible licence. `AND` binds closer than `OR`; the old form writes `/` for `OR`.
fn compatible(expression: &str) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    either(&mut rest) && rest.is_empty()
}

fn either(rest: &mut &[&str]) -> bool {
    let mut good = both(rest);
    while let [first, tail @ ..] = *rest
        && *first == "OR"
    {
        *rest = tail;
        good |= both(rest);
    }
    good
}

fn both(rest: &mut &[&str]) -> bool {
    let mut good = one(rest);
    while let [first, tail @ ..] = *rest
        && *first == "AND"
    {
        *rest = tail;
        good &= one(rest);
    }
    good
}

fn one(rest: &mut &[&str]) -> bool {
    match *rest {
        ["(", tail @ ..] => {
            *rest = tail;
            let good = either(rest);
            match *rest {
                [")", tail @ ..] => {
                    *rest = tail;
                    good
                }
                _ => false,
            }
        }
        [licence, "WITH", exception, tail @ ..] => {
            *rest = tail;
            COMPATIBLE.contains(&format!("{licence} WITH {exception}").as_str())
        }
        [licence, tail @ ..] => {
            *rest = tail;
            COMPATIBLE.contains(licence)
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        for good in [
            "MIT",
            "MIT/Apache-2.0",
            "Apache-2.0 OR MIT",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "MIT AND BSD-3-Clause",
        ] {
            assert!(compatible(good), "{good}");
        }
        for bad in [
            "Apache-2.0",
            "MIT AND Apache-2.0",
            "(MIT",
            "",
            "MPL-2.0",
            "GPL-3.0-only",
            "MIT ISC",
        ] {
            assert!(!compatible(bad), "{bad}");
        }
    }

    fn metadata(kind: Value, licence: &str) -> Value {
        serde_json::json!({
            "workspace_members": ["us"],
            "packages": [
                {"id": "us", "name": "us", "license": "GPL-2.0-only", "targets": []},
                {"id": "dep", "name": "dep", "license": licence, "targets": [{"kind": ["lib"]}]},
                {"id": "a", "name": "similar", "license": "Apache-2.0", "targets": []},
                {"id": "b", "name": "normalize-line-endings", "license": "Apache-2.0", "targets": []},
            ],
            "resolve": {"nodes": [
                {"id": "us", "deps": [
                    {"pkg": "dep", "dep_kinds": [{"kind": kind}]},
                    {"pkg": "a", "dep_kinds": [{"kind": "dev"}]},
                ]},
            ]},
        })
    }

    #[test]
    fn linked_dependencies_must_be_compatible() {
        assert_eq!(check(&metadata(Value::Null, "MIT")), Ok(3));
        let problems = check(&metadata(Value::Null, "Apache-2.0")).unwrap_err();
        assert!(
            problems[0].contains("dep: offers \"Apache-2.0\"") && problems[0].contains("linked")
        );
        // Unnamed ones are refused also when they only build.
        assert!(check(&metadata("build".into(), "Apache-2.0")).is_err());
    }

    #[test]
    fn an_exception_ends_when_it_is_linked_or_gone() {
        let mut linked = metadata(Value::Null, "MIT");
        linked["resolve"]["nodes"][0]["deps"][1]["dep_kinds"][0]["kind"] = Value::Null;
        assert!(check(&linked).unwrap_err()[0].contains("similar"));
        let mut gone = metadata(Value::Null, "MIT");
        gone["packages"][3]["license"] = "MIT".into();
        assert!(check(&gone).unwrap_err()[0].contains("needs no exception"));
    }
}
