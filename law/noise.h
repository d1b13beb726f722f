/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * noise.h - how much main varies by chance, and how long a mean of it must be.
 *
 * The noise is a variance rate v: main's use over a time T varies by sqrt(v * T)
 * about what its level makes due, so a mean over T errs by sqrt(v / T).
 */
#ifndef TG_LAW_NOISE_H
#define TG_LAW_NOISE_H

#include "headroom_types.h"

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
 * and so never divides by zero; the last line mends both.
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

#endif /* TG_LAW_NOISE_H */
