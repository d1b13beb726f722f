//! The constants of Tidegate's own scheduler, read from `law/tuning.h`, where each is explained; its BPF programs include the same
//! file.

const TEXT: &[u8] = include_bytes!("../../../law/tuning.h");

/// Whether `text` has `word` from `at` on.
const fn is_at(text: &[u8], at: usize, word: &[u8]) -> bool {
    let mut matched = 0;
    while matched < word.len() && at + matched < text.len() && text[at + matched] == word[matched] {
        matched += 1;
    }
    matched == word.len()
}

/// The decimal number from `at` on.
const fn number(text: &[u8], mut at: usize) -> u64 {
    let mut value = 0;
    assert!(text[at].is_ascii_digit(), "law/tuning.h: a number is due");
    while text[at].is_ascii_digit() {
        value = value * 10 + (text[at] - b'0') as u64;
        at += 1;
    }
    value
}

/// Of `#define NAME 123ULL` or `#define NAME (1ULL << 44)`.
const fn value(name: &[u8]) -> u64 {
    const SHIFT: &[u8] = b"(1ULL << ";
    let mut at = 0;
    while !is_at(TEXT, at, name) {
        at += 1;
        assert!(at < TEXT.len(), "law/tuning.h lacks a constant");
    }
    at += name.len();
    if is_at(TEXT, at, SHIFT) {
        return 1 << number(TEXT, at + SHIFT.len());
    }
    number(TEXT, at)
}

macro_rules! constants {
    ($($name:ident)*) => {$(
        #[doc = concat!("`TG_", stringify!($name), "` of law/tuning.h.")]
        pub const $name: u64 = value(concat!("#define TG_", stringify!($name), " ").as_bytes());
    )*};
}

constants! {
    ENQUEUE_FRONT
    PICK_NEAR_SCAN_MAX
    PICK_REWEIGH_MAX
    PICK_REWEIGH_NS
    PICK_BALANCE_NS
    PLACE_SCAN_MAX
    UNDISTURBED_MAX_NS
    SMT_SPREAD_SCAN_MAX
    RESCHED_TASKS_MAX
    HEADROOM_STEP_NS
    HEADROOM_STEP_CPU_NS
    HEADROOM_QUIET_NS
    SIDE_FORCED_NS
    LIMIT_SOON_NS
    CAP_LEND_NS
    CAP_RUN_MIN_NS
    CAP_RESERVE_NS
    CAP_RECHECK_NS
    CAP_AGAIN_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_shifts_are_read() {
        assert_eq!(ENQUEUE_FRONT, 1 << 44);
        assert_eq!(PICK_REWEIGH_MAX, 4);
        assert_eq!(CAP_RECHECK_NS, 500_000_000);
    }
}
