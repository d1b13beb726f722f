//! Compiles the BPF scheduler; `src/object.rs` includes the object.

fn main() {
    tidegate_bpf_build::compile(&["main"], &["bpf", "../../law"]);
}
