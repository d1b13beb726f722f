/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * headroom.c - any samples, true and false, under any tuning: the bounds hold in
 * every state, what cannot be true drops what was learnt, rises keep their slope;
 * and after whatever came, a main that stands still gets what the formula says.
 */
#include "headroom.h"
#include "fuzz.h"

#define STEPS_MAX 24

/* HeadroomConfig::FAST of crates/law. */
static const struct tg_headroom_config fast = {
    100000, 1000000, 10000, 250000, 100000, 2000000, 50000, 3000000, 30000,  150000, 350000, 12,
    2000,   2900,    4500,  25000,  500000, 20000,   50000, 500000,  250000, 0,	     0,
};

struct session {
	struct tg_headroom h;
	struct tg_headroom_decision last;
	tg_u32 headroom_ppm, tolerance_ppm;
	int tuned; /* the tuning is not ours */
};

/* The rule of what can be true, as the header states it. */
static int can_be_true(const struct tg_headroom_config *cfg, const struct tg_headroom_sample *s)
{
	tg_wide dt = s->dt_ns, capacity = s->capacity_ns, slack;

	if (!s->valid || dt < 1000 || dt > TG_DT_MAX_NS || dt / 1000 > cfg->dt_max_us)
		return 0;
	if (capacity < 1000 || capacity / (tg_wide)TG_CPUS_MAX > dt)
		return 0;
	slack = (tg_wide)tg_min(s->granularity_ns, 1000000000ULL) * (capacity / dt + 1) +
		capacity / 64 + 100000;
	return s->busy_ns <= capacity + slack && s->side_ns <= s->busy_ns + slack;
}

static tg_u64 ppm_of(tg_u64 ucpu, tg_u32 ppm)
{
	return (tg_u64)(((tg_wide)ucpu * tg_min(ppm, TG_PPM) + TG_PPM / 2) / TG_PPM);
}

static void step(struct session *s, const struct tg_headroom_sample *sample)
{
	struct tg_headroom_decision d, again, last = s->last;
	struct tg_headroom fresh;
	tg_u64 put_aside = s->h.probation.open_us ? s->h.probation.out_ucpu : 0;
	tg_u64 before = tg_max(s->last.allowance_ucpu, put_aside), rise;

	tg_headroom_step(&s->h, sample, &d);
	s->last = d;
	CHECK(d.floor_ucpu == ppm_of(d.capacity_ucpu, s->tolerance_ppm));
	CHECK(d.asked_ucpu == ppm_of(d.capacity_ucpu, s->headroom_ppm));
	CHECK(d.allowance_ucpu >= d.floor_ucpu && d.allowance_ucpu <= d.capacity_ucpu);
	CHECK(d.capacity_ucpu <= TG_UCPU_MAX && d.main_est_ucpu <= TG_UCPU_MAX);
	CHECK(d.reason <= TG_REASON_SKIP);
	CHECK((d.reason == TG_REASON_STALE || d.reason == TG_REASON_SKIP) ==
	      !can_be_true(&s->h.cfg, sample));
	/* Left out: the last decision stands, and not for long. */
	if (d.reason == TG_REASON_SKIP) {
		CHECK(s->h.unseen_us < TG_FRESH_US);
		CHECK(d.allowance_ucpu ==
		      tg_clamp(last.allowance_ucpu, d.floor_ucpu, d.capacity_ucpu));
	}
	if (d.reason == TG_REASON_STALE || d.reason == TG_REASON_FLOOR ||
	    d.reason == TG_REASON_WARMUP)
		CHECK(d.allowance_ucpu == d.floor_ucpu);
	CHECK((tg_wide)tg_abs(d.trim_ucpu) <=
	      (tg_wide)d.capacity_ucpu * s->h.cfg.trim_max_ppm / TG_PPM + 1);
	/* Rises keep the slope (from the floor, or from before a cut that is taken back). */
	rise = (tg_u64)((tg_wide)d.capacity_ucpu * s->h.cfg.raise_ppm_per_s / TG_PPM *
			tg_min(sample->dt_ns, 100000000) / 1000000000);
	if (d.reason != TG_REASON_STALE)
		CHECK(d.allowance_ucpu <= tg_max(before, d.floor_ucpu) + rise + 1);
	/* After TG_FRESH_US without a usable sample nothing is left: the next step is as after a
	 * fresh start. */
	if (d.reason == TG_REASON_STALE && !s->tuned) {
		struct tg_headroom_sample good = {10000000, 20000000, 8000000, 1000000, 0, 1, 0};
		struct tg_headroom after = s->h;

		tg_headroom_init(&fresh, &s->h.cfg, s->headroom_ppm, s->tolerance_ppm);
		tg_headroom_step(&fresh, &good, &again);
		tg_headroom_step(&after, &good, &d);
		CHECK(d.allowance_ucpu == again.allowance_ucpu && d.reason == again.reason);
		CHECK(d.main_est_ucpu == again.main_est_ucpu && d.trim_ucpu == again.trim_ucpu);
	}
}

