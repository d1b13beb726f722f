/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ops.h - the law driven by random words, the same text for both compilers.
 * crates/law/tests/bpf_target.rs runs it natively and in the kernel and demands the
 * same bytes.
 *
 * For each header with state one struct: words that come in, results, and the state that the
 * law keeps from call to call; and one TG_OP for each thing that can be done.
 * Words become arguments of every magnitude. What the headers demand of a caller
 * (indexes in range, locks) is kept, nothing else is. All bytes are compared, so
 * there is no padding in the structs.
 */
#ifndef TG_LAW_OPS_H
#define TG_LAW_OPS_H

#include "cap.h"
#include "headroom.h"

/*
 * In BPF each is a function that the verifier checks by itself, whatever comes in,
 * so that their paths do not multiply.
 */
#define TG_OP(name)                                                                                \
	int name(void);                                                                            \
	__attribute__((noinline)) int name(void)

/* A number of up to `bits` (1..58) bits; each length is about as likely. */
TG_FN tg_u64 tg_any(tg_u64 word, tg_u32 bits)
{
	return (word & ((1ULL << bits) - 1)) >> ((word >> 58) % bits);
}

/* A step of a clock: mostly forth, at times back, at times far. */
TG_FN tg_u64 tg_tick(tg_u64 now_ns, tg_u64 word)
{
	if ((word & 31) == 0)
		return now_ns - tg_any(word >> 5, 24);
	return now_ns + tg_any(word >> 5, (word & 31) == 1 ? 50 : 28);
}

#define TG_OPS_CAPS 4

struct tg_ops_cap {
	tg_u64 in[8], out[4];
	tg_u64 now_ns;
	struct tg_cap_terms terms;
	struct tg_cap_family family;
	struct tg_cap cap[TG_OPS_CAPS];
	struct tg_cap_loan loan[TG_OPS_CAPS];
};

struct tg_ops_headroom {
	tg_u64 in[8], out[4];
	struct tg_headroom_config cfg;
	struct tg_headroom_sample sample;
	struct tg_headroom_decision decision;
	struct tg_headroom law;
};

/* In BPF each is a map of its own, which the test maps into its memory. */
#ifdef __bpf__
#define TG_MAP(name) __attribute__((section(".bss." #name)))
#else
#define TG_MAP(name)
#endif

struct tg_ops_cap tg_cap_io TG_MAP(cap);
struct tg_ops_headroom tg_headroom_io TG_MAP(headroom);

/* ---- cap.h ---- */

TG_FN struct tg_cap *tg_ops_this_cap(struct tg_ops_cap *x)
{
	return &x->cap[x->in[0] >> 8 & (TG_OPS_CAPS - 1)];
}

TG_FN struct tg_cap_loan *tg_ops_this_loan(struct tg_ops_cap *x)
{
	return &x->loan[x->in[0] >> 8 & (TG_OPS_CAPS - 1)];
}

TG_OP(tg_op_cap_set)
{
	struct tg_ops_cap *x = &tg_cap_io;
	tg_u64 w = x->in[2];

	x->terms.hard_ppt = w & 7 ? (tg_u32)tg_any(x->in[3], w & 8 ? 11 : 32) : TG_CAP_NONE;
	x->terms.soft_ppt = w & 48 ? (tg_u32)tg_any(x->in[4], w & 8 ? 11 : 32) : TG_CAP_NONE;
	x->terms.scope = (tg_u32)(w >> 6 & 3);
	x->terms.granularity_ns = tg_any(x->in[5], w & 1024 ? 58 : 24);
	tg_cap_set(tg_ops_this_cap(x), &x->terms, x->now_ns);
	return 0;
}

TG_OP(tg_op_cap_charge)
{
	struct tg_ops_cap *x = &tg_cap_io;
	tg_u64 used_ns = x->in[2] & 1 ? tg_any(x->in[3], 26) : tg_any(x->in[3], 58) << 6;

	tg_cap_charge(tg_ops_this_cap(x), tg_ops_this_loan(x), used_ns, x->now_ns,
		      x->in[2] >> 1 & 1, (tg_u32)(x->in[2] >> 2 & 15 & x->in[2] >> 6));
	return 0;
}

TG_OP(tg_op_cap_state)
{
	struct tg_ops_cap *x = &tg_cap_io;
	struct tg_cap *c = tg_ops_this_cap(x);

	x->out[0] = tg_cap_state(c, &x->family, x->now_ns, (tg_u32)(x->in[2] & x->in[2] >> 8));
	x->out[1] = tg_cap_ready_at_ns(c, &x->family, tg_any(x->in[3], 40));
	x->out[2] = tg_cap_lend(c, tg_ops_this_loan(x), x->now_ns, (int)(x->in[4] & 1),
				tg_any(x->in[5], 20), tg_any(x->in[6], 40));
	return 0;
}

