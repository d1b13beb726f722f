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
 * Two speeds: the estimate tells what main uses (a slow mean) and when it has
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

#include "base.h"

/*
 * What goes into the headroom law, what comes out, and what
 * it remembers.
 */

enum tg_reason {
	TG_REASON_WARMUP = 0,  /* no history yet: the tolerance */
	TG_REASON_RAMP = 1,    /* rising, held by the slope */
	TG_REASON_TRACK = 2,   /* the formula */
	TG_REASON_CUT = 3,     /* a detector fired in this window */
	TG_REASON_FLOOR = 4,   /* main leaves less than the tolerance */
	TG_REASON_STALE = 5,   /* no usable sample for TG_FRESH_US: the tolerance */
	TG_REASON_RESTORE = 6, /* the last cut was a false alarm: back at once */
	TG_REASON_SKIP = 7,    /* this sample is not usable: the last decision stands */
};

/* Tuning; law/headroom.md gives the reason for each default. */
struct tg_headroom_config {
	tg_u32 mean_min_us;	/* span of the mean of a quiet main, >= 1000 */
	tg_u32 mean_max_us;	/* span of the mean of a noisy main */
	tg_u32 mean_error_ppm;	/* error of the mean to aim at, of the domain */
	tg_u32 lead_us;		/* a climb of main is led by this long */
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
	tg_u32 contend_ppm;    /* main slowed by side work on all CPUs; 0: it is not */
	tg_u32 displaced;      /* main displaces side work at once: its pulses need no cut */
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
	enum tg_reason reason;
	tg_u32 alarms; /* detectors fired since the start, wraps */
};

struct tg_detector {
	tg_u64 sum_ns; /* main beyond estimate + margin, <= 1 s of the domain */
	tg_u64 age_us; /* time since the sum was zero */
};

/* Windows of main that are judged together, for its noise. */
struct tg_block {
	tg_u64 used_ns, expected_ns, age_us;
	tg_u64 last_ucpu; /* the block before, and whether there was one */
	tg_u64 filled;
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
	tg_u64 beside_ncpu;	  /* beside which side work */
	tg_u64 noise_us;	  /* the noise before it */
	tg_u64 out_ucpu;	  /* the allowance before it */
	tg_u64 margin_ucpu;	  /* of the detector that fired */
};

struct tg_headroom {
	struct tg_headroom_config cfg;
	tg_u32 headroom_ppm, tolerance_ppm;
	tg_u64 history_us;  /* since the start, or since everything was forgotten */
	tg_u64 unseen_us;   /* since the last usable sample */
	tg_u64 ahead_ns;    /* side work that was counted before the busy time it is part of */
	tg_u64 mean_age_us; /* since the mean was restarted */
	tg_u64 capacity_ncpu, main_ncpu, side_ncpu, idle_ncpu;
	tg_u64 given_ncpu;	/* the allowance, mean of about one second */
	tg_u64 noise_us;	/* variance rate of main: us^2 per us */
	tg_u64 noise_main_ncpu; /* the level of main at which it was learnt */
	tg_s64 trim_ncpu;
	tg_u64 out_ucpu; /* the last allowance */
	struct tg_detector fine, coarse, fall;
	struct tg_probation probation;
	struct tg_block block;
	tg_u64 calm_us;	       /* since a step, a ramp or the start */
	tg_u64 steady_us;      /* since main was seen to drift */
	tg_u64 trail_ncpu;     /* mean of the mean: how main moves */
	tg_u64 tail_ncpu;      /* mean of that: how it moves, without hiccups */
	tg_u64 beside_ncpu;    /* side work, a mean over the same span as main's */
	tg_u64 side_last_ucpu; /* side work in the window before */
	tg_u32 alarms, pad;
};

/*
 * How much main varies by chance, and how long a mean of it must be.
 *
 * The noise is a variance rate v: main's use over a time T varies by sqrt(v * T)
 * about what its level makes due, so a mean over T errs by sqrt(v / T).
 */

#define TG_NCPU_PER_UCPU 1000ULL
#define TG_SECOND_US 1000000ULL
/* Ages stop counting there (12 days); sums with a window stay far below 2^64. */
#define TG_AGE_MAX_US (1ULL << 40)
/* us^2 of CPU time per us: a main of 1000 CPUs that is on or off for a second. */
#define TG_NOISE_MAX (1ULL << 40)

