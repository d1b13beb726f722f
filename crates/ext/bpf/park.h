/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Parked: runnable as the kernel sees it, but kept from running, and out of the competition.
 *
 * A parked task waits in a queue of the kernel's, not in its line: it is no member, has no weight
 * in the tree, and its lag is kept. It is parked when it is put in (by its own CPU), or by a CPU
 * that would take it out of its line's queue; it is released by a timer. The latter two do not hold
 * its run queue's lock: its place changes under its line's lock, so of two who would take it out or
 * in one does, and a move between queues that comes too late changes nothing. What may be left
 * behind then, a member that is in the wrong queue, is found and set right by whoever comes across
 * it next.
 *
 * The watchdog ejects a scheduler that leaves one runnable task alone for 30 s. Queues of parked
 * tasks are in the order of who has not run for longest; whoever has not for PARK_PATIENCE_NS runs
 * for PARK_VISIT_NS whatever keeps it (a visit). Who waits inside the kernel has his sooner
 * (grace.h).
 */
#ifndef TIDEGATE_EXT_PARK_H
#define TIDEGATE_EXT_PARK_H

#include "alarm.h"
#include "door.h"

#define PARK_PATIENCE_NS 10000000000ULL
#define PARK_VISIT_NS 50000ULL

/* Exiting tasks, those that are being killed, and the kernel's own are not kept from running. */
INLINE bool park_exempt(struct task_struct *p)
{
	return group_exempt(p);
}

/*
 * A task that was preempted while it reads under RCU holds up the whole machine's grace period, and
 * after 21 s of that the kernel ejects the scheduler ("RCU CPU stall"). It goes on, a visit at a
 * time, until it is out.
 */
INLINE bool park_reads(struct task_struct *p)
{
	return __builtin_preserve_field_info(p->rcu_read_unlock_special, 2) &&
	       p->rcu_read_unlock_special.b.blocked;
}

INLINE bool park_leave(struct task_ctx *t)
{
	u32 line = t->line;
	struct line *l = line_at(line);

	if (!l || !line_leave(l, t, line, PLACE_PARKED, now_ns()))
		return t->place == PLACE_PARKED;
	tree_deactivate(t);
	return true;
}

/* From `enqueue`: parks a task instead of putting it into its line's queue. */
INLINE void park_put(struct task_struct *p, struct task_ctx *t, u64 dsq)
{
	park_leave(t);
	dsq_insert_vtime(p, dsq, config.slice_ns, t->since_ns, 0);
}

/* From `dispatch`: parks one that waits in the queue that `it` goes through. */
INLINE bool park_waiting(struct bpf_iter_scx_dsq *it, struct task_struct *p, struct task_ctx *t,
			 u64 dsq)
{
	return park_leave(t) && dsq_move_vtime(it, p, dsq, t->since_ns);
}

/* From a timer: back into its line's queue; at the front for a visit. False: it is gone. */
INLINE bool park_release(struct bpf_iter_scx_dsq *it, struct task_struct *p, struct task_ctx *t,
			 s32 cpu)
{
	bool counted = tree_activate(t);
	struct line *l = line_at(t->line);

	if (!l || (!line_join(l, t, tree_flat(t->group, t->weight), true, now_ns()) &&
		   t->place != PLACE_MEMBER)) {
		if (counted)
			tree_deactivate(t);
		return false;
	}
	return dsq_move_vtime(it, p, door_queue(p, t, cpu),
			      t->deadline - (t->floor ? DOOR_FRONT : 0));
}

/* Whether it has not run for so long that it must be visited. */
INLINE bool park_due(struct task_ctx *t, u64 now)
{
	return tg_sub0(now, t->since_ns) >= PARK_PATIENCE_NS;
}

/* Whether the first of a queue of parked tasks is to be let go whatever its limit has. */
u32 park_more(u64 dsq, u64 now)
{
	struct bpf_iter_scx_dsq it;
	u32 more = false;
	EXT_RCU;

	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		struct task_struct *p = bpf_iter_scx_dsq_next(&it);
		struct task_ctx *t = p ? task_of(p) : NULL;

		more = p && t && (park_exempt(p) || park_due(t, now));
	}
	bpf_iter_scx_dsq_destroy(&it);
	return more;
}

/* A CPU for a task that has been released: an idle one, else one whose task it displaces. */
INLINE void park_call(struct task_struct *p, struct task_ctx *t, s32 cpu, u64 now)
{
	s32 to = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);

	if (to >= 0) {
		scx_bpf_kick_cpu(to, CONST(scx_kick_flags, SCX_KICK_IDLE));
		return;
	}
	to = place_victim_once(p, t, cpu, now);
	if (to >= 0)
		scx_bpf_kick_cpu(to, CONST(scx_kick_flags, SCX_KICK_PREEMPT));
}

/* From a timer: a parked task may run. */
INLINE void park_let_go(struct bpf_iter_scx_dsq *it, struct task_struct *p, struct task_ctx *t,
			u64 now)
{
	s32 cpu = scx_bpf_task_cpu(p);

	if (park_release(it, p, t, cpu))
		park_call(p, t, cpu, now);
}

#endif
