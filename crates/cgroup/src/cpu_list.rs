//! CPU lists as the kernel prints them (`0-3,5,8-11`).

use crate::clip;

pub const ONLINE_PATH: &str = "/sys/devices/system/cpu/online";

/// CPU numbers above this are not the kernel's (`NR_CPUS` is 8192 at most).
const CPU_MAX: u32 = 8191;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cpu list: {text:?}: {why}; expected something like 0-3,5")]
pub struct CpuListError {
    pub text: String,
    pub why: &'static str,
}

impl CpuListError {
    pub fn new(text: &str, why: &'static str) -> Self {
        let text = clip(text);
        Self { text, why }
    }
}

/// Parses a CPU list into ascending numbers without doubles. An empty list is empty.
pub fn parse_list(text: &str) -> Result<Vec<u32>, CpuListError> {
    let bad = |why| CpuListError::new(text, why);
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let number = |word: &str| -> Result<u32, CpuListError> {
            let cpu = word.parse().map_err(|_| bad("not a number"))?;
            if cpu > CPU_MAX {
                Err(bad("a CPU number above 8191"))
            } else {
                Ok(cpu)
            }
        };
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if first > last {
            return Err(bad("a range that runs backwards"));
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// A list as the kernel takes it; `cpus` is ascending without doubles.
pub fn format_list(cpus: &[u32]) -> String {
    let mut text = String::new();
    let mut at = 0;
    while at < cpus.len() {
        let first = at;
        while at + 1 < cpus.len() && cpus[at + 1] == cpus[at] + 1 {
            at += 1;
        }
        let comma = if text.is_empty() { "" } else { "," };
        text += &match at - first {
            0 => format!("{comma}{}", cpus[first]),
            _ => format!("{comma}{}-{}", cpus[first], cpus[at]),
        };
        at += 1;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists() {
        assert_eq!(parse_list("0-3,5,8-9\n").unwrap(), [0, 1, 2, 3, 5, 8, 9]);
        assert_eq!(parse_list("0\n").unwrap(), [0]);
        assert_eq!(parse_list("\n").unwrap(), [] as [u32; 0]);
        assert_eq!(parse_list("3,1,1-2").unwrap(), [1, 2, 3]);
        for text in ["a", "3-1", "0-99999999", "-", "1-", "-1", "0x1"] {
            assert!(parse_list(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn lists_are_read_as_they_are_written(cpus in prop::collection::btree_set(0..300_u32, 0..60)) {
            let cpus: Vec<u32> = cpus.into_iter().collect();
            prop_assert_eq!(parse_list(&format_list(&cpus)).unwrap(), cpus);
        }
    }
}
