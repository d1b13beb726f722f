/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* burst.c - adaptive burst against its rules in wide integers, for evidence true and false. */
#include "burst.h"
#include "fuzz.h"

/* A window that can be true, or, when wild, anything. */
static struct tg_burst_evidence evidence(struct fuzz *f, int wild)
{
	struct tg_burst_evidence e = {0};

	if (wild) {
		e.dt_ns = fuzz_any(f);
		e.quota_ns = fuzz_any(f);
		e.period_ns = fuzz_any(f);
		e.used_ns = fuzz_any(f);
		e.room_ns = fuzz_any(f);
		e.capacity_ns = fuzz_any(f);
		e.idle_ns = fuzz_any(f);
		e.throttled = (tg_u32)fuzz_any(f);
		e.valid = (tg_u32)fuzz_below(f, 4);
		return e;
	}
	e.dt_ns = fuzz_between(f, 1000000, 1000000000);
	e.period_ns = fuzz_between(f, 1000000, 1000000000);
	e.quota_ns = fuzz_between(f, 1000000, 4 * e.period_ns);
	e.capacity_ns = (1 + fuzz_below(f, 200)) * e.dt_ns;
	e.used_ns = fuzz_between(f, 0, e.capacity_ns);
	e.idle_ns = fuzz_between(f, 0, e.capacity_ns - e.used_ns);
	e.room_ns = fuzz_below(f, 4) ? TG_BURST_NO_PARENT : fuzz_any(f);
	e.throttled = (tg_u32)fuzz_below(f, 3);
	e.valid = 1;
	return e;
}

static int can_be_true(const struct tg_burst_evidence *e)
{
	tg_wide cpus_max = TG_CPUS_MAX, capacity = e->capacity_ns;

	return e->valid && e->dt_ns >= 1000 && e->dt_ns <= TG_DT_MAX_NS && e->period_ns >= 1000 &&
	       e->period_ns <= TG_BURST_PERIOD_MAX_NS && e->quota_ns >= 1000 &&
	       e->quota_ns < ((tg_wide)e->period_ns + 1) * cpus_max && capacity >= 1000 &&
	       capacity < ((tg_wide)e->dt_ns + 1) * cpus_max &&
	       (tg_wide)e->idle_ns <= capacity + capacity / 64 + 100000 &&
	       (tg_wide)e->used_ns / 2 <= capacity;
}

static void check(const struct tg_burst *old, const struct tg_burst *now,
		  const struct tg_burst_evidence *e)
{
	tg_wide bound = (tg_wide)tg_min(e->quota_ns, e->room_ns);
	tg_wide idle = (tg_wide)tg_min(e->idle_ns, e->capacity_ns) / 1000 * 1000000;
	tg_wide least = (tg_wide)e->capacity_ns / 1000 * old->cfg.short_ppm;
	int starved = idle < least;

	if (!can_be_true(e)) {
		CHECK(now->burst_ns == 0 && now->age_us == 0 && now->calm_us == 0);
		return;
	}
	CHECK(now->burst_ns <= bound);
	/* Shortage shrinks it, and nothing but throttling in calm grows it. */
	if (starved)
		CHECK((now->burst_ns < old->burst_ns || now->burst_ns == 0) && now->calm_us == 0);
	else if (!e->throttled || old->calm_us < old->cfg.calm_us)
		CHECK(now->burst_ns == (tg_u64)tg_min(old->burst_ns, (tg_u64)bound));
	else
		CHECK(now->burst_ns == (tg_u64)bound ||
		      now->burst_ns == (tg_u64)tg_min(old->burst_ns, (tg_u64)bound));
	/* A group that always used more than its quota gets none. */
	CHECK(now->use_ppb <= 2 * TG_BURST_ALL_PPB);
	if (now->use_ppb >= TG_BURST_ALL_PPB)
		CHECK(now->burst_ns <= old->burst_ns);
	CHECK(now->age_us <= now->cfg.mean_us && now->calm_us <= now->cfg.calm_us);
}

static void check_room(struct fuzz *f)
{
	tg_u64 quota = fuzz_any(f) >> 1, period = fuzz_any(f), above = fuzz_any(f);
	tg_u64 above_period = fuzz_any(f), above_burst = fuzz_any(f);
	tg_u64 room = tg_burst_room_ns(quota, period, above, above_period, above_burst);
	tg_wide has =
	    (tg_wide)tg_min(above, TG_BURST_QUOTA_MAX_NS) * tg_min(period, TG_BURST_PERIOD_MAX_NS);
	tg_wide per = (tg_wide)tg_min(above_period, TG_BURST_PERIOD_MAX_NS) / 1000 * 1000;

	if (per == 0) {
		CHECK(room == 0);
		return;
	}
	CHECK((tg_wide)room + quota <= has / per + tg_min(above_burst, TG_BURST_QUOTA_MAX_NS) ||
	      room == 0);
}

int LLVMFuzzerTestOneInput(const tg_u8 *data, size_t size)
{
	struct fuzz f = {data, size};
	int wild = (int)fuzz_below(&f, 2);
	struct tg_burst_config cfg = {1000000, 1000000, 20000, 1000000};
	struct tg_burst b, old;

	if (fuzz_below(&f, 2)) {
		cfg.calm_us = (tg_u32)fuzz_any(&f);
		cfg.shrink_ppm_per_s = (tg_u32)fuzz_any(&f);
		cfg.short_ppm = (tg_u32)fuzz_any(&f);
		cfg.mean_us = (tg_u32)fuzz_any(&f);
	}
	check_room(&f);
	tg_burst_init(&b, &cfg);
	while (f.left > 0) {
		struct tg_burst_evidence e = evidence(&f, wild);

		old = b;
		CHECK(tg_burst_auto_step(&b, &e) == b.burst_ns);
		check(&old, &b, &e);
	}
	return 0;
}
