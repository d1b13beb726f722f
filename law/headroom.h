/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * headroom.h - how much CPU side work may use, so that the asked idle stays.
 *
 * Source of the idea: the cpu.headroom patch series (Song Liu, 2019). In a
 * domain of C CPUs (less steal), over a window dt:
 *
 *     main      = busy - side
 *     allowance = max(tolerance * C, (1 - headroom) * C - main_estimate + trim)
 *
 * Two speeds.
 * Slow: main_estimate is a mean whose span follows the noise (mean_min_us to
 *   mean_max_us), and trim is a bounded integral of the idle really kept, so
 *   that what the actuator gives beyond or short of its word is learnt.
 * Fast: two CUSUM detectors watch for main rising above the estimate, a fine
 *   one for small steps and a coarse one for large steps. Each sums what main
 *   used beyond estimate + margin and fires above a threshold that follows
 *   the measured noise: for a sum of independent windows with variance rate v
 *   and margin d, a level h is reached by chance about once in
 *   (v / 2 d^2) * exp(2 d h / v), so h = alarm * v / (2 d) makes false alarms
 *   as rare as exp(alarm) says, at any load. A fired detector restarts the
 *   mean at what main used since its sum was last zero.
 *
 * Rises of the allowance are limited in slope (raise_ppm_per_s); falls are
 * not. No history, or a sample that cannot be true, gives the tolerance: cut,
 * never hold; then the slope carries it up again.
 *
 * The caller steps it once per window and holds any lock. All state is in
 * struct tg_headroom. Internal rates are in ncpu (1e-9 CPU, < 8.192e12 < 2^43)
 * so that slow means converge to within one ucpu.
 */
#ifndef TG_LAW_HEADROOM_H
#define TG_LAW_HEADROOM_H

#include "base.h"

enum tg_reason {
	TG_REASON_WARMUP = 0,  /* no history yet: the tolerance */
	TG_REASON_RAMP = 1,    /* rising, held by the slope */
	TG_REASON_TRACK = 2,   /* the formula */
	TG_REASON_CUT = 3,     /* a detector fired in this window */
	TG_REASON_FLOOR = 4,   /* main leaves less than the tolerance */
	TG_REASON_STALE = 5,   /* this sample cannot be true: the tolerance */
	TG_REASON_RESTORE = 6, /* the last cut was a false alarm: back at once */
};

/* Tuning; law/README.md gives the reason for each default. */
struct tg_headroom_config {
	tg_u32 mean_min_us;	/* span of the mean of a quiet main, >= 1000 */
	tg_u32 mean_max_us;	/* span of the mean of a noisy main */
	tg_u32 mean_error_ppm;	/* error of the mean to aim at, of the domain */
	tg_u32 warm_us;		/* history wanted before anything is given */
	tg_u32 trim_us;		/* integration time of the trim */
	tg_u32 trim_max_ppm;	/* bound of the trim, of the domain */
	tg_u32 raise_ppm_per_s; /* slope of rises, of the domain */
	tg_u32 fine_min_ppm;	/* margin of the fine detector, least and most */
	tg_u32 fine_max_ppm;
	tg_u32 coarse_ppm;	  /* margin of the coarse detector */
	tg_u32 alarm;		  /* exponent of the false alarm interval, <= 64 */
	tg_u32 fine_threshold_us; /* least threshold of the fine one, CPU time per CPU */
	tg_u32 coarse_min_us;	  /* least and most threshold of the coarse one, per CPU */
	tg_u32 coarse_max_us;
	tg_u32 proof_us;       /* main back at its old level for this long: false alarm */
	tg_u32 doubt_us;       /* after this long an alarm counts as true */
	tg_u32 noise_block_us; /* time over which main's noise is judged */
	tg_u32 fall_us;	       /* main low for this long before the mean restarts lower */
	tg_u32 calm_us;	       /* this long after a step or ramp the trim stands still */
	tg_u32 dt_max_us;      /* a longer window is stale, <= 10 s */
};

struct tg_headroom_sample {
	tg_u64 dt_ns;	       /* wall time of the window */
	tg_u64 capacity_ns;    /* CPU time there was: CPUs * dt less steal */
	tg_u64 busy_ns;	       /* used by anybody */
	tg_u64 side_ns;	       /* used by side work */
	tg_u64 granularity_ns; /* how far off busy or side may be, per CPU */
	tg_u32 valid;	       /* 0: the sensor does not vouch for it */
	tg_u32 pad;
};

