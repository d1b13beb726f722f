//! What is written down of a gate, for the next agent.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tidegate_cgroup::group::{GroupPath, Placement};
use tidegate_terms::{Config, RawTerms, TermError, Terms};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attachment {
    /// A group of ours that the command was started in.
    Owned { group: GroupPath },
    /// A process that ran already, moved within the cpu hierarchy into a group of ours.
    Moved {
        placement: Placement,
        /// When it started, so that a reused number is not taken for it.
        start_ticks: u64,
    },
    /// A group that is not ours, limited where it is.
    InPlace { group: GroupPath },
    /// A process that is not touched: its class is known, that is all.
    Observed {
        pid: i32,
        start_ticks: u64,
        group: GroupPath,
    },
}

impl Attachment {
    /// The group, below the mount of the cpu controller.
    pub fn group(&self) -> &GroupPath {
        match self {
            Attachment::Owned { group }
            | Attachment::InPlace { group }
            | Attachment::Observed { group, .. } => group,
            Attachment::Moved { placement, .. } => &placement.group,
        }
    }

    /// The process that is the target, by its number and start time.
    pub fn process(&self) -> Option<(i32, u64)> {
        match self {
            Attachment::Observed {
                pid, start_ticks, ..
            } => Some((*pid, *start_ticks)),
            Attachment::Moved {
                placement,
                start_ticks,
            } => Some((placement.pid, *start_ticks)),
            Attachment::Owned { .. } | Attachment::InPlace { .. } => None,
        }
    }

    pub fn placed(&self) -> Option<&GroupPath> {
        match self {
            Attachment::Observed { .. } => None,
            placed => Some(placed.group()),
        }
    }
}

/// What is written down of a gate: all that the next agent needs to take it up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub name: String,
    /// `run`, `pid:N`, `tid:N`, `unit:NAME` or `cgroup:/path`.
    pub target: String,
    pub raw: RawTerms,
    /// The rule of the files that gives it terms, below those that were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Terms that the rule names: they are the administrator's.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub ruled: BTreeSet<String>,
    /// Terms of another version, which this one does not know.
    #[serde(default, skip_serializing_if = "RawTerms::is_empty")]
    pub unread_terms: RawTerms,
    pub uid: u32,
    /// The owner of the user namespace, where the gate counts against that user's budget and not
    /// against that of `uid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged: Option<u32>,
    pub command: Vec<String>,
    pub parent: Option<String>,
    /// When it was made, `CLOCK_MONOTONIC`.
    pub made_ns: u64,
    pub attachment: Attachment,
    pub notes: Vec<String>,
    /// The target is one process, without those that it had started before.
    #[serde(default)]
    pub only: bool,
    /// Terms that were set with privilege: without, they may only be tightened.
    pub by_admin: BTreeSet<String>,
}

impl Record {
    pub fn is_of_thread(&self) -> bool {
        self.target.starts_with("tid:")
    }

    /// The record of a gate of root's that was not named by a rule, without a command.
    pub fn new(name: String, target: &str, raw: RawTerms, attachment: Attachment) -> Self {
        Self {
            name,
            target: target.to_owned(),
            raw,
            rule: None,
            ruled: BTreeSet::new(),
            unread_terms: RawTerms::default(),
            uid: 0,
            charged: None,
            command: Vec::new(),
            parent: None,
            made_ns: 0,
            attachment,
            notes: Vec::new(),
            only: false,
            by_admin: BTreeSet::new(),
        }
    }

    /// Terms from its rule, if it has one, and over them those that were asked for.
    pub(super) fn resolve(&self, config: &Config) -> Result<Terms, TermError> {
        let rule = self.rule.as_ref().and_then(|name| config.rule(name));
        let of_rule = rule.iter().flat_map(|rule| &rule.terms);
        let layers: Vec<&RawTerms> = of_rule.chain([&self.raw]).collect();
        let terms = config.resolve(&layers)?;
        if !matches!(self.attachment, Attachment::InPlace { .. }) {
            // No other program gives its group a limit.
            terms.check_burst_has_quota()?;
        }
        Ok(terms)
    }

    pub fn charged_to(&self) -> u32 {
        self.charged.unwrap_or(self.uid)
    }
}
