/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * bandwidth.h - a group's CPU time in each period, handed to CPUs in slices.
 *
 * Sources: CFS bandwidth control (kernel/sched/fair.c, sched-bwc.rst), burst
 * (Huaixin Chang, 2021), slices that do not expire (de53fd7aed, 2019).
 *
 * A pool per group holds what is left of the quota; a silo per CPU takes a
 * slice from it, is charged for what runs, and gives back all but 1 ms when
 * the group has nothing runnable there. At a turnover of n periods
 *
 *     runtime = min(runtime + n * quota, quota + burst)
 *
 * Let T = runtime + sum(remaining). Take, return and distribution move CPU time
 * between its terms, a charge of d lowers it by d, a turnover of n raises it
 * by <= n * quota, nothing else touches it between changes of terms, and runtime is
 * never below 0. So over n whole periods
 *
 *     usage = T(start) - T(end) + refills <= n * quota + held(start) + debt(end)
 *
 * where held = runtime + sum(max(remaining, 0)) <= quota + burst + CPUs * slice, for
 * it is so after each turnover and refills come only then; and debt <= CPUs * g if a CPU whose
 * silo is empty is stopped within g. A silo whose CPU went idle holds <= 1 ms.
 * Changes of terms: tg_bw_set. bandwidth.md has the proofs in full.
 *
 * Usage. On a CPU: tg_bw_run for what ran; on TG_BW_OUT stop the group there,
 * by tg_bw_throttle. Nothing left to run: tg_bw_return. At pool->turnover_ns,
 * while anything is throttled: tg_bw_turnover, then tg_bw_distribute over the
 * throttled silos, oldest first, until the pool is empty. Without TG_BW_KERNEL
 * turnovers are lazy: whatever takes from the pool first catches up.
 * Locks: tg_bw_charge needs only the silo's; all else the pool's and the silo's.
 */
#ifndef TG_LAW_BANDWIDTH_H
#define TG_LAW_BANDWIDTH_H

#include "base.h"

/*
 * What the bandwidth law is given and what it remembers.
 *
 * Ranges (tg_bw_bound clamps to them), on which bandwidth.h rests:
 *   quota  <= TG_BW_QUOTA_MAX_NS = 8192 CPUs * 1 s = 8.192e12 < 2^43
 *   burst  <= quota
 *   period, slice <= TG_BW_PERIOD_MAX_NS = 1 s < 2^30
 *   now    < 2^63
 */

#define TG_BW_NONE (~0ULL) /* a quota that is no limit */
#define TG_BW_PERIOD_MAX_NS 1000000000ULL
#define TG_BW_QUOTA_MAX_NS (TG_CPUS_MAX * TG_BW_PERIOD_MAX_NS)

/* What a silo keeps when its CPU has nothing left to run (the kernel's min_cfs_rq_runtime). */
#define TG_BW_KEEP_NS 1000000U

/* Debts stop here, 146 years of CPU time: nothing overflows whatever is charged. */
#define TG_BW_DEBT_MAX_NS (1LL << 62)

/* How a pool behaves. 0 is the law. */
enum tg_bw_flags {
	/*
	 * As the kernel: the caller runs the period timer (tg_bw_start, tg_bw_turnover at
	 * turnover_ns), each one it handles adds one quota, and a change is tg_bw_set_kernel.
	 */
	TG_BW_KERNEL = 1,
	/* As kernels before de53fd7aed: what a silo holds is void after the turnover. */
	TG_BW_EXPIRE = 2,
};

struct tg_bw_terms {
	tg_u64 quota_ns; /* TG_BW_NONE: no limit */
	tg_u64 period_ns;
	tg_u64 burst_ns; /* unused quota that may be carried over */
	tg_u64 slice_ns; /* how much a silo takes at once */
};

