/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a CPU runs next of a kind of work: the task that ran until now, or the first that waits and
 * may start.
 */
#ifndef TIDEGATE_EXT_DISPATCH_H
#define TIDEGATE_EXT_DISPATCH_H

#include "limits/caps.h"
#include "limits/limit.h"
#include "queue/pick.h"
#include "queue/smt_spread.h"

/*
 * Keeps the running task for another slice, if it comes before `other`, the first of those that
 * wait.
 */
INLINE bool keep_running(struct task_struct *prev, struct task_ctx *t, s32 cpu, struct ext_cpu *c,
			 u64 now, u64 other)
{
	u64 run_ns = task_run_ns(t);

	if (other && tg_latency_before(other, t->deadline))
		return false;
	if (config.smt > 1 && !other && smt_spread_wants(prev, t, cpu, now))
		return false;
	if (limits_used)
		run_ns = tg_min(run_ns, limit_bound(prev, t, cpu, now));
	if (t->caps[0])
		run_ns = tg_min(run_ns,
				caps_bound(t, group_exempt(prev), task_reads_rcu(prev), cpu, now));
	if (!run_ns)
		return false;
	set_slice(prev, run_ns);
	/* It may have come to another run queue since it began. */
	task_set_running(t, now);
	cpu_publish(t, c, now);
	if (t->kind != EXT_MAIN)
		pick_main_again(cpu, now);
	return true;
}

/*
 * The first task may be out of reach though it is there (a CPU that goes or comes takes none from
 * elsewhere, a task may be unable to migrate): tasks behind it, in the queues that are this CPU's
 * own, are not to wait for it.
 */
int dispatch_own(s32 cpu, u32 llc, u32 kind, u64 now)
{
	u64 pinned = kind == EXT_BACKGROUND ? dsq_recall(llc) : dsq_pinned(cpu, kind);
	u64 narrow = dsq_narrow(runqueue_index(llc, kind));

	if (config.cpus == 1)
		return 0;
	if (!(limits_used && limit_throttle_first(pinned, cpu, now)) && pick_take(pinned, cpu))
		return 1;
	return !(limits_used && limit_throttle_first(narrow, cpu, now)) && pick_take(narrow, cpu);
}

/*
 * Takes the first that waits, or one that ran last here and comes soon after. Global, so that the
 * verifier walks it once.
 */
u32 dispatch_take(u32 runqueue, u64 dsq, s32 cpu)
{
	return (config.cpus > 1 && runqueue_waiting(runqueue) > 1 && pick_near(dsq, cpu)) ||
	       dsq_move_to_local(dsq);
}

/*
 * Whether the first that waits may be taken as it is: no limit is to be asked, and all that wait in
 * this cache for this CPU are in one order.
 */
INLINE bool dispatch_is_plain(s32 cpu, u32 llc, u32 kind)
{
	if (kind != EXT_MAIN || limits_used || caps_on ||
	    !runqueue_waiting(runqueue_index(llc, kind)))
		return false;
	return config.cpus == 1 || (!scx_bpf_dsq_nr_queued(dsq_pinned(cpu, kind)) &&
				    !scx_bpf_dsq_nr_queued(dsq_narrow(runqueue_index(llc, kind))));
}

/*
 * The first of a kind, of this cache and then of others, or `prev`, which has run until now and
 * could go on; true: a task runs. Global, so that the verifier walks it once and not for each kind.
 */
u32 dispatch_kind(s32 cpu, struct task_struct *prev TRUSTED NULLABLE, struct task_ctx *t, u32 kind,
		  u64 now)
{
	struct ext_cpu *c = cpu_at(cpu);
	u32 attempt, runqueue;

	if (!c)
		return false;
	runqueue = runqueue_index(c->llc, kind);
	if (config.llcs > 1 && pick_balance(cpu, c->llc, kind, !t || t->kind != kind, now))
		return true;
	if (c->hidden_dsq)
		pick_sort(cpu);
	if (kind == EXT_MAIN && now >= c->reweigh_ns)
		pick_reweigh_head(cpu, now);
	if (!prev && dispatch_is_plain(cpu, c->llc, kind) &&
	    dispatch_take(runqueue, dsq_wide(runqueue), cpu))
		return true;
	/* Another CPU may take the first away between look and move: then the next is looked at. */
	EXT_FOR(attempt, 4)
	{
		struct first first = pick_head(cpu, c, kind);

		if (prev && t && t->kind == kind &&
		    keep_running(prev, t, cpu, c, now, first.deadline))
			return true;
		if (!first.deadline)
			break;
		if (limits_used && limit_throttle_first(first.dsq, cpu, now))
			continue;
		if (caps_on && caps_throttle_first(first.dsq, cpu, kind, now))
			continue;
		if (dispatch_take(runqueue, first.dsq, cpu) || dispatch_own(cpu, c->llc, kind, now))
			return true;
	}
	return config.llcs > 1 && pick_steal(cpu, c->llc, kind);
}

#endif
