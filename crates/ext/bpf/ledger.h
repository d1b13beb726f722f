/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The ledger: how long each CPU was idle and how long it ran side work, to the nanosecond, the open
 * stretch included.
 *
 * Whatever is neither is main's: real-time and deadline tasks, interrupts in a busy CPU, time that
 * the host stole. (An interrupt that hits an idle CPU is idle; so is stolen time there.)
 *
 * A stopwatch is one word, so that another CPU reads it whole: the sum, or while it runs the sum
 * less its start, times two, plus one while it runs. The sum plus any moment stays below 2^62.
 */
#ifndef TIDEGATE_EXT_LEDGER_H
#define TIDEGATE_EXT_LEDGER_H

#include "ext.h"

#define LEDGER_RUNS 1ULL

INLINE u64 watch_started(u64 watch, u64 now)
{
	return watch & LEDGER_RUNS ? watch : watch - (now << 1) + LEDGER_RUNS;
}

INLINE u64 watch_stopped(u64 watch, u64 now)
{
	return watch & LEDGER_RUNS ? watch - LEDGER_RUNS + (now << 1) : watch;
}

/* Read a moment before it was started, it is below nothing. */
INLINE s64 watch_sum(u64 watch, u64 now)
{
	return (s64)watch_stopped(watch, now) >> 1;
}

/* A CPU in the ledger. The stopwatches are its own; the rest is the tide's timer's. */
struct ledger_cpu {
	u64 idle;
	u64 side;
	s64 idle_read; /* what the timer has read so far, which never goes back */
	s64 side_read;
	u64 doubted;   /* a state of `idle` that the kernel's run queue denies */
	u64 forced_ns; /* until then side work runs here at main's cost */
	u64 fed_ns;    /* side work ran here, or none waited for this CPU, at this time */
	u32 doubts;
	u32 forced;
	u32 seat;    /* side work may run here; counted in `side_seats` */
	u32 invited; /* it may take a seat, though it would not by itself */
	u32 empty;   /* steps for which nobody has sat on the seat */
	u32 gone;    /* the CPU goes, or is offline */
};

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1); /* the loader sets the number of possible CPUs */
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct ledger_cpu);
} ledger SEC(".maps");

/* There is side work, or was a moment ago: the timer steps. Without it nothing here is paid. */
u32 tide_on;

u32 ledger_goers; /* CPUs that go, or are offline */

INLINE struct ledger_cpu *ledger_at(u32 cpu)
{
	return bpf_map_lookup_elem(&ledger, &cpu);
}

/*
 * A CPU that goes wakes whoever waits for that, and idles for the last time, with its interrupts
 * off for good. What a kick or (7.3) the start of a timer leaves to one there stays undone, and so
 * does all that is left to one on this CPU after it is back: kicks, and timers for ever.
 */
INLINE bool ledger_goes(u32 cpu)
{
	struct ledger_cpu *s = ledger_goers ? ledger_at(cpu) : NULL;

	return s && s->gone;
}

/* A CPU becomes idle, or busy. */
INLINE void ledger_idle(s32 cpu, bool idle)
{
	struct ledger_cpu *s = tide_on ? ledger_at(cpu) : NULL;

	if (s)
		s->idle =
		    idle ? watch_started(s->idle, now_ns()) : watch_stopped(s->idle, now_ns());
}

/* A CPU runs a task of this kind from now on. */
INLINE void ledger_runs(s32 cpu, u32 kind, u64 now)
{
	struct ledger_cpu *s = tide_on ? ledger_at(cpu) : NULL;

	if (s)
		s->side =
		    kind == EXT_SIDE ? watch_started(s->side, now) : watch_stopped(s->side, now);
}

INLINE bool ledger_forced(s32 cpu)
{
	struct ledger_cpu *s = tide_on ? ledger_at(cpu) : NULL;

	return s && s->forced;
}

/* Is the CPU idle by the kernel's run queue? The caller holds EXT_RCU. */
INLINE bool ledger_sees_idle(s32 cpu)
{
	struct task_struct *curr = NULL;
	bool idle = false;

	if (scx_bpf_cpu_curr) {
		curr = scx_bpf_cpu_curr(cpu);
	} else {
		struct rq *rq = scx_bpf_cpu_rq(cpu);

		curr = rq ? rq->curr : NULL;
	}
	if (curr)
		idle = curr->flags & PF_IDLE;
	return idle;
}

/*
 * The kernel tells of no change while it loads, suspends or bypasses a scheduler. What the run
 * queue denies at two steps without a change between is put right.
 */
INLINE void ledger_check(struct ledger_cpu *s, s32 cpu, u64 now, bool fresh)
{
	u64 seen = s->idle;
	bool idle = ledger_sees_idle(cpu);

	if (idle == (bool)(seen & LEDGER_RUNS)) {
		s->doubts = 0;
		return;
	}
	if (fresh || (s->doubts && s->doubted == seen)) {
		__sync_val_compare_and_swap(
		    &s->idle, seen, idle ? watch_started(seen, now) : watch_stopped(seen, now));
		s->doubts = 0;
		return;
	}
	s->doubted = seen;
	s->doubts = 1;
}

/* What was added to a stopwatch since it was last read. */
INLINE u64 ledger_added(u64 watch, s64 *read, u64 now)
{
	s64 sum = watch_sum(watch, now), added = sum > *read ? sum - *read : 0;

	*read += added;
	return added;
}

#endif
