//! Compiles the BPF programs; `src/sense/bpf.rs` and `src/locks/watch.rs` include the objects.

fn main() {
    tidegate_bpf_build::compile(&["sense", "locks"], &[]);
}
