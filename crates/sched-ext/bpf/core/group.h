/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Groups: their indexes, and what the gates above a group ask of its tasks.
 *
 *	cgroup_init	group_init: an index, or the parent's where the table is full
 *	a task looks	group_resolve: the nearest gates, quotas and caps above, once a generation
 *	cgroup_exit	group_exit: the index is free, or (GROUP_GONE) free with its last task
 */
#ifndef TIDEGATE_EXT_GROUP_H
#define TIDEGATE_EXT_GROUP_H

#include "core/cgroups.h"
#include "limits/buckets.h"
#include "limits/pool.h"
#include "queue/hweight.h"

/* Indexes that were given back. */
struct {
	MAP_UINT(type, MAP_QUEUE);
	MAP_UINT(max_entries, EXT_GROUPS_MAX);
	MAP_TYPE(value, u32);
} free_groups SEC(".maps");

/*
 * Groups whose cpu.idle was 1 when the loader looked, by cgroup id: kernels before 6.19 do not
 * report it.
 */
struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, EXT_GROUPS_MAX);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, u32);
} idle_groups SEC(".maps");

u32 groups_used; /* the root is index 0 */

/* An index for a new group; 0: there is none left. */
INLINE u32 group_take(void)
{
	u32 index = 0;

	if (!bpf_map_pop_elem(&free_groups, &index) && index)
		return index;
	index = __sync_fetch_and_add(&groups_used, 1) + 1;
	return index < EXT_GROUPS_MAX ? index : 0;
}

INLINE void group_fill(struct group *g, u64 id, u32 parent, u32 depth, u32 weight, u32 flags)
{
	bool mirror = pool_is_mirror(id);

	bpf_spin_lock(&g->lock);
	g->parent = parent;
	g->id = id;
	g->flags = GROUP_USED | flags;
	g->depth = depth;
	g->weight = weight;
	__builtin_memset(g->competes, 0, sizeof(g->competes));
	g->generation = 0;
	g->limit = 0;
	g->capped = 0;
	g->pool = 0;
	g->account = 0;
	g->quota_us = TG_BW_NONE;
	g->period_us = 0;
	g->burst_us = 0;
	g->mirror = mirror;
	bpf_spin_unlock(&g->lock);
}

INLINE int group_init(struct cgroup *cgroup, struct scx_cgroup_init_args *args)
{
	u64 id = cgroup->kn->id;
	u32 parent, index, flags = 0;
	struct group *g, *above;

	/* The root is known without. */
	if (cgroup->level == 0)
		return 0;
	parent = cgroup_parent_index(cgroup);
	above = group_at(parent);
	index = above && above->depth < EXT_LEVELS_MAX - 1 ? group_take() : 0;
	g = index ? group_at(index) : NULL;
	if (!g || !above) {
		bpf_map_update_elem(&cgroups, &id, &parent, 0);
		return 0;
	}
	if (__builtin_preserve_field_info(args->sched_idle, 2))
		flags = args->sched_idle ? GROUP_IDLE : 0;
	else if (bpf_map_lookup_elem(&idle_groups, &id))
		flags = GROUP_IDLE;
	group_fill(g, id, parent, above->depth + 1, tg_group_weight(args->weight), flags);
	if (bpf_map_update_elem(&cgroups, &id, &index, 0)) {
		bpf_map_push_elem(&free_groups, &index, 0);
		return 0;
	}
	if (__builtin_preserve_field_info(args->bw_quota_us, 2))
		pool_set(g, args->bw_period_us, args->bw_quota_us, args->bw_burst_us);
	return 0;
}

/* Whether an index is a group's own, and not its parent's. */
INLINE struct group *group_own(struct cgroup *cgroup)
{
	u32 *index = cgroup_index(cgroup);
	struct group *g = index && *index ? group_at(*index) : NULL;

	return g && g->id == cgroup->kn->id ? g : NULL;
}

/* A group whose cgroup is gone gives its index back with its last task. */
INLINE void group_reap(u32 at)
{
	struct group *g = at == GROUP_ROOT ? NULL : group_at(at);
	bool last;

	if (!g || !(g->flags & GROUP_GONE))
		return;
	bpf_spin_lock(&g->lock);
	last = (g->flags & GROUP_GONE) && !hweight_competes(g);
	if (last) {
		g->id = 0;
		g->flags = 0;
	}
	bpf_spin_unlock(&g->lock);
	if (!last)
		return;
	pool_end(g);
	bpf_map_push_elem(&free_groups, &at, 0);
}

