//! What every boot of a run has in common: the kernel, the parts of the image, and a folder of its
//! own.

use crate::fetch::{self, Kernel};
use crate::image::Parts;
use crate::setup::Setup;
use crate::{VmError, tool};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// A bed that can boot.
pub struct Bed {
    pub kernel: Kernel,
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

    /// Further files for a guest with a test that needs `program`.
    pub fn add_files_for(&mut self, program: &str, files: Vec<(String, PathBuf)>) {
        let files = files
            .into_iter()
            .map(|(place, file)| (program.into(), place, file));
        self.parts.for_some.extend(files);
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
