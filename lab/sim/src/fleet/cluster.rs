//! The cluster: its nodes, the pods that wait, and the scheduler that places them.

use std::collections::HashMap;

use crate::Prng;
use tidegate_publish::{Constants, Observation, Write};

use crate::fleet::days::{Days, NodeDay};
use crate::fleet::node::Node;
use crate::fleet::outcome::Outcome;
use crate::fleet::rules::{NodeSeen, Publisher, RuleKind};

/// kube-scheduler scores no more feasible nodes than this many before it takes the best.
const SCORED_NODES: usize = 50;
/// A pod with less than this part of its request is starved.
const STARVED_PERCENT: u64 = 60;

pub struct Settings {
    pub nodes: usize,
    pub cpus_milli: u64,
    pub seconds: u64,
    /// Time passes in such steps.
    pub step_s: u64,
    /// Of the CPUs, kept idle for main.
    pub headroom_ppt: u64,
    /// Of the CPUs, what side work has in any case.
    pub tolerance_ppt: u64,
    /// Side pods in the cluster; one that ends is followed by the next.
    pub pods: u64,
    pub request_milli: u64,
    /// What each has to do, in seconds at its full request.
    pub work_s: u64,
    pub seed: u64,
    pub days: Days,
    /// The numbers of our rule.
    pub constants: Constants,
}

pub fn run(settings: &Settings, rule: RuleKind) -> Outcome {
    Cluster::new(settings, rule).run()
}

struct Cluster<'a> {
    settings: &'a Settings,
    nodes: Vec<Node>,
    days: Vec<NodeDay>,
    publishers: Vec<Box<dyn Publisher>>,
    waiting: u64,
    /// In which step kubelet starts again, and where.
    kubelet_starts: HashMap<u64, Vec<usize>>,
    rng: Prng,
    outcome: Outcome,
}

impl<'a> Cluster<'a> {
    fn new(settings: &'a Settings, rule: RuleKind) -> Self {
        // A stream beside those of the generated nodes, which count from 0.
        let mut rng = Prng::stream(settings.seed, u64::MAX);
        let steps = (settings.seconds / settings.step_s).max(1);
        let mut kubelet_starts: HashMap<u64, Vec<usize>> = HashMap::new();
        for node in 0..settings.nodes {
            kubelet_starts
                .entry(rng.below(steps))
                .or_default()
                .push(node);
        }
        Cluster {
            settings,
            nodes: (0..settings.nodes).map(|_| Node::default()).collect(),
            days: (0..settings.nodes as u64)
                .map(|node| settings.days.node(node))
                .collect(),
            publishers: (0..settings.nodes)
                .map(|_| rule.publisher(&settings.constants))
                .collect(),
            waiting: settings.pods,
            kubelet_starts,
            rng,
            outcome: Outcome {
                rule: rule.name(),
                nodes: settings.nodes as u64,
                seconds: steps * settings.step_s,
                ..Outcome::default()
            },
        }
    }

    fn run(mut self) -> Outcome {
        for step in 0..self.outcome.seconds / self.settings.step_s {
            for node in 0..self.nodes.len() {
                self.step_node(node, step * self.settings.step_s);
            }
            for node in self.kubelet_starts.remove(&step).unwrap_or_default() {
                self.start_kubelet(node);
            }
            self.place();
        }
        self.outcome
    }

