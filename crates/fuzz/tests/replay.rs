//! Everything that fuzzing has found worth keeping, once more.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

#[test]
fn the_corpus_is_replayed() {
    let mut replayed = 0;
    for (name, fuzz) in tidegate_fuzz::TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        let text = std::fs::read_to_string(folder.join(format!("{name}.hex"))).unwrap();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            fuzz(&bytes(line));
            replayed += 1;
        }
    }
    assert!(replayed >= 40, "only {replayed} inputs");
}

fn bytes(line: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&line[at..at + 2], 16).unwrap();
    (0..line.len() / 2).map(|nth| digit(2 * nth)).collect()
}

/// Every start of every input, too: files are read while they are written.
#[test]
fn what_is_cut_short_is_refused_or_read() {
    for (name, fuzz) in tidegate_fuzz::TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        let text = std::fs::read_to_string(folder.join(format!("{name}.hex"))).unwrap();
        for line in text.lines().filter(|line| !line.starts_with('#')).take(20) {
            let input = bytes(line);
            for length in 0..input.len() {
                fuzz(&input[..length]);
            }
        }
    }
}
