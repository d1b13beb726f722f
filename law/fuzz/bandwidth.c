/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * bandwidth.c - any interleaving of runs, idling, timers, moves and changes of
 * terms on three CPUs and two levels, against a ledger that keeps its own clock.
 *
 * The ledger knows of each group what was used and which turnovers were due; the
 * law must not have put in more than that, nor lost anything but what a full pool
 * cannot hold, and must keep its bound over every stretch since the last change.
 */
#include "bandwidth.h"
#include "bandwidth_kernel.h"
#include "bandwidth_tree.h"
#include "fuzz.h"

#define CPUS 3
#define GROUPS 4 /* the root, one group, two below it */
#define GRANULARITY_NS 4000000ULL

static const tg_u32 parents[GROUPS] = {0, 0, 1, 1};

struct ledger {
	tg_u64 due_ns;	      /* the next turnover */
	tg_u64 used_ns;	      /* since the terms last changed */
	tg_wide start;	      /* what pool and silos held then */
	tg_wide added;	      /* quotas of turnovers since */
	tg_wide missing;      /* of that, neither used nor there */
	int turned;	      /* a turnover was handled in this step */
	tg_u64 given, most;   /* in this period: put in, and the largest quota it had */
	tg_u64 length;	      /* of this period */
	tg_u64 slice_ns_most; /* the largest since the start */
};

struct machine {
	tg_u32 flags;
	tg_u64 now;
	struct tg_bw_pool pools[GROUPS];
	struct tg_bw_silo silos[CPUS][GROUPS];
	struct ledger ledgers[GROUPS];
};

static tg_wide total(const struct machine *m, tg_u32 group)
{
	tg_wide sum = m->pools[group].runtime_ns;

	for (int cpu = 0; cpu < CPUS; cpu++)
		sum += m->silos[cpu][group].remaining_ns;
	return sum;
}

static tg_wide held(const struct machine *m, tg_u32 group)
{
	tg_wide sum = m->pools[group].runtime_ns;

	for (int cpu = 0; cpu < CPUS; cpu++)
		if (m->silos[cpu][group].remaining_ns > 0)
			sum += m->silos[cpu][group].remaining_ns;
	return sum;
}

static void check_group(struct machine *m, tg_u32 group)
{
	const struct tg_bw_pool *p = &m->pools[group];
	struct ledger *l = &m->ledgers[group];
	tg_wide missing;
	tg_u32 stopped = 0;

	for (int cpu = 0; cpu < CPUS; cpu++) {
		const struct tg_bw_silo *s = &m->silos[cpu][group];

		CHECK(s->remaining_ns <= (tg_s64)l->slice_ns_most);
		CHECK(s->remaining_ns > -(tg_s64)GRANULARITY_NS);
		stopped += s->throttled;
	}
	CHECK(p->throttled == stopped);
	CHECK(p->nr_throttled <= p->nr_periods);
	if (!tg_bw_limited(p))
		return;
	CHECK(held(m, group) <= (tg_wide)tg_bw_most(p) + CPUS * l->slice_ns_most || l->added == 0);
	CHECK((tg_wide)l->used_ns <= l->start + l->added + CPUS * (tg_wide)GRANULARITY_NS);
	/* Exactly: what came in is used, there or owed; missing is what a full pool cut off or
	 * expired. */
	missing = l->start + l->added - l->used_ns - total(m, group);
	CHECK(missing >= l->missing);
	if (!l->turned && !(m->flags & TG_BW_EXPIRE))
		CHECK(missing == l->missing);
	l->missing = missing;
	if (!(m->flags & TG_BW_KERNEL))
		CHECK(l->given <= l->most);
}

/* Book the turnovers that the law has handled: those that were due, each with one quota. */
static void book(struct machine *m, tg_u32 group, const struct tg_bw_terms *terms)
{
	struct tg_bw_pool *p = &m->pools[group];
	struct ledger *l = &m->ledgers[group];
	tg_u64 n;

	if (terms->quota_ns == TG_BW_NONE || l->due_ns == p->turnover_ns)
		return;
	l->turned = 1;
	CHECK(l->due_ns <= m->now && p->turnover_ns > m->now);
	n = (m->now - l->due_ns) / terms->period_ns + 1;
	CHECK(p->turnover_ns == l->due_ns + n * terms->period_ns);
	l->due_ns = p->turnover_ns;
	l->given = l->most = terms->quota_ns;
	l->length = terms->period_ns;
	if (m->flags & TG_BW_KERNEL)
		n = 1;
	l->added += (tg_wide)n * terms->quota_ns;
}

