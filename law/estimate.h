/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * estimate.h - how much CPU main uses, and when it has stepped.
 *
 * Slow: a mean whose span follows the noise (mean_min_us to mean_max_us), and
 *   the mean of that mean, whose distance tells a climb from a level.
 * Fast: two detectors (CUSUM; Page, 1954) watch for main rising above the
 *   estimate, a fine one for small steps and a coarse one for large steps.
 *   Each sums what main used beyond estimate + margin and fires above a
 *   threshold that follows the noise: for independent windows with variance
 *   rate v and margin d, a level h is reached by chance about once in
 *   (v / 2 d^2) * exp(2 d h / v), so h = alarm * v / (2 d) makes chance alarms
 *   as rare as exp(alarm) says, at any load. A fired detector restarts the mean
 *   at what main used since its sum was last zero. If main turns out to be back
 *   soon, the alarm is refuted and the old mean returns.
 *
 * Internal rates are in ncpu (1e-9 CPU, <= 8.192e12 < 2^43), so that slow means
 * converge to within one ucpu.
 */
#ifndef TG_LAW_ESTIMATE_H
#define TG_LAW_ESTIMATE_H

#include "contend.h"

/* A refuted alarm that was open for longer was a short step, not noise. */
#define TG_BURST_US 150000ULL

/* What one window said about main. */
enum tg_step {
	TG_STEP_NONE,
	TG_STEP_UP,
	TG_STEP_DOWN,
	TG_STEP_REFUTED,
};

/* All detectors start again: their sums were against the old estimate. */
TG_FN void tg_detectors_reset(struct tg_headroom *h)
{
	h->fine.sum_ns = h->fine.age_us = 0;
	h->coarse.sum_ns = h->coarse.age_us = 0;
	h->fall.sum_ns = h->fall.age_us = 0;
	tg_block_reset(&h->block);
}

/*
 * alarm * v / (2 d) in ns. v is in us and d a rate, taken in mcpu, so the
 * quotient alarm * v * 500 / d is in us: 64 * 2^40 * 500 = 3.6e16 at most. It
 * is bounded by a second of the largest domain before it becomes ns.
 */
TG_FN tg_u64 tg_threshold_ns(const struct tg_headroom *h, tg_u64 margin_ucpu)
{
	tg_u64 num = (tg_u64)h->cfg.alarm * h->noise_us * 500;
	tg_u64 margin_mcpu = tg_max(margin_ucpu / 1000, 1);

	return tg_min(num / margin_mcpu, TG_CPUS_MAX * TG_SECOND_US) * 1000;
}

/*
 * One detector over one window; returns 1 when it fires. `more_ns` counts for
 * a step and `less_ns` against it.
 */
TG_FN int tg_detect(struct tg_detector *d, tg_u64 more_ns, tg_u64 less_ns, tg_u64 dt_ns,
		    tg_u64 threshold_ns, tg_u64 second_ns)
{
	d->sum_ns = tg_min(tg_sub0(d->sum_ns + more_ns, less_ns), second_ns);
	if (d->sum_ns == 0) {
		d->age_us = 0;
		return 0;
	}
	d->age_us += dt_ns / 1000;
	return d->sum_ns > threshold_ns;
}

/* CPU time of a window at `rate_ucpu`, bounded by the largest domain. */
TG_FN tg_u64 tg_window_ns(tg_u64 rate_ucpu, const struct tg_headroom_sample *s)
{
	return tg_time_ns(tg_min(rate_ucpu, TG_UCPU_MAX), s->dt_ns);
}

/*
 * The margin of the fine detector: so large that at its threshold no more than
 * half a percent of a second of the domain has been overdrawn,
 *     alarm * v / (2 d) = 0.005 * C * 1 s,
 * within [fine_min_ppm, fine_max_ppm]. 64 * 2^40 / 2 * 1000 = 3.5e16; the
 * quotient (in mcpu) is bounded by the largest domain before it becomes ucpu.
 */
