/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The CPUs that run side work: as many as headroom_ctl.h allows, packed onto as few cores as will
 * do, so that the others stay whole.
 *
 *	side_cpu	the CPU counts in nr_side_cpus, which stays within side_cpus_allowed
 *	side_invited	it may become one though it would not by itself
 *	forced		side work runs there at main's cost until forced_ns
 *
 * A CPU for which main has no use becomes a side CPU by itself if that fills a core on which side
 * work is already; other CPUs are invited by the timer or by a waking side task, which see more of
 * the machine. Each step of the timer compares, so a lost event costs a step.
 */
#ifndef TIDEGATE_EXT_SIDE_CPUS_H
#define TIDEGATE_EXT_SIDE_CPUS_H

#include "queue/pick.h"

/* CPUs of a cache that a waking side task looks at, and threads of a core. */
#define SIDE_SCAN_MAX 16
#define SIDE_THREADS_MAX 8

/* What side work on a CPU costs. Global, so that the verifier walks it once. */
u32 side_rank(u32 cpu)
{
	struct ext_cpu *c = cpu_at(cpu);
	u32 at, rank = TG_SIDE_WHOLE_CORE;

	if (config.smt < 2)
		return TG_SIDE_FILLS_CORE;
	if (!c)
		return TG_SIDE_BESIDE_MAIN;
	at = c->next_in_core;
	for (int look = 0; look < SIDE_THREADS_MAX && at != cpu; look++) {
		struct cpu_time *s = cpu_time_at(at);

		c = cpu_at(at);
		if (!s || !c)
			return TG_SIDE_BESIDE_MAIN;
		if (s->side & STOPWATCH_RUNS)
			rank = TG_SIDE_FILLS_CORE;
		else if (!(s->idle & STOPWATCH_RUNS) && !s->offline)
			return TG_SIDE_BESIDE_MAIN;
		at = c->next_in_core;
	}
	return rank;
}

/* Whether the CPU may go on with side work, or begin; it becomes a side CPU. */
INLINE bool side_cpu_take(s32 cpu)
{
	struct cpu_time *s = cpu_time_at(cpu);
	s32 most = *(volatile u32 *)&side_cpus_allowed;

	if (!s)
		return false;
	if (s->side_cpu)
		return s->forced || *(volatile s32 *)&nr_side_cpus <= most;
	if (!s->forced) {
		if (*(volatile s32 *)&nr_side_cpus >= most)
			return false;
		if (!s->side_invited && side_rank(cpu))
			return false;
	}
	s->side_invited = 0;
	if (__sync_lock_test_and_set(&s->side_cpu, 1))
		return true;
	if (__sync_fetch_and_add(&nr_side_cpus, 1) < most || s->forced)
		return true;
	/* Another CPU was faster. */
	if (__sync_lock_test_and_set(&s->side_cpu, 0))
		__sync_fetch_and_add(&nr_side_cpus, -1);
	return false;
}

/* Side work has this CPU at main's cost now. */
INLINE bool side_comes_first(s32 cpu)
{
	return side_is_forced(cpu) && side_cpu_take(cpu);
}

/* Whether a task that wakes is side work; one that is not may be sent to an idle CPU at once. */
INLINE bool task_is_side(struct task_struct *p)
{
	struct ext_control *asked = ext_shared();
	struct task_ctx *t = asked && asked->side_gates ? task_of(p) : NULL;

	if (!t)
		return false;
	return group_kind(p, t) == EXT_SIDE;
}

INLINE void side_cpu_release(s32 cpu)
{
	struct cpu_time *s = headroom_on ? cpu_time_at(cpu) : NULL;

	if (s && s->side_cpu && __sync_lock_test_and_set(&s->side_cpu, 0))
		__sync_fetch_and_add(&nr_side_cpus, -1);
}

/*
 * A CPU runs a task from now on. A side task that did not come by `dispatch` (it was first in the
 * CPU's own queue when a higher class took the CPU) makes it a side CPU; the timer ends it if that
 * is one too many.
 */
INLINE void side_cpu_runs(s32 cpu, u32 kind, u64 now)
{
	struct cpu_time *s;

	if (!headroom_on)
		return;
	cpu_time_set_kind(cpu, kind, now);
	s = cpu_time_at(cpu);
	if (!s)
		return;
	if (kind != EXT_SIDE)
		side_cpu_release(cpu);
	else if (!s->side_cpu && !__sync_lock_test_and_set(&s->side_cpu, 1))
		__sync_fetch_and_add(&nr_side_cpus, 1);
}

