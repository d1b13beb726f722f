/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * cap.h - a hard and a soft bound on CPU use, as token buckets.
 *
 * Source: the CPU rate caps patches (Peter Williams, 2006): parts per thousand
 * of one CPU, a hard cap that holds whatever else wants the CPU, a soft cap that
 * may be exceeded with CPU that no other work wants, both inherited on fork. Their
 * decaying average is a bucket here, because a bucket has a bound.
 *
 * A bucket fills at `rate` up to `depth`. A run borrows from it what it may use before
 * its CPU looks again (tg_cap_lend), and returns the rest, so CPUs that start at different
 * moments never count on the same time. Above zero a bucket's tasks run; from zero down
 * they are parked (hard) or background (soft), until it is above zero again. law/cap.md
 * states and proves the bounds; in short, with `least` the least loan and g the longest
 * time by which a CPU stops later than its loan is used up:
 *   one bucket, on n CPUs at once   use over any t <= r * t + depth + least + n * g
 *   a bucket for each task          use over any t <= the same with depth, least and g
 *                                   once for each task alive, however many are forked
 *                                   and exit meanwhile
 *   soft                            the same for use that is not background
 *
 * The fill is exact: what does not make a whole ns is carried. Debt is paid, not
 * forgiven: not by a change of terms, fork or exit. A cap that is removed ends: set
 * again, it starts at zero.
 *
 * Ranges: rate <= 8192 CPUs; granularity <= 1 s, so depth < 2^37; debt up to
 * TG_CAP_DEBT_MAX = 2^50 ns (13 days of one CPU) is exact, more counts as that.
 * The fill's product is <= (2^50 + 2^37) * 1000 + 2^23 < 2^61, for any now_ns:
 * a longer time than fills the bucket is not multiplied.
 *
 * The caller holds the lock of whatever bucket it hands in, and charges a task's
 * use before the task changes its group, its terms or its exemption.
 */
#ifndef TG_LAW_CAP_H
#define TG_LAW_CAP_H

#include "base.h"

#define TG_CAP_NONE 0xffffffffU	      /* terms: no such cap */
#define TG_CAP_ONE_CPU 1000U	      /* parts per thousand */
#define TG_CAP_RATE_MAX 8192000U      /* TG_CPUS_MAX CPUs */
#define TG_CAP_DEPTH_PER_PPT 10000ULL /* depth: 10 ms of the rate */
#define TG_CAP_GRANULARITY_MAX_NS 1000000000ULL
#define TG_CAP_DEBT_MAX (1LL << 50)
#define TG_CAP_NEVER (~0ULL)
#define TG_CAP_LEND_PART 16	      /* of a large bucket a run borrows so much of a part */
#define TG_CAP_LEND_AHEAD 5	      /* what comes in is borrowed for so many times lend_ns */
#define TG_CAP_LOAN_MAX_NS 5000000ULL /* the longest run on one loan */

/* Bits of tg_cap.on; none set is a task without cap, and costs this one test. */
#define TG_CAP_HARD 1U
#define TG_CAP_SOFT 2U

/* Bits that say what a task is; the first three are never parked. */
#define TG_CAP_IS_RT 1U	     /* real-time or deadline class: not charged either */
#define TG_CAP_IS_KTHREAD 2U /* not charged either */
#define TG_CAP_IS_EXITING 4U /* charged: what it uses, its group pays */
#define TG_CAP_IS_NEW_PROCESS 8U

enum tg_cap_scope {
	TG_CAP_GROUP = 0,   /* one bucket for the group */
	TG_CAP_PROCESS = 1, /* one for each process */
	TG_CAP_TASK = 2,    /* one for each task */
};

/* Ordered: of several caps that apply to a task the largest counts. */
enum tg_cap_state {
	TG_CAP_RUN = 0,
	TG_CAP_BACKGROUND = 1, /* only where nothing else wants the CPU */
	TG_CAP_PARKED = 2,
};

struct tg_cap_terms {
	tg_u32 hard_ppt; /* 1..TG_CAP_RATE_MAX, or TG_CAP_NONE */
	tg_u32 soft_ppt; /* 0 (always background)..TG_CAP_RATE_MAX, or TG_CAP_NONE */
	tg_u32 scope;	 /* enum tg_cap_scope */
	tg_u32 pad;
	tg_u64 granularity_ns; /* longest time between two checks of one CPU */
};

