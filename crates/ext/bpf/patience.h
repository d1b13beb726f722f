/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Patience: nobody who can run waits for longer than about 10 s, whatever weights say.
 *
 * The kernel ejects a scheduler that leaves a task waiting for 30 s. Weights alone do not keep it
 * from that: a task of a ten-thousandth of the CPU has its slice of a millisecond every ten
 * seconds, and flat weights (tree.h) go down to a 65536th. So twice a second, while anybody waits,
 * a timer looks through the queues. Whoever has waited for PARK_PATIENCE_NS goes to the front for a
 * visit of PARK_VISIT_NS: 5 millionths of a CPU for each such task, charged as any run, so shares
 * stay what weights say in the long run. Who has waited inside the kernel for a second has a visit
 * of 1 ms, here and where a quota or cap keeps him (grace.h).
 *
 * The same look finds who waits as what it is not any more: a task whose gate has another class by
 * now, and side or background work that is being killed. And those that wait on a CPU that goes: it
 * takes nobody from a queue of ours any more, and the kernel waits until nobody is left on it. In
 * the CPU's own queue the kernel takes them elsewhere, be it against their affinity.
 */
#ifndef TIDEGATE_EXT_PATIENCE_H
#define TIDEGATE_EXT_PATIENCE_H

#include "lost.h"

/* Before all others that were brought forward (DOOR_FRONT); ages are below 2^45 ns. */
#define PATIENCE_FRONT (1ULL << 47)
/* Tasks of a queue that are looked at; in turn from its beginning and from its end, where those of
 * tiny weights are. */
#define PATIENCE_LOOKS 4096
/* One that was preempted as a reader of RCU holds up the whole machine's grace periods, which the
 * kernel ejects for after 21 s. */
#define PATIENCE_READER_NS 1000000000ULL
/* After this many looks at empty queues the timer stops. */
#define PATIENCE_CALM 4

enum patience_verdict { PATIENCE_FINE, PATIENCE_VISIT, PATIENCE_TURNED };

/*
 * What is to become of a task that waits; its kind is put right at once. Being in the background is
 * for its caps to say. Global, as all here, so that the verifier walks it once.
 */
u32 patience_judge(struct task_ctx *t NONNULL, u32 exempt, u32 reads, u32 inside, u64 now)
{
	u32 kind = t->kind;

	reads = reads && tg_sub0(now, t->since_ns) >= PATIENCE_READER_NS;
	inside = inside && !exempt && !reads && grace_give(t);
	if (exempt || reads || (inside && kind == EXT_BACKGROUND)) {
		kind = EXT_MAIN;
	} else if (t->generation != gates_generation()) {
		struct group *g = group_of_task(t);

		if (g && g->generation != gates_generation())
			group_resolve(t->group, gates_generation());
		if (g && (g->kind == EXT_SIDE || kind == EXT_SIDE))
			kind = g->kind;
	}
	if (kind != t->kind) {
		if (!hold_turn(t, kind, now))
			return PATIENCE_FINE;
		/* A reader is looked at anew when it has run (door_renew). */
		t->generation = exempt ? t->generation : 0;
		return PATIENCE_TURNED;
	}
	if (reads || inside)
		return PATIENCE_VISIT;
	if (!park_due(t, now))
		return PATIENCE_FINE;
	t->floor = PARK_VISIT_NS;
	return PATIENCE_VISIT;
}

/*
 * A CPU that begins to go waits for the readers of RCU before it tells of itself, and takes nobody
 * from its queue meanwhile: a reader that waits in that is handed to the kernel as well.
 */
u32 patience_stuck(struct task_ctx *t NONNULL, u64 dsq, u32 cpu, u32 reads, u64 now)
{
	return reads && tg_sub0(now, t->since_ns) >= PATIENCE_READER_NS &&
	       (dsq == dsq_pinned(cpu, EXT_MAIN) || dsq == dsq_pinned(cpu, EXT_SIDE));
}

