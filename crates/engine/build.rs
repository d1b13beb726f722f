//! Compiles the BPF programs and generates their skeletons.

fn main() {
    tidegate_bpf_build::compile(&["sense", "locks", "starts"], &[]);
}