struct tg_cap_bucket {
	tg_u64 last_ns;	 /* filled up to here */
	tg_s64 level_ns; /* -TG_CAP_DEBT_MAX..depth_ns - lent_ns */
	tg_u64 depth_ns; /* 0 where the rate is 0 */
	tg_u64 lent_ns;	 /* loans of those that run, less what they were charged with since */
	tg_u32 rate_ppt;
	tg_u32 carry_ppt; /* thousandths of a ns on top of level, < 1000 */
};

struct tg_cap {
	struct tg_cap_bucket hard, soft;
	tg_u32 on;    /* TG_CAP_HARD | TG_CAP_SOFT */
	tg_u32 scope; /* enum tg_cap_scope */
};

/* What one run has left of its loans. */
struct tg_cap_loan {
	tg_u32 hard_ns, soft_ns;
};

/*
 * What a group's gate keeps for scopes that give each task or process its own
 * bucket: the debt that tasks left when they went. A task of the family that is
 * above zero pays it first, so a chain of forks cannot leave its use behind.
 */
struct tg_cap_family {
	tg_u64 hard_debt_ns, soft_debt_ns;
};

/* depth = 10 ms of the rate, but no less than the granularity: 8.2e10 at most. */
TG_FN tg_u64 tg_cap_depth_ns(tg_u32 rate_ppt, tg_u64 granularity_ns)
{
	if (rate_ppt == 0)
		return 0;
	return tg_max(TG_CAP_DEPTH_PER_PPT * tg_min(rate_ppt, TG_CAP_RATE_MAX),
		      tg_min(granularity_ns, TG_CAP_GRANULARITY_MAX_NS));
}

/* What a bucket can hold: loans are part of it. */
TG_FN tg_s64 tg_cap_most_ns(const struct tg_cap_bucket *b)
{
	return (tg_s64)b->depth_ns - (tg_s64)b->lent_ns;
}

/*
 * Fill up to now. A clock that stands or goes back (another CPU's) fills nothing,
 * and what it filled before is not filled again. `missing` is in thousandths of a
 * ns, like dt * rate: the bucket is full after missing / rate, and nothing longer
 * is multiplied.
 */
TG_FN void tg_cap_fill(struct tg_cap_bucket *b, tg_u64 now_ns)
{
	tg_s64 most_ns = tg_cap_most_ns(b);
	tg_u64 dt_ns, missing, sum;

	if (now_ns <= b->last_ns)
		return;
	dt_ns = now_ns - b->last_ns;
	b->last_ns = now_ns;
	if (b->rate_ppt == 0)
		return;
	missing = (tg_u64)(most_ns - b->level_ns) * 1000;
	if (dt_ns > missing / b->rate_ppt) {
		b->level_ns = most_ns;
		b->carry_ppt = 0;
		return;
	}
	sum = dt_ns * b->rate_ppt + b->carry_ppt;
	b->level_ns += (tg_s64)(sum / 1000);
	b->carry_ppt = (tg_u32)(sum % 1000);
	if (b->level_ns >= most_ns) {
		b->level_ns = most_ns;
		b->carry_ppt = 0;
	}
}

/* Pay the family's debt out of what is above zero. */
TG_FN void tg_cap_pay(struct tg_cap_bucket *b, tg_u64 *debt_ns)
{
	tg_u64 paid;

	if (*debt_ns == 0 || b->level_ns <= 0)
		return;
	paid = tg_min(*debt_ns, (tg_u64)b->level_ns);
	*debt_ns -= paid;
	b->level_ns -= (tg_s64)paid;
}

/* level >= -2^50 and the use taken <= 2^50, so the difference is >= -2^51. */
TG_FN void tg_cap_use(struct tg_cap_bucket *b, tg_u64 used_ns)
{
	tg_s64 level = b->level_ns - (tg_s64)tg_min(used_ns, TG_CAP_DEBT_MAX);

	b->level_ns = level < -TG_CAP_DEBT_MAX ? -TG_CAP_DEBT_MAX : level;
}

/* The same for a run that has borrowed: that is used first. */
TG_FN void tg_cap_use_loan(struct tg_cap_bucket *b, tg_u32 *loan_ns, tg_u64 used_ns)
{
	tg_u64 paid = tg_min(used_ns, *loan_ns);

	*loan_ns -= (tg_u32)paid;
	b->lent_ns -= paid;
	tg_cap_use(b, used_ns - paid);
}

