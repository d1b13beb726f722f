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

const COMMANDS: &str =
    "<!-- commands: written by UPDATE_DOCS=1 cargo test -p tidegate --test all docs -->\n";
const COMMANDS_END: &str = "<!-- end of commands -->";

/// The help of each command that has a manual page, as the command prints it.
fn commands() -> String {
    let names = generated();
    let commands = names.keys().filter_map(|name| {
        let name = name.strip_suffix(".1")?.strip_prefix("tidegate-")?;
        Some(name.replace('-', " "))
    });
    let mut text = String::new();
    for command in commands {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .arg("help")
            .args(command.split(' '))
            .env_remove("TIDEGATE_HOST")
            .output()
            .unwrap();
        assert!(output.status.success(), "help {command}");
        let help = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        let help = lines.join("\n");
        text += &format!("\n## tidegate {command}\n\n```text\n{}\n```\n", help.trim());
    }
    text + "\n"
}

#[test]
fn the_reference_of_commands_is_up_to_date() {
    let path = top().join("docs/cli.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let from = page.find(COMMANDS).expect(COMMANDS) + COMMANDS.len();
    let to = page.find(COMMANDS_END).expect(COMMANDS_END);
    let wanted = format!("{}{}{}", &page[..from], commands(), &page[to..]);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, wanted).unwrap();
        return;
    }
    assert!(
        page == wanted,
        "docs/cli.md is out of date: run UPDATE_DOCS=1 cargo test -p tidegate --test all docs"
    );
}
