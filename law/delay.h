/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * delay.h - how much more headroom main's run delay asks for.
 *
 * Headroom is a share of the machine; what main wants is to run soon. Run delay is the
 * time a task was runnable and did not run. An objective says which share of main's
 * runs may have waited for longer than it names (p99 < 5 ms: 1 %); a run that did is
 * late. Evidence is weighed as it comes (a CUSUM, Page 1954):
 *
 *     score = max(0, score + late - runs * share)	late runs beyond the share
 *     raise	score >= alarm:				extra += step
 *		again within 4 settles:			extra += max(step, extra / 2)
 *     release	no alarm for hold:			extra -= release * dt
 *
 * Quick up, slow down; after a raise, settle passes before the next is judged.
 *
 * Home is the extra that stands while nothing is known: a default where none asked for a
 * headroom, else 0. Above home the law goes only while side work really uses CPU (what
 * main does to itself no headroom removes), below it only where main was seen to meet its
 * objective. Where side work runs and still is not the cause, the bound does not help
 * either: late runs there no fewer than half of before mean that the raise was in vain.
 * Then it goes home, and rest passes before the next try.
 *
 * Bounds: 0 <= extra <= most for any input, in any state; so headroom is never below what
 * was asked, and side work pays at most `most` for at most
 * (raises * settle + vain) of each (that + rest) where it was in vain.
 *
 * Ranges: runs and late of a window count up to 2^24, times 10^6 < 2^44; a score that has
 * reached alarm * 10^6 < 2^30 is wiped in the same step.
 */
#ifndef TG_LAW_DELAY_H
#define TG_LAW_DELAY_H

#include "base.h"

#define TG_DELAY_RUNS_MAX (1ULL << 24)
#define TG_DELAY_AGE_MAX_US (1ULL << 40)
/* What is asked for moves in steps of 1 %: each change of the terms disturbs the trim. */
#define TG_DELAY_GRAIN_PPM 10000ULL
/* Span of the mean of side's use; <= 10 s. */
#define TG_DELAY_SIDE_US 100000ULL

struct tg_delay_config {
	tg_u32 alarm;		  /* late runs beyond the share that are no chance, 1..1000 */
	tg_u32 step_ppm;	  /* least raise, of the domain */
	tg_u32 most_ppm;	  /* bound of the extra headroom, of the domain */
	tg_u32 settle_us;	  /* from a raise until the next is judged */
	tg_u32 hold_us;		  /* from an alarm until a release */
	tg_u32 release_ppm_per_s; /* slope of releases, of the domain; <= 10^8 */
	tg_u32 side_ppm;	  /* less than this above its floor, and side is no cause */
	tg_u32 vain_us;		  /* at the bound for this long before it is judged */
	tg_u32 rest_us;		  /* after a raise in vain */
	tg_u32 dt_max_us;	  /* a longer window is stale, <= 10 s */
};

struct tg_delay_evidence {
	tg_u64 dt_ns;	    /* wall time of the window */
	tg_u64 runs;	    /* times that a task of main began to run */
	tg_u64 late;	    /* of those, after a longer wait than the objective names */
	tg_u64 side_ns;	    /* used by side work */
	tg_u64 capacity_ns; /* CPU time there was: CPUs * dt less steal */
	tg_u32 floor_ppm;   /* what side work has in any case: the tolerance */
	tg_u32 valid;	    /* 0: the sensor does not vouch for it */
};

enum tg_delay_state {
	TG_DELAY_FINE = 0,    /* objective met, or nothing to go by */
	TG_DELAY_RAISED = 1,  /* raised, and not long ago */
	TG_DELAY_RELEASE = 2, /* going back */
	TG_DELAY_BOUND = 3,   /* at the bound */
	TG_DELAY_REST = 4,    /* was in vain */
};

/* Runs and late runs that are judged together. */
struct tg_delay_count {
	tg_u64 runs, late;
};

/*
 * quiet_us, quiet: since the last alarm. before: at the level before the first raise.
 * top, top_us: at the bound. rest_us: > 0 after a raise in vain.
 */
struct tg_delay {
	struct tg_delay_config cfg;
	tg_u32 share_ppm;
	enum tg_delay_state state;
	tg_u64 extra_ppb; /* 10^9 is all of the domain */
	tg_u64 home_ppb;  /* the extra while nothing is known */
	tg_u64 score_ppm;
	tg_u64 side_ppm; /* mean of side's use */
	tg_u64 quiet_us, top_us, rest_us;
	struct tg_delay_count open, before, top, quiet;
	tg_u32 raises, vain; /* since the start, wrap */
};

TG_FN void tg_delay_clear(struct tg_delay *d)
{
	d->score_ppm = 0;
	d->open = (struct tg_delay_count){0};
}