/* One for each limited group. */
struct tg_bw_pool {
	struct tg_bw_terms terms;
	tg_u64 runtime_ns;  /* what silos may take, < 2^45 */
	tg_u64 turnover_ns; /* when the current period ends */
	tg_u64 granted_ns;  /* quota put in in this period; TG_BW_NONE: no more in it */
	tg_u64 snap_ns;	    /* runtime after the last refill: what was taken since, for nr_bursts */
	tg_u64 epoch;	    /* refills so far: the age of a slice that expires */
	tg_u64 nr_periods;
	tg_u64 nr_throttled; /* periods in which some CPU was throttled at the end */
	tg_u64 throttled_ns; /* sum over CPUs */
	tg_u64 nr_bursts;    /* periods in which more than the quota was taken */
	tg_u64 burst_ns;     /* how much more */
	tg_u64 expired_ns;   /* lost in silos (TG_BW_EXPIRE only) */
	tg_u32 flags;
	tg_u32 throttled; /* CPUs throttled now */
	/*
	 * Turnovers in a row before which nothing was taken. The kernel stops its timer at 2,
	 * and counts no periods from there; a take starts it again.
	 */
	tg_u32 idle;
	tg_u32 keep_ns; /* TG_BW_KEEP_NS; less where every state of a small machine is walked */
};

/* One for each group and CPU. */
struct tg_bw_silo {
	tg_s64 remaining_ns; /* <= slice; below 0: debt */
	tg_u64 throttled_at_ns;
	tg_u64 epoch; /* of the pool when something was last taken */
	tg_u32 throttled;
	tg_u32 pad;
};

enum tg_bw_verdict {
	TG_BW_OUT = 0, /* nothing left: stop, within the granularity that the bound counts */
	TG_BW_RUN = 1,
};

TG_FN int tg_bw_limited(const struct tg_bw_pool *p)
{
	return p->terms.quota_ns != TG_BW_NONE;
}

/* Quota + burst <= 2 * quota < 2^44. */
TG_FN tg_u64 tg_bw_most(const struct tg_bw_pool *p)
{
	return p->terms.quota_ns + p->terms.burst_ns;
}

/* Into the ranges above; what users may ask is narrower. */
TG_FN struct tg_bw_terms tg_bw_bound(const struct tg_bw_terms *t)
{
	struct tg_bw_terms b = *t;

	b.period_ns = tg_clamp(t->period_ns, 1, TG_BW_PERIOD_MAX_NS);
	b.slice_ns = tg_clamp(t->slice_ns, 1, TG_BW_PERIOD_MAX_NS);
	if (t->quota_ns == TG_BW_NONE) {
		b.burst_ns = 0;
		return b;
	}
	b.quota_ns = tg_clamp(t->quota_ns, 1, TG_BW_QUOTA_MAX_NS);
	b.burst_ns = tg_min(t->burst_ns, b.quota_ns);
	return b;
}

/* No limit yet. With TG_BW_KERNEL the timer's grid goes through phase_ns. */
TG_FN void tg_bw_init(struct tg_bw_pool *p, tg_u32 flags, tg_u64 phase_ns)
{
	*p = (struct tg_bw_pool){0};
	p->terms.quota_ns = TG_BW_NONE;
	p->terms.period_ns = 100000000;
	p->terms.slice_ns = 5000000;
	p->turnover_ns = phase_ns;
	p->flags = flags;
	p->keep_ns = TG_BW_KEEP_NS;
	p->idle = 2;
}

/*
 * Put n >= 1 quotas in. Two fill the pool, for burst <= quota: the product is
 * < 2^44, the sum < 2^46, and min(n, 2) gives what n would. The kernel's
 * burst statistics: what the period took beyond one quota. All of it was taken in the
 * first of the n, for a take catches up before it takes.
 */
TG_FN void tg_bw_refill(struct tg_bw_pool *p, tg_u64 n)
{
	tg_u64 taken = tg_sub0(p->snap_ns, p->runtime_ns);

	if (taken > p->terms.quota_ns) {
		p->burst_ns += taken - p->terms.quota_ns;
		p->nr_bursts++;
	}
	p->runtime_ns = tg_min(p->runtime_ns + tg_min(n, 2) * p->terms.quota_ns, tg_bw_most(p));
	p->snap_ns = p->runtime_ns;
	p->granted_ns = p->terms.quota_ns;
	p->epoch++;
}

