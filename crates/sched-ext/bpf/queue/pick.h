/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The next task of a CPU: the earliest of the first tasks of its queues, else one of another cache.
 */
#ifndef TIDEGATE_EXT_PICK_H
#define TIDEGATE_EXT_PICK_H

#include "queue/enqueue.h"
#include "timers/slice_timer.h"

/* Side work or background that begins beside a waiting main task is stopped after this. */
#define PICK_MAIN_AGAIN_NS 20000ULL

INLINE u32 pick_scan_max(u32 kind)
{
	return kind == EXT_BACKGROUND ? TG_PICK_BACKGROUND_SCAN_MAX : TG_PICK_SCAN_MAX;
}

/*
 * Whether a queue holds main or side work of a CPU's own cache that may run on several CPUs. (Tasks
 * in `wide` may run on as many as are on line, but not on all of those if some of theirs are
 * offline.)
 */
INLINE bool pick_sorts(struct ext_cpu *c, u64 dsq)
{
	u32 runqueue = dsq_index(dsq), type = dsq >> DSQ_TYPE_SHIFT;

	return (type == DSQ_WIDE || type == DSQ_NARROW) && runqueue / EXT_KINDS == c->llc &&
	       runqueue % EXT_KINDS != EXT_BACKGROUND;
}

/*
 * The deadline of the first in a queue that may run on a CPU; 0: there is none, or (hidden_dsq)
 * none within reach. Global, as pick_steal, so that the verifier walks it once and not for every
 * way that leads there.
 */
u64 pick_first(u64 dsq, s32 cpu, u32 scan_max)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	struct ext_cpu *c = cpu_at(cpu);
	u64 deadline = 0;
	u32 scanned;

	EXT_RCU;
	if (scx_bpf_dsq_peek) {
		p = scx_bpf_dsq_peek(dsq);
		if (!p)
			return 0;
		if (bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			return p->scx.dsq_vtime;
	} else if (!scx_bpf_dsq_nr_queued(dsq)) {
		return 0;
	}
	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		EXT_FOR(scanned, scan_max)
		{
			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			if (bpf_cpumask_test_cpu(cpu, p->cpus_ptr)) {
				deadline = p->scx.dsq_vtime;
				break;
			}
		}
		if (p && !deadline && c && pick_sorts(c, dsq))
			c->hidden_dsq = dsq;
	}
	bpf_iter_scx_dsq_destroy(&it);
	return deadline;
}

/*
 * From `dispatch`: the first tasks of a queue for several CPUs that may not run on this one go into
 * the queues of the CPUs where they were last, in the same order, so that the next pick sees those
 * behind them. Put back after a run, they come to the queue for several CPUs again.
 */
