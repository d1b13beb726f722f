/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * share.h - one allowance over several targets, by weight and demand.
 *
 * Water-filling: raise one level for all; target i is at
 *     max(floor_i, min(demand_i, level * weight_i))
 * and the level is the highest at which the sum fits the allowance. If every
 * demand is met and something is left, that is handed out by weight on top
 * (demand is only what was used lately; a target must be able to grow).
 *
 * Holds for every input (crates/law/tests/all/share.rs):
 *   floors    out_i >= floor_i
 *   bound     sum(out) <= max(allowance, sum(floors))
 *   work      sum(out) = max(allowance, sum(floors))
 *   demand    out_i <= max(demand_i, floor_i), unless all demands are met
 *   fairness  among targets below their demand and above their floor,
 *             out_i / weight_i is equal to within one ucpu per target
 *   monotone  a larger allowance lowers no share (by more than 1 ucpu,
 *             where all demands are met and roundings go out in order)
 *
 * Cost: (TG_SHARE_STEPS + 3) passes over n <= TG_SHARE_MAX targets.
 */
#ifndef TG_LAW_SHARE_H
#define TG_LAW_SHARE_H

#include "base.h"

#define TG_SHARE_MAX 1024U
#define TG_WEIGHT_MAX 10000U

/*
 * The level is a rate per unit of weight with 16 fractional bits. The highest
 * useful one is TG_UCPU_MAX << 16 < 2^49 (weight 1 takes all), so bisection
 * ends in 49 steps; times the largest weight it is < 2^63.
 */
#define TG_SHARE_STEPS 49
#define TG_SHARE_BITS 16

struct tg_demand {
	tg_u64 weight;	    /* 1..10000; clamped to that */
	tg_u64 demand_ucpu; /* clamped to TG_UCPU_MAX */
	tg_u64 floor_ucpu;  /* clamped to TG_UCPU_MAX */
};

TG_FN tg_u64 tg_share_weight(const struct tg_demand *d)
{
	return tg_clamp(d->weight, 1, TG_WEIGHT_MAX);
}

/* What target d gets at this level. */
TG_FN tg_u64 tg_share_at(const struct tg_demand *d, tg_u64 level)
{
	tg_u64 part = (tg_share_weight(d) * level) >> TG_SHARE_BITS;
	tg_u64 most = tg_min(d->demand_ucpu, TG_UCPU_MAX);

	return tg_max(tg_min(d->floor_ucpu, TG_UCPU_MAX), tg_min(most, part));
}

/* n * TG_UCPU_MAX = 1024 * 8.192e9 < 2^43. */
TG_FN tg_u64 tg_share_sum(const struct tg_demand *d, tg_u32 n, tg_u64 level)
{
	tg_u64 sum = 0;

	for (tg_u32 i = 0; i < n; i++)
		sum += tg_share_at(&d[i], level);
	return sum;
}

/* All demands are met: the rest by weight. rest * weight < 2^33 * 2^14. */
TG_FN void tg_share_rest(tg_u64 rest, const struct tg_demand *d, tg_u32 n, tg_u64 *out)
{
	tg_u64 weights = 0, given = 0;

	for (tg_u32 i = 0; i < n; i++)
		weights += tg_share_weight(&d[i]);
	for (tg_u32 i = 0; i < n; i++) {
		tg_u64 part = rest * tg_share_weight(&d[i]) / tg_max(weights, 1);

		out[i] += part;
		given += part;
	}
	/* Each division drops less than one: what is left is < n, and the first get it. */
	for (tg_u32 i = 0; i < n; i++) {
		if (i >= rest - given)
			break;
		out[i]++;
	}
}

/*
 * The highest level at which the sum fits, 0 if not even the floors do. At
 * (allowance + 1) per unit of weight either one target alone exceeds the
 * allowance or all demands are met, and the caller knows that those do not
 * fit; so the sum at `high` never does. A fixed number of rounds, and bounds
 * that come from data, so that nothing here depends on a lucky first guess.
 */
TG_FN tg_u64 tg_share_level(tg_u64 allowance, const struct tg_demand *d, tg_u32 n)
{
	tg_u64 low = 0, high = (allowance + 1) << TG_SHARE_BITS;

	for (tg_u32 step = 0; step < TG_SHARE_STEPS; step++) {
		tg_u64 mid = low + (high - low) / 2;
		int fits = tg_share_sum(d, n, mid) <= allowance;

		low = fits ? mid : low;
		high = fits ? high : mid;
	}
	return low;
}

/* n is at most TG_SHARE_MAX: the caller sees to it. */
TG_FN void tg_share(tg_u64 allowance_ucpu, const struct tg_demand *d, tg_u32 n, tg_u64 *out)
{
	tg_u64 allowance = tg_min(allowance_ucpu, TG_UCPU_MAX), level, sum = 0;

	/* At the largest level each has all it demands. */
	for (tg_u32 i = 0; i < n; i++) {
		out[i] = tg_share_at(&d[i], TG_UCPU_MAX << TG_SHARE_BITS);
		sum += out[i];
	}
	if (sum <= allowance) {
		tg_share_rest(allowance - sum, d, n, out);
		return;
	}
	level = tg_share_level(allowance, d, n);
	sum = 0;
	for (tg_u32 i = 0; i < n; i++) {
		out[i] = tg_share_at(&d[i], level);
		sum += out[i];
	}
	/*
	 * From level to level + 1 a target grows by at most one ucpu (its weight
	 * is below 2^16), so handing ones to those that grow there ends within n.
	 */
	for (tg_u32 i = 0; i < n; i++) {
		if (sum >= allowance)
			break;
		if (tg_share_at(&d[i], level + 1) > out[i]) {
			out[i]++;
			sum++;
		}
	}
}

#endif /* TG_LAW_SHARE_H */
