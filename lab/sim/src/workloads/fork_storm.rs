//! Parents that fork short-lived children, as a build or a shell script does: what a cap on one
//! task must not be multiplied by.

use serde::Deserialize;

use super::{Common, Recorder, TaskSet, Work};
use crate::error::SimError;
use crate::machine::Machine;
use crate::program::{Ctx, Op, Program};
use crate::values::{count, some_time};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForkStorm {
    #[serde(deserialize_with = "count")]
    pub parents: u32,
    /// Time between two forks of one parent; as fast as it can when absent.
    #[serde(rename = "interval", default, deserialize_with = "some_time")]
    pub interval_ns: Option<u64>,
    /// Children of one parent, in all.
    #[serde(deserialize_with = "count")]
    pub children: u32,
    /// Work of one child.
    pub work: Work,
    /// Generations below the parents: a child with more than one below it forks as its parent does.
    #[serde(deserialize_with = "count")]
    pub depth: u32,
}

impl ForkStorm {
    pub(super) fn build(
        &self,
        common: &Common,
        machine: &mut Machine,
    ) -> Result<TaskSet, SimError> {
        let mut set = TaskSet::default();
        let life = common.recorder(machine, "life", &mut set);
        for parent in 0..self.parents {
            let program = Family {
                storm: self.clone(),
                common: common.clone(),
                life,
                name: parent.to_string(),
                depth: self.depth,
                forked: 0,
                stage: Stage::Forks,
                born_ns: None,
            };
            set.spawn(machine, common.task(&parent.to_string(), program))?;
        }
        Ok(set)
    }
}

struct Family {
    storm: ForkStorm,
    common: Common,
    life: Recorder,
    name: String,
    /// Generations below this one.
    depth: u32,
    forked: u32,
    stage: Stage,
    /// When it was forked; the first generation was not.
    born_ns: Option<u64>,
}

enum Stage {
    Forks,
    Rests,
    Works,
}

impl Family {
    fn child(&mut self, now_ns: u64) -> Op {
        self.forked += 1;
        let name = format!("{}.{}", self.name, self.forked);
        let child = Family {
            storm: self.storm.clone(),
            common: self.common.clone(),
            life: self.life,
            name: name.clone(),
            depth: self.depth - 1,
            forked: 0,
            stage: Stage::Forks,
            born_ns: Some(now_ns),
        };
        let mut spec = self.common.task(&name, child);
        spec.start_ns = now_ns;
        Op::Fork {
            child: Box::new(spec),
        }
    }
}

impl Program for Family {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        match self.stage {
            Stage::Forks if self.depth > 0 && self.forked < self.storm.children => {
                if self.storm.interval_ns.is_some() {
                    self.stage = Stage::Rests;
                }
                self.child(ctx.now_ns)
            }
            Stage::Rests => {
                self.stage = Stage::Forks;
                Op::Sleep {
                    for_ns: self.storm.interval_ns.unwrap_or(0),
                }
            }
            Stage::Forks if self.born_ns.is_some() => {
                self.stage = Stage::Works;
                Op::Run {
                    work_ns: self.storm.work.draw(ctx.rng),
                }
            }
            Stage::Forks | Stage::Works => {
                if let Some(born_ns) = self.born_ns {
                    self.life.since(ctx, born_ns);
                }
                Op::Exit
            }
        }
    }
}
