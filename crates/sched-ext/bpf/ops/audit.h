/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Counts the tasks that are members of each run queue, and compares with what the run queues and
 * the tree of weights count. On a machine at rest both are the same; while tasks wake up elsewhere
 * they may differ for a moment. For the tests.
 */
#ifndef TIDEGATE_EXT_AUDIT_H
#define TIDEGATE_EXT_AUDIT_H

#include "ops/group_ops.h"

#define AUDIT_THREADS 1 /* BPF_TASK_ITER_ALL_THREADS */
#define AUDIT_TASKS_MAX (1 << 20)

u32 audit_found[EXT_LLCS_MAX * EXT_KINDS]; /* members of a run queue */
u32 audit_wrong;			   /* what does not agree, where the loops keep it */

/* One task: counted where it is a member; its group counts its weight while it is one. */
int audit_task(struct task_ctx *t NONNULL)
{
	u32 on_rq = t->on_rq, runqueue = on_rq - ON_RQ;

	if (on_rq >= ON_RQ && runqueue < EXT_LLCS_MAX * EXT_KINDS)
		audit_found[runqueue]++;
	if ((on_rq >= ON_RQ) != !!t->active_entry)
		audit_wrong++;
	return 0;
}

/* From the loader. Returns how many members of run queues are none, or are not counted, and how
 * many tasks' weights are counted though they should not be, or the reverse. */
SEC("syscall")
int audit(void *ctx)
{
	struct bpf_iter_task it;
	u32 runqueue, look;

	audit_wrong = 0;
	for (u32 at = 0; at < EXT_LLCS_MAX * EXT_KINDS; at++)
		audit_found[at] = 0;
	EXT_RCU;
	bpf_iter_task_new(&it, NULL, AUDIT_THREADS);
	EXT_FOR(look, AUDIT_TASKS_MAX)
	{
		struct task_struct *p = bpf_iter_task_next(&it);
		struct task_ctx *t = p ? task_of(p) : NULL;

		if (!p)
			break;
		if (t)
			audit_task(t);
	}
	bpf_iter_task_destroy(&it);
	EXT_FOR(runqueue, config.llcs * EXT_KINDS)
	{
		struct runqueue *rq = runqueue_at(runqueue);

		if (rq && runqueue < EXT_LLCS_MAX * EXT_KINDS)
			audit_wrong += tg_abs((s64)tg_runqueue_members(&rq->mean) -
					      (s64)audit_found[runqueue]);
	}
	return audit_wrong;
}

#endif