TG_FN tg_u64 tg_fine_margin_ucpu(const struct tg_headroom *h, tg_u64 cap_ucpu)
{
	tg_u64 half_percent_us = tg_max(cap_ucpu / 200, 1);
	tg_u64 margin_mcpu = (tg_u64)h->cfg.alarm * h->noise_us / 2 * 1000 / half_percent_us;

	return tg_clamp(tg_min(margin_mcpu, TG_UCPU_MAX) * 1000,
			tg_ppm_of(cap_ucpu, h->cfg.fine_min_ppm),
			tg_ppm_of(cap_ucpu, h->cfg.fine_max_ppm));
}

/*
 * How fast main moves, by itself and not by what side work does to it. A mean over a span lags a
 * steady climb by climb * span, and the mean of that mean by as much again: their difference is the
 * lag, where it stands out of the noise (nothing of it below, all of it from twice the noise).
 * Positive: main climbs.
 */
TG_FN tg_s64 tg_estimate_lag_ncpu(const struct tg_headroom *h, tg_u64 cap_ucpu)
{
	tg_u64 noise_ncpu = tg_estimate_error_ucpu(h, cap_ucpu) * TG_NCPU_PER_UCPU;
	tg_u64 base = tg_base_ncpu(h, cap_ucpu);
	tg_u64 lag = tg_max(base, h->trail_ncpu) - tg_min(base, h->trail_ncpu);

	lag = tg_min(lag, 2 * tg_sub0(lag, noise_ncpu));
	return base >= h->trail_ncpu ? (tg_s64)lag : -(tg_s64)lag;
}

/* Main as it is now: the mean and its lag. */
TG_FN tg_u64 tg_estimate_now_ucpu(const struct tg_headroom *h, tg_u64 cap_ucpu)
{
	tg_s64 now = (tg_s64)h->main_ncpu + tg_estimate_lag_ncpu(h, cap_ucpu);

	return tg_min((tg_u64)(now > 0 ? now : 0) / TG_NCPU_PER_UCPU, cap_ucpu);
}

/*
 * Main as it will be while the next quota stands. A climb is led by lead_us (a
 * write waits for its turn), a decline is not. A hiccup, one window in which main
 * makes up for something, raises the lag for a span: only what the mean's mean
 * has followed by half is a climb. The lag is < 2^43, taken in ucpu
 * (< 2^34) times lead_us <= 10^7: < 2^58.
 */
TG_FN tg_u64 tg_estimate_lead_ucpu(const struct tg_headroom *h, tg_u64 cap_ucpu)
{
	tg_s64 lag = tg_min_s(tg_estimate_lag_ncpu(h, cap_ucpu),
			      2 * ((tg_s64)h->trail_ncpu - (tg_s64)h->tail_ncpu));
	tg_u64 now = tg_estimate_now_ucpu(h, cap_ucpu), lead;

	if (lag <= 0)
		return now;
	lead = (tg_u64)lag / TG_NCPU_PER_UCPU * h->cfg.lead_us / tg_estimate_span_us(h, cap_ucpu);
	return tg_min(now + lead, cap_ucpu);
}

/* Side work in a window. */
TG_FN tg_u64 tg_side_ncpu(const struct tg_headroom_sample *s)
{
	return tg_rate_ucpu(tg_min(s->side_ns, s->capacity_ns), s->dt_ns) * TG_NCPU_PER_UCPU;
}

/*
 * What main was to use in this window: more than the estimate where side work used
 * more than its mean (`up`), less where it used less, never the other way: what
 * main did not use because of side work is no argument. What side work took in the
 * window before counts still, for main has to make up for it.
 */
TG_FN tg_u64 tg_estimate_due_ucpu(const struct tg_headroom *h, const struct tg_headroom_sample *s,
				  tg_u64 est_ucpu, int up, tg_u64 cap_ucpu)
{
	tg_u64 beside = tg_beside_now_ucpu(h), side = tg_side_ncpu(s) / TG_NCPU_PER_UCPU;

	side = up ? tg_max(tg_max(side, h->side_last_ucpu), beside) : tg_min(side, beside);
	return tg_min(tg_beside_ucpu(h, est_ucpu, beside, side, cap_ucpu), cap_ucpu);
}

