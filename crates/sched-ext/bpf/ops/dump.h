/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The scheduler's part of the kernel's dump at an ejection (or at sysrq-D).
 *
 *	dump		headroom and side CPUs; each cache's run queues; limits out of quota
 *	dump_cpu	what a CPU runs, and what waits for it alone
 *	dump_task	a runnable task: its class, its place in the order, what it waits for
 *
 * No lock is taken: the CPU that is dumped may hold it. What is read may be a change old.
 */
#ifndef TIDEGATE_EXT_DUMP_H
#define TIDEGATE_EXT_DUMP_H

#include "limits/caps.h"
#include "ops/group_ops.h"
#include "side/side_cpus.h"

/* Limits that are shown; the dump's length is bounded. */
#define DUMP_LIMITS_MAX 32

static const char dump_kinds[EXT_KINDS][12] = {"main", "side", "background"};

u32 dump_limits_told; /* in this dump, where the loop keeps it */

/* A kind of work's name, as a value for %s. */
INLINE u64 dump_kind(u32 kind)
{
	return (u64)(long)dump_kinds[kind < EXT_KINDS ? kind : EXT_MAIN];
}

INLINE void dump_headroom(void)
{
	struct tg_headroom_decision *d = &headroom.decision;

	if (!headroom_on) {
		DUMP("headroom: not kept, there is no side work", 0);
		return;
	}
	DUMP("headroom: allowance %llu ucpu, floor %llu, machine %llu; idle %llu, asked %llu",
	     d->allowance_ucpu, d->floor_ucpu, d->capacity_ucpu, d->idle_ucpu, d->asked_ucpu);
	DUMP("side CPUs: %d held, %d allowed; %d side tasks, credit %lld ns, owed %lld ns",
	     nr_side_cpus, side_cpus_allowed, side_members, headroom.credit.credit_ns,
	     headroom.credit.owed_ns);
}

/* Global, as those below, so that the verifier walks it once. */
int dump_cache(u32 llc, u64 now)
{
	struct cap_timer *timer = cap_timer_at(llc);
	s32 held = scx_bpf_dsq_nr_queued(dsq_cap_throttled(llc));
	s32 recall = scx_bpf_dsq_nr_queued(dsq_recall(llc));
	u32 kind;

	EXT_FOR(kind, EXT_KINDS)
	{
		u32 index = runqueue_index(llc, kind);
		struct runqueue *rq = runqueue_at(index);

		if (!rq || (kind != EXT_MAIN && !tg_runqueue_members(&rq->mean)))
			continue;
		DUMP("cache %d %s: V %llu, %d tasks, %llu run; wait: %d wide, %d narrow", llc,
		     dump_kind(kind), tg_runqueue_v(&rq->mean), tg_runqueue_members(&rq->mean),
		     rq->mean.nr_running, scx_bpf_dsq_nr_queued(dsq_wide(index)),
		     scx_bpf_dsq_nr_queued(dsq_narrow(index)));
	}
	if (recall > 0)
		DUMP("cache %d: %d tasks out of a soft cap", llc, recall);
	if (timer && held > 0)
		DUMP("cache %d: %d tasks out of a hard cap, timer due in %lld ns", llc, held,
		     timer->armed_ns ? (s64)(timer->armed_ns - now) : 0);
	return 0;
}

/* One that keeps tasks from running. */
int dump_limit(u32 at, u64 now)
{
	struct limit *l = limit_at(at);
	s32 waiting;

	if (!l || !l->used || dump_limits_told >= DUMP_LIMITS_MAX)
		return 0;
	waiting = scx_bpf_dsq_nr_queued(dsq_throttled(at));
	if (waiting <= 0 && !l->pool.throttled)
		return 0;
	dump_limits_told++;
	DUMP("quota of cgroup %llu: %lld ns left, %d CPUs throttled, %d tasks wait, refill in %lld "
	     "ns",
	     l->group_id, l->pool.runtime_ns, l->pool.throttled, waiting,
	     (s64)(l->pool.turnover_ns - now));
	return 0;
}

/* Arguments: struct scx_dump_ctx *to */
OPS(dump)
int dump(u64 *ctx)
{
	u64 now = now_ns();
	u32 llc, limit;

	dump_headroom();
	EXT_FOR(llc, config.llcs)
	{
		dump_cache(llc, now);
	}
	dump_limits_told = 0;
	EXT_FOR(limit, limits_used)
	{
		dump_limit(limit + 1, now);
	}
	return 0;
}

/* Arguments: struct scx_dump_ctx *to, s32 cpu, bool idle */
OPS(dump_cpu)
int dump_cpu(u64 *ctx)
{
	s32 cpu = (s32)ctx[1];
	struct ext_cpu *c = cpu_at(cpu);
	struct cpu_time *s = cpu_time_at(cpu);
	s32 main = scx_bpf_dsq_nr_queued(dsq_pinned(cpu, EXT_MAIN));
	s32 side = scx_bpf_dsq_nr_queued(dsq_pinned(cpu, EXT_SIDE));

	if (!c || !s || (!(c->state & EXT_CPU_RUNS) && main <= 0 && side <= 0))
		return 0;
	DUMP("tidegate: %s, runs a task: %d, side CPU: %d, at main's cost: %d, offline: %d",
	     dump_kind(c->kind), c->state & EXT_CPU_RUNS, s->side_cpu, s->forced, s->offline);
	DUMP("tidegate: pinned: %d main, %d side", main, side);
	return 0;
}

/* Why a task that is runnable does not run. */
INLINE void dump_wait(struct task_ctx *t, u64 now)
{
	u64 waited_us = t->since_ns ? tg_sub0(now, t->since_ns) / 1000 : 0;
	u64 reserved = t->reserved;
	struct group *g = group_at(t->group);
	struct limit *l = g ? limit_at(g->limit) : NULL;

	if (t->on_rq != THROTTLED)
		DUMP("tidegate: waits for a CPU, for %llu us", waited_us);
	else if (reserved)
		DUMP("tidegate: waits for cap bucket %llu, for %llu us, ready in %lld ns",
		     reserved >> 32, waited_us, (s64)(t->ready_ns - now));
	else
		DUMP("tidegate: waits for quota, of cgroup %llu or above, for %llu us",
		     l ? l->group_id : 0, waited_us);
}

/* Arguments: struct scx_dump_ctx *to, struct task_struct *p */
OPS(dump_task)
int dump_task(u64 *ctx)
{
	struct task_struct *p = (struct task_struct *)ctx[1];
	struct task_ctx *t = task_of(p);
	struct runqueue *rq = t ? runqueue_at(t->runqueue) : NULL;
	u64 now = now_ns();

	if (!t || !rq)
		return 0;
	DUMP("tidegate: %s, hint %d, cgroup %llu, deadline V + %lld ns, vruntime V + %lld ns",
	     dump_kind(t->kind), t->hint, t->group_id,
	     (s64)(t->deadline - tg_runqueue_v(&rq->mean)),
	     (s64)(t->vruntime - tg_runqueue_v(&rq->mean)));
	if (t->running_since_ns)
		DUMP("tidegate: runs, for %llu us", tg_sub0(now, t->running_since_ns) / 1000);
	else
		dump_wait(t, now);
	return 0;
}

#endif
