/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * harm.h - how much longer main's work takes because side work runs.
 *
 * Source: a randomised paired experiment (Fisher, 1935). Time is cut into pairs of blocks:
 * side work is held at the LOW level in one, at the HIGH level in the other, in an order that
 * a coin decides. Compared is main's mean number of runnable tasks,
 *
 *     R = (CPU time + run delay) / time	 = arrivals * mean time to run (Little, 1961)
 *     diff = HIGH - LOW	  sum = HIGH + LOW	  of each pair, over main's usual level
 *     ratio = (sum + diff) / (sum - diff)	  of the sums; bounds: diff -+ reach
 *     reach = z * sqrt(sum of diff^2)
 *
 * Where side work does nothing to main, the coin alone decides the sign of each diff, so that
 * P(diff > reach) <= exp(-z^2 / 2) whatever main does (Hoeffding, 1963): drift, bursts and
 * mixes of work widen the interval and make no finding. law/harm.md has the proof, the
 * measured figures, and what a main with a closed set of callers changes.
 *
 * LEARN: pair after pair, half of the time at each level, until the interval is clear of
 * the aim. PROBE: one level is held, and a pair now and then tells whether what was learnt
 * still holds: if it does not, LEARN.
 *
 * Bounds, for any input in any state: lower <= ratio <= upper; FOUND only with lower above
 * 10^6; RAISE only with lower above, LOWER only with upper below 10^6 + aim; between probes
 * at least probe / 2 at the held level.
 *
 * Ranges: beside each product. A window that cannot be true is void, as is one in which the
 * level asked for was not in force all the time.
 */
#ifndef TG_LAW_HARM_H
#define TG_LAW_HARM_H

#include "harm_pairs.h"

/* In probes the held level's block is so much longer: it costs nothing. */
#define TG_HARM_HELD_BLOCKS 4ULL
/* Half of the watch is forgotten in four probes: 1 - 2^(-1/4), and 1 / (1 - 2^(-1/2)). */
#define TG_HARM_WATCH_16 10427ULL
#define TG_HARM_WATCH_SPAN(noise) ((noise) * 7 / 2)
#define TG_HARM_SEED 0x9e3779b97f4a7c15ULL

/* xorshift64 (Marsaglia, 2003): never 0 where it was not. */
TG_FN tg_u64 tg_harm_random(struct tg_harm *h)
{
	h->random ^= h->random << 13;
	h->random ^= h->random >> 7;
	h->random ^= h->random << 17;
	return h->random;
}

/* The level for the next window. Work that the last one left behind is in the guard. */
TG_FN void tg_harm_set_arm(struct tg_harm *h, tg_u32 arm)
{
	h->in_guard = arm != h->answer.arm;
	h->answer.arm = arm;
	h->age_us = 0;
	h->block[arm & 1] = (struct tg_harm_block){0};
}

TG_FN void tg_harm_begin_pair(struct tg_harm *h)
{
	h->place = 1;
	tg_harm_set_arm(h, (tg_u32)(tg_harm_random(h) >> 63));
}

/* The held level, for half to one and a half of the mean time between probes. */
TG_FN void tg_harm_begin_gap(struct tg_harm *h)
{
	h->place = 0;
	tg_harm_set_arm(h, h->held);
	h->gap_us = h->cfg.probe_us / 2 + (tg_harm_random(h) >> 32) % h->cfg.probe_us;
}

/* What was known is out of date (a reason), or never was (TOO_LITTLE). */
TG_FN void tg_harm_learn(struct tg_harm *h, tg_u32 why)
{
	struct tg_harm_answer *a = &h->answer;

	for (int i = 0; i < TG_HARM_SIGNALS; i++)
		h->sums[i] = (struct tg_harm_sums){0};
	h->phase = TG_HARM_LEARN;
	h->why = why;
	h->learns++;
	h->pairs = 0;
	h->look = h->cfg.pairs_min;
	h->turns = 0;
	h->trend = 0;
	h->phase_us = h->void_us = h->used_us = h->since_pair_us = 0;
	a->verdict = TG_HARM_UNKNOWN;
	a->reason = why;
	a->wish = TG_HARM_HOLD;
	a->closed = 0;
	tg_harm_begin_pair(h);
}

