/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The timer that lets go the tasks of cap_throttle.h, and background tasks whose soft cap has some
 * again.
 */
#ifndef TIDEGATE_EXT_CAP_TIMER_H
#define TIDEGATE_EXT_CAP_TIMER_H

#include "limits/cap_throttle.h"

/* Background tasks of a cache that are checked, in turn from the queue's beginning and its end. */
#define CAP_RECALL_MAX 4096
/* The timer stops after this many calls that found no task, this far apart. */
#define CAP_IDLE_ROUNDS 10
#define CAP_IDLE_ROUND_NS 10000000ULL

/*
 * A background task of a bucket has been checked: the bucket lets one go at a time, for that uses
 * what it holds. Returns when the next may be checked. Global, so that the verifier walks it once.
 */
u64 cap_recalled(u32 throttler, bool runs, u64 now)
{
	struct bucket *s = bucket_at(throttler);
	u64 at_ns = now + TG_CAP_AGAIN_NS;

	if (!runs)
		at_ns = tg_max(at_ns, bucket_ready_ns(throttler, 0));
	if (s)
		s->recall_ns = tg_min(at_ns, now + TG_CAP_RECHECK_NS);
	return at_ns;
}

/*
 * Background tasks of a cache whose buckets hold something: of each bucket the first. Returns when
 * the next one's may.
 */
u64 cap_recall(u32 llc, u64 flags, u64 now)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	struct task_ctx *t;
	struct cap_timer *h = cap_timer_at(llc);
	struct bucket *s;
	u32 scanned;
	bool runs;
	s32 cpu;
	u64 next_ns = ~0ULL;

	EXT_RCU;
	if (!h || !scx_bpf_dsq_nr_queued(dsq_recall(llc)))
		return next_ns;
	h->recalled = 0;
	if (!bpf_iter_scx_dsq_new(&it, dsq_recall(llc), flags)) {
		EXT_FOR(scanned, CAP_RECALL_MAX)
		{
			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			t = task_of(p);
			if (!t)
				continue;
			s = bucket_at(t->throttler);
			if (t->ready_ns <= now && s)
				t->ready_ns = s->recall_ns;
			if (t->ready_ns <= now) {
				runs = cap_state(p, t, now) == TG_CAP_RUN;
				t->ready_ns = cap_recalled(t->throttler, runs, now);
				if (runs) {
					cpu = scx_bpf_task_cpu(p);
					if (task_move_kind(&it, p, t, EXT_MAIN, now))
						unthrottle_kick(p, t, cpu, now);
					next_ns = now + TG_CAP_AGAIN_NS;
					if (++h->recalled >= CAP_TIMER_BATCH)
						break;
					continue;
				}
			}
			next_ns = tg_min(next_ns, cap_recheck_ns(t, now));
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return next_ns;
}

/* The timer. It stops once it has found no task for a while. */
static int cap_timer_fires(void *map, u32 *llc, struct cap_timer *h)
{
	u32 at = *llc, idle_rounds = h->idle_rounds;
	u64 now = now_ns(), next_ns, background_at_ns = h->background_at_ns;
	bool fresh;

	/*
	 * A CPU that throttles counts a request first and then checks whether the timer is set: one
	 * that finds it still set is seen here, though its task may not be in the queue yet.
	 */
	__sync_lock_test_and_set(&h->armed_ns, 0ULL);
	fresh = *(volatile u32 *)&h->requests != h->seen;
	h->seen = *(volatile u32 *)&h->requests;
	next_ns = cap_release_due(at, now);
	if (next_ns)
		next_ns = tg_min(next_ns, cap_release_spare(at, now));
	if (!background_at_ns || background_at_ns <= now) {
		h->background_at_ns = 0;
		background_at_ns = cap_recall(
		    at, h->rounds++ & 1 ? CONST(scx_dsq_iter_flags, SCX_DSQ_ITER_REV) : 0, now);
		if (background_at_ns != ~0ULL &&
		    (!h->background_at_ns || background_at_ns < h->background_at_ns))
			h->background_at_ns = background_at_ns;
	}
	background_at_ns = h->background_at_ns;
	if (!next_ns || (background_at_ns && background_at_ns < next_ns))
		next_ns = background_at_ns;
	if (fresh && next_ns)
		next_ns = tg_min(next_ns, now + CAP_IDLE_ROUND_NS);
	if (!next_ns && !fresh && idle_rounds >= CAP_IDLE_ROUNDS)
		return 0;
	cap_timer_arm(at, next_ns ? next_ns : now + CAP_IDLE_ROUND_NS, now);
	h->seen++;
	h->idle_rounds = next_ns ? 0 : idle_rounds + 1;
	return 0;
}

/* Terms have changed: all throttled tasks are checked now. */
INLINE void cap_recheck_all(void)
{
	u64 now = now_ns();
	u32 llc;

	EXT_FOR(llc, config.llcs)
	{
		cap_timer_arm(llc, now, now);
	}
}

/* Once, from `init` (as slice_timer_init). */
INLINE s32 cap_timer_init(u32 llc)
{
	struct cap_timer *h = cap_timer_at(llc);
	s32 failed;

	if (!h)
		return 0;
	failed = scx_bpf_create_dsq(dsq_cap_throttled(llc), -1);
	if (!failed)
		failed = scx_bpf_create_dsq(dsq_recall(llc), -1);
	if (!failed)
		failed = bpf_timer_init(&h->timer, &cap_timers, CLOCK_MONOTONIC);
	return failed ? failed : bpf_timer_set_callback(&h->timer, cap_timer_fires);
}

#endif
