/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Callbacks for groups: they come, go, change, and tasks move between them. Thin (main.bpf.c).
 */
#ifndef TIDEGATE_EXT_GROUP_OPS_H
#define TIDEGATE_EXT_GROUP_OPS_H

#include "limits/limit_timer.h"

#define OPS(name) SEC("struct_ops/" #name)
#define OPS_SLEEPABLE(name) SEC("struct_ops.s/" #name)

/* Arguments: struct cgroup *cgroup, struct scx_cgroup_init_args *args */
OPS_SLEEPABLE(cgroup_init)
s32 cgroup_init(u64 *ctx)
{
	return group_init((struct cgroup *)ctx[0], (struct scx_cgroup_init_args *)ctx[1]);
}

/* Arguments: struct cgroup *cgroup */
OPS_SLEEPABLE(cgroup_exit)
int cgroup_exit(u64 *ctx)
{
	group_exit((struct cgroup *)ctx[0]);
	return 0;
}

/* Arguments: struct task_struct *p, struct cgroup *from, struct cgroup *to. The task does not
 * compete meanwhile. */
OPS(cgroup_move)
int cgroup_move(u64 *ctx)
{
	struct task_ctx *t = task_of((struct task_struct *)ctx[0]);

	if (t) {
		group_enter(t, (struct cgroup *)ctx[2]);
		t->caps_generation = 0;
	}
	return 0;
}

/* Arguments: struct cgroup *cgroup, u32 weight */
OPS(cgroup_set_weight)
int cgroup_set_weight(u64 *ctx)
{
	group_reweigh((struct cgroup *)ctx[0], tg_group_weight((u32)ctx[1]), -1);
	return 0;
}

/* Arguments: struct cgroup *cgroup, u64 period_us, u64 quota_us, u64 burst_us */
OPS(cgroup_set_bandwidth)
int cgroup_set_bandwidth(u64 *ctx)
{
	limit_recheck(group_bandwidth((struct cgroup *)ctx[0], ctx[1], ctx[2], ctx[3]));
	return 0;
}

/* From the loader: whether a group's quota is a mirror (pool.h) has changed. */
SEC("syscall")
int set_mirror(struct ext_mirror_ask *ask)
{
	limit_recheck(group_remirror(ask->cgroup_id));
	return 0;
}

/* From the loader: gates have changed, and what counts for the whole machine may have. */
SEC("syscall")
int set_terms(struct ext_terms_ask *ask)
{
	struct ext_control *shared = ext_shared();

	if (!shared)
		return 0;
	shared->side_gates = ask->side_gates;
	shared->headroom_ppm = ask->headroom_ppm;
	shared->tolerance_ppm = ask->tolerance_ppm;
	__sync_fetch_and_add(&shared->gates_generation, 1);
	return 0;
}

/* Arguments: struct cgroup *cgroup, bool idle */
OPS(cgroup_set_idle)
int cgroup_set_idle(u64 *ctx)
{
	group_reweigh((struct cgroup *)ctx[0], 0, (bool)ctx[1]);
	return 0;
}

#endif
