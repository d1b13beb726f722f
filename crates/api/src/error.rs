//! Why a call failed: a kind for programs, a sentence for people. On the socket it is a problem
//! document (RFC 9457).

use std::fmt;

use axum_core::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Exit;

pub const PROBLEM_JSON: &str = "application/problem+json";

/// The longest sentence of an answer: details quote what was sent, which may be 256 KiB.
const DETAIL_BYTES_MAX: usize = 1_024;

/// What sort of failure. The HTTP status and the exit code follow from it; no program needs the
/// sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The input is wrong.
    Usage,
    /// The caller may not.
    Denied,
    /// There is no such gate, process or group.
    NotFound,
    /// Asked too often, or what is asked for is in use.
    Busy,
    /// The machine cannot.
    Unsupported,
    /// The agent is about to leave: the next one may be asked.
    Leaving,
    /// The agent answers, and its control loop is not in control.
    NotReady,
    /// No agent runs, or it went away during the call: the next one may be asked. Not from the
    /// agent itself.
    Unreachable,
    /// An agent runs and does not answer in time. Not from the agent itself.
    NoAnswer,
    /// Anything else.
    #[serde(other)]
    Internal,
}

impl ErrorKind {
    pub const ALL: &[ErrorKind] = &[
        ErrorKind::Usage,
        ErrorKind::Denied,
        ErrorKind::NotFound,
        ErrorKind::Busy,
        ErrorKind::Unsupported,
        ErrorKind::Leaving,
        ErrorKind::NotReady,
        ErrorKind::Unreachable,
        ErrorKind::NoAnswer,
        ErrorKind::Internal,
    ];

    /// Its code; a title of a few words, the same for each error of the kind; the HTTP status (for
    /// the kinds that the agent does not send, that of a gateway in front of it); what `tidegate`
    /// ends with.
    fn row(self) -> (&'static str, &'static str, u16, Exit) {
        match self {
            Self::Usage => ("usage", "The request is wrong", 400, Exit::Usage),
            Self::Denied => ("denied", "The caller may not", 403, Exit::Refused),
            Self::NotFound => (
                "not_found",
                "No such gate, process or group",
                404,
                Exit::NoTarget,
            ),
            Self::Busy => ("busy", "Not now", 429, Exit::Refused),
            Self::Unsupported => ("unsupported", "The machine cannot", 501, Exit::Refused),
            Self::Leaving => (
                "leaving",
                "The agent is about to leave",
                503,
                Exit::Unreachable,
            ),
            Self::NotReady => (
                "not_ready",
                "The agent is not in control",
                503,
                Exit::Unreachable,
            ),
            Self::Unreachable => ("unreachable", "No agent runs", 502, Exit::Unreachable),
            Self::NoAnswer => (
                "no_answer",
                "The agent does not answer",
                504,
                Exit::Unreachable,
            ),
            Self::Internal => {
                let title = "A failure of the agent or of the machine";
                ("internal", title, 500, Exit::Failure)
            }
        }
    }

    pub fn code(self) -> &'static str {
        self.row().0
    }

    pub fn title(self) -> &'static str {
        self.row().1
    }

    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().2).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub fn exit(self) -> Exit {
        self.row().3
    }

    /// Whether the agent that was asked is gone: the next one may answer.
    pub fn is_agent_gone(self) -> bool {
        matches!(self, ErrorKind::Unreachable | ErrorKind::Leaving)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Problem", from = "Problem")]
pub struct ApiError {
    pub kind: ErrorKind,
    /// What, where, why.
    pub detail: String,
    /// What helps, where that is known apart from the detail.
    pub remedy: Option<String>,
}

pub type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            remedy: None,
        }
    }

    pub fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..self
        }
    }
}

impl std::error::Error for ApiError {}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.remedy {
            Some(remedy) => write!(f, "{}; {remedy}", self.detail),
            None => f.write_str(&self.detail),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(mut self) -> Response {
        let status = self.kind.status();
        shorten(&mut self.detail);
        // Strings and numbers can be serialised.
        let body = serde_json::to_vec(&self).unwrap_or_default();
        (status, [(CONTENT_TYPE, PROBLEM_JSON)], body).into_response()
    }
}