/* The share of runs that may be late; a new objective is judged from its start, the extra stays. */
TG_FN void tg_delay_objective(struct tg_delay *d, tg_u32 share_ppm)
{
	d->share_ppm = (tg_u32)tg_clamp(share_ppm, 1, TG_PPM);
	d->top_us = 0;
	d->rest_us = 0;
	d->before = (struct tg_delay_count){0};
	d->top = (struct tg_delay_count){0};
	d->quiet = (struct tg_delay_count){0};
	tg_delay_clear(d);
}

TG_FN void tg_delay_init(struct tg_delay *d, const struct tg_delay_config *cfg, tg_u32 share_ppm,
			 tg_u32 home_ppm)
{
	struct tg_delay_config *c = &d->cfg;

	*c = *cfg;
	c->alarm = (tg_u32)tg_clamp(c->alarm, 1, 1000);
	c->most_ppm = (tg_u32)tg_min(c->most_ppm, TG_PPM);
	c->step_ppm = (tg_u32)tg_clamp(c->step_ppm, 1, TG_PPM);
	c->release_ppm_per_s = (tg_u32)tg_min(c->release_ppm_per_s, 100 * TG_PPM);
	c->side_ppm = (tg_u32)tg_min(c->side_ppm, TG_PPM);
	c->dt_max_us = (tg_u32)tg_min(c->dt_max_us, TG_DT_MAX_NS / 1000);
	d->state = TG_DELAY_FINE;
	d->home_ppb = tg_min(home_ppm, c->most_ppm) * 1000ULL;
	d->extra_ppb = d->home_ppb;
	d->side_ppm = 0;
	d->quiet_us = 0;
	d->raises = 0;
	d->vain = 0;
	tg_delay_objective(d, share_ppm);
}

/* Can this be true? capacity <= CPUS_MAX * dt bounds every product below. */
TG_FN int tg_delay_sane(const struct tg_delay_config *cfg, const struct tg_delay_evidence *e)
{
	if (!e->valid || e->dt_ns < 1000 || e->dt_ns / 1000 > cfg->dt_max_us)
		return 0;
	if (e->capacity_ns < 1000 || e->capacity_ns / TG_CPUS_MAX > e->dt_ns)
		return 0;
	return e->late <= e->runs;
}

TG_FN void tg_delay_count(struct tg_delay_count *c, tg_u64 runs, tg_u64 late)
{
	/* Both halved where they become many: the share stays. 2^40 + 2^24. */
	if (c->runs >> 40) {
		c->runs /= 2;
		c->late /= 2;
	}
	c->runs += runs;
	c->late += late;
}

/*
 * Were late runs at the bound no fewer than half of before? late / runs >= late' / runs' / 2,
 * cross-multiplied, each cut to 2^31: shifts keep the shares to 2^-30 of the larger.
 */
TG_FN int tg_delay_in_vain(const struct tg_delay *d)
{
	tg_u64 top_runs = tg_max(d->top.runs, 1), top_late = d->top.late;
	tg_u64 runs = tg_max(d->before.runs, 1), late = d->before.late;
	tg_u32 down = d->top.runs >> 31 ? 10 : 0, down_before = d->before.runs >> 31 ? 10 : 0;

	return 2 * (top_late >> down) * (runs >> down_before) >=
	       (late >> down_before) * (top_runs >> down);
}

TG_FN void tg_delay_raise(struct tg_delay *d, tg_u64 most_ppb, int again)
{
	tg_u64 step_ppb = d->cfg.step_ppm * 1000ULL;

	/* After a quiet time the right level is near: it was left a moment ago. */
	if (again)
		step_ppb = tg_max(step_ppb, d->extra_ppb / 2);

	if (d->before.runs == 0)
		d->before = d->open;
	d->extra_ppb = tg_min(d->extra_ppb + step_ppb, most_ppb);
	d->raises++;
	d->top_us = 0;
	d->top = (struct tg_delay_count){0};
	d->state = TG_DELAY_RAISED;
}

/* An alarm: raise, or at the bound ask whether it was any good. Up to home without a cause. */
TG_FN void tg_delay_alarm(struct tg_delay *d, int cause)
{
	tg_u64 most_ppb = cause ? d->cfg.most_ppm * 1000ULL : d->home_ppb;
	int again = d->quiet_us < 4ULL * d->cfg.settle_us;

	d->quiet_us = 0;
	d->quiet = (struct tg_delay_count){0};
	if (d->extra_ppb < most_ppb) {
		tg_delay_raise(d, most_ppb, again);
	} else if (d->top_us >= d->cfg.vain_us && tg_delay_in_vain(d)) {
		d->extra_ppb = d->home_ppb;
		d->rest_us = d->cfg.rest_us;
		d->before = (struct tg_delay_count){0};
		d->vain++;
		d->state = TG_DELAY_REST;
	} else {
		d->state = TG_DELAY_BOUND;
	}
	tg_delay_clear(d);
}

