//! The law for the BPF target: it builds, and in the kernel it computes what it computes here. Apart from `all`, since its mutants need
//! neither clang nor libbpf.

#![allow(clippy::unwrap_used, reason = "tests")]

mod builds;
mod run;
