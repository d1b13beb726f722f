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
 * A mean hides a tail: the share of main's turns that begin late is compared in the same way.
 * Harm is found if either says so, none only if both do.
 *
 * LEARN: pair after pair, half of the time at each level, until the interval is clear of
 * the aim, or for too long. PROBE: one level is held, and a pair now
 * and then tells whether what was learnt still holds: if it does not, LEARN.
 *
 * Bounds, for any input in any state: lower <= ratio <= upper, of the tail too; FOUND only with
 * lower above 10^6 or the tail's above half of what is accepted; RAISE only with a lower bound
 * above, LOWER only with upper below 10^6 + aim; between probes at least probe / 2 at the held
 * level.
 *
 * Ranges: beside each product. A window that cannot be true is void, as is one in which the
 * level asked for was not in force all the time.
 */
#ifndef TG_LAW_HARM_H
#define TG_LAW_HARM_H

#include "harm_evidence.h"

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
	a->by_tail = 0;
	tg_harm_begin_pair(h);
}

/* Other levels: what was learnt is of no use. */
TG_FN void tg_harm_restart(struct tg_harm *h)
{
	tg_harm_learn(h, TG_HARM_TOO_LITTLE);
	h->answer.ratio_ppm = TG_HARM_NO_HARM;
	h->answer.lower_ppm = 0;
	h->answer.upper_ppm = TG_HARM_RATIO_MAX;
	h->answer.tail_ppm = 0;
	h->answer.tail_lower_ppm = -(tg_s32)TG_PPM;
	h->answer.tail_upper_ppm = (tg_s32)TG_PPM;
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
	c->tail_ppm = (tg_u32)tg_min(c->tail_ppm, TG_PPM);
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

/* The signal whose ratio is told. */
TG_FN struct tg_harm_sums *tg_harm_told(struct tg_harm *h)
{
	return &h->sums[h->answer.closed ? TG_HARM_STRETCH : TG_HARM_RUNNABLE];
}

/* It knows, or gives up: one level until the next probe. */
TG_FN void tg_harm_settle(struct tg_harm *h, tg_u32 held)
{
	h->phase = TG_HARM_PROBE;
	h->phase_us = 0;
	h->held = held;
	for (int tail = 0; tail < 2; tail++) {
		struct tg_harm_sums *s = tail ? &h->sums[TG_HARM_TAIL] : tg_harm_told(h);

		h->watch[tail] = 0;
		h->known_20[tail] = tg_harm_share_20(s);
		/* 1 + 1 / TG_HARM_HELD_BLOCKS, of 1 + 1 */
		s->noise = s->noise * 5 / 8;
	}
	tg_harm_begin_gap(h);
}

/* What is told of it. */
TG_FN void tg_harm_tell(struct tg_harm *h, const struct tg_harm_evidence *e)
{
	struct tg_harm_answer *a = &h->answer;
	int found = e->found || e->tail_found;

	a->closed = (tg_u32)e->closed;
	a->ratio_ppm = e->time.ratio_ppm;
	a->lower_ppm = e->time.lower_ppm;
	a->upper_ppm = e->time.upper_ppm;
	a->tail_ppm = e->tail.ppm;
	a->tail_lower_ppm = e->tail.lower_ppm;
	a->tail_upper_ppm = e->tail.upper_ppm;
	a->by_tail = e->tail_above ? !e->above : e->tail_found && !e->found;
	a->verdict = found ? TG_HARM_FOUND : TG_HARM_UNKNOWN;
	a->reason = found ? TG_HARM_KNOWN : tg_harm_why(h, e->within && !e->agree);
}

/* No harm above what is accepted: HIGH is held. */
TG_FN void tg_harm_accept(struct tg_harm *h)
{
	struct tg_harm_answer *a = &h->answer;

	if (a->verdict != TG_HARM_FOUND)
		a->verdict = TG_HARM_NONE;
	a->reason = TG_HARM_KNOWN;
	a->wish = TG_HARM_LOWER;
	tg_harm_settle(h, TG_HARM_HIGH);
}

TG_FN void tg_harm_judge(struct tg_harm *h)
{
	struct tg_harm_evidence e = tg_harm_weigh(h);
	int within = e.within && e.tail_within && e.agree;

	if (h->pairs < h->look &&
	    (e.found || e.tail_found || !within || h->pairs < h->cfg.pairs_min))
		return;
	if (h->pairs >= h->look)
		h->look *= 2;
	tg_harm_tell(h, &e);
	if (within && h->turns >= h->cfg.turns_min) {
		tg_harm_accept(h);
	} else if (e.above || e.tail_above) {
		h->answer.wish = TG_HARM_RAISE;
		tg_harm_settle(h, TG_HARM_LOW);
	}
}

/*
 * Learning took too long: the last look. Harm that is found is judged by its estimate; where none is
 * found that would have been, HIGH is held. A tail that could not be told holds nothing up: its
 * estimate decides as well.
 */
TG_FN void tg_harm_end_learning(struct tg_harm *h)
{
	struct tg_harm_answer *a = &h->answer;
	struct tg_harm_evidence e = tg_harm_weigh(h);
	int fits = e.tail_fits && e.time.ratio_ppm <= TG_PPM + h->cfg.aim_ppm;

	if (h->pairs < h->cfg.pairs_min) {
		tg_harm_settle(h, TG_HARM_LOW);
		return;
	}
	tg_harm_tell(h, &e);
	if (fits && e.within && e.agree && a->verdict != TG_HARM_FOUND &&
	    h->turns >= h->cfg.turns_min) {
		tg_harm_accept(h);
	} else if (e.above || e.tail_above) {
		a->wish = TG_HARM_RAISE;
		tg_harm_settle(h, TG_HARM_LOW);
	} else {
		if (a->verdict != TG_HARM_FOUND)
			fits = tg_harm_would_show(h, &e);
		tg_harm_settle(h, fits ? TG_HARM_HIGH : TG_HARM_LOW);
	}
}

/*
 * A probe of a signal: is what was learnt still so? One pair counts for at most three times its
 * noise; that of a tail, which may be none at all, is half of the accepted share at least
 * (diff / sum of a quarter of it, at 2^17). Late turns come in clumps: a tail takes a third more
 * to be suspected. 1: it is not.
 */
TG_FN int tg_harm_watch(struct tg_harm *h, int tail, tg_u64 high, tg_u64 low)
{
	struct tg_harm_sums *s = tail ? &h->sums[TG_HARM_TAIL] : tg_harm_told(h);
	tg_u64 least = tail ? h->cfg.tail_ppm * (TG_HARM_UNIT / 4) / TG_PPM : 0;
	tg_u64 most = 3 * (tg_sqrt(tg_max(s->noise, least * least)) + 1);
	tg_s64 off;

	tg_harm_scale(s, &high, &low, 65536 / 32);
	off = tg_harm_off((tg_s64)high - (tg_s64)low, high + low, h->known_20[tail]);
	off = tg_clamp_s(off, -(tg_s64)most, (tg_s64)most);
	h->watch[tail] -= tg_harm_part(h->watch[tail], TG_HARM_WATCH_16);
	h->watch[tail] += off;
	s->noise = tg_mean(s->noise, tg_abs(off) * tg_abs(off), 65536 / 32);
	return tg_abs(h->watch[tail]) * 100 * 3 >
	       (tg_sqrt(TG_HARM_WATCH_SPAN(tg_max(s->noise, least * least))) + 1) *
		   h->cfg.suspect_pct * (tail ? 4 : 3);
}

/* The share that is forgotten in a pair: ln 2 of its half-life. 4 * 10^8 us * 45426 < 2^45. */
TG_FN tg_u64 tg_harm_forget_16(const struct tg_harm *h, tg_u64 pair_us)
{
	return tg_clamp(pair_us * 45426 / h->cfg.half_us, 64, 32768);
}

/* A pair while it learns: [1] is HIGH. */
TG_FN void tg_harm_learn_pair(struct tg_harm *h, const tg_u64 *run, const tg_u64 *cpu,
			      const tg_u64 *delay, const tg_u64 *stretch, tg_u64 pair_us)
{
	const struct tg_harm_block *lo = &h->block[TG_HARM_LOW], *hi = &h->block[TG_HARM_HIGH];
	tg_u64 forget_16 = tg_harm_forget_16(h, pair_us);
	tg_u64 level_16 = tg_max(65536 / (h->pairs + 1), 65536 / 32);
	tg_s64 before = h->sums[TG_HARM_RUNNABLE].diff;
	tg_u64 high, low;

	h->turns += lo->turns + hi->turns;
	h->pairs = (tg_u32)tg_min(h->pairs + 1ULL, 1 << 20);
	before -= tg_harm_part(before, forget_16);
	tg_harm_add(&h->sums[TG_HARM_RUNNABLE], run[1], run[0], forget_16, level_16);
	tg_harm_add(&h->sums[TG_HARM_CPU], cpu[1], cpu[0], forget_16, level_16);
	tg_harm_add(&h->sums[TG_HARM_DELAY], delay[1], delay[0], forget_16, level_16);
	tg_harm_add(&h->sums[TG_HARM_STRETCH], stretch[1], stretch[0], forget_16, level_16);
	if (h->cfg.tail_ppm && tg_harm_tail(lo, hi, &high, &low))
		tg_harm_add(&h->sums[TG_HARM_TAIL], high, low, forget_16, level_16);
	h->trend -= tg_harm_part(h->trend, forget_16);
	before = h->sums[TG_HARM_RUNNABLE].diff - before;
	h->trend += h->answer.arm == TG_HARM_HIGH ? before : -before;
	tg_harm_judge(h);
	if (h->phase == TG_HARM_LEARN)
		tg_harm_begin_pair(h);
}

/* Both blocks are there. */
TG_FN void tg_harm_end_pair(struct tg_harm *h)
{
	const struct tg_harm_block *lo = &h->block[TG_HARM_LOW], *hi = &h->block[TG_HARM_HIGH];
	tg_u64 cpu[2] = {tg_harm_rate(lo->cpu_ns, lo->used_us),
			 tg_harm_rate(hi->cpu_ns, hi->used_us)};
	tg_u64 delay[2] = {tg_harm_rate(lo->delay_ns, lo->used_us),
			   tg_harm_rate(hi->delay_ns, hi->used_us)};
	tg_u64 run[2] = {cpu[0] + delay[0], cpu[1] + delay[1]};
	tg_u64 stretch[2] = {tg_harm_stretch(run[0], cpu[0]), tg_harm_stretch(run[1], cpu[1])};
	tg_u64 pair_us = h->since_pair_us, high, low;
	const tg_u64 *told = h->answer.closed ? stretch : run;
	int off;

	h->since_pair_us = 0;
	if (run[0] + run[1] == 0) {
		/* Main sleeps: no pair. */
		if (h->phase == TG_HARM_LEARN)
			tg_harm_begin_pair(h);
		else
			tg_harm_begin_gap(h);
		return;
	}
	if (h->phase == TG_HARM_LEARN) {
		tg_harm_learn_pair(h, run, cpu, delay, stretch, pair_us);
		return;
	}
	if (h->answer.verdict == TG_HARM_UNKNOWN && h->held == TG_HARM_LOW) {
		tg_harm_begin_gap(h);
		return;
	}
	off = tg_harm_watch(h, 0, told[1], told[0]);
	if (h->cfg.tail_ppm && tg_harm_tail(lo, hi, &high, &low))
		off |= tg_harm_watch(h, 1, high, low);
	if (off)
		tg_harm_learn(h, TG_HARM_DRIFT);
	else
		tg_harm_begin_gap(h);
}

/* Time that is of use, in the block of its level. Turns: 2^32 a window are enough, 2^40 a block. */
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
	b->late += tg_min(w->late, tg_min(w->turns, 1ULL << 32));
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
		if (h->phase_us >= h->cfg.learn_us)
			tg_harm_end_learning(h);
		if (a->verdict == TG_HARM_UNKNOWN && h->void_us > h->used_us)
			a->reason = TG_HARM_VOID;
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
