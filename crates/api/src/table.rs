//! The calls of the socket, each once. The agent's routes, the OpenAPI document and the table of this crate's documentation are
//! made from this table.

use std::fmt::Write;

use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::{
    ApplyRequest, Done, EventView, EventsView, ExplainView, GapView, GateView, PolicyChangeView,
    PolicyView, ReportRequest, RunReply, RunRequest, SetRequest, StatusView, UnsetRequest,
};

/// Which call: the agent has a function for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each has a summary in the table")]
pub enum CallId {
    Run,
    Set,
    Unset,
    Objective,
    Status,
    Gates,
    Explain,
    Events,
    Policy,
    PolicyDiff,
    PolicyApply,
    PolicyConfirm,
    PolicyRollback,
    Stream,
    Metrics,
    OpenApi,
    Health,
    Ready,
    Stop,
}

/// How it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads.
    Get,
    /// Changes, or may take long.
    Post,
}

impl Verb {
    /// As HTTP has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "GET",
            Verb::Post => "POST",
        }
    }
}

/// By whom it may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callers {
    /// Every user of the machine, some ten times a second.
    Any,
    /// Root and the group `tidegate`; a user for own processes, groups and gates, as far as that takes no CPU from others.
    Owner,
    /// Root and the group `tidegate`.
    Admin,
}

impl Callers {
    /// In a sentence.
    pub fn sentence(self) -> &'static str {
        match self {
            Callers::Any => {
                "Every user of the machine may call it, some ten times a second; root and the group `tidegate` without \
                 that limit. Command lines are shown to their user, root and the group `tidegate`."
            }
            Callers::Owner => {
                "Root and the group `tidegate` may call it, and a user for own processes, groups and gates as far as it \
                 takes no CPU from others."
            }
            Callers::Admin => "Root and the group `tidegate` may call it.",
        }
    }
}

/// A type that travels as JSON.
#[derive(Clone, Copy)]
pub struct JsonType {
    name: fn() -> String,
    pub(crate) schema: fn(&mut SchemaGenerator) -> Schema,
}

impl JsonType {
    const fn of<T: JsonSchema>() -> Self {
        Self {
            name: || T::schema_name().into_owned(),
            schema: SchemaGenerator::subschema_for::<T>,
        }
    }

    /// Its name in the document; `Array_of_` its items' where it is a list.
    pub fn name(&self) -> String {
        (self.name)()
    }
}

/// A parameter of a query.
#[derive(Clone, Copy)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What is written for its value in the table of calls.
    pub value: &'static str,
    /// Its type, and its least value where it is a number.
    pub kind: ParameterKind,
    /// Whether it must be there.
    pub is_required: bool,
    /// What it does, and its default.
    pub doc: &'static str,
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// Percent-encoded UTF-8.
    Text,
    /// A whole number from this one on.
    Whole(u64),
}

/// What a call that succeeds answers.
#[derive(Clone, Copy)]
pub enum Answer {
    /// JSON.
    Json(JsonType),
    /// JSON of some form.
    Object(&'static str),
    /// Text of one of these media types, the first by default, and what it is.
    Text(&'static [&'static str], &'static str),
    /// Server-sent events: by the name of each event, its data. Those named `*` are named by their kind.
    Stream(&'static [(&'static str, JsonType)]),
}

/// The media type of server-sent events.
pub const EVENT_STREAM: &str = "text/event-stream";

/// One call.
#[derive(Clone, Copy)]
pub struct Call {
    /// Which.
    pub id: CallId,
    /// How it is called.
    pub verb: Verb,
    /// Its path.
    pub path: &'static str,
    /// In one line, what it does.
    pub summary: &'static str,
    /// Its parameters.
    pub query: &'static [Parameter],
    /// Its body.
    pub body: Option<JsonType>,
    /// Its answer.
    pub answer: Answer,
    /// By whom it may be called.
    pub callers: Callers,
}

