//! What others send the agent, and what an earlier agent left it: requests, `gates.json`, the
//! lease, the configuration.

use std::io::Write;
use std::path::{Path, PathBuf};

use tidegate_agent::fuzz;
use tidegate_terms::{Config, RawTerms, Source, Term};

use crate::text;

thread_local! {
    static FOLDER: tempfile::TempDir = tempfile::tempdir().expect("a temporary folder can be made");
}

/// A file of this thread's own.
pub(crate) fn scratch(name: &str) -> PathBuf {
    FOLDER.with(|folder| folder.path().join(name))
}

/// The first byte chooses the call, the rest is its body.
pub fn requests(data: &[u8]) {
    if let Some((call, body)) = data.split_first() {
        fuzz::request(*call, body);
    }
}

/// `gates.json`.
pub fn gates(data: &[u8]) {
    fuzz::gates(&text(data));
}

/// A time of eight bytes, a process number of four, and the page.
pub fn lease(data: &[u8]) {
    let Some((now, rest)) = data.split_first_chunk::<8>() else {
        return;
    };
    let Some((pid, page)) = rest.split_first_chunk::<4>() else {
        return;
    };
    let path = scratch("lease");
    let written = std::fs::File::create(&path).and_then(|mut file| file.write_all(page));
    written.expect("the folder has room");
    fuzz::lease(&path, u64::from_le_bytes(*now), i32::from_le_bytes(*pid));
}

/// A configuration file: what is read without an error can be resolved for each class, and shown.
pub fn config(data: &[u8]) {
    let config = match Config::from_text(Path::new("/etc/tidegate/tidegate.toml"), &text(data)) {
        Ok(config) => config,
        Err(errors) => {
            assert!(!errors.0.is_empty());
            // A line of the file is quoted, never the file.
            assert!(errors.0.iter().all(|error| error.to_string().len() < 4_096));
            return;
        }
    };
    let settings = config.settings();
    assert!(settings.lease.value.ns() > 0 && settings.gates_max.value.get() > 0);
    for class in Term::Class.classes() {
        let mut asked = RawTerms::default();
        asked.insert(Term::Class.name(), class.name(), Source::Set);
        let terms = config.resolve(&[&asked]);
        let terms = terms.expect("contradictions were refused when the file was read");
        assert_eq!(terms.class.value, *class);
        drop(terms.views());
    }
}
