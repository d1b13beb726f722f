//! Import cycles between the top-level modules of a crate.
//!
//! Files are read as tokens, so that comments and strings do not count. What is compiled for tests
//! only does not count either. A name that the crate's root re-exports counts as the module that it
//! comes from.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Module to the modules that it imports from.
type Imports = BTreeMap<String, BTreeSet<String>>;

struct Source {
    /// Its module's path below the root.
    module: Vec<String>,
    tokens: Vec<TokenTree>,
}

/// The sources of each crate by the crate's folder; test modules in files of their own are left
/// out.
fn crates(all: &[(PathBuf, String)]) -> BTreeMap<String, Vec<Source>> {
    let mut crates: BTreeMap<String, Vec<Source>> = BTreeMap::new();
    for (path, text) in all {
        let Some((folder, module)) = place(path) else {
            continue;
        };
        // A file that is no Rust is the compiler's to refuse.
        let tokens: TokenStream = text.parse().unwrap_or_default();
        let tokens = tokens.into_iter().collect();
        let source = Source { module, tokens };
        crates.entry(folder).or_default().push(source);
    }
    for sources in crates.values_mut() {
        let mut tests = Vec::new();
        for source in sources.iter() {
            test_modules(&source.tokens, &source.module, &mut tests);
        }
        sources.retain(|source| !tests.iter().any(|test| source.module.starts_with(test)));
    }
    crates
}

/// Of `crates/a/src/b/c.rs`: `crates/a` and `[b, c]`.
fn place(path: &Path) -> Option<(String, Vec<String>)> {
    let text = path.to_str()?;
    let (folder, inside) = text.strip_suffix(".rs")?.split_once("/src/")?;
    let mut module: Vec<String> = inside.split('/').map(str::to_owned).collect();
    if matches!(inside, "lib" | "main") || module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    Some((folder.to_owned(), module))
}

fn is_ident(token: Option<&TokenTree>, word: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(ident)) if ident == word)
}

fn is_punct(token: Option<&TokenTree>, mark: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == mark)
}

fn is_path_mark(tokens: &[TokenTree], at: usize) -> bool {
    is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':')
}

fn ident(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
        _ => None,
    }
}

fn inside(group: &proc_macro2::Group) -> Vec<TokenTree> {
    group.stream().into_iter().collect()
}

/// The end of an item that begins here with `#[cfg(test)]`.
fn test_item(tokens: &[TokenTree], at: usize) -> Option<usize> {
    let Some(TokenTree::Group(attribute)) = tokens.get(at + 1) else {
        return None;
    };
    let text = attribute.to_string().replace(' ', "");
    if !is_punct(tokens.get(at), '#') || text != "[cfg(test)]" {
        return None;
    }
    let ends = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        other => is_punct(Some(other), ';'),
    };
    let length = tokens[at..].iter().position(ends)?;
    Some(at + length + 1)
}

/// `#[cfg(test)] mod NAME;`, each with its path.
fn test_modules(tokens: &[TokenTree], module: &[String], found: &mut Vec<Vec<String>>) {
    for at in 0..tokens.len() {
        let Some(end) = test_item(tokens, at) else {
            continue;
        };
        let item = &tokens[at..end];
        let name = item.iter().position(|token| is_ident(Some(token), "mod"));
        if let Some(name) = name.and_then(|nth| ident(item.get(nth + 1))) {
            found.push(module.iter().cloned().chain([name]).collect());
        }
    }
}

/// Names that the root takes from modules: `use a::{B, c::D as E}` gives B and E of a.
fn reexports(root: &[TokenTree]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut at = 0;
    while at < root.len() {
        if is_ident(root.get(at), "use") {
            let length = root[at..]
                .iter()
                .position(|token| is_punct(Some(token), ';'));
            let end = at + length.unwrap_or(root.len() - at);
            leaves(&root[at + 1..end], None, &mut found);
            at = end;
        }
        at += 1;
    }
    found
}

fn leaves(tree: &[TokenTree], module: Option<&str>, found: &mut BTreeMap<String, String>) {
    for branch in tree.split(|token| is_punct(Some(token), ',')) {
        let mut names = branch.iter().filter_map(|token| ident(Some(token)));
        let first = names.find(|name| name != "crate" && name != "self");
        let module = module.map(str::to_owned).or(first.clone());
        match (branch.last(), module) {
            (Some(TokenTree::Group(group)), Some(module)) => {
                leaves(&inside(group), Some(&module), found);
            }
            (Some(_), Some(module)) => {
                found.extend(names.next_back().or(first).map(|leaf| (leaf, module)));
            }
            _ => {}
        }
    }
}