const fn get(id: CallId, path: &'static str, summary: &'static str, answer: Answer) -> Call {
    Call {
        id,
        verb: Verb::Get,
        path,
        summary,
        query: &[],
        body: None,
        answer,
        callers: Callers::Any,
    }
}

const fn post(id: CallId, path: &'static str, summary: &'static str, answer: Answer) -> Call {
    Call {
        verb: Verb::Post,
        callers: Callers::Admin,
        ..get(id, path, summary, answer)
    }
}

impl Call {
    const fn takes<T: JsonSchema>(self) -> Self {
        Self {
            body: Some(JsonType::of::<T>()),
            ..self
        }
    }

    const fn asks(self, query: &'static [Parameter]) -> Self {
        Self { query, ..self }
    }

    const fn by(self, callers: Callers) -> Self {
        Self { callers, ..self }
    }
}

const fn json<T: JsonSchema>() -> Answer {
    Answer::Json(JsonType::of::<T>())
}

const TARGET: Parameter = Parameter {
    name: "target",
    value: "T",
    kind: ParameterKind::Text,
    is_required: true,
    doc: "`gate:NAME`, `pid:N`, `unit:NAME` or `cgroup:/PATH`, percent-encoded; a plus is itself.",
};

const SINCE: Parameter = Parameter {
    name: "since",
    value: "N",
    kind: ParameterKind::Whole(0),
    is_required: false,
    doc: "Only events after this number; all that are kept by default.",
};

const STREAM: &[Parameter] = &[
    Parameter {
        name: "topics",
        value: "events,status",
        kind: ParameterKind::Text,
        is_required: false,
        doc: "What is wanted, with commas: `events`, `status`; `events` by default.",
    },
    Parameter {
        name: "period_seconds",
        value: "S",
        kind: ParameterKind::Whole(1),
        is_required: false,
        doc: "Seconds between two statuses, at most 3600; 1 by default.",
    },
    Parameter {
        doc: "Resumes after this number, where no header `Last-Event-ID` does; only what is new by default.",
        ..SINCE
    },
];

const HEALTHY: Answer = Answer::Text(&["text/plain; charset=utf-8"], "`ok`");

const METRICS: Answer = Answer::Text(
    &[
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
        "text/plain; version=0.0.4; charset=utf-8",
    ],
    "OpenMetrics text; Prometheus text where `Accept` names `text/plain` and not OpenMetrics",
);

