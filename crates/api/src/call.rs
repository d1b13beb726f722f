//! A call of the socket: its verb and path, its callers, its request and its answer.

use std::fmt::Write;

use schemars::{JsonSchema, Schema, SchemaGenerator};

/// Which call: the agent has a function for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each has a summary in the table")]
pub enum CallId {
    Run,
    Set,
    Unset,
    Report,
    MeasureStart,
    Measure,
    MeasureEnd,
    Status,
    Explain,
    Events,
    History,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Get,
    Post,
    Delete,
}

impl Verb {
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "GET",
            Verb::Post => "POST",
            Verb::Delete => "DELETE",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callers {
    /// Every user of the machine, some ten times a second.
    Any,
    /// Root and the group `tidegate`; a user for own processes, groups and gates, as far as that
    /// takes no CPU from others.
    Owner,
    /// Root and the group `tidegate`.
    Admin,
}

impl Callers {
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

#[derive(Clone, Copy)]
pub struct JsonType {
    name: fn() -> String,
    pub(crate) schema: fn(&mut SchemaGenerator) -> Schema,
}

impl JsonType {
    pub(crate) const fn of<T: JsonSchema>() -> Self {
        Self {
            name: || T::schema_name().into_owned(),
            schema: SchemaGenerator::subschema_for::<T>,
        }
    }

    /// Its name in the document.
    pub fn name(&self) -> String {
        (self.name)()
    }
}

#[derive(Clone, Copy)]
pub struct Parameter {
    pub name: &'static str,
    /// What is written for its value in the table of calls.
    pub value: &'static str,
    /// Its type, and its least value where it is a number.
    pub kind: ParameterKind,
    pub is_required: bool,
    pub doc: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// Percent-encoded UTF-8.
    Text,
    Whole(u64),
}

#[derive(Clone, Copy)]
pub enum Answer {
    Json(JsonType),
    Object(&'static str),
    /// Text of one of these media types, the first by default, and what it is.
    Text(&'static [&'static str], &'static str),
    /// Server-sent events: by the name of each event, its data. Those named `*` are named by their
    /// kind.
    Stream(&'static [(&'static str, JsonType)]),
}

pub const EVENT_STREAM: &str = "text/event-stream";

#[derive(Clone, Copy)]
pub struct Call {
    /// Which.
    pub id: CallId,
    pub verb: Verb,
    pub path: &'static str,
    pub summary: &'static str,
    pub query: &'static [Parameter],
    pub body: Option<JsonType>,
    pub answer: Answer,
    pub callers: Callers,
}

pub(crate) const fn get(
    id: CallId,
    path: &'static str,
    summary: &'static str,
    answer: Answer,
) -> Call {
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

pub(crate) const fn post(
    id: CallId,
    path: &'static str,
    summary: &'static str,
    answer: Answer,
) -> Call {
    Call {
        verb: Verb::Post,
        callers: Callers::Admin,
        ..get(id, path, summary, answer)
    }
}

pub(crate) const fn delete(
    id: CallId,
    path: &'static str,
    summary: &'static str,
    answer: Answer,
) -> Call {
    Call {
        verb: Verb::Delete,
        ..post(id, path, summary, answer)
    }
}

impl Call {
    pub(crate) const fn takes<T: JsonSchema>(self) -> Self {
        Self {
            body: Some(JsonType::of::<T>()),
            ..self
        }
    }

    pub(crate) const fn asks(self, query: &'static [Parameter]) -> Self {
        Self { query, ..self }
    }

    pub(crate) const fn by(self, callers: Callers) -> Self {
        Self { callers, ..self }
    }
}

pub(crate) const fn json<T: JsonSchema>() -> Answer {
    Answer::Json(JsonType::of::<T>())
}

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
