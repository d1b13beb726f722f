/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Groups with a quota: a pool for each, and a silo for each of its CPUs (law/bandwidth.h).
 *
 * A group gets an index with its first quota and keeps it until it is gone, limited or not: debts
 * and counts outlive a change of cpu.max. A task finds the nearest limited group at or above its
 * own in its group (group_resolve); from there each limit names the next above.
 */
#ifndef TIDEGATE_EXT_POOL_H
#define TIDEGATE_EXT_POOL_H

#include "bandwidth.h"
#include "core/ext.h"

struct limit {
	struct bpf_spin_lock lock; /* of the pool, and of its silos while they are throttled */
	u32 above;		   /* the next limited group up; 0: none */
	struct tg_bw_pool pool;
	struct bpf_timer timer; /* limit.h: set only while a task or a silo is throttled */
	u64 group_id;
	u32 depth;
	u64 armed_ns;	     /* when the timer is due; 0: it is not set */
	u64 throttles;	     /* times that a task was throttled */
	u64 min_runs;	     /* least runs: for the watchdog, or of tasks inside the kernel */
	u64 in_kernel_at_ns; /* a task inside the kernel had a run then (in_kernel.h) */
	u32 seen;	     /* `throttles` when the timer last fired */
	u32 used;
};

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1); /* the loader: config.limits */
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct limit);
} limits SEC(".maps");

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1); /* the loader: config.limits * config.cpus */
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct tg_bw_silo);
} silos SEC(".maps");

/* Places that were given back. */
struct {
	MAP_UINT(type, MAP_QUEUE);
	MAP_UINT(max_entries, EXT_LIMITS_MAX);
	MAP_TYPE(value, u32);
} free_limits SEC(".maps");

/*
 * Groups whose quota is a copy (a mirror) of what is enforced otherwise, by cgroup id: not enforced
 * here.
 */
struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, EXT_GROUPS_MAX);
	MAP_UINT(map_flags, MAP_FLAG_NO_PREALLOC);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, u32);
} mirrors SEC(".maps");

/* Places ever used; with none, nothing of this costs anything but the test. */
u32 limits_used;

INLINE struct limit *limit_at(u32 index)
{
	return index ? bpf_map_lookup_elem(&limits, &index) : NULL;
}

INLINE struct tg_bw_silo *silo_at(u32 limit, u32 cpu)
{
	u32 index = limit * config.cpus + cpu;

	return cpu < config.cpus ? bpf_map_lookup_elem(&silos, &index) : NULL;
}

/* A place for a group that gets its first quota; 0: there is none left. */
INLINE u32 pool_take(void)
{
	struct ext_control *shared = ext_shared();
	u32 index = 0;

	if (!bpf_map_pop_elem(&free_limits, &index) && index)
		return index;
	index = __sync_fetch_and_add(&limits_used, 1) + 1;
	if (index < config.limits) {
		if (shared)
			shared->limits_used = index;
		return index;
	}
	__sync_fetch_and_sub(&limits_used, 1);
	if (shared)
		__sync_fetch_and_add(&shared->limits_refused, 1);
	return 0;
}

INLINE u32 pool_begin(struct group *g, u64 now)
{
	u32 index = pool_take(), cpu;
	struct limit *l = limit_at(index);

	if (!l)
		return 0;
	EXT_FOR(cpu, config.cpus)
	{
		struct tg_bw_silo *s = silo_at(index, cpu);

		if (s)
			*s = (struct tg_bw_silo){0};
	}
	bpf_spin_lock(&l->lock);
	tg_bw_init(&l->pool, 0, now);
	l->above = 0;
	l->group_id = g->id;
	l->depth = g->depth;
	l->used = 1;
	bpf_spin_unlock(&l->lock);
	l->throttles = 0;
	l->min_runs = 0;
	return index;
}

/* A group goes, and its limit with it. */
INLINE void pool_end(struct group *g)
{
	u32 index = g->pool;
	struct limit *l = limit_at(index);

	if (!l)
		return;
	g->pool = 0;
	g->limit = 0;
	bpf_spin_lock(&l->lock);
	l->used = 0;
	l->pool.terms.quota_ns = TG_BW_NONE;
	l->group_id = 0;
	bpf_spin_unlock(&l->lock);
	bpf_map_push_elem(&free_limits, &index, 0);
}

/*
 * Its index in the table, taken with its first quota. The kernel and the loader (of mirrors) may
 * report at the same moment: one of the two indexes goes back.
 */
INLINE struct limit *pool_of(struct group *g, u64 now)
{
	u32 index;

	if (!g->pool) {
		index = pool_begin(g, now);
		if (index && __sync_val_compare_and_swap(&g->pool, 0, index)) {
			struct limit *spare = limit_at(index);

			if (spare)
				spare->used = 0;
			bpf_map_push_elem(&free_limits, &index, 0);
		}
	}
	return limit_at(g->pool);
}

INLINE bool pool_limited(struct group *g)
{
	return g->quota_us < TG_BW_QUOTA_MAX_NS / 1000 && !g->mirror;
}

INLINE bool pool_is_mirror(u64 id)
{
	return bpf_map_lookup_elem(&mirrors, &id);
}

/*
 * Makes a group's limit what cpu.max and cpu.max.burst say, or none where they are a mirror. They
 * are read under the lock, so the last caller has the newest. Returns the limit to look at, for
 * throttled tasks may run.
 */
INLINE u32 pool_apply(struct group *g)
{
	struct ext_control *shared = ext_shared();
	struct tg_bw_terms terms = {.slice_ns = config.quota_slice_ns};
	u64 now = now_ns();
	struct limit *l;

	if (!g->pool && !pool_limited(g))
		return 0;
	l = pool_of(g, now);
	if (!l)
		return 0;
	bpf_spin_lock(&l->lock);
	terms.quota_ns = pool_limited(g) ? g->quota_us * 1000 : TG_BW_NONE;
	terms.period_ns = tg_min(g->period_us, TG_BW_PERIOD_MAX_NS / 1000) * 1000;
	terms.burst_ns = tg_min(g->burst_us, TG_BW_QUOTA_MAX_NS / 1000) * 1000;
	tg_bw_set(&l->pool, &terms, now);
	bpf_spin_unlock(&l->lock);
	/* Groups below look their limits up again. */
	if (shared)
		__sync_fetch_and_add(&shared->gates_generation, 1);
	return g->pool;
}

/* A group without a place of its own in the tree counts in its parent's. */
INLINE u32 pool_set(struct group *g, u64 period_us, u64 quota_us, u64 burst_us)
{
	g->period_us = period_us;
	g->burst_us = burst_us;
	g->quota_us = quota_us;
	return pool_apply(g);
}

#endif
