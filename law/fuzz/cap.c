/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * cap.c - tasks that run, sleep, fork, exit and are given other terms, under all
 * scopes, against buckets kept exactly in thousandths of a ns, and a ledger: what
 * was used is no more than what the buckets of those alive were filled with. A task
 * runs on a loan, which may be out while time passes and terms change.
 */
#include "cap.h"
#include "fuzz.h"

#define TASKS 5
#define GRANULARITY_NS 4000000ULL
#define LEAST_NS 10000ULL
#define LEND_NS 1000000ULL

/* A bucket in wide integers: no carry, no short cuts. */
struct exact {
	tg_wide milli, depth, rate, lent; /* lent in ns */
	tg_u64 last;
};

struct task {
	int alive;
	struct tg_cap cap;
	struct tg_cap_loan loan;
	struct exact hard, soft;
};

struct gate {
	struct tg_cap_terms terms;
	struct tg_cap_family family;
	tg_u64 now;
	struct task tasks[TASKS]; /* in scope group all use the first one's cap */
	tg_wide filled, used;	  /* of hard buckets, thousandths, since the terms changed */
	tg_wide start;
	int saturated; /* a debt has reached its limit: what is beyond is forgotten */
};

static tg_wide floor_ns(tg_wide milli)
{
	return milli >= 0 ? milli / 1000 : -((999 - milli) / 1000);
}

static void exact_fill(struct exact *e, tg_u64 now)
{
	if (now <= e->last)
		return;
	if (e->milli + (tg_wide)(now - e->last) * e->rate < (e->depth - e->lent) * 1000 ||
	    e->rate == 0)
		e->milli += (tg_wide)(now - e->last) * e->rate;
	else
		e->milli = (e->depth - e->lent) * 1000;
	e->last = now;
}

static void exact_use(struct exact *e, tg_u64 used)
{
	tg_wide most = TG_CAP_DEBT_MAX, carry = e->milli - floor_ns(e->milli) * 1000;

	e->milli -= (used < (tg_u64)most ? (tg_wide)used : most) * 1000;
	if (floor_ns(e->milli) < -most)
		e->milli = -most * 1000 + carry;
}

/* What a run used: of its loan first. */
static void exact_use_loan(struct exact *e, tg_wide loan, tg_u64 used)
{
	tg_wide paid = loan < (tg_wide)used ? loan : (tg_wide)used;

	e->lent -= paid;
	exact_use(e, used - (tg_u64)paid);
}

static void exact_borrow(struct exact *e, tg_wide ns)
{
	e->milli -= ns * 1000;
	e->lent += ns;
}

static void exact_pay(struct exact *e, tg_u64 *debt)
{
	tg_wide level = floor_ns(e->milli);
	tg_wide paid = level <= 0 ? 0 : level < *debt ? level : (tg_wide)*debt;

	e->milli -= paid * 1000;
	*debt -= (tg_u64)paid;
}

static void same(const struct tg_cap_bucket *b, const struct exact *e, int on)
{
	if (!on)
		return;
	CHECK((tg_wide)b->level_ns * 1000 + b->carry_ppt == e->milli);
	CHECK(b->last_ns == e->last && b->carry_ppt < 1000);
	CHECK((tg_wide)b->lent_ns == e->lent);
	CHECK(b->level_ns + (tg_s64)b->lent_ns <= (tg_s64)b->depth_ns);
	CHECK(b->level_ns >= -TG_CAP_DEBT_MAX - (tg_s64)TG_CAP_LOAN_MAX_NS);
}

/* Take over what the law set up: a change of terms, whose own rules are checked here. */
static void exact_set(struct exact *e, const struct tg_cap_bucket *old,
		      const struct tg_cap_bucket *b, int was_on, int on, tg_u64 now)
{
	if (!on)
		return;
	e->milli = (tg_wide)old->level_ns * 1000 + old->carry_ppt;
	e->last = old->last_ns;
	if (was_on)
		exact_fill(e, now);
	else
		e->last = tg_max(e->last, now);
	e->rate = b->rate_ppt;
	e->depth = b->depth_ns;
	CHECK(b->depth_ns == (b->rate_ppt ? tg_max(b->depth_ns, b->rate_ppt * 10000ULL) : 0));
	/* Cut to the new depth; nothing, neither credit nor debt, if it was off. */
	if (!was_on)
		e->milli = -e->lent * 1000;
	else if (e->milli > (e->depth - e->lent) * 1000)
		e->milli = (e->depth - e->lent) * 1000;
	same(b, e, 1);
}

