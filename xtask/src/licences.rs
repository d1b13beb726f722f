//! `cargo xtask licences`: that the table in LICENSE is true.
//!
//! - Every crate linked into a distributed binary offers a permissive licence. What only builds or tests Tidegate (build and
//!   dev dependencies, xtask, procedural macros) is not distributed.
//! - So does every npm package that the browser's page carries.
//! - Every C file names the licence of its folder, and every BPF program tells it to the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, ExitCode};

use serde_json::Value;

/// Packages whose binaries are distributed.
const BINARIES: &[&str] = &["tidegate", "tidegate-kube"];

const PERMISSIVE: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "NCSA",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

const OURS: &str = "MIT OR Apache-2.0";
const OURS_IN_KERNEL: &str = "GPL-2.0-only OR BSD-2-Clause";
/// What the kernel knows that by (include/linux/license.h).
const FOR_KERNEL: &str = "SEC(\"license\") = \"Dual BSD/GPL\";";

/// Runs the check.
pub fn main() -> ExitCode {
    match metadata().and_then(|metadata| Ok((linked(&metadata), carried()?, c_files()?))) {
        Ok((linked, carried, files)) => {
            let others = linked.iter().chain(&carried);
            let mut problems: Vec<String> = others.filter_map(refused).collect();
            problems.extend(
                files
                    .iter()
                    .filter_map(|(path, text)| mislabelled(path, text)),
            );
            for problem in &problems {
                eprintln!("tidegate: licences: {problem}");
            }
            if !problems.is_empty() {
                return ExitCode::FAILURE;
            }
            println!(
                "licences: {} crates linked and {} npm packages carried, all permissive; {} C files labelled",
                linked.len(),
                carried.len(),
                files.len()
            );
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("tidegate: licences: {why}");
            ExitCode::FAILURE
        }
    }
}

fn output(program: &str, args: &[&str]) -> Result<Vec<u8>, String> {
    let output = Command::new(program)
        .args(args)
        .output()
        .map_err(|error| format!("{program}: {error}; is it in PATH?"))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        let why = String::from_utf8_lossy(&output.stderr);
        Err(format!("{program} {}: {}", args[0], why.trim()))
    }
}

/// The resolved packages for the platform that we ship.
fn metadata() -> Result<Value, String> {
    let host = "x86_64-unknown-linux-gnu";
    let args = [
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--filter-platform",
        host,
    ];
    serde_json::from_slice(&output("cargo", &args)?)
        .map_err(|error| format!("cargo metadata: {error}"))
}

/// The top of the checkout.
fn top() -> Result<String, String> {
    let top = output("git", &["rev-parse", "--show-toplevel"])?;
    Ok(String::from_utf8_lossy(&top).trim().to_owned())
}

/// The npm packages that the page carries; those of its tests are not distributed.
fn carried() -> Result<Vec<Crate>, String> {
    let path = format!("{}/web/package-lock.json", top()?);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let lock: Value = serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))?;
    let packages = lock["packages"].as_object().cloned().unwrap_or_default();
    let carried = packages
        .into_iter()
        .filter(|(name, package)| !name.is_empty() && package["dev"] != true);
    Ok(carried
        .map(|(name, package)| {
            let licence = package["license"].as_str().unwrap_or_default();
            (name, licence.to_owned())
        })
        .collect())
}

/// The C files that git knows, with their text.
fn c_files() -> Result<Vec<(String, String)>, String> {
    let top = top()?;
    let listed = output("git", &["-C", &top, "ls-files", "*.c", "*.h"])?;
    String::from_utf8_lossy(&listed)
        .lines()
        .map(|path| {
            let text = std::fs::read_to_string(format!("{top}/{path}"))
                .map_err(|error| format!("{path}: {error}"))?;
            Ok((path.to_owned(), text))
        })
        .collect()
}

/// What is wrong with a C file's licence.
fn mislabelled(path: &str, text: &str) -> Option<String> {
    let in_kernel = path.starts_with("law/") || path.contains("/bpf/");
    let licence = if in_kernel { OURS_IN_KERNEL } else { OURS };
    let first = text.lines().next().unwrap_or_default();
    let named = first
        .split_once("SPDX-License-Identifier: ")
        .map(|(_, named)| named);
    if named.map(|named| named.trim_end_matches("*/").trim()) != Some(licence) {
        return Some(format!(
            "{path}: the first line must be \"SPDX-License-Identifier: {licence}\" (see LICENSE)"
        ));
    }
    (path.ends_with(".bpf.c") && !text.contains(FOR_KERNEL))
        .then(|| format!("{path}: the program's licence must be `{FOR_KERNEL}`"))
}

/// What is linked or carried: name and licence.
type Crate = (String, String);

fn refused((name, licence): &Crate) -> Option<String> {
    (!permissive(licence))
        .then(|| format!("{name}: offers \"{licence}\" only, and is in {BINARIES:?}; use another"))
}

