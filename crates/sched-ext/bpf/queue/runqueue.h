/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A run queue: the tasks of one kind that wait in one cache, and those of them that run, in virtual
 * time. The order, and the mean that it goes by, are law/runqueue.h.
 *
 *	OFF_RQ --activate--> ON_RQ --deactivate--> OFF_RQ or THROTTLED
 *			     ON_RQ: waits <--> set_running, requeue
 */
#ifndef TIDEGATE_EXT_RUNQUEUE_H
#define TIDEGATE_EXT_RUNQUEUE_H

#include "side/headroom_ctl.h"

/* Counts in the mean what a member has run, and that it runs no longer. */
INLINE void runqueue_commit(struct runqueue *rq, struct task_ctx *t)
{
	tg_runqueue_ran(&rq->mean, t->uncommitted, t->hweight);
	t->uncommitted = 0;
	if (t->running_since_ns) {
		tg_runqueue_stops(&rq->mean, t->running_since_ns);
		t->running_since_ns = 0;
	}
}

INLINE void runqueue_mark_running(struct runqueue *rq, struct task_ctx *t, u64 now)
{
	tg_runqueue_starts(&rq->mean, now);
	t->running_since_ns = now;
}

/*
 * Whether it is in this run queue: another CPU that came across it while it still waited may have
 * taken it out. Under the run queue's lock.
 */
INLINE bool runqueue_has(struct task_ctx *t, u32 runqueue)
{
	return *(volatile u32 *)&t->on_rq == ON_RQ + runqueue;
}

/*
 * Members that wait. Without the lock: a member comes before its task is queued, so one that is not
 * seen yet sees, when it is queued, a CPU that idles. Global, so that the verifier walks it once.
 */
__attribute__((noinline)) u64 runqueue_waiting(u32 runqueue)
{
	struct runqueue *rq = runqueue_at(runqueue);

	return rq ? *(volatile u64 *)&rq->mean.nr_waiting : 0;
}

/* A member begins to run, if it does not already. */
INLINE void runqueue_set_running(struct runqueue *rq, struct task_ctx *t, u32 runqueue, u64 now)
{
	if (t->running_since_ns)
		return;
	bpf_spin_lock(&rq->lock);
	if (runqueue_has(t, runqueue))
		runqueue_mark_running(rq, t, now);
	bpf_spin_unlock(&rq->lock);
}

/*
 * What an hweight counts for in a run queue. A task that may run on fewer CPUs than the cache has
 * keeps its weight: it competes with those that are confined with it. Of side and background work
 * the CPUs are not known. Under the run queue's lock, or a hint.
 */
INLINE u64 runqueue_feasible(struct runqueue *rq, struct task_ctx *t, u64 hweight, u64 counted)
{
	if (t->kind != EXT_MAIN || t->allowed < rq->cpus)
		return hweight;
	return tg_runqueue_feasible(&rq->mean, hweight, counted, rq->cpus);
}

INLINE u64 task_slice_v(struct task_ctx *t)
{
	return tg_virtual_ns(t->slice_ns, t->hweight);
}

/* The place in the order. Global, so that the verifier walks it once. */
__attribute__((noinline)) u64 task_deadline(u64 v, struct task_ctx *t NONNULL, u64 slice_v)
{
	struct tg_runqueue_task ordered = {
	    .vruntime = t->vruntime,
	    .end = t->end,
	    .slice_v = slice_v,
	    .hweight = t->hweight,
	    .weight = t->weight,
	    .hint = t->hint,
	};

	return tg_runqueue_deadline(v, &ordered, config.period_ns);
}

/* How a task comes to compete. */
#define ACTIVATE_THROTTLED 1 /* it was throttled until now */
#define ACTIVATE_RUNS 2	     /* it runs already */

/*
 * A task comes to compete, with a new slice. Lag beyond a slice either way is forgotten. False: it
 * is not (any more) where it was to come from. Global, as runqueue_deactivate and _requeue, so that
 * the verifier walks it once a program: inlined into the loops of pick and timers these three were
 * half of the time that loading takes.
 */
u32 runqueue_activate(struct task_ctx *t NONNULL, u32 runqueue, u64 hweight, u32 flags, u64 now)
{
	struct runqueue *rq = runqueue_at(runqueue);
	u32 from = *(volatile u32 *)&t->on_rq;
	bool left_here;
	u64 slice_v;

	if (!rq || (flags & ACTIVATE_THROTTLED ? from != THROTTLED : from >= ON_RQ))
		return false;
	bpf_spin_lock(&rq->lock);
	if (!__sync_bool_compare_and_swap(&t->on_rq, from, ON_RQ + runqueue)) {
		bpf_spin_unlock(&rq->lock);
		return false;
	}
	t->runqueue = runqueue;
	t->llc = runqueue / EXT_KINDS;
	t->kind = runqueue % EXT_KINDS;
	hweight = runqueue_feasible(rq, t, hweight, 0);
	slice_v = tg_virtual_ns(t->slice_ns, hweight);
	t->hweight = hweight;
	t->uncommitted = 0;
	tg_runqueue_settle(&rq->mean, now);
	left_here = t->left_runqueue == runqueue;
	t->vruntime =
	    tg_runqueue_place(tg_runqueue_v(&rq->mean), t->lag, left_here, t->vruntime, slice_v);
	tg_runqueue_add(&rq->mean, t->vruntime, hweight);
	tg_runqueue_settle(&rq->mean, now);
	if (flags & ACTIVATE_RUNS)
		runqueue_mark_running(rq, t, now);
	bpf_spin_unlock(&rq->lock);
	headroom_side_activated(runqueue);
	t->end = t->vruntime + slice_v;
	t->deadline = task_deadline(tg_runqueue_v(&rq->mean), t, slice_v);
	return true;
}

