/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tasks that a bucket throttles or keeps in the background, and the timer that lets them go.
 *
 *	cap_throttle_queued, caps_throttles --> queue by ready time --cap_timer--> unthrottle
 *	out of a soft cap --> EXT_BACKGROUND --cap_timer (cap_recall)--> EXT_MAIN
 *	out of a soft cap of 0 --> EXT_BACKGROUND --cap changed (starvation_check)--> EXT_MAIN
 *
 * Two queues and one timer a cache; the timer is set for the first. Background tasks that wait for
 * a CPU are checked when the first of them is due; each bucket lets one of its tasks go in
 * TG_CAP_AGAIN_NS, and one call of the timer CAP_TIMER_BATCH in all. The state found then decides,
 * not the one that was expected, and it is checked again every TG_CAP_RECHECK_NS: terms change,
 * debts are paid by others, tasks are killed.
 */
#ifndef TIDEGATE_EXT_CAP_THROTTLE_H
#define TIDEGATE_EXT_CAP_THROTTLE_H

#include "limits/limit_timer.h"

/* A task that was just throttled is in its queue by then. */
#define CAP_SOON_NS 5000ULL
/* Throttled tasks that are checked, and background tasks that are let go, in one call of the timer.
 */
#define CAP_TIMER_BATCH 64
/* Tasks whose time has not come and that are checked. */
#define CAP_SPARE_SCAN_MAX 32
#define CAP_LATE_NS 2000000000ULL

struct cap_timer {
	struct bpf_timer timer;
	u64 armed_ns;	      /* when it is due; 0: it is not set */
	u64 background_at_ns; /* when the first of those in the background is due */
	u32 idle_rounds;
	u32 requests; /* how often it was asked to check, .. */
	u32 seen;     /* .. and when it last rang */
	u32 rounds;   /* checks of background tasks */
	u32 recalled; /* tasks let go in this one: where the loop keeps it */
};

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1); /* the loader: the number of caches */
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct cap_timer);
} cap_timers SEC(".maps");

INLINE struct cap_timer *cap_timer_at(u32 llc)
{
	return bpf_map_lookup_elem(&cap_timers, &llc);
}

int cap_timer_arm(u32 llc, u64 at_ns, u64 now)
{
	struct cap_timer *h = cap_timer_at(llc);

	if (!h)
		return 0;
	starvation_watch(now);
	h->idle_rounds = 0;
	__sync_fetch_and_add(&h->requests, 1);
	timer_start_soonest(&h->timer, &h->armed_ns, tg_max(at_ns, now + CAP_SOON_NS), now,
			    CAP_LATE_NS);
	return 0;
}

u32 cap_worst(struct task_ctx *t NONNULL, u64 now)
{
	u32 worst = TG_CAP_RUN, state;

	for (int i = 0; i < EXT_CAPS_EACH; i++) {
		if (!t->caps[i])
			break;
		state = bucket_state(t->caps[i], now);
		if (state > worst) {
			worst = state;
			t->throttler = t->caps[i];
		}
	}
	return worst;
}

/*
 * A task that was preempted as a reader of RCU goes on, a little at a time, or the machine's grace
 * periods stop.
 */
INLINE bool cap_exempt(struct task_struct *p)
{
	return group_exempt(p) || task_reads_rcu(p);
}

/* What a task's buckets let it do: the strictest, which becomes its throttler. */
INLINE u32 cap_state(struct task_struct *p, struct task_ctx *t, u64 now)
{
	return t->min_runtime_ns || cap_exempt(p) ? TG_CAP_RUN : cap_worst(t, now);
}

/* When to check a throttled task next. */
INLINE u64 cap_recheck_ns(struct task_ctx *t, u64 now)
{
	return tg_max(tg_min(t->ready_ns, now + TG_CAP_RECHECK_NS), 1);
}

/*
 * A reservation changes as one word: two CPUs may check the same waiting task at once, and each
 * gives back to the bucket what it finds here. Else both reservations would stay for good, and
 * tasks that wait for the bucket would be let go later each time.
 */
INLINE void cap_set_reservation(struct task_ctx *t, u64 reservation)
{
	u64 before = __sync_lock_test_and_set(&t->reserved, reservation);

	if (before)
		bucket_unreserve((u32)(before >> 32), (u32)before);
}

/* What it has reserved is used, or not wanted any more. */
INLINE void cap_unreserve(struct task_ctx *t)
{
	if (t->reserved)
		cap_set_reservation(t, 0);
}

/* Its throttler keeps it waiting: reserves, and finds out when the bucket has that much. */
int cap_reserve(struct task_ctx *t NONNULL)
{
	u32 throttler = t->throttler;
	struct bucket *s = bucket_at(throttler), *f = s ? bucket_at(s->family) : NULL;
	u64 want_ns;

	if (!s || !f)
		return 0;
	if (t->reserved)
		cap_set_reservation(t, 0);
	else
		__sync_fetch_and_add(&f->throttles, 1);
	want_ns = bucket_want_ns(&s->cap.hard);
	t->ready_ns = bucket_ready_ns(throttler, want_ns);
	cap_set_reservation(t, (u64)throttler << 32 | want_ns);
	return 0;
}

/* It waits in the background: the timer is to check no later than its throttler lets it go. */
int cap_background_wait(struct task_ctx *t NONNULL, u64 now)
{
	struct cap_timer *h = cap_timer_at(t->llc);
	u64 at_ns;

	t->ready_ns = bucket_ready_ns(t->throttler, 0);
	at_ns = cap_recheck_ns(t, now);
	if (!h || t->ready_ns == TG_CAP_NEVER)
		return 0;
	if (!h->background_at_ns || at_ns < h->background_at_ns)
		h->background_at_ns = at_ns;
	return cap_timer_arm(t->llc, at_ns, now);
}

