//! The class's own books, counted again from the tasks.

use super::{Ext, KINDS, Kind, Place};
use crate::TaskId;
use crate::kernel::Kernel;

impl Ext {
    /// Whether counts, lines and CPUs agree with what each task says of itself.
    pub(crate) fn verify(&self, k: &Kernel) -> Result<(), String> {
        let (mut running, mut waiting) = (0, 0);
        let mut weights = vec![[0_u64; KINDS]; self.caches.len()];
        for (index, task) in self.tasks.iter().enumerate() {
            let id = TaskId(index as u32);
            let side = u32::from(task.kind == Kind::Side);
            match task.place {
                Place::Away | Place::Parked(_) | Place::Held(_) => continue,
                Place::Waiting(_) => waiting += side,
                Place::Sent(cpu) => {
                    if !self.cpus[cpu.index()].sent.contains(&id) {
                        return Err(format!(
                            "task {id} was sent to CPU {cpu}, which does not know"
                        ));
                    }
                }
                Place::Running(cpu) => {
                    running += side;
                    let run = self.cpus[cpu.index()].run.as_ref();
                    if run.map(|run| run.task) != Some(id) || k.cpus[cpu.index()].curr != Some(id) {
                        return Err(format!("task {id} runs on CPU {cpu}, which does not know"));
                    }
                }
            }
            weights[task.cache as usize][task.kind as usize] += task.standing.flat;
        }
        if (running, waiting) != (self.side_running, self.side_waiting) {
            let (counted_running, counted_waiting) = (self.side_running, self.side_waiting);
            return Err(format!(
                "side work: {running} run and {waiting} wait, counted {counted_running} and {counted_waiting}"
            ));
        }
        for (index, (cache, weights)) in self.caches.iter().zip(&weights).enumerate() {
            for (line, weight) in cache.lines.iter().zip(weights) {
                if line.weight().0 != *weight {
                    let summed = line.weight().0;
                    return Err(format!(
                        "cache {index}: weights of {weight}, summed up as {summed}"
                    ));
                }
            }
        }
        Ok(())
    }
}
