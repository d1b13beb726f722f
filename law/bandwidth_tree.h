/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * bandwidth_tree.h - bandwidth in a hierarchy.
 *
 * A task runs only while every limited group above it has runtime; what it
 * runs is charged to every one of them, also when one of them is out, so that
 * each level's own bound (bandwidth.h) holds with all that ran below it.
 * Siblings may be promised more than their parent has: the parent's pool is
 * what bounds their sum.
 *
 * Groups are numbers into three arrays: pools, this CPU's silos, and parents.
 * Group 0 is the root, which has no limit of its own here and ends every walk;
 * a walk visits at most TG_BW_DEPTH_MAX levels, and levels beyond count as
 * out: a tree deeper than that is refused where it is built.
 */
#ifndef TG_LAW_BANDWIDTH_TREE_H
#define TG_LAW_BANDWIDTH_TREE_H

#include "bandwidth.h"

#define TG_BW_DEPTH_MAX 32

/* A ratio of quota to period with 20 fractional bits, as the kernel compares them. */
#define TG_BW_RATIO_BITS 20
#define TG_BW_REFUSED 0ULL

/* No level is out. */
#define TG_BW_ALL_RUN (~0U)

/* quota_us < 2^33, so the shifted one is < 2^53. At least 1 for what tg_bw_valid takes. */
TG_FN tg_u64 tg_bw_ratio(const struct tg_bw_terms *t)
{
	struct tg_bw_terms b = tg_bw_bound(t);

	if (b.quota_ns == TG_BW_NONE)
		return TG_BW_NONE;
	return ((b.quota_ns / 1000) << TG_BW_RATIO_BITS) / tg_max(b.period_ns / 1000, 1);
}

/*
 * The ratio that counts for a child: on cgroup v2 the smaller one; v1 refuses
 * a child above its parent (TG_BW_REFUSED).
 */
TG_FN tg_u64 tg_bw_effective(tg_u64 own, tg_u64 parent, int v1)
{
	if (v1 && own != TG_BW_NONE && own > parent)
		return TG_BW_REFUSED;
	return tg_min(own, parent);
}

/*
 * Charge what a task of `group` ran on this CPU to every level, and take
 * slices where they are needed. Returns TG_BW_ALL_RUN, or the level nearest to
 * the root that is out: there the group is to be throttled (tg_bw_throttle).
 */
TG_FN tg_u32 tg_bw_run_up(struct tg_bw_pool *pools, struct tg_bw_silo *silos, const tg_u32 *parents,
			  tg_u32 groups, tg_u32 group, tg_u64 delta_ns, tg_u64 now_ns)
{
	tg_u32 out = TG_BW_ALL_RUN;

	for (int depth = 0; depth < TG_BW_DEPTH_MAX; depth++) {
		if (group == 0 || group >= groups)
			return out;
		if (tg_bw_run(&pools[group], &silos[group], delta_ns, now_ns) == TG_BW_OUT)
			out = group;
		group = parents[group];
	}
	return group == 0 ? out : group;
}

/* May a task of `group` run on this CPU? No level on its way up is throttled. */
TG_FN int tg_bw_may_run(const struct tg_bw_silo *silos, const tg_u32 *parents, tg_u32 groups,
			tg_u32 group)
{
	for (int depth = 0; depth < TG_BW_DEPTH_MAX; depth++) {
		if (group == 0 || group >= groups)
			return 1;
		if (silos[group].throttled)
			return 0;
		group = parents[group];
	}
	return group == 0;
}

#endif /* TG_LAW_BANDWIDTH_TREE_H */
