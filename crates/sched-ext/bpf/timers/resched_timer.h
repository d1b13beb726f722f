/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reschedule timers: a running task gives way to one that waits for it (place.h), at the end of its
 * slice or once it has run undisturbed. One timer a CPU, which any CPU may set.
 *
 * The kernel would look at the next tick, up to 4 ms late. As in slice_timer.h a timer that is set
 * for an earlier time is left and set again, so a CPU has one timer a slice however often tasks
 * wake. Two CPUs that set it at once cost a tick at most. The timer looks at no queue: `dispatch`
 * does, and keeps the running task if it is still first.
 */
#ifndef TIDEGATE_EXT_RESCHED_TIMER_H
#define TIDEGATE_EXT_RESCHED_TIMER_H

#include "timers/slice_timer.h"

enum resched_moment { RESCHED_AT_END = 1, RESCHED_SOON = 2 };

struct resched_timer {
	struct bpf_timer timer;
	u64 armed_ns; /* when it is due; 0: it is not set */
	u64 wanted;   /* a task waits for that moment; 0: none does */
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

INLINE u64 resched_due_ns(struct ext_cpu *c, u64 moment)
{
	return c->began_ns +
	       (moment == RESCHED_SOON ? tg_runqueue_undisturbed_ns(c->slice_ns) : c->slice_ns);
}

/* A task of main's run queue waits for a moment of the task that runs there. Global, so that the
 * verifier walks it once. */
int resched_timer_set(u32 runqueue, u32 cpu, u32 moment, u64 now)
{
	struct runqueue *rq = runqueue_at(runqueue);
	struct resched_timer *resched_timer = bpf_map_lookup_elem(&resched_timers, &cpu);
	struct ext_cpu *c = cpu_at(cpu);
	u64 at_ns;

	if (!resched_timer || !c ||
	    (rq && tg_runqueue_members(&rq->mean) > TG_RESCHED_TASKS_MAX * tg_max(rq->cpus, 1)))
		return 0;
	if (resched_timer->wanted < moment)
		resched_timer->wanted = moment;
	/* When the next task's slice ends is not known yet. */
	at_ns = place_is_left(c) ? now + c->slice_ns : resched_due_ns(c, moment);
	if (!resched_timer->armed_ns || at_ns < resched_timer->armed_ns ||
	    resched_timer->armed_ns + TIMER_LATE_NS < now)
		resched_timer_arm(resched_timer, at_ns, now);
	return 0;
}

/*
 * A member begins to run; the slice of a light one ends on time. No waiting task has been compared
 * with it yet: one that waited for its predecessor now waits for the end of this one's slice.
 */
INLINE void resched_timer_run(struct task_ctx *t, u32 cpu, u64 now)
{
	struct resched_timer *resched_timer = bpf_map_lookup_elem(&resched_timers, &cpu);

	if (resched_timer && resched_timer->wanted == RESCHED_SOON)
		resched_timer->wanted = RESCHED_AT_END;
	if (task_set_running(t, now))
		resched_timer_set(t->runqueue, cpu, RESCHED_AT_END, now);
}

static int resched_timer_fires(void *map, u32 *cpu, struct resched_timer *resched_timer)
{
	struct ext_cpu *c = cpu_at(*cpu);
	u64 now = now_ns(), due_ns;

	resched_timer->armed_ns = 0;
	if (!c || !resched_timer->wanted || c->need_resched || !(c->state & EXT_CPU_RUNS))
		return 0;
	due_ns = resched_due_ns(c, resched_timer->wanted);
	if (due_ns > now + TIMER_NEAR_NS) {
		resched_timer_arm(resched_timer, due_ns, now);
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