static void set(struct gate *g, struct fuzz *f)
{
	int wild = fuzz_below(f, 4) == 0;
	struct tg_cap_terms *t = &g->terms;

	t->hard_ppt = fuzz_below(f, 8) == 0 ? TG_CAP_NONE
		      : wild		    ? (tg_u32)fuzz_any(f)
					    : (tg_u32)fuzz_between(f, 1, 4000);
	t->soft_ppt = fuzz_below(f, 2) == 0 ? TG_CAP_NONE
		      : wild		    ? (tg_u32)fuzz_any(f)
					    : (tg_u32)fuzz_between(f, 0, 1000);
	t->granularity_ns = wild ? fuzz_any(f) : GRANULARITY_NS;
	g->start = g->filled = g->used = 0;
	for (int i = 0; i < TASKS; i++) {
		struct task *task = &g->tasks[i];
		struct tg_cap old = task->cap;

		if (!task->alive)
			continue;
		tg_cap_set(&task->cap, t, g->now);
		exact_set(&task->hard, &old.hard, &task->cap.hard, (old.on & TG_CAP_HARD) != 0,
			  (task->cap.on & TG_CAP_HARD) != 0, g->now);
		exact_set(&task->soft, &old.soft, &task->cap.soft, (old.on & TG_CAP_SOFT) != 0,
			  (task->cap.on & TG_CAP_SOFT) != 0, g->now);
		if (task->cap.on & TG_CAP_HARD)
			g->start += task->hard.milli + task->hard.lent * 1000;
	}
	g->start -= (tg_wide)g->family.hard_debt_ns * 1000;
}

static tg_u32 state(struct gate *g, struct task *task)
{
	tg_u32 expected = TG_CAP_RUN, got;
	struct tg_cap_family family = g->family;

	if (task->cap.on & TG_CAP_HARD) {
		exact_fill(&task->hard, g->now);
		exact_pay(&task->hard, &family.hard_debt_ns);
		if (floor_ns(task->hard.milli) <= 0)
			expected = TG_CAP_PARKED;
	}
	if (task->cap.on & TG_CAP_SOFT && expected == TG_CAP_RUN) {
		exact_fill(&task->soft, g->now);
		exact_pay(&task->soft, &family.soft_debt_ns);
		if (floor_ns(task->soft.milli) <= 0)
			expected = TG_CAP_BACKGROUND;
	}
	got = tg_cap_state(&task->cap, &g->family, g->now, 0);
	CHECK(got == expected);
	CHECK(g->family.hard_debt_ns == family.hard_debt_ns);
	CHECK(g->family.soft_debt_ns == family.soft_debt_ns);
	return got;
}

static int paid_bucket(const tg_u64 *before, const tg_u64 *after, const struct tg_cap_bucket *b)
{
	return *before - *after == b->depth_ns;
}

/*
 * If nothing else happens: no better before the time it says, and at it better, or
 * a debt larger than the bucket is less by a whole bucket.
 */
static void check_ready(const struct gate *g, const struct task *task, tg_u32 now)
{
	tg_u64 ready = tg_cap_ready_at_ns(&task->cap, &g->family, 1);
	struct tg_cap_family family = g->family;
	struct tg_cap later = task->cap;

	/* While something is lent, it may be full before it holds what is wanted. */
	if (now == TG_CAP_RUN || ready == TG_CAP_NEVER || ready == 0 || task->hard.lent ||
	    task->soft.lent)
		return;
	CHECK(tg_cap_state(&later, &family, ready - 1, 0) >= now);
	family = g->family;
	later = task->cap;
	if (tg_cap_state(&later, &family, ready, 0) < now)
		return;
	CHECK(now == TG_CAP_PARKED
		  ? paid_bucket(&g->family.hard_debt_ns, &family.hard_debt_ns, &task->cap.hard)
		  : paid_bucket(&g->family.soft_debt_ns, &family.soft_debt_ns, &task->cap.soft));
}

