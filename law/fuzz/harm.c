/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* harm.c - the measurement of harm for windows true and false: its bounds, its sums, its levels. */
#include "harm.h"
#include "fuzz.h"

/* A window that can be true, or, when wild, anything. */
static struct tg_harm_window window(struct fuzz *f, const struct tg_harm *h, int wild)
{
	struct tg_harm_window w = {0};
	tg_u64 odds = fuzz_below(f, 64);

	if (wild) {
		w.length_ns = fuzz_any(f);
		w.turns = fuzz_any(f);
		w.delay_ns = fuzz_any(f);
		w.cpu_ns = fuzz_any(f);
		w.late = fuzz_any(f);
		w.arm = odds ? h->answer.arm : (tg_u32)fuzz_any(f);
		w.valid = (tg_u32)fuzz_below(f, 4);
		return w;
	}
	w.length_ns = 250000000;
	w.turns = odds;
	w.late = odds / 8;
	w.cpu_ns = (1 + fuzz_below(f, 200)) * 1000000;
	w.delay_ns = odds & 1 ? w.cpu_ns / 4 : 0;
	w.arm = odds == 63 ? !h->answer.arm : h->answer.arm;
	w.valid = odds != 62;
	/* Now and then an effect. */
	if (w.arm == TG_HARM_HIGH && f->left > 100)
		w.cpu_ns *= 2;
	return w;
}

static void check_sums(const struct tg_harm_sums *s)
{
	tg_wide diff = s->diff < 0 ? -(tg_wide)s->diff : s->diff;

	CHECK(diff <= s->sum && s->sum < 1ULL << 30);
	CHECK(s->diff_square < 1ULL << 48 && s->level < 1ULL << 39 && s->noise < 1ULL << 39);
}

/* By the estimate at least: a tail that cannot be told holds nothing up. */
static int tail_is_within(const struct tg_harm *h)
{
	return !h->cfg.tail_ppm || h->answer.tail_ppm <= (tg_s32)h->cfg.tail_ppm;
}

static void check(const struct tg_harm *old, const struct tg_harm *h)
{
	const struct tg_harm_answer *a = &h->answer;
	tg_wide aim = (tg_wide)TG_PPM + h->cfg.aim_ppm;
	tg_s32 most = (tg_s32)h->cfg.tail_ppm;
	tg_s32 half = (tg_s32)(h->cfg.tail_ppm / 2);

	CHECK(a->lower_ppm <= a->ratio_ppm && a->ratio_ppm <= a->upper_ppm);
	CHECK(a->tail_lower_ppm <= a->tail_ppm && a->tail_ppm <= a->tail_upper_ppm);
	CHECK(a->verdict != TG_HARM_FOUND || a->lower_ppm > TG_PPM || a->tail_lower_ppm > half);
	CHECK(a->verdict != TG_HARM_NONE || (a->lower_ppm <= TG_PPM && a->upper_ppm < aim));
	CHECK(a->verdict != TG_HARM_NONE || tail_is_within(h));
	CHECK(a->wish != TG_HARM_RAISE || a->lower_ppm > aim || a->tail_lower_ppm > most);
	CHECK(a->wish != TG_HARM_LOWER || tail_is_within(h));
	CHECK(a->wish != TG_HARM_LOWER || a->upper_ppm < aim);
	CHECK((a->verdict == TG_HARM_UNKNOWN) == (a->reason != TG_HARM_KNOWN));
	CHECK(a->arm <= TG_HARM_HIGH && h->place <= 2 && h->random != 0);
	for (int i = 0; i < TG_HARM_SIGNALS; i++)
		check_sums(&h->sums[i]);
	/* The level changes between blocks only; outside of pairs it is the held one. */
	if (a->arm != old->answer.arm)
		CHECK(h->age_us == 0);
	if (h->place == 0)
		CHECK(a->arm == h->held && h->phase == TG_HARM_PROBE);
	if (h->place == 0 && old->place != 0)
		CHECK(h->gap_us >= h->cfg.probe_us / 2 && h->gap_us <= 2ULL * h->cfg.probe_us);
	/* What is known changes by learning only. */
	if (old->phase == TG_HARM_PROBE && h->learns == old->learns)
		CHECK(a->ratio_ppm == old->answer.ratio_ppm && a->verdict == old->answer.verdict);
}

int LLVMFuzzerTestOneInput(const tg_u8 *data, size_t size)
{
	struct fuzz f = {data, size};
	int wild = (int)fuzz_below(&f, 2);
	struct tg_harm_config cfg = {50000,    280,	500000, 50000,	  4,	   10,	60000000,
				     60000000, 5000000, 300,	60000000, 2000000, 7500};
	struct tg_harm h, old;

	if (fuzz_below(&f, 2)) {
		cfg.aim_ppm = (tg_u32)fuzz_any(&f);
		cfg.z_pct = (tg_u32)fuzz_any(&f);
		cfg.block_us = (tg_u32)fuzz_any(&f);
		cfg.guard_us = (tg_u32)fuzz_any(&f);
		cfg.pairs_min = (tg_u32)fuzz_any(&f);
		cfg.turns_min = (tg_u32)fuzz_any(&f);
		cfg.half_us = (tg_u32)fuzz_any(&f);
		cfg.learn_us = (tg_u32)fuzz_any(&f);
		cfg.probe_us = (tg_u32)fuzz_any(&f);
		cfg.suspect_pct = (tg_u32)fuzz_any(&f);
		cfg.retry_us = (tg_u32)fuzz_any(&f);
		cfg.window_max_us = (tg_u32)fuzz_any(&f);
		cfg.tail_ppm = (tg_u32)fuzz_any(&f);
	}
	tg_harm_init(&h, &cfg, fuzz_any(&f));
	while (f.left > 0) {
		struct tg_harm_window w = window(&f, &h, wild);

		if (fuzz_below(&f, 128) == 127)
			tg_harm_restart(&h);
		old = h;
		CHECK(tg_harm_step(&h, &w) == h.answer.arm);
		check(&old, &h);
	}
	return 0;
}