/* The mean of main begins again from here, beside this much side work. */
TG_FN void tg_estimate_restart(struct tg_headroom *h, tg_u64 main_ncpu, tg_u64 beside_ncpu,
			       tg_u64 cap_ucpu)
{
	h->main_ncpu = main_ncpu;
	h->beside_ncpu = beside_ncpu;
	h->trail_ncpu = h->tail_ncpu = tg_base_ncpu(h, cap_ucpu);
}

/*
 * Watch for a step upwards. On an alarm the estimate becomes what main used
 * since the detector's sum left zero, and the mean restarts from there.
 */
TG_FN int tg_estimate_alarm(struct tg_headroom *h, const struct tg_headroom_sample *s,
			    tg_u64 main_ns, tg_u64 cap_ucpu, tg_u64 blur_ns)
{
	tg_u64 est = tg_estimate_now_ucpu(h, cap_ucpu);
	tg_u64 due = tg_estimate_due_ucpu(h, s, est, 1, cap_ucpu);
	tg_u64 second_ns = cap_ucpu * 1000;
	tg_u64 fine_least_ns = (tg_u64)h->cfg.fine_threshold_us * cap_ucpu / 1000;
	tg_u64 coarse_least_ns = (tg_u64)h->cfg.coarse_min_us * cap_ucpu / 1000;
	tg_u64 coarse_most_ns = (tg_u64)h->cfg.coarse_max_us * cap_ucpu / 1000;
	tg_u64 fine = tg_fine_margin_ucpu(h, cap_ucpu);
	tg_u64 coarse = tg_max(fine, tg_ppm_of(cap_ucpu, h->cfg.coarse_ppm));
	tg_u64 fine_ns = tg_max(tg_threshold_ns(h, fine), fine_least_ns) + blur_ns;
	tg_u64 coarse_ns =
	    tg_clamp(tg_threshold_ns(h, coarse), coarse_least_ns, coarse_most_ns) + blur_ns;
	int fine_fired =
	    tg_detect(&h->fine, main_ns, tg_window_ns(due + fine, s), s->dt_ns, fine_ns, second_ns);
	int coarse_fired = tg_detect(&h->coarse, main_ns, tg_window_ns(due + coarse, s), s->dt_ns,
				     coarse_ns, second_ns);
	const struct tg_detector *d = coarse_fired ? &h->coarse : &h->fine;
	tg_u64 margin = coarse_fired ? coarse : fine, rise, now;

	if (!fine_fired && !coarse_fired)
		return 0;
	if (h->probation.open_us == 0) {
		h->probation.main_ncpu = h->main_ncpu;
		h->probation.beside_ncpu = h->beside_ncpu;
		h->probation.out_ucpu = h->out_ucpu;
		h->probation.margin_ucpu = margin;
		h->probation.noise_us = h->noise_us;
		h->probation.block_us = 0;
		h->probation.used_ns = 0;
		h->probation.open_us = 1;
	}
	/* Where a cut is all that protects main, each pulse of a row of them is doubted again. */
	if (!h->cfg.displaced)
		h->probation.open_us = 1;
	/*
	 * sum <= 8.192e12 ns over age >= 1 us: in ucpu sum * 1000 / age. A sum of
	 * one window cannot tell a small step at its start from a large one at its
	 * end: take the middle, i.e. twice the rise, and let the next window, the
	 * first that is all at the new level, replace it. The second of two windows
	 * is all at the new level itself.
	 */
	rise = margin + d->sum_ns * 1000 / tg_max(d->age_us, 1);
	h->mean_age_us = d->age_us;
	if (d->age_us <= s->dt_ns / 1000) {
		rise *= 2;
		h->mean_age_us = 0;
	} else if (d->age_us <= s->dt_ns / 400) {
		rise = tg_max(rise, tg_sub0(tg_rate_ucpu(main_ns, s->dt_ns), est));
		h->mean_age_us = s->dt_ns / 1000;
	}
	now = tg_min(est + rise, cap_ucpu);
	tg_estimate_restart(h, now * TG_NCPU_PER_UCPU, tg_side_ncpu(s), cap_ucpu);
	tg_detectors_reset(h);
	h->alarms++;
	return 1;
}

