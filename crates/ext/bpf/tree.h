/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a task is worth in its line: hierarchical weights, flattened.
 *
 * A run queue per group and CPU is more than a BPF scheduler can afford, so the tree is flattened
 * at each level into what a task of it would get: its weight, times each group's weight over what
 * is active in that group, up to the root. The unit is the kernel's (a task of nice 0, or a group
 * of weight 100, in the root is 1024), with 20 fractional bits.
 *
 * Weights are at most 10000 * 1024 / 100 = 102,400 < 2^17, so a flat weight is below 2^37 and its
 * product with a weight below 2^54; a least flat weight of 2^14, 1/65536 of a task in the root,
 * keeps virtual times within 2^49 for 8 s. What is active in a group changes under a waiting task;
 * its share is looked up again when it is queued next.
 *
 * Each group has its own lock. A group that becomes active (its first entity) adds itself to its
 * parent, one that becomes idle takes away what it added: the sums commute, so whichever of two
 * CPUs gets to the parent first, what stands there in the end is right; in between it may be short
 * by one entity, which `flat` allows for.
 */
#ifndef TIDEGATE_EXT_TREE_H
#define TIDEGATE_EXT_TREE_H

#include "ext.h"

#define FLAT_LEAST (1ULL << 14)
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

/* An entity of this weight comes (by = 1), goes (-1), or changes (0) in a group; what the group's
 * parent must be told. */
INLINE bool tree_step(struct group *g, s64 *weight, s32 *by)
{
	u32 now, before;
	s32 had;

	bpf_spin_lock(&g->lock);
	had = g->entities;
	g->entities = had + *by;
	g->active += *weight;
	before = g->placed;
	now = g->entities > 0 ? g->flags & GROUP_IDLE ? WEIGHT_IDLE : g->weight : 0;
	g->placed = now;
	bpf_spin_unlock(&g->lock);
	*weight = (s64)now - before;
	*by = (now != 0) - (before != 0);
	return now != before;
}

/* Tells the groups above, as far as it matters to them. Global, so that the verifier walks it once.
 */
int tree_climb(u32 at, s64 weight, s32 by)
{
	u32 level;

	EXT_FOR(level, EXT_LEVELS_MAX)
	{
		struct group *g = at == GROUP_ROOT ? NULL : group_at(at);

		if (!g || !tree_step(g, &weight, &by))
			break;
		at = g->parent;
	}
	return 0;
}

INLINE void tree_change(u32 at, s64 weight, s32 by)
{
	struct group *g = at == GROUP_ROOT ? NULL : group_at(at);

	if (g && tree_step(g, &weight, &by) && g->parent != GROUP_ROOT)
		tree_climb(g->parent, weight, by);
}

/* A task begins to compete. Whoever wins the exchange counts it, or takes back what was counted
 * where. */
INLINE bool tree_activate(struct task_ctx *t)
{
	u32 group = t->group, weight = t->weight;

	if (!__sync_bool_compare_and_swap(&t->counted, 0ULL, (u64)group << 32 | weight))
		return false;
	tree_change(group, weight, 1);
	return true;
}

/* It sleeps, is parked, or is gone. */
INLINE void tree_deactivate(struct task_ctx *t)
{
	u64 counted = __sync_lock_test_and_set(&t->counted, 0ULL);

	if (counted)
		tree_change(counted >> 32, -(s64)(u32)counted, -1);
}

/* What a flat weight becomes a level up. */
INLINE u64 tree_part(struct group *g, u64 flat, u64 own)
{
	s64 active = g->active;

	return flat * (g->flags & GROUP_IDLE ? WEIGHT_IDLE : g->weight) /
	       tg_max(tg_max(active < 0 ? 0 : (u64)active, own), 1);
}

u64 tree_flat_above(u32 at, u64 flat, u64 own)
{
	u32 level;

	EXT_FOR(level, EXT_LEVELS_MAX)
	{
		struct group *g = at == GROUP_ROOT ? NULL : group_at(at);

		if (!g)
			break;
		flat = tree_part(g, flat, own);
		own = g->flags & GROUP_IDLE ? WEIGHT_IDLE : g->weight;
		at = g->parent;
	}
	return flat;
}

/* What a task of this weight in a group is worth now. */
INLINE u64 tree_flat(u32 at, u32 weight)
{
	u64 flat = (u64)weight << FLAT_BITS;
	struct group *g = at == GROUP_ROOT ? NULL : group_at(at);

	if (g) {
		flat = tree_part(g, flat, weight);
		if (g->parent != GROUP_ROOT)
			flat = tree_flat_above(g->parent, flat,
					       g->flags & GROUP_IDLE ? WEIGHT_IDLE : g->weight);
	}
	return tg_max(flat, FLAT_LEAST);
}

#endif
