//! Compiles law/*.h natively, through native.c, into a static library.

fn main() {
    let law = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../law");
    for header in [
        "base.h",
        "headroom_types.h",
        "noise.h",
        "estimate.h",
        "headroom.h",
        "share.h",
    ] {
        println!("cargo::rerun-if-changed={}", law.join(header).display());
    }
    println!("cargo::rerun-if-changed=native.c");
    cc::Build::new()
        .file("native.c")
        .include(&law)
        .std("gnu11")
        .opt_level(2)
        .flag("-Wall")
        .flag("-Wextra")
        .flag("-Werror")
        .compile("tidegate_law_native");
}
