/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Callbacks for the scheduler's begin and end, and for CPUs that come and go.
 */
#ifndef TIDEGATE_EXT_LIFE_OPS_H
#define TIDEGATE_EXT_LIFE_OPS_H

#include "limits/caps.h"
#include "ops/group_ops.h"
#include "side/side_cpus.h"
#include "timers/resched_timer.h"
#include "timers/starvation.h"

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct ext_exit);
} ended SEC(".maps");

/* A CPU of a cache comes (by = 1) or goes (-1). */
INLINE void runqueue_count_cpu(struct ext_cpu *c, s64 by)
{
	struct runqueue *rq = c ? runqueue_at(runqueue_index(c->llc, EXT_MAIN)) : NULL;

	if (!rq)
		return;
	__sync_fetch_and_add(&rq->cpus, by);
	__sync_fetch_and_add(&cpus_online, by);
}

/* `init`; no CPU comes or goes meanwhile. */
int runqueues_count_cpus(void)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	u32 cpu;

	EXT_FOR(cpu, config.cpus)
	{
		if (bpf_cpumask_test_cpu(cpu, online))
			runqueue_count_cpu(cpu_at(cpu), 1);
	}
	scx_bpf_put_cpumask(online);
	return 0;
}

/* Without these two, a CPU that comes or goes would end the scheduler. */
OPS(cpu_online)
int cpu_online(u64 *ctx)
{
	struct ext_cpu *c = cpu_at((s32)ctx[0]);
	struct cpu_time *s = cpu_time_at((s32)ctx[0]);

	if (c)
		c->state = 0;
	runqueue_count_cpu(c, 1);
	if (s && __sync_lock_test_and_set(&s->offline, 0))
		__sync_fetch_and_sub(&cpus_offline, 1);
	/* Tasks that were queued for it while it took none. */
	scx_bpf_kick_cpu((s32)ctx[0], 0);
	return 0;
}

OPS(cpu_offline)
int cpu_offline(u64 *ctx)
{
	struct ext_cpu *c = cpu_at((s32)ctx[0]);
	struct cpu_time *s = cpu_time_at((s32)ctx[0]);

	if (c)
		c->state = 0;
	runqueue_count_cpu(c, -1);
	/* Tasks that may run nowhere else: starvation_scan. */
	if (s && !__sync_lock_test_and_set(&s->offline, 1))
		__sync_fetch_and_add(&cpus_offline, 1);
	return 0;
}

/* Arguments: s32 cpu. A higher class takes the CPU: tasks in its own queue find another. */
OPS(cpu_release)
int cpu_release(u64 *ctx)
{
	struct ext_cpu *c = cpu_at((s32)ctx[0]);

	if (c)
		c->served = 0;
	if (c && caps_on)
		caps_switch_away(c, now_ns());
	scx_bpf_reenqueue_local();
	return 0;
}

OPS_SLEEPABLE(init)
s32 init(u64 *ctx)
{
	s32 failed;
	u32 runqueue, cpu, limit, llc;

	EXT_FOR(runqueue, config.llcs * EXT_KINDS)
	{
		failed = scx_bpf_create_dsq(dsq_wide(runqueue), -1);
		if (!failed)
			failed = scx_bpf_create_dsq(dsq_narrow(runqueue), -1);
		if (failed)
			return failed;
	}
	EXT_FOR(cpu, config.cpus)
	{
		for (u32 kind = 0; kind < EXT_KINDS; kind++) {
			failed = scx_bpf_create_dsq(dsq_pinned(cpu, kind), -1);
			if (failed)
				return failed;
		}
		failed = slice_timer_init(cpu);
		if (failed)
			return failed;
	}
	EXT_FOR(cpu, config.cpus)
	{
		failed = resched_timer_init(cpu);
		if (failed)
			return failed;
	}
	EXT_FOR(llc, config.llcs)
	{
		failed = cap_timer_init(llc);
		if (failed)
			return failed;
	}
	EXT_FOR(limit, config.limits)
	{
		failed = limit_init(limit);
		if (failed)
			return failed;
	}
	runqueues_count_cpus();
	failed = starvation_init();
	return failed ? failed : side_init();
}

/* Arguments: struct scx_exit_info *info */
OPS(exit)
int ops_exit(u64 *ctx)
{
	struct scx_exit_info *info = (struct scx_exit_info *)ctx[0];
	u32 zero = 0;
	struct ext_exit *to = bpf_map_lookup_elem(&ended, &zero);

	if (!to)
		return 0;
	bpf_probe_read_kernel_str(to->reason, sizeof(to->reason), info->reason);
	bpf_probe_read_kernel_str(to->message, sizeof(to->message), info->msg);
	bpf_probe_read_kernel_str(to->dump, sizeof(to->dump), info->dump);
	to->code = realtime_left ? EXT_CODE_REAL_TIME : info->exit_code;
	to->kind = info->kind;
	return 0;
}

#endif
