//! What on the machine the rules match: groups, and processes one by one. Of several rules the last
//! that matches counts.

use std::collections::HashMap;
use std::path::Path;

use tidegate_cgroup::KernelFs;
use tidegate_cgroup::group::GroupPath;
use tidegate_cgroup::target::{ProcessRef, Target, UnitName};
use tidegate_terms::Config;
use tidegate_terms::policy::{Kind, Rule, SeenProcess, lies_in_slices};

use crate::gates::{Attachment, Gate};
use crate::kernel::Kernel;
use crate::systemd::bus;

const DEPTH_MAX: u32 = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    pub target: Target,
    pub group: Option<GroupPath>,
    pub rule: String,
}

pub(crate) struct Finder<'a> {
    kernel: &'a Kernel,
    config: &'a Config,
    /// The text of /etc/passwd, where a rule names users.
    users: String,
    /// Processes that are in a group of ours because they are a gate's target, with the group that
    /// they were in before.
    moved: HashMap<i32, GroupPath>,
    /// The groups of units that stand still and have a gate.
    away: Vec<GroupPath>,
}

impl<'a> Finder<'a> {
    pub fn new(kernel: &'a Kernel, config: &'a Config, gates: &[Gate]) -> Self {
        let moved = gates
            .iter()
            .filter_map(|gate| match &gate.record.attachment {
                Attachment::Moved { placement, .. } => {
                    let from = placement.from.first()?.group.clone()?;
                    Some((placement.pid, from))
                }
                _ => None,
            });
        let away = gates.iter().filter(|gate| gate.away);
        let names_users = |rule: &Rule| !rule.matches.user.is_empty();
        let users = match config.rules().iter().any(names_users) {
            true => kernel.fs.read(Path::new("/etc/passwd")).unwrap_or_default(),
            false => String::new(),
        };
        Self {
            moved: moved.collect(),
            away: away
                .map(|gate| gate.record.attachment.group().clone())
                .collect(),
            kernel,
            config,
            users,
        }
    }

    pub fn all(&self) -> Vec<Match> {
        let mut found = Vec::new();
        if self.config.has_rules_of(Kind::Groups) {
            self.below(&GroupPath::root(), DEPTH_MAX, &mut found);
            let gone = self.away.iter();
            let gone = gone.filter(|group| !self.kernel.groups.exists(group));
            found.extend(gone.filter_map(|group| self.group(group)));
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
            if self.kernel.is_ours(&child) {
                continue;
            }
            found.extend(self.group(&child));
            if depth > 0 {
                self.below(&child, depth - 1, found);
            }
        }
    }

    fn rule_of_group(&self, group: &GroupPath) -> Option<&Rule> {
        let matching = |rule: &&Rule| {
            rule.matches.kind() == Kind::Groups && rule.matches.allows_group(group.as_str())
        };
        self.config.rules().iter().rfind(matching)
    }

    /// The rule of a group; one within a group that has the same rule is that group's already.
    pub fn group(&self, group: &GroupPath) -> Option<Match> {
        if group.is_root() || self.kernel.is_ours(group) {
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
        let unit = match rule.matches.unit.is_empty() {
            true => None,
            false => unit_in(group).filter(|_| bus::is_booted()),
        };
        Some(Match {
            target: unit.map_or_else(|| Target::Cgroup(group.clone()), Target::Unit),
            group: Some(group.clone()),
            rule: rule.name.clone(),
        })
    }

    /// The rule of a process. One that is a gate's target already is matched by the group that it
    /// was in before.
    pub fn process(&self, pid: i32) -> Option<Match> {
        let kernel = self.kernel;
        // A kernel thread runs no file.
        let exe = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let process = ProcessRef::look_up(&*kernel.fs, pid).ok()?;
        let at = kernel.groups.group_of(pid).ok()??;
        let group = match kernel.is_ours(&at) {
            true => self.moved.get(&pid)?.clone(),
            false => at,
        };
        let seen = SeenProcess {
            group: group.as_str(),
            // A package that is upgraded puts another file in the place of one that runs.
            exe: exe
                .to_str()
                .map(|exe| exe.strip_suffix(" (deleted)").unwrap_or(exe))?,
            uid: process.uid,
            user: self.user(process.uid),
        };
        let matching = |rule: &&Rule| {
            rule.matches.kind() == Kind::Processes && rule.matches.allows_process(&seen)
        };
        let rule = self.config.rules().iter().rfind(matching)?;
        Some(Match {
            target: Target::Pid(pid),
            group: None,
            rule: rule.name.clone(),
        })
    }

    fn user(&self, uid: u32) -> Option<&str> {
        self.users.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
        })
    }
}

/// The system unit that owns the group: all groups around it are slices. systemd writes its own
/// values into such a group; user managers are not asked.
fn unit_in(group: &GroupPath) -> Option<UnitName> {
    if !lies_in_slices(group.as_str()) {
        return None;
    }
    let name = group.name();
    UnitName::parse(name.strip_prefix('_').unwrap_or(name)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_units_group_lies_in_slices_alone() {
        let unit = |path: &str| {
            let unit = unit_in(&GroupPath::parse(path).unwrap());
            unit.map(|unit| unit.to_string())
        };
        let service = Some("backup-1.service".to_owned());
        assert_eq!(unit("/system.slice/backup-1.service"), service);
        assert_eq!(
            unit("/a.slice/a-b.slice/_cpu.service"),
            Some("cpu.service".to_owned())
        );
        assert_eq!(unit("/user.slice"), Some("user.slice".to_owned()));
        let of_user = "/user.slice/user-1.slice/user@1.service/app.slice/backup-1.service";
        assert_eq!(unit(of_user), None);
        assert_eq!(unit("/docker/backup-1.service"), None);
    }
}
