/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Starvation guard: no runnable task waits for longer than about 10 s, whatever weights say.
 *
 *	every STARVATION_INTERVAL_NS, while a task waits, for each queue:
 *	  waited STARVATION_NS			to the front, for MIN_RUNTIME_NS
 *	  inside the kernel for 1 s		to the front, for IN_KERNEL_RUN_NS (in_kernel.h)
 *	  preempted as a reader of RCU, 1 s	to the front; as main
 *	  its gate has another class by now	to the queue of that kind
 *	  killed or exiting, in side/background	to main's queue
 *	  its CPU goes offline			to the CPU's own queue, from which the kernel takes it
 *	  in a CPU's queue, may run on others	to the queue for several CPUs
 *
 * The kernel ejects a scheduler that leaves a task waiting for 30 s, and weights alone do not
 * prevent that: hweights go down to a 65536th. The runs are charged as any run, so shares stay what
 * weights say; they cost 5 millionths of a CPU for each starved task. The kernel waits until no
 * task is left on a CPU that goes offline, and such a CPU takes none from our queues.
 */
#ifndef TIDEGATE_EXT_STARVATION_H
#define TIDEGATE_EXT_STARVATION_H

#include "timers/realtime.h"
#include "timers/timer_guard.h"

/* Before all others that were brought forward (TG_ENQUEUE_FRONT); ages are below 2^45 ns. */
#define STARVATION_FRONT (1ULL << 47)
/* Tasks of a queue that are looked at; in turn from its beginning and from its end, where those of
 * tiny weights are. */
#define STARVATION_SCAN_MAX 4096
/*
 * A preempted reader of RCU holds up the whole machine's grace periods; the kernel ejects after 21
 * s.
 */
#define RCU_READER_NS 1000000000ULL
/* After this many looks at empty queues the timer stops. */
#define STARVATION_IDLE_ROUNDS 4

enum starvation_verdict { STARVATION_NONE, STARVATION_RUN, STARVATION_NEW_KIND };

/*
 * What is to become of a task that waits; its kind is put right at once. Being in the background is
 * for its caps to say: one whose cap was removed or raised is main's again, whatever queue it is
 * in. Global, as all here, so that the verifier walks it once.
 */
u32 starvation_check(struct task_ctx *t NONNULL, u32 exempt, u32 reads, u32 inside, u64 now)
{
	u32 kind = t->kind;

	reads = reads && tg_sub0(now, t->since_ns) >= RCU_READER_NS;
	inside = inside && !exempt && !reads && in_kernel_grant(t);
	if (exempt || reads || (inside && kind == EXT_BACKGROUND) ||
	    (kind == EXT_BACKGROUND && cap_worst(t, now) == TG_CAP_RUN)) {
		kind = EXT_MAIN;
	} else if (t->generation != gates_generation()) {
		struct group *g = group_of_task(t);

		if (g && g->generation != gates_generation())
			group_resolve(t->group, gates_generation());
		if (g && (g->kind == EXT_SIDE || kind == EXT_SIDE))
			kind = g->kind;
	}
	if (kind != t->kind) {
		if (!task_change_kind(t, kind, now))
			return STARVATION_NONE;
		/* A reader is looked at again when it has run (task_refresh). */
		t->generation = exempt ? t->generation : 0;
		return STARVATION_NEW_KIND;
	}
	if (reads || inside)
		return STARVATION_RUN;
	if (!task_starved(t, now))
		return STARVATION_NONE;
	t->min_runtime_ns = MIN_RUNTIME_NS;
	return STARVATION_RUN;
}

/* Whether a queue is the CPU's own. */
INLINE bool starvation_is_own(u64 dsq, u32 cpu)
{
	return dsq == dsq_pinned(cpu, EXT_MAIN) || dsq == dsq_pinned(cpu, EXT_SIDE);
}

/*
 * A CPU that begins to go offline waits for the readers of RCU before it says so, and takes no task
 * from its queue meanwhile: a reader that waits there is handed to the kernel as well.
 */
