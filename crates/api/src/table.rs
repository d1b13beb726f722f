//! The calls of the socket, each once. The agent's routes, the OpenAPI document and the table of
//! this crate's documentation are made from this table.

use crate::call::{
    Answer, Call, CallId, Callers, JsonType, Parameter, ParameterKind, delete, get, json, post,
};
use crate::{
    ApplyRequest, Done, EventView, EventsView, ExplainView, GapView, GateView, HistoryView,
    MeasureRequest, MeasureView, PolicyChangeView, PolicyView, ReportRequest, RunReply, RunRequest,
    SetRequest, StatusView, UnsetRequest,
};

const TARGET: Parameter = Parameter {
    name: "target",
    value: "T",
    kind: ParameterKind::Text,
    is_required: true,
    doc: "`gate:NAME`, `pid:N`, `unit:NAME` or `cgroup:/PATH`, percent-encoded; a plus is itself.",
};

const GATES: Parameter = Parameter {
    name: "gates",
    value: "none",
    kind: ParameterKind::Text,
    is_required: false,
    doc: "`none` leaves the gates out: no kernel file of one is read, so it costs the agent the same however many there are.",
};

const SINCE: Parameter = Parameter {
    name: "since",
    value: "N",
    kind: ParameterKind::Whole(0),
    is_required: false,
    doc: "Only events after this number; all that are kept by default.",
};

const MEASURE_ID: Parameter = Parameter {
    name: "id",
    value: "N",
    kind: ParameterKind::Whole(1),
    is_required: false,
    doc: "The measurement's number, from the client that started it: one that does not ask for 2 s ends it.",
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

const fn whole(
    name: &'static str,
    value: &'static str,
    least: u64,
    doc: &'static str,
) -> Parameter {
    Parameter {
        name,
        value,
        kind: ParameterKind::Whole(least),
        is_required: false,
        doc,
    }
}

const HISTORY: &[Parameter] = &[
    whole(
        "from",
        "S",
        0,
        "The beginning, seconds since 1970; an hour before the end by default.",
    ),
    whole("to", "S", 0, "The end, seconds since 1970; now by default."),
    whole(
        "step",
        "S",
        1,
        "Seconds that one point covers, at most 3600; 1 by default.",
    ),
];

const HEALTHY: Answer = Answer::Text(&["text/plain; charset=utf-8"], "`ok`");

const METRICS: Answer = Answer::Text(
    &[
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
        "text/plain; version=0.0.4; charset=utf-8",
    ],
    "OpenMetrics text; Prometheus text where `Accept` names `text/plain` and not OpenMetrics",
);

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
        CallId::Report,
        "/v1/report",
        "Reports main's latency as its operator measures it",
        json::<Done>(),
    )
    .takes::<ReportRequest>()
    .by(Callers::Owner),
    post(
        CallId::MeasureStart,
        "/v1/measure",
        "Starts to measure what side work costs main",
        json::<MeasureView>(),
    )
    .takes::<MeasureRequest>(),
    get(
        CallId::Measure,
        "/v1/measure",
        "The measurement that runs, or the last one",
        json::<MeasureView>(),
    )
    .asks(&[MEASURE_ID]),
    delete(
        CallId::MeasureEnd,
        "/v1/measure",
        "Ends the measurement that runs",
        json::<MeasureView>(),
    ),
    get(
        CallId::Status,
        "/v1/status",
        "The machine, the agent and the gates at a glance",
        json::<StatusView>(),
    )
    .asks(&[GATES]),
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
        CallId::History,
        "/v1/history",
        "The machine over the last hour",
        json::<HistoryView>(),
    )
    .asks(HISTORY),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn row(call: &Call) -> String {
        let link = |json: &JsonType| format!("[`{}`]", json.name());
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
