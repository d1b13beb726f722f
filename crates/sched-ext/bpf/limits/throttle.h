/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Throttled tasks: runnable to the kernel, kept from running by a quota or a hard cap.
 *
 *	ON_RQ --throttle_enqueue (own CPU) / throttle_queued (any CPU)--> THROTTLED
 *	THROTTLED --unthrottle (a timer)--> ON_RQ
 *
 * A throttled task waits in a dispatch queue of its limit or cache. It is no member of a run queue,
 * has no active weight, and keeps its lag.
 *
 * Lock order: throttle_queued and unthrottle do not hold the task's run queue lock of the kernel's.
 * Of two CPUs that would take it out or in one does (enum on_rq), and a move between dispatch
 * queues that comes too late changes nothing. A member that is left in the wrong queue by that is
 * put right by the next CPU that comes across it.
 *
 * The watchdog ejects a scheduler that leaves one runnable task alone for 30 s. Queues of throttled
 * tasks are ordered by last run; a task that has not run for STARVATION_NS runs for MIN_RUNTIME_NS
 * whatever throttles it. One that waits inside the kernel runs sooner (in_kernel.h).
 */
#ifndef TIDEGATE_EXT_THROTTLE_H
#define TIDEGATE_EXT_THROTTLE_H

#include "queue/enqueue.h"
#include "timers/slice_timer.h"

#define STARVATION_NS 10000000000ULL
#define MIN_RUNTIME_NS 50000ULL

/*
 * A task that was preempted while it reads under RCU holds up the whole machine's grace period, and
 * after 21 s of that the kernel ejects the scheduler ("RCU CPU stall"). It goes on, a least run at
 * a time, until it is out.
 */
INLINE bool task_reads_rcu(struct task_struct *p)
{
	return __builtin_preserve_field_info(p->rcu_read_unlock_special, 2) &&
	       p->rcu_read_unlock_special.b.blocked;
}

/*
 * Puts a task's weight right until it agrees with its state, after a change of the state that raced
 * with another CPU's: each is a word of its own, and the CPU that has taken the task may have
 * counted the weight before it was taken away here, and be done with the task by now. Global, so
 * that the verifier walks it once.
 */
int throttle_settle_weight(struct task_ctx *t NONNULL)
{
	for (int race = 0; race < TASK_RACES_MAX; race++) {
		if (task_on_rq(t)) {
			if (!hweight_activate(t, t->kind))
				break;
		} else {
			if (!*(volatile u64 *)&t->active_entry)
				break;
			hweight_deactivate(t);
		}
	}
	return 0;
}

u32 throttle_deactivate(struct task_ctx *t NONNULL)
{
	if (!runqueue_deactivate(t, t->runqueue, THROTTLED, now_ns()))
		return t->on_rq == THROTTLED;
	throttle_settle_weight(t);
	return true;
}

/* From `enqueue`: throttles a task instead of putting it into its run queue's queue. */
INLINE void throttle_enqueue(struct task_struct *p, struct task_ctx *t, u64 dsq)
{
	throttle_deactivate(t);
	dsq_insert_vtime(p, dsq, config.slice_ns, t->since_ns, 0);
}

/* From `dispatch`: throttles one that waits in the queue that `it` goes through. */
INLINE bool throttle_queued(struct bpf_iter_scx_dsq *it, struct task_struct *p, struct task_ctx *t,
			    u64 dsq)
{
	return throttle_deactivate(t) && dsq_move_vtime(it, p, dsq, t->since_ns);
}

/* It competes again. False: it is gone. Global, so that the verifier walks it once. */
u32 unthrottle_activate(struct task_ctx *t NONNULL)
{
	bool activated = hweight_activate(t, t->kind);

	if (runqueue_activate(t, t->runqueue, hweight_of_task(t->group, t->kind, t->weight),
			      ACTIVATE_THROTTLED, now_ns()) ||
	    task_on_rq(t))
		return true;
	if (activated)
		hweight_deactivate(t);
	return false;
}

/*
 * From a timer: back into its run queue's queue; at the front for a least run. False: it is gone.
 */
INLINE bool unthrottle_queued(struct bpf_iter_scx_dsq *it, struct task_struct *p,
			      struct task_ctx *t, s32 cpu)
{
	return unthrottle_activate(t) &&
	       dsq_move_vtime(it, p, task_dsq(p, t, cpu),
			      t->deadline - (t->min_runtime_ns ? TG_ENQUEUE_FRONT : 0));
}

/* Whether it has not run for so long that it must, for the watchdog. */
INLINE bool task_starved(struct task_ctx *t, u64 now)
{
	return tg_sub0(now, t->since_ns) >= STARVATION_NS;
}

/* Whether the first of a queue of throttled tasks is to be let go whatever its limit has. */
u32 throttled_due(u64 dsq, u64 now)
{
	struct bpf_iter_scx_dsq it;
	u32 more = false;
	EXT_RCU;

	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		struct task_struct *p = bpf_iter_scx_dsq_next(&it);
		struct task_ctx *t = p ? task_of(p) : NULL;

		more = p && t && (group_exempt(p) || task_starved(t, now));
	}
	bpf_iter_scx_dsq_destroy(&it);
	return more;
}

/* A CPU for a task that has been released: an idle one, else one whose task it displaces. */
INLINE void unthrottle_kick(struct task_struct *p, struct task_ctx *t, s32 cpu, u64 now)
{
	s32 to = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);

	if (to >= 0) {
		scx_bpf_kick_cpu(to, CONST(scx_kick_flags, SCX_KICK_IDLE));
		return;
	}
	to = place_victim(p, t, cpu, false, now);
	if (to >= 0)
		scx_bpf_kick_cpu(to, CONST(scx_kick_flags, SCX_KICK_PREEMPT));
}

/* From a timer: a throttled task may run. */
INLINE void unthrottle(struct bpf_iter_scx_dsq *it, struct task_struct *p, struct task_ctx *t,
		       u64 now)
{
	s32 cpu = scx_bpf_task_cpu(p);

	if (unthrottle_queued(it, p, t, cpu))
		unthrottle_kick(p, t, cpu, now);
}

#endif
