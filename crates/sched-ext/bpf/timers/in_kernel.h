/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tasks that are kept waiting inside the kernel go on, a little at a time.
 *
 * Such a task may hold what all wait for: the cgroups' mutex, a page's lock, a CPU that goes
 * offline.
 * Since 6.18 the fair class throttles a task on its way out to user space only.
 *
 * A BPF scheduler is not told where a task was when it was put back, but once it is switched out
 * the kernel keeps its stack pointer:
 *
 *	stack		|<-------- free ------->|<---- used ---->| base
 *	to user space	 the most that is seen (learnt: in_kernel_exit_free)
 *	in the kernel	 less, by 360 bytes and more on 6.18, 736 on 7.3 (145 waiting tasks)
 *
 * Without such a pointer (not x86) no task counts as inside. One that slept and is woken counts as
 * inside, whether it holds anything or not; so only a long wait counts, and the runs are few: of
 * tasks that wait in a run queue a twentieth of the machine, of throttled ones no more than the
 * rate of their quota or cap, which is charged.
 */
#ifndef TIDEGATE_EXT_IN_KERNEL_H
#define TIDEGATE_EXT_IN_KERNEL_H

#include "timers/starvation_timer.h"

/* A run; many a way out of the kernel is shorter. */
#define IN_KERNEL_RUN_NS 1000000U
#define IN_KERNEL_AFTER_NS 1000000000ULL
/*
 * Of a small cap many tasks have a few us each: one that has waited for this long until it was let
 * go has a whole run, which its bucket owes.
 */
#define IN_KERNEL_CAP_AFTER_NS 100000000ULL
/*
 * Runs of waiting members between two looks, for each CPU: together a fortieth of the machine to
 * those that may run anywhere, and as much to those of one CPU.
 */
#define IN_KERNEL_RUNS (u32)(STARVATION_INTERVAL_NS / 40 / IN_KERNEL_RUN_NS)
/* Two ways out to user space may differ by so much. */
#define IN_KERNEL_SLACK 128
/* The most that was free of any stack: of a task on the way out to user space. */
u64 in_kernel_exit_free;
u32 in_kernel_runs_left; /* runs until the next look */

/* A new look at the queues of so many CPUs: all runs are available again. */
INLINE void in_kernel_refill(u32 cpus)
{
	in_kernel_runs_left = cpus * IN_KERNEL_RUNS;
}

/*
 * Whether the next run on account of a limit of `rate_ppt` is due: they come no faster than the
 * rate pays for.
 */
INLINE bool in_kernel_paid(u64 *last_ns, u64 rate_ppt, u64 now)
{
	if (!rate_ppt || now < *last_ns + IN_KERNEL_RUN_NS * 1000ULL / rate_ppt)
		return false;
	*last_ns = now;
	return true;
}

/* Workers of the kernel's never go out to user space. */
#define PF_KERNEL_WORKERS (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER)

/* What is free of the stack of one that is switched out. */
INLINE u64 task_stack_free(struct task_struct *p)
{
	u64 base = 0;

	/* Read as memory: 7.3's verifier takes it for a pointer, from which it lets nothing be
	 * subtracted. */
	bpf_probe_read_kernel(&base, sizeof(base), &p->stack);
	return p->thread.sp - base;
}

/* `running`: one that was put back goes on. One that has never been switched away has a stack that
 * was made up for it. A look costs 0.1 us, and one in sixteen is enough. */
INLINE void in_kernel_learn(struct task_struct *p, struct task_ctx *t, u64 now)
{
	u64 room;

	if (now >> 4 & 15)
		return;
	if (!__builtin_preserve_field_info(p->thread.sp, 2) || t->woken_ns || !p->nivcsw ||
	    p->flags & PF_KERNEL_WORKERS)
		return;
	room = task_stack_free(p);
	if (room > in_kernel_exit_free)
		in_kernel_exit_free = room;
}

/* Whether a task has waited for so long, and inside the kernel. */
INLINE bool in_kernel_waits(struct task_struct *p, struct task_ctx *t, u64 after_ns, u64 now)
{
	if (!__builtin_preserve_field_info(p->thread.sp, 2) ||
	    tg_sub0(now, t->since_ns) < after_ns || !(p->nvcsw + p->nivcsw))
		return false;
	return task_stack_free(p) + IN_KERNEL_SLACK < in_kernel_exit_free;
}

/* It has a run, if there is one left. */
INLINE bool in_kernel_grant(struct task_ctx *t)
{
	if (t->min_runtime_ns)
		return true;
	if (!in_kernel_runs_left)
		return false;
	in_kernel_runs_left--;
	t->min_runtime_ns = IN_KERNEL_RUN_NS;
	return true;
}

#endif
