//! Writing a file whole or not at all.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a file for its owner alone, whole or not at all, through a new file beside it. What is no
/// plain file, as `/dev/stdout`, is written as it is.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let is_special = fs::metadata(path).is_ok_and(|meta| !meta.is_file());
    if is_special {
        return OpenOptions::new().write(true).open(path)?.write_all(bytes);
    }
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.partial", std::process::id()));
    let partial = path.with_file_name(name);
    let opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&partial);
    let mut file = opened?;
    let written = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn what_is_there_is_replaced_whole_and_a_device_stays_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("night.tgr");
        fs::write(&path, "old").unwrap();
        fs::write(dir.path().join("night.partial"), "mine").unwrap();
        write_whole(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            2,
            "nothing else is touched"
        );
        write_whole(Path::new("/dev/null"), b"x").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        assert!(write_whole(&dir.path().join("no/where"), b"x").is_err());
    }

    #[test]
    fn a_file_that_waits_under_the_new_ones_name_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("night.tgr");
        let trap = dir
            .path()
            .join(format!(".night.tgr.{}.partial", std::process::id()));
        symlink(dir.path().join("victim"), trap).unwrap();
        assert!(write_whole(&path, b"x").is_err());
        assert!(!dir.path().join("victim").exists());
    }
}
