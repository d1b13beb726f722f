/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * burst.h - adaptive burst: how much unused quota may be carried over.
 *
 * `burst = auto`. Burst helps a group that is throttled though on average it uses
 * less than its quota (the burst patches, Huaixin Chang, 2021); it costs others
 * when the machine is short of CPU. So, per window of evidence:
 *
 *     grow    throttled, mean use < quota, machine not short
 *             for `calm` before and now:                       all of the quota
 *     shrink  machine short of CPU:                            - quota * shrink * dt
 *     bound   burst <= min(quota, what the parents allow)      at once
 *
 * At once up, for throttling that comes once in a while leaves little to learn
 * from, and all that a burst too large can cost others is one quota, once, while a
 * shortage begins; but only after `calm` (1 s), so that a machine which is short
 * every now and then takes it back and does not give it again each time. From all of
 * the quota back to none takes 1 / shrink (1 s of shortage). Without evidence it
 * stands: burst that is not used costs nothing. Evidence that cannot be
 * true drops what was learnt: burst 0.
 *
 * It changes only the ceiling of the pool, never what flows in: the mean use of a
 * group stays at or below its quota, and any t sees at most burst more. (A stock
 * kernel refills at a write of the burst too: bandwidth_kernel.h.)
 *
 * What the parents allow is tg_burst_room_ns, the least over all limited
 * ancestors: in one period a child with burst may use quota + burst, and a parent
 * that cannot pay for that throttles the child's siblings instead.
 *
 * Ranges: quota < 2^43 (8192 CPUs * 1 s), dt <= 10 s: see each product.
 */
#ifndef TG_LAW_BURST_H
#define TG_LAW_BURST_H

#include "base.h"

#define TG_BURST_NO_PARENT (~0ULL)
#define TG_BURST_ALL_PPB 1000000000ULL
#define TG_BURST_PERIOD_MAX_NS 1000000000ULL
#define TG_BURST_QUOTA_MAX_NS (TG_CPUS_MAX * TG_BURST_PERIOD_MAX_NS)

struct tg_burst_config {
	tg_u32 calm_us;		 /* without shortage for so long before it grows */
	tg_u32 shrink_ppm_per_s; /* of quota, while the machine is short; <= 10^8 */
	tg_u32 short_ppm;	 /* less idle than this of the machine is short of CPU */
	tg_u32 mean_us;		 /* span of the mean of use over quota; >= 1000 */
};

struct tg_burst_evidence {
	tg_u64 dt_ns;	    /* wall time of the window, 1 us..10 s */
	tg_u64 quota_ns;    /* a period's; at most 8192 CPUs of it */
	tg_u64 period_ns;   /* 1 us..1 s */
	tg_u64 used_ns;	    /* the group's CPU time in the window */
	tg_u64 room_ns;	    /* the most burst that the parents allow */
	tg_u64 capacity_ns; /* CPU time there was, CPUs * dt less steal */
	tg_u64 idle_ns;	    /* CPU time that was not used */
	tg_u32 throttled;   /* periods in which the group was throttled */
	tg_u32 valid;	    /* 0: the sensor does not vouch for it */
};

struct tg_burst {
	struct tg_burst_config cfg;
	tg_u64 burst_ns;
	tg_u64 age_us;	/* since the start or the last bad evidence, <= mean_us */
	tg_u64 use_ppb; /* mean of use over quota, 10^9 is all of it */
	tg_u64 calm_us; /* since the start, bad evidence or shortage, <= cfg.calm_us */
};

TG_FN void tg_burst_init(struct tg_burst *b, const struct tg_burst_config *cfg)
{
	b->cfg = *cfg;
	b->cfg.shrink_ppm_per_s = (tg_u32)tg_min(cfg->shrink_ppm_per_s, 100 * TG_PPM);
	b->cfg.short_ppm = (tg_u32)tg_min(cfg->short_ppm, TG_PPM);
	b->cfg.mean_us = (tg_u32)tg_max(cfg->mean_us, 1000);
	b->burst_ns = 0;
	b->age_us = 0;
	b->use_ppb = 0;
	b->calm_us = 0;
}

/*
 * The most burst that one limited ancestor leaves to a group: what it has in one
 * of the group's periods, with its own burst, less the group's quota. In us, as
 * the kernel keeps them: 2^33 * 2^20.
 */