TG_FN void tg_block_reset(struct tg_block *b)
{
	b->used_ns = 0;
	b->expected_ns = 0;
	b->age_us = 0;
	b->last_ucpu = 0;
	b->filled = 0;
}

/*
 * Integer square root, rounded down, for x < 2^50: Newton's iteration from
 * above, without a branch (a verifier walks every path of a bit by bit search).
 * It halves its distance until it is near, so 30 rounds from 2^25 do for any x.
 * It ends at sqrt(x + 1) rounded down or, where x + 2 is a square, one above,
 * and so never divides by zero; the last line prevents both.
 */
TG_FN tg_u64 tg_sqrt(tg_u64 x)
{
	tg_u64 root = 1ULL << 25;

	for (int round = 0; round < 30; round++)
		root = (root + (x + 1) / root) / 2;
	return root * root > x ? root - 1 : root;
}

/*
 * Variance rate of main: the mean over a second of half the squared difference
 * of successive blocks / time (von Neumann, 1941: a drift, and a mean that lags
 * behind it, are no noise). Blocks of noise_block_us: a server's queue carries
 * load from one window into the next, so that short windows alone would look
 * calmer than they add up to. A block counts for at most nine times the present
 * variance, so that steps do not pass for noise. A coarse sensor's own noise is
 * in it: at most (granularity * CPUs)^2 / 6 a window, which at 50 ms is little
 * beside a real main. used_ns is below 20 s * 8192 CPUs = 1.7e14, the same at
 * the last block's rate (in ncpu <= 8.192e12) likewise; the difference is capped
 * at 4e9 us (4000 CPUs for a second): 1.6e19 < 2^64. The rate is capped at
 * TG_NOISE_MAX, which the products below rely on.
 */
TG_FN void tg_estimate_noise(struct tg_headroom *h, tg_u64 main_ns, tg_u64 dt_ns)
{
	struct tg_block *b = &h->block;
	tg_u64 cpus = h->capacity_ncpu / 1000000000ULL + 1;
	tg_u64 off_us, rate, weight_16;

	b->used_ns += main_ns;
	b->expected_ns += tg_time_ns(b->last_ucpu, dt_ns);
	b->age_us += dt_ns / 1000;
	if (b->age_us < h->cfg.noise_block_us)
		return;
	off_us = tg_max(b->used_ns, b->expected_ns) - tg_min(b->used_ns, b->expected_ns);
	off_us = tg_min(off_us / 1000, 4000000000ULL);
	rate = off_us * off_us / b->age_us / 2;
	rate = tg_min(rate, 9 * h->noise_us + 500 * cpus);
	rate = tg_min(rate, TG_NOISE_MAX);
	weight_16 = tg_weight_16(b->age_us, TG_SECOND_US);
	if (b->filled)
		h->noise_us = tg_mean(h->noise_us, rate, weight_16);
	h->noise_main_ncpu = tg_mean(h->noise_main_ncpu, h->main_ncpu, weight_16);
	b->last_ucpu = tg_min(b->used_ns * 1000 / b->age_us, TG_UCPU_MAX);
	b->filled = 1;
	b->used_ns = b->expected_ns = b->age_us = 0;
}

/*
 * The noise of a server shrinks with its load: take it down from the level at
 * which it was learnt, or a loud past makes the next step look small. (It does
 * not follow main up: a detector must not go deaf in the middle of a step.)
 * In sixteenths of the ratio, at least one: 2^40 * 2^4.
 */
TG_FN void tg_noise_follow(struct tg_headroom *h, tg_u64 main_ucpu)
{
	tg_u64 learnt_ucpu = tg_max(h->noise_main_ncpu / TG_NCPU_PER_UCPU, 1);

	if (main_ucpu >= learnt_ucpu)
		return;
	h->noise_us = h->noise_us * tg_max(main_ucpu * 16 / learnt_ucpu, 1) / 16;
	h->noise_main_ncpu = main_ucpu * TG_NCPU_PER_UCPU;
}

/*
 * The span of the mean: as long as the noise demands for the wanted error,
 * v / (error * C)^2, within [mean_min_us, mean_max_us].
 * (error * C) in mcpu: squared <= (8.192e6)^2 = 6.7e13; v * 10^6 < 2^60.
 */
TG_FN tg_u64 tg_estimate_span_us(const struct tg_headroom *h, tg_u64 cap_ucpu)
{
	tg_u64 error_mcpu = tg_max(tg_ppm_of(cap_ucpu, h->cfg.mean_error_ppm) / 1000, 1);
	tg_u64 span = h->noise_us * 1000000 / (error_mcpu * error_mcpu);

	return tg_clamp(span, h->cfg.mean_min_us, h->cfg.mean_max_us);
}

