/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Timers that are late beyond all reason are set anew.
 *
 * Who is parked, or waits for the tide, wakes nobody who would set a timer again that does not
 * ring. Written for side work that stood for 30 s while a CPU went (soak, 6.18); that its timer did
 * not ring then is a guess. So the timer that sees to those who wait (starvation.h) sees to the
 * tide's, holds' and limits', for as long as one is set; and is itself set anew by whoever is put
 * to wait next (enqueue.h). Alarms and calls (slice_timer.h, resched_timer.h) are for a CPU that runs somebody: the
 * tick stands in.
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