struct tg_headroom_decision {
	tg_u64 allowance_ucpu; /* what side work may use from here on */
	tg_u64 floor_ucpu;     /* the tolerance */
	tg_u64 capacity_ucpu;  /* the domain, mean */
	tg_u64 asked_ucpu;     /* idle asked for */
	tg_u64 main_est_ucpu;  /* estimate of main */
	tg_u64 main_now_ucpu;  /* main in this window */
	tg_u64 side_ucpu;      /* side work's use, mean */
	tg_u64 idle_ucpu;      /* idle kept, mean of about one second */
	tg_u64 noise_ucpu;     /* expected error of main_est */
	tg_s64 trim_ucpu;
	tg_u32 reason; /* enum tg_reason */
	tg_u32 alarms; /* detectors fired since the start, wraps */
};

struct tg_detector {
	tg_u64 sum_ns; /* main beyond estimate + margin, <= 1 s of the domain */
	tg_u64 age_us; /* time since the sum was zero */
};

/* Windows of main that are judged together, for its noise. */
struct tg_block {
	tg_u64 used_ns, expected_ns, age_us;
};

/*
 * What an alarm put aside, until it is proved or refuted. Legal transitions:
 * open_us 0 (none) -> alarm -> counting up -> refuted or doubt_us passed -> 0.
 * An alarm while one is open keeps what the first put aside.
 */
struct tg_probation {
	tg_u64 open_us;		  /* time since the alarm + 1; 0: none open */
	tg_u64 block_us, used_ns; /* time and main since the last judgement */
	tg_u64 main_ncpu;	  /* the estimate before it */
	tg_u64 out_ucpu;	  /* the allowance before it */
	tg_u64 margin_ucpu;	  /* of the detector that fired */
};

struct tg_headroom {
	struct tg_headroom_config cfg;
	tg_u32 headroom_ppm, tolerance_ppm;
	tg_u64 history_us;  /* since the start or the last bad sample */
	tg_u64 mean_age_us; /* since the mean was restarted */
	tg_u64 capacity_ncpu, main_ncpu, side_ncpu, idle_ncpu;
	tg_u64 given_ncpu; /* the allowance, mean of about one second */
	tg_u64 noise_us;   /* variance rate of main: us^2 per us */
	tg_s64 trim_ncpu;
	tg_u64 out_ucpu; /* the last allowance */
	struct tg_detector fine, coarse, fall;
	struct tg_probation probation;
	struct tg_block block;
	tg_u64 calm_us;	   /* since a step, a ramp or the start */
	tg_u64 trail_ncpu; /* mean of the mean: how main moves */
	tg_u32 alarms, pad;
};

#define TG_NCPU_PER_UCPU 1000ULL
#define TG_SECOND_US 1000000ULL

TG_FN void tg_block_reset(struct tg_block *b)
{
	b->used_ns = 0;
	b->expected_ns = 0;
	b->age_us = 0;
}

TG_FN void tg_headroom_forget(struct tg_headroom *h)
{
	h->history_us = 0;
	h->mean_age_us = 0;
	h->noise_us = 0;
	h->trim_ncpu = 0;
	h->out_ucpu = 0;
	h->calm_us = 0;
	h->trail_ncpu = 0;
	h->fine.sum_ns = 0;
	h->fine.age_us = 0;
	h->coarse.sum_ns = 0;
	h->coarse.age_us = 0;
	h->fall.sum_ns = 0;
	h->fall.age_us = 0;
	h->probation.open_us = 0;
	tg_block_reset(&h->block);
}

/* headroom and tolerance above 100 % count as 100 %. */
TG_FN void tg_headroom_terms(struct tg_headroom *h, tg_u32 headroom_ppm, tg_u32 tolerance_ppm)
{
	h->headroom_ppm = (tg_u32)tg_min(headroom_ppm, TG_PPM);
	h->tolerance_ppm = (tg_u32)tg_min(tolerance_ppm, TG_PPM);
}