/*
 * New terms for one bucket. What was filled and used so far stands, debt and all. A
 * bucket that is new, or was off, starts at zero, less what is lent.
 */
TG_FN void tg_cap_set_bucket(struct tg_cap_bucket *b, int was_on, tg_u32 rate_ppt, tg_u64 depth_ns,
			     tg_u64 now_ns)
{
	if (was_on)
		tg_cap_fill(b, now_ns);
	else
		b->last_ns = tg_max(b->last_ns, now_ns);
	b->rate_ppt = rate_ppt;
	b->depth_ns = was_on ? depth_ns : 0;
	if (!was_on || b->level_ns >= tg_cap_most_ns(b)) {
		b->level_ns = tg_cap_most_ns(b);
		b->carry_ppt = 0;
	}
	b->depth_ns = depth_ns;
}

/*
 * Terms of a gate, or of a task in it. A zeroed struct tg_cap is one without cap.
 * One task cannot use more than one CPU, so from 1000 up a cap of scope task is
 * none; nor is a soft cap from the hard one up, for the hard one comes first.
 */
TG_FN void tg_cap_set(struct tg_cap *c, const struct tg_cap_terms *t, tg_u64 now_ns)
{
	tg_u32 scope = t->scope <= TG_CAP_TASK ? t->scope : TG_CAP_GROUP;
	tg_u32 hard = (tg_u32)tg_clamp(t->hard_ppt, 1, TG_CAP_RATE_MAX);
	tg_u32 soft = (tg_u32)tg_min(t->soft_ppt, TG_CAP_RATE_MAX);
	int hard_on = t->hard_ppt != TG_CAP_NONE;
	int soft_on = t->soft_ppt != TG_CAP_NONE;
	tg_u32 was = c->on;

	if (scope == TG_CAP_TASK) {
		hard_on = hard_on && hard < TG_CAP_ONE_CPU;
		soft_on = soft_on && soft < TG_CAP_ONE_CPU;
	}
	soft_on = soft_on && !(hard_on && soft >= hard);
	c->scope = scope;
	c->on = (hard_on ? TG_CAP_HARD : 0) | (soft_on ? TG_CAP_SOFT : 0);
	if (hard_on)
		tg_cap_set_bucket(&c->hard, (was & TG_CAP_HARD) != 0, hard,
				  tg_cap_depth_ns(hard, t->granularity_ns), now_ns);
	if (soft_on)
		tg_cap_set_bucket(&c->soft, (was & TG_CAP_SOFT) != 0, soft,
				  tg_cap_depth_ns(soft, t->granularity_ns), now_ns);
}

/*
 * Charge what a run used up to now. Background use eats the soft bucket's fill, so that a
 * task that got its rate from idle CPUs does not ask others for it once more, but makes no
 * debt: it had no owner.
 */
TG_FN void tg_cap_charge(struct tg_cap *c, struct tg_cap_loan *loan, tg_u64 used_ns, tg_u64 now_ns,
			 int background, tg_u32 is)
{
	if (!c->on)
		return;
	if (c->on & TG_CAP_HARD) {
		tg_cap_fill(&c->hard, now_ns);
		if (!(is & (TG_CAP_IS_RT | TG_CAP_IS_KTHREAD)))
			tg_cap_use_loan(&c->hard, &loan->hard_ns, used_ns);
	}
	if (c->on & TG_CAP_SOFT) {
		tg_cap_fill(&c->soft, now_ns);
		if (background)
			used_ns =
			    c->soft.level_ns > 0 ? tg_min(used_ns, (tg_u64)c->soft.level_ns) : 0;
		if (!(is & (TG_CAP_IS_RT | TG_CAP_IS_KTHREAD)))
			tg_cap_use_loan(&c->soft, &loan->soft_ns, used_ns);
	}
}

/* May a task under this cap run now? `f` is its gate's; unused in scope group. */
TG_FN enum tg_cap_state tg_cap_state(struct tg_cap *c, struct tg_cap_family *f, tg_u64 now_ns,
				     tg_u32 is)
{
	if (!c->on || (is & (TG_CAP_IS_RT | TG_CAP_IS_KTHREAD | TG_CAP_IS_EXITING)))
		return TG_CAP_RUN;
	if (c->on & TG_CAP_HARD) {
		tg_cap_fill(&c->hard, now_ns);
		tg_cap_pay(&c->hard, &f->hard_debt_ns);
		if (c->hard.level_ns <= 0)
			return TG_CAP_PARKED;
	}
	if (c->on & TG_CAP_SOFT) {
		tg_cap_fill(&c->soft, now_ns);
		tg_cap_pay(&c->soft, &f->soft_debt_ns);
		if (c->soft.level_ns <= 0)
			return TG_CAP_BACKGROUND;
	}
	return TG_CAP_RUN;
}

