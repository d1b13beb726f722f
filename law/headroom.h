/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * headroom.h - how much CPU side work may use, so that the asked idle stays.
 *
 * Source of the idea: the cpu.headroom patch series (Song Liu, 2019). In a
 * domain of C CPUs (less steal), over a window dt:
 *
 *     main      = busy - side
 *     allowance = max(tolerance * C, (1 - headroom) * C - main_estimate + trim)
 *
 * Two speeds: estimate.h tells what main uses (a slow mean) and when it has
 * stepped (fast detectors); the trim is a bounded integral of the idle really
 * kept, so that what the actuator gives beyond or short of its word is learnt.
 * Side work runs behind main, so main's use is its demand, unless main fills
 * the machine; then nothing is left to give and the floor holds anyway.
 *
 * Rises of the allowance are limited in slope (raise_ppm_per_s); falls are
 * not. The one exception is a cut that turns out to have answered a mere burst:
 * it is taken back at once.
 *
 * No history gives the tolerance. A sample that cannot be true is left out and
 * the last decision stands, until TG_FRESH_US have passed without a usable one:
 * then everything learnt is dropped and the tolerance holds, until the next
 * usable samples carry it up the slope again. Never a hold beyond that.
 *
 * Bounds: tolerance * C <= allowance <= C for any input, in any state. The
 * caller steps it once per window and holds any lock. All state is in struct
 * tg_headroom.
 */
#ifndef TG_LAW_HEADROOM_H
#define TG_LAW_HEADROOM_H

#include "estimate.h"

/* A main that has not drifted for this long is steady. */
#define TG_STEADY_US 250000ULL

/* What was learnt counts for so long without a usable sample. */
#define TG_FRESH_US 250000ULL
/* Time that an unusable sample stands for at least: one that tells none must count, too. */
#define TG_UNSEEN_LEAST_US 1000ULL
/* A change of the capacity by more than this part of it is CPUs that came or went: no mean of both.
 */
#define TG_CAPACITY_STEP 5

/* Bounds of the tuning, on which the products in both headers rely. */
TG_FN void tg_headroom_bound(struct tg_headroom_config *c)
{
	const tg_u32 most_us = 10000000;

	c->mean_min_us = (tg_u32)tg_clamp(c->mean_min_us, 1000, most_us);
	c->mean_max_us = (tg_u32)tg_clamp(c->mean_max_us, c->mean_min_us, most_us);
	c->mean_error_ppm = (tg_u32)tg_min(c->mean_error_ppm, TG_PPM);
	c->trim_us = (tg_u32)tg_max(c->trim_us, 1000);
	c->trim_max_ppm = (tg_u32)tg_min(c->trim_max_ppm, TG_PPM);
	c->raise_ppm_per_s = (tg_u32)tg_min(c->raise_ppm_per_s, 100 * TG_PPM);
	c->fine_min_ppm = (tg_u32)tg_min(c->fine_min_ppm, TG_PPM);
	c->fine_max_ppm = (tg_u32)tg_clamp(c->fine_max_ppm, c->fine_min_ppm, TG_PPM);
	c->coarse_ppm = (tg_u32)tg_min(c->coarse_ppm, TG_PPM);
	c->alarm = (tg_u32)tg_clamp(c->alarm, 1, 64);
	c->fine_threshold_us = (tg_u32)tg_min(c->fine_threshold_us, most_us);
	c->coarse_max_us = (tg_u32)tg_min(c->coarse_max_us, most_us);
	c->coarse_min_us = (tg_u32)tg_min(c->coarse_min_us, c->coarse_max_us);
	c->proof_us = (tg_u32)tg_min(c->proof_us, most_us);
	c->doubt_us = (tg_u32)tg_min(c->doubt_us, most_us);
	c->noise_block_us = (tg_u32)tg_min(c->noise_block_us, most_us);
	c->lead_us = (tg_u32)tg_min(c->lead_us, most_us);
	c->dt_max_us = (tg_u32)tg_min(c->dt_max_us, most_us);
	c->contend_ppm = (tg_u32)tg_min(c->contend_ppm, TG_CONTEND_MAX_PPM);
}

