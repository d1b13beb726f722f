//! `cargo xtask kube`: `tidegate-kube` against a real control plane.
//!
//! The control plane is built from tests/kube/controlplane, with Go's own cache (the first time about ten minutes of two CPUs);
//! the tests are those of crates/kube that a plain `cargo test` leaves out. `up` starts one and stays, for a person with
//! kubectl.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};

const SOURCE: &str = "tests/kube/controlplane";
const KUBERNETES: &str = "v1.36.3";
/// No machine that lacks these can run it.
const NEEDED: &[&str] = &["go", "kubectl"];
const SKIPPED: u8 = 77;

const USAGE: &str = "\
usage: cargo xtask kube [TEST...]
       cargo xtask kube up [NODES]

  Runs the tests of crates/kube that need a control plane; words choose among them.
  `up` starts a control plane with so many nodes (3) and stays until its input ends.";

/// Runs the task.
pub fn main(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|one| one == "--help" || one == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    if let Some(missing) = NEEDED.iter().find(|name| find(name).is_none()) {
        println!("skipped: kube: no {missing}; install it and put it in PATH");
        return ExitCode::from(SKIPPED);
    }
    match act(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate: kube: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn act(arguments: &[String]) -> anyhow::Result<()> {
    let program = build()?;
    if let Some(("up", rest)) = arguments
        .split_first()
        .map(|(first, rest)| (first.as_str(), rest))
    {
        let folder = tempfile::tempdir().context("a folder")?;
        let nodes = rest.first().map_or("3", String::as_str);
        return done(
            Command::new(program)
                .args(["up", "-nodes", nodes])
                .arg(folder.path()),
        );
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut tests = Command::new(cargo);
    tests.args([
        "test",
        "--locked",
        "-p",
        "tidegate-kube",
        "--test",
        "all",
        "--",
    ]);
    tests
        .args(["--include-ignored", "--test-threads", "3"])
        .args(arguments);
    done(tests.env("TIDEGATE_CONTROL_PLANE", program))
}

/// Builds the control plane; Go finds out what is to be done.
fn build() -> anyhow::Result<PathBuf> {
    let target = std::env::current_dir()
        .context("the folder")?
        .join("target/controlplane");
    let version = "k8s.io/component-base/version";
    let (major, minor) = KUBERNETES
        .trim_start_matches('v')
        .split_once('.')
        .context("a version")?;
    let minor = minor.split('.').next().unwrap_or_default();
    let link = format!(
        "-s -w -X {version}.gitVersion={KUBERNETES} -X {version}.gitMajor={major} -X {version}.gitMinor={minor}"
    );
    let go = find("go").context("no go")?;
    let mut build = Command::new(go);
    build.current_dir(SOURCE).env("CGO_ENABLED", "0");
    build
        .args(["build", "-trimpath", "-ldflags", &link, "-o"])
        .arg(&target)
        .arg(".");
    done(&mut build)?;
    Ok(target)
}

fn done(command: &mut Command) -> anyhow::Result<()> {
    let status = command
        .status()
        .with_context(|| format!("{}", command.get_program().display()))?;
    if !status.success() {
        bail!("{}: {status}", command.get_program().display());
    }
    Ok(())
}

/// A program of PATH, or of where Go's own installer puts it.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/local/go/bin")]);
    folders
        .map(|folder| folder.join(OsStr::new(name)))
        .find(|one: &PathBuf| Path::is_file(one))
}
