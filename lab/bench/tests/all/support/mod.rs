//! What the tests of the command and of printed text share.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What a command came to.
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn json(&self) -> serde_json::Value {
        assert_eq!(self.code, Some(0), "{}", self.err);
        serde_json::from_str(&self.out).unwrap()
    }
}

/// Runs `tidegate-lab` with these words in a folder.
pub fn lab(dir: &Path, words: &str) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate-lab"))
        .current_dir(dir)
        .env("NO_COLOR", "1")
        .env("TZ", "UTC")
        .args(words.split(' '))
        .output()
        .unwrap();
    Ran {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Compares with the expected file; writes it where `TIDEGATE_BLESS` is set.
pub fn golden(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::write(&path, text).expect("written");
    }
    let want = std::fs::read_to_string(&path).expect("the expected file");
    assert_eq!(
        text, want,
        "{name} changed; look at it, then TIDEGATE_BLESS=1 cargo test"
    );
}
