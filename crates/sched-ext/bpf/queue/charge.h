/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A run is charged: from when to when, by which clock.
 *
 *	stopping	cpu_switch_begins
 *	running		cpu_charge_from: the switch belongs to the task that it leads to
 *	stopping	task_charge (our clock: virtual time, accounts, caps),
 *			cpu_ran_by_kernel (the kernel's, as cpu.stat has it: quotas)
 */
#ifndef TIDEGATE_EXT_CHARGE_H
#define TIDEGATE_EXT_CHARGE_H

#include "core/account.h"
#include "queue/runqueue.h"

/* A task ran until now on this CPU. */
INLINE u64 task_charge(struct task_ctx *t, u64 now)
{
	u64 ran_ns = tg_sub0(now, t->since_ns);

	t->since_ns = now;
	runqueue_charge(t, ran_ns);
	account_charge(t, ran_ns);
	return ran_ns;
}

/* A switch that has taken longer than this is none: other classes ran in between. */
#define SWITCH_MAX_NS 100000ULL

/*
 * The CPU turns away from the task that the kernel still has as its current one. `displaced`: for a
 * higher class, which the switch belongs to; the task is put back meanwhile, and is not charged for
 * that.
 */
INLINE void cpu_switch_begins(struct ext_cpu *c, u64 now, bool displaced)
{
	c->switch_ns = now;
	c->switch_pid = displaced ? 0 : bpf_get_current_task_btf()->pid;
}

/*
 * Since when a task is charged that begins to run: the switch from the one before counts for it, as
 * with the kernel's schedulers, or a group whose tasks fork and exit gets 2 us more than it is
 * charged for at each. After a task of another class, or idle, the current task is not the one that
 * stopped. Only where there are caps or quotas: it takes 80 ns.
 */
INLINE u64 cpu_charge_from(struct ext_cpu *c, u64 now)
{
	u64 took_ns = tg_sub0(now, c->switch_ns);

	if (!c->switch_pid || (u32)bpf_get_current_task_btf()->pid != c->switch_pid)
		return now;
	return took_ns > SWITCH_MAX_NS ? now : now - took_ns;
}

/* So far may the kernel's clock stay behind: at the end of a run it is read a little before ours.
 */
#define KERNEL_CLOCK_LAG_NS 1000ULL

/*
 * What quotas are charged for what ran: what the kernel counts for cpu.stat, from when the switch
 * to the task begins, out of idle as well, to when the next one does (without, a group that wakes
 * 2,800 times a second had 10.9 of 10 %). Where its clock stands still it is our own count: 7.3's
 * does for whole runs (it saw 1.7 of 20 %; believed, a cap beside a quota of 10 % made it one of
 * 20).
 */
INLINE u64 cpu_ran_by_kernel(struct task_struct *p, struct ext_cpu *c, u64 ran_ns)
{
	u64 clock = p->se.exec_start, by_kernel_ns = tg_sub0(clock, c->clock_ns);

	if (!c->clock_ns || by_kernel_ns > ran_ns + SWITCH_MAX_NS) {
		c->clock_ns = clock;
		return ran_ns;
	}
	if (by_kernel_ns + KERNEL_CLOCK_LAG_NS < ran_ns)
		by_kernel_ns = ran_ns;
	/* Ahead of a clock that stands: what it then shows at once is not charged again. */
	c->clock_ns += by_kernel_ns;
	return by_kernel_ns;
}

/* Other CPUs may see what this one runs. */
INLINE void cpu_publish(struct task_ctx *t, struct ext_cpu *c, u64 now)
{
	c->kind = t->kind;
	c->hint = t->hint;
	c->group = t->group;
	c->weight = t->weight;
	c->deadline = t->deadline;
	c->vruntime = t->vruntime;
	c->hweight = t->hweight;
	c->slice_ns = t->slice_ns;
	c->since_ns = now;
	c->need_resched = 0;
	c->state = EXT_CPU_RUNS | (t->flags & TASK_YIELDS ? EXT_CPU_YIELDS : 0) |
		   (t->account == EXT_ACCOUNT_KERNEL ? EXT_CPU_KTHREAD : 0);
}

#endif
