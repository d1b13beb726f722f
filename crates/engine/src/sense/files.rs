//! Kernel files that stay open and are read again from the start, without allocating.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::SenseError;

/// A file of the kernel's, kept open; the kernel makes its text again at each read from offset 0.
pub struct KeptFile {
    path: PathBuf,
    file: File,
}

impl KeptFile {
    pub fn open(path: &Path) -> Result<Self, SenseError> {
        let file = File::open(path).map_err(|why| SenseError::read(path, why))?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The beginning of the file, as much as `buffer` holds.
    pub fn head<'b>(&self, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
        let len = self.file.read_at(buffer, 0)?;
        Ok(&buffer[..len])
    }

    pub fn whole(&self, text: &mut Vec<u8>) -> Result<(), SenseError> {
        let mut len = 0;
        text.resize(text.capacity().max(4096), 0);
        loop {
            let read = self
                .file
                .read_at(&mut text[len..], len as u64)
                .map_err(|why| SenseError::read(&self.path, why))?;
            len += read;
            if read == 0 {
                text.truncate(len);
                return Ok(());
            }
            if len == text.len() {
                text.resize(2 * len, 0);
            }
        }
    }
}

/// The number at the beginning of `text`, after blanks. None if there is none or it overflows.
pub fn number(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_start();
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    text[..digits].iter().try_fold(0_u64, |sum, digit| {
        sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

/// The number behind `key` in a file of `key number` lines (`cpu.stat`).
pub fn keyed(text: &[u8], key: &[u8]) -> Option<u64> {
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let rest = line.strip_prefix(key)?;
        rest.first().filter(|byte| **byte == b' ')?;
        number(rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_match_whole_words() {
        let text = b"usage_usec_x 1\nusage_usec 77\nuser_usec 5\n";
        assert_eq!(keyed(text, b"usage_usec"), Some(77));
        assert_eq!(keyed(text, b"user"), None);
        assert_eq!(keyed(b"usage_usec", b"usage_usec"), None);
    }
}
