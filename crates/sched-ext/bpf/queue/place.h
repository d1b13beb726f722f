/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where a task goes: an idle CPU, else the CPU whose task it displaces.
 *
 * Idle CPUs are found by the kernel's own search, which goes by what we want: the previous CPU if
 * its whole core is idle, an idle core of its cache, then of its node; then the previous CPU alone,
 * an idle thread of its cache, and so on.
 */
#ifndef TIDEGATE_EXT_PLACE_H
#define TIDEGATE_EXT_PLACE_H

#include "queue/runqueue.h"

/*
 * Whether what runs there is compared by its weight. A kernel thread is not: most sleep again soon,
 * and it weighs many times what a task in a group does.
 */
INLINE bool place_compares(struct ext_cpu *c)
{
	return (c->state & (EXT_CPU_RUNS | EXT_CPU_KTHREAD)) == EXT_CPU_RUNS;
}

/*
 * A task that waits, against what runs on a CPU (law/runqueue.h); where that is not compared,
 * against one of nice 0 in the same group. What the running one weighs is looked up again: the
 * waking task may have made it a fraction of what it was.
 */
INLINE enum tg_runqueue_displaces place_displaces(struct task_ctx *t, struct ext_cpu *c,
						  struct runqueue *rq, bool sync, u64 now)
{
	u64 v = tg_runqueue_v(&rq->mean), hweight;
	struct tg_runqueue_task waits = {
	    .vruntime = t->vruntime,
	    .slice_v = task_slice_v(t),
	    .hint = t->hint,
	    .sync = sync,
	};
	struct tg_runqueue_task runs = {
	    .vruntime = v,
	    .slice_v = t->flags & TASK_YIELDS ? 0 : waits.slice_v * t->weight / 1024,
	    .hint = c->state & EXT_CPU_RUNS ? c->hint : 0,
	};

	if (place_compares(c)) {
		hweight = tg_runqueue_feasible(&rq->mean, hweight_now(c->group, c->kind, c->weight),
					       c->hweight, rq->cpus);
		runs.vruntime = c->vruntime + tg_virtual_ns(tg_sub0(now, c->since_ns), hweight);
		runs.slice_v = tg_virtual_ns(c->slice_ns, hweight);
	}
	return tg_runqueue_displaces(v, &waits, &runs, tg_sub0(now, c->began_ns), c->slice_ns);
}

/*
 * The task that runs there gives way to any of main's tasks (that is not of the idle class itself).
 */
INLINE bool place_yields(struct task_ctx *t, struct ext_cpu *c)
{
	return (c->state & EXT_CPU_RUNS) &&
	       (c->kind != EXT_MAIN || ((c->state & EXT_CPU_YIELDS) && !(t->flags & TASK_YIELDS)));
}

/* CPUs of a cache that run side work or background. */
INLINE u64 place_soft_cpus(u32 llc)
{
	struct runqueue *side = runqueue_at(runqueue_index(llc, EXT_SIDE));
	struct runqueue *background = runqueue_at(runqueue_index(llc, EXT_BACKGROUND));

	return (side ? side->mean.nr_running : 0) + (background ? background->mean.nr_running : 0);
}

/* CPUs of a cache that are checked for side work or background. */
#define PLACE_SOFT_SCAN_MAX 256

