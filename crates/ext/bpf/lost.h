/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Timers that are late beyond all reason are set anew.
 *
 * Who is parked, or waits for the tide, wakes nobody who would set a timer again that does not
 * ring. Written for side work that stood for 30 s while a CPU went (soak, 6.18); that its timer did
 * not ring then is a guess. So the timer that sees to those who wait (patience.h) sees to the
 * tide's, holds' and limits', for as long as one is set; and is itself set anew by whoever is put
 * to wait next (door.h). Alarms and calls (alarm.h, call.h) are for a CPU that runs somebody: the
 * tick stands in.
 */
#ifndef TIDEGATE_EXT_LOST_H
#define TIDEGATE_EXT_LOST_H

#include "hold.h"
#include "side.h"

u32 lost_set; /* in this look, where the loops keep it: some timer is set */

/* True: some timer is set. Global, so that the verifier walks it once. */
u32 lost_look(u64 now)
{
	u32 llc, limit;

	lost_set = tide_on;
	if (lost_set && tg_sub0(now, *(volatile u64 *)&tide.rang_ns) > TIDE_LOST_NS)
		tide_again(now);
	EXT_FOR(llc, config.llcs)
	{
		struct hold *h = hold_at(llc);
		u64 armed_ns = h ? *(volatile u64 *)&h->armed_ns : 0;

		if (!armed_ns)
			continue;
		lost_set = 1;
		if (armed_ns + HOLD_LOST_NS < now)
			hold_arm(llc, now, now);
	}
	EXT_FOR(limit, limits_used + 1)
	{
		struct limit *l = limit_at(limit);
		u64 armed_ns = l ? *(volatile u64 *)&l->armed_ns : 0;

		if (!armed_ns)
			continue;
		lost_set = 1;
		if (armed_ns + LIMIT_LOST_NS < now)
			limit_arm(limit, now, now);
	}
	return lost_set;
}

#endif
