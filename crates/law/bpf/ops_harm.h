/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ops_harm.h - random words for harm.h; ops.h includes it. */
#ifndef TG_LAW_OPS_HARM_H
#define TG_LAW_OPS_HARM_H

#include "harm.h"

struct tg_ops_harm {
	tg_u64 in[8], out[4];
	struct tg_harm_config cfg;
	struct tg_harm_window window;
	struct tg_harm law;
};

struct tg_ops_harm tg_harm_io TG_MAP(harm);

TG_OP(tg_op_harm_init)
{
	struct tg_ops_harm *x = &tg_harm_io;
	tg_u32 bits = x->in[1] & 1 ? 20 : 32;

	x->cfg.aim_ppm = (tg_u32)tg_any(x->in[2], bits);
	x->cfg.z_pct = (tg_u32)tg_any(x->in[3], x->in[1] & 2 ? 9 : 32);
	x->cfg.block_us = (tg_u32)tg_any(x->in[4], bits);
	x->cfg.guard_us = (tg_u32)tg_any(x->in[5], bits);
	x->cfg.pairs_min = (tg_u32)tg_any(x->in[6], x->in[1] & 4 ? 3 : 32);
	x->cfg.turns_min = (tg_u32)tg_any(x->in[7], 10);
	x->cfg.half_us = (tg_u32)tg_any(x->in[2] >> 3, 32);
	x->cfg.learn_us = (tg_u32)tg_any(x->in[3] >> 3, 28);
	x->cfg.probe_us = (tg_u32)tg_any(x->in[4] >> 3, bits);
	x->cfg.suspect_pct = (tg_u32)tg_any(x->in[5] >> 3, 10);
	x->cfg.retry_us = (tg_u32)tg_any(x->in[6] >> 3, 28);
	x->cfg.window_max_us = x->in[1] & 8 ? 10000000 : (tg_u32)tg_any(x->in[7] >> 3, 32);
	x->cfg.tail_ppm = (tg_u32)tg_any(x->in[5] >> 5, 21);
	tg_harm_init(&x->law, &x->cfg, x->in[1]);
	return 0;
}

/* Windows of a fifth of a second that may be true, more often than not; an effect half of the time. */
TG_OP(tg_op_harm_step)
{
	struct tg_ops_harm *x = &tg_harm_io;
	struct tg_harm_window *w = &x->window;
	int wild = (x->in[0] >> 8 & 63) == 0;

	w->length_ns = wild ? tg_any(x->in[1], 36) : 200000000 + (x->in[1] & 0xfffff);
	w->turns = tg_any(x->in[2], 12);
	w->late = tg_any(x->in[2] >> 7, 11);
	w->delay_ns = wild ? tg_any(x->in[3], 52) : x->in[3] & 0x3ffffff;
	w->cpu_ns = wild ? tg_any(x->in[4], 48) : 100000000 + (x->in[4] & 0x3ffffff);
	w->arm = (x->in[0] >> 14 & 63) == 0 ? (tg_u32)tg_any(x->in[6], 3) : x->law.answer.arm;
	w->valid = (x->in[0] >> 20 & 63) != 0;
	if (w->arm == TG_HARM_HIGH && (x->law.random & 1))
		w->cpu_ns *= 2;
	x->out[0] = tg_harm_step(&x->law, w);
	return 0;
}

TG_OP(tg_op_harm)
{
	struct tg_ops_harm *x = &tg_harm_io;

	/* Only what was set up may be stepped: its tuning has no 0 to divide by. */
	if ((x->in[0] & 255) == 0 || x->law.random == 0)
		tg_op_harm_init();
	if ((x->in[0] & 255) == 1)
		tg_harm_restart(&x->law);
	return tg_op_harm_step();
}

#endif /* TG_LAW_OPS_HARM_H */
