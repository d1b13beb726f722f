/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Callbacks for tasks that come and go. Thin (main.bpf.c).
 */
#ifndef TIDEGATE_EXT_TASK_OPS_H
#define TIDEGATE_EXT_TASK_OPS_H

#include "limits/caps.h"
#include "ops/group_ops.h"
#include "side/side_cpus.h"
#include "timers/starvation.h"

INLINE void activate(struct task_struct *p, struct task_ctx *t, s32 cpu, u32 how)
{
	t->flags &= ~TASK_DENIED;
	if (caps_on)
		caps_update(p, t, now_ns());
	task_activate(p, t, cpu, how);
}

/* A task ran until now; `on`: it may go on. */
INLINE void charge(struct task_struct *p, struct task_ctx *t, s32 cpu, struct ext_cpu *c, u64 now,
		   bool on)
{
	u64 ran_ns = task_charge(t, now);

	c->min_runs += t->min_runtime_ns != 0;
	if (t->limit)
		limit_charge(t, cpu, cpu_ran_by_kernel(p, c, ran_ns));
	if (t->caps[0])
		caps_charge(t, ran_ns, now, c->kind != EXT_MAIN);
	if (on && caps_on)
		caps_update(p, t, now);
}

/*
 * A task's context, made if it has none yet. Until task storage had locks of its own (7.0), the
 * kernel made none on a CPU on which a task had been preempted in the middle of making or freeing
 * one. A fork is not to fail for that ("can't fork: Cannot allocate memory", in storms of forks and
 * exits): the child is run as it comes, and whenever it is queued this is tried again.
 */
static __attribute__((noinline)) struct task_ctx *task_make(struct task_struct *p)
{
	struct cgroup *cgroup;
	struct task_ctx *t;

	if (!scx_bpf_task_cgroup)
		return NULL;
	t = bpf_task_storage_get(&tasks, p, NULL, STORAGE_CREATE);
	if (!t)
		return NULL;
	t->slice_ns = config.slice_ns;
	cgroup = scx_bpf_task_cgroup(p);
	group_enter(t, cgroup);
	bpf_cgroup_release(cgroup);
	return t;
}

/* Arguments: struct task_struct *p, struct scx_init_task_args *args */
OPS(init_task)
s32 init_task(u64 *ctx)
{
	struct task_struct *p = (struct task_struct *)ctx[0];
	struct scx_init_task_args *args = (struct scx_init_task_args *)ctx[1];
	struct task_ctx *t = bpf_task_storage_get(&tasks, p, NULL, STORAGE_CREATE);

	/* task_make */
	if (!t)
		return 0;
	t->slice_ns = config.slice_ns;
	t->forked_by = args->fork ? bpf_get_current_task_btf()->pid : 0;
	group_enter(t, args->cgroup);
	return 0;
}

/* Arguments: struct task_struct *p, struct scx_exit_task_args *args */
OPS(exit_task)
int exit_task(u64 *ctx)
{
	struct task_struct *p = (struct task_struct *)ctx[0];
	struct task_ctx *t = task_of(p);

	if (t) {
		hweight_deactivate(t);
		group_reap(t->group);
		caps_release(t);
	}
	return 0;
}

/* Arguments: struct task_struct *p. It comes to this class, with nothing owed. */
OPS(enable)
int enable(u64 *ctx)
{
	struct task_struct *p = (struct task_struct *)ctx[0];
	struct task_ctx *t = task_of(p);

	if (!t)
		return 0;
	t->lag = 0;
	t->woken_ns = 0;
	t->since_ns = 0;
	t->flags = t->forked_by ? t->flags | TASK_NEW : t->flags & ~TASK_NEW;
	if (caps_on && t->forked_by)
		caps_inherit(p, t);
	t->forked_by = 0;
	return 0;
}

/* Arguments: struct task_struct *p, u64 deq_flags */
OPS(quiescent)
int quiescent(u64 *ctx)
{
	struct task_struct *p = (struct task_struct *)ctx[0];
	struct task_ctx *t = task_of(p);

	if (!t)
		return 0;
	task_deactivate(t);
	if (ctx[1] & CONST(scx_deq_flags, SCX_DEQ_SLEEP))
		t->since_ns = 0;
	if (caps_on)
		caps_quiescent(p, t);
	return 0;
}

#endif
