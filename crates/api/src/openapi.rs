//! The interface as an OpenAPI 3.1 document, made from the table of calls and the types.

use schemars::generate::{Contract, SchemaSettings};
use schemars::transform::RecursiveTransform;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::call::{Answer, Call, EVENT_STREAM, JsonType, Parameter, ParameterKind};
use crate::error::Problem;
use crate::table::CALLS;
use crate::{ErrorKind, PROBLEM_JSON};

/// Where schemas of types are, as a JSON pointer.
const SCHEMAS: &str = "/components/schemas";

const DESCRIPTION: &str = "\
JSON over HTTP/1.1 on the agent's socket (by default /run/tidegate/tidegate.sock); one request a connection. The kernel says \
who calls: there is no other sign-on. CPU amounts are in CPUs (1.0 is one CPU), shares in percent of the machine, times in the \
unit that the name ends in. A later version may add fields to answers; a field of a request that the agent does not know is \
refused. The GET calls are also served over TCP (`api_listen`), without command lines.";

const STREAM: &str = "\
Server-sent events. `x-events` has the schema of the data by the name of the event; `*` is named by its kind. `id` is the \
event's number, with which `Last-Event-ID` resumes. `gap` tells how many events the reader cannot have any more. A comment \
comes every 15 s. The stream ends with the agent; the header `tidegate-agent-pid` names it, and the next one counts from 1.";

pub fn openapi() -> Value {
    let mut answers = generator(Contract::Serialize);
    let mut bodies = generator(Contract::Deserialize);
    let problem = answers.subschema_for::<Problem>();
    let mut paths = Map::new();
    for call in CALLS {
        let at = paths.entry(call.path).or_insert_with(|| json!({}));
        at[call.verb.as_str().to_lowercase()] = operation(call, &mut answers, &mut bodies);
    }
    // No type is in both: what is asked for is never answered.
    let mut schemas = bodies.take_definitions(true);
    schemas.append(&mut answers.take_definitions(true));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate",
            "summary": "CPU headroom on Linux: the agent's socket",
            "description": DESCRIPTION,
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "http://tidegate", "description": "the socket, whatever host is named" }],
        "security": [],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": { "Problem": {
                "description": problem_description(),
                "content": { PROBLEM_JSON: { "schema": problem } },
            } },
        },
    })
}

fn generator(contract: Contract) -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.contract = contract;
        settings.definitions_path = SCHEMAS.into();
        settings.meta_schema = None;
    });
    settings
        .with_transform(RecursiveTransform(plain_description))
        .into_generator()
}

fn plain_description(schema: &mut Schema) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace("[`", "`").replace("`]", "`");
    }
}

fn problem_description() -> String {
    let kinds = ErrorKind::ALL.iter();
    let kinds: Vec<String> = kinds
        .map(|kind| format!("{} `{}`", kind.status().as_u16(), kind.code()))
        .collect();
    format!(
        "The call failed, as RFC 9457 has it. The status follows from the kind: {}.",
        kinds.join(", ")
    )
}

fn operation(call: &Call, answers: &mut SchemaGenerator, bodies: &mut SchemaGenerator) -> Value {
    let (description, content) = content(&call.answer, answers);
    let mut operation = json!({
        "operationId": operation_id(call),
        "summary": call.summary,
        "description": call.callers.sentence(),
        "responses": {
            "200": { "description": description, "content": content },
            "default": { "$ref": "#/components/responses/Problem" },
        },
    });
    if !call.query.is_empty() {
        operation["parameters"] = call.query.iter().map(parameter).collect();
    }
    if let Some(body) = &call.body {
        let content = media("application/json", schema(body, bodies));
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    operation
}

fn schema(json: &JsonType, generator: &mut SchemaGenerator) -> Value {
    (json.schema)(generator).to_value()
}

fn media(name: &str, schema: Value) -> Value {
    json!({ name: { "schema": schema } })
}

fn content(answer: &Answer, answers: &mut SchemaGenerator) -> (String, Value) {
    match answer {
        Answer::Json(json) => (
            "Done".to_owned(),
            media("application/json", schema(json, answers)),
        ),
        Answer::Object(doc) => (
            (*doc).to_owned(),
            media("application/json", json!({ "type": "object" })),
        ),
        Answer::Text(types, doc) => {
            let types = types.iter();
            let text = json!({ "schema": { "type": "string" } });
            let content: Map<String, Value> = types
                .map(|name| ((*name).to_owned(), text.clone()))
                .collect();
            ((*doc).to_owned(), content.into())
        }
        Answer::Stream(events) => {
            let data = events.iter();
            let data: Map<String, Value> = data
                .map(|(name, json)| ((*name).to_owned(), schema(json, answers)))
                .collect();
            let mut content = media(EVENT_STREAM, json!({ "type": "string" }));
            content[EVENT_STREAM]["x-events"] = data.into();
            (STREAM.to_owned(), content)
        }
    }
}

/// `GET /v1/policy/diff` is `getPolicyDiff`.
fn operation_id(call: &Call) -> String {
    let mut id = call.verb.as_str().to_lowercase();
    let words = call.path.split(|c: char| !c.is_alphanumeric());
    for word in words.filter(|word| !matches!(*word, "" | "v1" | "json")) {
        let (first, rest) = word.split_at(1);
        id += &first.to_uppercase();
        id += rest;
    }
    id
}

fn parameter(parameter: &Parameter) -> Value {
    let schema = match parameter.kind {
        ParameterKind::Text => json!({ "type": "string" }),
        ParameterKind::Whole(least) => {
            json!({ "type": "integer", "format": "uint64", "minimum": least })
        }
    };
    json!({
        "name": parameter.name,
        "in": "query",
        "required": parameter.is_required,
        "description": parameter.doc,
        "schema": schema,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reference_leads_somewhere() {
        let document = openapi();
        let text = document.to_string();
        let found: Vec<&str> = text.split("\"$ref\":\"").skip(1).collect();
        assert!(found.len() > CALLS.len());
        for reference in found {
            let (pointer, _) = reference.split_once('"').unwrap();
            let pointer = pointer.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
    }

    #[test]
    fn descriptions_are_without_links_of_rustdoc() {
        assert!(!openapi().to_string().contains("[`"));
    }

    #[test]
    fn a_request_refuses_what_it_does_not_know_and_an_answer_has_all_its_fields() {
        let schemas = &openapi()["components"]["schemas"];
        assert_eq!(schemas["RunRequest"]["additionalProperties"], false);
        assert_eq!(
            schemas["RunRequest"]["required"],
            json!(["pid", "command", "terms"])
        );
        let event = schemas["EventView"]["required"].as_array().unwrap();
        assert_eq!(event.len(), 5);
    }
}
