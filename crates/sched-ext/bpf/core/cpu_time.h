/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * CPU time: how long each CPU was idle and how long it ran side work, to the nanosecond, the
 * current stretch included.
 *
 * The rest is main's: real-time and deadline tasks, interrupts on a busy CPU, time that the host
 * stole. (An interrupt or stolen time on an idle CPU counts as idle.)
 *
 * A stopwatch is one word, so that another CPU reads it whole:
 *
 *	stopped		 sum << 1
 *	runs		(sum - start) << 1 | STOPWATCH_RUNS
 *
 * The sum plus any time stays below 2^62.
 */
#ifndef TIDEGATE_EXT_CPU_TIME_H
#define TIDEGATE_EXT_CPU_TIME_H

#include "core/ext.h"

#define STOPWATCH_RUNS 1ULL

INLINE u64 stopwatch_start(u64 watch, u64 now)
{
	return watch & STOPWATCH_RUNS ? watch : watch - (now << 1) + STOPWATCH_RUNS;
}

INLINE u64 stopwatch_stop(u64 watch, u64 now)
{
	return watch & STOPWATCH_RUNS ? watch - STOPWATCH_RUNS + (now << 1) : watch;
}

/* Read a moment before it was started, it is below nothing. */
INLINE s64 stopwatch_sum(u64 watch, u64 now)
{
	return (s64)stopwatch_stop(watch, now) >> 1;
}

/* One CPU's. The stopwatches are written by that CPU, the rest by the headroom timer. */
struct cpu_time {
	u64 idle;
	u64 side;
	s64 idle_read; /* what the timer has read so far, which never goes back */
	s64 side_read;
	u64 doubted;   /* a state of `idle` that the kernel's run queue denies */
	u64 forced_ns; /* until then side work runs here at main's cost */
	u64 side_served_ns; /* side work ran here, or none waited for this CPU, at the last look at this */
	u32 doubts;
	u32 forced;
	u32 side_cpu;	  /* side work may run here; counted in `nr_side_cpus` */
	u32 side_invited; /* it may become a side CPU, though it would not by itself */
	u32 unused_steps; /* steps in a row at which a side CPU ran no side work */
	u32 offline;	  /* the CPU goes, or is offline */
	u32 withheld;	  /* looks in a row (realtime.h) */
	u64 runs_seen;	  /* runs of this class by the last look */
};

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1); /* the loader sets the number of possible CPUs */
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct cpu_time);
} cpu_times SEC(".maps");

/* There is side work, or was a moment ago: the timer steps. Without it nothing here is paid. */
u32 headroom_on;

u32 cpus_offline; /* CPUs that go, or are offline */
u32 cpus_online;

INLINE struct cpu_time *cpu_time_at(u32 cpu)
{
	return bpf_map_lookup_elem(&cpu_times, &cpu);
}

/*
 * A CPU that goes offline wakes the task that waits for it, and idles for the last time, with its
 * interrupts off for good. A kick or (7.3) a timer start that is left to an interrupt there is
 * never done, and neither is any that comes to it after it is back.
 */
INLINE bool cpu_is_offline(u32 cpu)
{
	struct cpu_time *s = cpus_offline ? cpu_time_at(cpu) : NULL;

	return s && s->offline;
}

/* A CPU becomes idle, or busy. One that is offline is not idle: it takes no work. */
INLINE void cpu_time_set_idle(s32 cpu, bool idle)
{
	struct cpu_time *s = headroom_on ? cpu_time_at(cpu) : NULL;

	if (s)
		s->idle = idle && !s->offline ? stopwatch_start(s->idle, now_ns())
					      : stopwatch_stop(s->idle, now_ns());
}

/* A CPU runs a task of this kind from now on. */
INLINE void cpu_time_set_kind(s32 cpu, u32 kind, u64 now)
{
	struct cpu_time *s = headroom_on ? cpu_time_at(cpu) : NULL;

	if (s)
		s->side =
		    kind == EXT_SIDE ? stopwatch_start(s->side, now) : stopwatch_stop(s->side, now);
}

INLINE bool side_is_forced(s32 cpu)
{
	struct cpu_time *s = headroom_on ? cpu_time_at(cpu) : NULL;

	return s && s->forced;
}

/* What a CPU runs by the kernel's run queue. The caller holds EXT_RCU. */
INLINE struct task_struct *kernel_curr(s32 cpu)
{
	struct rq *rq;

	if (scx_bpf_cpu_curr)
		return scx_bpf_cpu_curr(cpu);
	rq = scx_bpf_cpu_rq(cpu);
	return rq ? rq->curr : NULL;
}

INLINE bool kernel_sees_idle(s32 cpu)
{
	struct task_struct *curr = kernel_curr(cpu);

	return curr && curr->flags & PF_IDLE;
}

/*
 * The kernel reports no change while it loads, suspends or bypasses a scheduler. What the run queue
 * denies at two steps without a change between is put right.
 */
INLINE void cpu_time_check(struct cpu_time *s, s32 cpu, u64 now, bool fresh)
{
	u64 seen = s->idle;
	bool idle = !s->offline && kernel_sees_idle(cpu);

	if (idle == (bool)(seen & STOPWATCH_RUNS)) {
		s->doubts = 0;
		return;
	}
	if (fresh || (s->doubts && s->doubted == seen)) {
		__sync_val_compare_and_swap(
		    &s->idle, seen, idle ? stopwatch_start(seen, now) : stopwatch_stop(seen, now));
		s->doubts = 0;
		return;
	}
	s->doubted = seen;
	s->doubts = 1;
}

/* What was added to a stopwatch since it was last read. */
INLINE u64 stopwatch_delta(u64 watch, s64 *read, u64 now)
{
	s64 sum = stopwatch_sum(watch, now), added = sum > *read ? sum - *read : 0;

	*read += added;
	return added;
}

#endif
