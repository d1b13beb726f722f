//! What the kernel's watchdog makes necessary. It ejects a scheduler that leaves a task alone for
//! 30 s, so each task that is kept from running needs a little CPU now and then. The agent refuses
//! terms that leave less.

/// A task that a quota or a hard cap keeps from running, or weights: 50 us in 10 s
/// (`MIN_RUNTIME_NS` in `STARVATION_NS`, bpf/limits/throttle.h), in millionths of a CPU.
pub const WAITING_TASK_UCPU: u64 = 5;
/// A task of side work that main leaves nothing to: 1 ms in 15 s (`TG_SIDE_MIN_RUNTIME_NS` in
/// `TG_SIDE_ROUND_NS`, law/tuning.h), in millionths of a CPU.
pub const SIDE_TASK_UCPU: u64 = 67;