/// Cuts what is too long out of the middle: the beginning says what and where, the end why.
fn shorten(detail: &mut String) {
    if detail.len() <= DETAIL_BYTES_MAX {
        return;
    }
    let half = DETAIL_BYTES_MAX / 2;
    let begin = (0..=half).rfind(|at| detail.is_char_boundary(*at));
    let end = (detail.len() - half..detail.len()).find(|at| detail.is_char_boundary(*at));
    detail.replace_range(begin.unwrap_or(0)..end.unwrap_or(detail.len()), "…");
}

/// An error as RFC 9457 has it, with `kind` and `remedy` besides. `type`, `title` and `status`
/// follow from the kind and are not read back.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Problem {
    /// `urn:tidegate:error:` and the kind.
    #[serde(rename = "type", skip_deserializing)]
    of_type: String,
    /// In a few words, the same for each error of the kind.
    #[serde(skip_deserializing)]
    title: String,
    /// The HTTP status.
    #[serde(skip_deserializing)]
    status: u16,
    /// What, where, why.
    detail: String,
    /// What sort of failure.
    kind: ErrorKind,
    /// What helps, where that is known apart from the detail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl From<ApiError> for Problem {
    fn from(error: ApiError) -> Problem {
        let ApiError {
            kind,
            detail,
            remedy,
        } = error;
        Problem {
            of_type: format!("urn:tidegate:error:{}", kind.code()),
            title: kind.title().to_owned(),
            status: kind.status().as_u16(),
            detail,
            kind,
            remedy,
        }
    }
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> ApiError {
        ApiError {
            kind: problem.kind,
            detail: problem.detail,
            remedy: problem.remedy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn every_kind_has_a_status_and_an_exit_code_and_comes_back_from_json() {
        for kind in ErrorKind::ALL {
            let status = kind.status();
            assert!(
                status.is_client_error() || status.is_server_error(),
                "{kind:?}"
            );
            assert!((1..=5).contains(&(kind.exit() as u8)), "{kind:?}");
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.code());
            for remedy in [None, Some("try again".to_owned())] {
                let error = ApiError {
                    kind: *kind,
                    detail: "gate x: it does not work".into(),
                    remedy,
                };
                let text = serde_json::to_string(&error).unwrap();
                assert_eq!(serde_json::from_str::<ApiError>(&text).unwrap(), error);
            }
        }
        let statuses: std::collections::BTreeSet<StatusCode> =
            ErrorKind::ALL.iter().map(|kind| kind.status()).collect();
        // 503 is that of an agent that leaves and of one that is not in control.
        assert_eq!(statuses.len(), ErrorKind::ALL.len() - 1);
    }

    #[test]
    fn an_error_is_a_problem_document() {
        let error = ApiError::new(ErrorKind::NotFound, "gate:x: there is no such gate")
            .with_remedy("see `tidegate status`");
        let expected: Value = json!({
            "type": "urn:tidegate:error:not_found",
            "title": "No such gate, process or group",
            "status": 404,
            "detail": "gate:x: there is no such gate",
            "kind": "not_found",
            "remedy": "see `tidegate status`",
        });
        assert_eq!(serde_json::to_value(&error).unwrap(), expected);
        assert_eq!(
            error.to_string(),
            "gate:x: there is no such gate; see `tidegate status`"
        );
    }

    #[test]
    fn what_was_sent_is_quoted_in_part() {
        for long in ["a".repeat(200_000), "\u{e9}".repeat(1_025)] {
            let mut detail = format!("target: {long}: why");
            shorten(&mut detail);
            assert!(detail.len() <= DETAIL_BYTES_MAX + 3, "{}", detail.len());
            assert!(detail.starts_with("target: ") && detail.ends_with(": why"));
        }
        let mut short = "x".repeat(DETAIL_BYTES_MAX);
        shorten(&mut short);
        assert_eq!(short.len(), DETAIL_BYTES_MAX);
    }

    /// An updated agent next to a command that was not updated.
    #[test]
    fn an_unknown_kind_of_error_is_a_failure() {
        let after = json!({"kind": "of_a_later_version", "detail": "it does not work"});
        let error: ApiError = serde_json::from_value(after).unwrap();
        assert_eq!(error.kind, ErrorKind::Internal);
    }
}
