/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A CPU is looked at no later than a given time: a timer for each.
 *
 * The kernel ends a slice at a tick, up to 4 ms late. What must end sooner (a silo or a bucket that
 * is used up, a visit) asks for the CPU's alarm, at which the task there is
 * stopped and `dispatch` decides anew. An alarm that is already set for an earlier time is left,
 * rings for nothing and sets itself anew: a start of the kernel's timer costs more than an
 * interrupt now and then, and a task that asks for the same 5 ms again and again pays it once.
 *
 * From `running` or `dispatch`: alarm_by for each bound; from `stopping` of a task that asked:
 * alarm_off.
 */
#ifndef TIDEGATE_EXT_ALARM_H
#define TIDEGATE_EXT_ALARM_H

#include "ext.h"

#define ALARM_NEVER (~0ULL)
/* What is this near counts as now. */
#define ALARM_NEAR_NS 1000
/* A timer this late is lost. */
#define ALARM_LOST_NS 20000000ULL

struct alarm {
	struct bpf_timer timer;
	u64 until_ns; /* when the CPU is to be looked at */
	u64 armed_ns; /* when the timer is due; 0: it is not set */
};

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1); /* the loader: possible CPUs */
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct alarm);
} alarms SEC(".maps");

INLINE struct alarm *alarm_at(u32 cpu)
{
	return bpf_map_lookup_elem(&alarms, &cpu);
}

INLINE void alarm_arm(struct alarm *a, u64 at_ns, u64 now)
{
	a->armed_ns = at_ns;
	if (bpf_timer_start(&a->timer, tg_max(tg_sub0(at_ns, now), ALARM_NEAR_NS), TIMER_CPU_PIN))
		a->armed_ns = 0;
}

/* The task that runs on this CPU is to be stopped at `at_ns`, or whenever was asked before. */
INLINE void alarm_by(u32 cpu, u64 at_ns, u64 now)
{
	struct alarm *a = alarm_at(cpu);

	if (!a)
		return;
	a->until_ns = tg_min(a->until_ns, at_ns);
	if (!a->armed_ns || at_ns < a->armed_ns || a->armed_ns + ALARM_LOST_NS < now)
		alarm_arm(a, at_ns, now);
}

/* The task that asked has stopped. */
INLINE void alarm_off(u32 cpu)
{
	struct alarm *a = alarm_at(cpu);

	if (a)
		a->until_ns = ALARM_NEVER;
}

/* Times that another CPU may set the same timer while one tries to. */
#define ALARM_TRIES 4

/*
 * Sets a timer that CPUs set each for its own time: the soonest counts. Who has set it for later
 * may come to start it after one who has set it for sooner; so he looks again. The timer takes
 * `armed_ns` back (to 0) before it looks at anything.
 */
INLINE void alarm_soonest(struct bpf_timer *timer, u64 *armed_ns, u64 at_ns, u64 now, u64 lost_ns)
{
	u64 armed, sooner;

	for (int tries = 0; tries < ALARM_TRIES; tries++) {
		armed = *(volatile u64 *)armed_ns;
		if (armed && armed <= at_ns && armed + lost_ns > now)
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

static int alarm_rings(void *map, u32 *cpu, struct alarm *a)
{
	u64 now = now_ns(), until_ns = a->until_ns;

	a->armed_ns = 0;
	if (until_ns == ALARM_NEVER)
		return 0;
	if (until_ns > now + ALARM_NEAR_NS) {
		alarm_arm(a, until_ns, now);
		return 0;
	}
	a->until_ns = ALARM_NEVER;
	scx_bpf_kick_cpu(*cpu, CONST(scx_kick_flags, SCX_KICK_PREEMPT));
	return 0;
}

/* Once, from `init`: a kernel that checks who calls what (7.1) goes by the program that sets the
 * callback. */
INLINE s32 alarm_init(u32 cpu)
{
	struct alarm *a = alarm_at(cpu);
	s32 failed;

	if (!a)
		return -ENOENT;
	a->until_ns = ALARM_NEVER;
	failed = bpf_timer_init(&a->timer, &alarms, CLOCK_MONOTONIC);
	return failed ? failed : bpf_timer_set_callback(&a->timer, alarm_rings);
}

#endif
