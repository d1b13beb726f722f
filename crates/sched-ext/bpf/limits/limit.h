/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Quotas: law/bandwidth.h for shared queues.
 *
 *	enqueue, pick	limit_closed at every level; out of quota: throttled at that level
 *	start		limit_take fills this CPU's silos; the task runs until the first is used up
 *			(slice_timer.h)
 *	stop		limit_charge_up, every level
 *	other work	limit_leave: the CPU gives back all but 1 ms
 *	timer		at the pool's refill: catches up, pays the silos' debts, unthrottles
 *
 *	silo		its own CPU writes it, under that CPU's run queue lock;
 *			while it is throttled the timer does too, under the pool's lock
 *	pool		its lock
 *
 * The task that starts takes runtime, not the one that waits: two CPUs that saw the last of it may
 * both start; the second is stopped at once, in debt by what that took.
 */
#ifndef TIDEGATE_EXT_LIMIT_H
#define TIDEGATE_EXT_LIMIT_H

#include "bandwidth.h"
#include "limits/throttle.h"
#include "timers/in_kernel.h"

/* Tasks that the timer looks at, and a CPU throttles, at once; the timer comes back for more. */
#define LIMIT_BATCH 32
#define LIMIT_AGAIN_NS 100000ULL
#define LIMIT_LATE_NS 2000000000ULL

/* The timer is to look at a limit no later than this. */
int limit_arm(u32 at, u64 at_ns, u64 now)
{
	struct limit *l = limit_at(at);

	if (!l)
		return 0;
	starvation_watch(now);
	timer_start_soonest(&l->timer, &l->armed_ns, tg_max(at_ns, now + TG_LIMIT_SOON_NS), now,
			    LIMIT_LATE_NS);
	return 0;
}

/* One level of limit_closed. A throttled silo runs again once a turnover has paid its debt. */
INLINE bool limit_open(struct limit *l, struct tg_bw_silo *s, u64 now)
{
	bool open = true;

	if (!s->throttled && s->remaining_ns > 0)
		return true;
	bpf_spin_lock(&l->lock);
	if (s->throttled) {
		open = tg_bw_distribute(&l->pool, s, now);
	} else if (tg_bw_limited(&l->pool)) {
		tg_bw_turnover(&l->pool, now);
		if ((s64)l->pool.runtime_ns + s->remaining_ns <= 0)
			open = !tg_bw_throttle(&l->pool, s, now);
	}
	bpf_spin_unlock(&l->lock);
	return open;
}

/* The nearest limit that keeps a group's tasks from starting on this CPU; 0: none does. */
u32 limit_closed(u32 at, u32 cpu, u64 now)
{
	u32 level;

	EXT_FOR(level, EXT_LEVELS_MAX)
	{
		struct limit *l = limit_at(at);
		struct tg_bw_silo *s = silo_at(at, cpu);

		if (l && !s)
			ext_missing(TABLE_SILOS, at);
		if (!l || !s)
			break;
		if (!limit_open(l, s, now))
			return at;
		at = l->above;
	}
	return 0;
}

/* What a silo holds, after a slice was taken if it was used up. */
INLINE u64 limit_fill(struct limit *l, struct tg_bw_silo *s, u64 now)
{
	if (!tg_bw_limited(&l->pool))
		return ~0ULL;
	if (s->throttled || s->remaining_ns <= 0) {
		bpf_spin_lock(&l->lock);
		if (s->throttled)
			tg_bw_distribute(&l->pool, s, now);
		if (!s->throttled)
			tg_bw_take(&l->pool, s, l->pool.terms.slice_ns, now);
		bpf_spin_unlock(&l->lock);
	}
	return s->throttled || s->remaining_ns <= 0 ? 0 : (u64)s->remaining_ns;
}

/* How long a task of a group may run on this CPU before some silo is used up. */
u64 limit_take(u32 at, u32 cpu, u64 now)
{
	u64 least_ns = ~0ULL;
	u32 level;

	EXT_FOR(level, EXT_LEVELS_MAX)
	{
		struct limit *l = limit_at(at);
		struct tg_bw_silo *s = silo_at(at, cpu);

		if (!l || !s)
			break;
		least_ns = tg_min(least_ns, limit_fill(l, s, now));
		at = l->above;
	}
	return least_ns;
}

/* Charges what ran on a CPU to every limit from this one up. */
int limit_charge_up(u32 at, u32 cpu, u64 ran_ns)
{
	u32 level;

	EXT_FOR(level, EXT_LEVELS_MAX)
	{
		struct limit *l = limit_at(at);
		struct tg_bw_silo *s = silo_at(at, cpu);

		if (!l || !s)
			break;
		if (s->throttled) {
			bpf_spin_lock(&l->lock);
			tg_bw_charge(&l->pool, s, ran_ns);
			bpf_spin_unlock(&l->lock);
		} else {
			tg_bw_charge(&l->pool, s, ran_ns);
		}
		at = l->above;
	}
	return 0;
}

/*
 * What a silo holds goes back, but for 1 ms; a throttled task may have it, after a while in which
 * more comes.
 */
