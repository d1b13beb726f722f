//! The JSON schema of the files, for editors: made of the same table that reads them.

use serde_json::{Value, json};

use crate::policy::{MATCH_KEYS, Mode};
use crate::table::{Setting, Term};
use crate::values::Class;

/// A value: text, or a number as it is.
fn value(doc: &str, range: &str, default: &str) -> Value {
    json!({
        "type": ["string", "number"],
        "description": format!("{doc}. Write {range}. Default: {default}."),
    })
}

fn terms_of(classes: &[Class], with_class: bool) -> Value {
    let takes = |term: &&Term| {
        (with_class || **term != Term::Class)
            && classes.iter().any(|class| term.classes().contains(class))
    };
    let terms = Term::ALL.iter().filter(takes);
    let mut properties: serde_json::Map<String, Value> = terms
        .map(|term| {
            let of = value(term.doc(), term.range(), &term.unsaid());
            (term.name().to_owned(), of)
        })
        .collect();
    if let ([class], false) = (classes, with_class) {
        properties.extend(settings_of(|setting| setting.is_under(*class)));
    }
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn settings_of(are_there: impl Fn(&Setting) -> bool) -> serde_json::Map<String, Value> {
    let settings = Setting::ALL.iter().filter(|setting| are_there(setting));
    let property = |setting: &Setting| {
        let of = value(setting.doc(), setting.range(), &setting.unsaid());
        (setting.name().to_owned(), of)
    };
    settings.map(property).collect()
}

/// Of `tidegate.toml` and each file in `tidegate.toml.d`.
pub fn of_files() -> Value {
    let one_or_more = json!({
        "oneOf": [
            { "type": "string", "minLength": 1 },
            { "type": "array", "minItems": 1, "items": { "type": "string", "minLength": 1 } },
        ],
    });
    let matches: serde_json::Map<String, Value> = MATCH_KEYS
        .iter()
        .map(|key| ((*key).to_owned(), one_or_more.clone()))
        .collect();
    let all = [Class::Main, Class::Side, Class::Neutral];
    let mut properties = settings_of(|setting| setting.classes().is_empty());
    for class in all {
        properties.insert(class.name().to_owned(), terms_of(&[class], false));
    }
    properties.insert("version".to_owned(), json!({ "const": 1 }));
    let rule = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$" },
            "match": { "type": "object", "properties": matches, "additionalProperties": false, "minProperties": 1 },
            "mode": { "enum": [Mode::Enforce.name(), Mode::Observe.name()] },
            "terms": terms_of(&all, true),
        },
        "required": ["name"],
        "additionalProperties": false,
    });
    properties.insert("rule".to_owned(), json!({ "type": "array", "items": rule }));
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Policy of Tidegate",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
}
