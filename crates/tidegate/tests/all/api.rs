//! The OpenAPI document, held against what the agent answers.

use std::io::{Read, Write};

use serde_json::{Value, json};

use crate::common::{Background, Instance, or_skip, wait_for};
use crate::support_hostile::{as_nobody, ask, connect, post, request};

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
        let worker = instance.sleeper("worker");
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
    let api = or_skip!(Api::new("openapi"));
    assert_eq!(api.document["openapi"], "3.1.0");
    let reads = api.operations("get");
    assert!(reads.len() >= 7, "{reads:?}");
    for (path, operation) in reads {
        let content = operation["responses"]["200"]["content"].as_object();
        let content = content.unwrap();
        if content.contains_key("text/event-stream") {
            continue;
        }
        let path = with_query(&path, &operation);
        if path == "/readyz" {
            wait_for("the control loop", || api.get(&path).status == 200);
        }
        let answer = api.get(&path);
        if path == "/v1/measure" {
            assert_eq!(answer.status, 404, "none was started: {}", answer.body);
            api.check_problem(&path, &answer);
            continue;
        }
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
    let api = or_skip!(Api::new("problems"));
    let changes = api.operations("post");
    assert!(changes.len() >= 9, "{changes:?}");
    for (path, _) in changes {
        // Without privilege and without sense: each refuses it, and none ends the agent.
        let answer = as_nobody(|| api.ask(&post(&path, "7")));
        let is_refused = matches!(answer.status, 400 | 403);
        assert!(is_refused, "{path}: {}", answer.body);
        api.check_problem(&path, &answer);
    }
    for path in ["/v1", "/v1/nothing", "/v1/explain", "/v1/events?since=x"] {
        let answer = api.get(path);
        let is_refused = matches!(answer.status, 400 | 404);
        assert!(is_refused, "{path}: {}", answer.body);
        api.check_problem(path, &answer);
    }
}

/// What a stream has sent until it has all of `wanted`.
fn streamed(api: &Api, query: &str, wanted: &[&str]) -> String {
    let mut stream = connect(&api.instance.run_dir().join("tidegate.sock"));
    let call = format!("GET /v1/stream{query}");
    stream.write_all(&request(&call, "", b"")).unwrap();
    let mut text = String::new();
    while !wanted.iter().all(|word| text.contains(word)) {
        let mut bytes = [0; 65_536];
        let count = stream.read(&mut bytes).unwrap();
        assert!(count > 0, "it ended: {text}");
        text += &String::from_utf8_lossy(&bytes[..count]);
    }
    text
}

#[test]
fn a_stream_has_the_events_and_statuses_that_are_documented() {
    let api = or_skip!(Api::new("stream"));
    let pointer = "/paths/~1v1~1stream/get/responses/200/content/text~1event-stream/x-events";
    let schemas = api.document.pointer(pointer).unwrap();
    let query = "?topics=events,status&since=0";
    let wanted = ["event: gate.created", "event: status", "\n\n"];
    let text = streamed(&api, query, &wanted);
    let head = text.to_ascii_lowercase();
    assert!(head.contains("content-type: text/event-stream"), "{text}");
    assert!(head.contains("tidegate-agent-pid: "), "{text}");
    let mut lines = text.lines().map(str::trim_end);
    let (mut id, mut checked) = (None, 0);
    while let Some(line) = lines.next() {
        if let Some(number) = line.strip_prefix("id: ") {
            id = number.parse::<u64>().ok();
        }
        let Some(event) = line.strip_prefix("event: ") else {
            continue;
        };
        // The last one may be there in part.
        let data = lines.next().and_then(|line| line.strip_prefix("data: "));
        let Some(Ok(data)) = data.map(serde_json::from_str::<Value>) else {
            break;
        };
        let schema = schemas.get(event).unwrap_or(&schemas["*"]);
        api.check(event, schema, &data);
        assert_eq!(data["seq"].as_u64(), id.take(), "{event}: its number");
        checked += 1;
    }
    assert!(checked >= 1, "{text}");
    let gap = streamed(&api, "?since=99999", &["event: gap"]);
    assert!(gap.contains(r#"{"lost":null,"next_seq":1}"#), "{gap}");
}

#[test]
fn a_stream_without_privilege_shows_no_command_line() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: stream: it becomes nobody, which takes root");
        return;
    }
    let api = or_skip!(Api::new("hidden"));
    let read = || streamed(&api, "?topics=status", &["event: status", "alerts"]);
    assert!(read().contains("sleep 100"), "root sees it");
    let text = as_nobody(read);
    assert!(!text.contains("sleep 100"), "{text}");
}