/* Other levels: what was learnt is of no use. */
TG_FN void tg_harm_restart(struct tg_harm *h)
{
	tg_harm_learn(h, TG_HARM_TOO_LITTLE);
	h->answer.ratio_ppm = TG_HARM_NO_HARM;
	h->answer.lower_ppm = 0;
	h->answer.upper_ppm = TG_HARM_RATIO_MAX;
}

/* `seed`: any number; the same one gives the same levels for the same windows. */
TG_FN void tg_harm_init(struct tg_harm *h, const struct tg_harm_config *cfg, tg_u64 seed)
{
	struct tg_harm_config *c = &h->cfg;

	*h = (struct tg_harm){0};
	*c = *cfg;
	c->aim_ppm = (tg_u32)tg_clamp(c->aim_ppm, 1, TG_PPM);
	c->z_pct = (tg_u32)tg_clamp(c->z_pct, 100, 1000);
	c->block_us = (tg_u32)tg_clamp(c->block_us, 1000, TG_HARM_BLOCK_MAX_US);
	c->guard_us = (tg_u32)tg_min(c->guard_us, c->block_us / 2);
	c->pairs_min = (tg_u32)tg_clamp(c->pairs_min, 4, 1000);
	c->half_us = (tg_u32)tg_max(c->half_us, 1000000);
	c->probe_us = (tg_u32)tg_max(c->probe_us, 10ULL * c->block_us);
	c->window_max_us = (tg_u32)tg_clamp(c->window_max_us, 1, TG_DT_MAX_NS / 1000);
	/* xorshift has no 0; some rounds, so that seeds that are alike do not begin alike. */
	h->random = seed ^ TG_HARM_SEED ? seed ^ TG_HARM_SEED : 1;
	for (int round = 0; round < 16; round++)
		tg_harm_random(h);
	tg_harm_restart(h);
}

/* Can this be true, and is it of the level that was asked for? */
TG_FN int tg_harm_useful(const struct tg_harm *h, const struct tg_harm_window *w)
{
	tg_u64 ns = w->length_ns;

	return w->valid && w->arm == h->answer.arm && w->cpu_ns / TG_CPUS_MAX <= ns &&
	       w->delay_ns / TG_HARM_TASKS_MAX <= ns;
}

/* It knows, or gives up: one level until the next probe. */
TG_FN void tg_harm_settle(struct tg_harm *h, tg_u32 held)
{
	struct tg_harm_sums *s = &h->sums[h->answer.closed ? TG_HARM_STRETCH : TG_HARM_RUNNABLE];

	h->phase = TG_HARM_PROBE;
	h->phase_us = 0;
	h->held = held;
	h->watch = 0;
	h->known_20 = tg_harm_share_20(s);
	/* 1 + 1 / TG_HARM_HELD_BLOCKS, of 1 + 1 */
	s->noise = s->noise * 5 / 8;
	tg_harm_begin_gap(h);
}

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
TG_FN void tg_harm_judge(struct tg_harm *h)
{
	const tg_u64 accepted_ppm = TG_HARM_NO_HARM + h->cfg.aim_ppm;
	struct tg_harm_bounds b = tg_harm_bounds(&h->cfg, &h->sums[TG_HARM_RUNNABLE]);
	struct tg_harm_bounds cpu = tg_harm_bounds(&h->cfg, &h->sums[TG_HARM_CPU]);
	struct tg_harm_bounds delay = tg_harm_bounds(&h->cfg, &h->sums[TG_HARM_DELAY]);
	struct tg_harm_bounds stretch = tg_harm_bounds(&h->cfg, &h->sums[TG_HARM_STRETCH]);
	struct tg_harm_answer *a = &h->answer;
	int closed, within, found, agree;

	closed = cpu.upper_ppm < TG_HARM_NO_HARM && delay.lower_ppm > TG_HARM_NO_HARM &&
		 b.upper_ppm >= TG_HARM_NO_HARM;
	agree = closed || b.upper_ppm < TG_HARM_NO_HARM || stretch.upper_ppm < accepted_ppm;
	if (closed)
		b = stretch;
	within = b.upper_ppm < accepted_ppm;
	found = b.lower_ppm > TG_HARM_NO_HARM;
	if (h->pairs < h->look && (found || !within || !agree || h->pairs < h->cfg.pairs_min))
		return;
	if (h->pairs >= h->look)
		h->look *= 2;
	a->closed = closed;
	a->ratio_ppm = b.ratio_ppm;
	a->lower_ppm = b.lower_ppm;
	a->upper_ppm = b.upper_ppm;
	a->verdict = found ? TG_HARM_FOUND : TG_HARM_UNKNOWN;
	a->reason = found ? TG_HARM_KNOWN : tg_harm_why(h, within && !agree);
	if (within && agree && h->turns >= h->cfg.turns_min) {
		a->verdict = found ? TG_HARM_FOUND : TG_HARM_NONE;
		a->reason = TG_HARM_KNOWN;
		a->wish = TG_HARM_LOWER;
		tg_harm_settle(h, TG_HARM_HIGH);
	} else if (found && b.lower_ppm > accepted_ppm) {
		a->wish = TG_HARM_RAISE;
		tg_harm_settle(h, TG_HARM_LOW);
	}
}

