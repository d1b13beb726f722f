/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tasks come to compete, wait, and go.
 *
 *	OFF_RQ --task_activate--> ON_RQ: waits <--> runs --task_deactivate--> OFF_RQ
 *
 * From `enqueue` (`running`, where an idle CPU took it at once) to `quiescent` a task is a member
 * of one run queue, that of its kind in the cache where it was last put. It waits in a dispatch
 * queue of that run queue (core/dsq.h), by deadline: `wide` if it may run on as many CPUs as are on
 * line, `narrow` if on fewer (a CPU may have to pass over some), `pinned` if it may run on one CPU
 * only.
 */
#ifndef TIDEGATE_EXT_ENQUEUE_H
#define TIDEGATE_EXT_ENQUEUE_H

#include "core/group.h"
#include "queue/charge.h"
#include "queue/place.h"
#include "timers/starvation_timer.h"

/* Begins to compete on a CPU's cache; `how`: ACTIVATE_RUNS or 0. */
INLINE void task_activate(struct task_struct *p, struct task_ctx *t, s32 cpu, u32 how)
{
	struct ext_cpu *c = cpu_at(cpu);
	u32 kind = task_describe(p, t), runqueue = runqueue_index(c ? c->llc : 0, kind);
	u64 now = now_ns();

	t->slice_ns = config.slice_ns;
	hweight_activate(t, kind);
	/*
	 * One that is only queued again (another CPU, nice level, group) has waited since before,
	 * by the watchdog's clock, too.
	 */
	if (!t->since_ns)
		t->since_ns = now;
	if (!runqueue_activate(t, runqueue, hweight_of_task(t->group, kind, t->weight), how, now) &&
	    !runqueue_at(runqueue))
		ext_missing(TABLE_RUNQUEUES, runqueue);
	/* A CPU that had throttled it took its weight away after it was counted above. */
	if (!*(volatile u64 *)&t->active_entry)
		hweight_activate(t, t->kind);
}

/* Changes of state by other CPUs that a dequeue may meet: one lets a throttled task go, another
 * throttles it. */
#define TASK_RACES_MAX 4

/* Out of its run queue, or its throttled state. Global, so that the verifier walks it once. */
int task_take_off_rq(struct task_ctx *t NONNULL, u64 now)
{
	for (int race = 0; race < TASK_RACES_MAX; race++) {
		u32 on_rq = *(volatile u32 *)&t->on_rq;

		if (on_rq == OFF_RQ)
			break;
		if (on_rq == THROTTLED) {
			if (__sync_bool_compare_and_swap(&t->on_rq, THROTTLED, OFF_RQ))
				break;
			continue;
		}
		if (runqueue_deactivate(t, on_rq - ON_RQ, OFF_RQ, now))
			break;
	}
	return 0;
}

/* No longer competes. */
INLINE void task_deactivate(struct task_ctx *t)
{
	task_take_off_rq(t, now_ns());
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
	task_activate(p, t, cpu, 0);
	return 0;
}

/* Moves a member to another run queue; its lag and the rest of its slice go along. */
int task_migrate(struct task_ctx *t NONNULL, u32 llc, u32 kind)
{
	u64 left_ns = task_slice_left_ns(t), now = now_ns();
	u32 runqueue = t->runqueue, next = runqueue_index(llc, kind);
	struct runqueue *to = runqueue_at(next);
	bool runs = t->running_since_ns;

	if (!to || !runqueue_deactivate(t, runqueue, OFF_RQ, now))
		return 0;
	runqueue_activate(t, next, t->kind == kind ? t->hweight : hweight_set_kind(t, kind), 0,
			  now);
	if (left_ns) {
		t->end = t->vruntime + tg_virtual_ns(left_ns, t->hweight);
		t->deadline = task_deadline(tg_runqueue_v(&to->mean), t, task_slice_v(t));
	}
	if (runs)
		runqueue_set_running(to, t, next, now);
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
	return runqueue_requeue(t, t->runqueue, hweight_of_task(t->group, t->kind, t->weight), now,
				runs_on);
}

/* A member begins to run. True: it is so light that its slice is to end on time. */
int task_set_running(struct task_ctx *t NONNULL, u64 now)
{
	u32 runqueue = t->runqueue;
	struct runqueue *rq = runqueue_at(runqueue);

	if (!rq)
		return false;
	runqueue_set_running(rq, t, runqueue, now);
	return t->kind == EXT_MAIN && tg_runqueue_is_light(&rq->mean, t->hweight);
}

/* The queue of a member. */
INLINE u64 task_dsq(struct task_struct *p, struct task_ctx *t, s32 cpu)
{
	if (t->kind == EXT_BACKGROUND && t->ready_ns != TG_CAP_NEVER)
		return dsq_recall(t->llc);
	if (config.cpus > 1 && p->nr_cpus_allowed == 1 && t->kind != EXT_BACKGROUND)
		return dsq_pinned(cpu, t->kind);
	return (u32)p->nr_cpus_allowed < cpus_online ? dsq_narrow(t->runqueue)
						     : dsq_wide(t->runqueue);
}

/*
 * Puts a member into its queue; at the front, if it has won against the running task and only waits
 * until that one has run undisturbed.
 */
INLINE void enqueue_wait(struct task_struct *p, struct task_ctx *t, s32 cpu, u64 flags, bool front,
			 u64 now)
{
	dsq_insert_vtime(p, task_dsq(p, t, cpu), task_run_ns(t),
			 front ? t->deadline - TG_ENQUEUE_FRONT : t->deadline, flags);
	starvation_watch(now);
}

/*
 * Whether a woken thread of the kernel's own, of this one CPU, goes before all that wait: others
 * wait for it. The kernel calls `dispatch` only when the CPU's own queue is empty, so one that has
 * had its share, or is put back, waits with the others: two busy ones would keep the CPU for good.
 */
INLINE bool enqueue_kthread(struct task_struct *p, struct task_ctx *t)
{
	struct runqueue *rq;

	if (config.cpus == 1 || p->nr_cpus_allowed != 1 || !(p->flags & PF_KTHREAD))
		return false;
	rq = runqueue_at(t->runqueue);
	return rq && tg_runqueue_eligible(tg_runqueue_v(&rq->mean), t->vruntime, task_slice_v(t));
}

#endif
