/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Limited groups: a pool each and a silo for each CPU (law/bandwidth.h), in a table of their own.
 *
 * A group gets a place in the table with its first quota and keeps it, unlimited or not, until it
 * is gone: its debts and counts outlive a change of cpu.max. A task finds the nearest limited group
 * at or above its own in the group's entry (group_resolve); from there each limit names the next
 * above.
 */
#ifndef TIDEGATE_EXT_POOL_H
#define TIDEGATE_EXT_POOL_H

#include "bandwidth.h"
#include "ext.h"

/* The kernel's default for sched_cfs_bandwidth_slice_us. */
#define POOL_SLICE_NS 5000000ULL

struct limit {
	struct bpf_spin_lock lock; /* of the pool, and of its silos while they are throttled */
	u32 above;		   /* the next limited group up; 0: none */
	struct tg_bw_pool pool;
	struct bpf_timer timer; /* limit.h: runs only while something is parked or throttled */
	u64 group_id;
	u32 group;
	u32 depth;
	u64 armed_ns;  /* when the timer is due; 0: it is not set */
	u64 parks;     /* times that a task was parked */
	u64 visits;    /* runs for the watchdog, or of who was inside the kernel .. */
	u64 visit_ns;  /* .. and what they took, out of quota */
	u64 graced_ns; /* somebody inside the kernel had a visit then (grace.h) */
	u32 seen;      /* `parks` when the timer last rang */
	u32 used;
};
_Static_assert(sizeof(struct limit) == 224, "src/limits.rs");
_Static_assert(sizeof(struct tg_bw_pool) == 136, "src/limits.rs");

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

/* Groups whose quota is our own copy of what is enforced otherwise, by cgroup id: not enforced
 * here. */
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

/* Where tasks wait that this limit keeps from running, whoever has not run for longest first. */
INLINE u64 dsq_parked(u32 limit)
{
	return 0x40000000ULL | limit;
}

INLINE struct ext_control *pool_shared(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&control, &zero);
}

/* A place for a group that gets its first quota; 0: there is none left. */
INLINE u32 pool_take(void)
{
	struct ext_control *shared = pool_shared();
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

INLINE u32 pool_begin(struct group *g, u32 at, u64 now)
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
	l->group = at;
	l->depth = g->depth;
	l->used = 1;
	bpf_spin_unlock(&l->lock);
	l->parks = 0;
	l->visits = 0;
	l->visit_ns = 0;
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
 * Its place in the table, made with its first quota. Whoever tells us (the kernel, or the loader of
 * mirrors) may do so at the same moment: one of the two places goes back.
 */
INLINE struct limit *pool_of(struct group *g, u32 at, u64 now)
{
	u32 index;

	if (!g->pool) {
		index = pool_begin(g, at, now);
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
 * Makes a group's limit what cpu.max and cpu.max.burst say, or none where they are a copy. They are
 * read under the lock, so whoever comes last has the newest. Returns the limit that is to be looked
 * at, for what is parked may run.
 */
INLINE u32 pool_apply(struct group *g, u32 at)
{
	struct ext_control *shared = pool_shared();
	struct tg_bw_terms terms = {.slice_ns = POOL_SLICE_NS};
	u64 now = now_ns();
	struct limit *l;

	if (!g->pool && !pool_limited(g))
		return 0;
	l = pool_of(g, at, now);
	if (!l)
		return 0;
	bpf_spin_lock(&l->lock);
	terms.quota_ns = pool_limited(g) ? g->quota_us * 1000 : TG_BW_NONE;
	terms.period_ns = tg_min(g->period_us, TG_BW_PERIOD_MAX_NS / 1000) * 1000;
	terms.burst_ns = tg_min(g->burst_us, TG_BW_QUOTA_MAX_NS / 1000) * 1000;
	tg_bw_set(&l->pool, &terms, now);
	bpf_spin_unlock(&l->lock);
	/* Groups below look for their limits anew. */
	if (shared)
		__sync_fetch_and_add(&shared->gates_generation, 1);
	return g->pool;
}

/* A group without a place of its own in the tree counts in its parent's. */
INLINE u32 pool_set(struct group *g, u32 at, u64 period_us, u64 quota_us, u64 burst_us)
{
	g->period_us = period_us;
	g->burst_us = burst_us;
	g->quota_us = quota_us;
	return pool_apply(g, at);
}

#endif
