//! Rules that the tree does not keep yet: what breaks them is listed with its size, and the lists only get shorter.
//!
//! A breach that is not listed fails, and so does one that is larger than listed. An entry whose breach is gone fails, too, so that
//! it is removed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Problem, modules, words};

/// An `impl` in more files than this hides what the type is.
const IMPL_FILES_MAX: usize = 4;
const README_LINES_MAX: usize = 90;

/// What breaks a rule today, each with its size.
type Listed = &'static [(&'static str, usize)];

/// Top-level modules of a crate that are in import cycles.
const CYCLES: Listed = &[];
/// Files in which a type has inherent `impl` blocks.
const SPREAD: Listed = &[];
/// Files of a folder that are named by a word that was replaced.
const STEMS: Listed = &[];
/// Words for a person where a thing is meant, in a folder's pages.
const PERSONS: Listed = &[];

/// All breaches that are not listed, and all entries that are needed no more.
pub fn check(all: &[(PathBuf, String)]) -> Vec<Problem> {
    let cycles = modules::cycles(all);
    let sizes = cycles.iter().map(|(name, (size, _))| (name.clone(), *size));
    let what = "modules in import cycles";
    let mut problems = compare(what, &sizes.collect(), CYCLES, |name| {
        let shortest = cycles.get(name).map_or("", |(_, shortest)| shortest);
        format!("{shortest}: move what both need into a module below them")
    });
    let mut spread = modules::spread(all);
    spread.retain(|_, files| *files > IMPL_FILES_MAX);
    let what = "files with its `impl` blocks";
    problems.extend(compare(what, &spread, SPREAD, |_| {
        format!("more than {IMPL_FILES_MAX}: give parts of its state types of their own")
    }));
    let stems = in_folders(all, |path, _| {
        usize::from(words::instead_of(path).is_some())
    });
    let what = "files named by a replaced word";
    problems.extend(compare(what, &stems, STEMS, |folder| renames(all, folder)));
    let is_page = |path: &Path| path.extension().is_some_and(|extension| extension == "md");
    let persons = in_folders(all, |path, text| match is_page(path) {
        true => words::persons(text),
        false => 0,
    });
    let what = "whoever, somebody, nobody, anew";
    problems.extend(compare(what, &persons, PERSONS, |_| {
        "let the thing be the subject".to_owned()
    }));
    problems.extend(readme(all));
    problems
}

/// `crates/a` of a crate's files, else the first folder.
fn folder(path: &Path) -> String {
    let depth = 1 + usize::from(path.starts_with("crates"));
    let folder: PathBuf = path.iter().take(depth).collect();
    folder.display().to_string()
}

/// The sum of each folder's files, where there is any.
fn in_folders(
    all: &[(PathBuf, String)],
    size: impl Fn(&Path, &str) -> usize,
) -> BTreeMap<String, usize> {
    let mut sums = BTreeMap::new();
    for (path, text) in all {
        *sums.entry(folder(path)).or_default() += size(path, text);
    }
    sums.retain(|_, sum| *sum > 0);
    sums
}

fn renames(all: &[(PathBuf, String)], of: &str) -> String {
    let files = all.iter().filter(|(path, _)| folder(path) == of);
    let rename = |path: &Path| {
        let instead = words::instead_of(path)?;
        Some(format!("{} is {instead}", path.display()))
    };
    let renames: Vec<String> = files.filter_map(|(path, _)| rename(path)).collect();
    renames.join(", ")
}

fn readme(all: &[(PathBuf, String)]) -> Option<Problem> {
    let (_, text) = all
        .iter()
        .find(|(path, _)| path == Path::new("README.md"))?;
    let lines = text.lines().count();
    (lines > README_LINES_MAX).then(|| {
        format!("README.md: {lines} lines; more than {README_LINES_MAX} are no overview: move the rest to docs/")
    })
}

fn compare(
    what: &str,
    found: &BTreeMap<String, usize>,
    listed: &[(&str, usize)],
    mend: impl Fn(&str) -> String,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, size) in found {
        let known = listed.iter().find(|(known, _)| known == name);
        let allowed = known.map_or(0, |(_, allowed)| *allowed);
        if *size > allowed {
            let mend = mend(name);
            problems.push(format!(
                "{name}: {what}: {size}, at most {allowed} here; {mend}"
            ));
        }
    }
    let gone = listed.iter().filter(|(name, _)| !found.contains_key(*name));
    problems.extend(gone.map(|(name, _)| {
        format!("{name}: {what}: none left; remove its entry from xtask/src/tidy/debt.rs")
    }));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_grew_or_is_gone_fails_and_what_is_listed_does_not() {
        let found = |size| BTreeMap::from([("a".to_owned(), size)]);
        let count = |found: &BTreeMap<String, usize>, known: &[(&str, usize)]| {
            compare("x", found, known, |_| String::new()).len()
        };
        assert_eq!(count(&found(2), &[]), 1, "new");
        assert_eq!(count(&found(3), &[("a", 2)]), 1, "grew");
        assert_eq!(count(&found(2), &[("a", 2)]), 0, "listed");
        assert_eq!(count(&found(1), &[("a", 2)]), 0, "shrank");
        assert_eq!(count(&BTreeMap::new(), &[("a", 2)]), 1, "gone");
    }

    #[test]
    fn a_long_readme_is_found() {
        let file = |lines| [(PathBuf::from("README.md"), "x\n".repeat(lines))];
        assert!(readme(&file(README_LINES_MAX)).is_none());
        assert!(readme(&file(README_LINES_MAX + 1)).is_some());
    }
}
