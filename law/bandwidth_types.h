/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * bandwidth_types.h - what the bandwidth law is given and what it remembers.
 *
 * Ranges (tg_bw_bound clamps to them), on which bandwidth.h rests:
 *   quota  <= TG_BW_QUOTA_MAX_NS = 8192 CPUs * 1 s = 8.192e12 < 2^43
 *   burst  <= quota
 *   period, slice <= TG_BW_PERIOD_MAX_NS = 1 s < 2^30
 *   now    < 2^63
 */
#ifndef TG_LAW_BANDWIDTH_TYPES_H
#define TG_LAW_BANDWIDTH_TYPES_H

#include "base.h"

#define TG_BW_NONE (~0ULL) /* a quota that is no limit */
#define TG_BW_PERIOD_MAX_NS 1000000000ULL
#define TG_BW_QUOTA_MAX_NS (TG_CPUS_MAX * TG_BW_PERIOD_MAX_NS)

/* What users may ask for: the kernel's least quota and period. */
#define TG_BW_LEAST_NS 1000000ULL

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

#endif /* TG_LAW_BANDWIDTH_TYPES_H */