/// Names directly below the root that `crate::` and `super::` paths begin with.
fn root_names(tokens: &[TokenTree], depth: usize, found: &mut BTreeSet<String>) {
    let mut at = 0;
    while at < tokens.len() {
        if let Some(end) = test_item(tokens, at) {
            at = end;
            continue;
        }
        let is_head = is_ident(tokens.get(at), "crate") || is_ident(tokens.get(at), "super");
        // `pub(in crate::a)` imports nothing.
        let is_scope = at > 0 && is_ident(tokens.get(at - 1), "in");
        if is_head && is_path_mark(tokens, at + 1) && !is_scope {
            let mut above = match is_ident(tokens.get(at), "crate") {
                true => depth,
                false => 1,
            };
            at += 3;
            while is_ident(tokens.get(at), "super") && is_path_mark(tokens, at + 1) {
                above += 1;
                at += 3;
            }
            match tokens.get(at) {
                Some(_) if above != depth => {}
                Some(TokenTree::Group(group)) => {
                    let tree = inside(group);
                    let branches = tree.split(|token| is_punct(Some(token), ','));
                    found.extend(branches.filter_map(|branch| ident(branch.first())));
                }
                token => found.extend(ident(token)),
            }
        } else if let Some(TokenTree::Group(group)) = tokens.get(at) {
            let is_module = at > 1
                && is_ident(tokens.get(at - 2), "mod")
                && group.delimiter() == Delimiter::Brace;
            root_names(&inside(group), depth + usize::from(is_module), found);
        }
        at += 1;
    }
}

fn imports(sources: &[Source]) -> Imports {
    let modules: BTreeSet<&String> = sources
        .iter()
        .filter_map(|one| one.module.first())
        .collect();
    let root = sources.iter().find(|one| one.module.is_empty());
    let reexports = root.map(|root| reexports(&root.tokens)).unwrap_or_default();
    let mut imports = Imports::new();
    for source in sources {
        let Some(own) = source.module.first() else {
            continue;
        };
        let mut names = BTreeSet::new();
        root_names(&source.tokens, source.module.len(), &mut names);
        let of = |name: String| match modules.contains(&name) {
            true => Some(name),
            false => reexports.get(&name).cloned(),
        };
        let from = names.into_iter().filter_map(of);
        let from = from.filter(|name| name != own && modules.contains(name));
        imports.entry(own.clone()).or_default().extend(from);
    }
    imports
}

/// The shortest way from a module back to itself.
fn cycle(imports: &Imports, start: &str) -> Option<Vec<String>> {
    let mut ways = VecDeque::from([vec![start.to_owned()]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for next in way
            .last()
            .and_then(|last| imports.get(last))
            .into_iter()
            .flatten()
        {
            let longer: Vec<String> = way.iter().chain([next]).cloned().collect();
            if next == start {
                return Some(longer);
            }
            if seen.insert(next) {
                ways.push_back(longer);
            }
        }
    }
    None
}

/// Each crate with modules in import cycles: how many, and a shortest cycle.
pub fn cycles(all: &[(PathBuf, String)]) -> BTreeMap<String, (usize, String)> {
    let mut found = BTreeMap::new();
    for (folder, sources) in crates(all) {
        let imports = imports(&sources);
        let cycles: Vec<Vec<String>> = imports
            .keys()
            .filter_map(|module| cycle(&imports, module))
            .collect();
        if let Some(shortest) = cycles.iter().min_by_key(|cycle| cycle.len()) {
            found.insert(folder, (cycles.len(), shortest.join(" -> ")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> Vec<(PathBuf, String)> {
        let file = |(path, text): &(&str, &str)| (PathBuf::from(path), (*text).to_owned());
        files.iter().map(file).collect()
    }

    fn found(files: &[(&str, &str)]) -> Option<(usize, String)> {
        cycles(&sources(files)).remove("crates/x")
    }

    #[test]
    fn a_cycle_is_found_however_the_path_is_written() {
        for back in [
            "use crate::a::A;",
            "use crate::{c::C, a::A};",
            "use super::a::A;",
            "use crate::A;",
            "fn f() { vec![crate::a::A] }",
            "mod inner { use super::super::a::A; }",
        ] {
            let files = [
                (
                    "crates/x/src/lib.rs",
                    "mod a; mod b; pub mod c; pub use a::{A, a2::B as D};",
                ),
                ("crates/x/src/a/mod.rs", "mod a2;"),
                ("crates/x/src/a/a2.rs", "use crate::b::Z; use super::A;"),
                ("crates/x/src/b.rs", back),
                ("crates/x/src/c.rs", ""),
            ];
            let cycle = Some((2, "a -> b -> a".to_owned()));
            assert_eq!(found(&files), cycle, "{back}");
        }
    }

    #[test]
    fn what_is_no_import_closes_no_cycle() {
        for back in [
            "// use crate::a::A;\nconst TEXT: &str = \"crate::a\";",
            "#[cfg(test)] mod tests { use crate::a::A; }",
            "pub(in crate::a) fn f() {}",
            "use crate::b::own; mod inner { use super::own; }",
        ] {
            let files = [
                ("crates/x/src/lib.rs", "mod a; mod b;"),
                ("crates/x/src/a.rs", "use crate::b;"),
                ("crates/x/src/b.rs", back),
                ("crates/x/tests/t.rs", "use crate::a::A;"),
            ];
            assert_eq!(found(&files), None, "{back}");
        }
    }

    #[test]
    fn a_test_module_in_a_file_of_its_own_closes_no_cycle() {
        let found = |declared: &str| {
            let files = [
                ("crates/x/src/lib.rs", "mod a; mod b;"),
                ("crates/x/src/a.rs", "use crate::b;"),
                ("crates/x/src/b.rs", declared),
                ("crates/x/src/b/tests.rs", "use crate::a::A;"),
            ];
            found(&files)
        };
        assert_eq!(found("#[cfg(test)] pub(crate) mod tests;"), None);
        assert!(found("mod tests;").is_some());
    }
}
