/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * harm_evidence.h - main's tail, and what all signals of the pairs so far tell together.
 *
 * The tail is the share of main's turns that begin after a longer wait than is asked for, at HIGH
 * less at LOW; its pairs are summed as the others' are, with turns as the weight.
 */
#ifndef TG_LAW_HARM_EVIDENCE_H
#define TG_LAW_HARM_EVIDENCE_H

#include "harm_pairs.h"

/* More turns in a pair weigh as so many. */
#define TG_HARM_TURNS_MAX (1ULL << 26)

/*
 * A pair of the tail: its turns, plus and minus half of the difference in the share of late ones,
 * so that diff / sum is half of that difference, and turns are the weight. 2^-10 of a turn; shares
 * in 2^-20 of < 2^40 turns: 2^26 * 2^20. Neither knows which block was HIGH. 0: no turns to compare.
 */
TG_FN int tg_harm_tail(const struct tg_harm_block *lo, const struct tg_harm_block *hi, tg_u64 *high,
		       tg_u64 *low)
{
	tg_u64 weight = tg_min(lo->turns + hi->turns, TG_HARM_TURNS_MAX);
	tg_u64 more, less, half;

	if (!lo->turns || !hi->turns)
		return 0;
	more = (hi->late << 20) / hi->turns;
	less = (lo->late << 20) / lo->turns;
	half = weight * tg_max(tg_sub0(more, less), tg_sub0(less, more)) >> 11;
	*high = (weight << 10) + (more > less ? half : 0) - (more < less ? half : 0);
	*low = (weight << 10) + (more < less ? half : 0) - (more > less ? half : 0);
	return 1;
}

/* Twice diff / sum, in ppm and within 10^6: 2^31 * 2^21. */
TG_FN tg_s32 tg_harm_share_ppm(tg_s64 diff, tg_u64 sum)
{
	tg_s32 ppm = (tg_s32)tg_min(tg_abs(diff) * 2 * TG_PPM / tg_max(sum, 1), TG_PPM);

	return diff < 0 ? -ppm : ppm;
}

struct tg_harm_shares {
	tg_s32 ppm, lower_ppm, upper_ppm, pad;
};

/* By how much the share of late turns differs; without data by anything. */
TG_FN struct tg_harm_shares tg_harm_shares(const struct tg_harm_config *c,
					   const struct tg_harm_sums *s)
{
	struct tg_harm_shares b = {0, -(tg_s32)TG_PPM, (tg_s32)TG_PPM, 0};
	tg_s64 reach = (tg_s64)tg_harm_reach(c, s);

	if (s->sum == 0)
		return b;
	b.ppm = tg_harm_share_ppm(s->diff, s->sum);
	b.lower_ppm = tg_harm_share_ppm(s->diff - reach, s->sum);
	b.upper_ppm = tg_harm_share_ppm(s->diff + reach, s->sum);
	return b;
}

/* What the pairs tell of the time that work takes, and of the tail. */
struct tg_harm_evidence {
	struct tg_harm_bounds time;
	struct tg_harm_shares tail;
	tg_u32 stretch_ppm, pad;
	int closed, agree;
	int found, within, above;		 /* of no harm, the aim and again the aim */
	int tail_found, tail_within, tail_above; /* of half of the accepted share, and of it */
	int tail_fits;				 /* the estimate, of it */
};

/* Why it does not know. */
TG_FN tg_u32 tg_harm_why(const struct tg_harm *h, int contradicting)
{
	tg_u64 reach = tg_harm_reach(&h->cfg, &h->sums[TG_HARM_RUNNABLE]);

	if (contradicting)
		return TG_HARM_CONTRADICTING;
	return tg_abs(h->trend) > reach ? TG_HARM_DRIFT : h->why;
}

/*
 * What the pairs so far tell. Side work that takes main's CPU makes it wait; the arrivals of
 * an open main do not care, so its CPU time stays what it was. Those of a closed one come
 * later, so its CPU time falls as its delay rises, and the runnable time per CPU time tells.
 * Where the runnable time falls, work takes less time in both.
 *
 * Looks for harm are few, each at twice the pairs of the last: every look is a chance to be
 * wrong. That there is none may be seen at any pair; it ends the learning.
 */
TG_FN struct tg_harm_evidence tg_harm_weigh(const struct tg_harm *h)
{
	const tg_u64 accepted_ppm = TG_HARM_NO_HARM + h->cfg.aim_ppm;
	const tg_s32 tail_ppm = (tg_s32)h->cfg.tail_ppm;
	struct tg_harm_bounds cpu = tg_harm_bounds(&h->cfg, &h->sums[TG_HARM_CPU]);
	struct tg_harm_bounds delay = tg_harm_bounds(&h->cfg, &h->sums[TG_HARM_DELAY]);
	struct tg_harm_bounds stretch = tg_harm_bounds(&h->cfg, &h->sums[TG_HARM_STRETCH]);
	struct tg_harm_evidence e = {0};

	e.time = tg_harm_bounds(&h->cfg, &h->sums[TG_HARM_RUNNABLE]);
	e.tail = tg_harm_shares(&h->cfg, &h->sums[TG_HARM_TAIL]);
	e.stretch_ppm = stretch.ratio_ppm;
	e.closed = cpu.upper_ppm < TG_HARM_NO_HARM && delay.lower_ppm > TG_HARM_NO_HARM &&
		   e.time.upper_ppm >= TG_HARM_NO_HARM;
	e.agree =
	    e.closed || e.time.upper_ppm < TG_HARM_NO_HARM || stretch.upper_ppm < accepted_ppm;
	if (e.closed)
		e.time = stretch;
	e.within = e.time.upper_ppm < accepted_ppm;
	e.found = e.time.lower_ppm > TG_HARM_NO_HARM;
	e.above = e.time.lower_ppm > accepted_ppm;
	e.tail_fits = !tail_ppm || e.tail.ppm <= tail_ppm;
	e.tail_within = !tail_ppm || e.tail.upper_ppm < tail_ppm;
	e.tail_found = tail_ppm && e.tail.lower_ppm > (tg_s32)(h->cfg.tail_ppm / 2);
	e.tail_above = tail_ppm && e.tail.lower_ppm > tail_ppm;
	return e;
}

/*
 * No harm was found: would one have been? A standard error is the aim or less, main did not change
 * meanwhile, and a main with a closed set of callers is not hidden in it.
 */
TG_FN int tg_harm_would_show(const struct tg_harm *h, const struct tg_harm_evidence *e)
{
	const tg_u64 accepted_ppm = TG_HARM_NO_HARM + h->cfg.aim_ppm;
	tg_u64 reach_ppm = e->time.upper_ppm - e->time.ratio_ppm;
	int agree = e->closed || e->time.ratio_ppm > accepted_ppm || e->stretch_ppm <= accepted_ppm;

	return agree && h->turns >= h->cfg.turns_min && h->used_us >= h->void_us &&
	       reach_ppm * 100 <= (tg_u64)h->cfg.aim_ppm * h->cfg.z_pct &&
	       tg_abs(h->trend) <= tg_harm_reach(&h->cfg, &h->sums[TG_HARM_RUNNABLE]);
}

#endif /* TG_LAW_HARM_EVIDENCE_H */
