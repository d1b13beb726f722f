//! Compiles law/*.h natively, through the functions in native/, into a static library.

use std::path::{Path, PathBuf};

fn main() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let law = here.join("../../law");
    for header in with_extension(&law, "h") {
        println!("cargo::rerun-if-changed={}", header.display());
    }
    let sources = with_extension(&here.join("native"), "c");
    println!("cargo::rerun-if-changed=native");
    println!("cargo::rerun-if-changed=bpf");
    for source in &sources {
        println!("cargo::rerun-if-changed={}", source.display());
    }
    let mut build = cc::Build::new();
    // Undefined behaviour, signed overflow included, ends a test with a trap.
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        build
            .flag("-fsanitize=undefined")
            .flag("-fsanitize-undefined-trap-on-error");
    }
    build
        .files(sources)
        .include(&law)
        .std("gnu11")
        .opt_level(2)
        .flag("-Wall")
        .flag("-Wextra")
        .flag("-Werror")
        .compile("tidegate_law_native");
}

/// The files of a folder with this extension, in an order that does not change.
fn with_extension(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|why| {
        eprintln!(
            "tidegate: build: {}: {why}; build in a whole checkout",
            folder.display()
        );
        std::process::exit(1)
    });
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    files
}
