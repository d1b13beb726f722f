//! Whether this kernel has sched_ext, and what is loaded in it.

use std::fs;
use std::path::Path;

use crate::error::SchedExtError;

/// Our scheduler's name, as the kernel shows it.
pub const NAME: &str = "tidegate";

const BTF: &str = "sys/kernel/btf/vmlinux";
const FOLDER: &str = "sys/kernel/sched_ext";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Support {
    /// `enabled`, `disabled`, or a state on the way from one to the other.
    pub state: String,
    /// The scheduler that is loaded.
    pub loaded: Option<String>,
}

/// Asks the running kernel.
pub fn support() -> Result<Support, SchedExtError> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    support_below(Path::new("/"), release.trim())
}

fn support_below(root: &Path, release: &str) -> Result<Support, SchedExtError> {
    let missing = |why| SchedExtError::Unsupported {
        release: release.to_owned(),
        why,
    };
    if !root.join(FOLDER).exists() {
        return Err(missing("it has no sched_ext"));
    }
    if !root.join(BTF).exists() {
        return Err(missing("it has no BTF"));
    }
    let read = |name: &str| {
        let text = fs::read_to_string(root.join(FOLDER).join(name)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    Ok(Support {
        state: read("state").unwrap_or_else(|| "disabled".to_owned()),
        loaded: read("root/ops"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn a_kernel_without_sched_ext_says_what_would_add_it() {
        let dir = root(&[(BTF, "")]);
        let error = support_below(dir.path(), "6.1.0").unwrap_err().to_string();
        assert!(
            error.contains("6.1.0") && error.contains("CONFIG_SCHED_CLASS_EXT"),
            "{error}"
        );
        let dir = root(&[("sys/kernel/sched_ext/state", "disabled\n")]);
        let error = support_below(dir.path(), "6.18").unwrap_err().to_string();
        assert!(error.contains("BTF"), "{error}");
    }

    #[test]
    fn who_is_loaded_is_named() {
        let state = ("sys/kernel/sched_ext/state", "enabled\n");
        let dir = root(&[
            (BTF, ""),
            state,
            ("sys/kernel/sched_ext/root/ops", "simple\n"),
        ]);
        let found = support_below(dir.path(), "6.18").unwrap();
        assert_eq!(found.state, "enabled");
        assert_eq!(found.loaded.as_deref(), Some("simple"));
        let dir = root(&[(BTF, ""), ("sys/kernel/sched_ext/state", "disabled\n")]);
        assert_eq!(support_below(dir.path(), "6.18").unwrap().loaded, None);
    }
}
