//! The class's own sums, counted again from the tasks.

use tidegate_law::runqueue;

use super::{Ext, KINDS, Kind, Place};
use crate::TaskId;
use crate::kernel::Kernel;

/// Whether counts, run queues and CPUs agree with what each task says of itext.
pub(crate) fn verify(ext: &Ext, k: &Kernel) -> Result<(), String> {
    let (mut running, mut waiting) = (0, 0);
    let mut weights = vec![[0_u64; KINDS]; ext.caches.len()];
    for (index, task) in ext.members.tasks.iter().enumerate() {
        let id = TaskId(index as u32);
        let side = u32::from(task.kind == Kind::Side);
        match task.place {
            Place::Away | Place::Parked(_) | Place::Held(_) => continue,
            Place::Waiting(_) => waiting += side,
            Place::Sent(cpu) => {
                if !ext.cpus[cpu.index()].sent.contains(&id) {
                    return Err(format!(
                        "task {id} was sent to CPU {cpu}, which does not know"
                    ));
                }
            }
            Place::Running(cpu) => {
                running += side;
                let run = ext.cpus[cpu.index()].run.as_ref();
                if run.map(|run| run.task) != Some(id) || k.cpus[cpu.index()].curr != Some(id) {
                    return Err(format!("task {id} runs on CPU {cpu}, which does not know"));
                }
            }
        }
        weights[task.cache as usize][task.kind as usize] += runqueue::weight(task.standing.hweight);
    }
    if (running, waiting) != (ext.side_running, ext.side_waiting) {
        let (counted_running, counted_waiting) = (ext.side_running, ext.side_waiting);
        return Err(format!(
            "side work: {running} run and {waiting} wait, counted {counted_running} and {counted_waiting}"
        ));
    }
    for (index, (cache, weights)) in ext.caches.iter().zip(&weights).enumerate() {
        for (runqueue, weight) in cache.runqueues.iter().zip(weights) {
            let summed = runqueue.mean().weights();
            if summed != *weight {
                return Err(format!(
                    "cache {index}: weights of {weight}, summed up as {summed}"
                ));
            }
        }
    }
    Ok(())
}
