//! Compiles the BPF programs; `src/sense/bpf.rs`, `src/locks/watch.rs` and `src/starts.rs` include the objects.

fn main() {
    tidegate_bpf_build::compile(&["sense", "locks", "starts"], &[]);
}