TG_OP(tg_op_cap_fork)
{
	struct tg_ops_cap *x = &tg_cap_io;
	struct tg_cap child = {0};

	x->out[3] = (tg_u64)tg_cap_fork(tg_ops_this_cap(x), &child, x->now_ns, (tg_u32)x->in[2]);
	if (x->out[3]) {
		x->cap[x->in[3] & (TG_OPS_CAPS - 1)] = child;
		x->loan[x->in[3] & (TG_OPS_CAPS - 1)] = (struct tg_cap_loan){0};
	}
	return 0;
}

TG_OP(tg_op_cap_leave)
{
	struct tg_ops_cap *x = &tg_cap_io;

	tg_cap_return(tg_ops_this_cap(x), tg_ops_this_loan(x));
	tg_cap_leave(tg_ops_this_cap(x), &x->family, x->now_ns);
	return 0;
}

TG_OP(tg_op_cap)
{
	struct tg_ops_cap *x = &tg_cap_io;

	x->now_ns = tg_tick(x->now_ns, x->in[1]);
	switch (x->in[0] & 15) {
	case 0:
		return tg_op_cap_set();
	case 1:
		return tg_op_cap_fork();
	case 2:
		return tg_op_cap_leave();
	case 3 ... 8:
		return tg_op_cap_charge();
	default:
		return tg_op_cap_state();
	}
}

/* ---- headroom.h ---- */

/* Tuning of any kind; the defaults come from the test, in cfg. */
TG_OP(tg_op_headroom_init)
{
	struct tg_ops_headroom *x = &tg_headroom_io;

	if (x->in[1] & 1) {
		x->cfg.mean_min_us = (tg_u32)tg_any(x->in[2], 32);
		x->cfg.mean_max_us = (tg_u32)tg_any(x->in[3], 32);
		x->cfg.alarm = (tg_u32)tg_any(x->in[4], 10);
		x->cfg.fine_threshold_us = (tg_u32)tg_any(x->in[5], 32);
		x->cfg.proof_us = (tg_u32)tg_any(x->in[6], 32);
		x->cfg.calm_us = (tg_u32)tg_any(x->in[7], 24);
		x->cfg.contend_ppm = (tg_u32)tg_any(x->in[7] >> 24, 21);
		x->cfg.displaced = x->in[7] >> 63;
	}
	tg_headroom_init(&x->law, &x->cfg, (tg_u32)tg_any(x->in[2] >> 3, 21),
			 (tg_u32)tg_any(x->in[3] >> 3, 18));
	return 0;
}

TG_OP(tg_op_headroom_terms)
{
	struct tg_ops_headroom *x = &tg_headroom_io;

	tg_headroom_terms(&x->law, (tg_u32)tg_any(x->in[2], 21), (tg_u32)tg_any(x->in[3], 18));
	return 0;
}

/*
 * Windows of a machine that keeps its size for a while (in[7] changes seldom):
 * main at a level that steps now and then, with noise; or anything at all.
 */
TG_OP(tg_op_headroom_sample)
{
	struct tg_ops_headroom *x = &tg_headroom_io;
	struct tg_headroom_sample *s = &x->sample;
	tg_u64 cpus = 1 + (x->in[7] & 255), level = x->in[7] >> 8 & 1023;
	tg_u64 noise = x->in[2] % (1 + (x->in[7] >> 18 & 127)), main_ns;

	s->granularity_ns = x->in[7] >> 30 & 1 ? 4000000 : 0;
	s->valid = 1;
	if ((x->in[0] >> 8 & 127) == 0) {
		s->dt_ns = tg_any(x->in[1], 36);
		s->capacity_ns = tg_any(x->in[2], 48);
		s->busy_ns = tg_any(x->in[3], 48);
		s->side_ns = tg_any(x->in[4], 48);
		s->granularity_ns = tg_any(x->in[5], 32);
		s->valid = (tg_u32)(x->in[6] & 1);
		return 0;
	}
	s->dt_ns = (x->in[7] >> 31 & 1 ? 50000000 : 5000000) + (x->in[1] & 0xfffff);
	s->capacity_ns = s->dt_ns * cpus;
	main_ns = s->capacity_ns / 1280 * tg_min(level + noise, 1151);
	s->side_ns = tg_min(s->capacity_ns - main_ns, tg_time_ns(x->law.out_ucpu, s->dt_ns));
	s->busy_ns = main_ns + s->side_ns;
	return 0;
}

TG_OP(tg_op_headroom_step)
{
	struct tg_ops_headroom *x = &tg_headroom_io;

	tg_headroom_step(&x->law, &x->sample, &x->decision);
	return 0;
}

TG_OP(tg_op_headroom)
{
	struct tg_ops_headroom *x = &tg_headroom_io;

	if ((x->in[0] & 255) == 0)
		tg_op_headroom_init();
	if ((x->in[0] & 255) == 1)
		tg_op_headroom_terms();
	tg_op_headroom_sample();
	x->out[0] = tg_sqrt(tg_any(x->in[1], 50));
	x->out[1] = tg_ppm_of(tg_any(x->in[2], 33), tg_any(x->in[3], 20));
	return tg_op_headroom_step();
}

#include "ops_bandwidth.h"

#endif /* TG_LAW_OPS_H */