/* The expected error of the mean, sqrt(v / span): v * 10^6 / span is in mcpu^2. */
TG_FN tg_u64 tg_estimate_error_ucpu(const struct tg_headroom *h, tg_u64 cap_ucpu)
{
	tg_u64 span_us = tg_max(tg_min(h->mean_age_us, tg_estimate_span_us(h, cap_ucpu)), 1000);

	return tg_sqrt(h->noise_us * 1000000 / span_us) * 1000;
}

/*
 * How much of main's use is side work's doing.
 *
 * Siblings share a core: beside busy side work main's own work takes longer,
 * so main's use rises with side work's, and a quota that was raised comes back
 * as a rise of main. Taken for a step of main it would be cut, main would
 * speed up, the quota would be raised again: an oscillation made by ourselves.
 *
 * The model is one coefficient: main beside side work s, in a domain of C, uses
 *
 *     main(s) = base * (1 + contend * s / C)
 *
 * It is used to carry a measured use from one amount of side work to another,
 * and never alone: main is measured at the mean of side work, and where side
 * work uses what it was given the carried distance is none. So a wrong
 * coefficient costs a detour on the way (an error of e leaves e * main / C of
 * each change to the next write), but nothing where main and side stand. 0
 * switches all of it off.
 */

/* Two threads of a core give at least one: main takes three times as long at most. */
#define TG_CONTEND_MAX_PPM 2000000U

/* 1 + contend * side / C, times C, in mcpu: < 2^23 * 3 < 2^25, and at least 1. */
TG_FN tg_u64 tg_crowd_mcpu(const struct tg_headroom *h, tg_u64 side_ucpu, tg_u64 cap_ucpu)
{
	tg_u64 more_ucpu = tg_ppm_of(tg_min(side_ucpu, cap_ucpu), h->cfg.contend_ppm);

	return tg_max((cap_ucpu + more_ucpu) / 1000, 1);
}

/*
 * What main uses beside `to_ucpu` of side work, if it uses `rate_ucpu` beside
 * `from_ucpu`: 2^33 * 2^25 < 2^58, and the quotient is at most thrice the rate.
 */
TG_FN tg_u64 tg_beside_ucpu(const struct tg_headroom *h, tg_u64 rate_ucpu, tg_u64 from_ucpu,
			    tg_u64 to_ucpu, tg_u64 cap_ucpu)
{
	return tg_min(rate_ucpu, TG_UCPU_MAX) * tg_crowd_mcpu(h, to_ucpu, cap_ucpu) /
	       tg_crowd_mcpu(h, from_ucpu, cap_ucpu);
}

/* Side work as it was while the mean of main was formed. */
TG_FN tg_u64 tg_beside_now_ucpu(const struct tg_headroom *h)
{
	return h->beside_ncpu / TG_NCPU_PER_UCPU;
}

/* The mean of main as it would be without side work: what drifts and steps are told by. */
TG_FN tg_u64 tg_base_ncpu(const struct tg_headroom *h, tg_u64 cap_ucpu)
{
	tg_u64 main_ucpu = h->main_ncpu / TG_NCPU_PER_UCPU;
	tg_u64 base_ucpu = tg_beside_ucpu(h, main_ucpu, tg_beside_now_ucpu(h), 0, cap_ucpu);

	return h->main_ncpu - tg_sub0(main_ucpu, base_ucpu) * TG_NCPU_PER_UCPU;
}

/*
 * The allowance of which side work and the main beside it fill `room_ucpu`:
 * a + base * (1 + contend * a / C) = room. base * contend < 2^34, in mcpu < 2^25.
 */
TG_FN tg_u64 tg_fill_ucpu(const struct tg_headroom *h, tg_u64 room_ucpu, tg_u64 base_ucpu,
			  tg_u64 cap_ucpu)
{
	tg_u64 cap_mcpu = tg_max(cap_ucpu / 1000, 1);
	tg_u64 more_mcpu = tg_ppm_of(tg_min(base_ucpu, cap_ucpu), h->cfg.contend_ppm) / 1000;

	return tg_sub0(room_ucpu, base_ucpu) * cap_mcpu / (cap_mcpu + more_mcpu);
}

/*
 * How much CPU main uses, and when it has stepped.
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
