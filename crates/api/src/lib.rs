//! What travels over the agent's socket, as JSON over HTTP/1.1.
//!
#![doc = include_str!("calls.md")]
//!
//! A failed call has a 4xx or 5xx status and an [`ApiError`] as `application/problem+json`. CPU
//! amounts are in CPUs (1.0 is one CPU), shares in percent of the machine, times in the unit that
//! the name ends in.

mod call;
mod calls;
#[cfg(feature = "cli")]
pub mod cli;
pub mod client;
mod decision;
mod error;
mod exit;
mod openapi;
mod table;
mod views;

pub use call::{
    Answer, Call, CallId, Callers, EVENT_STREAM, JsonType, Parameter, ParameterKind, Verb,
};
pub use calls::{
    ApplyRequest, Done, MeasureRequest, ReportRequest, RunReply, RunRequest, SetRequest,
    UnsetRequest,
};
pub use decision::{Decision, GroupDecision, HeldView, Limit};
pub use error::{ApiError, ApiResult, ErrorKind, PROBLEM_JSON};
pub use exit::Exit;
pub use openapi::openapi;
pub use table::CALLS;
pub use tidegate_law::Reason;
pub use views::{
    BehindSideView, CapCounts, CapView, EffectView, EventView, EventsView, ExplainView, GapView,
    GateChangeView, GateCounts, GateView, HistogramView, HistoryPointView, HistoryView,
    IntervalView, KernelWriteView, LatencyView, LimitView, LockBoostView, LoopView, MeasureView,
    MeasuredGateView, MeasuredLevelView, MeasuringView, ObjectiveView, ObservedView,
    PolicyChangeView, PolicyView, QuotaCounts, RecordingView, RuleView, SchedExtView, StatusView,
    SumLineView, TermView, TotalsView, UserView, WriteView,
};
