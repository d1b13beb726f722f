//! What travels over the agent's socket, as JSON over HTTP/1.1.
//!
//! | call | body | answer |
//! |---|---|---|
//! | `POST /v1/run` | [`RunRequest`] | [`RunReply`] |
//! | `POST /v1/set` | [`SetRequest`] | [`GateView`] |
//! | `POST /v1/unset` | [`UnsetRequest`] | [`Done`] |
//! | `POST /v1/objective` | [`ReportRequest`] | [`Done`] |
//! | `GET /v1/status` | | [`StatusView`] |
//! | `GET /v1/gates` | | `[`[`GateView`]`]` |
//! | `GET /v1/explain?target=T` | | [`ExplainView`] |
//! | `GET /v1/events?since=N` | | [`EventsView`] |
//! | `GET /v1/policy` | | [`PolicyView`] |
//! | `POST /v1/policy/diff` | | [`PolicyChangeView`] |
//! | `POST /v1/policy/apply` | [`ApplyRequest`] | [`PolicyChangeView`] |
//! | `POST /v1/policy/confirm` | | [`Done`] |
//! | `POST /v1/policy/rollback` | | [`PolicyChangeView`] |
//! | `GET /metrics` | | OpenMetrics text; Prometheus text where `Accept` names `text/plain` and not OpenMetrics |
//! | `POST /v1/stop` | | [`Done`] |
//!
//! A failed call has a 4xx or 5xx status and an [`ApiError`] as `application/problem+json`. CPU amounts are in CPUs
//! (1.0 is one CPU), shares in percent of the domain, times in the unit that the name ends in.

mod calls;
mod error;
mod exit;
mod views;

pub use calls::{
    ApplyRequest, Done, ReportRequest, RunReply, RunRequest, SetRequest, UnsetRequest,
};
pub use error::{ApiError, ErrorKind, PROBLEM_JSON};
pub use exit::Exit;
pub use views::{
    CapCounts, CapView, DomainView, EventView, EventsView, ExplainView, ExtView, GateChangeView,
    GateCounts, GateView, HarmView, HistogramView, KernelWriteView, LatencyView, LimitView,
    LockBoostView, LoopView, ObjectiveView, ObservedView, PolicyChangeView, PolicyView,
    QuotaCounts, RuleView, StatusView, TermView, TotalsView, UserView, WriteView,
};