/* One queue of a line. True: somebody waits in it. */
u32 patience_look(u64 dsq, u32 line, u64 flags, u64 now)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	struct task_ctx *t;
	struct line *l = line_at(line);
	struct ledger_cpu *s;
	u64 front = l ? line_v(l) - PATIENCE_FRONT : 0, to, at;
	u32 look, verdict;
	s32 cpu;
	EXT_RCU;

	if (!l || scx_bpf_dsq_nr_queued(dsq) <= 0)
		return false;
	if (!bpf_iter_scx_dsq_new(&it, dsq, flags)) {
		EXT_FOR(look, PATIENCE_LOOKS)
		{
			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			cpu = scx_bpf_task_cpu(p);
			s = ledger_at(cpu);
			t = task_of(p);
			if ((s && s->gone) ||
			    (t && patience_stuck(t, dsq, cpu, park_reads(p), now))) {
				dsq_move(&it, p, SCX_DSQ_LOCAL_ON | cpu);
				scx_bpf_kick_cpu(cpu, 0);
				continue;
			}
			if (!t)
				continue;
			verdict = patience_judge(t, group_exempt(p), park_reads(p),
						 grace_inside(p, t, GRACE_AFTER_NS, now), now);
			if (verdict == PATIENCE_FINE)
				continue;
			to = dsq;
			at = front - tg_min(tg_sub0(now, t->since_ns), 1ULL << 45);
			if (verdict == PATIENCE_TURNED) {
				to = door_queue(p, t, cpu);
				at = t->deadline - (t->floor ? PATIENCE_FRONT : 0);
			}
			/* A CPU that is busy sees it at its next tick; one may be idle because the
			 * tide was against it. */
			cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
			dsq_move_vtime(&it, p, to, at);
			/* Moved or not: nobody else finds that CPU idle until it has
			 * looked. */
			if (cpu >= 0)
				scx_bpf_kick_cpu(cpu, CONST(scx_kick_flags, SCX_KICK_IDLE));
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return true;
}

/* Whom a quota (of that limit) or a cap (0) keeps, in one queue: those that wait inside the kernel
 * are let go. */
int patience_parked(u64 dsq, u32 limit, u64 now)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	struct task_ctx *t;
	u32 look;
	EXT_RCU;

	if (scx_bpf_dsq_nr_queued(dsq) <= 0)
		return 0;
	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		EXT_FOR(look, PATIENCE_LOOKS)
		{
			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			t = task_of(p);
			if (!t || !grace_inside(p, t, GRACE_AFTER_NS, now))
				continue;
			if (limit ? !limit_graces(limit, now) : !hold_graces(t->holder, now))
				continue;
			t->floor = GRACE_NS;
			if (!limit) {
				hold_counts_visit(t);
				hold_counts_parked(t, now);
			}
			park_let_go(&it, p, t, now);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return 0;
}

/* The queues of a cache. */
u32 patience_cache(u32 llc, u64 flags, u64 now)
{
	u32 waits = false;

	grace_begin(config.cpus / config.llcs + 1);
	for (u32 kind = 0; kind < EXT_KINDS; kind++) {
		u32 line = line_index(llc, kind);

		waits |= patience_look(dsq_wide(line), line, flags, now);
		waits |= patience_look(dsq_narrow(line), line, flags, now);
	}
	patience_parked(dsq_held(llc), 0, now);
	return waits;
}

/* The queues of one CPU. */
u32 patience_cpu(u32 cpu, u64 flags, u64 now)
{
	struct ext_cpu *c = cpu_at(cpu);
	u32 llc = c ? c->llc : 0;

	grace_begin(1);
	return patience_look(dsq_pinned(cpu, EXT_MAIN), line_index(llc, EXT_MAIN), flags, now) |
	       patience_look(dsq_pinned(cpu, EXT_SIDE), line_index(llc, EXT_SIDE), flags, now);
}

u32 patience_waits; /* in this look, where the loops keep it */

/* All queues. */
u32 patience_all(u64 flags, u64 now)
{
	u32 at;

	patience_waits = 0;
	EXT_FOR(at, config.llcs)
	{
		if (patience_cache(at, flags, now))
			patience_waits = 1;
	}
	EXT_FOR(at, config.cpus)
	{
		if (config.cpus > 1 && patience_cpu(at, flags, now))
			patience_waits = 1;
	}
	EXT_FOR(at, limits_used)
	{
		patience_parked(dsq_parked(at + 1), at + 1, now);
	}
	return patience_waits;
}

static int patience_rings(void *map, u32 *key, struct patience *w)
{
	u64 now = now_ns();
	bool waits =
	    patience_all(w->looks++ & 1 ? CONST(scx_dsq_iter_flags, SCX_DSQ_ITER_REV) : 0, now);

	waits |= lost_look(now);
	w->calm = waits ? 0 : w->calm + 1;
	if (w->calm >= PATIENCE_CALM) {
		w->calm = 0;
		__sync_lock_test_and_set(&patience_on, 0);
		/* One who came meanwhile has seen the timer on, and not started it. */
		if ((!patience_all(0, now) && !lost_look(now)) ||
		    __sync_val_compare_and_swap(&patience_on, 0, 1))
			return 0;
	}
	patience_due_ns = now + PATIENCE_LOOK_NS;
	/* The next one that waits tries again. */
	if (bpf_timer_start(&w->timer, PATIENCE_LOOK_NS, 0))
		__sync_lock_test_and_set(&patience_on, 0);
	return 0;
}

/* Once, from `init` (as alarm_init). */
INLINE s32 patience_init(void)
{
	u32 zero = 0;
	struct patience *w = bpf_map_lookup_elem(&patiences, &zero);
	s32 failed;

	if (!w)
		return -ENOENT;
	failed = bpf_timer_init(&w->timer, &patiences, CLOCK_MONOTONIC);
	return failed ? failed : bpf_timer_set_callback(&w->timer, patience_rings);
}

/* ---- the visit itself ---- */

/* `running`: a visit ends by the CPU's alarm. */
INLINE void patience_begins(struct task_ctx *t, u32 cpu, u64 now)
{
	if (t->floor)
		alarm_by(cpu, now + t->floor, now);
}

INLINE void patience_charge(struct task_ctx *t, struct ext_cpu *c, u64 ran_ns)
{
	if (!t->floor)
		return;
	c->counts.visits++;
	c->counts.visit_ns += ran_ns;
}

/* It has had it. */
INLINE void patience_stop(struct task_ctx *t, u32 cpu)
{
	if (!t->floor)
		return;
	t->floor = 0;
	alarm_off(cpu);
}

#endif
