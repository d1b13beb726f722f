//! Whether the queues agree with each other and with the tasks: every sum is
//! recomputed the slow way. For the machine's own checks; costs O(all).

use super::Fair;
use super::order::Order;
use crate::ids::{CpuId, GroupId};
use crate::kernel::{Kernel, NONE, TaskState};

/// The first disagreement, in words.
pub(crate) fn verify(fair: &Fair, k: &Kernel) -> Result<(), String> {
    let order = &fair.order;
    for rq in 0..order.rqs.len() as u32 {
        verify_queue(fair, rq)?;
    }
    for (id, t) in k.tasks.iter().enumerate() {
        let e = order.ent(t.ent);
        let wants = t.state == TaskState::Runnable;
        if wants != (e.on_rq && !e.delayed || e.stopped) {
            return Err(format!(
                "task {id}: {:?}, but queued: {}, delayed: {}",
                t.state, e.on_rq, e.delayed
            ));
        }
        if e.on_rq && e.rq != order.rq_of(t.group, t.cpu) {
            return Err(format!(
                "task {id}: on queue {}, not its group's on its CPU",
                e.rq
            ));
        }
        let listed = e.stopped && order.rq(e.rq).stopped.contains(&t.ent);
        if e.stopped && (e.on_rq || !listed || !order.throttled_above(e.rq)) {
            return Err(format!(
                "task {id}: stopped, but queued: {}, listed: {listed}, held by nothing: {}",
                e.on_rq,
                !order.throttled_above(e.rq)
            ));
        }
        if wants != (t.queued_at != NONE) {
            return Err(format!(
                "task {id}: not on its CPU's list, or there without reason"
            ));
        }
    }
    Ok(())
}

fn verify_queue(fair: &Fair, rq: u32) -> Result<(), String> {
    let order = &fair.order;
    let q = order.rq(rq);
    let at = || format!("queue of group {} on CPU {}", q.group, q.cpu);
    let mut waiting: Vec<u32> = q.waiting.values().copied().collect();
    let (mut sum_key, mut sum_load) = (0i128, 0i64);
    for &ent in &waiting {
        let e = order.ent(ent);
        if e.rq != rq || !e.on_rq {
            return Err(format!(
                "{}: entity {ent} waits on it but is not queued",
                at()
            ));
        }
        sum_key += i128::from(e.vruntime - q.zero) * i128::from(e.load());
        sum_load += e.load();
    }
    if sum_key != i128::from(q.sum_key) || sum_load != q.sum_load {
        let kept = (q.sum_key, q.sum_load);
        return Err(format!(
            "{}: sums {kept:?}, really {:?}",
            at(),
            (sum_key, sum_load)
        ));
    }
    let running = q.curr != NONE && order.ent(q.curr).on_rq;
    if running {
        waiting.push(q.curr);
    }
    let load: u64 = waiting.iter().map(|&ent| order.ent(ent).weight).sum();
    if q.nr as usize != waiting.len() || q.load != load {
        let kept = (q.nr, q.load);
        return Err(format!(
            "{}: {kept:?}, really {:?}",
            at(),
            (waiting.len(), load)
        ));
    }
    verify_counts(order, rq, &waiting)?;
    let listed = fair.tgs[q.group as usize].throttled.contains(&q.cpu);
    if q.throttled != q.silo.is_throttled() || q.throttled != listed {
        return Err(format!(
            "{}: throttled {}, silo {}, listed {listed}",
            at(),
            q.throttled,
            q.silo.is_throttled()
        ));
    }
    verify_link(order, rq)
}

fn verify_counts(order: &Order, rq: u32, members: &[u32]) -> Result<(), String> {
    let q = order.rq(rq);
    let at = || format!("queue of group {} on CPU {}", q.group, q.cpu);
    let (mut queued, mut runnable, mut idle) = (0, 0, 0);
    for &ent in members {
        let e = order.ent(ent);
        if e.my_rq == NONE {
            queued += 1;
            runnable += u32::from(!e.delayed);
            idle += u32::from(e.idle);
            continue;
        }
        let mine = order.rq(e.my_rq);
        queued += mine.h_queued;
        runnable += mine.h_runnable;
        idle += if mine.idle {
            mine.h_queued
        } else {
            mine.h_idle
        };
    }
    let (kept, really) = (
        (q.h_queued, q.h_runnable, q.h_idle),
        (queued, runnable, idle),
    );
    if kept != really {
        return Err(format!("{}: counts {kept:?}, really {really:?}", at()));
    }
    Ok(())
}

/// A group with entities is in its parent's queue.
fn verify_link(order: &Order, rq: u32) -> Result<(), String> {
    let q = order.rq(rq);
    if q.ent == NONE {
        return Ok(());
    }
    let e = order.ent(q.ent);
    let wanted = q.nr > 0;
    if wanted && !e.on_rq || (e.on_rq && !wanted && !e.delayed) {
        return Err(format!(
            "group {} on CPU {}: {} entities, throttled {}, but queued {}, delayed {}",
            q.group, q.cpu, q.nr, q.throttled, e.on_rq, e.delayed
        ));
    }
    let expected = order.rq_of(GroupId(order.rq(e.rq).group), CpuId(q.cpu));
    if e.rq != expected {
        return Err(format!(
            "group {} on CPU {}: on a queue of another CPU",
            q.group, q.cpu
        ));
    }
    Ok(())
}
