/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Real-time tasks that withhold CPUs from this class: the scheduler leaves.
 *
 * From 7.0 on the kernel's server runs tasks of this class for 50 ms of each second (dl_server.h). Before,
 * or with that server off, tasks wait until the real-time tasks rest, and among them RCU's and the
 * kernel's workers. The fair class has had such a server since 6.12. So after REALTIME_LOOKS the
 * scheduler ends, long before the watchdog's 30 s.
 *
 * A CPU is withheld while a real-time or deadline task runs at each look, no task of this class has
 * run since the look before, and one waits: in the CPU's own queues, or anywhere once all CPUs are
 * withheld.
 */
#ifndef TIDEGATE_EXT_REALTIME_H
#define TIDEGATE_EXT_REALTIME_H

#include "timers/starvation_timer.h"

/* Every STARVATION_INTERVAL_NS. */
#define REALTIME_LOOKS 6

/* Of this look, where the loops keep it. */
u32 realtime_free;  /* CPUs that are not withheld for long enough */
u32 realtime_waits; /* a task waits that may run on several CPUs */

/* Whether a real-time task runs there now. Global, as those below, so that the verifier walks it once. */
u32 realtime_runs(u32 cpu)
{
	struct task_struct *curr;
	u32 policy;
	EXT_RCU;

	curr = kernel_curr(cpu);
	policy = curr ? curr->policy : 0;
	return policy == SCHED_FIFO || policy == SCHED_RR || policy == SCHED_DEADLINE;
}

/* A task waits in the CPU's own queues. */
INLINE bool realtime_waits_here(u32 cpu)
{
	return scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu) > 0 ||
	       scx_bpf_dsq_nr_queued(dsq_pinned(cpu, EXT_MAIN)) > 0;
}

/* True: a task waits in the CPU's own queues, so the timer is to go on. */
u32 realtime_look(u32 cpu)
{
	struct ext_cpu *c = cpu_at(cpu);
	struct cpu_time *s = cpu_time_at(cpu);
	u64 runs = c ? c->counts.runs : 0;
	bool here = realtime_waits_here(cpu);

	if (!c || !s)
		return false;
	if (runs != s->runs_seen || !(here || realtime_waits) || !realtime_runs(cpu)) {
		s->runs_seen = runs;
		s->withheld = 0;
	} else if (++s->withheld >= REALTIME_LOOKS && here) {
		EJECT("real-time tasks withhold CPU %llu from all others; leave some of it, or use "
		      "the engine knobs",
		      cpu);
	}
	if (s->withheld < REALTIME_LOOKS)
		realtime_free++;
	return here;
}

/* True: a task waits that the scan of the queues does not see. */
u32 realtime_check(void)
{
	const struct cpumask *online;
	u32 at, waits = false;

	realtime_free = 0;
	realtime_waits = 0;
	EXT_FOR(at, config.llcs)
	{
		u32 runqueue = runqueue_index(at, EXT_MAIN);

		if (scx_bpf_dsq_nr_queued(dsq_wide(runqueue)) > 0 ||
		    scx_bpf_dsq_nr_queued(dsq_narrow(runqueue)) > 0)
			realtime_waits = 1;
	}
	online = scx_bpf_get_online_cpumask();
	EXT_FOR(at, config.cpus)
	{
		if (bpf_cpumask_test_cpu(at, online) && realtime_look(at))
			waits = true;
	}
	scx_bpf_put_cpumask(online);
	if (realtime_waits && !realtime_free)
		EJECT("real-time tasks withhold all CPUs from all others; leave some, or use the "
		      "engine knobs",
		      0);
	return waits;
}

#endif