u32 starvation_stuck_reader(struct task_ctx *t NONNULL, u64 dsq, u32 cpu, u32 reads, u64 now)
{
	return reads && tg_sub0(now, t->since_ns) >= RCU_READER_NS && starvation_is_own(dsq, cpu);
}

/* One queue of a run queue. True: a task waits in it. */
u32 starvation_scan(u64 dsq, u32 runqueue, u64 flags, u64 now)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	struct task_ctx *t;
	struct runqueue *rq = runqueue_at(runqueue);
	struct cpu_time *s;
	u64 front = rq ? tg_runqueue_v(&rq->mean) - STARVATION_FRONT : 0, to, at;
	u32 look, verdict;
	s32 cpu;
	EXT_RCU;

	if (!rq || scx_bpf_dsq_nr_queued(dsq) <= 0)
		return false;
	if (!bpf_iter_scx_dsq_new(&it, dsq, flags)) {
		EXT_FOR(look, STARVATION_SCAN_MAX)
		{
			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			cpu = scx_bpf_task_cpu(p);
			s = cpu_time_at(cpu);
			t = task_of(p);
			if ((s && s->offline) ||
			    (t && starvation_stuck_reader(t, dsq, cpu, task_reads_rcu(p), now))) {
				dsq_move(&it, p, SCX_DSQ_LOCAL_ON | cpu);
				scx_bpf_kick_cpu(cpu, 0);
				continue;
			}
			if (!t)
				continue;
			verdict =
			    starvation_check(t, group_exempt(p), task_reads_rcu(p),
					     in_kernel_waits(p, t, IN_KERNEL_AFTER_NS, now), now);
			/* One that pick_sort has put into a CPU's own queue may run on others. */
			if (verdict == STARVATION_NONE &&
			    (p->nr_cpus_allowed == 1 || !starvation_is_own(dsq, cpu)))
				continue;
			to = dsq;
			at = front - tg_min(tg_sub0(now, t->since_ns), 1ULL << 45);
			if (verdict != STARVATION_RUN) {
				to = task_dsq(p, t, cpu);
				at = t->deadline - (t->min_runtime_ns ? STARVATION_FRONT : 0);
			}
			/*
			 * A busy CPU sees it at its next tick; one may be idle because the
			 * allowance was used up.
			 */
			cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
			dsq_move_vtime(&it, p, to, at);
			/* Moved or not: no other looks for that CPU until it has looked itself. */
			if (cpu >= 0)
				scx_bpf_kick_cpu(cpu, CONST(scx_kick_flags, SCX_KICK_IDLE));
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return true;
}

/*
 * Tasks that a quota (of that limit) or a cap (0) throttles, in one queue: those that wait inside
 * the kernel are let go.
 */
int starvation_scan_throttled(u64 dsq, u32 limit, u64 now)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	struct task_ctx *t;
	u32 look;
	EXT_RCU;

	if (scx_bpf_dsq_nr_queued(dsq) <= 0)
		return 0;
	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		EXT_FOR(look, STARVATION_SCAN_MAX)
		{
			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			t = task_of(p);
			if (!t || !in_kernel_waits(p, t, IN_KERNEL_AFTER_NS, now))
				continue;
			if (limit ? !limit_pays_in_kernel(limit, now)
				  : !cap_pays_in_kernel(t->throttler, now))
				continue;
			t->min_runtime_ns = IN_KERNEL_RUN_NS;
			if (!limit) {
				cap_count_min_run(t);
				cap_count_throttled(t, now);
			}
			unthrottle(&it, p, t, now);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return 0;
}

/* The queues of a cache. */
u32 starvation_scan_cache(u32 llc, u64 flags, u64 now)
{
	u32 waits = false;

	in_kernel_refill(config.cpus / config.llcs + 1);
	for (u32 kind = 0; kind < EXT_KINDS; kind++) {
		u32 runqueue = runqueue_index(llc, kind);

		waits |= starvation_scan(dsq_wide(runqueue), runqueue, flags, now);
		waits |= starvation_scan(dsq_narrow(runqueue), runqueue, flags, now);
	}
	waits |= starvation_scan(dsq_recall(llc), runqueue_index(llc, EXT_BACKGROUND), flags, now);
	starvation_scan_throttled(dsq_cap_throttled(llc), 0, now);
	return waits;
}

/* The queues of one CPU. */
u32 starvation_scan_cpu(u32 cpu, u64 flags, u64 now)
{
	struct ext_cpu *c = cpu_at(cpu);
	u32 llc = c ? c->llc : 0;

	in_kernel_refill(1);
	return starvation_scan(dsq_pinned(cpu, EXT_MAIN), runqueue_index(llc, EXT_MAIN), flags,
			       now) |
	       starvation_scan(dsq_pinned(cpu, EXT_SIDE), runqueue_index(llc, EXT_SIDE), flags,
			       now);
}

u32 starvation_found; /* in this look, where the loops keep it */

/* All queues. */
u32 starvation_scan_all(u64 flags, u64 now)
{
	u32 at;

	starvation_found = 0;
	EXT_FOR(at, config.llcs)
	{
		if (starvation_scan_cache(at, flags, now))
			starvation_found = 1;
	}
	EXT_FOR(at, config.cpus)
	{
		if (config.cpus > 1 && starvation_scan_cpu(at, flags, now))
			starvation_found = 1;
	}
	EXT_FOR(at, limits_used)
	{
		starvation_scan_throttled(dsq_throttled(at + 1), at + 1, now);
	}
	return starvation_found;
}

static int starvation_fires(void *map, u32 *key, struct starvation_timer *w)
{
	u64 now = now_ns();
	bool waits = starvation_scan_all(
	    w->rounds++ & 1 ? CONST(scx_dsq_iter_flags, SCX_DSQ_ITER_REV) : 0, now);

	waits |= timer_guard_check(now);
	waits |= realtime_check(now);
	w->idle_rounds = waits ? 0 : w->idle_rounds + 1;
	if (w->idle_rounds >= STARVATION_IDLE_ROUNDS) {
		w->idle_rounds = 0;
		__sync_lock_test_and_set(&starvation_on, 0);
		/* A task that came meanwhile has seen the timer on, and not started it. */
		if ((!starvation_scan_all(0, now) && !timer_guard_check(now)) ||
		    __sync_val_compare_and_swap(&starvation_on, 0, 1))
			return 0;
	}
	starvation_due_ns = now + STARVATION_INTERVAL_NS;
	/* The next one that waits tries again. */
	if (bpf_timer_start(&w->timer, STARVATION_INTERVAL_NS, 0))
		__sync_lock_test_and_set(&starvation_on, 0);
	return 0;
}

/* Once, from `init` (as slice_timer_init). */
INLINE s32 starvation_init(void)
{
	u32 zero = 0;
	struct starvation_timer *w = bpf_map_lookup_elem(&starvation_timers, &zero);
	s32 failed;

	if (!w)
		return -ENOENT;
	failed = bpf_timer_init(&w->timer, &starvation_timers, CLOCK_MONOTONIC);
	return failed ? failed : bpf_timer_set_callback(&w->timer, starvation_fires);
}

/* ---- the least run ---- */

/* `running`: a least run ends by the CPU's slice timer. */
INLINE void min_runtime_start(struct task_ctx *t, u32 cpu, u64 now)
{
	if (t->min_runtime_ns)
		slice_timer_set(cpu, now + t->min_runtime_ns, now);
}

/* It has had it. */
INLINE void min_runtime_stop(struct task_ctx *t, u32 cpu)
{
	if (!t->min_runtime_ns)
		return;
	t->min_runtime_ns = 0;
	slice_timer_clear(cpu);
}

#endif