/*
 * Has main met its objective since the last alarm, on runs enough to tell? So many that
 * twice `alarm` of them might have been late, and no more than half of what might.
 * Runs < 2^41, times the share <= 10^6 < 2^61.
 */
TG_FN int tg_delay_met(const struct tg_delay *d)
{
	tg_u64 may_ppm = d->quiet.runs * d->share_ppm;

	return may_ppm >= 2 * d->cfg.alarm * TG_PPM && d->quiet.late <= may_ppm / (2 * TG_PPM);
}

/* release * dt: 10^8 ppm/s * 10^7 us = 10^15 ppm * 10^-6 s, in ppb. */
TG_FN void tg_delay_release(struct tg_delay *d, tg_u64 dt_us)
{
	tg_u64 by_ppb = tg_max(d->cfg.release_ppm_per_s * dt_us / 1000, 1);
	tg_u64 least_ppb = tg_delay_met(d) ? 0 : tg_min(d->home_ppb, d->extra_ppb);

	d->extra_ppb = tg_max(tg_sub0(d->extra_ppb, by_ppb), least_ppb);
	d->state = d->extra_ppb > least_ppb ? TG_DELAY_RELEASE : TG_DELAY_FINE;
	/* All is given back: what comes next is a new story. */
	if (d->extra_ppb <= d->home_ppb)
		d->before = (struct tg_delay_count){0};
}

TG_FN void tg_delay_weigh(struct tg_delay *d, const struct tg_delay_evidence *e)
{
	tg_u64 runs = tg_min(e->runs, TG_DELAY_RUNS_MAX), late = tg_min(e->late, runs);

	d->score_ppm = tg_sub0(d->score_ppm + late * TG_PPM, runs * d->share_ppm);
	if (d->score_ppm == 0)
		d->open = (struct tg_delay_count){0};
	else
		tg_delay_count(&d->open, runs, late);
	if (d->extra_ppb == d->cfg.most_ppm * 1000ULL)
		tg_delay_count(&d->top, runs, late);
}

/* What is asked for on top: whole grains, rounded up, within the bound. */
TG_FN tg_u32 tg_delay_extra_ppm(const struct tg_delay *d)
{
	tg_u64 grain_ppb = TG_DELAY_GRAIN_PPM * 1000;
	tg_u64 grains = (d->extra_ppb + grain_ppb - 1) / grain_ppb;

	return (tg_u32)tg_min(grains * TG_DELAY_GRAIN_PPM, d->cfg.most_ppm);
}

/*
 * One window of evidence in, the extra headroom for the next out. Evidence that cannot be
 * true is no reason to give anything back, nor to take more: the extra stands.
 */
TG_FN tg_u32 tg_delay_step(struct tg_delay *d, const struct tg_delay_evidence *e)
{
	tg_u64 dt_us = e->dt_ns / 1000, side_ppm, runs;
	int cause;

	if (!tg_delay_sane(&d->cfg, e)) {
		tg_delay_clear(d);
		return tg_delay_extra_ppm(d);
	}
	/* In us: 2^37 * 10^6 < 2^57. */
	side_ppm = tg_min(e->side_ns, e->capacity_ns) / 1000 * TG_PPM / (e->capacity_ns / 1000);
	d->side_ppm = tg_mean(d->side_ppm, side_ppm, tg_weight_16(dt_us, TG_DELAY_SIDE_US));
	d->quiet_us = tg_min(d->quiet_us + dt_us, TG_DELAY_AGE_MAX_US);
	if (d->rest_us) {
		d->rest_us = tg_sub0(d->rest_us, dt_us);
		d->state = d->rest_us ? TG_DELAY_REST : TG_DELAY_FINE;
		return tg_delay_extra_ppm(d);
	}
	if (d->extra_ppb == d->cfg.most_ppm * 1000ULL)
		d->top_us = tg_min(d->top_us + dt_us, TG_DELAY_AGE_MAX_US);
	cause = d->side_ppm >= tg_min(e->floor_ppm, TG_PPM) + d->cfg.side_ppm;
	/* What is late just after a raise waited before it. */
	if (d->quiet_us > d->cfg.settle_us) {
		runs = tg_min(e->runs, TG_DELAY_RUNS_MAX);
		tg_delay_count(&d->quiet, runs, tg_min(e->late, runs));
		if (cause || d->extra_ppb < d->home_ppb)
			tg_delay_weigh(d, e);
		if (d->score_ppm >= d->cfg.alarm * TG_PPM)
			tg_delay_alarm(d, cause);
	}
	if (d->extra_ppb && d->quiet_us >= d->cfg.hold_us)
		tg_delay_release(d, dt_us);
	return tg_delay_extra_ppm(d);
}

#endif /* TG_LAW_DELAY_H */
