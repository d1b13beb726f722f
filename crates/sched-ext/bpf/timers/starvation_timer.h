/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The timer of starvation.h and timer_guard.h: on while a task waits or another timer is set.
 */
#ifndef TIDEGATE_EXT_STARVATION_TIMER_H
#define TIDEGATE_EXT_STARVATION_TIMER_H

#include "core/ext.h"

struct starvation_timer {
	struct bpf_timer timer;
	u32 rounds;
	u32 idle_rounds; /* looks in a row at which no task waited, and no timer was set */
};

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct starvation_timer);
} starvation_timers SEC(".maps");

u32 starvation_on;
u64 starvation_due_ns; /* its next look */

#define STARVATION_INTERVAL_NS 500000000ULL
/* A timer this late is lost. */
#define STARVATION_LATE_NS 2000000000ULL

INLINE bool starvation_armed(u64 now)
{
	return starvation_on && starvation_due_ns + STARVATION_LATE_NS > now;
}

int starvation_start(u64 now)
{
	u32 zero = 0;
	struct starvation_timer *w = bpf_map_lookup_elem(&starvation_timers, &zero);

	if (!w || (__sync_val_compare_and_swap(&starvation_on, 0, 1) && starvation_armed(now)))
		return 0;
	starvation_due_ns = now + STARVATION_INTERVAL_NS;
	if (bpf_timer_start(&w->timer, STARVATION_INTERVAL_NS, 0))
		starvation_on = 0;
	return 0;
}

/* A task waits, or a timer is set that one waits for (timer_guard.h). */
INLINE void starvation_watch(u64 now)
{
	if (!starvation_armed(now))
		starvation_start(now);
}

#endif
