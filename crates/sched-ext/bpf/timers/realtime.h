/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Real-time tasks that withhold CPUs from this class: the scheduler leaves.
 *
 * From 7.0 on the kernel's server runs tasks of this class for 50 ms of each second (dl_server.h).
 * Before, or with that server off, tasks wait until the real-time tasks rest, and among them RCU's
 * and the kernel's workers. The fair class has had such a server since 6.12. So after
 * REALTIME_POLLS the scheduler ends, long before the watchdog's 30 s.
 *
 * A CPU is withheld while a real-time or deadline task runs at each poll, no task of this class has
 * run since the poll before, and one waits. The scheduler leaves for a task that waits in the
 * queues of a withheld CPU, for the first of those that may run on some CPUs when these are all
 * withheld, and for any when all CPUs are.
 */
#ifndef TIDEGATE_EXT_REALTIME_H
#define TIDEGATE_EXT_REALTIME_H

#include "timers/starvation_timer.h"

/* Every STARVATION_INTERVAL_NS. */
#define REALTIME_POLLS 6

/* Of this poll, where the loops keep it. */
u32 realtime_free;  /* CPUs that are not withheld for long enough */
u32 realtime_waits; /* a task waits that may run on several CPUs */

u32 realtime_left; /* the scheduler has ended for this */

/* Whether a real-time task runs there now. Global, as those below, so that the verifier walks it
 * once. */
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
u32 realtime_check_cpu(u32 cpu)
{
	struct ext_cpu *c = cpu_at(cpu);
	struct cpu_time *s = cpu_time_at(cpu);
	u64 runs = c ? c->runs : 0;
	bool here = realtime_waits_here(cpu);

	if (!c || !s)
		return false;
	if (runs != s->runs_seen || !(here || realtime_waits) || !realtime_runs(cpu)) {
		s->runs_seen = runs;
		s->withheld = 0;
	} else if (++s->withheld >= REALTIME_POLLS && here) {
		realtime_left = 1;
		EJECT("real-time tasks withhold CPU %llu from all others; leave some of it, or use "
		      "the engine cgroup",
		      cpu);
	}
	if (s->withheld < REALTIME_POLLS)
		realtime_free++;
	return here;
}

/*
 * The first task that waits in a cache for some of the CPUs has waited for long, and all its CPUs
 * are withheld. Another of that queue comes to be the first in time: V goes on without it.
 */
u32 realtime_confines(u32 llc, const struct cpumask *online TRUSTED, u64 now)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	struct task_ctx *t;
	struct cpu_time *s;
	u32 cpu, waits = false;
	EXT_RCU;

	if (scx_bpf_dsq_nr_queued(dsq_narrow(runqueue_index(llc, EXT_MAIN))) <= 0)
		return false;
	if (!bpf_iter_scx_dsq_new(&it, dsq_narrow(runqueue_index(llc, EXT_MAIN)), 0)) {
		p = bpf_iter_scx_dsq_next(&it);
		t = p ? task_of(p) : NULL;
		if (p && t && tg_sub0(now, t->since_ns) > REALTIME_POLLS * STARVATION_INTERVAL_NS) {
			waits = true;
			EXT_FOR(cpu, config.cpus)
			{
				s = cpu_time_at(cpu);
				if (s && s->withheld < REALTIME_POLLS &&
				    bpf_cpumask_test_cpu(cpu, p->cpus_ptr) &&
				    bpf_cpumask_test_cpu(cpu, online)) {
					waits = false;
					break;
				}
			}
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return waits;
}

/* True: a task waits that the scan of the queues does not see. */
u32 realtime_check(u64 now)
{
	const struct cpumask *online;
	u32 at, waits = false, confines = false;

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
		if (bpf_cpumask_test_cpu(at, online) && realtime_check_cpu(at))
			waits = true;
	}
	EXT_FOR(at, config.llcs)
	{
		if (realtime_free < config.cpus && realtime_confines(at, online, now))
			confines = true;
	}
	scx_bpf_put_cpumask(online);
	if (realtime_waits && (!realtime_free || confines)) {
		realtime_left = 1;
		EJECT("real-time tasks withhold all CPUs of a task that waits; leave some, or use "
		      "the engine cgroup",
		      0);
	}
	return waits;
}

#endif
