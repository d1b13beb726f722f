/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tasks come to compete, wait, and go.
 *
 *	OFF_RQ --task_activate--> ON_RQ: waits <--> runs --task_deactivate--> OFF_RQ
 *
 * Between `runnable` and `quiescent` a task is a member of one run queue, that of its kind in the
 * cache where it was last put. It waits in a dispatch queue of that run queue (core/dsq.h), by
 * deadline: `wide` if it may run anywhere, `narrow` if not (a CPU may have to pass over some),
 * `pinned` if it may run on one CPU only.
 */
#ifndef TIDEGATE_EXT_ENQUEUE_H
#define TIDEGATE_EXT_ENQUEUE_H

#include "core/group.h"
#include "queue/charge.h"
#include "queue/place.h"
#include "timers/starvation_timer.h"

/* Begins to compete on a CPU's cache. */
INLINE void task_activate(struct task_struct *p, struct task_ctx *t, s32 cpu)
{
	struct ext_cpu *c = cpu_at(cpu);
	struct runqueue *rq;
	u64 now = now_ns();

	task_describe(p, t);
	t->slice_ns = config.slice_ns;
	t->llc = c ? c->llc : 0;
	t->runqueue = runqueue_index(t->llc, t->kind);
	rq = runqueue_at(t->runqueue);
	hweight_activate(t);
	/*
	 * One that is only queued again (another CPU, nice level, group) has waited since before,
	 * by the watchdog's clock, too.
	 */
	if (!t->since_ns)
		t->since_ns = now;
	if (rq)
		runqueue_activate(rq, t, hweight_of_task(t->group, t->weight), false, now);
	else
		ext_missing(TABLE_RUNQUEUES, t->runqueue);
}

/* No longer competes. */
INLINE void task_deactivate(struct task_ctx *t)
{
	struct runqueue *rq = runqueue_at(t->runqueue);

	if (rq)
		runqueue_deactivate(rq, t, t->runqueue, OFF_RQ, now_ns());
	hweight_deactivate(t);
	group_reap(t->group);
}

/* What is asked of its group may have changed while it competed: then it is activated again. */
static __attribute__((noinline)) int task_refresh(struct task_struct *p, struct task_ctx *t,
						  s32 cpu)
{
	if (t->generation == gates_generation())
		return 0;
	if (group_kind(p, t) == t->kind) {
		task_describe(p, t);
		return 0;
	}
	task_deactivate(t);
	task_activate(p, t, cpu);
	return 0;
}

/* Moves a member to another run queue; its lag and the rest of its slice go along. */
int task_migrate(struct task_ctx *t NONNULL, u32 llc, u32 kind)
{
	u64 left_ns = task_slice_left_ns(t), now = now_ns();
	struct runqueue *from = runqueue_at(t->runqueue),
			*to = runqueue_at(runqueue_index(llc, kind));
	bool runs = t->running_since_ns;

	if (!from || !to || !runqueue_deactivate(from, t, t->runqueue, OFF_RQ, now))
		return 0;
	t->llc = llc;
	t->kind = kind;
	t->runqueue = runqueue_index(llc, kind);
	runqueue_activate(to, t, t->hweight, false, now);
	if (left_ns) {
		t->end = t->vruntime + tg_virtual_ns(left_ns, t->hweight);
		t->deadline = task_deadline(tg_runqueue_v(&to->mean), t, task_slice_v(t));
	}
	if (runs)
		runqueue_set_running(to, t, runqueue_index(llc, kind), now);
	return 0;
}

/* What it may run for when it starts. */
INLINE u64 task_run_ns(struct task_ctx *t)
{
	u64 left_ns = task_slice_left_ns(t);

	return left_ns ? left_ns : t->slice_ns;
}

/*
 * A member has used its slice, or is put back before its end: its place is computed again. Global,
 * as task_set_running, so that the verifier walks it once.
 */
int task_requeue(struct task_ctx *t NONNULL, u64 now, u32 runs_on)
{
	u32 runqueue = t->runqueue;
	struct runqueue *rq = runqueue_at(runqueue);

	if (rq)
		runqueue_requeue(rq, t, runqueue, hweight_of_task(t->group, t->weight), now,
				 runs_on);
	return 0;
}

/* A member begins to run. */
int task_set_running(struct task_ctx *t NONNULL, u64 now)
{
	u32 runqueue = t->runqueue;
	struct runqueue *rq = runqueue_at(runqueue);

	if (rq)
		runqueue_set_running(rq, t, runqueue, now);
	return 0;
}

/* The queue of a member. */
INLINE u64 task_dsq(struct task_struct *p, struct task_ctx *t, s32 cpu)
{
	if (config.cpus > 1 && p->nr_cpus_allowed == 1 && t->kind != EXT_BACKGROUND)
		return dsq_pinned(cpu, t->kind);
	return (u32)p->nr_cpus_allowed < config.cpus ? dsq_narrow(t->runqueue)
						     : dsq_wide(t->runqueue);
}

/*
 * Puts a member into its queue; at the front, if it has won against the running task and only waits
 * until that one has had a quarter of its slice.
 */
INLINE void enqueue_wait(struct task_struct *p, struct task_ctx *t, s32 cpu, u64 flags, bool front,
			 u64 now)
{
	dsq_insert_vtime(p, task_dsq(p, t, cpu), task_run_ns(t),
			 front ? t->deadline - TG_ENQUEUE_FRONT : t->deadline, flags);
	starvation_watch(now);
}

#endif
