//! The initramfs format (`newc` cpio, uncompressed: under emulation unpacking costs more than
//! copying), as far as the bed needs it: directories, files, symbolic links and character devices,
//! all owned by root. Written here so that making device nodes needs neither root nor a tool.

/// An archive being written.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER: u32 = 0o020_000;

impl Archive {
    pub fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY | 0o755, (0, 0), &[]);
    }

    pub fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entry(path, REGULAR | mode, (0, 0), content);
    }

    pub fn symlink(&mut self, path: &str, target: &str) {
        self.entry(path, SYMLINK | 0o777, (0, 0), target.as_bytes());
    }

    pub fn character_device(&mut self, path: &str, major: u32, minor: u32) {
        self.entry(path, CHARACTER | 0o600, (major, minor), &[]);
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.inode = 0;
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        let name = path.trim_start_matches('/');
        // Each file has one name, so any number that differs serves as its inode.
        let links = if mode & DIRECTORY != 0 { 2 } else { 1 };
        let fields = [
            self.inode,
            mode,
            0,
            0,
            links,
            0,
            content.len() as u32,
            0,
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0,
        ];
        self.inode += 1;
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    /// The header with its name, and the content, each end on four bytes.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn cpio_itself_lists_what_was_written() {
        let mut archive = Archive::default();
        archive.directory("bin");
        archive.file("bin/odd", 0o755, b"seven b");
        archive.symlink("bin/sh", "busybox");
        archive.character_device("console", 5, 1);
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let spawned = Command::new("cpio")
            .args(["-itv", "--quiet"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut cpio) = spawned else {
            eprintln!("skipped: cpio is not installed");
            return;
        };
        cpio.stdin.take().unwrap().write_all(&bytes).unwrap();
        let output = cpio.wait_with_output().unwrap();
        assert!(output.status.success());
        let listing = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = listing.lines().collect();
        assert!(
            lines[0].starts_with("drwxr-xr-x") && lines[0].ends_with("bin"),
            "{listing}"
        );
        assert!(
            lines[1].starts_with("-rwxr-xr-x") && lines[1].contains(" 7 "),
            "{listing}"
        );
        assert!(lines[2].ends_with("bin/sh -> busybox"), "{listing}");
        assert!(
            lines[3].starts_with("crw-------") && lines[3].contains("5,   1"),
            "{listing}"
        );
    }
}
