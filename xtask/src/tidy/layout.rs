//! Rust files that no other file names as a module.

use super::Problem;
use std::path::{Path, PathBuf};

/// Rust files in `src` and in the folder of a test program that no other file names as a module.
pub fn dead_files(all: &[(PathBuf, String)]) -> Vec<Problem> {
    let rust = || {
        all.iter()
            .filter(|(path, _)| path.extension().is_some_and(|ext| ext == "rs"))
    };
    let mut problems = Vec::new();
    for (path, _) in rust() {
        let stem = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let part_of = |name: &str| path.components().any(|part| part.as_os_str() == name);
        let parent = path.parent().unwrap_or(Path::new(""));
        // mod.rs is named by its folder's name in the folder above.
        let (name, folder) = match stem.as_str() {
            "main" | "lib" | "build" => continue,
            "mod" => match (parent.file_name(), parent.parent()) {
                (Some(name), Some(above)) => {
                    (name.to_string_lossy().into_owned(), above.to_owned())
                }
                _ => continue,
            },
            _ => (stem, parent.to_owned()),
        };
        // Directly in `tests`, each file is a program.
        let is_program = parent.file_name() == Some("tests".as_ref());
        let is_module = part_of("src") || part_of("tests") && !is_program;
        if !is_module {
            continue;
        }
        let named = rust().any(|(candidate, text)| {
            let beside = candidate.parent() == Some(folder.as_path());
            let above = candidate.with_extension("") == folder;
            (beside || above) && text.lines().any(|line| names_module(line, &name))
        });
        if !named {
            problems.push(format!(
                "{}: no file names it as a module; add `mod {name};` or remove it",
                path.display()
            ));
        }
    }
    problems
}

fn names_module(line: &str, name: &str) -> bool {
    let line = line.trim();
    let after_mod = line.split_once("mod ").filter(|(before, _)| {
        before.is_empty() || (before.starts_with("pub") && !before.contains("//"))
    });
    after_mod.is_some_and(|(_, rest)| rest.strip_suffix(';') == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_no_module_names_are_dead() {
        let file = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
        let all = [
            file("x/src/lib.rs", "mod a;\npub mod b;\n// mod c;\n"),
            file("x/src/a.rs", ""),
            file("x/src/b/mod.rs", "pub(crate) mod d;\n"),
            file("x/src/b/d.rs", ""),
            file("x/src/c.rs", ""),
            file("x/tests/e.rs", ""),
        ];
        let dead = dead_files(&all);
        assert_eq!(dead.len(), 1, "{dead:?}");
        assert!(dead[0].contains("x/src/c.rs"));
    }
}