/// Every call.
pub const CALLS: &[Call] = &[
    post(
        CallId::Run,
        "/v1/run",
        "Makes a gate with a process in it",
        json::<RunReply>(),
    )
    .takes::<RunRequest>()
    .by(Callers::Owner),
    post(
        CallId::Set,
        "/v1/set",
        "Gives terms to a process, a group, a unit or a gate",
        json::<GateView>(),
    )
    .takes::<SetRequest>()
    .by(Callers::Owner),
    post(
        CallId::Unset,
        "/v1/unset",
        "Takes terms back",
        json::<Done>(),
    )
    .takes::<UnsetRequest>(),
    post(
        CallId::Objective,
        "/v1/objective",
        "Reports main's latency as its operator measures it",
        json::<Done>(),
    )
    .takes::<ReportRequest>()
    .by(Callers::Owner),
    get(
        CallId::Status,
        "/v1/status",
        "The machine, the agent and the gates at a glance",
        json::<StatusView>(),
    ),
    get(
        CallId::Gates,
        "/v1/gates",
        "Every gate",
        json::<Vec<GateView>>(),
    ),
    get(
        CallId::Explain,
        "/v1/explain",
        "Why a gate runs at its present rate",
        json::<ExplainView>(),
    )
    .asks(&[TARGET]),
    get(
        CallId::Events,
        "/v1/events",
        "What has happened",
        json::<EventsView>(),
    )
    .asks(&[SINCE]),
    get(
        CallId::Policy,
        "/v1/policy",
        "The policy in force",
        json::<PolicyView>(),
    ),
    post(
        CallId::PolicyDiff,
        "/v1/policy/diff",
        "What the policy files would change; changes nothing",
        json::<PolicyChangeView>(),
    ),
    post(
        CallId::PolicyApply,
        "/v1/policy/apply",
        "Puts the policy files in force",
        json::<PolicyChangeView>(),
    )
    .takes::<ApplyRequest>(),
    post(
        CallId::PolicyConfirm,
        "/v1/policy/confirm",
        "Keeps the policy that is on trial",
        json::<Done>(),
    ),
    post(
        CallId::PolicyRollback,
        "/v1/policy/rollback",
        "Puts the policy before in force again",
        json::<PolicyChangeView>(),
    ),
    get(
        CallId::Stream,
        "/v1/stream",
        "What happens, as it happens, and the status now and then",
        Answer::Stream(&[
            ("*", JsonType::of::<EventView>()),
            ("gap", JsonType::of::<GapView>()),
            ("status", JsonType::of::<StatusView>()),
        ]),
    )
    .asks(STREAM),
    get(
        CallId::Metrics,
        "/metrics",
        "The figures as a scrape reads them",
        METRICS,
    ),
    get(
        CallId::OpenApi,
        "/v1/openapi.json",
        "This interface as an OpenAPI 3.1 document",
        Answer::Object("an OpenAPI 3.1 document"),
    ),
    get(
        CallId::Health,
        "/healthz",
        "Whether the agent answers",
        HEALTHY,
    ),
    get(
        CallId::Ready,
        "/readyz",
        "Whether the control loop is in control: 503 before its first step and when it is late beyond its lease",
        HEALTHY,
    ),
    post(
        CallId::Stop,
        "/v1/stop",
        "Ends the agent; what it changed is put back",
        json::<Done>(),
    ),
];

impl Call {
    /// `GET /v1/explain?target=T`.
    pub fn line(&self) -> String {
        let mut line = format!("{} {}", self.verb.as_str(), self.path);
        for (nth, parameter) in self.query.iter().enumerate() {
            let mark = if nth == 0 { '?' } else { '&' };
            let _ = write!(line, "{mark}{}={}", parameter.name, parameter.value);
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// A row of the table of this crate's documentation.
    fn row(call: &Call) -> String {
        let link = |json: &JsonType| match json.name().strip_prefix("Array_of_") {
            Some(item) => format!("`[`[`{item}`]`]`"),
            None => format!("[`{}`]", json.name()),
        };
        let body = call.body.as_ref().map(link).unwrap_or_default();
        let answer = match &call.answer {
            Answer::Json(json) => link(json),
            Answer::Object(doc) | Answer::Text(_, doc) => (*doc).to_owned(),
            Answer::Stream(events) => {
                let data: Vec<String> = events.iter().map(|(_, json)| link(json)).collect();
                format!("server-sent events: {}", data.join(", "))
            }
        };
        let line = call.line();
        format!("| `{line}` | {body} | {answer} | {} |\n", call.summary)
    }

    /// The table of this crate's documentation.
    fn page() -> String {
        let head = "| call | body | answer | what it does |\n|---|---|---|---|\n".to_owned();
        head + &CALLS.iter().map(row).collect::<String>()
    }

    #[test]
    fn each_call_stands_there_once() {
        let ids: BTreeSet<CallId> = CALLS.iter().map(|call| call.id).collect();
        let places: BTreeSet<String> = CALLS
            .iter()
            .map(|call| format!("{} {}", call.verb.as_str(), call.path))
            .collect();
        assert_eq!((ids.len(), places.len()), (CALLS.len(), CALLS.len()));
    }

    #[test]
    fn the_documentation_has_the_table() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/calls.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, page()).unwrap();
        }
        assert_eq!(
            std::fs::read_to_string(&path).unwrap_or_default(),
            page(),
            "src/calls.md is out of date: run UPDATE_DOCS=1 cargo test -p tidegate-api table"
        );
    }
}
