//! Relative links of markdown pages, with their anchors.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::Problem;

/// Links to files that git does not know, and to headings that the page does not have.
pub(super) fn dead(files: &[PathBuf], all: &[(PathBuf, String)]) -> Vec<Problem> {
    let mut known: BTreeSet<&Path> = BTreeSet::new();
    for file in files {
        known.extend(file.ancestors());
    }
    let pages: Vec<&(PathBuf, String)> = all
        .iter()
        .filter(|(path, _)| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    let anchors: BTreeMap<&Path, BTreeSet<String>> = pages
        .iter()
        .map(|(path, text)| (path.as_path(), anchors(text)))
        .collect();
    let mut problems = Vec::new();
    for (path, text) in &pages {
        for (number, line) in prose(text) {
            for link in targets(line) {
                let (name, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target = match name {
                    "" => path.clone(),
                    name => resolved(path.parent().unwrap_or(Path::new("")), name),
                };
                let is_dead = !known.contains(target.as_path())
                    || !anchor.is_empty()
                        && anchors
                            .get(target.as_path())
                            .is_none_or(|anchors| !anchors.contains(anchor));
                if is_dead {
                    problems.push(format!(
                        "{}:{number}: {link} leads nowhere; name a file of the tree and one of its headings",
                        path.display()
                    ));
                }
            }
        }
    }
    problems
}

/// The lines outside of code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// What follows `](`, unless it is an address of the web. Code in a line has no links.
fn targets(line: &str) -> Vec<&str> {
    let outside = line.split('`').step_by(2);
    outside
        .flat_map(|part| part.split("](").skip(1))
        .filter_map(|rest| Some(rest.split_once(')')?.0))
        .filter(|link| !link.contains("://") && !link.starts_with("mailto:"))
        .collect()
}

fn resolved(folder: &Path, name: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for part in folder.join(name).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

/// The anchors of all headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    prose(text)
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(_, line)| {
            let slug: String = line
                .trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter(|one| one.is_alphanumeric() || matches!(one, ' ' | '-' | '_'))
                .map(|one| if one == ' ' { '-' } else { one })
                .collect();
            let count = times.entry(slug.clone()).or_default();
            *count += 1;
            match *count {
                1 => slug,
                count => format!("{slug}-{}", count - 1),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_are_found_and_others_are_not() {
        let page = "# One `flag --x`\n## One `flag --x`\n[a](b/c.md#two) [up](../docs) `[x](gone)`\n\
                    [self](#one-flag---x-1) [web](https://example.org/x) ![picture](p.png)\n\
                    ```\n[y](gone)\n```\n";
        let all = [
            (PathBuf::from("docs/a.md"), page.to_owned()),
            (
                PathBuf::from("docs/b/c.md"),
                "# Two\n[a](../a.md)\n".to_owned(),
            ),
        ];
        let mut files: Vec<PathBuf> = all.iter().map(|(path, _)| path.clone()).collect();
        files.push(PathBuf::from("docs/p.png"));
        assert_eq!(dead(&files, &all), Vec::<Problem>::new());
        files.pop();
        assert_eq!(dead(&files, &all).len(), 1);
        let renamed = [
            all[0].clone(),
            (PathBuf::from("docs/b/c.md"), "# Three\n".to_owned()),
        ];
        assert_eq!(dead(&files, &renamed).len(), 2);
    }
}
