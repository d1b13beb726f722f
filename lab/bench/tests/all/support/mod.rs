//! What the tests of printed text share.

use std::path::PathBuf;

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
