/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * latency.h - a hint that moves a task's deadline, never its share.
 *
 * Source: latency hints for the fair class (Vincent Guittot, 2022): a signed
 * value, -20 (first) to 19 (last), becomes an offset in the range of +- one
 * latency period, used where the fair class decides who is first. Here that is
 * the virtual deadline of EEVDF (Stoica and Abdel-Wahab, 1995):
 *
 *     deadline = vruntime + slice / weight + hint / 20 * period
 *
 * A hint decides when CPU time comes and not how much: runqueue.h counts it only for a
 * task that is not ahead of its share by more than a quarter of a slice.
 *
 * On a stock kernel the same hint becomes a slice for sched_setattr (6.12 and
 * later): 1.25 to the hint, as a nice level is to a weight, in the kernel's range;
 * and a task that has a slice of its own, from any program, has asked for that hint.
 *
 * Virtual time wraps, as in the kernel: two times compare by their difference,
 * right while they are less than 2^63 ns apart. Periods up to TG_LATENCY_PERIOD_MAX_NS
 * = 2^40 ns: hint * period < 2^45.
 */
#ifndef TG_LAW_LATENCY_H
#define TG_LAW_LATENCY_H

#include "base.h"

#define TG_LATENCY_FIRST (-20)
#define TG_LATENCY_LAST 19
#define TG_LATENCY_STEPS 20 /* the hint of a whole period */
#define TG_LATENCY_PERIOD_MAX_NS (1ULL << 40)

/* The kernel clamps a task's own slice to this (kernel/sched/syscalls.c, 6.12). */
#define TG_LATENCY_SLICE_MIN_NS 100000ULL
#define TG_LATENCY_SLICE_MAX_NS 100000000ULL

TG_FN int tg_latency_clamp(int hint)
{
	if (hint < TG_LATENCY_FIRST)
		return TG_LATENCY_FIRST;
	return hint > TG_LATENCY_LAST ? TG_LATENCY_LAST : hint;
}

/* hint / 20 of a period, towards zero. */
TG_FN tg_s64 tg_latency_offset_ns(int hint, tg_u64 period_ns)
{
	int h = tg_latency_clamp(hint);
	tg_u64 size = (tg_u64)(h < 0 ? -h : h);
	tg_u64 offset = tg_min(period_ns, TG_LATENCY_PERIOD_MAX_NS) * size / TG_LATENCY_STEPS;

	return h < 0 ? -(tg_s64)offset : (tg_s64)offset;
}

/* slice_v: the slice in virtual time, i.e. divided by the weight. */
TG_FN tg_u64 tg_latency_deadline(tg_u64 vruntime, tg_u64 slice_v, int hint, tg_u64 period_ns)
{
	return vruntime + slice_v + (tg_u64)tg_latency_offset_ns(hint, period_ns);
}

/* Is virtual time a before b? */
TG_FN int tg_latency_before(tg_u64 a, tg_u64 b)
{
	return (tg_s64)(a - b) < 0;
}

/*
 * The slice that stands for a hint on a stock kernel: base * 1.25^hint. Steps
 * round down: e' <= 1.25 e + 3/4, so 19 of them lose at most 206 ns, and 20 down
 * at most 4 ns. base <= 100 ms, times 5 before each clamp < 2^29.
 */
TG_FN tg_u64 tg_latency_slice_ns(int hint, tg_u64 base_ns)
{
	int h = tg_latency_clamp(hint);
	tg_u64 slice = tg_clamp(base_ns, TG_LATENCY_SLICE_MIN_NS, TG_LATENCY_SLICE_MAX_NS);

	for (int step = 0; step < TG_LATENCY_STEPS; step++) {
		if (step < h)
			slice = slice * 5 / 4;
		else if (step < -h)
			slice = slice * 4 / 5;
		slice = tg_clamp(slice, TG_LATENCY_SLICE_MIN_NS, TG_LATENCY_SLICE_MAX_NS);
	}
	return slice;
}

/*
 * And back: the hint whose slice is nearest, by ratio. Beyond the kernel's bounds hints
 * share a slice; there it is the last of them, for a task that asks for the shortest slice
 * there is wants to be first. Slices are below 2^27, so a product of two is below 2^54.
 */
TG_FN int tg_latency_hint(tg_u64 slice_ns, tg_u64 base_ns)
{
	tg_u64 slice = tg_clamp(slice_ns, TG_LATENCY_SLICE_MIN_NS, TG_LATENCY_SLICE_MAX_NS);
	tg_u64 at = tg_clamp(base_ns, TG_LATENCY_SLICE_MIN_NS, TG_LATENCY_SLICE_MAX_NS);
	int longer = slice > at, steps = 0;

	if (slice == at)
		return 0;
	if (slice == TG_LATENCY_SLICE_MIN_NS)
		return TG_LATENCY_FIRST;
	if (slice == TG_LATENCY_SLICE_MAX_NS)
		return TG_LATENCY_LAST;
	for (int step = 0; step < TG_LATENCY_STEPS; step++) {
		tg_u64 next = longer ? at * 5 / 4 : at * 4 / 5;

		next = tg_clamp(next, TG_LATENCY_SLICE_MIN_NS, TG_LATENCY_SLICE_MAX_NS);
		/* Nearer to this one than to the next? */
		if (longer ? slice * slice <= at * next : slice * slice >= at * next)
			break;
		at = next;
		steps++;
	}
	return tg_latency_clamp(longer ? steps : -steps);
}

#endif /* TG_LAW_LATENCY_H */
