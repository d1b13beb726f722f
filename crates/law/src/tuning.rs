//! The constants of Tidegate's own scheduler that tests of the law name, read from `law/tuning.h`, where each is explained; its BPF programs include the same
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

/// The number of `#define NAME 123ULL`.
const fn value(name: &[u8]) -> u64 {
    let mut at = 0;
    while !is_at(TEXT, at, name) {
        at += 1;
        assert!(at < TEXT.len(), "law/tuning.h lacks a constant");
    }
    number(TEXT, at + name.len())
}

macro_rules! constants {
    ($($name:ident)*) => {$(
        #[doc = concat!("`TG_", stringify!($name), "` of law/tuning.h.")]
        pub const $name: u64 = value(concat!("#define TG_", stringify!($name), " ").as_bytes());
    )*};
}

constants! {
    UNDISTURBED_MAX_NS
    CAP_LEND_NS
    CAP_RUN_MIN_NS
    CAP_RESERVE_NS
}