/*
 * Catch up with the periods that ended by now_ns; their number. nr_periods and
 * nr_throttled as the kernel counts them, whose timer runs while anything is
 * throttled and stops at the second turnover in a row before which nothing was
 * taken. turnover_ns + n * period_ns <= now_ns + period_ns: no wrap.
 */
TG_FN tg_u64 tg_bw_turnover(struct tg_bw_pool *p, tg_u64 now_ns)
{
	tg_u64 n;

	if (!tg_bw_limited(p) || now_ns < p->turnover_ns)
		return 0;
	if (p->flags & TG_BW_KERNEL && p->idle >= 2)
		return 0;
	n = (now_ns - p->turnover_ns) / p->terms.period_ns + 1;
	p->turnover_ns += n * p->terms.period_ns;
	if (p->throttled) {
		p->nr_periods += n;
		p->nr_throttled += n;
		p->idle = 0;
	} else if (p->flags & TG_BW_KERNEL) {
		p->nr_periods += n;
		p->idle = (tg_u32)tg_min(p->idle + 1, 2);
	} else {
		p->nr_periods += tg_min(n, 2 - tg_min(p->idle, 2));
		p->idle = (tg_u32)tg_min(p->idle + tg_min(n, 2), 2);
	}
	tg_bw_refill(p, p->flags & TG_BW_KERNEL ? 1 : n);
	return n;
}

/* Does the kernel's timer run, that is, will turnover_ns be handled? */
TG_FN int tg_bw_active(const struct tg_bw_pool *p)
{
	return tg_bw_limited(p) && p->idle < 2;
}

/*
 * The kernel's timer, stopped, starts again at the next point of its grid;
 * periods that were not seen give nothing.
 */
TG_FN void tg_bw_start(struct tg_bw_pool *p, tg_u64 now_ns)
{
	if (tg_bw_active(p))
		return;
	p->idle = 1;
	if (now_ns >= p->turnover_ns)
		p->turnover_ns +=
		    ((now_ns - p->turnover_ns) / p->terms.period_ns + 1) * p->terms.period_ns;
}

/*
 * Charge what ran; the silo alone is written. Nonzero: it has something left.
 * remaining <= slice and delta <= TG_BW_DEBT_MAX_NS, so the difference is
 * > -2^63; it saturates at -2^62.
 */
TG_FN int tg_bw_charge(const struct tg_bw_pool *p, struct tg_bw_silo *s, tg_u64 delta_ns)
{
	tg_s64 delta = (tg_s64)tg_min(delta_ns, TG_BW_DEBT_MAX_NS);

	if (!tg_bw_limited(p))
		return 1;
	/* A debt at its limit stays there; a silo that is not in debt cannot pass it in one step.
	 */
	s->remaining_ns = s->remaining_ns < delta - TG_BW_DEBT_MAX_NS ? -TG_BW_DEBT_MAX_NS
								      : s->remaining_ns - delta;
	if (p->flags & TG_BW_EXPIRE && s->epoch != p->epoch)
		return 0;
	return s->remaining_ns > 0;
}

/* Slices that expire: what is left of an older period is lost. */
TG_FN void tg_bw_expire(struct tg_bw_pool *p, struct tg_bw_silo *s)
{
	if (!(p->flags & TG_BW_EXPIRE) || s->epoch == p->epoch || s->remaining_ns <= 0)
		return;
	p->expired_ns += (tg_u64)s->remaining_ns;
	s->remaining_ns = 0;
}

/* Move up to amount_ns from the pool to the silo. remaining + amount <= slice: see take. */
TG_FN void tg_bw_move(struct tg_bw_pool *p, struct tg_bw_silo *s, tg_u64 amount_ns)
{
	tg_u64 amount = tg_min(amount_ns, p->runtime_ns);

	p->runtime_ns -= amount;
	s->remaining_ns += (tg_s64)amount;
	s->epoch = p->epoch;
}

/*
 * A silo that is used up is filled to want_ns (a slice; 1 to see whether there
 * is anything). want - remaining <= 2^30 + 2^62 < 2^63.
 */
