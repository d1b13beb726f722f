//! The other schedulers, built by cargo from crates.io at the version that [`super::PEERS`] names, into the VM's cache: they are
//! for comparison alone, and no part of Tidegate contains them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Peer;
use tidegate_vm::tool;

/// What compiles their BPF programs; the first that is found.
const CLANGS: [&str; 4] = ["clang", "clang-22", "clang-19", "clang-18"];

/// The program, or why there is none.
pub fn built(peer: &Peer, quiet: bool) -> Result<PathBuf, String> {
    let cache = tidegate_vm::cache().join("peers");
    let root = cache.join(format!("{}-{}", peer.name, peer.version));
    let program = root.join("bin").join(peer.name);
    if program.is_file() {
        return Ok(program);
    }
    let clang = CLANGS.iter().find_map(|name| tool(name).ok());
    let clang = clang.ok_or("there is no clang to compile it with; apt-get install clang-19")?;
    let io = |e: std::io::Error| format!("{}: {e}", cache.display());
    fs::create_dir_all(&cache).map_err(io)?;
    let log = cache.join(format!("{}.log", peer.name));
    if !quiet {
        eprintln!(
            "lab peers: building {} {}, which takes minutes: {}",
            peer.name,
            peer.version,
            log.display()
        );
    }
    let status = Command::new("cargo")
        .args(["install", "--locked", "--version", peer.version, "--root"])
        .arg(&root)
        // Common: they share most of what they are built from.
        .arg("--target-dir")
        .arg(cache.join("target"))
        .arg(peer.name)
        .env("BPF_CLANG", clang)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log).map_err(io)?)
        .status()
        .map_err(|e| format!("cargo does not start: {e}"))?;
    match status.success() && program.is_file() {
        true => Ok(program),
        false => Err(format!(
            "it does not build: {}; see {}",
            first_error(&log),
            log.display()
        )),
    }
}

fn first_error(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let line = text.lines().find(|line| line.contains("error"));
    line.or(text.lines().last())
        .unwrap_or_default()
        .trim()
        .into()
}
