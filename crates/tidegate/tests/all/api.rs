//! The OpenAPI document, held against what the agent answers.

use serde_json::{Value, json};

use crate::common::{Background, Instance};
use crate::support_hostile::{as_nobody, ask, post, request};

/// The document with a way to the agent.
struct Api {
    /// Ends before the instance does.
    _worker: Background,
    instance: Instance,
    document: Value,
}

/// Status, content type and body of an answer.
struct Answered {
    status: u16,
    content_type: String,
    body: String,
}

impl Answered {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

fn answered(text: &str) -> Answered {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
    let header = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        (name == "content-type").then(|| value.to_owned())
    };
    Answered {
        status: head[9..12].parse().unwrap(),
        content_type: head.lines().find_map(header).unwrap_or_default(),
        body: body.to_owned(),
    }
}

/// What is not documented is refused.
fn strict(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(strict);
            if fields.contains_key("properties") {
                fields.entry("additionalProperties").or_insert(json!(false));
            }
        }
        Value::Array(values) => values.iter_mut().for_each(strict),
        _ => {}
    }
}

impl Api {
    fn new(name: &str) -> Option<Api> {
        let instance = Instance::new(name)?;
        // The first gate starts the agent.
        let worker = instance.background(&["--side", "--name", "worker"], &["sleep", "100"]);
        instance.gate("worker");
        let mut api = Api {
            _worker: worker,
            instance,
            document: Value::Null,
        };
        api.document = api.get("/v1/openapi.json").json();
        Some(api)
    }

    fn ask(&self, bytes: &[u8]) -> Answered {
        answered(&ask(&self.instance.run_dir().join("tidegate.sock"), bytes))
    }

    fn get(&self, path: &str) -> Answered {
        self.ask(&request(&format!("GET {path}"), "", b""))
    }

    /// Holds a value against the schema at a pointer, without fields that it does not name.
    fn check(&self, what: &str, schema: &Value, value: &Value) {
        let mut whole = json!({ "allOf": [schema], "components": self.document["components"] });
        strict(&mut whole["components"]);
        let validator = jsonschema::validator_for(&whole).unwrap();
        let errors: Vec<String> = validator
            .iter_errors(value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{what}: {errors:#?}");
    }

    /// An error is the problem that the document describes.
    fn check_problem(&self, what: &str, answer: &Answered) {
        assert_eq!(answer.content_type, "application/problem+json", "{what}");
        let problem = answer.json();
        let response = &self.document["components"]["responses"]["Problem"];
        let schema = &response["content"]["application/problem+json"]["schema"];
        self.check(what, schema, &problem);
        assert_eq!(problem["status"], answer.status, "{what}");
    }

    fn operations(&self, verb: &str) -> Vec<(String, Value)> {
        let paths = self.document["paths"].as_object().unwrap();
        paths
            .iter()
            .filter_map(|(path, item)| Some((path.clone(), item.get(verb)?.clone())))
            .collect()
    }
}

/// A call with what it cannot do without.
fn with_query(path: &str, operation: &Value) -> String {
    let parameters = operation["parameters"].as_array().cloned();
    let required = parameters.unwrap_or_default().into_iter();
    let required: Vec<String> = required
        .filter(|parameter| parameter["required"] == true)
        .map(|parameter| match parameter["name"].as_str().unwrap() {
            "target" => "target=gate:worker".to_owned(),
            other => panic!("{path}: {other}: give it a value here"),
        })
        .collect();
    match required.is_empty() {
        true => path.to_owned(),
        false => format!("{path}?{}", required.join("&")),
    }
}

#[test]
fn each_read_answers_what_is_documented() {
    let Some(api) = Api::new("openapi") else {
        return;
    };
    assert_eq!(api.document["openapi"], "3.1.0");
    let reads = api.operations("get");
    assert!(reads.len() >= 7, "{reads:?}");
    for (path, operation) in reads {
        let content = operation["responses"]["200"]["content"].as_object();
        let content = content.unwrap();
        if content.contains_key("text/event-stream") {
            continue;
        }
        let answer = api.get(&with_query(&path, &operation));
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        let media = content.get(&answer.content_type);
        let media = media.unwrap_or_else(|| panic!("{path}: {}", answer.content_type));
        if answer.content_type == "application/json" {
            api.check(&path, &media["schema"], &answer.json());
        }
    }
    let set = api.document.pointer("/paths/~1v1~1set/post").unwrap();
    let asked = json!({ "target": "gate:worker", "terms": { "weight": "50" } });
    let body = &set["requestBody"]["content"]["application/json"]["schema"];
    api.check("set", body, &asked);
    let answer = api.ask(&post("/v1/set", asked.to_string()));
    let gate = &set["responses"]["200"]["content"]["application/json"]["schema"];
    api.check("set", gate, &answer.json());
}

#[test]
fn each_change_is_there_and_fails_as_documented() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: openapi: it becomes nobody, which takes root");
        return;
    }
    let Some(api) = Api::new("problems") else {
        return;
    };
    let changes = api.operations("post");
    assert!(changes.len() >= 9, "{changes:?}");
    for (path, _) in changes {
        // Without privilege and without sense: each refuses it, and none ends the agent.
        let answer = as_nobody(|| api.ask(&post(&path, "7")));
        assert!(
            matches!(answer.status, 400 | 403),
            "{path}: {}",
            answer.body
        );
        api.check_problem(&path, &answer);
    }
    for path in ["/v1", "/v1/nothing", "/v1/explain", "/v1/events?since=x"] {
        let answer = api.get(path);
        assert!(
            matches!(answer.status, 400 | 404),
            "{path}: {}",
            answer.body
        );
        api.check_problem(path, &answer);
    }
}
