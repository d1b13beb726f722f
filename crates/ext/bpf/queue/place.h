/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where a task goes: an idle CPU, else the CPU whose task it displaces.
 *
 * Idle CPUs are found by the kernel's own search, which goes by what we want: the previous CPU if
 * its whole core is idle, an idle core of its cache, then of its node; then the previous CPU alone,
 * an idle thread of its cache, and so on; a synchronous wakeup may stay beside its waker.
 */
#ifndef TIDEGATE_EXT_PLACE_H
#define TIDEGATE_EXT_PLACE_H

#include "queue/runqueue.h"

/*
 * A task that waits, in the order of a rank (law/latency.h), against what runs on a CPU. A slice
 * that is over ends at the next tick only; until then the running task ranks where its next slice
 * would put it.
 */
enum yields { YIELDS_NOT, YIELDS_SOON, YIELDS_NOW };

INLINE enum yields place_displaces(struct task_ctx *t, struct ext_cpu *c, u64 v, u64 now)
{
	u64 hweight = tg_max(c->hweight, 1), ran_ns = tg_sub0(now, c->since_ns);
	struct tg_latency_rank runs = {
	    .deadline = c->deadline,
	    .hint = c->hint,
	    .eligible = tg_runqueue_eligible(v, c->vruntime + tg_virtual_ns(ran_ns, hweight),
					     tg_virtual_ns(c->slice_ns, hweight)),
	};
	struct tg_latency_rank waits = {
	    .deadline = t->deadline,
	    .hint = t->hint,
	    .eligible = tg_runqueue_eligible(v, t->vruntime, task_slice_v(t)),
	};

	if (!tg_latency_preempts(&runs, &waits) && (!waits.eligible || t->hint > c->hint))
		return YIELDS_NOT;
	/* Equals leave each other alone for a quarter of a slice. */
	if (t->hint < c->hint || tg_sub0(now, c->began_ns) >= c->slice_ns / 4)
		return YIELDS_NOW;
	return YIELDS_SOON;
}

/*
 * The task that runs there gives way to any of main's tasks (that is not of the idle class itself).
 */
INLINE bool place_yields(struct task_ctx *t, struct ext_cpu *c)
{
	return c->kind != EXT_MAIN || ((c->state & EXT_CPU_YIELDS) && !(t->flags & TASK_YIELDS));
}

/* CPUs of a cache that run side work or background. */
INLINE u64 place_soft_cpus(u32 llc)
{
	struct runqueue *side = runqueue_at(runqueue_index(llc, EXT_SIDE));
	struct runqueue *background = runqueue_at(runqueue_index(llc, EXT_BACKGROUND));

	return (side ? side->mean.nr_running : 0) + (background ? background->mean.nr_running : 0);
}

/* The first CPU of a ring that runs side work or background; -1: none. */
s32 place_soft_in(struct task_struct *p TRUSTED, u32 first)
{
	u32 at = first, look;
	s32 found = -1;

	EXT_RCU;
	EXT_FOR(look, config.cpus)
	{
		struct ext_cpu *c = cpu_at(at);

		if (!c)
			break;
		if ((c->state & EXT_CPU_RUNS) && c->kind != EXT_MAIN && !c->need_resched &&
		    !side_is_forced(at) && bpf_cpumask_test_cpu(at, p->cpus_ptr)) {
			found = at;
			break;
		}
		at = c->next_in_llc;
		if (at == first)
			break;
	}
	return found;
}

/*
 * A CPU that runs side work or background, of the nearest cache that has one: main does not wait
 * behind main while side work runs elsewhere (it would until that one's slice is over). -1: none.
 */
s32 place_soft(struct task_struct *p TRUSTED, u32 home)
{
	s32 found = -1;
	u32 step;

	EXT_RCU;
	EXT_FOR(step, config.llcs)
	{
		struct ext_near *near = near_at(home, step);

		if (!near)
			break;
		if (!place_soft_cpus(near->llc))
			continue;
		found = place_soft_in(p, near->first_cpu);
		if (found >= 0)
			break;
	}
	return found;
}

#define PLACE_NONE (-1)
#define PLACE_SOON (-2)

/* The CPU whose task has the latest deadline, of those where `p` may run; else PLACE_NONE, or
 * that CPU as PLACE_SOON - cpu: not yet. */
INLINE s32 place_victim(struct task_struct *p, struct task_ctx *t, s32 from, u64 now)
{
	enum yields yields;
	u64 latest = 0;
	s32 best = -1;
	u32 at = from;
	struct ext_cpu *c;
	struct runqueue *rq = runqueue_at(t->runqueue);

	if (t->kind != EXT_MAIN || !rq)
		return PLACE_NONE;
	for (int look = 0; look < TG_PLACE_SCAN_MAX; look++) {
		c = cpu_at(at);
		if (!c)
			break;
		if ((c->state & EXT_CPU_RUNS) && !c->need_resched && !side_is_forced(at) &&
		    bpf_cpumask_test_cpu(at, p->cpus_ptr)) {
			u64 deadline =
			    place_yields(t, c) ? t->deadline + (1ULL << 62) : c->deadline;

			if (best < 0 || tg_latency_before(latest, deadline)) {
				latest = deadline;
				best = at;
			}
		}
		at = c->next_in_llc;
		if (at == (u32)from)
			break;
	}
	c = best < 0 ? NULL : cpu_at(best);
	if ((config.llcs > 1 || config.cpus > TG_PLACE_SCAN_MAX) && (!c || !place_yields(t, c))) {
		s32 other = place_soft(p, t->llc);

		best = other < 0 ? best : other;
		c = best < 0 ? NULL : cpu_at(best);
	}
	if (!c)
		return PLACE_NONE;
	yields =
	    place_yields(t, c) ? YIELDS_NOW : place_displaces(t, c, tg_runqueue_v(&rq->mean), now);
	if (yields == YIELDS_SOON)
		return PLACE_SOON - best;
	if (yields != YIELDS_NOW)
		return PLACE_NONE;
	c->need_resched = 1;
	return best;
}

/* The same from a timer. Global, so that the verifier walks it once: its rounds for each of the
 * ways that lead here were four fifths of all that it walked (6.18). */
s32 place_victim_once(struct task_struct *p TRUSTED, struct task_ctx *t NONNULL, s32 from, u64 now)
{
	EXT_RCU;

	return place_victim(p, t, from, now);
}

#endif
