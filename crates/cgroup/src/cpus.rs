//! The sets of CPUs that the kernel names, online and possible, and its lists of CPUs
//! (`0-3,5,8-11`).

use std::path::Path;

use crate::{KernelFs, KfsError, clip};

pub const ONLINE_PATH: &str = "/sys/devices/system/cpu/online";
pub const POSSIBLE_PATH: &str = "/sys/devices/system/cpu/possible";

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

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpusError {
    #[error(transparent)]
    Kfs(#[from] KfsError),
    #[error(transparent)]
    List(#[from] CpuListError),
}

/// The CPUs that there can ever be, ascending; never empty.
pub fn possible(fs: &dyn KernelFs) -> Result<Vec<u32>, CpusError> {
    some_of(fs, POSSIBLE_PATH)
}

pub fn online(fs: &dyn KernelFs) -> Result<Vec<u32>, CpusError> {
    some_of(fs, ONLINE_PATH)
}

fn some_of(fs: &dyn KernelFs, path: &str) -> Result<Vec<u32>, CpusError> {
    let text = fs.read(Path::new(path))?;
    let cpus = parse_list(&text)?;
    if cpus.is_empty() {
        return Err(CpuListError::new(&text, "no CPU in it").into());
    }
    Ok(cpus)
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
    let runs = cpus.chunk_by(|one, next| *next == one + 1);
    let shown = runs.map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        one => one[0].to_string(),
    });
    shown.collect::<Vec<String>>().join(",")
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
