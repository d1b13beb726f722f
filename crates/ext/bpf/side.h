/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which CPUs run side work: as many as the tide allows, packed onto as few cores as will do, so
 * that the others stay whole. crates/sim/src/sched/ext/side.rs is the same in Rust.
 *
 * A CPU that runs side work holds a seat, of which there are tide_cpus. A CPU for which main has no
 * use takes one if it would fill a core that side work is on already; for others the timer or a
 * waking side task chooses, who see more of the machine, and invite it. The timer has seats and
 * CPUs agree: a level, looked at each time, not an edge.
 */
#ifndef TIDEGATE_EXT_SIDE_H
#define TIDEGATE_EXT_SIDE_H

#include "door.h"

/* How long the tolerance is taken from main at a time. */
#define SIDE_FORCED_NS 1000000ULL
/* CPUs of a cache that a waking side task looks at, and threads of a core. */
#define SIDE_LOOKS 16
#define SIDE_THREADS_MAX 8

/* What side work on a CPU costs: 0 fills a core that side work is on, 1 takes a whole core, 2 sits
 * beside main. Global, so that the verifier walks it once. */
u32 side_rank(u32 cpu)
{
	struct ext_cpu *c = cpu_at(cpu);
	u32 at, rank = 1;

	if (config.smt < 2)
		return 0;
	if (!c)
		return 2;
	at = c->next_in_core;
	for (int look = 0; look < SIDE_THREADS_MAX && at != cpu; look++) {
		struct ledger_cpu *s = ledger_at(at);

		c = cpu_at(at);
		if (!s || !c)
			return 2;
		if (s->side & LEDGER_RUNS)
			rank = 0;
		else if (!(s->idle & LEDGER_RUNS))
			return 2;
		at = c->next_in_core;
	}
	return rank;
}

/* Whether the CPU may go on with side work, or begin; takes the seat. */
INLINE bool side_may(s32 cpu)
{
	struct ledger_cpu *s = ledger_at(cpu);
	s32 most = *(volatile u32 *)&tide_cpus;

	if (!s)
		return false;
	if (s->seat)
		return s->forced || *(volatile s32 *)&side_seats <= most;
	if (!s->forced) {
		if (*(volatile s32 *)&side_seats >= most)
			return false;
		if (!s->invited && side_rank(cpu))
			return false;
	}
	s->invited = 0;
	if (__sync_lock_test_and_set(&s->seat, 1))
		return true;
	if (__sync_fetch_and_add(&side_seats, 1) < most || s->forced)
		return true;
	/* Another CPU was faster. */
	if (__sync_lock_test_and_set(&s->seat, 0))
		__sync_fetch_and_add(&side_seats, -1);
	return false;
}

/* Side work has this CPU at main's cost now. */
INLINE bool side_first(s32 cpu)
{
	return ledger_forced(cpu) && side_may(cpu);
}

/* Whether a task that wakes is side work; one that is not may be sent to an idle CPU at once. */
INLINE bool side_is(struct task_struct *p)
{
	u32 zero = 0;
	struct ext_control *asked = bpf_map_lookup_elem(&control, &zero);
	struct task_ctx *t = asked && asked->side_gates ? task_of(p) : NULL;

	if (!t)
		return false;
	return group_kind(p, t) == EXT_SIDE;
}

INLINE void side_rise(s32 cpu)
{
	struct ledger_cpu *s = tide_on ? ledger_at(cpu) : NULL;

	if (s && s->seat && __sync_lock_test_and_set(&s->seat, 0))
		__sync_fetch_and_add(&side_seats, -1);
}

/* A CPU runs a task from now on. One that came there past the door (it was first in the CPU's own
 * queue when a higher class took the CPU) is seated; the timer sees to it if that is one too many.
 */
INLINE void side_runs(s32 cpu, u32 kind, u64 now)
{
	struct ledger_cpu *s;

	if (!tide_on)
		return;
	ledger_runs(cpu, kind, now);
	s = ledger_at(cpu);
	if (!s)
		return;
	if (kind != EXT_SIDE)
		side_rise(cpu);
	else if (!s->seat && !__sync_lock_test_and_set(&s->seat, 1))
		__sync_fetch_and_add(&side_seats, 1);
}

/* Does some waiting side task fit there? */
u32 side_fits(u32 cpu)
{
	struct ext_cpu *c = cpu_at(cpu);
	u32 llc;

	EXT_RCU;
	if (!c)
		return false;
	if (door_head(cpu, c, EXT_SIDE).deadline)
		return true;
	if (config.llcs < 2)
		return false;
	EXT_FOR(llc, config.llcs)
	{
		if (scx_bpf_dsq_nr_queued(dsq_wide(line_index(llc, EXT_SIDE))))
			return true;
	}
	return false;
}

INLINE void side_invite(s32 cpu, struct ledger_cpu *s)
{
	s->invited = 1;
	scx_bpf_kick_cpu(cpu, CONST(scx_kick_flags, SCX_KICK_IDLE));
}

