//! Replays the inputs that fuzzing has found worth keeping.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

/// The inputs of a target, ordered by file name.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let files = std::fs::read_dir(folder.join(target)).unwrap();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

#[test]
fn the_corpus_is_replayed() {
    let mut replayed = 0;
    for (name, fuzz) in tidegate_fuzz::TARGETS {
        for input in corpus(name) {
            fuzz(&input);
            replayed += 1;
        }
    }
    assert!(replayed >= 40, "only {replayed} inputs");
}

/// Replays every prefix of an input too, because files are read while they are written.
#[test]
fn what_is_cut_short_is_refused_or_read() {
    for (name, fuzz) in tidegate_fuzz::TARGETS {
        for input in corpus(name).iter().take(20) {
            for length in 0..input.len() {
                fuzz(&input[..length]);
            }
        }
    }
}
