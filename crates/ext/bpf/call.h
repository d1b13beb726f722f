/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who runs gives way at the end of his slice, to one that waits for it (place.h).
 *
 * The kernel would ask at the next tick, up to 4 ms late, which is how late a woken task would run
 * beside others. So whoever is put to wait for a CPU sets a timer of that CPU. As with alarm.h a
 * timer that is set for an earlier time is left, rings for nothing and sets itself anew: however
 * often tasks wake, a CPU has one timer a slice. It is apart from the CPU's alarm because any CPU
 * may set it; two that do at once cost a tick at most. At the ring nobody looks at the queues:
 * `dispatch` does, and keeps whoever is still first.
 */
#ifndef TIDEGATE_EXT_CALL_H
#define TIDEGATE_EXT_CALL_H

#include "alarm.h"

/*
 * Where more tasks than this compete for each CPU of a cache, whoever waits does so for several
 * others and the tick is soon enough; to end each one's turn on time would only have them switch
 * more often (hackbench of 160 tasks: 7 % longer than under EEVDF).
 */
#define CALL_FEW 8

struct call {
	struct bpf_timer timer;
	u64 armed_ns; /* when it is due; 0: it is not set */
	u64 wanted;   /* somebody waits */
};

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1); /* the loader: possible CPUs */
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct call);
} calls SEC(".maps");

INLINE void call_arm(struct call *call, u64 at_ns, u64 now)
{
	call->armed_ns = at_ns;
	if (bpf_timer_start(&call->timer, tg_max(tg_sub0(at_ns, now), ALARM_NEAR_NS), 0))
		call->armed_ns = 0;
}

/* When whoever runs there has had his slice. */
INLINE u64 call_due_ns(struct ext_cpu *c)
{
	return c->began_ns + c->slice_ns;
}

/* One of a line waits for that. Global, so that the verifier walks it once. */
int call_by(u32 line, u32 cpu, u64 now)
{
	struct line *l = line_at(line);
	struct call *call = bpf_map_lookup_elem(&calls, &cpu);
	struct ext_cpu *c = cpu_at(cpu);
	u64 at_ns;

	if (!call || !c || (l && l->members > CALL_FEW * tg_max(config.cpus / config.llcs, 1)))
		return 0;
	call->wanted = 1;
	at_ns = call_due_ns(c);
	if (!call->armed_ns || at_ns < call->armed_ns || call->armed_ns + ALARM_LOST_NS < now)
		call_arm(call, at_ns, now);
	return 0;
}

static int call_rings(void *map, u32 *cpu, struct call *call)
{
	struct ext_cpu *c = cpu_at(*cpu);
	u64 now = now_ns();

	call->armed_ns = 0;
	if (!c || !call->wanted || c->called || !(c->state & EXT_CPU_RUNS))
		return 0;
	if (call_due_ns(c) > now + ALARM_NEAR_NS) {
		call_arm(call, call_due_ns(c), now);
		return 0;
	}
	call->wanted = 0;
	scx_bpf_kick_cpu(*cpu, CONST(scx_kick_flags, SCX_KICK_PREEMPT));
	return 0;
}

/* Once, from `init` (as alarm_init). */
INLINE s32 call_init(u32 cpu)
{
	struct call *call = bpf_map_lookup_elem(&calls, &cpu);
	s32 failed;

	if (!call)
		return -ENOENT;
	failed = bpf_timer_init(&call->timer, &calls, CLOCK_MONOTONIC);
	return failed ? failed : bpf_timer_set_callback(&call->timer, call_rings);
}

#endif