/* Whether a waiting side task fits there. */
u32 side_fits(u32 cpu)
{
	struct ext_cpu *c = cpu_at(cpu);
	u32 llc;

	EXT_RCU;
	if (!c)
		return false;
	if (pick_head(cpu, c, EXT_SIDE).deadline)
		return true;
	if (config.llcs < 2)
		return false;
	EXT_FOR(llc, config.llcs)
	{
		if (scx_bpf_dsq_nr_queued(dsq_wide(runqueue_index(llc, EXT_SIDE))))
			return true;
	}
	return false;
}

INLINE void side_invite(s32 cpu, struct cpu_time *s)
{
	s->side_invited = 1;
	scx_bpf_kick_cpu(cpu, CONST(scx_kick_flags, SCX_KICK_IDLE));
}

/* An idle CPU for a side task: one that fills a core, a whole core, any; -1: there is none. */
static __attribute__((noinline)) s32 side_place(struct task_struct *p, u32 from)
{
	u32 at = from, look;
	s32 cpu;

	EXT_FOR(look, SIDE_SCAN_MAX)
	{
		struct cpu_time *s = cpu_time_at(at);
		struct ext_cpu *c = cpu_at(at);

		if (!s || !c)
			break;
		if ((s->idle & STOPWATCH_RUNS) && bpf_cpumask_test_cpu(at, p->cpus_ptr) &&
		    !side_rank(at))
			return at;
		at = c->next_in_llc;
		if (at == from)
			break;
	}
	cpu =
	    scx_bpf_pick_idle_cpu(p->cpus_ptr, CONST(scx_pick_idle_cpu_flags, SCX_PICK_IDLE_CORE));
	return cpu >= 0 ? cpu : scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
}

/* A side task waits: the best idle CPU takes it if the allowance has room. */
INLINE void side_wait(struct task_struct *p, struct task_ctx *t, s32 cpu, u64 flags)
{
	struct cpu_time *s;

	enqueue_wait(p, t, cpu, flags, false, now_ns());
	if (*(volatile s32 *)&nr_side_cpus >= (s32) * (volatile u32 *)&side_cpus_allowed)
		return;
	cpu = side_place(p, cpu);
	s = cpu < 0 ? NULL : cpu_time_at(cpu);
	if (s)
		side_invite(cpu, s);
}

/* ---- the timer's part ---- */

s32 side_surplus; /* what is still to be done in this step, where the loops keep it */
s32 side_spare;

/* A stretch at main's cost begins. */
INLINE void side_force_cpu(u32 cpu, struct cpu_time *s, u64 now)
{
	s->forced_ns = now + TG_SIDE_FORCED_NS;
	s->forced = 1;
	scx_bpf_kick_cpu(cpu, CONST(scx_kick_flags, SCX_KICK_PREEMPT));
}

/*
 * A CPU that runs no side work for two steps is no side CPU any more: a higher class has it, or it
 * is offline.
 */
INLINE void side_cpu_sweep(s32 cpu, struct cpu_time *s)
{
	if (!s->side_cpu || s->side & STOPWATCH_RUNS)
		s->unused_steps = 0;
	else if (++s->unused_steps > 2)
		side_cpu_release(cpu);
}

/*
 * Tasks that may not run everywhere may wait for CPUs that main never leaves, while other side work
 * has more than the floor: each has TG_SIDE_FORCED_NS three times (its slice) in TG_SIDE_ROUND_NS.
 * Others of the run queue have gone on meanwhile, so it is the first of them.
 */
INLINE void side_serve_few(u32 cpu, struct cpu_time *s, struct ext_cpu *c, u64 now)
{
	u64 waiting;

	if (config.cpus == 1)
		return;
	if (s->side & STOPWATCH_RUNS) {
		s->side_served_ns = now;
		return;
	}
	/* At most all side tasks wait here: until that many could be due, the queues need no look.
	 */
	if (tg_sub0(now, s->side_served_ns) < TG_SIDE_ROUND_NS / 3 / tg_max(side_members_now(), 1))
		return;
	waiting = tg_max(scx_bpf_dsq_nr_queued(dsq_pinned(cpu, EXT_SIDE)), 0) +
		  tg_max(scx_bpf_dsq_nr_queued(dsq_narrow(runqueue_index(c->llc, EXT_SIDE))), 0);
	if (!waiting) {
		s->side_served_ns = now;
		return;
	}
	if (tg_sub0(now, s->side_served_ns) < TG_SIDE_ROUND_NS / 3 / waiting)
		return;
	s->side_served_ns = now;
	side_force_cpu(cpu, s, now);
}

