//! The documents keep up with the command line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn pages(dir: &Path) -> BTreeMap<String, String> {
    let entries =
        std::fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    entries
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(entry.path()).unwrap())
        })
        .collect()
}

fn generated() -> BTreeMap<String, String> {
    let dir = tempfile::tempdir().unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["man", "--out"])
        .arg(dir.path())
        .status()
        .unwrap();
    assert!(status.success());
    pages(dir.path())
}

#[test]
fn the_man_pages_are_up_to_date() {
    let (wanted, found) = (generated(), pages(&top().join("docs/man")));
    let names = |pages: &BTreeMap<String, String>| pages.keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        names(&wanted),
        names(&found),
        "run `make docs` and commit docs/man"
    );
    for (name, text) in &wanted {
        assert!(
            found[name] == *text,
            "docs/man/{name} is out of date: run `make docs` and commit it"
        );
    }
}

#[test]
fn the_documents_mention_every_subcommand() {
    let mut prose = std::fs::read_to_string(top().join("README.md")).unwrap();
    for entry in std::fs::read_dir(top().join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            prose.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
    let missing: Vec<String> = generated()
        .keys()
        .filter_map(|name| {
            name.strip_suffix(".1")?
                .strip_prefix("tidegate-")
                .map(str::to_owned)
        })
        .filter(|name| !prose.contains(&format!("tidegate {}", name.replace('-', " "))))
        .collect();
    assert!(
        missing.is_empty(),
        "neither README.md nor docs/*.md mentions: {missing:?}"
    );
}
