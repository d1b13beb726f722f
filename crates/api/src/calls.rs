//! What the agent is asked for, and its short answers. A request with a field that this version
//! does not know is refused: a newer client's restriction must not be dropped in silence.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Asks for a new gate with the process `pid` in it; the caller then becomes the command by exec.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    /// The process to place: a child of the caller, or 0 for the caller itself.
    pub pid: i32,
    /// The gate's name; the agent makes one from the command when absent.
    pub name: Option<String>,
    /// The command line, for display.
    pub command: Vec<String>,
    /// Raw terms, by name (`class`, `headroom`, `tolerance`, ...).
    pub terms: BTreeMap<String, String>,
    /// Enter the gate of this name if it has tasks.
    #[serde(default)]
    pub join: bool,
}

/// How much of a command line the agent keeps, for display.
const COMMAND_BYTES_MAX: usize = 4_096;

impl RunRequest {
    /// The beginning of a command line, which is all that the agent keeps of it. The kernel takes
    /// megabytes.
    pub fn begin_of_command(words: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
        let mut left = COMMAND_BYTES_MAX;
        let mut kept = Vec::new();
        for word in words {
            let word = word.as_ref();
            // A word costs its quotes and comma, too: a thousand empty ones are not for free.
            let bytes = word.len() + 3;
            if bytes > left {
                let end = word.floor_char_boundary(left.saturating_sub(3));
                kept.push(format!("{}...", &word[..end]));
                return kept;
            }
            left -= bytes;
            kept.push(word.to_owned());
        }
        kept
    }
}

/// The gate that `run` was given.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RunReply {
    /// The gate's name, as `show` and `explain` take it.
    pub gate: String,
    /// Its cgroup, below the mount of the cpu controller.
    pub cgroup: String,
    /// What the caller should know and did not ask (a term that cannot be enforced here).
    pub notes: Vec<String>,
    /// The fifo of the gate's jobserver, if it has one.
    pub jobserver: Option<PathBuf>,
}

/// Gives terms to a running process or an existing group.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetRequest {
    /// `pid:N`, `tid:N` (a thread: `latency`, a quota and caps), `unit:NAME`, `cgroup:/path` or
    /// `gate:NAME`.
    pub target: String,
    /// Raw terms, by name.
    pub terms: BTreeMap<String, String>,
    /// For `pid:N`: the process alone, without those that it has started already.
    #[serde(default)]
    pub only: bool,
}

/// Takes terms back; without names, all of them, and the gate ends.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnsetRequest {
    /// As in [`SetRequest`].
    pub target: String,
    /// Names of the terms to take back.
    pub terms: Vec<String>,
}

/// Main's latency as its operator measures it, for a gate whose objective is on that.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportRequest {
    /// As in [`SetRequest`].
    pub target: String,
    /// As it is written: `4.2ms`.
    pub latency: String,
}

/// Measures what side work costs main.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasureRequest {
    /// How long: rounded up to whole rounds.
    pub length_seconds: u64,
    /// Levels of headroom to compare with side work at its tolerance, of the machine; where gates
    /// are switched, the first of them is in force.
    pub headroom_ratios: Vec<f64>,
    /// Switches each side gate by a coin of its own, not all of them together.
    pub by_gate: bool,
    /// Only these side gates, by name; all by default.
    pub gates: Vec<String>,
}

/// Puts the policy of the files in force.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyRequest {
    /// So long only, unless it is confirmed.
    pub for_seconds: Option<u64>,
    /// The agent was started for this call: no policy was in force before.
    #[serde(default)]
    pub is_first: bool,
}

/// A call that has no other answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// One sentence on what was done.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_newer_client_asks_for_is_refused_and_not_left_out() {
        let run = r#"{"pid": 1, "name": null, "command": [], "terms": {}"#;
        assert!(serde_json::from_str::<RunRequest>(&format!("{run}}}")).is_ok());
        let error = serde_json::from_str::<RunRequest>(&format!("{run}, \"cpus\": 2}}"));
        assert!(error.unwrap_err().to_string().contains("cpus"));
        let report = r#"{"target": "x", "latency": "1ms", "y": 1}"#;
        assert!(serde_json::from_str::<ReportRequest>(report).is_err());
        assert!(
            serde_json::from_str::<SetRequest>(r#"{"target": "x", "terms": {}, "y": 1}"#).is_err()
        );
        assert!(
            serde_json::from_str::<UnsetRequest>(r#"{"target": "x", "terms": [], "y": 1}"#)
                .is_err()
        );
    }

    #[test]
    fn command_lines_are_kept_to_four_kibibytes() {
        let short = vec!["ffmpeg".to_owned(), "-i".to_owned(), String::new()];
        assert_eq!(RunRequest::begin_of_command(&short), short);
        for long in [
            vec!["x".repeat(100_000)],
            vec!["\u{e9}".repeat(3_000), "y".to_owned()],
            vec![String::new(); 100_000],
            vec!["ab".to_owned(); 100_000],
        ] {
            let kept = RunRequest::begin_of_command(&long);
            let bytes: usize = kept.iter().map(|word| word.len() + 3).sum();
            assert!(bytes <= COMMAND_BYTES_MAX + 8, "{bytes}");
            assert!(kept.last().unwrap().ends_with("..."));
        }
    }
}