/* A member goes; its lag goes with it. False: it is none, or of another run queue by now. */
u32 runqueue_deactivate(struct task_ctx *t NONNULL, u32 runqueue, u32 to, u64 now)
{
	struct runqueue *rq = runqueue_at(runqueue);

	if (!rq)
		return false;
	bpf_spin_lock(&rq->lock);
	if (!__sync_bool_compare_and_swap(&t->on_rq, ON_RQ + runqueue, to)) {
		bpf_spin_unlock(&rq->lock);
		return false;
	}
	t->left_runqueue = runqueue;
	runqueue_commit(rq, t);
	tg_runqueue_settle(&rq->mean, now);
	t->lag = (s64)(tg_runqueue_v(&rq->mean) - t->vruntime);
	tg_runqueue_sub(&rq->mean, t->vruntime, t->hweight);
	tg_runqueue_settle(&rq->mean, now);
	bpf_spin_unlock(&rq->lock);
	headroom_side_deactivated(runqueue);
	return true;
}

/* What is left of its slice, in time. */
INLINE u64 task_slice_left_ns(struct task_ctx *t)
{
	return tg_slice_left_ns(t->vruntime, t->end, t->hweight);
}

/* A member's weight changes; what it is owed does not. After a settle, under the lock. */
INLINE void runqueue_set_hweight(struct runqueue *rq, struct task_ctx *t, u64 hweight, u64 now)
{
	u64 v = tg_runqueue_v(&rq->mean);

	tg_runqueue_unweigh(&rq->mean, t->vruntime, t->hweight);
	t->vruntime = tg_runqueue_reweighed(v, t->vruntime, t->hweight, hweight);
	t->hweight = hweight;
	tg_runqueue_weigh(&rq->mean, t->vruntime, hweight);
	tg_runqueue_settle(&rq->mean, now);
}

/*
 * A member is put back in order: with the rest of its slice or, when that is over, a new one. What
 * it weighs may have changed; what it is owed, and the rest of its slice, are as long as before.
 */
u32 runqueue_requeue(struct task_ctx *t NONNULL, u32 runqueue, u64 hweight, u64 now, u32 runs_on)
{
	u64 left_ns = tg_min(task_slice_left_ns(t), t->slice_ns), slice_v;
	struct runqueue *rq = runqueue_at(runqueue);

	if (!rq)
		return false;
	bpf_spin_lock(&rq->lock);
	if (!runqueue_has(t, runqueue)) {
		bpf_spin_unlock(&rq->lock);
		return false;
	}
	runqueue_commit(rq, t);
	if (runs_on)
		runqueue_mark_running(rq, t, now);
	hweight = runqueue_feasible(rq, t, hweight, t->hweight);
	tg_runqueue_settle(&rq->mean, now);
	if (hweight != t->hweight)
		runqueue_set_hweight(rq, t, hweight, now);
	bpf_spin_unlock(&rq->lock);
	slice_v = tg_virtual_ns(t->slice_ns, hweight);
	t->end = t->vruntime + (left_ns ? tg_virtual_ns(left_ns, hweight) : slice_v);
	t->deadline = task_deadline(tg_runqueue_v(&rq->mean), t, slice_v);
	return true;
}

/*
 * A waiting member's weight has changed: it is put in order again, from where it is. False: it
 * waits no more.
 */
INLINE bool runqueue_reweigh(struct runqueue *rq, struct task_ctx *t, u32 runqueue, u64 hweight,
			     u64 now)
{
	u64 left_ns = tg_min(task_slice_left_ns(t), t->slice_ns), slice_v;

	bpf_spin_lock(&rq->lock);
	if (!runqueue_has(t, runqueue) || t->running_since_ns) {
		bpf_spin_unlock(&rq->lock);
		return false;
	}
	runqueue_commit(rq, t);
	tg_runqueue_settle(&rq->mean, now);
	runqueue_set_hweight(rq, t, hweight, now);
	bpf_spin_unlock(&rq->lock);
	slice_v = tg_virtual_ns(t->slice_ns, hweight);
	t->end = t->vruntime + (left_ns ? tg_virtual_ns(left_ns, hweight) : slice_v);
	t->deadline = task_deadline(tg_runqueue_v(&rq->mean), t, slice_v);
	return true;
}

/* A member ran; the mean counts it at the next change. */
INLINE void runqueue_charge(struct task_ctx *t, u64 ran_ns)
{
	u64 ran_v = tg_virtual_ns(ran_ns, t->hweight);

	t->vruntime += ran_v;
	t->uncommitted += ran_v;
}

#endif