int pick_sort(s32 cpu)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	struct ext_cpu *c = cpu_at(cpu);
	u64 dsq = c ? c->hidden_dsq : 0;
	u32 scanned, kind;

	EXT_RCU;
	if (!c || !dsq)
		return 0;
	c->hidden_dsq = 0;
	kind = dsq_index(dsq) % EXT_KINDS;
	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		EXT_FOR(scanned, TG_PICK_SCAN_MAX)
		{
			p = bpf_iter_scx_dsq_next(&it);
			if (!p || bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
				break;
			dsq_move_vtime(&it, p, dsq_pinned(scx_bpf_task_cpu(p), kind),
				       p->scx.dsq_vtime);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return 0;
}

/* Whether it is under no quota and no cap: no limit is to be asked. */
INLINE bool pick_is_free(struct task_ctx *t)
{
	return !(limits_used && group_limit(t->group, t->group_id)) && !(caps_on && t->caps[0]);
}

/*
 * Takes a task that ran last on this CPU, or was put there, before the first of a queue
 * (tg_runqueue_is_near). False: the first is the one. Global, so that the verifier walks it once.
 */
u32 pick_near(u64 dsq, s32 cpu)
{
	struct bpf_iter_scx_dsq it;
	u64 first = 0, first_slice_v = 0;
	u32 scanned, taken = false;

	EXT_RCU;
	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		EXT_FOR(scanned, TG_PICK_NEAR_SCAN_MAX)
		{
			struct task_struct *p = bpf_iter_scx_dsq_next(&it);
			struct task_ctx *t = p ? task_of(p) : NULL;

			if (!t)
				break;
			if (!scanned) {
				first = p->scx.dsq_vtime;
				first_slice_v = task_slice_v(t);
			}
			if (scx_bpf_task_cpu(p) != cpu)
				continue;
			if (scanned && pick_is_free(t) &&
			    tg_runqueue_is_near(first, p->scx.dsq_vtime, first_slice_v,
						task_slice_v(t)))
				taken = dsq_move(&it, p, SCX_DSQ_LOCAL);
			break;
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return taken;
}

/*
 * Puts the first task in a queue that may run on a CPU in order again, if what it weighs has
 * changed by much. False: it stays the first. One that was put at the front stays there.
 */
int pick_reweigh(u64 dsq, s32 cpu, u64 now)
{
	struct bpf_iter_scx_dsq it;
	int moved = 0;
	u32 scanned;

	EXT_RCU;
	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		EXT_FOR(scanned, TG_PICK_SCAN_MAX)
		{
			struct task_struct *p = bpf_iter_scx_dsq_next(&it);
			struct task_ctx *t;
			struct runqueue *rq;
			u64 hweight;

			if (!p)
				break;
			if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
				continue;
			t = task_of(p);
			if (!t || p->scx.dsq_vtime != t->deadline)
				break;
			hweight = hweight_now(t->group, t->kind, t->weight);
			rq = runqueue_at(t->runqueue);
			if (rq)
				hweight = runqueue_feasible(rq, t, hweight, t->hweight);
			if (rq && tg_runqueue_reweighs(t->hweight, hweight) &&
			    runqueue_reweigh(rq, t, t->runqueue, hweight, now))
				moved = dsq_move_vtime(&it, p, dsq, t->deadline);
			break;
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return moved;
}

/*
 * Whether nothing waits. With limits the queues are looked at instead: a task that one CPU
 * throttles while another runs it may lie in a queue uncounted. Global, so that the verifier walks
 * it once.
 */
__attribute__((noinline)) u32 pick_none_waits(u32 runqueue)
{
	return !limits_used && !caps_on && !runqueue_waiting(runqueue);
}

struct first {
	u64 dsq;
	u64 deadline; /* 0: none waits */
};

INLINE void pick_earlier(struct first *first, u64 dsq, s32 cpu, u32 kind)
{
	u64 deadline = pick_first(dsq, cpu, pick_scan_max(kind));

	if (deadline && (!first->deadline || tg_latency_before(deadline, first->deadline))) {
		first->deadline = deadline;
		first->dsq = dsq;
	}
}

/* The first of the tasks that wait for a CPU in its own cache. */
INLINE struct first pick_head(s32 cpu, struct ext_cpu *c, u32 kind)
{
	struct first first = {};
	u32 runqueue = runqueue_index(c->llc, kind);

	if (pick_none_waits(runqueue))
		return first;
	if (config.cpus > 1) {
		pick_earlier(&first, dsq_pinned(cpu, kind), cpu, kind);
		pick_earlier(&first, dsq_narrow(runqueue), cpu, kind);
	}
	pick_earlier(&first, dsq_wide(runqueue), cpu, kind);
	if (kind == EXT_BACKGROUND)
		pick_earlier(&first, dsq_recall(c->llc), cpu, kind);
	return first;
}

/*
 * Side work or background begins, or goes on, on a CPU that found no main task. A task that another
 * CPU was putting back at that moment, or that woke up, was in no queue yet and saw no CPU that
 * yields: it would wait for the tick. So the CPU looks once more, now that others see what it runs.
 * Global, so that the verifier walks it once.
 */
int pick_main_again(s32 cpu, u64 now)
{
	struct ext_cpu *c = cpu_at(cpu);

	if (c && config.cpus > 1 && !side_is_forced(cpu) && pick_head(cpu, c, EXT_MAIN).deadline)
		slice_timer_set(cpu, now + PICK_MAIN_AGAIN_NS, now);
	return 0;
}

/*
 * Main's tasks that come first with a weight of long ago, looked at now and then (reweigh_ns).
 * Global, so that the verifier walks it once.
 */
int pick_reweigh_head(s32 cpu, u64 now)
{
	struct ext_cpu *c = cpu_at(cpu);
	u32 look;

	if (!c)
		return 0;
	c->reweigh_ns = now + TG_PICK_REWEIGH_NS;
	EXT_FOR(look, TG_PICK_REWEIGH_MAX)
	{
		struct first first = pick_head(cpu, c, EXT_MAIN);

		if (!first.deadline || !pick_reweigh(first.dsq, cpu, now))
			break;
	}
	return 0;
}

/* CPUs of a cache that serve a kind of work: all of them main, and what it leaves the others. */
INLINE u64 pick_serving(struct runqueue *rq, u32 kind)
{
	return kind == EXT_MAIN ? rq->cpus : rq->mean.nr_running;
}

/* Takes a task that is within reach: the kernel would pass over all that may not run here. */
u32 pick_take(u64 dsq, s32 cpu)
{
	return pick_first(dsq, cpu, TG_PICK_SCAN_MAX) && dsq_move_to_local(dsq);
}

/*
 * Takes the first task of another cache's queue that may run on a CPU, if that evens out what their
 * CPUs have to do. Global, so that the verifier walks it once.
 */
u32 pick_pull(u64 dsq, s32 cpu, u32 own_runqueue, u32 runqueue, u32 joins)
{
	struct runqueue *own = runqueue_at(own_runqueue), *busiest = runqueue_at(runqueue);
	struct bpf_iter_scx_dsq it;
	u32 kind = runqueue % EXT_KINDS, scanned, pulls = 0;

	EXT_RCU;
	if (!own || !busiest)
		return 0;
	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		EXT_FOR(scanned, TG_PICK_SCAN_MAX)
		{
			struct task_struct *p = bpf_iter_scx_dsq_next(&it);
			struct task_ctx *t;

			if (!p)
				break;
			if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
				continue;
			t = task_of(p);
			pulls = t && tg_runqueue_pulls(
					 own->mean.weights, pick_serving(own, kind) + joins,
					 busiest->mean.weights, pick_serving(busiest, kind),
					 tg_runqueue_weight(t->hweight));
			break;
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return pulls && dsq_move_to_local(dsq);
}

/*
 * Now and then a CPU pulls a waiting task from the cache that has most to do for each CPU;
 * `joins`: it has not run this kind of work until now.
 */
int pick_balance(s32 cpu, u32 home, u32 kind, u32 joins, u64 now)
{
	u32 own_runqueue = runqueue_index(home, kind), runqueue, step, from = home;
	struct runqueue *own = runqueue_at(own_runqueue);
	u64 most = 0;

	if (!own || now < own->balance_ns)
		return 0;
	own->balance_ns = now + TG_PICK_BALANCE_NS;
	EXT_FOR(step, config.llcs - 1)
	{
		struct ext_near *near = near_at(home, step + 1);
		u32 llc = near ? near->llc : home;
		struct runqueue *rq = runqueue_at(runqueue_index(llc, kind));
		u64 load = rq ? tg_runqueue_load(rq->mean.weights, pick_serving(rq, kind)) : 0;

		from = tg_if_less(most, load, llc, from);
		most = tg_max(most, load);
	}
	if (from == home)
		return 0;
	runqueue = runqueue_index(from, kind);
	joins = joins && kind != EXT_MAIN;
	/* Those that may not run anywhere may yet run here. */
	return pick_pull(dsq_wide(runqueue), cpu, own_runqueue, runqueue, joins) ||
	       pick_pull(dsq_narrow(runqueue), cpu, own_runqueue, runqueue, joins) ||
	       (kind == EXT_BACKGROUND &&
		pick_pull(dsq_recall(from), cpu, own_runqueue, runqueue, joins));
}

/* Takes a task of a kind out of another cache's queues, the nearest first. */
u32 pick_steal(s32 cpu, u32 home, u32 kind)
{
	u32 step;

	EXT_FOR(step, config.llcs - 1)
	{
		struct ext_near *near = near_at(home, step + 1);
		u32 llc = near ? near->llc : home, runqueue = runqueue_index(llc, kind);

		if (kind == EXT_BACKGROUND && pick_take(dsq_recall(llc), cpu))
			return true;
		if (pick_take(dsq_wide(runqueue), cpu) || pick_take(dsq_narrow(runqueue), cpu))
			return true;
	}
	return false;
}

#endif
