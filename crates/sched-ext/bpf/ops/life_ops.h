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

/* A CPU is on line now, or is not. */
INLINE void cpu_set_online(u32 cpu, bool online)
{
	struct ext_cpu *c = cpu_at(cpu);
	struct cpu_time *s = cpu_time_at(cpu);
	struct runqueue *rq = c ? runqueue_at(runqueue_index(c->llc, EXT_MAIN)) : NULL;

	if (!s || !rq || s->offline == !online)
		return;
	c->state = 0;
	s->offline = !online;
	__sync_fetch_and_add(&cpus_offline, online ? -1 : 1);
	__sync_fetch_and_add(&cpus_online, online ? 1 : -1);
	__sync_fetch_and_add(&rq->cpus, online ? 1 : -1);
}

/* `init`; no CPU comes or goes meanwhile. */
int cpus_count(void)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	u32 cpu;

	EXT_FOR(cpu, config.cpus)
	{
		struct cpu_time *s = cpu_time_at(cpu);

		if (!s)
			break;
		s->offline = 1;
		cpus_offline++;
		if (bpf_cpumask_test_cpu(cpu, online))
			cpu_set_online(cpu, true);
	}
	scx_bpf_put_cpumask(online);
	return 0;
}

/* Without these two, a CPU that comes or goes would end the scheduler. */
OPS(cpu_online)
int cpu_online(u64 *ctx)
{
	cpu_set_online((s32)ctx[0], true);
	/* Tasks that were queued for it while it took none. */
	scx_bpf_kick_cpu((s32)ctx[0], 0);
	return 0;
}

/* Tasks that may run nowhere else: starvation_scan. */
OPS(cpu_offline)
int cpu_offline(u64 *ctx)
{
	cpu_set_online((s32)ctx[0], false);
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
	cpus_count();
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