/// The packages of others that are reachable from a binary by dependencies that are linked in: not through build or dev
/// edges, and not what stands behind a procedural macro, which runs in the compiler.
fn linked(metadata: &Value) -> Vec<Crate> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut edges: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for node in list(&metadata["resolve"]["nodes"]) {
        let normal = list(&node["deps"]).into_iter().filter(|dep| {
            list(&dep["dep_kinds"])
                .iter()
                .any(|kind| kind["kind"].is_null())
        });
        edges.insert(
            text(&node["id"]),
            normal.map(|dep| text(&dep["pkg"])).collect(),
        );
    }
    let is_macro = |package: &Value| {
        list(&package["targets"]).iter().any(|target| {
            list(&target["kind"])
                .iter()
                .any(|kind| kind == "proc-macro")
        })
    };
    let packages: BTreeMap<String, Value> = list(&metadata["packages"])
        .into_iter()
        .filter(|package| !is_macro(package))
        .map(|package| (text(&package["id"]), package))
        .collect();
    let ours: BTreeSet<String> = list(&metadata["workspace_members"])
        .iter()
        .map(text)
        .collect();
    let mut to_visit: Vec<String> = ours
        .iter()
        .filter(|id| {
            packages
                .get(*id)
                .is_some_and(|package| BINARIES.iter().any(|name| package["name"] == *name))
        })
        .cloned()
        .collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = to_visit.pop() {
        if packages.contains_key(&id) && seen.insert(id.clone()) {
            to_visit.extend(edges.get(&id).into_iter().flatten().cloned());
        }
    }
    seen.difference(&ours)
        .map(|id| (text(&packages[id]["name"]), text(&packages[id]["license"])))
        .collect()
}

/// Whether an SPDX expression offers a permissive licence. `AND` binds closer than `OR`; the old form writes `/` for `OR`.
fn permissive(expression: &str) -> bool {
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
            PERMISSIVE.contains(&format!("{licence} WITH {exception}").as_str())
        }
        [licence, tail @ ..] => {
            *rest = tail;
            PERMISSIVE.contains(licence)
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
            "Apache-2.0",
            "LGPL-2.1-only OR BSD-2-Clause",
            "(MIT OR GPL-3.0-only) AND Unicode-3.0",
            "MIT AND BSD-3-Clause",
        ] {
            assert!(permissive(good), "{good}");
        }
        for bad in [
            "GPL-2.0-only",
            "AGPL-3.0-only",
            "LGPL-2.1-only",
            "MIT AND GPL-2.0-or-later",
            "(MIT",
            "",
            "MPL-2.0",
            "MIT ISC",
        ] {
            assert!(!permissive(bad), "{bad}");
        }
    }

    #[test]
    fn what_a_binary_links_must_be_permissive_and_what_builds_it_need_not() {
        let metadata = |kind: Value, target: &str| {
            serde_json::json!({
                "workspace_members": ["us", "xtask"],
                "packages": [
                    {"id": "us", "name": "tidegate", "license": OURS, "targets": []},
                    {"id": "xtask", "name": "xtask", "license": OURS, "targets": []},
                    {"id": "dep", "name": "dep", "license": "GPL-3.0-only", "targets": [{"kind": [target]}]},
                    {"id": "tool", "name": "tool", "license": "AGPL-3.0-only", "targets": []},
                ],
                "resolve": {"nodes": [
                    {"id": "us", "deps": [{"pkg": "dep", "dep_kinds": [{"kind": kind}]}]},
                    {"id": "xtask", "deps": [{"pkg": "tool", "dep_kinds": [{"kind": null}]}]},
                ]},
            })
        };
        let linked_now = linked(&metadata(Value::Null, "lib"));
        assert_eq!(linked_now.len(), 1);
        assert!(refused(&linked_now[0]).is_some_and(|why| why.contains("dep: offers")));
        assert!(linked(&metadata("build".into(), "lib")).is_empty());
        assert!(linked(&metadata("dev".into(), "lib")).is_empty());
        assert!(linked(&metadata(Value::Null, "proc-macro")).is_empty());
    }

    #[test]
    fn a_c_file_names_the_licence_of_its_folder_and_a_program_tells_the_kernel() {
        let ours = format!("// SPDX-License-Identifier: {OURS}\n");
        let in_kernel = format!("/* SPDX-License-Identifier: {OURS_IN_KERNEL} */\n");
        assert_eq!(mislabelled("tests/vm/tool.c", &ours), None);
        assert_eq!(mislabelled("law/cap.h", &in_kernel), None);
        assert_eq!(mislabelled("crates/sched-ext/bpf/ext.h", &in_kernel), None);
        assert!(mislabelled("law/cap.h", &ours).is_some());
        assert!(mislabelled("tests/vm/tool.c", &in_kernel).is_some());
        assert!(mislabelled("tests/vm/tool.c", "int main;").is_some());
        let program = format!("{in_kernel}char LICENSE[] {FOR_KERNEL}\n");
        assert_eq!(
            mislabelled("crates/sched-ext/bpf/main.bpf.c", &program),
            None
        );
        assert!(mislabelled("crates/sched-ext/bpf/main.bpf.c", &in_kernel).is_some());
    }
}
