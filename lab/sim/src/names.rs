//! Names of what a run's events speak of: the machine knows numbers only.

use crate::ids::{GroupId, SeriesId, TaskId};
use crate::trace::Event;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Player {
    pub name: String,
    pub group: GroupId,
}

/// Tasks, groups and series of a run.
#[derive(Clone, Debug, Default)]
pub struct Names {
    tasks: Vec<Option<Player>>,
    groups: Vec<String>,
    series: Vec<String>,
}

impl Names {
    /// A task, from now on.
    pub fn task(&mut self, task: TaskId, name: &str, group: GroupId) {
        if self.tasks.len() <= task.index() {
            self.tasks.resize(task.index() + 1, None);
        }
        self.tasks[task.index()] = Some(Player {
            name: name.to_owned(),
            group,
        });
    }

    /// Groups by their numbers; the root is the first.
    pub fn set_groups(&mut self, groups: Vec<String>) {
        self.groups = groups;
    }

    /// Series by their numbers.
    pub fn series(&mut self, series: SeriesId, name: &str) {
        if self.series.len() <= series.index() {
            self.series.resize(series.index() + 1, String::new());
        }
        self.series[series.index()] = name.to_owned();
    }

    /// Learns from an event: a child is named after its parent and starts in its group.
    pub fn learn(&mut self, event: &Event) {
        let Event::Fork { parent, child } = *event else {
            return;
        };
        if self.player(child).is_some() {
            return;
        }
        let Some(parent) = parent.and_then(|parent| self.player(parent)) else {
            return;
        };
        let (name, group) = (
            format!("{}+", parent.name.trim_end_matches('+')),
            parent.group,
        );
        self.task(child, &name, group);
    }

    /// A task, when it is known.
    pub fn player(&self, task: TaskId) -> Option<&Player> {
        self.tasks.get(task.index())?.as_ref()
    }

    /// A task's group; the root's when it is not known.
    pub fn group_of(&self, task: TaskId) -> GroupId {
        self.player(task)
            .map_or(GroupId::ROOT, |player| player.group)
    }

    /// A task's name, or its number.
    pub fn task_name(&self, task: TaskId) -> String {
        self.player(task)
            .map_or_else(|| format!("task {task}"), |player| player.name.clone())
    }

    /// A group's name, or its number.
    pub fn group_name(&self, group: GroupId) -> String {
        let name = self.groups.get(group.index()).cloned();
        name.unwrap_or_else(|| format!("group {group}"))
    }

    /// Every group's name, the root's first.
    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    pub fn all_series(&self) -> &[String] {
        &self.series
    }
}
