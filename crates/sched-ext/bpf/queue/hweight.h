/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The tree of hierarchical weights (law/hweight.h). A run queue for each group and CPU costs more
 * than BPF can afford.
 *
 * What is active in a group changes under a waiting task; its share is looked up again when it is
 * queued next, and when it comes first (pick_reweigh). Each group has its own lock. Each kind of
 * work has sums of its own: side work takes nothing from the main work of its group.
 */
#ifndef TIDEGATE_EXT_HWEIGHT_H
#define TIDEGATE_EXT_HWEIGHT_H

#include "core/ext.h"

/* sched_ext's own weight of a task is in percent of nice 0's, too coarse for positive nice levels.
 */
INLINE u32 task_weight(struct task_struct *p)
{
	return p->policy == SCHED_IDLE ? TG_WEIGHT_IDLE : tg_nice_weight(p->static_prio - 100);
}

/* What a group weighs in its parent while anything in it competes. */
INLINE u32 group_own_weight(struct group *g)
{
	return tg_if_less(0, g->flags & GROUP_IDLE, TG_WEIGHT_IDLE, g->weight);
}

/* Whether anything of any kind competes in a group. Under its lock. */
INLINE bool hweight_competes(struct group *g)
{
	return g->competes[EXT_MAIN].entities > 0 || g->competes[EXT_SIDE].entities > 0 ||
	       g->competes[EXT_BACKGROUND].entities > 0;
}

/* tg_hweight_update under the group's lock. */
INLINE bool hweight_update(struct group *g, u32 kind, s64 *weight, s32 *by)
{
	u32 before, now;

	bpf_spin_lock(&g->lock);
	tg_hweight_update(&g->competes[kind & EXT_KINDS_MASK], group_own_weight(g), *weight, *by,
			  &before, &now);
	bpf_spin_unlock(&g->lock);
	return tg_hweight_above(before, now, weight, by);
}

/* Updates the groups above, as far as they change. Global, so that the verifier walks it once. */
int hweight_propagate(u32 at, u32 kind, s64 weight, s32 by)
{
	u32 level;

	EXT_FOR(level, EXT_LEVELS_MAX)
	{
		struct group *g = at == GROUP_ROOT ? NULL : group_at(at);

		if (!g || !hweight_update(g, kind, &weight, &by))
			break;
		at = g->parent;
	}
	return 0;
}

/* The same from an entity's own group on. Global, too: its paths would multiply those of every
 * caller. */
__attribute__((noinline)) int hweight_change(u32 at, u32 kind, s64 weight, s32 by)
{
	struct group *g = at == GROUP_ROOT ? NULL : group_at(at);

	if (g && hweight_update(g, kind, &weight, &by) && g->parent != GROUP_ROOT)
		hweight_propagate(g->parent, kind, weight, by);
	return 0;
}

#define ENTRY_KIND_SHIFT 24 /* a weight is below 2^17 */

INLINE u64 hweight_entry(u32 group, u32 kind, u32 weight)
{
	return (u64)group << 32 | kind << ENTRY_KIND_SHIFT | weight;
}

INLINE u32 entry_kind(u64 entry)
{
	return (u32)entry >> ENTRY_KIND_SHIFT;
}

INLINE s64 entry_weight(u64 entry)
{
	return (s64)(entry & ((1ULL << ENTRY_KIND_SHIFT) - 1));
}

/*
 * A task begins to compete. The CPU that wins the exchange counts it, or takes back what was
 * counted.
 */
INLINE bool hweight_activate(struct task_ctx *t, u32 kind)
{
	u32 group = t->group, weight = t->weight;

	if (!__sync_bool_compare_and_swap(&t->active_entry, 0ULL,
					  hweight_entry(group, kind, weight)))
		return false;
	hweight_change(group, kind, weight, 1);
	return true;
}

/* It sleeps, is throttled, or is gone. */
INLINE void hweight_deactivate(struct task_ctx *t)
{
	u64 active_entry = __sync_lock_test_and_set(&t->active_entry, 0ULL);

	if (active_entry)
		hweight_change(active_entry >> 32, entry_kind(active_entry),
			       -entry_weight(active_entry), -1);
}

/* What an hweight becomes a level up. */
INLINE u64 hweight_of_level(struct group *g, u32 kind, u64 hweight, u64 own)
{
	s64 active = g->competes[kind & EXT_KINDS_MASK].active;

	return tg_hweight_up(hweight, group_own_weight(g), active, own);
}

u64 hweight_above(u32 at, u32 kind, u64 hweight, u64 own)
{
	u32 level;

	EXT_FOR(level, EXT_LEVELS_MAX)
	{
		struct group *g = at == GROUP_ROOT ? NULL : group_at(at);

		if (!g)
			break;
		hweight = hweight_of_level(g, kind, hweight, own);
		own = group_own_weight(g);
		at = g->parent;
	}
	return hweight;
}

/* What a task of this weight in a group is worth now. */
INLINE u64 hweight_of_task(u32 at, u32 kind, u32 weight)
{
	u64 hweight = (u64)weight << TG_HWEIGHT_SHIFT;
	struct group *g = at == GROUP_ROOT ? NULL : group_at(at);

	if (g) {
		hweight = hweight_of_level(g, kind, hweight, weight);
		if (g->parent != GROUP_ROOT)
			hweight = hweight_above(g->parent, kind, hweight, group_own_weight(g));
	}
	return tg_max(hweight, TG_HWEIGHT_MIN);
}

/* The same, global. */
__attribute__((noinline)) u64 hweight_now(u32 at, u32 kind, u32 weight)
{
	return hweight_of_task(at, kind, weight);
}

/*
 * A task that competes becomes another kind of work; its hweight there. By hweight_propagate alone:
 * the verifier allows eight frames, and timers come here with few left.
 */
INLINE u64 hweight_set_kind(struct task_ctx *t, u32 kind)
{
	u64 entry = hweight_entry(t->group, kind, t->weight),
	    active_entry = __sync_lock_test_and_set(&t->active_entry, 0ULL);

	if (active_entry)
		hweight_propagate(active_entry >> 32, entry_kind(active_entry),
				  -entry_weight(active_entry), -1);
	if (__sync_bool_compare_and_swap(&t->active_entry, 0ULL, entry))
		hweight_propagate(entry >> 32, kind, entry_weight(entry), 1);
	return hweight_of_task(t->group, kind, t->weight);
}

#endif
