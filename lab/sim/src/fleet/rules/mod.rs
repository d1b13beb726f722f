//! How a node decides what to publish: our rule and those of its peers, fed with the same seconds.

mod katalyst;
mod koordinator;

use tidegate_publish::{Constants, Observation, Rule, Write};

use katalyst::Katalyst;
use koordinator::Koordinator;

/// What a rule sees beyond [`Observation`], of which peers use other parts.
#[derive(Clone, Copy, Debug)]
pub struct NodeSeen {
    pub seen: Observation,
    pub cpus_milli: u64,
    pub main_milli: u64,
    pub side_milli: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The key of the node's status.
    pub write: Write,
    pub must_evict: bool,
}

/// A rule and its memory of one node.
pub trait Publisher: Send {
    fn step(&mut self, node: &NodeSeen) -> Wish;
}

/// The rules that can be rehearsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleKind {
    /// The one of `tidegate-kube`.
    Tidegate,
    Koordinator,
    Katalyst,
}

impl RuleKind {
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