/*
 * From `dispatch`: throttles one that waits in the queue that `it` goes through. One that waits
 * there no more has begun to run, or is gone, and reserves nothing.
 */
INLINE void cap_throttle_queued(struct bpf_iter_scx_dsq *it, struct task_struct *p,
				struct task_ctx *t, u64 now)
{
	u64 at_ns;

	cap_reserve(t);
	at_ns = cap_recheck_ns(t, now);
	if (throttle_deactivate(t) && dsq_move_vtime(it, p, dsq_cap_throttled(t->llc), at_ns))
		cap_timer_arm(t->llc, at_ns, now);
	else
		cap_unreserve(t);
}

/* One that waits becomes another kind of work. Global, so that the verifier walks it once. False:
 * it does not wait any more. */
u32 task_change_kind(struct task_ctx *t NONNULL, u32 kind, u64 now)
{
	u32 runqueue = t->runqueue, next = runqueue_index(t->llc, kind);

	if (!runqueue_at(next) || !runqueue_deactivate(t, runqueue, THROTTLED, now))
		return false;
	if (!runqueue_activate(t, next, hweight_set_kind(t, kind), ACTIVATE_THROTTLED, now))
		return false;
	if (kind == EXT_BACKGROUND)
		cap_background_wait(t, now);
	return true;
}

/* From `dispatch` or the timer: moves one that waits into the run queue of another kind of work. */
INLINE bool task_move_kind(struct bpf_iter_scx_dsq *it, struct task_struct *p, struct task_ctx *t,
			   u32 kind, u64 now)
{
	return task_change_kind(t, kind, now) &&
	       dsq_move_vtime(it, p, task_dsq(p, t, scx_bpf_task_cpu(p)), t->deadline);
}

INLINE void cap_count_throttled(struct task_ctx *t, u64 now)
{
	struct bucket *s = bucket_at(t->throttler), *f = s ? bucket_at(s->family) : NULL;

	if (f)
		__sync_fetch_and_add(&f->throttled_ns, tg_sub0(now, t->since_ns));
}

INLINE void cap_unthrottle(struct bpf_iter_scx_dsq *it, struct task_struct *p, struct task_ctx *t,
			   u64 now)
{
	cap_count_throttled(t, now);
	unthrottle(it, p, t, now);
}

/*
 * Whether a bucket's rate pays for one more run inside the kernel. Global, so that the verifier
 * walks it once.
 */
u32 cap_pays_in_kernel(u32 throttler, u64 now)
{
	struct bucket *s = bucket_at(throttler);

	return s && in_kernel_paid(&s->in_kernel_at_ns, s->cap.hard.rate_ppt, now);
}

INLINE void cap_count_min_run(struct task_ctx *t)
{
	struct bucket *s = bucket_at(t->throttler), *f = s ? bucket_at(s->family) : NULL;

	if (f)
		__sync_fetch_and_add(&f->min_runs, 1);
}

/* A task that has not run for STARVATION_NS has a least run, for the watchdog. */
INLINE bool cap_starved(struct task_ctx *t, u64 now)
{
	if (!task_starved(t, now))
		return false;
	t->min_runtime_ns = MIN_RUNTIME_NS;
	cap_count_min_run(t);
	return true;
}

/* Tasks whose time has come. Returns when the next one's does; 0: none is throttled. */
u64 cap_release_due(u32 llc, u64 now)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	struct task_ctx *t;
	u64 next_ns = 0;
	u32 scanned;

	EXT_RCU;
	if (!scx_bpf_dsq_nr_queued(dsq_cap_throttled(llc)))
		return 0;
	if (!bpf_iter_scx_dsq_new(&it, dsq_cap_throttled(llc), 0)) {
		EXT_FOR(scanned, CAP_TIMER_BATCH)
		{
			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			next_ns = p->scx.dsq_vtime;
			if (next_ns > now)
				break;
			next_ns = now;
			t = task_of(p);
			if (!t)
				continue;
			if (cap_starved(t, now) || cap_state(p, t, now) != TG_CAP_PARKED) {
				if (!t->min_runtime_ns &&
				    in_kernel_waits(p, t, IN_KERNEL_CAP_AFTER_NS, now) &&
				    cap_pays_in_kernel(t->throttler, now))
					t->min_runtime_ns = IN_KERNEL_RUN_NS;
				cap_unthrottle(&it, p, t, now);
				continue;
			}
			if (t->ready_ns <= now)
				cap_reserve(t);
			if (!dsq_move_vtime(&it, p, dsq_cap_throttled(llc), cap_recheck_ns(t, now)))
				cap_unreserve(t);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return next_ns <= now ? now + TG_CAP_AGAIN_NS : next_ns;
}

/*
 * Tasks whose time has not come: the first one whose bucket has enough to spare is let go. Returns
 * when the next one may be.
 */
u64 cap_release_spare(u32 llc, u64 now)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	struct task_ctx *t;
	struct bucket *s;
	u64 next_ns = TG_CAP_NEVER, at_ns;
	u32 scanned, last = 0;

	EXT_RCU;
	if (!bpf_iter_scx_dsq_new(&it, dsq_cap_throttled(llc), 0)) {
		EXT_FOR(scanned, CAP_SPARE_SCAN_MAX)
		{
			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			t = task_of(p);
			if (!t || p->scx.dsq_vtime <= now || t->throttler == last)
				continue;
			last = t->throttler;
			at_ns = bucket_spare_ns(t->throttler, now);
			if (at_ns > now) {
				next_ns = tg_min(next_ns, at_ns);
				continue;
			}
			s = bucket_at(t->throttler);
			if (s)
				s->spared_ns = now;
			cap_unthrottle(&it, p, t, now);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return next_ns;
}

#endif