/*
 * When the bucket will have paid `debt_ns` by itself and stand at want_ns (1 is
 * the earliest; at most its depth). A debt of more than the depth is paid by
 * looking in between: a full bucket fills no further, so no later than when it is
 * full. 2^50 + 2^37 missing, times 1000, is < 2^61.
 */
TG_FN tg_u64 tg_cap_bucket_ready_ns(const struct tg_cap_bucket *b, tg_u64 debt_ns, tg_u64 want_ns)
{
	tg_u64 want = tg_max(1, tg_min(want_ns, b->depth_ns));
	tg_u64 short_ns, missing, wait_ns;

	if (b->rate_ppt == 0)
		return TG_CAP_NEVER;
	want = tg_min(want + tg_min(debt_ns, TG_CAP_DEBT_MAX), tg_max(b->depth_ns, 1));
	if (b->level_ns >= (tg_s64)want)
		return b->last_ns;
	short_ns = (tg_u64)((tg_s64)want - b->level_ns);
	missing = short_ns * 1000 - b->carry_ppt;
	wait_ns = (missing + b->rate_ppt - 1) / b->rate_ppt;
	return wait_ns > TG_CAP_NEVER - b->last_ns ? TG_CAP_NEVER : b->last_ns + wait_ns;
}

/*
 * The next time at which the state can be better: of a parked task when the hard
 * bucket holds want_ns, of one in the background when the soft one does. Others
 * may pay the family's debt meanwhile, so look again then: it is a level, not an
 * edge. Call it after tg_cap_state, which fills.
 */
TG_FN tg_u64 tg_cap_ready_at_ns(const struct tg_cap *c, const struct tg_cap_family *f,
				tg_u64 want_ns)
{
	if ((c->on & TG_CAP_HARD) && c->hard.level_ns <= 0)
		return tg_cap_bucket_ready_ns(&c->hard, f->hard_debt_ns, want_ns);
	if ((c->on & TG_CAP_SOFT) && c->soft.level_ns <= 0)
		return tg_cap_bucket_ready_ns(&c->soft, f->soft_debt_ns, want_ns);
	return 0;
}

/* A run ends, and has been charged: what it has left of its loan goes back. */
TG_FN void tg_cap_return(struct tg_cap *c, struct tg_cap_loan *loan)
{
	c->hard.lent_ns -= loan->hard_ns;
	c->hard.level_ns += loan->hard_ns;
	c->soft.lent_ns -= loan->soft_ns;
	c->soft.level_ns += loan->soft_ns;
	*loan = (struct tg_cap_loan){0};
}

/*
 * How much one run borrows of a bucket above zero. With lend_ns in it: that, or of a large bucket a
 * 16th, so that runs of many CPUs are longer; a CPU that joins finds the rest. With less: all of it
 * and what it fills with meanwhile, level / (1 - rate), which is back at zero when the run ends; at
 * most five times lend_ns. At least least_ns, which may leave a debt of that much. level * 1000 <
 * 2^47.
 */
TG_FN tg_u64 tg_cap_bucket_lend_ns(const struct tg_cap_bucket *b, tg_u64 least_ns, tg_u64 lend_ns)
{
	tg_u64 level_ns = (tg_u64)b->level_ns;
	tg_u64 run_ns = tg_min(lend_ns, TG_CAP_LOAN_MAX_NS) * TG_CAP_LEND_AHEAD;

	if (level_ns >= lend_ns)
		run_ns = tg_max(lend_ns, level_ns / TG_CAP_LEND_PART);
	else if (b->rate_ppt < TG_CAP_ONE_CPU)
		run_ns = tg_min(run_ns, level_ns * 1000 / (TG_CAP_ONE_CPU - b->rate_ppt));
	return tg_max(least_ns, run_ns);
}

TG_FN void tg_cap_borrow(struct tg_cap_bucket *b, tg_u32 *loan_ns, tg_u64 run_ns)
{
	*loan_ns = (tg_u32)run_ns;
	b->lent_ns += run_ns;
	b->level_ns -= (tg_s64)run_ns;
}

