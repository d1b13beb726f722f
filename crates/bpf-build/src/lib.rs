//! Compiles BPF programs and generates their skeletons, for the build scripts of the crates that
//! carry some.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use libbpf_cargo::SkeletonBuilder;

/// Names of clang, tried in this order.
const CLANGS: [&str; 4] = ["clang-19", "clang-22", "clang-20", "clang"];

/// Compiles `bpf/NAME.bpf.c` and writes `NAME.skel.rs` to cargo's output folder, for each name.
/// `includes` are folders of headers, relative to the crate.
///
/// # Panics
/// Without clang or with a program that does not compile.
pub fn compile(names: &[&str], includes: &[&str]) {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    for folder in includes {
        println!("cargo::rerun-if-changed={folder}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let clang = env::var_os("CLANG").map_or_else(installed_clang, PathBuf::from);
    // v3 (kernel 5.1 and later) has 32-bit arithmetic and jumps: fewer instructions a call.
    let flags = ["-mcpu=v3", "-Wall", "-Werror"].map(str::to_owned);
    let folders = includes.iter().map(|folder| format!("-I{folder}"));
    let words: Vec<String> = flags.into_iter().chain(folders).collect();
    for name in names {
        SkeletonBuilder::new()
            .source(format!("bpf/{name}.bpf.c"))
            .clang(&clang)
            .clang_args(&words)
            .obj(out.join(format!("{name}.bpf.o")))
            .reference_obj(true)
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .unwrap_or_else(|why| panic!("bpf/{name}.bpf.c: {why:#}; CLANG=… sets the compiler"));
    }
}

fn installed_clang() -> PathBuf {
    let clang = CLANGS.iter().find(|clang| {
        let status = Command::new(clang)
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    });
    Path::new(clang.expect("the BPF programs need clang: apt-get install clang-19")).into()
}
