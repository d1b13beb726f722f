//! The page's modules as one script, for a page that is one file. Of the language it knows what
//! `web/` uses: imports of names on one line, and exports where something is declared.

use std::fmt::Write;

/// The module `entry` and all that it imports, each in a scope of its own. `text` gives a module by
/// its name.
pub fn bundle<'a>(entry: &str, text: &dyn Fn(&str) -> Option<&'a str>) -> String {
    let mut script = String::from("'use strict';\n");
    add(entry, text, &mut Vec::new(), &mut script);
    script
}

fn add<'a>(
    name: &str,
    text: &dyn Fn(&str) -> Option<&'a str>,
    done: &mut Vec<String>,
    script: &mut String,
) {
    if done.iter().any(|one| one == name) {
        return;
    }
    done.push(name.to_owned());
    let (mut body, mut exports) = (String::new(), Vec::new());
    for line in text(name).unwrap_or_default().lines() {
        if let Some((names, from)) = import(line) {
            add(from, text, done, script);
            let _ = writeln!(body, "const {names} = {};", scope(from));
            continue;
        }
        let declared = line.strip_prefix("export ").unwrap_or(line);
        if declared.len() < line.len() {
            exports.extend(declared_name(declared));
        }
        body.push_str(declared);
        body.push('\n');
    }
    let returned = exports.join(", ");
    let scope = scope(name);
    let _ = writeln!(
        script,
        "const {scope} = (() => {{\n{body}return {{ {returned} }};\n}})();"
    );
}

/// The names of `import { a, b } from './x.js';`, in their braces, and its module.
fn import(line: &str) -> Option<(&str, &str)> {
    let (names, from) = line.strip_prefix("import ")?.split_once(" from ")?;
    let from = from.trim_end_matches(';').trim_matches('\'');
    Some((names, from.trim_start_matches("./")))
}

fn declared_name(declaration: &str) -> Option<&str> {
    let words = declaration.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    let keywords = ["async", "function", "const", "let", "class", ""];
    words.into_iter().find(|word| !keywords.contains(word))
}

fn scope(module: &str) -> String {
    format!("${}", module.trim_end_matches(".js").replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_once_and_before_those_that_import_them() {
        let text = |name: &str| match name {
            "a.js" => Some("import { b } from './b.js';\nimport { c, d } from './c.js';\nb(c, d);"),
            "b.js" => {
                Some("import { c } from './c.js';\nexport async function b() {\n  return c;\n}")
            }
            "c.js" => Some("export const c = 1;\nexport function d() {}\nfunction e() {}"),
            _ => None,
        };
        let script = bundle("a.js", &text);
        let at = |what: &str| {
            script
                .find(what)
                .unwrap_or_else(|| panic!("{what}: {script}"))
        };
        assert!(at("return { c, d };") < at("const $b ="));
        assert!(at("const { c } = $c;") < at("return { b };"));
        assert!(at("return { b };") < at("const { c, d } = $c;\nb(c, d);"));
        assert_eq!(script.matches("const $c =").count(), 1);
        assert!(!script.contains("import ") && !script.contains("export "));
    }
}