/* A probe: is what was learnt still so? One pair counts for at most three times its noise. */
TG_FN void tg_harm_watch(struct tg_harm *h, tg_u64 high, tg_u64 low)
{
	struct tg_harm_sums *s = &h->sums[h->answer.closed ? TG_HARM_STRETCH : TG_HARM_RUNNABLE];
	tg_u64 most = 3 * (tg_sqrt(s->noise) + 1);
	tg_s64 off;

	tg_harm_scale(s, &high, &low, 65536 / 32);
	off = tg_harm_off((tg_s64)high - (tg_s64)low, high + low, h->known_20);
	off = tg_clamp_s(off, -(tg_s64)most, (tg_s64)most);
	h->watch -= tg_harm_part(h->watch, TG_HARM_WATCH_16);
	h->watch += off;
	s->noise = tg_mean(s->noise, tg_abs(off) * tg_abs(off), 65536 / 32);
	if (tg_abs(h->watch) * 100 >
	    (tg_sqrt(TG_HARM_WATCH_SPAN(s->noise)) + 1) * h->cfg.suspect_pct)
		tg_harm_learn(h, TG_HARM_DRIFT);
	else
		tg_harm_begin_gap(h);
}

/* The share that is forgotten in a pair: ln 2 of its half-life. 4 * 10^8 us * 45426 < 2^45. */
TG_FN tg_u64 tg_harm_forget_16(const struct tg_harm *h, tg_u64 pair_us)
{
	return tg_clamp(pair_us * 45426 / h->cfg.half_us, 64, 32768);
}

/* Both blocks are there. */
TG_FN void tg_harm_end_pair(struct tg_harm *h)
{
	const struct tg_harm_block *lo = &h->block[TG_HARM_LOW], *hi = &h->block[TG_HARM_HIGH];
	tg_u64 forget_16 = tg_harm_forget_16(h, h->since_pair_us);
	tg_u64 level_16 = tg_max(65536 / (h->pairs + 1), 65536 / 32);
	tg_u64 cpu[2] = {tg_harm_rate(lo->cpu_ns, lo->used_us),
			 tg_harm_rate(hi->cpu_ns, hi->used_us)};
	tg_u64 delay[2] = {tg_harm_rate(lo->delay_ns, lo->used_us),
			   tg_harm_rate(hi->delay_ns, hi->used_us)};
	tg_u64 run[2] = {cpu[0] + delay[0], cpu[1] + delay[1]};
	tg_u64 stretch[2] = {tg_harm_stretch(run[0], cpu[0]), tg_harm_stretch(run[1], cpu[1])};
	tg_s64 before = h->sums[TG_HARM_RUNNABLE].diff;

	h->since_pair_us = 0;
	if (run[0] + run[1] == 0) {
		/* Main sleeps: no pair. */
		if (h->phase == TG_HARM_LEARN)
			tg_harm_begin_pair(h);
		else
			tg_harm_begin_gap(h);
		return;
	}
	if (h->phase == TG_HARM_PROBE) {
		if (h->answer.verdict == TG_HARM_UNKNOWN)
			tg_harm_begin_gap(h);
		else if (h->answer.closed)
			tg_harm_watch(h, stretch[1], stretch[0]);
		else
			tg_harm_watch(h, run[1], run[0]);
		return;
	}
	h->turns += lo->turns + hi->turns;
	h->pairs = (tg_u32)tg_min(h->pairs + 1ULL, 1 << 20);
	before -= tg_harm_part(before, forget_16);
	tg_harm_add(&h->sums[TG_HARM_RUNNABLE], run[1], run[0], forget_16, level_16);
	tg_harm_add(&h->sums[TG_HARM_CPU], cpu[1], cpu[0], forget_16, level_16);
	tg_harm_add(&h->sums[TG_HARM_DELAY], delay[1], delay[0], forget_16, level_16);
	tg_harm_add(&h->sums[TG_HARM_STRETCH], stretch[1], stretch[0], forget_16, level_16);
	h->trend -= tg_harm_part(h->trend, forget_16);
	before = h->sums[TG_HARM_RUNNABLE].diff - before;
	h->trend += h->answer.arm == TG_HARM_HIGH ? before : -before;
	tg_harm_judge(h);
	if (h->phase == TG_HARM_LEARN)
		tg_harm_begin_pair(h);
}