/* Ends stretches at main's cost, and lets main in where it waits. */
int side_settle(u64 now)
{
	u32 cpu;

	EXT_RCU;
	EXT_FOR(cpu, config.cpus)
	{
		struct cpu_time *s = cpu_time_at(cpu);
		struct ext_cpu *c = cpu_at(cpu);

		if (!s || !c)
			break;
		if (s->forced && s->forced_ns <= now)
			s->forced = 0;
		side_cpu_sweep(cpu, s);
		if (s->offline) {
			s->side_served_ns = now;
			continue;
		}
		side_serve_few(cpu, s, c, now);
		if (!(s->side & STOPWATCH_RUNS) || s->forced)
			continue;
		if (pick_head(cpu, c, EXT_MAIN).deadline)
			scx_bpf_kick_cpu(cpu, CONST(scx_kick_flags, SCX_KICK_PREEMPT));
	}
	return 0;
}

/* Takes CPUs from side work: first those that cost most. */
int side_cut(u32 rank)
{
	u32 cpu;

	EXT_FOR(cpu, config.cpus)
	{
		struct cpu_time *s = cpu_time_at(cpu);

		if (!s || side_surplus <= 0)
			break;
		if (!(s->side & STOPWATCH_RUNS) || s->forced || side_rank(cpu) != rank)
			continue;
		side_surplus--;
		scx_bpf_kick_cpu(cpu, CONST(scx_kick_flags, SCX_KICK_PREEMPT));
	}
	return 0;
}

/* Gives idle CPUs to side work: first those that cost least; each step begins at another. */
int side_give(u32 rank)
{
	u32 step;

	EXT_FOR(step, config.cpus)
	{
		u32 cpu = (headroom.turn + step) % config.cpus;
		struct cpu_time *s = cpu_time_at(cpu);

		if (!s || side_spare <= 0)
			break;
		if (!(s->idle & STOPWATCH_RUNS) || s->side_cpu || side_rank(cpu) != rank ||
		    !side_fits(cpu))
			continue;
		side_spare--;
		side_invite(cpu, s);
	}
	return 0;
}

/* Side work gets its floor at main's cost, on each CPU in turn. */
int side_force(u64 now)
{
	u32 step;

	EXT_FOR(step, config.cpus)
	{
		u32 cpu = (headroom.turn + step) % config.cpus;
		struct cpu_time *s = cpu_time_at(cpu);

		if (!s)
			break;
		if (s->offline || !side_fits(cpu))
			continue;
		headroom.turn = cpu;
		side_force_cpu(cpu, s, now);
		break;
	}
	return 0;
}

/* Has the CPUs that run side work agree with what is allowed. */
INLINE void side_cpus_adjust(u64 now)
{
	s32 now_held = *(volatile s32 *)&nr_side_cpus;

	headroom.turn = config.cpus > 1 ? (headroom.turn + 1) % config.cpus : 0;
	side_settle(now);
	side_surplus = now_held - (s32)side_cpus_allowed;
	side_spare = tg_min(side_waiting(), side_surplus < 0 ? -side_surplus : 0);
	for (u32 rank = 0; rank < 3 && (rank == 0 || config.smt > 1); rank++) {
		if (side_surplus > 0)
			side_cut(config.smt > 1 ? 2 - rank : 0);
		else if (side_spare > 0)
			side_give(rank);
	}
	if (tg_side_owed(&headroom.credit) && !headroom.runs && side_waiting())
		side_force(now);
}

static int headroom_timer_fires(void *map, u32 *key, struct headroom_timer *slice_timer)
{
	u64 now = now_ns();

	headroom.fired_ns = now;
	headroom_step(now);
	side_cpus_adjust(now);
	if (headroom_goes_on(now) && bpf_timer_start(&slice_timer->timer, headroom_step_ns(), 0))
		__sync_lock_test_and_set(&headroom_on, 0);
	return 0;
}

INLINE int side_init(void)
{
	u32 zero = 0;
	struct headroom_timer *slice_timer = bpf_map_lookup_elem(&headroom_timers, &zero);

	if (!slice_timer || bpf_timer_init(&slice_timer->timer, &headroom_timers, CLOCK_MONOTONIC))
		return -ENOMEM;
	return bpf_timer_set_callback(&slice_timer->timer, headroom_timer_fires);
}

#endif
