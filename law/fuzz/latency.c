/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* latency.c - offsets and slices against exact fractions; the orders are orders. */
#include "latency.h"
#include "fuzz.h"

#define TASKS 4

/* base * 1.25^hint as a fraction num / den, within the kernel's range. */
static void check_slice(int hint, tg_u64 base_ns)
{
	tg_u64 slice = tg_latency_slice_ns(hint, base_ns);
	tg_wide num = (tg_wide)tg_clamp(base_ns, TG_LATENCY_SLICE_MIN_NS, TG_LATENCY_SLICE_MAX_NS);
	tg_wide den = 1;
	int h = tg_latency_clamp(hint);

	CHECK(slice >= TG_LATENCY_SLICE_MIN_NS && slice <= TG_LATENCY_SLICE_MAX_NS);
	for (int i = 0; i < h; i++) {
		num *= 5;
		den *= 4;
	}
	for (int i = 0; i < -h; i++) {
		num *= 4;
		den *= 5;
	}
	/* Clamping on the way only cuts what the end would be clamped to. */
	if (num > TG_LATENCY_SLICE_MAX_NS * den)
		CHECK(slice + 256 >= TG_LATENCY_SLICE_MAX_NS);
	else
		CHECK((tg_wide)slice * den <= num || slice == TG_LATENCY_SLICE_MIN_NS);
	if (num >= TG_LATENCY_SLICE_MIN_NS * den && num <= TG_LATENCY_SLICE_MAX_NS * den)
		CHECK(((tg_wide)slice + 206) * den >= num);
	if (slice > TG_LATENCY_SLICE_MIN_NS && slice < TG_LATENCY_SLICE_MAX_NS)
		CHECK(tg_latency_hint(slice, base_ns) == h);
	if (h < TG_LATENCY_LAST)
		CHECK(tg_latency_slice_ns(hint, base_ns) <= tg_latency_slice_ns(h + 1, base_ns));
}

static void check_offset(int hint, tg_u64 period_ns)
{
	tg_s64 offset = tg_latency_offset_ns(hint, period_ns);
	tg_wide period = (tg_wide)tg_min(period_ns, TG_LATENCY_PERIOD_MAX_NS);

	CHECK(offset == (tg_s64)(period * tg_latency_clamp(hint) / TG_LATENCY_STEPS));
	CHECK(offset >= -period && (offset < period || offset == 0));
	CHECK(tg_latency_deadline(7, 5, hint, period_ns) == 12 + (tg_u64)offset);
}

static void check_orders(const struct tg_latency_rank *r)
{
	for (int a = 0; a < TASKS; a++) {
		CHECK(!tg_latency_first(&r[a], &r[a]));
		for (int b = 0; b < TASKS; b++) {
			if (tg_latency_first(&r[a], &r[b]))
				CHECK(!tg_latency_first(&r[b], &r[a]));
			for (int c = 0; c < TASKS; c++)
				if (tg_latency_first(&r[a], &r[b]) &&
				    tg_latency_first(&r[b], &r[c]))
					CHECK(tg_latency_first(&r[a], &r[c]));
		}
	}
}

int LLVMFuzzerTestOneInput(const tg_u8 *data, size_t size)
{
	struct fuzz f = {data, size};
	struct tg_latency_rank r[TASKS];
	tg_u64 start = fuzz_any(&f);
	tg_u64 period_ns = fuzz_any(&f), base_ns = fuzz_any(&f);

	for (int i = 0; i < TASKS; i++) {
		int hint = fuzz_below(&f, 8) ? (int)fuzz_below(&f, 44) - 22 : (int)fuzz_take(&f, 4);
		/* Virtual times of one queue lie within half of all. */
		tg_u64 vruntime = fuzz_any(&f) >> 2, slice = fuzz_any(&f) >> 3;

		check_slice(hint, base_ns);
		check_offset(hint, period_ns);
		CHECK(tg_latency_hint(slice, base_ns) >= tg_latency_hint(slice / 2, base_ns));
		CHECK(tg_latency_fork(hint, 0) == 0 &&
		      tg_latency_fork(hint, 1) == tg_latency_clamp(hint));
		__builtin_add_overflow(start, vruntime, &vruntime);
		r[i].deadline = vruntime;
		__builtin_add_overflow(vruntime, slice, &r[i].deadline);
		r[i].hint = tg_latency_clamp(hint);
		r[i].eligible = (tg_u32)fuzz_below(&f, 3);
	}
	check_orders(r);
	return 0;
}
