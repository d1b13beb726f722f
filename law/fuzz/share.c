/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* share.c - every promise of share.h, in wide integers, for any targets. */
#include "share.h"
#include "fuzz.h"

#define TARGETS_MAX 12

static tg_u64 demand_of(const struct tg_demand *d)
{
	return tg_max(tg_min(d->demand_ucpu, TG_UCPU_MAX), tg_min(d->floor_ucpu, TG_UCPU_MAX));
}

static tg_u64 floor_of(const struct tg_demand *d)
{
	return tg_min(d->floor_ucpu, TG_UCPU_MAX);
}

/* Two that only the level holds stand as their weights do, to one ucpu each. */
static void check_fairness(const struct tg_demand *d, const tg_u64 *out, tg_u32 n)
{
	for (tg_u32 a = 0; a < n; a++) {
		for (tg_u32 b = 0; b < n; b++) {
			tg_wide wa = (tg_wide)tg_clamp(d[a].weight, 1, TG_WEIGHT_MAX);
			tg_wide wb = (tg_wide)tg_clamp(d[b].weight, 1, TG_WEIGHT_MAX);

			if (out[a] <= floor_of(&d[a]) || out[b] >= demand_of(&d[b]))
				continue;
			/* a has more than its floor, b could take more: a is not ahead. */
			CHECK((tg_wide)out[a] * wb <= (tg_wide)out[b] * wa + 2 * (wa + wb));
		}
	}
}

static void check(tg_u64 allowance, const struct tg_demand *d, const tg_u64 *out, tg_u32 n)
{
	tg_u64 sum = 0, floors = 0, demands = 0;

	for (tg_u32 i = 0; i < n; i++) {
		sum += out[i];
		floors += floor_of(&d[i]);
		demands += demand_of(&d[i]);
		CHECK(out[i] >= floor_of(&d[i]));
	}
	if (n > 0)
		CHECK(sum == tg_max(tg_min(allowance, TG_UCPU_MAX), floors));
	if (demands >= sum)
		for (tg_u32 i = 0; i < n; i++)
			CHECK(out[i] <= demand_of(&d[i]));
	else
		for (tg_u32 i = 0; i < n; i++)
			CHECK(out[i] >= demand_of(&d[i]));
	if (demands >= sum)
		check_fairness(d, out, n);
}

int LLVMFuzzerTestOneInput(const tg_u8 *data, size_t size)
{
	struct fuzz f = {data, size};
	struct tg_demand d[TARGETS_MAX];
	tg_u64 out[TARGETS_MAX + 1], more[TARGETS_MAX + 1], allowance, by;
	tg_u32 n = (tg_u32)fuzz_below(&f, TARGETS_MAX + 1);

	allowance = fuzz_any(&f);
	by = fuzz_any(&f);
	for (tg_u32 i = 0; i < n; i++) {
		d[i].weight = fuzz_any(&f);
		d[i].demand_ucpu = fuzz_any(&f);
		d[i].floor_ucpu = fuzz_below(&f, 3) ? 0 : fuzz_any(&f);
	}
	out[n] = more[n] = 42;
	tg_share(allowance, d, n, out);
	check(allowance, d, out, n);
	allowance = allowance > ~(tg_u64)0 - by ? ~(tg_u64)0 : allowance + by;
	tg_share(allowance, d, n, more);
	check(allowance, d, more, n);
	for (tg_u32 i = 0; i < n; i++)
		CHECK(more[i] + 1 >= out[i]);
	CHECK(out[n] == 42 && more[n] == 42);
	return 0;
}