/* Time that is of use, in the block of its level. Turns: 2^32 a window are enough. */
TG_FN void tg_harm_collect(struct tg_harm *h, const struct tg_harm_window *w, tg_u64 us)
{
	struct tg_harm_block *b = &h->block[h->answer.arm & 1];

	if (h->in_guard) {
		h->in_guard = h->age_us < h->cfg.guard_us;
		return;
	}
	b->used_us += us;
	b->cpu_ns += w->cpu_ns;
	b->delay_ns += w->delay_ns;
	b->turns += tg_min(w->turns, 1ULL << 32);
	h->used_us += us;
}

/* Is the block over? If it cannot be filled, the pair is void. */
TG_FN void tg_harm_block_age(struct tg_harm *h)
{
	tg_u64 blocks =
	    h->phase == TG_HARM_PROBE && h->answer.arm == h->held ? TG_HARM_HELD_BLOCKS : 1;
	tg_u64 full_us = blocks * h->cfg.block_us;

	if (h->age_us >= full_us && h->block[h->answer.arm & 1].used_us >= full_us / 2) {
		if (h->place == 2) {
			tg_harm_end_pair(h);
		} else {
			h->place = 2;
			tg_harm_set_arm(h, !h->answer.arm);
		}
	} else if (h->age_us >= 4 * full_us + 2ULL * h->cfg.window_max_us) {
		if (h->phase == TG_HARM_LEARN)
			tg_harm_begin_pair(h);
		else
			tg_harm_begin_gap(h);
	}
}

/* Learning takes too long, or what is known is too old. */
TG_FN void tg_harm_phase_age(struct tg_harm *h)
{
	struct tg_harm_answer *a = &h->answer;
	int knows = a->verdict != TG_HARM_UNKNOWN;

	if (h->phase == TG_HARM_LEARN) {
		if (!knows && h->void_us > h->used_us)
			a->reason = TG_HARM_VOID;
		if (h->phase_us >= h->cfg.learn_us)
			tg_harm_settle(h, knows && a->ratio_ppm <= TG_PPM + h->cfg.aim_ppm
					      ? TG_HARM_HIGH
					      : TG_HARM_LOW);
	} else if (!knows && h->phase_us >= h->cfg.retry_us) {
		tg_harm_learn(h, TG_HARM_TOO_LITTLE);
	} else if (knows && h->since_pair_us >= (tg_u64)h->cfg.learn_us + 2ULL * h->cfg.probe_us) {
		tg_harm_learn(h, TG_HARM_VOID);
	}
}

/* One window in; the level for the next one, and what is known, are in h->answer. */
TG_FN tg_u32 tg_harm_step(struct tg_harm *h, const struct tg_harm_window *w)
{
	tg_u64 us = w->length_ns / 1000;

	if (us == 0 || us > h->cfg.window_max_us)
		us = 0;
	h->phase_us = tg_min(h->phase_us + us, TG_AGE_MAX_US);
	h->since_pair_us = tg_min(h->since_pair_us + us, TG_AGE_MAX_US);
	h->age_us = tg_min(h->age_us + us, TG_AGE_MAX_US);
	if (!us || !tg_harm_useful(h, w))
		h->void_us += us;
	else if (h->place)
		tg_harm_collect(h, w, us);
	if (h->place) {
		tg_harm_block_age(h);
	} else {
		h->gap_us = tg_sub0(h->gap_us, us);
		if (h->gap_us == 0)
			tg_harm_begin_pair(h);
	}
	tg_harm_phase_age(h);
	return h->answer.arm;
}

#endif /* TG_LAW_HARM_H */
