/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reschedule timers: a running task gives way at the end of its slice to one that waits for it
 * (place.h). One timer a CPU, which any CPU may set.
 *
 * The kernel would look at the next tick, up to 4 ms late. As in slice_timer.h a timer that is set for
 * an earlier time is left and set again, so a CPU has one timer a slice however often tasks wake. Two
 * CPUs that set it at once cost a tick at most. The timer looks at no queue: `dispatch` does, and keeps
 * the running task if it is still first.
 */
#ifndef TIDEGATE_EXT_RESCHED_TIMER_H
#define TIDEGATE_EXT_RESCHED_TIMER_H

#include "timers/slice_timer.h"

struct resched_timer {
	struct bpf_timer timer;
	u64 armed_ns; /* when it is due; 0: it is not set */
	u64 wanted;   /* a task waits */
};

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1); /* the loader: possible CPUs */
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct resched_timer);
} resched_timers SEC(".maps");

INLINE void resched_timer_arm(struct resched_timer *resched_timer, u64 at_ns, u64 now)
{
	resched_timer->armed_ns = at_ns;
	if (bpf_timer_start(&resched_timer->timer, tg_max(tg_sub0(at_ns, now), TIMER_NEAR_NS), 0))
		resched_timer->armed_ns = 0;
}

/* When the task that runs there has had its slice. */
INLINE u64 resched_due_ns(struct ext_cpu *c)
{
	return c->began_ns + c->slice_ns;
}

/* A task of a run queue waits for that. Global, so that the verifier walks it once. */
int resched_timer_set(u32 runqueue, u32 cpu, u64 now)
{
	struct runqueue *rq = runqueue_at(runqueue);
	struct resched_timer *resched_timer = bpf_map_lookup_elem(&resched_timers, &cpu);
	struct ext_cpu *c = cpu_at(cpu);
	u64 at_ns;

	if (!resched_timer || !c ||
	    (rq && rq->mean.members > TG_RESCHED_TASKS_MAX * tg_max(config.cpus / config.llcs, 1)))
		return 0;
	resched_timer->wanted = 1;
	at_ns = resched_due_ns(c);
	if (!resched_timer->armed_ns || at_ns < resched_timer->armed_ns ||
	    resched_timer->armed_ns + TIMER_LATE_NS < now)
		resched_timer_arm(resched_timer, at_ns, now);
	return 0;
}

/* A member begins to run; the slice of a light one ends on time. */
INLINE void resched_timer_run(struct task_ctx *t, u32 cpu, u64 now)
{
	if (task_set_running(t, now))
		resched_timer_set(t->runqueue, cpu, now);
}

static int resched_timer_fires(void *map, u32 *cpu, struct resched_timer *resched_timer)
{
	struct ext_cpu *c = cpu_at(*cpu);
	u64 now = now_ns();

	resched_timer->armed_ns = 0;
	if (!c || !resched_timer->wanted || c->need_resched || !(c->state & EXT_CPU_RUNS))
		return 0;
	if (resched_due_ns(c) > now + TIMER_NEAR_NS) {
		resched_timer_arm(resched_timer, resched_due_ns(c), now);
		return 0;
	}
	resched_timer->wanted = 0;
	scx_bpf_kick_cpu(*cpu, CONST(scx_kick_flags, SCX_KICK_PREEMPT));
	return 0;
}

/* Once, from `init` (as slice_timer_init). */
INLINE s32 resched_timer_init(u32 cpu)
{
	struct resched_timer *resched_timer = bpf_map_lookup_elem(&resched_timers, &cpu);
	s32 failed;

	if (!resched_timer)
		return -ENOENT;
	failed = bpf_timer_init(&resched_timer->timer, &resched_timers, CLOCK_MONOTONIC);
	return failed ? failed : bpf_timer_set_callback(&resched_timer->timer, resched_timer_fires);
}

#endif