TG_FN tg_u64 tg_burst_room_ns(tg_u64 quota_ns, tg_u64 period_ns, tg_u64 parent_quota_ns,
			      tg_u64 parent_period_ns, tg_u64 parent_burst_ns)
{
	tg_u64 period_us = tg_min(period_ns, TG_BURST_PERIOD_MAX_NS) / 1000;
	tg_u64 parent_period_us = tg_min(parent_period_ns, TG_BURST_PERIOD_MAX_NS) / 1000;
	tg_u64 parent_us = tg_min(parent_quota_ns, TG_BURST_QUOTA_MAX_NS) / 1000;
	tg_u64 has_ns;

	if (parent_period_us == 0)
		return 0;
	has_ns = parent_us * period_us / parent_period_us * 1000 +
		 tg_min(parent_burst_ns, TG_BURST_QUOTA_MAX_NS);
	return tg_sub0(has_ns, quota_ns);
}

/* Can this be true? Slack for counters that are not read at one instant. */
TG_FN int tg_burst_sane(const struct tg_burst_evidence *e)
{
	if (!e->valid || e->dt_ns < 1000 || e->dt_ns > TG_DT_MAX_NS)
		return 0;
	if (e->period_ns < 1000 || e->period_ns > TG_BURST_PERIOD_MAX_NS)
		return 0;
	if (e->quota_ns < 1000 || e->quota_ns / TG_CPUS_MAX > e->period_ns)
		return 0;
	if (e->capacity_ns < 1000 || e->capacity_ns / TG_CPUS_MAX > e->dt_ns)
		return 0;
	return e->idle_ns <= e->capacity_ns + e->capacity_ns / 64 + 100000 &&
	       e->used_ns / 2 <= e->capacity_ns;
}

/*
 * part_ppm_per_s of quota over dt: at 10^8 ppm/s and 10 s that is 1000 quotas, but
 * no more than the quota is ever asked for. ppm * dt_us < 10^8 * 10^7 = 10^15;
 * in millionths it is clamped to 10^6, times 2^43 < 2^63.
 */
TG_FN tg_u64 tg_burst_step_ns(tg_u64 quota_ns, tg_u64 ppm_per_s, tg_u64 dt_ns)
{
	tg_u64 ppm = tg_min(ppm_per_s * (dt_ns / 1000) / TG_PPM, TG_PPM);

	return quota_ns * ppm / TG_PPM;
}

/*
 * Use over quota in this window, in 10^-9, to 10^-6. due_us = quota * dt / period:
 * 2^33 * 2^24 before the division, and < 2^37 after it. Use counts as at most
 * twice what was due: < 2^38, times 10^6 < 2^58.
 */
TG_FN tg_u64 tg_burst_use_ppb(const struct tg_burst_evidence *e)
{
	tg_u64 due_us = e->quota_ns / 1000 * (e->dt_ns / 1000) / (e->period_ns / 1000);
	tg_u64 used_us = tg_min(e->used_ns / 1000, 2 * due_us);

	if (due_us == 0)
		return 2 * TG_BURST_ALL_PPB;
	return used_us * TG_PPM / due_us * 1000;
}

/* One window of evidence in, the burst for the next out. */
TG_FN tg_u64 tg_burst_auto_step(struct tg_burst *b, const struct tg_burst_evidence *e)
{
	tg_u64 now_ppb, weight_16, step_ns;
	int short_of_cpu, calm;

	if (!tg_burst_sane(e)) {
		b->burst_ns = 0;
		b->age_us = 0;
		b->use_ppb = 0;
		b->calm_us = 0;
		return 0;
	}
	now_ppb = tg_burst_use_ppb(e);
	b->age_us = tg_min(b->age_us + e->dt_ns / 1000, b->cfg.mean_us);
	weight_16 = tg_weight_16(e->dt_ns / 1000, b->age_us);
	b->use_ppb = tg_mean(b->use_ppb, now_ppb, weight_16);
	/* capacity < 2^47, in us < 2^37, times 10^6 < 2^57. */
	short_of_cpu = tg_min(e->idle_ns, e->capacity_ns) / 1000 * TG_PPM <
		       e->capacity_ns / 1000 * b->cfg.short_ppm;
	calm = b->calm_us >= b->cfg.calm_us;
	b->calm_us = short_of_cpu ? 0 : tg_min(b->calm_us + e->dt_ns / 1000, b->cfg.calm_us);
	if (short_of_cpu) {
		step_ns = tg_burst_step_ns(e->quota_ns, b->cfg.shrink_ppm_per_s, e->dt_ns);
		b->burst_ns = tg_sub0(b->burst_ns, tg_max(step_ns, 1));
	} else if (calm && e->throttled && b->use_ppb < TG_BURST_ALL_PPB) {
		b->burst_ns = e->quota_ns;
	}
	b->burst_ns = tg_min(b->burst_ns, tg_min(e->quota_ns, e->room_ns));
	return b->burst_ns;
}

#endif /* TG_LAW_BURST_H */