    fn step_node(&mut self, at: usize, time_s: u64) {
        let settings = self.settings;
        let main_milli = self.days[at].main_milli(time_s).min(settings.cpus_milli);
        let ceiling_milli = settings.cpus_milli * (1_000 - settings.headroom_ppt) / 1_000;
        let surplus_milli = ceiling_milli.saturating_sub(main_milli);
        let floor_milli = settings.cpus_milli * settings.tolerance_ppt / 1_000;

        let node = &mut self.nodes[at];
        let bound_milli = node.bound_milli(settings.request_milli);
        let granted_milli = bound_milli.min(surplus_milli.max(floor_milli));
        let standing_milli = node.standing_milli;
        let seen = Observation {
            time_s,
            surplus_milli: Some(surplus_milli),
            bound_milli,
            leaving_milli: 0,
            standing_milli,
            is_allocatable: standing_milli.is_some(),
            has_written: false,
            has_failed: false,
            is_starved: surplus_milli < floor_milli && bound_milli > floor_milli,
        };
        let pods = node.pods();
        let done = node.work(settings.step_s, granted_milli, bound_milli);
        let wish = self.publishers[at].step(&NodeSeen {
            seen,
            cpus_milli: settings.cpus_milli,
            main_milli,
            side_milli: granted_milli,
        });
        match wish.write {
            Write::Keep => {}
            Write::Set(milli) => node.standing_milli = Some(milli),
            Write::Delete => node.standing_milli = None,
        }
        self.waiting += done;
        self.outcome.pods_done += done;
        self.outcome.writes += u64::from(wish.write != Write::Keep);
        if wish.must_evict && self.drop_youngest(at) {
            self.outcome.evictions += 1;
        }

        let sum = &mut self.outcome;
        let core_seconds = |milli: u64| (milli * settings.step_s) as f64 / 1_000.0;
        let published_milli = standing_milli.unwrap_or(0);
        sum.surplus_core_seconds += core_seconds(surplus_milli);
        sum.side_core_seconds += core_seconds(granted_milli);
        sum.in_headroom_core_seconds += core_seconds(granted_milli.saturating_sub(surplus_milli));
        sum.over_core_seconds += core_seconds(published_milli.saturating_sub(surplus_milli));
        sum.under_core_seconds += core_seconds(surplus_milli.saturating_sub(published_milli));
        if granted_milli * 100 < bound_milli * STARVED_PERCENT {
            sum.starved_pod_seconds += pods * settings.step_s;
        }
        if standing_milli.is_some_and(|milli| milli < bound_milli) {
            sum.below_bound_node_seconds += settings.step_s;
        }
    }

    /// Kubelet admits the pods of its node once more, oldest first, and rejects those beyond what
    /// stands. An absent amount is not looked at.
    fn start_kubelet(&mut self, at: usize) {
        let Some(standing_milli) = self.nodes[at].standing_milli else {
            return;
        };
        while self.nodes[at].bound_milli(self.settings.request_milli) > standing_milli {
            self.drop_youngest(at);
            self.outcome.rejections += 1;
        }
    }

    fn drop_youngest(&mut self, at: usize) -> bool {
        let Some(lost_s) = self.nodes[at].drop_youngest() else {
            return false;
        };
        self.outcome.lost_core_seconds += (lost_s * self.settings.request_milli) as f64 / 1_000.0;
        self.waiting += 1;
        true
    }

    /// Each waiting pod goes to the node with the most room, of the first feasible ones from a
    /// place that moves.
    fn place(&mut self) {
        let request_milli = self.settings.request_milli;
        while self.waiting > 0 {
            let from = self.rng.below(self.nodes.len() as u64) as usize;
            let (before, after) = self.nodes.split_at(from);
            let room_milli = |node: &Node| {
                let free_milli = node
                    .standing_milli?
                    .checked_sub(node.bound_milli(request_milli))?;
                (free_milli >= request_milli).then_some(free_milli)
            };
            let around = (from..).zip(after).chain((0..).zip(before));
            let feasible = around.filter_map(|(at, node)| Some((room_milli(node)?, at)));
            // Of equals the first.
            let best = feasible
                .take(SCORED_NODES)
                .max_by_key(|(milli, at)| (*milli, usize::MAX - at));
            let Some((_, at)) = best else {
                return;
            };
            self.nodes[at].bind(self.settings.work_s);
            self.waiting -= 1;
        }
    }
}

#[cfg(test)]
mod tests;
