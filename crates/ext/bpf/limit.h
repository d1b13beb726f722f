/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Quotas: law/bandwidth.h for shared queues.
 *
 *	put in, or about to be taken out of its queue: limit_closed at every level -- out --> parked
 *at that level starts:  limit_take fills this CPU's silos; it runs until the first is used up
 *(alarm.h) stops:   limit_charge_up, every level the CPU turns to another group's work, or idle:
 *limit_leave gives back all but 1 ms the pool's timer, at its turnover: catches up, pays the silos'
 *debts, releases what is parked
 *
 * A silo is written by its own CPU, under its run queue's lock; while it is throttled the timer
 *pays its debts, so then it is under the pool's lock too. Runtime is taken by whoever starts, not
 *by who waits: two CPUs that saw the last of it may both start, and the second is stopped at once,
 *in debt by what that took. crates/sim/src/sched/ext/limit.rs is the same.
 */
#ifndef TIDEGATE_EXT_LIMIT_H
#define TIDEGATE_EXT_LIMIT_H

#include "bandwidth_kernel.h"
#include "grace.h"
#include "park.h"

/* Tasks that the timer looks at, and a CPU parks, at once; the timer comes back for the rest. */
#define LIMIT_BATCH 32
#define LIMIT_AGAIN_NS 100000ULL
/* No sooner: a task that was just parked is in its queue by then. */
#define LIMIT_SOON_NS 20000ULL
#define LIMIT_LOST_NS 2000000000ULL

/* The timer is to look at a limit no later than this. */
int limit_arm(u32 at, u64 at_ns, u64 now)
{
	struct limit *l = limit_at(at);

	if (!l)
		return 0;
	patience_asked(now);
	alarm_soonest(&l->timer, &l->armed_ns, tg_max(at_ns, now + LIMIT_SOON_NS), now,
		      LIMIT_LOST_NS);
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

/* What a silo holds goes back, but for 1 ms; whoever is parked may have it, after a while in which
 * more comes. */
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
	if (given_ns && scx_bpf_dsq_nr_queued(dsq_parked(at)) > 0)
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

/* The limit that a task is to be parked at instead of waiting for, or starting on, this CPU; 0:
 * none. */
INLINE u32 limit_out(struct task_struct *p, struct task_ctx *t, u32 cpu, u64 now)
{
	u32 limit = group_limit(t->group, t->group_id);

	if (!limit || t->floor || park_exempt(p) || park_reads(p))
		return 0;
	return limit_closed(limit, cpu, now);
}

INLINE void limit_parked(u32 at, u64 now)
{
	struct limit *l = limit_at(at);

	if (!l)
		return;
	__sync_fetch_and_add(&l->parks, 1);
	limit_arm(at, l->pool.runtime_ns ? now : l->pool.turnover_ns, now);
}

/* `put`: a task whose group is out does not wait in line. */
static __attribute__((noinline)) bool limit_parks(struct task_struct *p, struct task_ctx *t,
						  u32 cpu)
{
	u64 now = now_ns();
	u32 out = limit_out(p, t, cpu, now);

	if (!out)
		return false;
	park_put(p, t, dsq_parked(out));
	limit_parked(out, now);
	return true;
}

/* `serve`: parks the first of a queue as long as they may not start here; nonzero: there was one.
 * Global, as limit_next, so that the verifier walks it once and not for every way that leads there.
 */
u32 limit_sift(u64 dsq, u32 cpu, u64 now)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	struct task_ctx *t;
	u32 look, out, parked = 0;

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
			park_waiting(&it, p, t, dsq_parked(out));
			limit_parked(out, now);
			parked = 1;
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return parked;
}

/* How limit_next is to see a task. */
#define LIMIT_EXEMPT 1
#define LIMIT_READS 2

/* How long a task of a limit may run that starts, or goes on, on this CPU, for a visit at least
 * `floor_ns`; its alarm is set. 0: it may not. */
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
		left_ns = tg_max(left_ns, PARK_VISIT_NS);
	left_ns = tg_max(left_ns, floor_ns);
	if (left_ns && left_ns != ~0ULL)
		alarm_by(cpu, now + left_ns, now);
	return left_ns;
}

INLINE u64 limit_bound(struct task_struct *p, struct task_ctx *t, u32 cpu, u64 now)
{
	u32 how = park_exempt(p) ? LIMIT_EXEMPT : 0;

	if (park_reads(p))
		how |= LIMIT_READS;

	t->limit = group_limit(t->group, t->group_id);
	return limit_next(t->limit, cpu, now, how, t->floor);
}

/* `running`: one that may not after all is stopped at once. */
INLINE void limit_start(struct task_struct *p, struct task_ctx *t, u32 cpu, u64 now)
{
	if (!limit_bound(p, t, cpu, now))
		alarm_by(cpu, now, now);
}

