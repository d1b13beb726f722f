//! Compiles BPF programs with clang; for the build scripts of the crates that carry some.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

/// Clang by the names that distributions give it, best known first.
const CANDIDATES: [&str; 4] = ["clang-19", "clang-22", "clang-20", "clang"];

/// Compiles `bpf/NAME.bpf.c` to `NAME.bpf.o` in cargo's folder for output, for each name. `includes` are further folders for
/// headers, from the crate's own.
///
/// A program that does not compile, or no clang, ends the build script with the reason and its mend.
pub fn compile(names: &[&str], includes: &[&str]) {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    for folder in includes {
        println!("cargo:rerun-if-changed={folder}");
    }
    let Some(out) = env::var_os("OUT_DIR").map(PathBuf::from) else {
        fail("OUT_DIR is not set; this is for build scripts, which cargo runs");
    };
    let clang = clang();
    // v3 (kernel 5.1 and later) has 32-bit arithmetic and jumps: fewer instructions a call.
    let mut words: Vec<String> = ["-mcpu=v3", "-Wall", "-Werror"].map(str::to_owned).into();
    words.extend(includes.iter().map(|folder| format!("-I{folder}")));
    for name in names {
        let source = PathBuf::from(format!("bpf/{name}.bpf.c"));
        let built = SkeletonBuilder::new()
            .source(&source)
            .clang(&clang)
            .clang_args(&words)
            .obj(out.join(format!("{name}.bpf.o")))
            .build();
        if let Err(why) = built {
            fail(&format!(
                "{}: {why:#}; try another clang with CLANG=…",
                source.display()
            ));
        }
    }
}

/// `$CLANG` if set, else the first candidate that runs.
fn clang() -> PathBuf {
    if let Some(named) = env::var_os("CLANG") {
        let named = PathBuf::from(named);
        if runs(&named) {
            return named;
        }
        fail(&format!(
            "CLANG={}: does not run; name a clang of version 12 or later",
            named.display()
        ));
    }
    let found = CANDIDATES
        .iter()
        .map(PathBuf::from)
        .find(|candidate| runs(candidate));
    found.unwrap_or_else(|| {
        fail(
            "no clang found, and the BPF programs need one; apt-get install clang-19 (or set CLANG=…)",
        )
    })
}

fn runs(clang: &Path) -> bool {
    Command::new(clang)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}

fn fail(what: &str) -> ! {
    eprintln!("tidegate: build: {what}");
    std::process::exit(1)
}
