/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel's deadline server (7.0) runs tasks of sched_ext for 50 ms of each second on a CPU that
 * real-time tasks would have whole.
 *
 * A server that asks for a task and gets none stops. It starts again when the CPU's first task
 * becomes runnable; a throttled task is runnable to the kernel, so where one waits, main and the
 * kernel's own threads would wait for the real-time tasks to end. So it never asks in vain: where
 * no other task waits, one that may not run has a least run, charged; at most the server's 50 ms a
 * second.
 *
 * It stops as well where a CPU with throttled tasks idles for a period of its own (1 s). Real-time
 * tasks that then come withhold the CPU, and the scheduler leaves (realtime.h).
 */
#ifndef TIDEGATE_EXT_DL_SERVER_H
#define TIDEGATE_EXT_DL_SERVER_H

#include "limits/limit.h"
#include "queue/pick.h"
#include "timers/starvation.h"

/*
 * From `dispatch`, when no task may run: the server asks, not the CPU by itself, which takes
 * deadline and real-time tasks first. A server whose 50 ms end as it asks is off the CPU's queue by
 * then, so it counts as asking once more.
 */
INLINE bool dl_server_asks(struct ext_cpu *c)
{
	struct rq *rq;
	bool again = c->asked;

	if (!__builtin_preserve_field_info(((struct rq *)0)->ext_server, 2) || !scx_bpf_locked_rq)
		return false;
	rq = scx_bpf_locked_rq();
	if (!rq || !rq->scx.nr_running)
		return false;
	c->asked = rq->dl.dl_nr_running || rq->rt.rt_nr_running;
	return c->asked || again;
}

/* Limits whose queues one call looks into; the next goes on behind them. */
#define DL_SERVER_LIMITS_MAX 64

u32 dl_server_limit; /* the last limit whose queue was looked into */

/*
 * Moves a task to this CPU that may not run: side work, or a throttled one. Beyond
 * DL_SERVER_LIMITS_MAX limits it may find none though one waits; then the server stops, and
 * realtime.h acts. Global, so that the verifier walks it once.
 */
u32 dl_server_take(s32 cpu, u32 llc)
{
	u32 runqueue = runqueue_index(llc, EXT_SIDE), limit = dl_server_limit, scanned;

	if (dsq_move_to_local(dsq_pinned(cpu, EXT_SIDE)) ||
	    dsq_move_to_local(dsq_narrow(runqueue)) || dsq_move_to_local(dsq_wide(runqueue)) ||
	    dsq_move_to_local(dsq_cap_throttled(llc)))
		return true;
	EXT_FOR(scanned, tg_min(limits_used, DL_SERVER_LIMITS_MAX))
	{
		limit = limit < limits_used ? limit + 1 : 1;
		dl_server_limit = limit;
		if (dsq_move_to_local(dsq_throttled(limit)))
			return true;
	}
	return false;
}

/* No task may run here: if the server asks, one does; `prev` goes on if it is the only one. */
INLINE bool dl_server_serve(struct task_struct *prev, struct task_ctx *t, s32 cpu,
			    struct ext_cpu *c, u64 now)
{
	if (!dl_server_asks(c))
		return false;
	if (dl_server_take(cpu, c->llc)) {
		c->served = 1;
		return true;
	}
	if (!prev || !t)
		return false;
	t->min_runtime_ns = MIN_RUNTIME_NS;
	if (t->caps[0])
		cap_count_min_run(t);
	min_runtime_start(t, cpu, now);
	set_slice(prev, MIN_RUNTIME_NS);
	task_set_running(t, now);
	cpu_publish(t, c, now);
	return true;
}

/* `running`: one that runs by itself is what the server asked for, if it did. */
INLINE void dl_server_start(struct task_ctx *t, struct ext_cpu *c)
{
	if (!c->served) {
		c->asked = 0;
		return;
	}
	c->served = 0;
	t->min_runtime_ns = MIN_RUNTIME_NS;
	if (t->caps[0])
		cap_count_min_run(t);
}

#endif
