//! The sets of CPUs that the kernel names: online and possible.

use std::path::Path;

pub use crate::cpu_list::{format_list, parse_list};

use crate::cpu_list::{CpuListError, ONLINE_PATH};
use crate::{KernelFs, KfsError};

pub const POSSIBLE_PATH: &str = "/sys/devices/system/cpu/possible";

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
