/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Late timers are set again.
 *
 * A throttled task, or side work that waits, cannot set a timer again that does not fire. The
 * starvation timer checks those of headroom, caps and limits while one of them is set; it is itself
 * started again by the next task that waits. Slice and reschedule timers are for a CPU that runs a
 * task: the tick stands in. Written for side work that waited for 30 s while a CPU went offline
 * (soak, 6.18); that its timer did not fire then is a guess.
 */
#ifndef TIDEGATE_EXT_TIMER_GUARD_H
#define TIDEGATE_EXT_TIMER_GUARD_H

#include "limits/cap_throttle.h"
#include "side/side_cpus.h"

u32 timer_guard_set; /* in this look, where the loops keep it: some timer is set */

/* True: some timer is set. Global, so that the verifier walks it once. */
u32 timer_guard_check(u64 now)
{
	u32 llc, limit;

	timer_guard_set = headroom_on;
	if (timer_guard_set && tg_sub0(now, *(volatile u64 *)&headroom.fired_ns) > HEADROOM_LATE_NS)
		headroom_restart(now);
	EXT_FOR(llc, config.llcs)
	{
		struct cap_timer *h = cap_timer_at(llc);
		u64 armed_ns = h ? *(volatile u64 *)&h->armed_ns : 0;

		if (!armed_ns)
			continue;
		timer_guard_set = 1;
		if (armed_ns + CAP_LATE_NS < now)
			cap_timer_arm(llc, now, now);
	}
	EXT_FOR(limit, limits_used + 1)
	{
		struct limit *l = limit_at(limit);
		u64 armed_ns = l ? *(volatile u64 *)&l->armed_ns : 0;

		if (!armed_ns)
			continue;
		timer_guard_set = 1;
		if (armed_ns + LIMIT_LATE_NS < now)
			limit_arm(limit, now, now);
	}
	return timer_guard_set;
}

#endif