/* Without history: the next sane window is the first. */
TG_FN void tg_headroom_forget(struct tg_headroom *h)
{
	h->history_us = 0;
	h->unseen_us = 0;
	h->ahead_ns = 0;
	h->mean_age_us = 0;
	h->noise_us = 0;
	h->noise_main_ncpu = 0;
	h->trim_ncpu = 0;
	h->out_ucpu = 0;
	h->calm_us = 0;
	h->steady_us = 0;
	h->trail_ncpu = 0;
	h->tail_ncpu = 0;
	h->beside_ncpu = 0;
	h->side_last_ucpu = 0;
	h->probation.open_us = 0;
	tg_detectors_reset(h);
}

/*
 * headroom and tolerance above 100 % count as 100 %. The idle kept under the
 * old terms says nothing about the actuator under the new ones: calm starts again.
 */
TG_FN void tg_headroom_terms(struct tg_headroom *h, tg_u32 headroom_ppm, tg_u32 tolerance_ppm)
{
	h->headroom_ppm = (tg_u32)tg_min(headroom_ppm, TG_PPM);
	h->tolerance_ppm = (tg_u32)tg_min(tolerance_ppm, TG_PPM);
	h->calm_us = 0;
}

/*
 * Side work slows main as much as this from now on. The mean's mean goes on from
 * where the mean now stands: that it is reckoned otherwise is no drift of main's.
 */
TG_FN void tg_headroom_contend(struct tg_headroom *h, tg_u32 contend_ppm)
{
	tg_u64 cap_ucpu = h->capacity_ncpu / TG_NCPU_PER_UCPU;

	h->cfg.contend_ppm = (tg_u32)tg_min(contend_ppm, TG_CONTEND_MAX_PPM);
	tg_estimate_restart(h, h->main_ncpu, h->beside_ncpu, cap_ucpu);
	tg_detectors_reset(h);
}

TG_FN void tg_headroom_init(struct tg_headroom *h, const struct tg_headroom_config *cfg,
			    tg_u32 headroom_ppm, tg_u32 tolerance_ppm)
{
	h->cfg = *cfg;
	tg_headroom_bound(&h->cfg);
	h->capacity_ncpu = 0;
	h->main_ncpu = 0;
	h->side_ncpu = 0;
	h->idle_ncpu = 0;
	h->given_ncpu = 0;
	h->alarms = 0;
	h->pad = 0;
	h->probation = (struct tg_probation){0};
	tg_headroom_forget(h);
	tg_headroom_terms(h, headroom_ppm, tolerance_ppm);
}

/*
 * Can this sample be true? Slack: what the sensor admits per CPU, plus 1/64 of
 * the capacity and 100 us for counters that are not read at one instant.
 * capacity <= CPUS_MAX * dt is also what bounds every product below.
 * granularity is believed up to a second; 8192 * 10^9 < 2^43.
 */
TG_FN int tg_headroom_sane(const struct tg_headroom_config *cfg, const struct tg_headroom_sample *s)
{
	tg_u64 cpus, slack;

	if (!s->valid || s->dt_ns < 1000 || s->dt_ns > TG_DT_MAX_NS ||
	    s->dt_ns / 1000 > cfg->dt_max_us)
		return 0;
	if (s->capacity_ns < 1000 || s->capacity_ns / TG_CPUS_MAX > s->dt_ns)
		return 0;
	cpus = s->capacity_ns / s->dt_ns + 1;
	slack = tg_min(s->granularity_ns, 1000000000ULL) * cpus + s->capacity_ns / 64 + 100000;
	if (s->busy_ns > s->capacity_ns + slack)
		return 0;
	return s->side_ns <= s->busy_ns + slack;
}

