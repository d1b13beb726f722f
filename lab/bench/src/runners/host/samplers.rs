//! What the machine does beside the loads.

/// Steal of all CPUs since boot.
pub fn steal_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    parse_steal_ns(&stat)
}

/// The eighth number of the first line, in hundredths of a second (USER_HZ is 100 everywhere).
fn parse_steal_ns(stat: &str) -> u64 {
    let first = stat.lines().next().unwrap_or("");
    let ticks: u64 = first
        .split_whitespace()
        .nth(8)
        .and_then(|t| t.parse().ok())
        .unwrap_or(0);
    ticks * 10_000_000
}

/// First in, first out at a low real-time priority, or else the best nice value.
pub fn raise_priority() {
    let param = libc::sched_param { sched_priority: 10 };
    // SAFETY: plain numbers and one valid structure; both calls act on the calling thread only.
    unsafe {
        if libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) != 0 {
            libc::setpriority(libc::PRIO_PROCESS, 0, -20);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_number() {
        assert_eq!(
            parse_steal_ns("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1\n"),
            80_000_000
        );
        assert_eq!(parse_steal_ns(""), 0);
    }
}
