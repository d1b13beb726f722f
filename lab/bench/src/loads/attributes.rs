//! Scheduling attributes of the calling thread and what it will start, set straight through the kernel's call: the
//! arms that show what a stock kernel does without Tidegate.

use crate::LabError;

/// struct sched_attr, version 0 (include/uapi/linux/sched/types.h).
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// An EEVDF slice for the calling thread; those that it makes from now on inherit it. 0 leaves it alone.
pub fn set_slice_us(slice_us: u64) -> Result<(), LabError> {
    if slice_us == 0 {
        return Ok(());
    }
    let attr = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        runtime: slice_us * 1000,
        ..SchedAttr::default()
    };
    // SAFETY: the kernel reads at most `size` bytes of a structure that lives across the call; it acts on this thread.
    let rc = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    if rc == 0 {
        return Ok(());
    }
    let why = std::io::Error::last_os_error();
    Err(LabError::process(
        "lab-worker",
        format!("a slice of {slice_us} us is refused: {why}"),
    ))
}

/// The slice of thread `tid`, as the kernel tells anybody; `None` where it is gone or has none (before 6.12).
pub fn slice_ns(tid: i32) -> Option<u64> {
    let mut attr = SchedAttr::default();
    let size = size_of::<SchedAttr>();
    // SAFETY: the kernel fills at most the size that it is told.
    let rc = unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attr, size, 0) };
    (rc == 0 && attr.runtime > 0).then_some(attr.runtime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_takes_a_slice_where_the_kernel_has_them() {
        std::thread::spawn(|| {
            assert!(set_slice_us(0).is_ok());
            // Kernels before 6.12 take the call and leave the slice.
            assert!(set_slice_us(3000).is_ok());
        })
        .join()
        .expect("the thread ends");
    }
}
