//! Compiles the BPF scheduler and generates its skeleton.

fn main() {
    tidegate_bpf_build::compile(&["main"], &["bpf", "../../law"]);
}
