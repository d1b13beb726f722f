//! What every boot of a run has in common: the kernel, the parts of the image, and a folder of its own.

use crate::fetch::{self, Kernel};
use crate::image::Parts;
use crate::{VmError, tool};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// What a bed is made of.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Where kernels and package lists are kept; see [`cache`].
    pub cache: PathBuf,
    /// Where images and logs go. One bed at a time uses a folder; a second waits.
    pub work: PathBuf,
    /// The kernel's series, such as `6.18`.
    pub series: String,
    /// The folder of `lib.sh` and `vmtool.c`, which the suite's tests use; a [`crate::Job`] needs none.
    pub scripts: Option<PathBuf>,
    /// Programs that go into the guest with their shared libraries: the place there, and the file here.
    /// The guest's shell prefers its own applets: name a program that shares a name with one by its path.
    pub binaries: Vec<(String, PathBuf)>,
}

/// A bed that can boot.
pub struct Bed {
    /// The guest's kernel.
    pub kernel: Kernel,
    /// Where images and logs go.
    pub work: PathBuf,
    pub(crate) parts: Parts,
    /// Held while the work folder is in use.
    _lock: File,
}

impl Bed {
    /// Finds or fetches the kernel, and builds the parts of the image.
    pub fn prepare(setup: &Setup) -> Result<Bed, VmError> {
        tool("qemu-system-x86_64")?;
        let kernel = fetch::kernel(&setup.cache, &setup.series, false).map_err(VmError::lacking)?;
        let work = setup.work.clone();
        fs::create_dir_all(&work).map_err(|e| VmError::io("make the work folder", &work, &e))?;
        let lock = locked(&work.join("lock"))?;
        let parts = Parts::gather(setup)?;
        Ok(Bed {
            kernel,
            work,
            parts,
            _lock: lock,
        })
    }

    /// Further files for the guest: the place there, and the file here.
    pub fn add_files(&mut self, files: Vec<(String, PathBuf)>) {
        self.parts.extras.extend(files);
    }
}

/// Waits until no other run uses the work folder.
fn locked(path: &Path) -> Result<File, VmError> {
    let io = |e| VmError::io("lock the work folder", path, &e);
    let file = File::create(path).map_err(io)?;
    if file.try_lock().is_err() {
        eprintln!("vm: waiting for another run to end");
        file.lock().map_err(io)?;
    }
    Ok(file)
}

/// Names the folder of [`cache`] where it is not to be found.
const CACHE_VARIABLE: &str = "TIDEGATE_VM_CACHE";

/// Where kernels are kept: the folder that `TIDEGATE_VM_CACHE` names, else `.cache/vm` of the checkout that the current
/// directory is in, else the user's cache.
pub fn cache() -> PathBuf {
    if let Some(named) = std::env::var_os(CACHE_VARIABLE) {
        return named.into();
    }
    let here = std::env::current_dir().unwrap_or_default();
    let checkout = here
        .ancestors()
        .find(|folder| folder.join("crates/vm/guest/init").is_file());
    if let Some(checkout) = checkout {
        return checkout.join(".cache/vm");
    }
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or("/var".into())).join(".cache");
    let base = std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from);
    base.join("tidegate/vm")
}