/* Take one sane window into everything but the mean of main. */
TG_FN void tg_headroom_learn(struct tg_headroom *h, const struct tg_headroom_sample *s,
			     tg_u64 cap_now_ncpu)
{
	tg_u64 dt_us = s->dt_ns / 1000;
	tg_u64 age_us = h->history_us + dt_us;
	tg_u64 second_16 = tg_weight_16(dt_us, tg_min(age_us, TG_SECOND_US));
	tg_u64 short_16 = tg_weight_16(dt_us, tg_min(age_us, h->cfg.mean_min_us));
	tg_u64 side_now = tg_rate_ucpu(tg_min(s->side_ns, s->capacity_ns), s->dt_ns);
	tg_u64 idle_now = tg_rate_ucpu(tg_sub0(s->capacity_ns, s->busy_ns), s->dt_ns);

	tg_u64 off_ncpu =
	    tg_max(h->capacity_ncpu, cap_now_ncpu) - tg_min(h->capacity_ncpu, cap_now_ncpu);

	if (off_ncpu > h->capacity_ncpu / TG_CAPACITY_STEP)
		h->capacity_ncpu = cap_now_ncpu;
	h->capacity_ncpu = tg_mean(h->capacity_ncpu, cap_now_ncpu, short_16);
	h->side_ncpu = tg_mean(h->side_ncpu, side_now * TG_NCPU_PER_UCPU, second_16);
	h->idle_ncpu = tg_mean(h->idle_ncpu, idle_now * TG_NCPU_PER_UCPU, second_16);
	h->given_ncpu = tg_mean(h->given_ncpu, h->out_ucpu * TG_NCPU_PER_UCPU, second_16);
	h->history_us = tg_min(age_us, TG_AGE_MAX_US);
}

/*
 * The trim: integral of (the formula without trim - what side work used) over
 * trim_us, bounded. Were main just as estimated this is idle kept - idle asked;
 * but main's own ups and downs, which the mean evens out, are not the actuator's
 * doing and must not be carried to main's next level. It grows only while side
 * work is hungry (over the last second it used 7/8 of what it might, less 1 % of
 * the domain), and moves only while the allowance is above the floor: an
 * integral that cannot act must not wind up. Nor may it learn from a main that
 * drifts, whom the quota follows in stairs (for TG_STEADY_US: a test of each window
 * would sort side work's windows by main's). Where it may not move it decays. For
 * calm_us after a step it stands still: what was used then says when the step
 * was noticed, not what the actuator gives. |error| < 3 * 2^43.
 */
TG_FN void tg_headroom_trim(struct tg_headroom *h, const struct tg_headroom_sample *s,
			    tg_u64 cap_ucpu, tg_u64 floor_ucpu)
{
	tg_u64 side_now = tg_rate_ucpu(tg_min(s->side_ns, s->capacity_ns), s->dt_ns);
	tg_s64 error = (tg_s64)(h->out_ucpu * TG_NCPU_PER_UCPU) - h->trim_ncpu -
		       (tg_s64)(side_now * TG_NCPU_PER_UCPU);
	tg_s64 most = (tg_s64)(tg_ppm_of(cap_ucpu, h->cfg.trim_max_ppm) * TG_NCPU_PER_UCPU);
	tg_u64 weight = tg_weight_16(s->dt_ns / 1000, h->cfg.trim_us);
	tg_u64 slack = h->given_ncpu / 8 + h->capacity_ncpu / 100;
	int hungry = h->side_ncpu + slack >= h->given_ncpu;
	int open = h->out_ucpu > floor_ucpu;
	tg_s64 next = tg_mean_s(h->trim_ncpu, h->trim_ncpu + error, weight);
	tg_u64 lag_ncpu = tg_max(h->trail_ncpu, h->tail_ncpu) - tg_min(h->trail_ncpu, h->tail_ncpu);
	int drifts;

	h->steady_us = tg_min(h->steady_us + s->dt_ns / 1000, TG_AGE_MAX_US);
	if (lag_ncpu > h->capacity_ncpu / 200)
		h->steady_us = 0;
	drifts = h->steady_us < TG_STEADY_US;
	/* Of a domain that has become smaller, the bound is smaller too, at once. */
	h->trim_ncpu = tg_clamp_s(h->trim_ncpu, -most, most);
	if (h->calm_us < h->cfg.calm_us)
		return;
	/* |trim| + |error| < 2^45: the weighted difference stays below 2^61. */
	if (drifts || !open || (!hungry && next > h->trim_ncpu && next > 0))
		next = tg_mean_s(h->trim_ncpu, 0, weight);
	h->trim_ncpu = tg_clamp_s(next, -most, most);
}