/* The first CPU of a ring that runs side work or background; -1: none. */
s32 place_soft_in(struct task_struct *p TRUSTED, u32 first)
{
	u32 at = first, look;
	s32 found = -1;

	EXT_RCU;
	EXT_FOR(look, tg_min(config.cpus, PLACE_SOFT_SCAN_MAX))
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
 * A CPU that runs side work or background, of the nearest cache that has one, -1: none. Otherwise a
 * main task could wait for the end of another's slice while side work runs elsewhere.
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

/*
 * From `enqueue`: a main task is put back. It was in no queue while its CPU switched, and another
 * CPU may have found none waiting and begun side work or background: that one chooses again. (One
 * that begins later looks itself: pick_main_again.) Global, so that the verifier walks it once.
 */
int place_again(struct task_struct *p TRUSTED, struct task_ctx *t NONNULL)
{
	struct ext_cpu *c;
	s32 cpu;

	if (t->kind != EXT_MAIN || !place_soft_cpus(t->llc))
		return 0;
	cpu = place_soft(p, t->llc);
	c = cpu < 0 ? NULL : cpu_at(cpu);
	if (!c)
		return 0;
	c->need_resched = 1;
	scx_bpf_kick_cpu(cpu, CONST(scx_kick_flags, SCX_KICK_PREEMPT));
	return 0;
}

/*
 * Where a task goes that is woken by one that is about to sleep: to the waker's CPU, which has what
 * it is woken for in its caches and then looks for a task next (pick_near); if it may not run
 * there, or that CPU is of another cache, to `cpu`, as in any wakeup. In either case it waits in
 * order (TASK_SYNC).
 */
INLINE s32 place_beside(struct task_struct *p, s32 cpu)
{
	s32 here = bpf_get_smp_processor_id();
	struct ext_cpu *c = cpu_at(cpu), *own = cpu_at(here);
	struct task_ctx *t = task_of(p);

	if (t)
		t->flags |= TASK_SYNC;
	if (!c || !own || c->llc != own->llc || cpu_is_offline(here) ||
	    !bpf_cpumask_test_cpu(here, p->cpus_ptr))
		return cpu;
	return here;
}

#define PLACE_NONE (-1)
#define PLACE_SOON (-2)
#define PLACE_LATER (PLACE_SOON - EXT_CPUS_MAX)

/* The CPU of a PLACE_SOON or PLACE_LATER. */
INLINE s32 place_cpu(s32 place)
{
	return (place > PLACE_LATER ? PLACE_SOON : PLACE_LATER) - place;
}

/*
 * Whether the task that ran on a CPU last has left it (for a real-time task, for idle, or in a
 * switch), or is about to: another displaces it.
 */
INLINE bool place_is_left(struct ext_cpu *c)
{
	return c->need_resched || !(c->state & EXT_CPU_RUNS);
}

/* How late a CPU's task is, as a deadline: one that has left is the earliest, one that yields the
 * latest. */
INLINE u64 place_deadline(struct task_ctx *t, struct ext_cpu *c)
{
	if (place_is_left(c))
		return t->deadline - (1ULL << 61);
	return place_yields(t, c) ? t->deadline + (1ULL << 61) : c->deadline;
}

/*
 * The CPU to preempt now: the one whose task has the latest deadline, of those where `p` may run
 * (place_soft comes before it). If that task may not be preempted yet, or has left: PLACE_SOON -
 * cpu (`p` goes first when its safe time, or the turn of what came in its place, is over) or
 * PLACE_LATER - cpu (`p` waits in order for the end of its slice). Otherwise PLACE_NONE. Global, so
 * that the verifier walks its rounds once, and not for each of the ways that lead here.
 */
s32 place_victim(struct task_struct *p TRUSTED, struct task_ctx *t NONNULL, s32 from, bool sync,
		 u64 now)
{
	enum tg_runqueue_displaces displaces;
	u64 latest = 0;
	s32 best = -1;
	u32 at = from, look;
	struct ext_cpu *c;
	struct runqueue *rq = runqueue_at(t->runqueue);
	EXT_RCU;

	if (t->kind != EXT_MAIN || !rq)
		return PLACE_NONE;
	EXT_FOR(look, TG_PLACE_SCAN_MAX)
	{
		c = cpu_at(at);
		if (!c)
			break;
		if (!(place_is_left(c) && place_yields(t, c)) && !side_is_forced(at) &&
		    bpf_cpumask_test_cpu(at, p->cpus_ptr)) {
			u64 deadline = place_deadline(t, c);

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
	if ((config.llcs > 1 || config.cpus > TG_PLACE_SCAN_MAX) && p->nr_cpus_allowed > 1 &&
	    (!c || !place_yields(t, c))) {
		s32 other = place_soft(p, t->llc);

		best = other < 0 ? best : other;
		c = best < 0 ? NULL : cpu_at(best);
	}
	if (!c)
		return PLACE_NONE;
	displaces = place_yields(t, c) ? TG_DISPLACES_NOW : place_displaces(t, c, rq, sync, now);
	if (displaces == TG_DISPLACES_SOON || (displaces == TG_DISPLACES_NOW && place_is_left(c)))
		return PLACE_SOON - best;
	if (displaces == TG_DISPLACES_LATER)
		return PLACE_LATER - best;
	if (displaces != TG_DISPLACES_NOW)
		return PLACE_NONE;
	c->need_resched = 1;
	return best;
}

#endif
