//! Compiles the BPF programs (`bpf/*.bpf.c`) with clang; `src/sense/bpf.rs` and `src/locks/watch.rs` include the objects.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

/// Clang by the names that distributions give it, best known first.
const CANDIDATES: [&str; 4] = ["clang-19", "clang-22", "clang-20", "clang"];

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for name in ["sense", "locks"] {
        compile(
            Path::new(&format!("bpf/{name}.bpf.c")),
            &out.join(format!("{name}.bpf.o")),
        );
    }
}

fn compile(source: &Path, object: &Path) {
    let built = SkeletonBuilder::new()
        .source(source)
        .clang(clang())
        // v3 (kernel 5.1 and later) has 32-bit arithmetic and jumps: fewer instructions a switch.
        .clang_args(["-mcpu=v3", "-Wall", "-Werror"])
        .obj(object)
        .build();
    if let Err(why) = built {
        fail(&format!(
            "{}: {why:#}; try another clang with CLANG=…",
            source.display()
        ));
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
    CANDIDATES
        .iter()
        .map(PathBuf::from)
        .find(|candidate| runs(candidate))
        .unwrap_or_else(|| {
            fail("no clang found, and the BPF sensor needs one; apt-get install clang-19 (or set CLANG=…)")
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
