/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* delay.c - the extra headroom for run delay against its rules in wide integers, for evidence true
 * and false. */
#include "delay.h"
#include "fuzz.h"

/* A window that can be true, or, when wild, anything. */
static struct tg_delay_evidence evidence(struct fuzz *f, int wild)
{
	struct tg_delay_evidence e = {0};

	if (wild) {
		e.dt_ns = fuzz_any(f);
		e.runs = fuzz_any(f);
		e.late = fuzz_any(f);
		e.side_ns = fuzz_any(f);
		e.capacity_ns = fuzz_any(f);
		e.floor_ppm = (tg_u32)fuzz_any(f);
		e.valid = (tg_u32)fuzz_below(f, 4);
		return e;
	}
	e.dt_ns = fuzz_between(f, 1000000, 200000000);
	e.capacity_ns = (1 + fuzz_below(f, 200)) * e.dt_ns;
	e.side_ns = fuzz_below(f, 4) ? e.capacity_ns / 2 : fuzz_between(f, 0, e.capacity_ns);
	e.runs = fuzz_below(f, 1000);
	e.late = fuzz_below(f, 2) ? fuzz_between(f, 0, e.runs) : 0;
	e.floor_ppm = 10000;
	e.valid = 1;
	return e;
}

static int can_be_true(const struct tg_delay_config *c, const struct tg_delay_evidence *e)
{
	tg_wide cpus_max = TG_CPUS_MAX, capacity = e->capacity_ns;

	return e->valid && e->dt_ns >= 1000 && e->dt_ns / 1000 <= c->dt_max_us &&
	       capacity >= 1000 && capacity < ((tg_wide)e->dt_ns + 1) * cpus_max &&
	       e->late <= e->runs;
}

static void check(const struct tg_delay *old, const struct tg_delay *now,
		  const struct tg_delay_evidence *e, tg_u32 given_ppm)
{
	const struct tg_delay_config *c = &now->cfg;
	tg_wide most = (tg_wide)c->most_ppm * 1000, dt_us = e->dt_ns / 1000;
	tg_wide slope = (tg_wide)c->release_ppm_per_s * dt_us / 1000 + 1;
	tg_wide up = (tg_wide)old->extra_ppb + c->step_ppm * 1000ULL + old->extra_ppb / 2;

	CHECK(now->extra_ppb <= most && given_ppm <= c->most_ppm);
	CHECK((tg_wide)given_ppm * 1000 >= now->extra_ppb || given_ppm == c->most_ppm);
	CHECK(now->score_ppm < c->alarm * TG_PPM);
	if (!can_be_true(c, e)) {
		CHECK(now->extra_ppb == old->extra_ppb && now->score_ppm == 0);
		return;
	}
	if (now->extra_ppb > old->extra_ppb) {
		/* Raised: on late runs, beside side work, not during a rest, once a settle. */
		CHECK(e->late > 0 && old->rest_us == 0);
		CHECK(now->side_ppm >= c->side_ppm || now->extra_ppb <= now->home_ppb);
		CHECK(now->raises == old->raises + 1 && now->extra_ppb <= up);
		CHECK((tg_wide)old->quiet_us + dt_us > c->settle_us);
	} else if (now->vain != old->vain) {
		CHECK(old->extra_ppb == most && now->rest_us == c->rest_us);
		CHECK(now->extra_ppb == now->home_ppb &&
		      (tg_wide)old->top_us + dt_us >= c->vain_us);
	} else {
		/* Given back no faster than its slope, and only what has been quiet. */
		CHECK((tg_wide)old->extra_ppb <= now->extra_ppb + slope);
		if (now->extra_ppb < old->extra_ppb && now->quiet_us)
			CHECK(now->quiet_us >= c->hold_us);
		/* Below home only where main is well. */
		if (now->extra_ppb < old->extra_ppb && now->extra_ppb < now->home_ppb)
			CHECK((tg_wide)now->quiet.late * 2 * TG_PPM <=
			      (tg_wide)now->quiet.runs * now->share_ppm);
	}
	CHECK(now->top.late <= now->top.runs && now->before.late <= now->before.runs);
}

int LLVMFuzzerTestOneInput(const tg_u8 *data, size_t size)
{
	struct fuzz f = {data, size};
	int wild = (int)fuzz_below(&f, 2);
	struct tg_delay_config cfg = {4,     50000, 600000,  300000,   1000000,
				      10000, 20000, 1000000, 10000000, 1000000};
	struct tg_delay d, old;
	tg_u32 share_ppm = 10000;

	if (fuzz_below(&f, 2)) {
		cfg.alarm = (tg_u32)fuzz_any(&f);
		cfg.step_ppm = (tg_u32)fuzz_any(&f);
		cfg.most_ppm = (tg_u32)fuzz_any(&f);
		cfg.settle_us = (tg_u32)fuzz_any(&f);
		cfg.hold_us = (tg_u32)fuzz_any(&f);
		cfg.release_ppm_per_s = (tg_u32)fuzz_any(&f);
		cfg.side_ppm = (tg_u32)fuzz_any(&f);
		cfg.vain_us = (tg_u32)fuzz_any(&f);
		cfg.rest_us = (tg_u32)fuzz_any(&f);
		cfg.dt_max_us = (tg_u32)fuzz_any(&f);
		share_ppm = (tg_u32)fuzz_any(&f);
	}
	tg_delay_init(&d, &cfg, share_ppm, (tg_u32)fuzz_any(&f));
	while (f.left > 0) {
		struct tg_delay_evidence e = evidence(&f, wild);
		tg_u32 given_ppm;

		if (fuzz_below(&f, 32) == 0)
			tg_delay_objective(&d, (tg_u32)fuzz_any(&f));
		old = d;
		given_ppm = tg_delay_step(&d, &e);
		CHECK(given_ppm == tg_delay_extra_ppm(&d));
		check(&old, &d, &e, given_ppm);
	}
	return 0;
}