TG_FN enum tg_bw_verdict tg_bw_take(struct tg_bw_pool *p, struct tg_bw_silo *s, tg_u64 want_ns,
				    tg_u64 now_ns)
{
	if (!tg_bw_limited(p))
		return TG_BW_RUN;
	if (p->flags & TG_BW_KERNEL)
		tg_bw_start(p, now_ns);
	else
		tg_bw_turnover(p, now_ns);
	tg_bw_expire(p, s);
	if (s->remaining_ns > 0)
		return TG_BW_RUN;
	if (p->runtime_ns > 0) {
		tg_s64 want = (tg_s64)tg_min(want_ns, TG_BW_PERIOD_MAX_NS);

		tg_bw_move(p, s, (tg_u64)(want - s->remaining_ns));
		p->idle = 0;
	}
	return s->remaining_ns > 0 ? TG_BW_RUN : TG_BW_OUT;
}

/* Charge what ran, and take a slice when the silo is used up. A throttled silo takes nothing. */
TG_FN enum tg_bw_verdict tg_bw_run(struct tg_bw_pool *p, struct tg_bw_silo *s, tg_u64 delta_ns,
				   tg_u64 now_ns)
{
	if (tg_bw_charge(p, s, delta_ns))
		return TG_BW_RUN;
	if (s->throttled)
		return TG_BW_OUT;
	return tg_bw_take(p, s, p->terms.slice_ns, now_ns);
}

/*
 * Stop the group on this CPU, unless something has come into the pool since it
 * was found empty. Returns whether it is throttled.
 */
TG_FN int tg_bw_throttle(struct tg_bw_pool *p, struct tg_bw_silo *s, tg_u64 now_ns)
{
	if (s->throttled)
		return 1;
	if (tg_bw_take(p, s, 1, now_ns) == TG_BW_RUN)
		return 0;
	s->throttled = 1;
	s->throttled_at_ns = now_ns;
	p->throttled++;
	return 1;
}

TG_FN void tg_bw_unthrottle(struct tg_bw_pool *p, struct tg_bw_silo *s, tg_u64 now_ns)
{
	if (!s->throttled)
		return;
	p->throttled_ns += tg_sub0(now_ns, s->throttled_at_ns);
	p->throttled -= p->throttled > 0;
	s->throttled = 0;
}

/*
 * After a turnover, a return or a change: pay a throttled silo's debt and one
 * ns, so that it may run and take a slice. Returns whether it may run now.
 */
TG_FN int tg_bw_distribute(struct tg_bw_pool *p, struct tg_bw_silo *s, tg_u64 now_ns)
{
	if (!(p->flags & TG_BW_KERNEL))
		tg_bw_turnover(p, now_ns);
	if (tg_bw_limited(p) && s->throttled) {
		if (s->remaining_ns <= 0)
			tg_bw_move(p, s, (tg_u64)(1 - s->remaining_ns));
		if (s->remaining_ns <= 0)
			return 0;
	}
	tg_bw_unthrottle(p, s, now_ns);
	return 1;
}

/*
 * The group has nothing runnable on this CPU: all but 1 ms goes back. Returns
 * how much. runtime + slices of all CPUs < 2^44 + 2^13 * 2^30 < 2^45.
 */
TG_FN tg_u64 tg_bw_return(struct tg_bw_pool *p, struct tg_bw_silo *s)
{
	tg_u64 slack;

	if (!tg_bw_limited(p) || s->remaining_ns <= (tg_s64)p->keep_ns)
		return 0;
	slack = (tg_u64)s->remaining_ns - p->keep_ns;
	s->remaining_ns = p->keep_ns;
	if (p->flags & TG_BW_EXPIRE && s->epoch != p->epoch) {
		p->expired_ns += slack;
		return 0;
	}
	p->runtime_ns += slack;
	return slack;
}

/*
 * Change the terms, as an engine of our own must: debts stay, nothing is
 * refilled but the difference that a raise makes in this period, and the
 * period that runs runs out. So with any changes at any times the refills of
 * one period sum to no more than the largest quota that it was given, and a
 * change back and forth gains nothing. A new period's length counts from the
 * next turnover on; until then no raise does. Distribute afterwards.
 * From no limit to one: a fresh period, a full pool.
 */