/* The formula, the slope and the floor; sets out_ucpu and the reason. */
TG_FN tg_u32 tg_headroom_decide(struct tg_headroom *h, tg_u64 dt_ns, tg_u64 cap_ucpu,
				tg_u64 asked_ucpu, tg_u64 floor_ucpu)
{
	tg_u64 lead_ucpu = tg_estimate_lead_ucpu(h, cap_ucpu);
	tg_u64 base_ucpu = tg_beside_ucpu(h, lead_ucpu, tg_beside_now_ucpu(h), 0, cap_ucpu);
	tg_u64 trim = (tg_abs(h->trim_ncpu) + TG_NCPU_PER_UCPU / 2) / TG_NCPU_PER_UCPU;
	tg_u64 have = cap_ucpu + (h->trim_ncpu > 0 ? trim : 0);
	tg_u64 used = asked_ucpu + (h->trim_ncpu < 0 ? trim : 0);
	tg_u64 room = tg_fill_ucpu(h, tg_sub0(have, used), base_ucpu, cap_ucpu);
	tg_u64 want = tg_min(room, cap_ucpu);
	tg_u64 rise =
	    tg_time_ns(tg_ppm_of(cap_ucpu, h->cfg.raise_ppm_per_s), tg_min(dt_ns, 100000000)) /
	    1000;

	if (h->history_us < h->cfg.warm_us) {
		h->out_ucpu = floor_ucpu;
		return TG_REASON_WARMUP;
	}
	if (want <= floor_ucpu) {
		h->out_ucpu = floor_ucpu;
		return TG_REASON_FLOOR;
	}
	if (want > tg_max(h->out_ucpu, floor_ucpu) + rise) {
		h->out_ucpu = tg_max(h->out_ucpu, floor_ucpu) + rise;
		/* A long way to go: the idle meanwhile is not the actuator's doing. */
		if (want - h->out_ucpu > cap_ucpu / 50)
			h->calm_us = 0;
		return TG_REASON_RAMP;
	}
	h->out_ucpu = want;
	return TG_REASON_TRACK;
}

TG_FN void tg_headroom_report(const struct tg_headroom *h, struct tg_headroom_decision *d,
			      tg_u64 cap_ucpu, tg_u64 asked_ucpu, tg_u64 floor_ucpu,
			      tg_u64 main_now_ucpu, tg_u32 reason)
{
	d->allowance_ucpu = h->out_ucpu;
	d->floor_ucpu = floor_ucpu;
	d->capacity_ucpu = cap_ucpu;
	d->asked_ucpu = asked_ucpu;
	d->main_est_ucpu =
	    tg_min(tg_beside_ucpu(h, (h->main_ncpu + TG_NCPU_PER_UCPU / 2) / TG_NCPU_PER_UCPU,
				  tg_beside_now_ucpu(h), h->out_ucpu, cap_ucpu),
		   cap_ucpu);
	d->main_now_ucpu = main_now_ucpu;
	d->side_ucpu = h->side_ncpu / TG_NCPU_PER_UCPU;
	d->idle_ucpu = h->idle_ncpu / TG_NCPU_PER_UCPU;
	d->noise_ucpu = tg_estimate_error_ucpu(h, cap_ucpu);
	d->trim_ucpu = h->trim_ncpu < 0 ? -(tg_s64)(tg_abs(h->trim_ncpu) / TG_NCPU_PER_UCPU)
					: (tg_s64)(tg_abs(h->trim_ncpu) / TG_NCPU_PER_UCPU);
	d->reason = reason;
	d->alarms = h->alarms;
}

/*
 * A sample that is not usable: the last decision stands while what was learnt is
 * fresh, then all of it is dropped. The capacity last known scales the tolerance.
 * unseen_us and dt are both below 2^41 before they are added.
 */
TG_FN void tg_headroom_unseen(struct tg_headroom *h, const struct tg_headroom_sample *s,
			      struct tg_headroom_decision *d)
{
	tg_u64 cap_ucpu = h->capacity_ncpu / TG_NCPU_PER_UCPU;
	tg_u64 floor_ucpu = tg_ppm_of(cap_ucpu, h->tolerance_ppm);
	tg_u64 dt_us = tg_clamp(s->dt_ns / 1000, TG_UNSEEN_LEAST_US, TG_AGE_MAX_US);
	tg_u64 unseen_us = tg_min(h->unseen_us + dt_us, TG_AGE_MAX_US);
	tg_u32 reason = TG_REASON_SKIP;

