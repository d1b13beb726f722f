/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ops_bandwidth.h - the part of ops.h that drives bandwidth.h. */
#ifndef TG_LAW_OPS_BANDWIDTH_H
#define TG_LAW_OPS_BANDWIDTH_H

#include "bandwidth.h"

#define TG_OPS_GROUPS 8

struct tg_ops_bw {
	tg_u64 in[8], out[4];
	tg_u64 now_ns;
	struct tg_bw_terms terms;
	struct tg_bw_pool pool[TG_OPS_GROUPS];
	struct tg_bw_silo silo[TG_OPS_GROUPS];
};

struct tg_ops_bw tg_bw_io TG_MAP(bw);

TG_FN tg_u32 tg_ops_group(const struct tg_ops_bw *x)
{
	return (tg_u32)(x->in[0] >> 8 & (TG_OPS_GROUPS - 1));
}

/* Pools are made before they are used; some as the kernel's. */
TG_OP(tg_op_bw_start)
{
	struct tg_ops_bw *x = &tg_bw_io;

	for (tg_u32 g = 0; g < TG_OPS_GROUPS; g++)
		tg_bw_init(&x->pool[g], (tg_u32)(x->in[7] >> 2 * g & 3), x->now_ns);
	return 0;
}

TG_OP(tg_op_bw_set)
{
	struct tg_ops_bw *x = &tg_bw_io;
	tg_u32 g = tg_ops_group(x);
	tg_u64 w = x->in[2];

	x->terms.quota_ns = w & 7 ? tg_any(x->in[3], w & 8 ? 27 : 44) : TG_BW_NONE;
	x->terms.period_ns = tg_any(x->in[4], w & 16 ? 27 : 32);
	x->terms.burst_ns = tg_any(x->in[5], w & 32 ? 27 : 44);
	x->terms.slice_ns = tg_any(x->in[6], w & 64 ? 23 : 32);
	if (w & 128) {
		tg_bw_set(&x->pool[g], &x->terms, x->now_ns);
	} else if (w & 256) {
		tg_bw_set_kernel(&x->pool[g], &x->terms, x->now_ns);
		tg_bw_forgive(&x->pool[g], &x->silo[g], x->now_ns);
	} else if (w & 512) {
		tg_bw_init(&x->pool[g], (tg_u32)(w >> 10 & 3), x->now_ns);
		x->silo[g] = (struct tg_bw_silo){0};
	}
	return 0;
}

TG_OP(tg_op_bw_run)
{
	struct tg_ops_bw *x = &tg_bw_io;
	tg_u32 g = tg_ops_group(x);
	tg_u64 used_ns = tg_any(x->in[3], x->in[2] & 1 ? 24 : 58);

	x->out[0] = tg_bw_run(&x->pool[g], &x->silo[g], used_ns, x->now_ns);
	return 0;
}

TG_OP(tg_op_bw_throttle)
{
	struct tg_ops_bw *x = &tg_bw_io;
	tg_u32 g = tg_ops_group(x);

	x->out[0] = (tg_u64)tg_bw_throttle(&x->pool[g], &x->silo[g], x->now_ns);
	return 0;
}

TG_OP(tg_op_bw_turnover)
{
	struct tg_ops_bw *x = &tg_bw_io;
	tg_u32 g = tg_ops_group(x);

	x->out[0] = tg_bw_turnover(&x->pool[g], x->now_ns);
	x->out[1] = (tg_u64)tg_bw_distribute(&x->pool[g], &x->silo[g], x->now_ns);
	x->out[2] = (tg_u64)tg_bw_slack_wanted(&x->pool[g], x->now_ns);
	x->out[3] = (tg_u64)tg_bw_slack_due(&x->pool[g], x->now_ns);
	return 0;
}

TG_OP(tg_op_bw_return)
{
	struct tg_ops_bw *x = &tg_bw_io;
	tg_u32 g = tg_ops_group(x);

	x->out[0] = tg_bw_return(&x->pool[g], &x->silo[g]);
	return 0;
}

TG_OP(tg_op_bw)
{
	struct tg_ops_bw *x = &tg_bw_io;

	x->now_ns = tg_tick(x->now_ns, x->in[1]) & ~(1ULL << 63);
	if (x->pool[0].terms.period_ns == 0)
		tg_op_bw_start();
	switch (x->in[0] & 15) {
	case 0:
		return tg_op_bw_set();
	case 1 ... 2:
		return tg_op_bw_throttle();
	case 3 ... 5:
		return tg_op_bw_turnover();
	case 6 ... 7:
		return tg_op_bw_return();
	default:
		return tg_op_bw_run();
	}
}

#endif /* TG_LAW_OPS_BANDWIDTH_H */