static void run(struct gate *g, struct task *task, tg_u64 ns, tg_u32 is)
{
	tg_u32 now = state(g, task);
	int charged = !(is & (TG_CAP_IS_RT | TG_CAP_IS_KTHREAD)), background;

	check_ready(g, task, now);
	CHECK(tg_cap_state(&task->cap, &g->family, g->now, is ? is : TG_CAP_IS_RT) == TG_CAP_RUN);
	if (now == TG_CAP_PARKED && !is)
		return;
	background = now == TG_CAP_BACKGROUND;
	if (task->cap.on & TG_CAP_HARD) {
		exact_fill(&task->hard, g->now);
		if (charged)
			exact_use_loan(&task->hard, task->loan.hard_ns, ns);
		g->used += charged ? (tg_wide)ns * 1000 : 0;
		if (floor_ns(task->hard.milli) == -TG_CAP_DEBT_MAX || ns > TG_CAP_DEBT_MAX)
			g->saturated = 1;
	}
	if (task->cap.on & TG_CAP_SOFT) {
		tg_wide level;

		exact_fill(&task->soft, g->now);
		level = floor_ns(task->soft.milli);
		if (charged && !background)
			exact_use_loan(&task->soft, task->loan.soft_ns, ns);
		else if (charged && level > 0)
			exact_use_loan(&task->soft, task->loan.soft_ns,
				       level < (tg_wide)ns ? (tg_u64)level : ns);
	}
	tg_cap_charge(&task->cap, &task->loan, ns, g->now, background, is);
}

static void give_back(struct task *task)
{
	exact_borrow(&task->hard, -(tg_wide)task->loan.hard_ns);
	exact_borrow(&task->soft, -(tg_wide)task->loan.soft_ns);
	tg_cap_return(&task->cap, &task->loan);
}

/* A run borrows; one on the whole of it leaves no more debt than the least loan. */
static void lend(struct gate *g, struct task *task, int background)
{
	int soft = (task->cap.on & TG_CAP_SOFT) && !background;
	tg_wide left, before;
	tg_u64 run_ns;

	give_back(task);
	if (task->cap.on & TG_CAP_HARD)
		exact_fill(&task->hard, g->now);
	before = floor_ns(task->hard.milli);
	if (soft && (!(task->cap.on & TG_CAP_HARD) || before > 0))
		exact_fill(&task->soft, g->now);
	run_ns = tg_cap_lend(&task->cap, &task->loan, g->now, background, LEAST_NS, LEND_NS);
	if (run_ns == TG_CAP_NEVER || run_ns == 0) {
		CHECK(task->loan.hard_ns == 0 && task->loan.soft_ns == 0);
		CHECK(run_ns == 0 || !(soft || (task->cap.on & TG_CAP_HARD)));
		return;
	}
	CHECK(run_ns >= LEAST_NS && run_ns <= TG_CAP_LOAN_MAX_NS);
	CHECK(task->loan.hard_ns == (task->cap.on & TG_CAP_HARD ? run_ns : 0));
	CHECK(task->loan.soft_ns == (soft ? run_ns : 0));
	exact_borrow(&task->hard, task->loan.hard_ns);
	exact_borrow(&task->soft, task->loan.soft_ns);
	if (!(task->cap.on & TG_CAP_HARD))
		return;
	CHECK(before > 0);
	left = before * 1000 - (tg_wide)run_ns * (1000 - task->hard.rate);
	CHECK(left > -(tg_wide)LEAST_NS * 1000 || task->hard.rate >= 1000);
}

