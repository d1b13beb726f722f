/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * harm_pairs.h - pairs of blocks of one signal: their sums, and the ratio that these tell.
 *
 * A pair comes in units of the level of those before it, in 2^-17. Each is at most four
 * levels; forgetting at least 2^-10 a pair keeps sums < 2^30 and sums of squares < 2^48.
 */
#ifndef TG_LAW_HARM_PAIRS_H
#define TG_LAW_HARM_PAIRS_H

#include "harm_types.h"
#include "noise.h"

#define TG_HARM_UNIT 131072ULL /* a pair at its level: 2^17 */
/* A pair counts for at most so many of its level. */
#define TG_HARM_WEIGHT_MAX 4ULL
#define TG_HARM_NO_HARM TG_PPM

/*
 * A mean number of tasks, in ppm of one: < 2^55 ns (2^17 tasks for 200 s) * 100, over tens of
 * us. At most 2^37.
 */
TG_FN tg_u64 tg_harm_rate(tg_u64 time_ns, tg_u64 used_us)
{
	return time_ns * 100 / tg_max(used_us / 10, 1);
}

/* Runnable time per CPU time in 2^-16, cut to 2^37: 2^38 * 2^16. */
TG_FN tg_u64 tg_harm_stretch(tg_u64 runnable, tg_u64 cpu)
{
	return tg_min((runnable << 16) / tg_max(cpu, 1), 1ULL << 37);
}

/* Signed x * weight / 2^16, towards zero; |x| < 2^47. */
TG_FN tg_s64 tg_harm_part(tg_s64 x, tg_u64 weight_16)
{
	tg_s64 part = (tg_s64)(tg_abs(x) * weight_16 >> 16);

	return x < 0 ? -part : part;
}

/* Forget w of the sums and w of the squares twice; squares < 2^48, less 8 bits, times 2^16. */
TG_FN void tg_harm_forget(struct tg_harm_sums *s, tg_u64 weight_16)
{
	s->diff -= tg_harm_part(s->diff, weight_16);
	s->sum -= s->sum * weight_16 >> 16;
	for (int twice = 0; twice < 2; twice++)
		s->diff_square -= (s->diff_square >> 8) * weight_16 >> 8;
}

/*
 * A pair in units of what the pairs before it were (so that the unit cannot know the sign of
 * this one): *high and *low, at most four units together. 0 and 0: there is no level yet.
 * high, low < 2^38, times 2^17.
 */
TG_FN void tg_harm_scale(struct tg_harm_sums *s, tg_u64 *high, tg_u64 *low, tg_u64 weight_16)
{
	tg_u64 total = *high + *low, level = s->level;
	tg_u64 unit =
	    tg_max(tg_max(level, (total + TG_HARM_WEIGHT_MAX - 1) / TG_HARM_WEIGHT_MAX), 1);

	*high = level ? *high * TG_HARM_UNIT / unit : 0;
	*low = level ? *low * TG_HARM_UNIT / unit : 0;
	s->level = level ? tg_mean(level, tg_min(total, 8 * level), weight_16) : total;
}

/*
 * By how much a pair is off from diff / sum = at_20 / 2^20, at most three times its noise:
 * |at| <= 2^20, sum <= 2^19; the noise is of pairs of all kinds, so one block is no alarm.
 */
TG_FN tg_s64 tg_harm_off(tg_s64 diff, tg_u64 sum, tg_s64 at_20)
{
	tg_s64 due = (tg_s64)(tg_abs(at_20) * sum >> 20);

	return at_20 < 0 ? diff + due : diff - due;
}

/* diff / sum in 2^-20: 2^30 * 2^20. */
TG_FN tg_s64 tg_harm_share_20(const struct tg_harm_sums *s)
{
	tg_s64 share = (tg_s64)((tg_abs(s->diff) << 20) / tg_max(s->sum, 1));

	return s->diff < 0 ? -share : share;
}

/* One signal of a pair while it learns. Squares are < 2^38; a weight >= 2^-10 keeps sums < 2^48. */
TG_FN void tg_harm_add(struct tg_harm_sums *s, tg_u64 high, tg_u64 low, tg_u64 forget_16,
		       tg_u64 level_16)
{
	tg_s64 diff, off;
	tg_u64 sum;

	tg_harm_scale(s, &high, &low, level_16);
	diff = (tg_s64)high - (tg_s64)low;
	sum = high + low;
	tg_harm_forget(s, forget_16);
	s->diff += diff;
	s->sum += sum;
	s->diff_square += tg_abs(diff) * tg_abs(diff);
	off = tg_harm_off(diff, sum, tg_harm_share_20(s));
	s->noise = tg_mean(s->noise, tg_abs(off) * tg_abs(off), level_16);
}

/*
 * How far diff may be off: z standard errors, from squares that an effect is part of, so that
 * signs that are coins keep Hoeffding's bound. Root < 2^24, z <= 10.
 */
TG_FN tg_u64 tg_harm_reach(const struct tg_harm_config *c, const struct tg_harm_sums *s)
{
	return tg_min((tg_sqrt(s->diff_square) + 1) * c->z_pct / 100, s->sum);
}

/* high / low: 2^32 * 10^6. */
TG_FN tg_u32 tg_harm_ratio(tg_u64 high, tg_u64 low)
{
	return (tg_u32)tg_min(high * TG_PPM / tg_max(low, 1), TG_HARM_RATIO_MAX);
}

struct tg_harm_bounds {
	tg_u32 ratio_ppm, lower_ppm, upper_ppm, pad;
};

/* A ratio with its bounds; without data any ratio is possible. */
TG_FN struct tg_harm_bounds tg_harm_bounds(const struct tg_harm_config *c,
					   const struct tg_harm_sums *s)
{
	struct tg_harm_bounds b = {TG_HARM_NO_HARM, 0, TG_HARM_RATIO_MAX, 0};
	tg_u64 reach = tg_harm_reach(c, s);
	tg_u64 high = (tg_u64)((tg_s64)s->sum + s->diff), low = (tg_u64)((tg_s64)s->sum - s->diff);

	if (s->sum == 0)
		return b;
	b.ratio_ppm = tg_harm_ratio(high, low);
	b.lower_ppm = tg_harm_ratio(tg_sub0(high, reach), low + reach);
	b.upper_ppm = tg_harm_ratio(high + reach, tg_sub0(low, reach));
	return b;
}

#endif /* TG_LAW_HARM_PAIRS_H */
