//! BPF programs that are attached to a cgroup, asked of the kernel by bpf(2)
//! (`include/uapi/linux/bpf.h`).

use std::os::fd::{AsRawFd, BorrowedFd};

const BPF_PROG_QUERY: libc::c_long = 16;

/// `enum bpf_attach_type`: those that attach to a cgroup, up to Linux 6.18. Sockets (0 to 2), their
/// operations, devices, bind and connect, messages, sysctl, options, names, release, security
/// hooks, unix sockets.
const ATTACH_TYPES: [u32; 28] = [
    0, 1, 2, 3, 6, 8, 9, 10, 11, 12, 13, 14, 15, 18, 19, 20, 21, 22, 29, 30, 31, 32, 34, 43, 49,
    50, 51, 52,
];

/// The part of `union bpf_attr` that BPF_PROG_QUERY has.
#[repr(C)]
#[derive(Default)]
struct Query {
    target_fd: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    prog_ids: u64,
    prog_cnt: u32,
    padding: u32,
}

/// Whether the group has any program of its own; an errno where the kernel does not tell.
pub(super) fn any_attached(group: BorrowedFd<'_>) -> Result<bool, i32> {
    let mut told = false;
    for attach_type in ATTACH_TYPES {
        let mut query = Query {
            target_fd: group.as_raw_fd() as u32,
            attach_type,
            ..Query::default()
        };
        // SAFETY: the attribute is zeroed but for what is set, as long as the size says, and
        // outlives the call. Without a buffer for numbers (`prog_ids` 0) the kernel writes the
        // count alone, into the attribute.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                BPF_PROG_QUERY,
                &raw mut query,
                size_of::<Query>(),
            )
        };
        if result == 0 {
            told = true;
            if query.prog_cnt > 0 {
                return Ok(true);
            }
            continue;
        }
        match std::io::Error::last_os_error().raw_os_error() {
            // A type that this kernel does not have has no program.
            Some(libc::EINVAL) => {}
            errno => return Err(errno.unwrap_or(libc::EIO)),
        }
    }
    match told {
        true => Ok(false),
        false => Err(libc::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn what_is_no_cgroup_is_an_error_and_not_a_group_without_programs() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        assert!(any_attached(file.as_fd()).is_err());
    }
}
