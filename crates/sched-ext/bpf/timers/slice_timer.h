/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Slice timers: a CPU's task is stopped no later than a given time. One pinned timer a CPU.
 *
 *	running, dispatch	slice_timer_set for each bound
 *	stopping		slice_timer_clear, of a task that set it
 *	timer			stops the task; `dispatch` decides again
 *
 * The kernel ends a slice at a tick, up to 4 ms late. A silo, a bucket or a least run that is used
 * up ends on time by this. A timer that is set for an earlier time is left: it fires, finds nothing
 * due and is set again. A start of the kernel's timer costs more than an interrupt now and then,
 * and a task that asks for the same 5 ms again and again pays it once.
 */
#ifndef TIDEGATE_EXT_SLICE_TIMER_H
#define TIDEGATE_EXT_SLICE_TIMER_H

#include "core/ext.h"

#define SLICE_TIMER_NEVER (~0ULL)
/* What is this near counts as now. */
#define TIMER_NEAR_NS 1000
/* A timer this late is lost. */
#define TIMER_LATE_NS 20000000ULL

struct slice_timer {
	struct bpf_timer timer;
	u64 until_ns; /* when the CPU is to be looked at */
	u64 armed_ns; /* when the timer is due; 0: it is not set */
};

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1); /* the loader: possible CPUs */
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct slice_timer);
} slice_timers SEC(".maps");

INLINE struct slice_timer *slice_timer_at(u32 cpu)
{
	return bpf_map_lookup_elem(&slice_timers, &cpu);
}

INLINE void slice_timer_arm(struct slice_timer *a, u64 at_ns, u64 now)
{
	a->armed_ns = at_ns;
	if (bpf_timer_start(&a->timer, tg_max(tg_sub0(at_ns, now), TIMER_NEAR_NS), TIMER_CPU_PIN))
		a->armed_ns = 0;
}

/*
 * The task that runs on this CPU is to be stopped at `at_ns`, or sooner if that was asked before.
 */
INLINE void slice_timer_set(u32 cpu, u64 at_ns, u64 now)
{
	struct slice_timer *a = slice_timer_at(cpu);

	if (!a)
		return;
	a->until_ns = tg_min(a->until_ns, at_ns);
	if (!a->armed_ns || at_ns < a->armed_ns || a->armed_ns + TIMER_LATE_NS < now)
		slice_timer_arm(a, at_ns, now);
}

/* The task that asked has stopped. */
INLINE void slice_timer_clear(u32 cpu)
{
	struct slice_timer *a = slice_timer_at(cpu);

	if (a)
		a->until_ns = SLICE_TIMER_NEVER;
}

/* Times that another CPU may set the same timer while one tries to. */
#define TIMER_START_TRIES 4

/*
 * Starts a timer that several CPUs start, each for its own time: the soonest counts. A CPU with a
 * later time may start it after one with a sooner time, so it looks again. The timer takes
 * `armed_ns` back (to 0) before it looks at anything.
 */
INLINE void timer_start_soonest(struct bpf_timer *timer, u64 *armed_ns, u64 at_ns, u64 now,
				u64 late_ns)
{
	u64 armed, sooner;

	for (int tries = 0; tries < TIMER_START_TRIES; tries++) {
		armed = *(volatile u64 *)armed_ns;
		if (armed && armed <= at_ns && armed + late_ns > now)
			return;
		if (__sync_val_compare_and_swap(armed_ns, armed, at_ns) == armed)
			break;
	}
	if (bpf_timer_start(timer, at_ns - now, 0)) {
		*armed_ns = 0;
		return;
	}
	sooner = *(volatile u64 *)armed_ns;
	if (sooner && sooner < at_ns)
		bpf_timer_start(timer, tg_sub0(sooner, now), 0);
}

static int slice_timer_fires(void *map, u32 *cpu, struct slice_timer *a)
{
	u64 now = now_ns(), until_ns = a->until_ns;

	a->armed_ns = 0;
	if (until_ns == SLICE_TIMER_NEVER)
		return 0;
	if (until_ns > now + TIMER_NEAR_NS) {
		slice_timer_arm(a, until_ns, now);
		return 0;
	}
	a->until_ns = SLICE_TIMER_NEVER;
	scx_bpf_kick_cpu(*cpu, CONST(scx_kick_flags, SCX_KICK_PREEMPT));
	return 0;
}

/*
 * Once, from `init`: a kernel that checks which kfuncs a callback calls (7.1) goes by the program
 * that sets it.
 */
INLINE s32 slice_timer_init(u32 cpu)
{
	struct slice_timer *a = slice_timer_at(cpu);
	s32 failed;

	if (!a)
		return -ENOENT;
	a->until_ns = SLICE_TIMER_NEVER;
	failed = bpf_timer_init(&a->timer, &slice_timers, CLOCK_MONOTONIC);
	return failed ? failed : bpf_timer_set_callback(&a->timer, slice_timer_fires);
}

#endif