static void fork_task(struct gate *g, struct task *parent, struct task *child, tg_u32 is)
{
	tg_wide before, after;
	int own = g->terms.scope == TG_CAP_TASK ||
		  (g->terms.scope == TG_CAP_PROCESS && is == TG_CAP_IS_NEW_PROCESS);

	if (child->alive || !parent->alive)
		return;
	CHECK(tg_cap_fork(&parent->cap, &child->cap, g->now, is) == own);
	if (!own)
		return;
	exact_fill(&parent->hard, g->now);
	exact_fill(&parent->soft, g->now);
	child->alive = 1;
	child->hard = parent->hard;
	child->soft = parent->soft;
	child->hard.lent = child->soft.lent = 0;
	child->loan = (struct tg_cap_loan){0};
	before = parent->hard.milli;
	parent->hard.milli = (tg_wide)parent->cap.hard.level_ns * 1000 + parent->cap.hard.carry_ppt;
	child->hard.milli = (tg_wide)child->cap.hard.level_ns * 1000 + child->cap.hard.carry_ppt;
	after = parent->hard.milli + child->hard.milli;
	/* Nothing is gained, a debt stays whole, and what there is is shared evenly. */
	if (parent->cap.on & TG_CAP_HARD)
		CHECK(after == before && parent->hard.milli - child->hard.milli < 2000);
	before = parent->soft.milli;
	parent->soft.milli = (tg_wide)parent->cap.soft.level_ns * 1000 + parent->cap.soft.carry_ppt;
	child->soft.milli = (tg_wide)child->cap.soft.level_ns * 1000 + child->cap.soft.carry_ppt;
	if (parent->cap.on & TG_CAP_SOFT)
		CHECK(parent->soft.milli + child->soft.milli == before);
}

static void leave(struct gate *g, struct task *task)
{
	tg_u64 debt = g->family.hard_debt_ns;
	tg_wide owed;

	if (!task->alive || g->terms.scope == TG_CAP_GROUP)
		return;
	give_back(task);
	exact_fill(&task->hard, g->now);
	owed = task->cap.on & TG_CAP_HARD ? -floor_ns(task->hard.milli) : 0;
	tg_cap_leave(&task->cap, &g->family, g->now);
	CHECK(g->family.hard_debt_ns ==
	      tg_min(debt + (owed > 0 ? (tg_u64)owed : 0), TG_CAP_DEBT_MAX));
	task->alive = 0;
	task->cap = (struct tg_cap){0};
}

static void check(struct gate *g)
{
	tg_wide now = -(tg_wide)g->family.hard_debt_ns * 1000;

	for (int i = 0; i < TASKS; i++) {
		const struct task *task = &g->tasks[i];

		if (!task->alive)
			continue;
		same(&task->cap.hard, &task->hard, (task->cap.on & TG_CAP_HARD) != 0);
		same(&task->cap.soft, &task->soft, (task->cap.on & TG_CAP_SOFT) != 0);
		if (task->cap.on & TG_CAP_HARD)
			now += task->hard.milli + task->hard.lent * 1000;
	}
	if (g->family.hard_debt_ns == TG_CAP_DEBT_MAX)
		g->saturated = 1;
	/* Nothing is used that was not filled in. */
	if (!g->saturated)
		CHECK(g->used + now <= g->start + g->filled);
}

int LLVMFuzzerTestOneInput(const tg_u8 *data, size_t size)
{
	struct fuzz f = {data, size};
	struct gate g = {0};

	g.now = fuzz_any(&f) >> 1;
	g.terms.scope = (tg_u32)fuzz_below(&f, 3);
	g.tasks[0].alive = 1;
	set(&g, &f);
	while (f.left > 0) {
		tg_u64 what = fuzz_take(&f, 1), dt, ns;
		struct task *task = &g.tasks[(what >> 3) % TASKS];

		switch (what & 7) {
		case 0:
		case 1:
			dt = what & 1 ? fuzz_any(&f) >> 14 : fuzz_between(&f, 0, 30000000);
			for (int i = 0; i < TASKS; i++)
				if (g.tasks[i].alive && g.tasks[i].cap.on & TG_CAP_HARD)
					g.filled += (tg_wide)dt * g.tasks[i].hard.rate;
			g.now += dt;
			break;
		case 2:
			ns = fuzz_between(&f, 0, GRANULARITY_NS);
			if (task->alive)
				run(&g, task, ns, 0);
			break;
		case 3:
			if (task->alive)
				lend(&g, task, (int)fuzz_below(&f, 2));
			break;
		case 4:
			ns = fuzz_any(&f);
			if (task->alive)
				run(&g, task, ns, 1U << fuzz_below(&f, 3));
			break;
		case 5:
			fork_task(&g, task, &g.tasks[fuzz_below(&f, TASKS)],
				  fuzz_below(&f, 2) ? TG_CAP_IS_NEW_PROCESS : 0);
			break;
		case 6:
			leave(&g, task);
			break;
		default:
			set(&g, &f);
		}
		if (g.now >> 62)
			return 0;
		check(&g);
	}
	return 0;
}
