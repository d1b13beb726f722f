//! How a node decides what to publish: our rule and those of its peers, fed with the same seconds.

mod katalyst;
mod koordinator;

use tidegate_publish::{Constants, Observation, Rule, Write};

use katalyst::Katalyst;
use koordinator::Koordinator;

/// What a rule sees beyond [`Observation`], of which peers use other parts.
#[derive(Clone, Copy, Debug)]
pub struct NodeSeen {
    /// As our rule sees it.
    pub seen: Observation,
    /// CPUs of the node.
    pub cpus_milli: u64,
    /// What main uses.
    pub main_milli: u64,
    /// What side pods use.
    pub side_milli: u64,
}

/// What a rule wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The key of the node's status.
    pub write: Write,
    /// One pod must move.
    pub must_evict: bool,
}

/// A rule and its memory of one node.
pub trait Publisher: Send {
    /// One step.
    fn step(&mut self, node: &NodeSeen) -> Wish;
}

/// The rules that can be rehearsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleKind {
    /// The one of `tidegate-kube`.
    Tidegate,
    /// Koordinator's batch CPU.
    Koordinator,
    /// Katalyst's reclaimed CPU.
    Katalyst,
}

impl RuleKind {
    /// All of them.
    pub const ALL: [RuleKind; 3] = [
        RuleKind::Tidegate,
        RuleKind::Koordinator,
        RuleKind::Katalyst,
    ];

    /// As it is shown and chosen.
    pub fn name(self) -> &'static str {
        match self {
            RuleKind::Tidegate => "tidegate",
            RuleKind::Koordinator => "koordinator",
            RuleKind::Katalyst => "katalyst",
        }
    }

    /// One of this rule for a node; the constants are ours alone.
    pub fn publisher(self, constants: &Constants) -> Box<dyn Publisher> {
        match self {
            RuleKind::Tidegate => Box::new(Ours(Rule::new(constants.clone()))),
            RuleKind::Koordinator => Box::<Koordinator>::default(),
            RuleKind::Katalyst => Box::<Katalyst>::default(),
        }
    }
}

struct Ours(Rule);

impl Publisher for Ours {
    fn step(&mut self, node: &NodeSeen) -> Wish {
        let step = self.0.step(&node.seen);
        Wish {
            write: step.write,
            must_evict: step.must_evict,
        }
    }
}