static void distribute(struct machine *m, tg_u32 group, tg_u32 first)
{
	for (tg_u32 i = 0; i < CPUS; i++) {
		struct tg_bw_silo *s = &m->silos[(first + i) % CPUS][group];

		if (s->throttled && !tg_bw_distribute(&m->pools[group], s, m->now))
			CHECK(m->pools[group].runtime_ns == 0);
	}
}

static void run(struct machine *m, tg_u32 cpu, tg_u32 group, tg_u64 ran)
{
	tg_u64 parts[2] = {0, ran};

	for (int i = 0; i < 2; i++) {
		tg_u32 out;

		if (!tg_bw_may_run(m->silos[cpu], parents, GROUPS, group))
			return;
		out =
		    tg_bw_run_up(m->pools, m->silos[cpu], parents, GROUPS, group, parts[i], m->now);
		for (tg_u32 level = group; level != 0; level = parents[level])
			if (tg_bw_limited(&m->pools[level]))
				m->ledgers[level].used_ns += parts[i];
		if (out != TG_BW_ALL_RUN) {
			CHECK(out == group || out == parents[group]);
			CHECK(tg_bw_throttle(&m->pools[out], &m->silos[cpu][out], m->now));
			CHECK(m->pools[out].runtime_ns == 0);
			return;
		}
		for (tg_u32 level = group; level != 0; level = parents[level])
			CHECK(!tg_bw_limited(&m->pools[level]) ||
			      m->silos[cpu][level].remaining_ns > 0);
	}
}

/* A look at a throttled silo takes nothing, whatever the pool holds. */
static void account(struct machine *m, tg_u32 cpu, tg_u32 group)
{
	struct tg_bw_pool *p = &m->pools[group];
	struct tg_bw_silo *s = &m->silos[cpu][group];
	tg_s64 had = s->remaining_ns;
	tg_u64 runtime = p->runtime_ns;

	if (!s->throttled || !tg_bw_limited(p))
		return;
	CHECK(tg_bw_run(p, s, 0, m->now) == TG_BW_OUT || had > 0);
	CHECK(s->remaining_ns == had && p->runtime_ns == runtime);
	CHECK(tg_bw_throttle(p, s, m->now));
}

static struct tg_bw_terms terms_of(struct fuzz *f)
{
	struct tg_bw_terms t;
	int wild = fuzz_below(f, 4) == 0;

	t.quota_ns = fuzz_below(f, 16) == 0 ? TG_BW_NONE
		     : wild		    ? fuzz_any(f)
					    : fuzz_between(f, 1, 40000000);
	t.period_ns = wild ? fuzz_any(f) : (1 + fuzz_below(f, 4)) * 10000000;
	t.burst_ns = wild ? fuzz_any(f) : fuzz_between(f, 0, tg_min(t.quota_ns, 40000000));
	t.slice_ns = wild ? fuzz_any(f) : fuzz_between(f, 1, 20000000);
	return t;
}