static struct tg_headroom_sample sample_of(struct fuzz *f, tg_u64 cpus, tg_u64 dt_ns)
{
	struct tg_headroom_sample s = {0};
	tg_u64 kind = fuzz_below(f, 16);

	s.valid = 1;
	if (kind == 0) {
		s.dt_ns = fuzz_any(f);
		s.capacity_ns = fuzz_any(f);
		s.busy_ns = fuzz_any(f);
		s.side_ns = fuzz_any(f);
		s.granularity_ns = fuzz_any(f);
		s.valid = (tg_u32)fuzz_below(f, 4);
		return s;
	}
	s.dt_ns = kind < 4 ? fuzz_between(f, 1000, 2 * dt_ns) : dt_ns;
	s.capacity_ns = s.dt_ns * cpus;
	s.busy_ns = fuzz_between(f, 0, s.capacity_ns);
	s.side_ns = kind < 8 ? fuzz_between(f, 0, s.busy_ns) : s.busy_ns * fuzz_below(f, 5) / 4;
	s.granularity_ns = kind < 6 ? 4000000 : 0;
	return s;
}

/*
 * Six seconds of a main that uses an even part of the machine, side work using
 * all that it may: the allowance is the formula's, but for the trim, which may
 * have up to its bound from before, and one percent.
 */
static void check_settles(struct session *s, tg_u64 cpus, tg_u64 main_ppm)
{
	tg_u64 dt = 200000000, capacity = dt * cpus, most;
	tg_u64 cap_ucpu = cpus * TG_UCPU, main_ucpu = cap_ucpu * main_ppm / TG_PPM;
	tg_u64 due = tg_max(ppm_of(cap_ucpu, s->tolerance_ppm),
			    tg_sub0(cap_ucpu, ppm_of(cap_ucpu, s->headroom_ppm) + main_ucpu));

	for (int i = 0; i < 30; i++) {
		tg_u64 main_ns = capacity / TG_PPM * main_ppm;
		tg_u64 side = tg_min(tg_time_ns(s->last.allowance_ucpu, dt), capacity - main_ns);
		struct tg_headroom_sample sample = {dt, capacity, main_ns + side, side, 0, 1, 0};

		step(s, &sample);
	}
	most = cap_ucpu / 100 + tg_abs(s->last.trim_ucpu);
	CHECK(s->last.allowance_ucpu <= due + most && s->last.allowance_ucpu + most >= due);
}

int LLVMFuzzerTestOneInput(const tg_u8 *data, size_t size)
{
	struct fuzz f = {data, size};
	struct session s = {0};
	struct tg_headroom_config cfg = fast;
	tg_u64 cpus = fuzz_below(&f, 8) ? 1 + fuzz_below(&f, 16) : 1 + fuzz_take(&f, 2) % 8192;
	tg_u64 dt_ns = fuzz_below(&f, 2) ? 5000000 : 50000000;
	tg_u64 main_ppm = fuzz_between(&f, 0, TG_PPM);
	int settles = fuzz_below(&f, 32) == 0;

	s.tuned = fuzz_below(&f, 4) == 0;
	if (s.tuned)
		for (size_t i = 0; i < sizeof(cfg) / sizeof(tg_u32); i++)
			((tg_u32 *)&cfg)[i] = (tg_u32)fuzz_any(&f);
	else if (fuzz_below(&f, 2))
		cfg.contend_ppm = (tg_u32)fuzz_between(&f, 0, TG_CONTEND_MAX_PPM);
	else /* As under ext, now and then. */
		cfg.displaced = (tg_u32)fuzz_below(&f, 2);
	s.headroom_ppm = (tg_u32)fuzz_between(&f, 0, TG_PPM + TG_PPM / 8);
	s.tolerance_ppm = fuzz_below(&f, 2) ? 10000 : (tg_u32)fuzz_any(&f);
	tg_headroom_init(&s.h, &cfg, s.headroom_ppm, s.tolerance_ppm);
	for (int i = 0; i < STEPS_MAX && f.left > 0; i++) {
		struct tg_headroom_sample sample = sample_of(&f, cpus, dt_ns);

		if (fuzz_below(&f, 16) == 0) {
			s.headroom_ppm = (tg_u32)fuzz_between(&f, 0, TG_PPM);
			tg_headroom_terms(&s.h, s.headroom_ppm, s.tolerance_ppm);
		}
		step(&s, &sample);
	}
	/* Long, so not of every input. */
	if (settles && !s.tuned)
		check_settles(&s, cpus, main_ppm);
	return 0;
}
