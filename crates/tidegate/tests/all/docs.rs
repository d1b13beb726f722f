//! The documents keep up with the command line.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const COMMANDS: &str =
    "<!-- commands: written by UPDATE_DOCS=1 cargo test -p tidegate --test all docs -->\n";
const COMMANDS_END: &str = "<!-- end of commands -->";

/// The commands that have a manual page, in the order of their names.
fn subcommands() -> BTreeSet<String> {
    let dir = tempfile::tempdir().unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["man", "--out"])
        .arg(dir.path())
        .status()
        .unwrap();
    assert!(status.success());
    let pages = std::fs::read_dir(dir.path()).unwrap();
    pages
        .filter_map(|page| {
            let name = page.unwrap().file_name().into_string().unwrap();
            let name = name.strip_suffix(".1")?.strip_prefix("tidegate-")?;
            Some(name.replace('-', " "))
        })
        .collect()
}

/// The help of each command, as the command prints it.
fn commands() -> String {
    let mut text = String::new();
    for command in subcommands() {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .arg("help")
            .args(command.split(' '))
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
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
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
