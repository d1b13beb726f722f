/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * contend.h - how much of main's use is side work's doing.
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
#ifndef TG_LAW_CONTEND_H
#define TG_LAW_CONTEND_H

#include "noise.h"

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

#endif /* TG_LAW_CONTEND_H */
