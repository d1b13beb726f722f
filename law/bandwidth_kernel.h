/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * bandwidth_kernel.h - what the stock kernel does with the same pool and silos
 * that the law would not: for the simulator's stock kernel and for comparison.
 *
 * Source: kernel/sched/fair.c and core.c of 6.12. A pool made with
 * TG_BW_KERNEL already adds one quota for each turnover that is handled,
 * however many periods that covers, and keeps the timer's grid (tg_bw_start).
 * Here: a write of the quota, which refills and forgives, and the slack timer,
 * which hands returned CPU time to throttled CPUs between turnovers. Left out:
 * the kernel doubles a period whose timer cannot keep up with it.
 */
#ifndef TG_LAW_BANDWIDTH_KERNEL_H
#define TG_LAW_BANDWIDTH_KERNEL_H

#include "bandwidth.h"

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

#endif /* TG_LAW_BANDWIDTH_KERNEL_H */
