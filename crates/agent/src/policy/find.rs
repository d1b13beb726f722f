//! What on the machine the rules match: groups, and processes one by one. Of several rules the last that matches counts.

use std::path::Path;

use tidegate_kfs::KernelFs;
use tidegate_knobs::group::GroupPath;
use tidegate_knobs::target::{ProcessRef, Target};
use tidegate_terms::Config;
use tidegate_terms::policy::{Kind, Rule, SeenProcess};

use crate::kernel::Kernel;

/// Groups are not nested deeper than this where anybody looks.
const DEPTH_MAX: u32 = 32;

/// Something that a rule matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    /// A group or a process.
    pub target: Target,
    /// The rule's name.
    pub rule: String,
}

/// Looks for what the rules match.
pub(crate) struct Finder<'a> {
    kernel: &'a Kernel,
    config: &'a Config,
    /// The text of /etc/passwd.
    users: String,
}

impl<'a> Finder<'a> {
    /// With the users as they are now.
    pub fn new(kernel: &'a Kernel, config: &'a Config) -> Self {
        Self {
            kernel,
            config,
            users: kernel.fs.read(Path::new("/etc/passwd")).unwrap_or_default(),
        }
    }

    /// Everything that matches now.
    pub fn all(&self) -> Vec<Match> {
        let mut found = Vec::new();
        if self.config.has_rules_of(Kind::Groups) {
            self.below(&GroupPath::root(), DEPTH_MAX, &mut found);
        }
        if self.config.has_rules_of(Kind::Processes) {
            let pids = self.kernel.fs.list(Path::new("/proc")).unwrap_or_default();
            let pids = pids.iter().filter_map(|entry| entry.name.parse().ok());
            found.extend(pids.filter_map(|pid| self.process(pid)));
        }
        found
    }

    fn below(&self, group: &GroupPath, depth: u32, found: &mut Vec<Match>) {
        let children = self.kernel.groups.children(group).unwrap_or_default();
        for child in children {
            if self.is_ours(&child) {
                continue;
            }
            found.extend(self.group(&child));
            if depth > 0 {
                self.below(&child, depth - 1, found);
            }
        }
    }

    fn is_ours(&self, group: &GroupPath) -> bool {
        self.kernel.is_in_roots(group) || self.kernel.is_below_others(group)
    }

    fn rule_of_group(&self, group: &GroupPath) -> Option<&Rule> {
        let matching = |rule: &&Rule| {
            rule.matches.kind() == Kind::Groups && rule.matches.allows_group(group.as_str())
        };
        self.config.rules().iter().rfind(matching)
    }

    /// The rule of a group; one within a group that has the same rule is that group's already.
    pub fn group(&self, group: &GroupPath) -> Option<Match> {
        if group.is_root() || self.is_ours(group) {
            return None;
        }
        let rule = self.rule_of_group(group)?;
        let around = std::iter::successors(group.parent(), GroupPath::parent);
        let is_around = |above: GroupPath| {
            let other = self.rule_of_group(&above);
            other.is_some_and(|other| other.name == rule.name)
        };
        if around.into_iter().any(is_around) {
            return None;
        }
        Some(Match {
            target: Target::Cgroup(group.clone()),
            rule: rule.name.clone(),
        })
    }

    /// The rule of a process.
    pub fn process(&self, pid: i32) -> Option<Match> {
        let kernel = self.kernel;
        // A kernel thread runs no file.
        let exe = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let process = ProcessRef::look_up(&*kernel.fs, pid).ok()?;
        let group = kernel.groups.group_of(pid).ok()??;
        if self.is_ours(&group) {
            return None;
        }
        let seen = SeenProcess {
            group: group.as_str(),
            exe: exe.to_str()?,
            uid: process.uid,
            user: self.user(process.uid),
        };
        let matching = |rule: &&Rule| {
            rule.matches.kind() == Kind::Processes && rule.matches.allows_process(&seen)
        };
        let rule = self.config.rules().iter().rfind(matching)?;
        Some(Match {
            target: Target::Pid(pid),
            rule: rule.name.clone(),
        })
    }

    /// The name of a user.
    fn user(&self, uid: u32) -> Option<&str> {
        self.users.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
        })
    }
}
