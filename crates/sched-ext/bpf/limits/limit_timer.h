/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The timer of a limit: refills its pool, pays the silos' debts, lets throttled tasks go.
 *
 *	off --a task or silo is throttled (limit_arm)--> set for the refill, at once if there is some
 *	set --fires: none is throttled, and none was since--> off
 */
#ifndef TIDEGATE_EXT_LIMIT_TIMER_H
#define TIDEGATE_EXT_LIMIT_TIMER_H

#include "limits/limit.h"

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

/*
 * Lets go tasks that may run, that starve, and that are being killed. Global, as those of
 * cap_throttle.h, so that the verifier walks it once and not in `init` for each way to set a
 * timer's callback.
 */
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
	if (!bpf_iter_scx_dsq_new(&it, dsq_throttled(at), 0)) {
		EXT_FOR(look, LIMIT_BATCH)
		{
			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			t = task_of(p);
			if (!t)
				continue;
			/* Even where there is quota: another may use it up before this one runs. */
			if (task_starved(t, now))
				t->min_runtime_ns = MIN_RUNTIME_NS;
			else if (!limit_has(l) && !group_exempt(p))
				continue;
			unthrottle(&it, p, t, now);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return 0;
}

/*
 * The timer of a limit. It stops when no task and no silo is throttled, and no task was since it
 * last fired.
 */
static int limit_timer_fires(void *map, u32 *index, struct limit *l)
{
	u64 now = now_ns(), at_ns;
	u32 at = *index, throttles;
	bool throttled, fresh;

	/*
	 * A CPU that throttles counts it first and then looks whether the timer is set: one that
	 * finds it still set is seen here.
	 */
	__sync_lock_test_and_set(&l->armed_ns, 0ULL);
	throttles = *(volatile u64 *)&l->throttles;
	fresh = throttles != l->seen;
	l->seen = throttles;
	if (!l->used)
		return 0;
	bpf_spin_lock(&l->lock);
	tg_bw_turnover(&l->pool, now);
	bpf_spin_unlock(&l->lock);
	if (l->pool.throttled)
		limit_distribute(at, now);
	limit_release(at, now);
	throttled = scx_bpf_dsq_nr_queued(dsq_throttled(at)) > 0;
	if (!throttled && !l->pool.throttled && !fresh)
		return 0;
	at_ns = tg_max(l->pool.turnover_ns, now + LIMIT_AGAIN_NS);
	if ((throttled || fresh) && (limit_has(l) || throttled_due(dsq_throttled(at), now)))
		at_ns = now + LIMIT_AGAIN_NS;
	limit_arm(at, at_ns, now);
	return 0;
}

/*
 * Whether a quota pays for one more run inside the kernel. Global, so that the verifier walks it
 * once.
 */
u32 limit_pays_in_kernel(u32 at, u64 now)
{
	struct limit *l = limit_at(at);
	u64 period_ns = l ? l->pool.terms.period_ns : 0;

	if (!period_ns || !tg_bw_limited(&l->pool))
		return false;
	return in_kernel_paid(&l->in_kernel_at_ns,
			      tg_max(l->pool.terms.quota_ns * 1000 / period_ns, 1), now);
}

/* New terms: throttled tasks may run. */
INLINE void limit_recheck(u32 at)
{
	struct limit *l = limit_at(at);
	u64 now = now_ns();

	if (l)
		limit_arm(at, now, now);
}

/* Once, from `init` (as slice_timer_init). */
INLINE s32 limit_init(u32 at)
{
	struct limit *l = limit_at(at);
	s32 failed;

	if (!l)
		return 0;
	failed = scx_bpf_create_dsq(dsq_throttled(at), -1);
	if (!failed)
		failed = bpf_timer_init(&l->timer, &limits, CLOCK_MONOTONIC);
	return failed ? failed : bpf_timer_set_callback(&l->timer, limit_timer_fires);
}

#endif
