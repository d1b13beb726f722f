//! Rules about the tree as a whole: how modules and types lie, what files are called, how pages are worded.

use std::path::{Path, PathBuf};

use super::{Problem, modules, words};

/// An `impl` in more files than this hides what the type is.
const IMPL_FILES_MAX: usize = 4;
const README_LINES_MAX: usize = 90;

/// All breaches.
pub fn check(all: &[(PathBuf, String)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (folder, (count, shortest)) in modules::cycles(all) {
        problems.push(format!(
            "{folder}: {count} modules in import cycles: {shortest}: move what both need into a module below them"
        ));
    }
    for (name, files) in modules::spread(all) {
        if files > IMPL_FILES_MAX {
            problems.push(format!(
                "{name}: `impl` blocks in {files} files, more than {IMPL_FILES_MAX}: give parts of its state types of their own"
            ));
        }
    }
    for (path, text) in all {
        let name = path.display();
        if let Some(instead) = words::instead_of(path) {
            problems.push(format!("{name}: rename it; the word is {instead}"));
        }
        let is_page = path.extension().is_some_and(|extension| extension == "md");
        if is_page && words::persons(text) > 0 {
            problems.push(format!(
                "{name}: a replaced word for a person or a time: let the thing be the subject"
            ));
        }
        let lines = text.lines().count();
        if path == Path::new("README.md") && lines > README_LINES_MAX {
            problems.push(format!(
                "{name}: {lines} lines; more than {README_LINES_MAX} are no overview: move the rest to docs/"
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_readme_and_a_page_with_persons_are_found() {
        let file = |name: &str, text: String| [(PathBuf::from(name), text)];
        let readme = |lines| check(&file("README.md", "x\n".repeat(lines))).len();
        assert_eq!(readme(README_LINES_MAX), 0);
        assert_eq!(readme(README_LINES_MAX + 1), 1);
        assert_eq!(
            check(&file("docs/x.md", "nobody knows\n".to_owned())).len(),
            1
        );
    }
}
