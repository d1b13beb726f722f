/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A run queue: the tasks of one kind that wait in one cache, and those of them that run, in virtual
 * time. The order is the virtual deadline.
 *
 *	deadline = vruntime + slice / weight, moved by the latency hint (law/latency.h)
 *	V	 = mean of the members' vruntime by weight: what a fair scheduler would have given
 *	lag	 = V - vruntime, kept while a task is away; at most one slice either way
 *
 *	OFF_RQ --activate--> ON_RQ --deactivate--> OFF_RQ or THROTTLED
 *			     ON_RQ: waits <--> set_running, requeue
 *
 * A hint that brings a deadline forward counts only for a task that is not ahead of V by more than a
 * quarter of its slice: it says when CPU time comes, not how much. (EEVDF asks at each pick whether a
 * task is eligible; a kernel's dispatch queue is ordered once, when a task is put in.)
 *
 * crates/sim/src/sched/ext is the same in Rust, but for two things that a real machine needs: what
 * members ran since they were last charged counts in V at once (else a wakeup meets a V up to a tick,
 * 4 ms, old), and a task that left ahead of its share pays by sleeping until V has reached it, and no
 * longer (as EEVDF's delayed dequeue).
 *
 * The mean is a whole number and a remainder, settled at each change, so that products stay small:
 *
 *	a weight here is an hweight without its last 14 bits:	< 2^23
 *	a distance from the mean is cut to nine minutes at nice 0: < 2^39, product < 2^62
 *	CPU time moves the moment by ran << 16, whatever runs:	2^46 << 16 = 2^62
 */
#ifndef TIDEGATE_EXT_RUNQUEUE_H
#define TIDEGATE_EXT_RUNQUEUE_H

#include "side/headroom_ctl.h"

#define RUNQUEUE_WEIGHT_SHIFT 14
#define RUNQUEUE_DISTANCE_MAX ((s64)1 << 39)
/* Virtual time starts here, so that a lag or an offset before the start has room. */
#define RUNQUEUE_V_START (1ULL << 50)

INLINE u64 runqueue_weight(u64 hweight)
{
	return hweight >> RUNQUEUE_WEIGHT_SHIFT ? hweight >> RUNQUEUE_WEIGHT_SHIFT : 1;
}

/* Virtual time. Read without the lock it may be a change old. */
INLINE u64 runqueue_v(struct runqueue *rq)
{
	return tg_max(*(volatile u64 *)&rq->reached, RUNQUEUE_V_START);
}

INLINE s64 runqueue_distance(struct runqueue *rq, u64 vruntime)
{
	return tg_clamp_s((s64)(vruntime - rq->base), -RUNQUEUE_DISTANCE_MAX,
			  RUNQUEUE_DISTANCE_MAX);
}

/* CPU time that running members have had and were not charged for. CPUs' clocks may differ by a
 * hair. */
INLINE u64 runqueue_uncharged_ns(struct runqueue *rq, u64 now)
{
	s64 running_since_ns = (s64)(rq->nr_running * now - rq->running_since_sum_ns);

	return running_since_ns < 0 ? 0 : tg_min((u64)running_since_ns, 1ULL << 46);
}

/*
 * Brings the mean up to now; V never goes back, or a task that has done nothing would be ahead of
 * it all at once. The moment keeps what the mean has not: a remainder, less what running members
 * will be charged for.
 */
INLINE void runqueue_settle(struct runqueue *rq, u64 now)
{
	if (rq->weights) {
		s64 moment = rq->moment + (s64)(runqueue_uncharged_ns(rq, now) << 16);
		u64 whole = tg_abs(moment) / rq->weights;

		if (moment < 0)
			whole = -(whole + 1);
		rq->base += whole;
		rq->moment -= (s64)(whole * rq->weights);
	} else {
		rq->moment = 0;
		rq->base = runqueue_v(rq);
	}
	if (tg_latency_before(runqueue_v(rq), rq->base))
		rq->reached = rq->base;
}

INLINE void runqueue_avg_add(struct runqueue *rq, u64 vruntime, u64 hweight)
{
	if (!rq->weights)
		rq->base = vruntime;
	rq->members++;
	rq->weights += runqueue_weight(hweight);
	rq->moment += runqueue_distance(rq, vruntime) * (s64)runqueue_weight(hweight);
}

INLINE void runqueue_avg_sub(struct runqueue *rq, u64 vruntime, u64 hweight)
{
	rq->members--;
	rq->weights -= tg_min(runqueue_weight(hweight), rq->weights);
	rq->moment -= runqueue_distance(rq, vruntime) * (s64)runqueue_weight(hweight);
}

/* Counts in the mean what a member has run, and that it runs no longer. */
INLINE void runqueue_commit(struct runqueue *rq, struct task_ctx *t)
{
	rq->moment += (s64)(t->uncommitted * runqueue_weight(t->hweight));
	t->uncommitted = 0;
	if (t->running_since_ns) {
		rq->nr_running--;
		rq->running_since_sum_ns -= t->running_since_ns;
		t->running_since_ns = 0;
	}
}

INLINE void runqueue_mark_running(struct runqueue *rq, struct task_ctx *t, u64 now)
{
	rq->nr_running++;
	rq->running_since_sum_ns += now;
	t->running_since_ns = now;
}

/*
 * Whether it is in this run queue: another CPU that came across it while it still waited may have
 * taken it out. Under the run queue's lock.
 */
INLINE bool runqueue_has(struct task_ctx *t, u32 runqueue)
{
	return t->on_rq == ON_RQ && t->runqueue == runqueue;
}

/* A member begins to run. */
INLINE void runqueue_set_running(struct runqueue *rq, struct task_ctx *t, u32 runqueue, u64 now)
{
	bpf_spin_lock(&rq->lock);
	if (runqueue_has(t, runqueue)) {
		runqueue_commit(rq, t);
		runqueue_mark_running(rq, t, now);
	}
	bpf_spin_unlock(&rq->lock);
}

INLINE u64 task_slice_v(struct task_ctx *t)
{
	return virtual_ns(t->slice_ns, t->hweight);
}

/* Not ahead of its share by more than a quarter of its slice. */
INLINE bool runqueue_eligible(u64 v, u64 vruntime, u64 slice_v)
{
	return !tg_latency_before(v + slice_v / 4, vruntime);
}

/*
 * The place in the order: the end of the slice, moved by the hint; by its own weight a hint is
 * worth as much in a group as in the root. 2^40 * 2^17 = 2^57.
 */
INLINE u64 runqueue_deadline(u64 v, struct task_ctx *t, u64 slice_v)
{
	s32 hint = t->hint;
	u64 scaled_ns;

	if (!hint)
		return t->end;
	if (hint < 0 && !runqueue_eligible(v, t->vruntime, slice_v))
		return t->end;
	scaled_ns = tg_min(virtual_ns(config.period_ns, t->hweight), TG_LATENCY_PERIOD_MAX_NS);
	return tg_latency_deadline(t->end, 0, hint, scaled_ns * t->weight / 1024);
}

/*
 * A waking task is placed at V minus its saved lag, within a slice; one that left ahead of V is
 * ahead only until V has come to where it left.
 */
INLINE u64 runqueue_place(struct runqueue *rq, struct task_ctx *t, u64 slice_v)
{
	s64 most = (s64)tg_min(slice_v, (u64)RUNQUEUE_DISTANCE_MAX);
	u64 v = runqueue_v(rq);

	if (t->lag < 0 && t->left_runqueue == t->runqueue && tg_latency_before(t->vruntime, v))
		return v;
	if (t->lag < 0 && t->left_runqueue == t->runqueue)
		return v + (u64)tg_min_s((s64)(t->vruntime - v), most);
	return v - (u64)tg_clamp_s(t->lag, -most, most);
}

/*
 * A task comes to compete, with a new slice. Lag beyond a slice either way is forgotten. False: it
 * is not (any more) where it was to come from.
 */
INLINE bool runqueue_activate(struct runqueue *rq, struct task_ctx *t, u64 hweight,
			      bool from_throttled, u64 now)
{
	u64 slice_v = virtual_ns(t->slice_ns, hweight);
	u32 runqueue = t->runqueue;

	bpf_spin_lock(&rq->lock);
	if (from_throttled ? t->on_rq != THROTTLED : t->on_rq == ON_RQ) {
		bpf_spin_unlock(&rq->lock);
		return false;
	}
	t->on_rq = ON_RQ;
	t->hweight = hweight;
	t->uncommitted = 0;
	runqueue_settle(rq, now);
	t->vruntime = runqueue_place(rq, t, slice_v);
	runqueue_avg_add(rq, t->vruntime, hweight);
	runqueue_settle(rq, now);
	bpf_spin_unlock(&rq->lock);
	headroom_side_activated(runqueue);
	t->end = t->vruntime + slice_v;
	t->deadline = runqueue_deadline(runqueue_v(rq), t, slice_v);
	return true;
}

/* A member goes; its lag goes with it. False: it is none, or of another run queue by now. */
INLINE bool runqueue_deactivate(struct runqueue *rq, struct task_ctx *t, u32 runqueue, u32 to,
				u64 now)
{
	bpf_spin_lock(&rq->lock);
	if (!runqueue_has(t, runqueue)) {
		if (to == OFF_RQ)
			t->on_rq = OFF_RQ;
		bpf_spin_unlock(&rq->lock);
		return false;
	}
	t->on_rq = to;
	t->left_runqueue = runqueue;
	runqueue_commit(rq, t);
	runqueue_settle(rq, now);
	t->lag = (s64)(runqueue_v(rq) - t->vruntime);
	runqueue_avg_sub(rq, t->vruntime, t->hweight);
	runqueue_settle(rq, now);
	bpf_spin_unlock(&rq->lock);
	headroom_side_deactivated(runqueue);
	return true;
}

/* What is left of its slice, in time; the product is the slice times HWEIGHT_ONE at most: 2^57 at 100
 * ms. */
INLINE u64 task_slice_left_ns(struct task_ctx *t)
{
	if (!tg_latency_before(t->vruntime, t->end))
		return 0;
	return (t->end - t->vruntime) * t->hweight / HWEIGHT_ONE;
}

/*
 * A member is put back in order: with the rest of its slice or, when that is over, a new one. It
 * never left the competition, so its vruntime stands; what it weighs may have changed, and the rest
 * of a slice is as long as before.
 */
INLINE void runqueue_requeue(struct runqueue *rq, struct task_ctx *t, u32 runqueue, u64 hweight,
			     u64 now, bool runs_on)
{
	u64 left_ns = tg_min(task_slice_left_ns(t), t->slice_ns), slice_v;

	bpf_spin_lock(&rq->lock);
	if (!runqueue_has(t, runqueue)) {
		bpf_spin_unlock(&rq->lock);
		return;
	}
	runqueue_commit(rq, t);
	if (runs_on)
		runqueue_mark_running(rq, t, now);
	if (hweight != t->hweight) {
		runqueue_avg_sub(rq, t->vruntime, t->hweight);
		runqueue_avg_add(rq, t->vruntime, hweight);
	}
	runqueue_settle(rq, now);
	bpf_spin_unlock(&rq->lock);
	t->hweight = hweight;
	slice_v = virtual_ns(t->slice_ns, hweight);
	t->end = t->vruntime + (left_ns ? virtual_ns(left_ns, hweight) : slice_v);
	t->deadline = runqueue_deadline(runqueue_v(rq), t, slice_v);
}

/* A member ran; the mean counts it at the next change. */
INLINE void runqueue_charge(struct task_ctx *t, u64 ran_ns)
{
	u64 ran_v = virtual_ns(ran_ns, t->hweight);

	t->vruntime += ran_v;
	t->uncommitted += ran_v;
}

#endif