/*
 * Watch for a step downwards: giving back is in no hurry, but a mean that
 * drags the past along would count it as noise. Only the estimate restarts;
 * the slope still limits what is given.
 */
TG_FN int tg_estimate_fall(struct tg_headroom *h, const struct tg_headroom_sample *s,
			   tg_u64 main_ns, tg_u64 cap_ucpu, tg_u64 blur_ns)
{
	tg_u64 est = tg_estimate_now_ucpu(h, cap_ucpu);
	tg_u64 margin = tg_fine_margin_ucpu(h, cap_ucpu);
	tg_u64 least_ns = (tg_u64)h->cfg.fine_threshold_us * cap_ucpu / 1000;
	tg_u64 threshold_ns = tg_max(tg_threshold_ns(h, margin), 2 * least_ns) + blur_ns, now;
	struct tg_detector *d = &h->fall;

	tg_u64 due = tg_estimate_due_ucpu(h, s, est, 0, cap_ucpu);

	if (!tg_detect(d, tg_window_ns(tg_sub0(due, margin), s), main_ns, s->dt_ns, threshold_ns,
		       cap_ucpu * 1000) ||
	    d->age_us < h->cfg.fall_us)
		return 0;
	now = tg_sub0(est, margin + d->sum_ns * 1000 / tg_max(d->age_us, 1));
	tg_noise_follow(h, now);
	tg_estimate_restart(h, now * TG_NCPU_PER_UCPU, tg_side_ncpu(s), cap_ucpu);
	h->mean_age_us = d->age_us;
	tg_detectors_reset(h);
	return 1;
}

/*
 * How long main must be watched before half a margin stands out of its noise:
 * v / (margin / 2)^2. margin in mcpu < 2^23, squared < 2^46; v * 10^6 < 2^60.
 */
TG_FN tg_u64 tg_proof_us(const struct tg_headroom *h, tg_u64 margin_ucpu)
{
	tg_u64 half_mcpu = tg_max(margin_ucpu / 2000, 1);
	tg_u64 proof_us = h->noise_us * 1000000 / (half_mcpu * half_mcpu);

	return tg_clamp(proof_us, h->cfg.proof_us, tg_max(h->cfg.proof_us, h->cfg.doubt_us / 3));
}

/*
 * Noise that looked like a step was underrated: twice what it was taken for, and at least what a
 * threshold follows. Pulses of main that come as regularly as blocks of noise do (each 10 ms) have
 * none, and twice nothing would teach nothing. No more than the largest threshold follows: what is
 * longer is cut for, however loud main is. (Where a cut is all that protects main, pulses are to be
 * cut for, and only twice what was measured is learnt.) 8.192e9 * 10^7 / 10^6 = 8.2e10 us, times a
 * margin in mcpu < 2^23: < 2^60.
 */
TG_FN tg_u64 tg_noise_learnt_us(const struct tg_headroom *h, tg_u64 cap_ucpu)
{
	const struct tg_probation *p = &h->probation;
	tg_u64 margin_mcpu = tg_max(p->margin_ucpu / 1000, 1), per = (tg_u64)h->cfg.alarm * 500;
	tg_u64 least_us = (tg_u64)h->cfg.fine_threshold_us * cap_ucpu / 1000000;
	tg_u64 most_us = (tg_u64)h->cfg.coarse_max_us * cap_ucpu / 1000000;
	tg_u64 least = least_us * margin_mcpu / per, most = most_us * margin_mcpu / per;
	tg_u64 learnt = tg_min(2 * tg_max(p->noise_us, least), tg_max(p->noise_us, most));

	if (!h->cfg.displaced)
		learnt = 2 * p->noise_us;
	return tg_min(learnt, TG_NOISE_MAX);
}

