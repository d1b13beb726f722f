//! Parents that fork short-lived children, as a build or a shell script does: what a cap on one
//! task must not be multiplied by.

use super::{Builder, Common, Recorder, Work};
use crate::error::SimError;
use crate::program::{Ctx, Op, Program};

#[derive(Clone, Debug)]
pub struct ForkStorm {
    pub parents: u32,
    /// Time between two forks of one parent.
    pub interval_ns: u64,
    /// Children of one parent, in all.
    pub children: u32,
    /// Work of one child.
    pub work: Work,
}

impl ForkStorm {
    pub(super) fn build(&self, b: &mut Builder<'_>) -> Result<(), SimError> {
        let life = b.recorder("life");
        for parent in 0..self.parents {
            let program = Parent {
                storm: self.clone(),
                common: b.common.clone(),
                life,
                name: parent.to_string(),
                forked: 0,
                rests: false,
            };
            b.spawn(&parent.to_string(), program)?;
        }
        Ok(())
    }
}

struct Parent {
    storm: ForkStorm,
    common: Common,
    life: Recorder,
    name: String,
    forked: u32,
    /// It rests after its last fork.
    rests: bool,
}

impl Program for Parent {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        if std::mem::take(&mut self.rests) {
            return Op::Sleep {
                for_ns: self.storm.interval_ns,
            };
        }
        if self.forked == self.storm.children {
            return Op::Exit;
        }
        self.rests = true;
        self.forked += 1;
        let child = Child {
            work: self.storm.work,
            life: self.life,
            born_ns: ctx.now_ns,
            has_worked: false,
        };
        let name = format!("{}.{}", self.name, self.forked);
        let mut spec = self.common.task(&name, child);
        spec.start_ns = ctx.now_ns;
        Op::Fork {
            child: Box::new(spec),
        }
    }
}

struct Child {
    work: Work,
    life: Recorder,
    born_ns: u64,
    has_worked: bool,
}

impl Program for Child {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        if std::mem::replace(&mut self.has_worked, true) {
            self.life.since(ctx, self.born_ns);
            return Op::Exit;
        }
        Op::Run {
            work_ns: self.work.draw(ctx.rng),
        }
    }
}