/* An idle CPU for a side task: one that fills a core, a whole core, any; -1: there is none. */
static __attribute__((noinline)) s32 side_place(struct task_struct *p, u32 from)
{
	u32 at = from, look;
	s32 cpu;

	EXT_FOR(look, SIDE_LOOKS)
	{
		struct ledger_cpu *s = ledger_at(at);
		struct ext_cpu *c = cpu_at(at);

		if (!s || !c)
			break;
		if ((s->idle & LEDGER_RUNS) && bpf_cpumask_test_cpu(at, p->cpus_ptr) &&
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

/* A side task is put in line: the best idle CPU takes it if the tide allows. */
INLINE void side_wait(struct task_struct *p, struct task_ctx *t, s32 cpu, u64 flags)
{
	struct ledger_cpu *s;

	door_wait(p, t, cpu, flags, false, now_ns());
	if (*(volatile s32 *)&side_seats >= (s32) * (volatile u32 *)&tide_cpus)
		return;
	cpu = side_place(p, cpu);
	s = cpu < 0 ? NULL : ledger_at(cpu);
	if (s)
		side_invite(cpu, s);
}

/* ---- the timer's part ---- */

s32 side_surplus; /* what is still to be done in this step, where the loops keep it */
s32 side_spare;

/* A stretch at main's cost begins. */
INLINE void side_take(u32 cpu, struct ledger_cpu *s, u64 now)
{
	s->forced_ns = now + SIDE_FORCED_NS;
	s->forced = 1;
	side_forces++;
	scx_bpf_kick_cpu(cpu, CONST(scx_kick_flags, SCX_KICK_PREEMPT));
}

/* A seat that nobody sits on for two steps is free: a higher class has the CPU, or it is gone. */
INLINE void side_sweep(s32 cpu, struct ledger_cpu *s)
{
	if (!s->seat || s->side & LEDGER_RUNS)
		s->empty = 0;
	else if (++s->empty > 2)
		side_rise(cpu);
}

/*
 * Tasks that may not run everywhere may wait for CPUs that main never leaves, while other side work
 * has more than the floor: each gets a visit of SIDE_FORCED_NS three times (its slice) in
 * TIDE_ROUND_NS. Others of the line have gone on meanwhile, so it is the first of them.
 */
INLINE void side_feed(u32 cpu, struct ledger_cpu *s, struct ext_cpu *c, u64 now)
{
	u64 waiting;

	if (config.cpus == 1)
		return;
	waiting = tg_max(scx_bpf_dsq_nr_queued(dsq_pinned(cpu, EXT_SIDE)), 0) +
		  tg_max(scx_bpf_dsq_nr_queued(dsq_narrow(line_index(c->llc, EXT_SIDE))), 0);
	if (!waiting || s->side & LEDGER_RUNS) {
		s->fed_ns = now;
		return;
	}
	if (tg_sub0(now, s->fed_ns) < TIDE_ROUND_NS / 3 / waiting)
		return;
	s->fed_ns = now;
	side_take(cpu, s, now);
}

/* Ends stretches at main's cost, and lets main in where it waits. */
int side_settle(u64 now)
{
	u32 cpu;

	EXT_RCU;
	EXT_FOR(cpu, config.cpus)
	{
		struct ledger_cpu *s = ledger_at(cpu);
		struct ext_cpu *c = cpu_at(cpu);

		if (!s || !c)
			break;
		if (s->forced && s->forced_ns <= now)
			s->forced = 0;
		side_sweep(cpu, s);
		side_feed(cpu, s, c, now);
		if (!(s->side & LEDGER_RUNS) || s->forced)
			continue;
		if (door_head(cpu, c, EXT_MAIN).deadline)
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
		struct ledger_cpu *s = ledger_at(cpu);

		if (!s || side_surplus <= 0)
			break;
		if (!(s->side & LEDGER_RUNS) || s->forced || side_rank(cpu) != rank)
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
		u32 cpu = (tide.turn + step) % config.cpus;
		struct ledger_cpu *s = ledger_at(cpu);

		if (!s || side_spare <= 0)
			break;
		if (!(s->idle & LEDGER_RUNS) || s->seat || side_rank(cpu) != rank ||
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
		u32 cpu = (tide.turn + step) % config.cpus;
		struct ledger_cpu *s = ledger_at(cpu);

		if (!s)
			break;
		if (!side_fits(cpu))
			continue;
		tide.turn = cpu;
		side_take(cpu, s, now);
		break;
	}
	return 0;
}

/* Has the CPUs that run side work agree with what is allowed. */
INLINE void side_level(u64 now)
{
	s32 seats = *(volatile s32 *)&side_seats;

	tide.turn = config.cpus > 1 ? (tide.turn + 1) % config.cpus : 0;
	side_settle(now);
	side_surplus = seats - (s32)tide_cpus;
	side_spare = tg_min(tide_waiting(), side_surplus < 0 ? -side_surplus : 0);
	for (u32 rank = 0; rank < 3 && (rank == 0 || config.smt > 1); rank++) {
		if (side_surplus > 0)
			side_cut(config.smt > 1 ? 2 - rank : 0);
		else if (side_spare > 0)
			side_give(rank);
	}
	if (tide_owes() && !tide.runs && tide_waiting())
		side_force(now);
}

static int side_alarm(void *map, u32 *key, struct tide_alarm *alarm)
{
	u64 now = now_ns();

	tide.rang_ns = now;
	tide_step(now);
	side_level(now);
	if (tide_goes_on(now) && bpf_timer_start(&alarm->timer, tide_step_ns(), 0))
		__sync_lock_test_and_set(&tide_on, 0);
	return 0;
}

INLINE int side_init(void)
{
	u32 zero = 0;
	struct tide_alarm *alarm = bpf_map_lookup_elem(&tide_alarms, &zero);

	if (!alarm || bpf_timer_init(&alarm->timer, &tide_alarms, CLOCK_MONOTONIC))
		return -ENOMEM;
	return bpf_timer_set_callback(&alarm->timer, side_alarm);
}

#endif