/*
 * After an alarm: blocks of proof_us are judged one by one, up to doubt_us. If
 * in one of them main was back within half the margin of where it had been,
 * the step was a burst, and both the estimate and the allowance return to what
 * they were. used_ns is at most 20 s * 8192 CPUs = 1.7e14.
 */
TG_FN int tg_estimate_refuted(struct tg_headroom *h, tg_u64 main_ns, tg_u64 dt_ns, tg_u64 cap_ucpu)
{
	struct tg_probation *p = &h->probation;
	tg_u64 most_ucpu, mean_ucpu;

	if (p->open_us == 0)
		return 0;
	p->open_us += dt_ns / 1000;
	p->block_us += dt_ns / 1000;
	p->used_ns += main_ns;
	if (p->open_us > h->cfg.doubt_us) {
		p->open_us = 0;
		return 0;
	}
	if (p->block_us < tg_proof_us(h, p->margin_ucpu))
		return 0;
	most_ucpu = p->main_ncpu / TG_NCPU_PER_UCPU + p->margin_ucpu / 2;
	mean_ucpu = p->used_ns * 1000 / tg_max(p->block_us, 1);
	p->block_us = 0;
	p->used_ns = 0;
	if (mean_ucpu > most_ucpu)
		return 0;
	tg_estimate_restart(h, p->main_ncpu, p->beside_ncpu, cap_ucpu);
	h->mean_age_us = h->history_us;
	/* What lasts longer is no noise. */
	if (p->open_us <= TG_BURST_US)
		h->noise_us = tg_noise_learnt_us(h, cap_ucpu);
	p->open_us = 0;
	return 1;
}

/* Take one window without a step into the mean of main, and the mean of that. */
TG_FN void tg_estimate_mean(struct tg_headroom *h, const struct tg_headroom_sample *s,
			    tg_u64 main_ns, tg_u64 cap_ucpu)
{
	tg_u64 dt_us = s->dt_ns / 1000;
	tg_u64 age_us = h->mean_age_us + dt_us;
	tg_u64 weight_16 = tg_weight_16(dt_us, tg_min(age_us, tg_estimate_span_us(h, cap_ucpu)));
	tg_u64 main_now = tg_rate_ucpu(main_ns, s->dt_ns) * TG_NCPU_PER_UCPU;

	h->main_ncpu = tg_mean(h->main_ncpu, main_now, weight_16);
	h->beside_ncpu = tg_mean(h->beside_ncpu, tg_side_ncpu(s), weight_16);
	h->trail_ncpu = tg_mean(h->trail_ncpu, tg_base_ncpu(h, cap_ucpu), weight_16);
	h->tail_ncpu = tg_mean(h->tail_ncpu, h->trail_ncpu, weight_16);
	h->mean_age_us = tg_min(age_us, TG_AGE_MAX_US);
}

/*
 * One sane window: look for a step, else learn. Nothing is judged against a
 * mean without history. A window in which main stepped says nothing about its
 * noise.
 */
TG_FN enum tg_step tg_estimate_update(struct tg_headroom *h, const struct tg_headroom_sample *s,
				      tg_u64 main_ns, tg_u64 cap_ucpu, tg_u64 blur_ns)
{
	if (h->history_us > 0) {
		if (tg_estimate_alarm(h, s, main_ns, cap_ucpu, blur_ns))
			return TG_STEP_UP;
		if (tg_estimate_refuted(h, main_ns, s->dt_ns, cap_ucpu)) {
			tg_estimate_mean(h, s, main_ns, cap_ucpu);
			return TG_STEP_REFUTED;
		}
		if (tg_estimate_fall(h, s, main_ns, cap_ucpu, blur_ns))
			return TG_STEP_DOWN;
		tg_estimate_noise(h, main_ns, s->dt_ns);
	}
	tg_estimate_mean(h, s, main_ns, cap_ucpu);
	return TG_STEP_NONE;
}

#endif /* TG_LAW_ESTIMATE_H */
