//! A recording's view as one HTML file, which loads nothing.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::bundle::bundle;
use super::file;

/// The page of a recording; `data` is its JSON.
pub fn page(name: &str, data: &str) -> String {
    let style = format!("{}\n{}", file("/uplot.css"), file("/style.css"));
    let plots = file("/uplot.js");
    let script = bundle("single.js", &|module| Some(file(&format!("/{module}"))));
    let policy = format!(
        "default-src 'none'; script-src {} {}; style-src {}; img-src data:; base-uri 'none'; form-action 'none'",
        hash(plots),
        hash(&script),
        hash(&style)
    );
    let data = in_script(data);
    let title = escaped(name);
    filled(file("single.html"), &|field| match field {
        "policy" => &policy,
        "title" => &title,
        "style" => &style,
        "data" => &data,
        "plots" => plots,
        "script" => &script,
        _ => "",
    })
}

/// The template with its fields `{{NAME}}`, in one pass: what is filled in may hold such marks
/// itself.
fn filled<'a>(template: &str, text: &dyn Fn(&str) -> &'a str) -> String {
    let mut page = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (field, next) = after.split_once("}}").unwrap_or((after, ""));
        page.push_str(before);
        page.push_str(text(field));
        rest = next;
    }
    page + rest
}

fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    format!("'sha256-{}'", STANDARD.encode(digest))
}

/// JSON that no parser of HTML takes for a tag: in JSON, `<` is in texts alone.
fn in_script(json: &str) -> String {
    json.replace('<', "\\u003c")
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_filled_in_one_pass() {
        let text = |field: &str| match field {
            "a" => "{{b}}",
            _ => "B",
        };
        assert_eq!(filled("<p>{{a}} {{b}}</p>", &text), "<p>{{b}} B</p>");
    }

    #[test]
    fn data_ends_no_script() {
        let data = in_script(r#"{"name":"</script><!--<script>"}"#);
        assert!(!data.contains('<'));
        let back: serde_json::Value = serde_json::from_str(&data).unwrap();
        assert_eq!(back["name"], "</script><!--<script>");
    }

    #[test]
    fn the_page_has_everything_in_it() {
        if super::super::FILES.is_empty() {
            return;
        }
        let page = page("a <b>.tgr", "{}");
        for left in [
            "{{",
            "import {",
            "\nexport ",
            "<link rel=\"stylesheet\"",
            "src=\"",
        ] {
            assert!(!page.contains(left), "{left}");
        }
        assert!(page.contains("<title>a &lt;b&gt;.tgr · "));
        assert_eq!(page.matches("</script>").count(), 3);
        assert_eq!(page.matches("'sha256-").count(), 3);
    }
}
