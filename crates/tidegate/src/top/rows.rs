//! The list of gates: which are shown, and in which order.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use tidegate_api::GateView;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Gate,
    Class,
    Cpus,
    Allowed,
    Binds,
    /// The 99th percentile of its run delay.
    Delay,
    Throttled,
}

impl Column {
    pub const ALL: [Column; 7] = [
        Column::Gate,
        Column::Class,
        Column::Cpus,
        Column::Allowed,
        Column::Binds,
        Column::Delay,
        Column::Throttled,
    ];

    pub fn heading(self) -> &'static str {
        match self {
            Column::Gate => "GATE",
            Column::Class => "CLASS",
            Column::Cpus => "CPUS",
            Column::Allowed => "ALLOWED",
            Column::Binds => "BINDS",
            Column::Delay => "P99 WAIT",
            Column::Throttled => "THROTTLED",
        }
    }

    pub fn next(self, step: isize) -> Column {
        let count = Self::ALL.len() as isize;
        let at = Self::ALL.iter().position(|column| *column == self);
        let at = at.unwrap_or(0) as isize;
        // Within 0..count.
        Self::ALL[(at + step).rem_euclid(count) as usize]
    }

    fn is_number(self) -> bool {
        !matches!(self, Column::Gate | Column::Class | Column::Binds)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    pub column: Column,
    /// The other way round: numbers from the smallest, names from the last.
    pub is_reversed: bool,
}

impl Sort {
    fn compare(self, a: &GateView, b: &GateView) -> Ordering {
        let by = match self.column {
            Column::Gate => a.name.cmp(&b.name),
            Column::Class => a.class.cmp(&b.class),
            Column::Binds => a.held.limit.cmp(&b.held.limit),
            Column::Cpus => {
                let known = |gate: &GateView| gate.usage_cpus.unwrap_or(-1.0);
                known(a).total_cmp(&known(b))
            }
            Column::Allowed => allowed_cpus(a)
                .unwrap_or(f64::INFINITY)
                .total_cmp(&allowed_cpus(b).unwrap_or(f64::INFINITY)),
            Column::Delay => delay_us(a)
                .unwrap_or(0.0)
                .total_cmp(&delay_us(b).unwrap_or(0.0)),
            Column::Throttled => a.throttled_seconds.total_cmp(&b.throttled_seconds),
        };
        let by = match self.column.is_number() != self.is_reversed {
            true => by.reverse(),
            false => by,
        };
        // Equal ones keep their places from look to look.
        by.then_with(|| a.name.cmp(&b.name))
    }
}

/// The lower of what the law and its own limit give it.
pub fn allowed_cpus(gate: &GateView) -> Option<f64> {
    let own = gate.own_limit.as_ref().map(|limit| limit.cpus);
    match (gate.allowance_cpus, own) {
        (Some(law), Some(own)) => Some(law.min(own)),
        (law, own) => law.or(own),
    }
}

/// The 99th percentile of its waits, which only the sched_ext engine counts by gate.
pub fn delay_us(gate: &GateView) -> Option<f64> {
    let counts = gate
        .sched_ext
        .as_ref()
        .filter(|counts| counts.wakeups > 0)?;
    Some(counts.delay_p99_us)
}

#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    pub depth: usize,
    pub gate: &'a GateView,
}

/// The gates that match `filter`, in order; as a tree each comes behind the gate in which it was
/// started.
pub fn rows<'a>(gates: &'a [GateView], filter: &str, sort: Sort, is_tree: bool) -> Vec<Row<'a>> {
    let wanted = filter.to_lowercase();
    let mut found: Vec<&GateView> = gates.iter().filter(|gate| matches(gate, &wanted)).collect();
    found.sort_by(|a, b| sort.compare(a, b));
    if !is_tree {
        return found
            .into_iter()
            .map(|gate| Row { depth: 0, gate })
            .collect();
    }
    let shown: HashSet<&str> = found.iter().map(|gate| gate.name.as_str()).collect();
    let mut inside: HashMap<Option<&'a str>, Vec<&'a GateView>> = HashMap::new();
    for gate in found {
        let parent = gate.parent.as_deref().filter(|name| shown.contains(name));
        inside.entry(parent).or_default().push(gate);
    }
    let mut rows = Vec::with_capacity(shown.len());
    let mut next = Vec::new();
    let mut push_inside = |next: &mut Vec<Row<'a>>, parent: Option<&'a str>, depth| {
        // The next to show is the last.
        let gates = inside.remove(&parent).unwrap_or_default();
        next.extend(gates.into_iter().rev().map(|gate| Row { depth, gate }));
    };
    push_inside(&mut next, None, 0);
    while let Some(row) = next.pop() {
        push_inside(&mut next, Some(&row.gate.name), row.depth + 1);
        rows.push(row);
    }
    rows
}

fn matches(gate: &GateView, wanted: &str) -> bool {
    let texts = [&gate.name, &gate.class, &gate.target, &gate.cgroup];
    let texts = texts.into_iter().chain(&gate.command);
    wanted.is_empty()
        || texts
            .into_iter()
            .any(|text| text.to_lowercase().contains(wanted))
}