/* Its index is given back once its last task (one that is exiting) is gone. */
INLINE void group_exit(struct cgroup *cgroup)
{
	u32 *index = cgroup_index(cgroup);
	struct group *g = group_own(cgroup);
	u64 id = cgroup->kn->id;
	u32 at = index ? *index : GROUP_ROOT;

	bpf_map_delete_elem(&cgroups, &id);
	if (!g)
		return;
	bpf_spin_lock(&g->lock);
	g->flags |= GROUP_GONE;
	bpf_spin_unlock(&g->lock);
	group_reap(at);
}

/* Sets cpu.weight (weight > 0) or cpu.idle (idle 0 or 1), and updates the groups above. */
INLINE void group_reweigh(struct cgroup *cgroup, u32 weight, s32 idle)
{
	u32 *index = cgroup_index(cgroup);
	struct group *g = group_own(cgroup);
	struct ext_control *shared = ext_shared();

	if (!g || !index)
		return;
	bpf_spin_lock(&g->lock);
	if (weight)
		g->weight = weight;
	if (idle > 0)
		g->flags |= GROUP_IDLE;
	else if (idle == 0)
		g->flags &= ~GROUP_IDLE;
	bpf_spin_unlock(&g->lock);
	for (u32 kind = 0; kind < EXT_KINDS; kind++)
		hweight_change(*index, kind, 0, 0);
	/* What groups below have looked up may be old. */
	if (idle >= 0 && shared)
		__sync_fetch_and_add(&shared->gates_generation, 1);
}

INLINE u32 hint_slice(s32 hint)
{
	u32 at = (u32)(hint - TG_LATENCY_FIRST);

	return at < EXT_HINTS ? config.hint_slice_ns[at] : 0;
}

/* law/latency.h, as a table of the loader's. */
s32 slice_hint(u32 slice_ns)
{
	s32 hint = TG_LATENCY_FIRST;
	u32 at;

	EXT_FOR(at, EXT_HINTS)
	if (slice_ns >= config.hint_from_ns[at])
		hint = (s32)at + TG_LATENCY_FIRST;
	return hint;
}

/*
 * A task's hint. A slice of its own (sched_setattr; forks inherit it) stands for one, as the fair
 * class would take it; unless it is the slice that stands for the group's hint in kernel files,
 * which is written for the time without this scheduler and knows hints only up to the bounds of
 * slices.
 */
INLINE s32 group_hint(struct task_struct *p, struct task_ctx *t, struct group *g)
{
	u32 slice_ns;

	if (!config.hint_slice_ns[0] || !__builtin_preserve_field_info(p->se.custom_slice, 2) ||
	    !p->se.custom_slice)
		return g->hint;
	slice_ns = (u32)p->se.slice;
	if (slice_ns == g->hint_slice_ns)
		return g->hint;
	if (t->own_slice_ns != slice_ns) {
		t->own_slice_ns = slice_ns;
		t->own_hint = slice_hint(slice_ns);
	}
	return t->own_hint;
}

/* Racing CPUs write the same, if nothing changes meanwhile. */
int group_resolve_once(u32 index, u64 generation)
{
	struct group *own = group_at(index);
	struct limit *highest;
	struct bucket *top;
	u32 at = index, has = 0, kind = EXT_MAIN, yields = 0, nearest = 0, below = 0;
	u32 capped = 0, cap_below = 0, account = 0;
	s32 hint = 0;
	u32 level;

	EXT_FOR(level, EXT_LEVELS_MAX)
	{
		struct group *g = group_at(at);
		struct ext_gate *gate;
		u64 id;

		if (!g)
			break;
		id = g->id;
		gate = bpf_map_lookup_elem(&gates, &id);
		if (!gate || !(gate->has & EXT_IDLE_IS_MIRROR))
			yields |= g->flags & GROUP_IDLE;
		if (g->pool) {
			struct limit *limit = limit_at(below);

			if (limit)
				limit->above = g->pool;
			below = g->pool;
			nearest = nearest ? nearest : below;
		}
		if (caps_on) {
			u32 *cap = bpf_map_lookup_elem(&cap_gates, &id);
			struct bucket *s = cap ? bucket_at(cap_below) : NULL;

			if (s)
				s->above = *cap;
			cap_below = cap ? *cap : cap_below;
			capped = capped ? capped : cap_below;
		}
		if (gate && gate->has & ~has & EXT_HAS_HINT)
			hint = gate->hint;
		if (gate && gate->has & ~has & EXT_HAS_CLASS)
			kind = gate->kind;
		if (gate && gate->has & ~has & EXT_HAS_ACCOUNT)
			account = gate->account;
		has |= gate ? gate->has : 0;
		if (at == GROUP_ROOT)
			break;
		at = g->parent;
	}
	highest = limit_at(below);
	if (highest)
		highest->above = 0;
	top = bucket_at(cap_below);
	if (top)
		top->above = 0;
	if (!own)
		return 0;
	own->capped = capped;
	own->limit = nearest;
	own->hint = hint;
	own->hint_slice_ns = hint_slice(hint);
	own->kind = kind < EXT_KINDS ? kind : EXT_MAIN;
	own->yields = yields;
	own->account = account;
	own->generation = generation;
	return 0;
}

