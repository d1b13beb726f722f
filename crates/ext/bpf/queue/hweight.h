/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Hierarchical weights, flattened: what a task is worth in its run queue.
 *
 *	hweight = task's weight * product over its groups of (group's weight / active weight in it)
 *
 * A run queue for each group and CPU costs more than BPF can afford. The unit is the kernel's (a task
 * of nice 0, or a group of weight 100, in the root is 1024), with 20 fractional bits.
 *
 *	a weight is at most 10000 * 1024 / 100 = 102,400	< 2^17
 *	so an hweight						< 2^37, times a weight < 2^54
 *	the least hweight, 2^14 (1/65536 of a task in the root), keeps virtual times in 2^49 for 8 s
 *
 * What is active in a group changes under a waiting task; its share is looked up again when it is
 * queued next. Each group has its own lock. A group that becomes active (its first entity) adds itself
 * to its parent, one that becomes idle takes away what it added. The sums commute, so the result does
 * not depend on which of two CPUs reaches the parent first; in between a sum may lack one entity,
 * which hweight_of_level allows for.
 */
#ifndef TIDEGATE_EXT_HWEIGHT_H
#define TIDEGATE_EXT_HWEIGHT_H

#include "core/ext.h"

#define HWEIGHT_MIN (1ULL << 14)
#define WEIGHT_IDLE 3 /* the kernel's WEIGHT_IDLEPRIO */

/* Each nice level is a tenth of a CPU beside an equal: the kernel's sched_prio_to_weight, which is
 * ABI in effect. */
static const u32 nice_weights[40] = {
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906,  3121,  2501,	 1991,	1586,  1277,  1024,  820,   655,   526,	  423,	335,  272,  215,
    172,   137,	  110,	 87,	70,    56,    45,    36,    29,	   23,	  18,	15,
};

/* sched_ext's own weight of a task is in percent of nice 0's, too coarse for positive nice levels.
 */
INLINE u32 task_weight(struct task_struct *p)
{
	u32 level = p->static_prio - 100;

	if (p->policy == SCHED_IDLE)
		return WEIGHT_IDLE;
	return level < 40 ? nice_weights[level] : 1024;
}

INLINE u32 group_weight(u32 cgroup_weight)
{
	u32 weight = cgroup_weight * 1024 / 100;

	return weight ? weight : 1;
}

/*
 * An entity of this weight comes (by = 1), goes (-1), or changes (0) in a group; returns by what
 * the group's parent is to change.
 */
INLINE bool hweight_update(struct group *g, s64 *weight, s32 *by)
{
	u32 now, before;
	s32 had;

	bpf_spin_lock(&g->lock);
	had = g->entities;
	g->entities = had + *by;
	g->active += *weight;
	before = g->weight_in_parent;
	now = g->entities > 0 ? g->flags & GROUP_IDLE ? WEIGHT_IDLE : g->weight : 0;
	g->weight_in_parent = now;
	bpf_spin_unlock(&g->lock);
	*weight = (s64)now - before;
	*by = (now != 0) - (before != 0);
	return now != before;
}

/* Updates the groups above, as far as they change. Global, so that the verifier walks it once. */
int hweight_propagate(u32 at, s64 weight, s32 by)
{
	u32 level;

	EXT_FOR(level, EXT_LEVELS_MAX)
	{
		struct group *g = at == GROUP_ROOT ? NULL : group_at(at);

		if (!g || !hweight_update(g, &weight, &by))
			break;
		at = g->parent;
	}
	return 0;
}

INLINE void hweight_change(u32 at, s64 weight, s32 by)
{
	struct group *g = at == GROUP_ROOT ? NULL : group_at(at);

	if (g && hweight_update(g, &weight, &by) && g->parent != GROUP_ROOT)
		hweight_propagate(g->parent, weight, by);
}

/*
 * A task begins to compete. The CPU that wins the exchange counts it, or takes back what was
 * counted.
 */
INLINE bool hweight_activate(struct task_ctx *t)
{
	u32 group = t->group, weight = t->weight;

	if (!__sync_bool_compare_and_swap(&t->active_entry, 0ULL, (u64)group << 32 | weight))
		return false;
	hweight_change(group, weight, 1);
	return true;
}

/* It sleeps, is throttled, or is gone. */
INLINE void hweight_deactivate(struct task_ctx *t)
{
	u64 active_entry = __sync_lock_test_and_set(&t->active_entry, 0ULL);

	if (active_entry)
		hweight_change(active_entry >> 32, -(s64)(u32)active_entry, -1);
}

/* What an hweight becomes a level up. */
INLINE u64 hweight_of_level(struct group *g, u64 hweight, u64 own)
{
	s64 active = g->active;

	return hweight * (g->flags & GROUP_IDLE ? WEIGHT_IDLE : g->weight) /
	       tg_max(tg_max(active < 0 ? 0 : (u64)active, own), 1);
}

u64 hweight_above(u32 at, u64 hweight, u64 own)
{
	u32 level;

	EXT_FOR(level, EXT_LEVELS_MAX)
	{
		struct group *g = at == GROUP_ROOT ? NULL : group_at(at);

		if (!g)
			break;
		hweight = hweight_of_level(g, hweight, own);
		own = g->flags & GROUP_IDLE ? WEIGHT_IDLE : g->weight;
		at = g->parent;
	}
	return hweight;
}

/* What a task of this weight in a group is worth now. */
INLINE u64 hweight_of_task(u32 at, u32 weight)
{
	u64 hweight = (u64)weight << HWEIGHT_SHIFT;
	struct group *g = at == GROUP_ROOT ? NULL : group_at(at);

	if (g) {
		hweight = hweight_of_level(g, hweight, weight);
		if (g->parent != GROUP_ROOT)
			hweight = hweight_above(g->parent, hweight,
						g->flags & GROUP_IDLE ? WEIGHT_IDLE : g->weight);
	}
	return tg_max(hweight, HWEIGHT_MIN);
}

#endif