/* It ran; a visit is charged as well, and is nothing that the quota allowed. */
INLINE void limit_charge(struct task_ctx *t, u32 cpu, u64 ran_ns)
{
	struct limit *l;

	if (!t->limit)
		return;
	limit_charge_up(t->limit, cpu, ran_ns);
	l = t->floor ? limit_at(t->limit) : NULL;
	if (l) {
		__sync_fetch_and_add(&l->visits, 1);
		__sync_fetch_and_add(&l->visit_ns, ran_ns);
	}
}

/* `stopping` */
INLINE void limit_stop(struct task_ctx *t, u32 cpu)
{
	t->floor = 0;
	alarm_off(cpu);
}

/* `update_idle`: what the CPU holds of anybody's quota goes back. */
INLINE void limit_idle(u32 cpu, struct ext_cpu *c)
{
	limit_leave(c->limit, 0, cpu, now_ns());
	c->limit = 0;
}

/* Debts are paid, and throttled silos let go, as far as the pool goes. */
int limit_distribute(u32 at, u64 now)
{
	u32 cpu;

	EXT_FOR(cpu, config.cpus)
	{
		struct limit *l = limit_at(at);
		struct tg_bw_silo *s = silo_at(at, cpu);

		if (!l || !s || !l->pool.throttled)
			break;
		if (!s->throttled)
			continue;
		bpf_spin_lock(&l->lock);
		tg_bw_distribute(&l->pool, s, now);
		bpf_spin_unlock(&l->lock);
	}
	return 0;
}

INLINE bool limit_has(struct limit *l)
{
	return !tg_bw_limited(&l->pool) || *(volatile u64 *)&l->pool.runtime_ns > 0;
}

/* Lets go who may run, who is to be visited, and who is being killed. Global, as those of hold.h,
 * so that the verifier walks it once and not in `init` for each way to set a timer's callback. */
int limit_release(u32 at, u64 now)
{
	struct limit *l = limit_at(at);
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	struct task_ctx *t;
	u32 look;

	EXT_RCU;
	if (!l)
		return 0;
	if (!bpf_iter_scx_dsq_new(&it, dsq_parked(at), 0)) {
		EXT_FOR(look, LIMIT_BATCH)
		{
			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			t = task_of(p);
			if (!t)
				continue;
			if (!limit_has(l) && !park_exempt(p)) {
				if (!park_due(t, now))
					continue;
				t->floor = PARK_VISIT_NS;
			}
			park_let_go(&it, p, t, now);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return 0;
}

/* The timer of a limit. It stops when nothing is parked or throttled, and nothing was parked since
 * it last rang. */
static int limit_rings(void *map, u32 *index, struct limit *l)
{
	u64 now = now_ns(), at_ns;
	u32 at = *index, parks;
	bool parked, fresh;

	/* Whoever parks counts it first and then sees whether the timer is set: one that finds it
	 * still set is seen here. */
	__sync_lock_test_and_set(&l->armed_ns, 0ULL);
	parks = *(volatile u64 *)&l->parks;
	fresh = parks != l->seen;
	l->seen = parks;
	if (!l->used)
		return 0;
	bpf_spin_lock(&l->lock);
	tg_bw_turnover(&l->pool, now);
	bpf_spin_unlock(&l->lock);
	if (l->pool.throttled)
		limit_distribute(at, now);
	limit_release(at, now);
	parked = scx_bpf_dsq_nr_queued(dsq_parked(at)) > 0;
	if (!parked && !l->pool.throttled && !fresh)
		return 0;
	at_ns = tg_max(l->pool.turnover_ns, now + LIMIT_AGAIN_NS);
	if ((parked || fresh) && (limit_has(l) || park_more(dsq_parked(at), now)))
		at_ns = now + LIMIT_AGAIN_NS;
	limit_arm(at, at_ns, now);
	return 0;
}

/* Whether a quota pays for one more visit of somebody inside the kernel. Global, so that the
 * verifier walks it once. */
u32 limit_graces(u32 at, u64 now)
{
	struct limit *l = limit_at(at);
	u64 period_ns = l ? l->pool.terms.period_ns : 0;

	if (!period_ns || !tg_bw_limited(&l->pool))
		return false;
	return grace_paid(&l->graced_ns, tg_max(l->pool.terms.quota_ns * 1000 / period_ns, 1), now);
}

/* New terms: what is parked may run. */
INLINE void limit_look(u32 at)
{
	struct limit *l = limit_at(at);
	u64 now = now_ns();

	if (l)
		limit_arm(at, now, now);
}

/* Once, from `init` (as alarm_init). */
INLINE s32 limit_init(u32 at)
{
	struct limit *l = limit_at(at);
	s32 failed;

	if (!l)
		return 0;
	failed = scx_bpf_create_dsq(dsq_parked(at), -1);
	if (!failed)
		failed = bpf_timer_init(&l->timer, &limits, CLOCK_MONOTONIC);
	return failed ? failed : bpf_timer_set_callback(&l->timer, limit_rings);
}

#endif