TG_FN void tg_bw_set(struct tg_bw_pool *p, const struct tg_bw_terms *terms, tg_u64 now_ns)
{
	struct tg_bw_terms t = tg_bw_bound(terms);
	int was_limited = tg_bw_limited(p);
	tg_u64 granted, taken;

	tg_bw_turnover(p, now_ns);
	taken = was_limited ? tg_sub0(p->snap_ns, p->runtime_ns) : 0;
	granted = t.period_ns == p->terms.period_ns ? p->granted_ns : TG_BW_NONE;
	p->terms = t;
	if (!tg_bw_limited(p))
		return;
	if (!was_limited) {
		p->turnover_ns = now_ns + t.period_ns;
		p->runtime_ns = 0;
		p->idle = 0;
		granted = 0;
	}
	p->runtime_ns = tg_min(p->runtime_ns + tg_sub0(t.quota_ns, granted), tg_bw_most(p));
	p->snap_ns = p->runtime_ns + taken;
	p->granted_ns = tg_max(granted, t.quota_ns);
}

/*
 * What the stock kernel does with the same pool and silos
 * that the law would not: for the simulator's stock kernel and for comparison.
 *
 * Source: kernel/sched/fair.c and core.c of 6.12. A pool made with
 * TG_BW_KERNEL already adds one quota for each turnover that is handled,
 * however many periods that covers, and keeps the timer's grid (tg_bw_start).
 * Here: a write of the quota, which refills and forgives, and the slack timer,
 * which hands returned CPU time to throttled CPUs between turnovers. Left out:
 * the kernel doubles a period whose timer cannot keep up with it.
 */

/* How long slack is gathered, and how near to a turnover it is no longer worth it. */
#define TG_BW_SLACK_WAIT_NS 5000000ULL
#define TG_BW_SLACK_LEAST_NS 2000000ULL

/*
 * A write of the kernel's file: new terms and a refill by the new quota. The
 * turnover that was due stays due. Afterwards the caller passes every silo of the
 * group through tg_bw_forgive: a write gives quota + all debts away.
 */
TG_FN void tg_bw_set_kernel(struct tg_bw_pool *p, const struct tg_bw_terms *terms, tg_u64 now_ns)
{
	p->terms = tg_bw_bound(terms);
	if (!tg_bw_limited(p)) {
		p->idle = 2;
		return;
	}
	tg_bw_refill(p, 1);
	tg_bw_start(p, now_ns);
}

/*
 * What such a write does to each silo: what it held or owed is forgotten, and it may run. One ns is
 * left (as from 6.18 on), or the first silo let go would take the pool and stop the others again.
 */
TG_FN void tg_bw_forgive(struct tg_bw_pool *p, struct tg_bw_silo *s, tg_u64 now_ns)
{
	s->remaining_ns = 1;
	tg_bw_unthrottle(p, s, now_ns);
}

/* Is a turnover due within this long, or past due? */
TG_FN int tg_bw_near(const struct tg_bw_pool *p, tg_u64 within_ns, tg_u64 now_ns)
{
	return tg_sub0(p->turnover_ns, now_ns) < within_ns;
}

/* After tg_bw_return gave something: is the slack timer to fire TG_BW_SLACK_WAIT_NS from now? */
TG_FN int tg_bw_slack_wanted(const struct tg_bw_pool *p, tg_u64 now_ns)
{
	return tg_bw_limited(p) && p->throttled && p->runtime_ns > p->terms.slice_ns &&
	       !tg_bw_near(p, TG_BW_SLACK_WAIT_NS + TG_BW_SLACK_LEAST_NS, now_ns);
}

/* It has fired: is what has been gathered to be distributed? */
TG_FN int tg_bw_slack_due(const struct tg_bw_pool *p, tg_u64 now_ns)
{
	return tg_bw_limited(p) && p->runtime_ns > p->terms.slice_ns &&
	       !tg_bw_near(p, TG_BW_SLACK_LEAST_NS, now_ns);
}

#endif /* TG_LAW_BANDWIDTH_H */