/*
 * A run starts, or its CPU looks again (it has been charged): it returns its loan and
 * borrows again. Returns how long it may run until the next look, TG_CAP_LOAN_MAX_NS at
 * most; 0: not at all; TG_CAP_NEVER: no bucket bounds it. In the background a run draws on
 * the hard bucket alone.
 */
TG_FN tg_u64 tg_cap_lend(struct tg_cap *c, struct tg_cap_loan *loan, tg_u64 now_ns, int background,
			 tg_u64 least_ns, tg_u64 lend_ns)
{
	int soft = (c->on & TG_CAP_SOFT) && !background;
	tg_u64 run_ns = TG_CAP_LOAN_MAX_NS;

	tg_cap_return(c, loan);
	if (!(c->on & TG_CAP_HARD) && !soft)
		return TG_CAP_NEVER;
	if (c->on & TG_CAP_HARD) {
		tg_cap_fill(&c->hard, now_ns);
		if (c->hard.level_ns <= 0)
			return 0;
		run_ns = tg_min(run_ns, tg_cap_bucket_lend_ns(&c->hard, least_ns, lend_ns));
	}
	if (soft) {
		tg_cap_fill(&c->soft, now_ns);
		if (c->soft.level_ns <= 0)
			return 0;
		run_ns = tg_min(run_ns, tg_cap_bucket_lend_ns(&c->soft, least_ns, lend_ns));
		tg_cap_borrow(&c->soft, &loan->soft_ns, run_ns);
	}
	if (c->on & TG_CAP_HARD)
		tg_cap_borrow(&c->hard, &loan->hard_ns, run_ns);
	return run_ns;
}

/* Half of what the parent has above zero goes to the child: nothing is gained. */
TG_FN void tg_cap_split(struct tg_cap_bucket *parent, struct tg_cap_bucket *child, tg_u64 now_ns)
{
	tg_cap_fill(parent, now_ns);
	*child = *parent;
	child->lent_ns = 0;
	child->carry_ppt = 0;
	child->level_ns = parent->level_ns > 0 ? parent->level_ns >> 1 : 0;
	if (parent->level_ns > 0)
		parent->level_ns -= child->level_ns;
}

/*
 * A task forks. Returns 1 if the child has a bucket of its own, set up here; 0 if
 * it is to use the parent's. `is` holds TG_CAP_IS_NEW_PROCESS for a fork that is
 * no thread.
 */
TG_FN int tg_cap_fork(struct tg_cap *parent, struct tg_cap *child, tg_u64 now_ns, tg_u32 is)
{
	if (parent->scope == TG_CAP_GROUP)
		return 0;
	if (parent->scope == TG_CAP_PROCESS && !(is & TG_CAP_IS_NEW_PROCESS))
		return 0;
	*child = (struct tg_cap){0};
	child->on = parent->on;
	child->scope = parent->scope;
	if (parent->on & TG_CAP_HARD)
		tg_cap_split(&parent->hard, &child->hard, now_ns);
	if (parent->on & TG_CAP_SOFT)
		tg_cap_split(&parent->soft, &child->soft, now_ns);
	return 1;
}

/* Debt in `b` goes to the family's; credit is lost. Sums stay <= 2^50. */
TG_FN void tg_cap_bequeath(struct tg_cap_bucket *b, tg_u64 *debt_ns)
{
	if (b->level_ns < 0)
		*debt_ns = tg_min(*debt_ns + tg_abs(b->level_ns), TG_CAP_DEBT_MAX);
	b->level_ns = 0;
	b->carry_ppt = 0;
}

/*
 * The last task of a bucket of its own exits, or moves to another gate (where it
 * starts again, at zero). Charge it first, and return its loan. In scope group nothing happens: the
 * bucket is the gate's and stays.
 */
TG_FN void tg_cap_leave(struct tg_cap *c, struct tg_cap_family *f, tg_u64 now_ns)
{
	if (c->scope == TG_CAP_GROUP)
		return;
	if (c->on & TG_CAP_HARD) {
		tg_cap_fill(&c->hard, now_ns);
		tg_cap_bequeath(&c->hard, &f->hard_debt_ns);
	}
	if (c->on & TG_CAP_SOFT) {
		tg_cap_fill(&c->soft, now_ns);
		tg_cap_bequeath(&c->soft, &f->soft_debt_ns);
	}
	c->on = 0;
}

#endif /* TG_LAW_CAP_H */
