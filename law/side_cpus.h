/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * side_cpus.h - how many CPUs side work may use, from what the headroom law allows.
 *
 * The allowance is kept in space first: side work may hold as many whole CPUs as fit in it.
 * The fraction is kept in time:
 *
 *     credit  allowance less use: opens one CPU more until it is spent
 *     owed    floor less use: when it is a millisecond, side work displaces main
 *
 * The floor is the tolerance or, if that is more, what the kernel's watchdog makes
 * necessary: TG_SIDE_MIN_RUNTIME_NS in TG_SIDE_ROUND_NS for each task of side work, 66
 * millionths of a CPU; 1 % of a CPU for 150 of them.
 *
 * A step counts for a second at most: a timer that comes late (a stopped machine) is not
 * to make of one rate so much credit. Rates <= TG_UCPU_MAX, so a step's CPU time is
 * < 2^33 * 10^9 / 10^6 < 2^43, as are the credits.
 */
#ifndef TG_LAW_SIDE_CPUS_H
#define TG_LAW_SIDE_CPUS_H

#include "headroom.h"
#include "tuning.h"

#define TG_SIDE_DT_MAX_NS 1000000000ULL

/* What a CPU costs that side work runs on. */
#define TG_SIDE_FILLS_CORE 0  /* side work has a thread of its core, or CPUs share no cores */
#define TG_SIDE_WHOLE_CORE 1  /* takes a core that is idle as a whole */
#define TG_SIDE_BESIDE_MAIN 2 /* shares a core with what is not side work */

struct tg_side_credit {
	tg_s64 credit_ns;
	tg_s64 owed_ns;
	tg_u32 open; /* the credit opens a CPU until it is spent */
	tg_u32 cpus; /* that side work may use until the next step */
};

/* What the watchdog makes necessary. members < 2^22, the most pids of a kernel; times 66 < 2^29. */
TG_FN tg_u64 tg_side_watchdog_ucpu(tg_u64 members)
{
	return members * (TG_SIDE_MIN_RUNTIME_NS * TG_UCPU / TG_SIDE_ROUND_NS);
}

TG_FN tg_u64 tg_side_floor_ucpu(const struct tg_headroom_decision *d, tg_u64 members)
{
	return tg_max(d->floor_ucpu, tg_side_watchdog_ucpu(members));
}

/* CPUs for an allowance, of those that are online. */
TG_FN tg_u32 tg_side_cpus(const struct tg_side_credit *c, tg_u64 allowance_ucpu, tg_u32 online)
{
	tg_u64 whole = allowance_ucpu / TG_UCPU;
	/* A debt of more than a CPU's step is worked off by a CPU less. */
	tg_u64 less = c->credit_ns < -(tg_s64)TG_SIDE_CREDIT_NS;
	tg_u64 credit_ns = c->credit_ns > 0 ? (tg_u64)c->credit_ns : 0;

	/* Where main pulses on all CPUs at the same moments, one CPU in between is not enough for
	 * what is less than one, or a few. */
	return (tg_u32)tg_min(tg_sub0(whole, less) + c->open + credit_ns / TG_SIDE_CATCH_UP_NS,
			      tg_min(whole + tg_max(whole / 4, 1) + 1, tg_max(online, 1)));
}

/*
 * One step. `before_ucpu`: what the decision before this one allowed; side_ns: what side work used
 * in dt_ns; members: tasks of side work that run or want to.
 */
TG_FN void tg_side_step(struct tg_side_credit *c, const struct tg_headroom_decision *d,
			tg_u64 before_ucpu, tg_u64 dt_ns, tg_u64 side_ns, tg_u64 members,
			tg_u32 online)
{
	const tg_s64 step_ns = (tg_s64)TG_SIDE_CREDIT_NS;
	tg_u64 floor_ucpu = tg_side_floor_ucpu(d, members);
	tg_u64 allowance_ucpu = tg_max(d->allowance_ucpu, floor_ucpu);
	/* Room for what a step adds: a credit that opens at a millisecond and is cut there loses
	 * it. */
	tg_u64 open_ns = TG_SIDE_CREDIT_NS + tg_time_ns(allowance_ucpu, TG_SIDE_CREDIT_NS);
	tg_s64 most_ns =
	    (tg_s64)tg_max(tg_time_ns(allowance_ucpu, TG_SIDE_CREDIT_KEEP_NS), open_ns);

	/* Main has stepped: what was saved up under its old level is not to be spent at its new
	 * one. */
	if (before_ucpu > allowance_ucpu + d->capacity_ucpu / TG_SIDE_CUT_PART) {
		c->credit_ns = tg_min_s(c->credit_ns, 0);
		c->open = 0;
	}
	dt_ns = tg_min(dt_ns, TG_SIDE_DT_MAX_NS);
	c->credit_ns =
	    tg_clamp_s(c->credit_ns + (tg_s64)tg_time_ns(allowance_ucpu, dt_ns) - (tg_s64)side_ns,
		       -most_ns, most_ns);
	c->owed_ns =
	    tg_clamp_s(c->owed_ns + (tg_s64)tg_time_ns(floor_ucpu, dt_ns) - (tg_s64)side_ns,
		       -step_ns, 2 * step_ns);
	if (c->credit_ns >= step_ns)
		c->open = 1;
	else if (c->credit_ns <= 0)
		c->open = 0;
	c->cpus = tg_side_cpus(c, allowance_ucpu, online);
}

/* Side work has waited for its floor until it must be given at main's cost. */
TG_FN int tg_side_owed(const struct tg_side_credit *c)
{
	return c->owed_ns >= (tg_s64)TG_SIDE_CREDIT_NS;
}

#endif /* TG_LAW_SIDE_CPUS_H */