INLINE void limit_return(u32 at, u32 cpu, u64 now)
{
	struct limit *l = limit_at(at);
	struct tg_bw_silo *s = silo_at(at, cpu);
	u64 given_ns;

	if (!l || !s || s->throttled || s->remaining_ns <= (s64)l->pool.keep_ns)
		return;
	bpf_spin_lock(&l->lock);
	given_ns = tg_bw_return(&l->pool, s);
	bpf_spin_unlock(&l->lock);
	if (given_ns && scx_bpf_dsq_nr_queued(dsq_throttled(at)) > 0)
		limit_arm(at, now + TG_BW_SLACK_WAIT_NS, now);
}

/* A CPU turns from a task below `from` to one below `to` (0: unlimited, or none): it leaves the
 * limits that are not above both. */
int limit_leave(u32 from, u32 to, u32 cpu, u64 now)
{
	u32 step;

	EXT_FOR(step, 2 * EXT_LEVELS_MAX)
	{
		struct limit *left = limit_at(from), *entered = limit_at(to);

		if (!left || from == to)
			break;
		if (entered && entered->depth > left->depth) {
			to = entered->above;
			continue;
		}
		limit_return(from, cpu, now);
		from = left->above;
	}
	return 0;
}

/*
 * The limit at which a task is to be throttled instead of waiting for, or starting on, this CPU; 0:
 * none.
 */
INLINE u32 limit_out(struct task_struct *p, struct task_ctx *t, u32 cpu, u64 now)
{
	u32 limit = group_limit(t->group, t->group_id);

	if (!limit || t->min_runtime_ns || group_exempt(p) || task_reads_rcu(p))
		return 0;
	return limit_closed(limit, cpu, now);
}

INLINE void limit_task_throttled(u32 at, u64 now)
{
	struct limit *l = limit_at(at);

	if (!l)
		return;
	__sync_fetch_and_add(&l->throttles, 1);
	limit_arm(at, l->pool.runtime_ns ? now : l->pool.turnover_ns, now);
}

/* `enqueue_task`: a task whose group is out of quota is throttled. */
static __attribute__((noinline)) bool limit_throttles(struct task_struct *p, struct task_ctx *t,
						      u32 cpu)
{
	u64 now = now_ns();
	u32 out = limit_out(p, t, cpu, now);

	if (!out)
		return false;
	throttle_enqueue(p, t, dsq_throttled(out));
	limit_task_throttled(out, now);
	return true;
}

/*
 * `dispatch_kind`: throttles the first tasks of a queue as long as they may not start here;
 * nonzero: there was one. Global, as limit_next, so that the verifier walks it once and not for
 * every way that leads there.
 */
u32 limit_throttle_first(u64 dsq, u32 cpu, u64 now)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	struct task_ctx *t;
	u32 look, out, throttled = 0;

	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		EXT_FOR(look, LIMIT_BATCH)
		{
			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
				continue;
			t = task_of(p);
			out = t ? limit_out(p, t, cpu, now) : 0;
			if (!out)
				break;
			throttle_queued(&it, p, t, dsq_throttled(out));
			limit_task_throttled(out, now);
			throttled = 1;
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return throttled;
}

/* How limit_next is to see a task. */
#define LIMIT_EXEMPT 1
#define LIMIT_READS 2

/*
 * How long a task of a limit may run that starts, or goes on, on this CPU, for a least run at least
 * `min_runtime_ns`; sets its slice timer. 0: it may not.
 */
u64 limit_next(u32 limit, u32 cpu, u64 now, u32 how, u64 floor_ns)
{
	struct ext_cpu *c = cpu_at(cpu);
	u64 left_ns;

	if (c && c->limit != limit) {
		if (c->limit)
			limit_leave(c->limit, limit, cpu, now);
		c->limit = limit;
	}
	if (!limit)
		return ~0ULL;
	left_ns = limit_take(limit, cpu, now);
	if (how & LIMIT_EXEMPT)
		return ~0ULL;
	if (how & LIMIT_READS)
		left_ns = tg_max(left_ns, MIN_RUNTIME_NS);
	left_ns = tg_max(left_ns, floor_ns);
	if (left_ns && left_ns != ~0ULL)
		slice_timer_set(cpu, now + left_ns, now);
	return left_ns;
}

INLINE u64 limit_bound(struct task_struct *p, struct task_ctx *t, u32 cpu, u64 now)
{
	u32 how = group_exempt(p) ? LIMIT_EXEMPT : 0;

	if (task_reads_rcu(p))
		how |= LIMIT_READS;

	t->limit = group_limit(t->group, t->group_id);
	return limit_next(t->limit, cpu, now, how, t->min_runtime_ns);
}

/* `running`: one that may not after all is stopped at once. */
INLINE void limit_start(struct task_struct *p, struct task_ctx *t, u32 cpu, u64 now)
{
	if (!limit_bound(p, t, cpu, now))
		slice_timer_set(cpu, now, now);
}

/* It ran; a least run is charged as well, though the quota did not allow it. */
INLINE void limit_charge(struct task_ctx *t, u32 cpu, u64 ran_ns)
{
	struct limit *l;

	if (!t->limit)
		return;
	limit_charge_up(t->limit, cpu, ran_ns);
	l = t->min_runtime_ns ? limit_at(t->limit) : NULL;
	if (l)
		__sync_fetch_and_add(&l->min_runs, 1);
}

/* `update_idle`: what the CPU holds of a quota goes back. */
INLINE void limit_idle(u32 cpu, struct ext_cpu *c)
{
	limit_leave(c->limit, 0, cpu, now_ns());
	c->limit = 0;
}

#endif
