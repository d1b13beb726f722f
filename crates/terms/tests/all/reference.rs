//! `docs/terms.md` has every term and setting, as the table of terms has them.

use std::path::Path;

use tidegate_terms::{Class, Setting, Term};

const TERMS: &str =
    "<!-- terms: written by UPDATE_DOCS=1 cargo test -p tidegate-terms reference -->\n";
const SETTINGS: &str = "<!-- settings: likewise -->\n";
const END: &str = "<!-- end -->";

/// A bar would end the cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn terms() -> String {
    let mut table =
        "| term | what it does | values | default | gates |\n|---|---|---|---|---|\n".to_owned();
    for term in Term::ALL {
        let alias = term.alias().map(|alias| format!(" (`{alias}`)"));
        let classes: Vec<&str> = term.classes().iter().copied().map(Class::name).collect();
        let classes = match classes.len() {
            3 => "all".to_owned(),
            _ => classes.join(", "),
        };
        table += &format!(
            "| `{}`{} | {} | {} | {} | {classes} |\n",
            term.name(),
            alias.unwrap_or_default(),
            cell(term.doc()),
            cell(term.range()),
            cell(&term.unsaid()),
        );
    }
    table
}

fn settings() -> String {
    let mut table = "| setting | what it does | values | default |\n|---|---|---|---|\n".to_owned();
    for setting in Setting::ALL {
        table += &format!(
            "| `{}` | {} | {} | {} |\n",
            setting.name(),
            cell(setting.doc()),
            cell(setting.range()),
            cell(&setting.unsaid()),
        );
    }
    table
}

/// The page with `table` between `begin` and the next end.
fn with(page: &str, begin: &str, table: &str) -> String {
    let from = page.find(begin).expect(begin) + begin.len();
    let to = from + page[from..].find(END).expect(END);
    format!("{}{table}{}", &page[..from], &page[to..])
}

#[test]
fn the_reference_in_the_documents_has_every_term_and_setting() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/terms.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let wanted = with(&with(&page, TERMS, &terms()), SETTINGS, &settings());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, wanted).unwrap();
        return;
    }
    assert_eq!(
        page, wanted,
        "docs/terms.md is out of date: run UPDATE_DOCS=1 cargo test -p tidegate-terms reference"
    );
}