/*
 * What the nearest gates above ask for, and which quotas and caps apply. A CPU that sees afterwards
 * that something has changed looks again: a link past a new limit that it wrote after another CPU's
 * right one would stay.
 */
int group_resolve(u32 index, u64 generation)
{
	struct ext_control *shared = ext_shared();

	group_resolve_once(index, generation);
	if (shared && *(volatile u64 *)&shared->gates_generation != generation)
		group_resolve_once(index, shared->gates_generation);
	return 0;
}

/* Whether the task's group is still the one that it was put into; else it counts in the root. */
INLINE struct group *group_of_task(struct task_ctx *t)
{
	struct group *g = group_at(t->group);

	if (g && t->group != GROUP_ROOT && g->id != t->group_id) {
		t->group = GROUP_ROOT;
		g = group_at(GROUP_ROOT);
	}
	return g;
}

/* The nearest limited group of a task of this group; 0: none. */
u32 group_limit(u32 at, u64 id)
{
	struct ext_control *shared = ext_shared();
	struct group *g = group_at(at);

	if (!g || !shared || g->id != id)
		return 0;
	if (g->generation != shared->gates_generation)
		group_resolve(at, shared->gates_generation);
	return g->limit;
}

/* A group's cpu.max was set; the limit that is to be looked at. */
INLINE u32 group_bandwidth(struct cgroup *cgroup, u64 period_us, u64 quota_us, u64 burst_us)
{
	struct group *g = group_own(cgroup);

	return g ? pool_set(g, period_us, quota_us, burst_us) : 0;
}

/*
 * The loader has set or taken away a mirror. The value that the kernel reported last counts from
 * now on: it reports changes only, and a copy may have the value that was already there.
 */
INLINE u32 group_remirror(u64 id)
{
	struct cgroup *cgroup = bpf_cgroup_from_id(id);
	u32 *index, at, looked_at = 0;
	struct group *g;

	if (!cgroup)
		return 0;
	index = cgroup_index(cgroup);
	at = index ? *index : GROUP_ROOT;
	g = at ? group_at(at) : NULL;
	if (g && g->id == id) {
		g->mirror = pool_is_mirror(id);
		looked_at = pool_apply(g);
	}
	bpf_cgroup_release(cgroup);
	return looked_at;
}

INLINE u64 gates_generation(void)
{
	struct ext_control *shared = ext_shared();

	return shared ? shared->gates_generation : 0;
}

/*
 * The kernel's own tasks, exiting ones and those that are being killed are main, whatever is asked
 * of their group: others wait for them, or for what they hold.
 */
INLINE bool group_exempt(struct task_struct *p)
{
	return p->flags & (PF_KTHREAD | PF_EXITING) || p->pending.signal.sig[0] & SIGKILL_BIT;
}

/* What kind of work a task is by now; what it competes as may be older. */
INLINE u32 group_kind(struct task_struct *p, struct task_ctx *t)
{
	struct group *g = group_of_task(t);
	u64 generation = gates_generation();

	if (!g || group_exempt(p))
		return EXT_MAIN;
	if (g->generation != generation)
		group_resolve(t->group, generation);
	return g->kind;
}

/* Reads what a task is by itself and by its group; before it begins to compete. */
INLINE u32 task_describe(struct task_struct *p, struct task_ctx *t)
{
	u32 flags = t->flags & ~TASK_YIELDS;
	struct ext_control *shared = ext_shared();
	struct group *g = group_of_task(t);

	t->weight = task_weight(p);
	t->allowed = p->nr_cpus_allowed;
	if (!g || !shared)
		return EXT_MAIN;
	if (g->generation != shared->gates_generation)
		group_resolve(t->group, shared->gates_generation);
	t->generation = shared->gates_generation;
	t->hint = group_hint(p, t, g);
	t->account = p->flags & PF_KTHREAD ? EXT_ACCOUNT_KERNEL : g->account;
	if (g->yields || p->policy == SCHED_IDLE)
		flags |= TASK_YIELDS;
	t->flags = flags;
	return group_exempt(p) ? EXT_MAIN : g->kind;
}

INLINE void group_enter(struct task_ctx *t, struct cgroup *cgroup)
{
	struct group *g;

	t->group = group_of(cgroup);
	g = group_at(t->group);
	t->group_id = g ? g->id : 0;
}

#endif
