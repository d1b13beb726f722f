//! What a bed is made of, and where kernels are kept.

use std::path::PathBuf;

/// What a bed is made of.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Where kernels and package lists are kept; see [`cache`].
    pub cache: PathBuf,
    /// Where images and logs go. One bed at a time uses a folder; a second waits.
    pub work: PathBuf,
    /// The kernel's series, such as `6.18`.
    pub series: String,
    /// The folder of `lib.sh` and `vmtool.c`, which the suite's tests use; a [`crate::Job`] needs
    /// none.
    pub scripts: Option<PathBuf>,
    /// Programs that go into the guest with their shared libraries: the place there, and the file
    /// here. The guest's shell prefers its own applets: name a program that shares a name with one
    /// by its path.
    pub binaries: Vec<(String, PathBuf)>,
}

/// Names the folder of [`cache`] where it is not to be found.
const CACHE_VARIABLE: &str = "TIDEGATE_VM_CACHE";

/// Where kernels are kept: the folder that `TIDEGATE_VM_CACHE` names, else `.cache/vm` of the
/// checkout that the current directory is in, else the user's cache.
pub fn cache() -> PathBuf {
    if let Some(named) = std::env::var_os(CACHE_VARIABLE) {
        return named.into();
    }
    let here = std::env::current_dir().unwrap_or_default();
    let checkout = here
        .ancestors()
        .find(|folder| folder.join("lab/vm/guest/init").is_file());
    if let Some(checkout) = checkout {
        return checkout.join(".cache/vm");
    }
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or("/var".into())).join(".cache");
    let base = std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from);
    base.join("tidegate/vm")
}
