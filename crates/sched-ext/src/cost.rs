//! What the scheduler's programs cost: instructions that the verifier walked, and the time of calls
//! while it is counted.

use std::os::fd::{FromRawFd, OwnedFd};

use libbpf_rs::{AsRawLibbpf, Object, libbpf_sys};
use serde::Serialize;

use crate::error::{SchedExtError, refused};

/// What the kernel says of one program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProgramCost {
    /// Its name, which is the callback's.
    pub name: String,
    /// Instructions that the verifier walked.
    pub verified_insns: u32,
    /// Calls and their time while they were counted ([`count_cost`], or
    /// `kernel.bpf_stats_enabled`).
    pub runs: u64,
    /// CPU time of all calls.
    pub run_ns: u64,
}

/// The kernel counts the times of programs, of all on the machine, as long as this lives; it costs
/// each call two readings of the clock.
#[derive(Debug)]
pub struct CountedCost {
    _descriptor: OwnedFd,
}

/// Has the kernel count what programs cost (as `kernel.bpf_stats_enabled` does, but ended with the
/// process at the latest).
pub fn count_cost() -> Result<CountedCost, SchedExtError> {
    // SAFETY: a system call without pointers.
    let descriptor = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    if descriptor < 0 {
        let why = libbpf_rs::Error::from_raw_os_error(-descriptor);
        return Err(refused("have the cost of programs counted", &why));
    }
    // SAFETY: the descriptor is new, and no other code has it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    Ok(CountedCost {
        _descriptor: descriptor,
    })
}

/// The programs of a loaded object, by name.
pub fn programs(object: &Object) -> Result<Vec<ProgramCost>, SchedExtError> {
    let mut costs = Vec::new();
    for program in object.progs() {
        // SAFETY: the program is the object's, which lives as long as the borrow.
        let descriptor =
            unsafe { libbpf_sys::bpf_program__fd(program.as_libbpf_object().as_ptr()) };
        // A callback that this kernel does not know was not loaded.
        if descriptor < 0 {
            continue;
        }
        let mut info = libbpf_sys::bpf_prog_info::default();
        let mut size = size_of_val(&info) as u32;
        // SAFETY: the descriptor belongs to `object`; the structure is as long as `size` says, and
        // zeros ask for no arrays to be filled.
        let failed =
            unsafe { libbpf_sys::bpf_prog_get_info_by_fd(descriptor, &mut info, &mut size) };
        if failed != 0 {
            let why = libbpf_rs::Error::from_raw_os_error(-failed);
            return Err(refused("ask for a program's cost", &why));
        }
        costs.push(ProgramCost {
            name: program.name().to_string_lossy().into_owned(),
            verified_insns: info.verified_insns,
            runs: info.run_cnt,
            run_ns: info.run_time_ns,
        });
    }
    costs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(costs)
}