/* After new terms the ledger starts again with what is there; the period goes on. */
static void set(struct machine *m, struct fuzz *f, tg_u32 group)
{
	struct tg_bw_pool *p = &m->pools[group];
	struct ledger *l = &m->ledgers[group];
	struct tg_bw_terms t = terms_of(f), old = p->terms;
	int was_limited = tg_bw_limited(p);
	tg_wide before = total(m, group);
	tg_u64 debts[CPUS];

	for (int cpu = 0; cpu < CPUS; cpu++)
		debts[cpu] = tg_abs(tg_min_s(m->silos[cpu][group].remaining_ns, 0));
	if (m->flags & TG_BW_KERNEL) {
		tg_bw_set_kernel(p, &t, m->now);
		for (int cpu = 0; cpu < CPUS; cpu++)
			tg_bw_forgive(p, &m->silos[cpu][group], m->now);
		l->due_ns = p->turnover_ns;
	} else {
		tg_bw_turnover(p, m->now);
		book(m, group, &old);
		before = total(m, group);
		tg_bw_set(p, &t, m->now);
		for (int cpu = 0; cpu < CPUS; cpu++)
			CHECK(tg_abs(tg_min_s(m->silos[cpu][group].remaining_ns, 0)) == debts[cpu]);
	}
	if (!tg_bw_limited(p)) {
		distribute(m, group, 0);
		CHECK(p->throttled == 0);
	} else if (!was_limited) {
		l->due_ns = p->turnover_ns;
		l->given = l->most = p->terms.quota_ns;
		l->length = p->terms.period_ns;
	} else if (!(m->flags & TG_BW_KERNEL)) {
		tg_wide gained = total(m, group) - before;

		CHECK(p->turnover_ns == l->due_ns);
		l->given += gained > 0 ? (tg_u64)gained : 0;
		if (l->length == p->terms.period_ns)
			l->most = tg_max(l->most, p->terms.quota_ns);
	}
	l->slice_ns_most = tg_max(l->slice_ns_most, p->terms.slice_ns);
	l->start = total(m, group);
	l->used_ns = 0;
	l->added = 0;
	l->missing = 0;
}

static void step(struct machine *m, struct fuzz *f)
{
	tg_u64 what = fuzz_take(f, 1);
	tg_u32 group = 1 + (tg_u32)(what >> 3) % (GROUPS - 1);
	tg_u32 cpu = (tg_u32)(what >> 5) % CPUS;
	struct tg_bw_pool *p = &m->pools[group];
	struct tg_bw_silo *s = &m->silos[cpu][group];

	switch (what & 7) {
	case 0:
		m->now += fuzz_between(f, 0, 40000000);
		break;
	case 1:
		m->now += fuzz_any(f) >> 20;
		break;
	case 2:
	case 3:
		run(m, cpu, group, fuzz_between(f, 0, GRANULARITY_NS));
		break;
	case 4:
		account(m, cpu, group);
		tg_bw_return(p, s);
		CHECK(!tg_bw_limited(p) || s->remaining_ns <= (tg_s64)TG_BW_KEEP_NS);
		break;
	case 5:
		if (tg_bw_active(p) || !(m->flags & TG_BW_KERNEL))
			tg_bw_turnover(p, m->now);
		distribute(m, group, cpu);
		break;
	case 6:
		tg_bw_slack_wanted(p, m->now);
		if (tg_bw_slack_due(p, m->now))
			distribute(m, group, cpu);
		break;
	default:
		set(m, f, group);
	}
}

int LLVMFuzzerTestOneInput(const tg_u8 *data, size_t size)
{
	static const tg_u32 flags[4] = {0, 0, TG_BW_KERNEL, TG_BW_EXPIRE};
	struct fuzz f = {data, size};
	struct machine m = {0};

	m.flags = flags[fuzz_below(&f, 4)];
	m.now = fuzz_any(&f) >> 1;
	for (tg_u32 group = 1; group < GROUPS; group++) {
		tg_bw_init(&m.pools[group], m.flags, 0);
		m.ledgers[group].slice_ns_most = 5000000;
		set(&m, &f, group);
	}
	while (f.left > 0 && m.now >> 62 == 0) {
		struct tg_bw_terms terms[GROUPS];
		int active[GROUPS];

		for (tg_u32 group = 1; group < GROUPS; group++) {
			terms[group] = m.pools[group].terms;
			active[group] = tg_bw_active(&m.pools[group]);
			m.ledgers[group].turned = 0;
		}
		step(&m, &f);
		for (tg_u32 group = 1; group < GROUPS; group++) {
			/* The kernel's stopped timer jumps to its grid's next point for nothing. */
			if (m.flags & TG_BW_KERNEL && !active[group])
				m.ledgers[group].due_ns = m.pools[group].turnover_ns;
			book(&m, group, &terms[group]);
			check_group(&m, group);
		}
	}
	return 0;
}
