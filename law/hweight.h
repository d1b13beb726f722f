/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * hweight.h - hierarchical weights, flattened: what a task is worth in its run queue.
 *
 *     hweight = task's weight * product over its groups of (group's weight / active in it)
 *
 * where "active" is the sum of the weights of the tasks and groups in a group that
 * compete. The unit is the kernel's (a task of nice 0, or a group of weight 100, in the
 * root is 1024), with 20 fractional bits.
 *
 * Bounds:
 *   a weight <= 10000 * 1024 / 100 = 102,400     < 2^17
 *   an hweight                                   < 2^37, times a weight < 2^54
 *   the least hweight, 2^14 (1/65536 of a task of nice 0 in the root), keeps the virtual
 *   time of 8 s in 2^49
 *
 * A group that becomes active (its first entity) adds itself to its parent, one that
 * becomes idle takes away what it added. The sums commute, so the result does not depend
 * on which of two CPUs reaches the parent first; in between a sum may lack an entity,
 * which tg_hweight_up allows for.
 */
#ifndef TG_LAW_HWEIGHT_H
#define TG_LAW_HWEIGHT_H

#include "base.h"

#define TG_HWEIGHT_SHIFT 20
#define TG_HWEIGHT_ONE (1024ULL << TG_HWEIGHT_SHIFT)
#define TG_HWEIGHT_MIN (1ULL << 14)
#define TG_WEIGHT_IDLE 3 /* the kernel's, of SCHED_IDLE and of cpu.idle */
#define TG_NICE_LEVELS 40

/*
 * From nice -20 on. Each level is a tenth of a CPU beside an equal: the kernel's
 * weights, which are ABI in effect.
 */
static const tg_u32 tg_nice_weights[TG_NICE_LEVELS] __attribute__((unused)) = {
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904,
    3906,  3121,  2501,	 1991,	1586,  1277,  1024,  820,   655,   526,	  423,	335,  272,  215,
    172,   137,	  110,	 87,	70,    56,    45,    36,    29,	   23,	  18,	15,
};

/* `level`: nice + 20. Beyond the table: as nice 0. */
TG_FN tg_u32 tg_nice_weight(tg_u32 level)
{
	return level < TG_NICE_LEVELS ? tg_nice_weights[level] : 1024;
}

/* Of cpu.weight, 1 to 10000. */
TG_FN tg_u32 tg_group_weight(tg_u32 cgroup_weight)
{
	tg_u32 weight = cgroup_weight * 1024 / 100;

	return weight ? weight : 1;
}

/* What competes in a group. Writers hold the group's lock. */
struct tg_hweight_group {
	tg_s64 active;		 /* weights of active tasks and groups, added up */
	tg_s32 entities;	 /* how many they are */
	tg_u32 weight_in_parent; /* by what the group is counted in its parent's `active` */
};

/*
 * An entity comes (by = 1), goes (-1), or changes (0), and the sum of weights in the group with it,
 * by `change`. Before and now: what the group is counted by in its parent, where it weighs `own`
 * (with cpu.idle TG_WEIGHT_IDLE).
 */
TG_FN void tg_hweight_update(struct tg_hweight_group *g, tg_u32 own, tg_s64 change, tg_s32 by,
			     tg_u32 *before, tg_u32 *now)
{
	tg_s32 had = g->entities;

	g->entities = had + by;
	g->active += change;
	*before = g->weight_in_parent;
	*now = g->entities > 0 ? own : 0;
	g->weight_in_parent = *now;
}

/* The same for the parent, outside the group's lock. 0: nothing changes there. */
TG_FN int tg_hweight_above(tg_u32 before, tg_u32 now, tg_s64 *change, tg_s32 *by)
{
	*change = (tg_s64)now - before;
	*by = (now != 0) - (before != 0);
	return now != before;
}

/*
 * What an hweight of an entity of weight `own` becomes a level up, past a group that weighs
 * `group_weight` and has `active` in it.
 */
TG_FN tg_u64 tg_hweight_up(tg_u64 hweight, tg_u32 group_weight, tg_s64 active, tg_u64 own)
{
	return hweight * group_weight / tg_max(tg_max(active < 0 ? 0 : (tg_u64)active, own), 1);
}

/* CPU time as virtual time, rounded up so that no run is free: 2^33 * 2^30 = 2^63. */
TG_FN tg_u64 tg_virtual_ns(tg_u64 ran_ns, tg_u64 hweight)
{
	return (tg_min(ran_ns, 1ULL << 33) * TG_HWEIGHT_ONE + hweight - 1) / hweight;
}

/*
 * Virtual time left from `vruntime` to `end` as CPU time, rounded down; 0: none. What is
 * left is a slice at most, 100 ms, whose product with an hweight is 2^27 * 2^30 = 2^57.
 */
TG_FN tg_u64 tg_slice_left_ns(tg_u64 vruntime, tg_u64 end, tg_u64 hweight)
{
	if ((tg_s64)(vruntime - end) >= 0)
		return 0;
	return (end - vruntime) * hweight / TG_HWEIGHT_ONE;
}

#endif /* TG_LAW_HWEIGHT_H */