	h->out_ucpu = tg_clamp(h->out_ucpu, floor_ucpu, cap_ucpu);
	if (h->history_us == 0 || unseen_us >= TG_FRESH_US) {
		tg_headroom_forget(h);
		h->out_ucpu = floor_ucpu;
		reason = TG_REASON_STALE;
	}
	h->unseen_us = unseen_us;
	tg_headroom_report(h, d, cap_ucpu, tg_ppm_of(cap_ucpu, h->headroom_ppm), floor_ucpu, 0,
			   reason);
}

/*
 * Main's time in a window. Two counters that are each late by up to a tick make
 * side work seem more than all there was in one window and less in the next; cut
 * off at 0, their noise would be a main that is not there (3 % of a CPU at 4 ms
 * ticks and 50 ms windows). So what side work was ahead comes off the next
 * window: at most what the sensor admits, < 2^43.
 */
TG_FN tg_u64 tg_headroom_main_ns(struct tg_headroom *h, const struct tg_headroom_sample *s,
				 tg_u64 blur_ns)
{
	tg_u64 side_ns = s->side_ns + h->ahead_ns;

	h->ahead_ns = tg_min(tg_sub0(side_ns, s->busy_ns), blur_ns);
	return tg_min(tg_sub0(s->busy_ns, side_ns), s->capacity_ns);
}

/* One window in, one decision out. */
TG_FN void tg_headroom_step(struct tg_headroom *h, const struct tg_headroom_sample *s,
			    struct tg_headroom_decision *d)
{
	tg_u64 cap_now_ncpu, cap_ucpu, asked_ucpu, floor_ucpu, main_ns, blur_ns;
	enum tg_step step;
	tg_u32 reason;

	if (!tg_headroom_sane(&h->cfg, s)) {
		tg_headroom_unseen(h, s, d);
		return;
	}
	h->unseen_us = 0;
	cap_now_ncpu = tg_rate_ucpu(s->capacity_ns, s->dt_ns) * TG_NCPU_PER_UCPU;
	blur_ns = tg_min(s->granularity_ns, 1000000000ULL) *
		  ((cap_now_ncpu + 999999999ULL) / 1000000000ULL);
	main_ns = tg_headroom_main_ns(h, s, blur_ns);
	if (h->history_us == 0)
		h->capacity_ncpu = cap_now_ncpu;
	cap_ucpu = h->capacity_ncpu / TG_NCPU_PER_UCPU;
	step = tg_estimate_update(h, s, main_ns, cap_ucpu, blur_ns);
	h->side_last_ucpu = tg_side_ncpu(s) / TG_NCPU_PER_UCPU;
	tg_headroom_learn(h, s, cap_now_ncpu);
	cap_ucpu = (h->capacity_ncpu + TG_NCPU_PER_UCPU / 2) / TG_NCPU_PER_UCPU;
	asked_ucpu = tg_ppm_of(cap_ucpu, h->headroom_ppm);
	floor_ucpu = tg_ppm_of(cap_ucpu, h->tolerance_ppm);
	tg_headroom_trim(h, s, cap_ucpu, floor_ucpu);
	/* What was learnt at main's old level is half as true at the new one. */
	if (step == TG_STEP_UP || step == TG_STEP_DOWN)
		h->trim_ncpu = h->trim_ncpu < 0 ? -(tg_s64)(tg_abs(h->trim_ncpu) / 2)
						: (tg_s64)(tg_abs(h->trim_ncpu) / 2);
	if (step == TG_STEP_REFUTED)
		h->out_ucpu = tg_max(h->out_ucpu, h->probation.out_ucpu);
	reason = tg_headroom_decide(h, s->dt_ns, cap_ucpu, asked_ucpu, floor_ucpu);
	if (step == TG_STEP_UP && reason != TG_REASON_FLOOR)
		reason = TG_REASON_CUT;
	if (step == TG_STEP_REFUTED && reason == TG_REASON_TRACK)
		reason = TG_REASON_RESTORE;
	if (step != TG_STEP_NONE || reason == TG_REASON_WARMUP)
		h->calm_us = 0;
	else
		h->calm_us = tg_min(h->calm_us + s->dt_ns / 1000, TG_AGE_MAX_US);
	tg_headroom_report(h, d, cap_ucpu, asked_ucpu, floor_ucpu, tg_rate_ucpu(main_ns, s->dt_ns),
			   reason);
}

#endif /* TG_LAW_HEADROOM_H */