TG_FN void tg_headroom_init(struct tg_headroom *h, const struct tg_headroom_config *cfg,
			    tg_u32 headroom_ppm, tg_u32 tolerance_ppm)
{
	h->cfg = *cfg;
	h->capacity_ncpu = 0;
	h->main_ncpu = 0;
	h->side_ncpu = 0;
	h->idle_ncpu = 0;
	h->given_ncpu = 0;
	h->alarms = 0;
	h->pad = 0;
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

/*
 * Variance rate of main: the mean over a second of deviation^2 / time, over
 * blocks of noise_block_us (a server's queue carries load from one window into
 * the next, so that short windows alone would look calmer than they add up
 * to). A block counts for at most nine times the present variance, so that
 * steps do not pass for noise. A coarse sensor's own noise is in it: at most
 * (granularity * CPUs)^2 / 6 a window, which at 50 ms is little beside a real
 * main. Sums of used and expected are each below 20 s * 8192 CPUs = 1.7e14;
 * the deviation is capped at 4e9 us (4000 CPUs for a second): 1.6e19 < 2^64.
 * The rate is capped at 2^40, which tg_threshold_ns relies on.
 */
TG_FN void tg_headroom_noise(struct tg_headroom *h, tg_u64 main_ns, tg_u64 dt_ns)
{
	struct tg_block *b = &h->block;
	tg_u64 cpus = h->capacity_ncpu / 1000000000ULL + 1;
	tg_u64 off_us, rate;

	b->used_ns += main_ns;
	b->expected_ns += tg_time_ns(h->main_ncpu / TG_NCPU_PER_UCPU, dt_ns);
	b->age_us += dt_ns / 1000;
	if (b->age_us < tg_min(h->cfg.noise_block_us, 10000000))
		return;
	off_us = tg_max(b->used_ns, b->expected_ns) - tg_min(b->used_ns, b->expected_ns);
	off_us = tg_min(off_us / 1000, 4000000000ULL);
	rate = off_us * off_us / b->age_us;
	rate = tg_min(rate, 9 * h->noise_us + 500 * cpus);
	rate = tg_min(rate, 1ULL << 40);
	h->noise_us = tg_mean(h->noise_us, rate, tg_weight_16(b->age_us, TG_SECOND_US));
	tg_block_reset(b);
}

/*
 * alarm * v / (2 d) in ns: v in us, d a rate in ucpu, so
 * 64 * 2^40 * 10^3 / 2 = 3.5e16 us*1e-3; times 10^6 only after the division.
 */
TG_FN tg_u64 tg_threshold_ns(const struct tg_headroom *h, tg_u64 margin_ucpu)
{
	tg_u64 num = (tg_u64)tg_min(h->cfg.alarm, 64) * h->noise_us * 500;
	tg_u64 margin_mcpu = tg_max(margin_ucpu / 1000, 1);

	/* us / mcpu * 1000 = us per CPU; * 1000 = ns: 3.6e16 / 1 * 1000 > 2^64,
	 * so bound the quotient by one second of the largest domain first. */
	return tg_min(num / margin_mcpu, 8192000000ULL) * 1000;
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

/* All detectors start anew: their sums were against the old estimate. */
TG_FN void tg_detectors_reset(struct tg_headroom *h)
{
	h->fine.sum_ns = h->fine.age_us = 0;
	h->coarse.sum_ns = h->coarse.age_us = 0;
	h->fall.sum_ns = h->fall.age_us = 0;
	tg_block_reset(&h->block);
}

/*
 * The margin of the fine detector: small enough that at its threshold no more
 * than half a percent of a second of the domain has been overdrawn,
 *     alarm * v / (2 d) <= 0.005 * C * 1 s.
 * alarm * v * 100 <= 64 * 2^40 * 100 < 2^53; per CPU, in ppm of a CPU times C.
 */
TG_FN tg_u64 tg_fine_margin_ucpu(const struct tg_headroom *h, tg_u64 cap_ucpu)
{
	tg_u64 half_us = tg_max(cap_ucpu / 200, 1); /* 0.005 C in us of CPU per s */
	tg_u64 margin_ucpu =
	    (tg_u64)tg_min(h->cfg.alarm, 64) * h->noise_us / 2 * 1000 / half_us * 1000;

	return tg_clamp(margin_ucpu, tg_ppm_of(cap_ucpu, h->cfg.fine_min_ppm),
			tg_ppm_of(cap_ucpu, h->cfg.fine_max_ppm));
}

/*
 * Watch for a step upwards. On an alarm the estimate becomes what main used
 * since the detector's sum left zero, and the mean restarts from there.
 */
TG_FN int tg_headroom_alarm(struct tg_headroom *h, const struct tg_headroom_sample *s,
			    tg_u64 main_ns, tg_u64 cap_ucpu, tg_u64 blur_ns)
{
	tg_u64 est = h->main_ncpu / TG_NCPU_PER_UCPU;
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
	    tg_detect(&h->fine, main_ns, tg_window_ns(est + fine, s), s->dt_ns, fine_ns, second_ns);
	int coarse_fired = tg_detect(&h->coarse, main_ns, tg_window_ns(est + coarse, s), s->dt_ns,
				     coarse_ns, second_ns);
	const struct tg_detector *d = coarse_fired ? &h->coarse : &h->fine;
	tg_u64 margin = coarse_fired ? coarse : fine, rise;

	if (!fine_fired && !coarse_fired)
		return 0;
	if (h->probation.open_us == 0) {
		h->probation.main_ncpu = h->main_ncpu;
		h->probation.out_ucpu = h->out_ucpu;
		h->probation.margin_ucpu = margin;
	}
	h->probation.open_us = 1;
	h->probation.block_us = 0;
	h->probation.used_ns = 0;
	/*
	 * sum <= 8.192e12 ns over age >= 1 us: in ucpu sum * 1000 / age. A sum of
	 * one window cannot tell a small step at its start from a large one at its
	 * end: take the middle, i.e. twice the rise, and trust the next window.
	 */
	rise = margin + d->sum_ns * 1000 / tg_max(d->age_us, 1);
	h->mean_age_us = d->age_us;
	if (d->age_us <= s->dt_ns / 1000) {
		rise *= 2;
		h->mean_age_us /= 2;
	}
	h->main_ncpu = tg_min(est + rise, cap_ucpu) * TG_NCPU_PER_UCPU;
	h->trail_ncpu = h->main_ncpu;
	tg_detectors_reset(h);
	h->alarms++;
	return 1;
}

/*
 * Watch for a step downwards: giving back is in no hurry, but a mean that
 * drags the past along would count it as noise. Only the estimate restarts;
 * the slope still limits what is given. The noise shrinks with main, as that
 * of a server does; otherwise a loud past would make the next step look small.
 */
TG_FN int tg_headroom_fall(struct tg_headroom *h, const struct tg_headroom_sample *s,
			   tg_u64 main_ns, tg_u64 cap_ucpu, tg_u64 blur_ns)
{
	tg_u64 est = h->main_ncpu / TG_NCPU_PER_UCPU;
	tg_u64 margin = tg_fine_margin_ucpu(h, cap_ucpu);
	tg_u64 least_ns = (tg_u64)h->cfg.fine_threshold_us * cap_ucpu / 1000;
	tg_u64 threshold_ns = tg_max(tg_threshold_ns(h, margin), 2 * least_ns) + blur_ns, now;
	struct tg_detector *d = &h->fall;

	if (!tg_detect(d, tg_window_ns(tg_sub0(est, margin), s), main_ns, s->dt_ns, threshold_ns,
		       cap_ucpu * 1000) ||
	    d->age_us < h->cfg.fall_us)
		return 0;
	now = tg_sub0(est, margin + d->sum_ns * 1000 / tg_max(d->age_us, 1));
	/* noise <= 2^40, in sixteenths of what is left of main: < 2^44. */
	h->noise_us = h->noise_us * (now * 16 / tg_max(est, 1)) / 16;
	h->main_ncpu = now * TG_NCPU_PER_UCPU;
	h->trail_ncpu = h->main_ncpu;
	h->mean_age_us = d->age_us;
	tg_detectors_reset(h);
	return 1;
}

/*
 * The span of the mean: as long as the noise demands for the wanted error,
 * v / (error * C)^2, within [mean_min_us, mean_max_us].
 * (error * C) in mcpu: squared <= (8.192e6)^2 = 6.7e13; v * 10^6 < 2^60.
 */
TG_FN tg_u64 tg_headroom_span_us(const struct tg_headroom *h, tg_u64 cap_ucpu)
{
	tg_u64 error_mcpu = tg_max(tg_ppm_of(cap_ucpu, h->cfg.mean_error_ppm) / 1000, 1);
	tg_u64 span = h->noise_us * 1000000 / (error_mcpu * error_mcpu);

	return tg_clamp(span, tg_max(h->cfg.mean_min_us, 1000), h->cfg.mean_max_us);
}

/* Integer square root, 32 bounded steps. */
TG_FN tg_u64 tg_sqrt(tg_u64 x)
{
	tg_u64 root = 0;

	for (int bit = 31; bit >= 0; bit--) {
		tg_u64 next = root | (1ULL << bit);

		if (next <= x / next)
			root = next;
	}
	return root;
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
 * After an alarm: blocks of proof_us are judged one by one, up to doubt_us. If
 * in one of them main was back within half the margin of where it had been,
 * the step was a burst, and both the estimate and the allowance return to what
 * they were. used_ns is at most 20 s * 8192 CPUs = 1.7e14.
 */
TG_FN int tg_headroom_refuted(struct tg_headroom *h, tg_u64 main_ns, tg_u64 dt_ns)
{
	struct tg_probation *p = &h->probation;
	tg_u64 most_ucpu, mean_ucpu;

	if (p->open_us == 0)
		return 0;
	p->open_us += dt_ns / 1000;
	p->block_us += dt_ns / 1000;
	p->used_ns += main_ns;
	if (p->open_us > tg_min(h->cfg.doubt_us, 10000000)) {
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
	h->main_ncpu = p->main_ncpu;
	h->trail_ncpu = p->main_ncpu;
	h->mean_age_us = h->history_us;
	/* Noise that looked like a step: the noise was underrated. */
	h->noise_us += h->noise_us / 4;
	h->out_ucpu = p->out_ucpu;
	p->open_us = 0;
	return 1;
}

/* Take one sane window into the means. */
TG_FN void tg_headroom_learn(struct tg_headroom *h, const struct tg_headroom_sample *s,
			     tg_u64 main_ns, tg_u64 cap_now_ncpu)
{
	tg_u64 dt_us = s->dt_ns / 1000;
	tg_u64 cap_ucpu = h->capacity_ncpu / TG_NCPU_PER_UCPU;
	tg_u64 span_us = tg_headroom_span_us(h, cap_ucpu);
	tg_u64 mean_us = tg_min(h->mean_age_us + dt_us, span_us);
	tg_u64 second_us = tg_min(h->history_us + dt_us, TG_SECOND_US);
	tg_u64 min_us = tg_min(h->history_us + dt_us, tg_max(h->cfg.mean_min_us, 1000));
	tg_u64 main_now = tg_rate_ucpu(main_ns, s->dt_ns) * TG_NCPU_PER_UCPU;
	tg_u64 side_now = tg_rate_ucpu(tg_min(s->side_ns, s->capacity_ns), s->dt_ns);
	tg_u64 idle_now = tg_rate_ucpu(tg_sub0(s->capacity_ns, s->busy_ns), s->dt_ns);

	h->capacity_ncpu = tg_mean(h->capacity_ncpu, cap_now_ncpu, tg_weight_16(dt_us, min_us));
	h->main_ncpu = tg_mean(h->main_ncpu, main_now, tg_weight_16(dt_us, mean_us));
	h->trail_ncpu = tg_mean(h->trail_ncpu, h->main_ncpu, tg_weight_16(dt_us, mean_us));
	h->side_ncpu =
	    tg_mean(h->side_ncpu, side_now * TG_NCPU_PER_UCPU, tg_weight_16(dt_us, second_us));
	h->idle_ncpu =
	    tg_mean(h->idle_ncpu, idle_now * TG_NCPU_PER_UCPU, tg_weight_16(dt_us, second_us));
	h->given_ncpu =
	    tg_mean(h->given_ncpu, h->out_ucpu * TG_NCPU_PER_UCPU, tg_weight_16(dt_us, second_us));
	h->history_us = tg_min(h->history_us + dt_us, 1ULL << 40);
	h->mean_age_us = tg_min(h->mean_age_us + dt_us, 1ULL << 40);
}

/*
 * The trim: integral of (idle kept - idle asked) over trim_us, bounded. It
 * grows only while side work is hungry (over the last second it used 7/8 of what
 * it might, less 1 % of the domain) and nothing else holds the allowance down, and falls only while
 * the allowance is above the floor: an integral that cannot act must not wind up. Where it may not
 * move it decays.
 */
TG_FN void tg_headroom_trim(struct tg_headroom *h, const struct tg_headroom_sample *s,
			    tg_u64 asked_ucpu, tg_u64 cap_ucpu, tg_u64 floor_ucpu)
{
	tg_u64 idle_now = tg_rate_ucpu(tg_sub0(s->capacity_ns, s->busy_ns), s->dt_ns);
	tg_s64 error =
	    (tg_s64)(idle_now * TG_NCPU_PER_UCPU) - (tg_s64)(asked_ucpu * TG_NCPU_PER_UCPU);
	tg_s64 most =
	    (tg_s64)(tg_ppm_of(cap_ucpu, tg_min(h->cfg.trim_max_ppm, TG_PPM)) * TG_NCPU_PER_UCPU);
	tg_u64 weight = tg_weight_16(s->dt_ns / 1000, tg_max(h->cfg.trim_us, 1000));
	tg_u64 slack = h->given_ncpu / 8 + h->capacity_ncpu / 100;
	int hungry = h->side_ncpu + slack >= h->given_ncpu;
	int open = h->out_ucpu > floor_ucpu;
	tg_s64 next = tg_mean_s(h->trim_ncpu, h->trim_ncpu + error, weight);

	if (h->calm_us < h->cfg.calm_us)
		return;
	/* |trim| + |error| < 2^44: the weighted difference stays below 2^60. */
	if (!open || (!hungry && next > h->trim_ncpu && next > 0))
		next = tg_mean_s(h->trim_ncpu, 0, weight);
	h->trim_ncpu = tg_clamp_s(next, -most, most);
}

/* The expected error of the mean, sqrt(v / span): v * 10^6 / span is in mcpu^2. */
TG_FN tg_u64 tg_headroom_error_ucpu(const struct tg_headroom *h, tg_u64 cap_ucpu)
{
	tg_u64 span_us = tg_max(tg_min(h->mean_age_us, tg_headroom_span_us(h, cap_ucpu)), 1000);

	return tg_sqrt(h->noise_us * 1000000 / span_us) * 1000;
}

/*
 * Main as it will be while the next quota stands. A mean over a span lags a
 * steady climb by climb * span, and the mean of that mean by as much again;
 * their difference, as far as it stands out of the noise, is the lag. A climb
 * is led by half as much again (a write waits for its turn), a decline is not.
 */
TG_FN tg_u64 tg_headroom_lead(const struct tg_headroom *h, tg_u64 cap_ucpu, tg_u64 noise_ucpu)
{
	tg_u64 main_ncpu = h->main_ncpu, noise_ncpu = noise_ucpu * TG_NCPU_PER_UCPU;
	tg_u64 climb = tg_sub0(tg_sub0(main_ncpu, h->trail_ncpu), noise_ncpu);
	tg_u64 decline = tg_sub0(tg_sub0(h->trail_ncpu, main_ncpu), noise_ncpu);
	tg_u64 led_ncpu = tg_sub0(main_ncpu + climb * 3 / 2, decline);

	return tg_min((led_ncpu + TG_NCPU_PER_UCPU / 2) / TG_NCPU_PER_UCPU, cap_ucpu);
}

/* The formula, the slope and the floor; sets out_ucpu and the reason. */
TG_FN tg_u32 tg_headroom_decide(struct tg_headroom *h, tg_u64 dt_ns, tg_u64 cap_ucpu,
				tg_u64 asked_ucpu, tg_u64 floor_ucpu)
{
	tg_u64 main_ucpu = tg_headroom_lead(h, cap_ucpu, tg_headroom_error_ucpu(h, cap_ucpu));
	tg_u64 trim = (tg_abs(h->trim_ncpu) + TG_NCPU_PER_UCPU / 2) / TG_NCPU_PER_UCPU;
	tg_u64 have = cap_ucpu + (h->trim_ncpu > 0 ? trim : 0);
	tg_u64 used = asked_ucpu + main_ucpu + (h->trim_ncpu < 0 ? trim : 0);
	tg_u64 want = tg_min(tg_sub0(have, used), cap_ucpu);
	tg_u64 rise = tg_time_ns(tg_ppm_of(cap_ucpu, tg_min(h->cfg.raise_ppm_per_s, TG_PPM * 100)),
				 tg_min(dt_ns, 100000000)) /
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
	d->main_est_ucpu = (h->main_ncpu + TG_NCPU_PER_UCPU / 2) / TG_NCPU_PER_UCPU;
	d->main_now_ucpu = main_now_ucpu;
	d->side_ucpu = h->side_ncpu / TG_NCPU_PER_UCPU;
	d->idle_ucpu = h->idle_ncpu / TG_NCPU_PER_UCPU;
	d->noise_ucpu = tg_headroom_error_ucpu(h, cap_ucpu);
	d->trim_ucpu = h->trim_ncpu < 0 ? -(tg_s64)(tg_abs(h->trim_ncpu) / TG_NCPU_PER_UCPU)
					: (tg_s64)(tg_abs(h->trim_ncpu) / TG_NCPU_PER_UCPU);
	d->reason = reason;
	d->alarms = h->alarms;
}

/*
 * One window in, one decision out. On a sample that cannot be true everything
 * learnt is dropped, and the capacity last known scales the tolerance.
 */
TG_FN void tg_headroom_step(struct tg_headroom *h, const struct tg_headroom_sample *s,
			    struct tg_headroom_decision *d)
{
	tg_u64 cap_now_ncpu, cap_ucpu, asked_ucpu, floor_ucpu, main_ns, blur_ns;
	tg_u32 reason;
	int fired = 0, refuted = 0, fell = 0;

	if (!tg_headroom_sane(&h->cfg, s)) {
		cap_ucpu = h->capacity_ncpu / TG_NCPU_PER_UCPU;
		floor_ucpu = tg_ppm_of(cap_ucpu, h->tolerance_ppm);
		tg_headroom_forget(h);
		h->out_ucpu = floor_ucpu;
		tg_headroom_report(h, d, cap_ucpu, tg_ppm_of(cap_ucpu, h->headroom_ppm), floor_ucpu,
				   0, TG_REASON_STALE);
		return;
	}
	cap_now_ncpu = tg_rate_ucpu(s->capacity_ns, s->dt_ns) * TG_NCPU_PER_UCPU;
	main_ns = tg_min(tg_sub0(s->busy_ns, s->side_ns), s->capacity_ns);
	blur_ns = tg_min(s->granularity_ns, 1000000000ULL) *
		  ((cap_now_ncpu + 999999999ULL) / 1000000000ULL);
	if (h->history_us == 0)
		h->capacity_ncpu = cap_now_ncpu;
	cap_ucpu = h->capacity_ncpu / TG_NCPU_PER_UCPU;
	if (h->history_us > 0) {
		fired = tg_headroom_alarm(h, s, main_ns, cap_ucpu, blur_ns);
		if (!fired)
			refuted = tg_headroom_refuted(h, main_ns, s->dt_ns);
		if (!fired && !refuted)
			fell = tg_headroom_fall(h, s, main_ns, cap_ucpu, blur_ns);
	}
	/* A window in which main stepped says nothing about its noise. */
	if (!fired && !fell) {
		if (h->history_us > 0)
			tg_headroom_noise(h, main_ns, s->dt_ns);
		tg_headroom_learn(h, s, main_ns, cap_now_ncpu);
	}
	cap_ucpu = (h->capacity_ncpu + TG_NCPU_PER_UCPU / 2) / TG_NCPU_PER_UCPU;
	asked_ucpu = tg_ppm_of(cap_ucpu, h->headroom_ppm);
	floor_ucpu = tg_ppm_of(cap_ucpu, h->tolerance_ppm);
	tg_headroom_trim(h, s, asked_ucpu, cap_ucpu, floor_ucpu);
	reason = tg_headroom_decide(h, s->dt_ns, cap_ucpu, asked_ucpu, floor_ucpu);
	if (fired && reason != TG_REASON_FLOOR)
		reason = TG_REASON_CUT;
	if (refuted && reason == TG_REASON_TRACK)
		reason = TG_REASON_RESTORE;
	if (fired || fell || refuted || reason == TG_REASON_WARMUP)
		h->calm_us = 0;
	else
		h->calm_us = tg_min(h->calm_us + s->dt_ns / 1000, 1ULL << 40);
	tg_headroom_report(h, d, cap_ucpu, asked_ucpu, floor_ucpu, tg_rate_ucpu(main_ns, s->dt_ns),
			   reason);
}

#endif /* TG_LAW_HEADROOM_H */
