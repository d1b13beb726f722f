/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the loader asks of caps: a gate's is set, changed or taken away.
 */
#ifndef TIDEGATE_EXT_CAP_OPS_H
#define TIDEGATE_EXT_CAP_OPS_H

#include "limits/caps.h"

/* The family of a gate, made if there is none. */
INLINE u32 caps_family(u32 known, u64 owner)
{
	struct bucket *s = bucket_at(known);
	u32 index;

	if (s && s->users && s->owner == owner)
		return known;
	index = bucket_alloc();
	s = bucket_at(index);
	if (!s)
		return 0;
	bucket_init(s, index, owner);
	return index;
}

INLINE void caps_terms(u32 family, const struct tg_cap_terms *terms, u64 now)
{
	struct bucket *f = bucket_at(family);

	if (!f)
		return;
	bpf_spin_lock(&f->lock);
	f->terms = *terms;
	f->version++;
	tg_cap_set(&f->cap, terms, now);
	bpf_spin_unlock(&f->lock);
}

INLINE u32 caps_of_gate(u64 id, bool none)
{
	u32 *known = bpf_map_lookup_elem(&cap_gates, &id);
	u32 family = known ? *known : 0;

	if (none) {
		bpf_map_delete_elem(&cap_gates, &id);
		return family;
	}
	family = caps_family(family, id);
	if (family && bpf_map_update_elem(&cap_gates, &id, &family, 0))
		return 0;
	return family;
}

/*
 * Sets a cap, or with no terms takes it away. What draws on it finds out at its next look. The
 * generation is raised before a family that was taken away is free: a task that comes meanwhile
 * would find it in its chain and, as it is nobody's, end there, without the caps further up.
 */
SEC("syscall")
int set_cap(struct ext_cap_ask *ask)
{
	struct tg_cap_terms terms = {
	    .hard_ppt = ask->hard_ppt,
	    .soft_ppt = ask->soft_ppt,
	    .scope = tg_min(ask->scope, TG_CAP_TASK),
	    .granularity_ns = TG_CAP_RUN_MIN_NS,
	};
	bool none = terms.hard_ppt == TG_CAP_NONE && terms.soft_ppt == TG_CAP_NONE;
	struct ext_control *shared = ext_shared();
	u64 now = now_ns();
	u32 family = caps_of_gate(ask->cgroup_id, none);

	ask->bucket = none ? 0 : family;
	if (!family)
		return none ? 0 : -ENOENT;
	caps_on = 1;
	caps_terms(family, &terms, now);
	if (shared)
		__sync_fetch_and_add(&shared->gates_generation, 1);
	if (none)
		bucket_put(family, now);
	cap_recheck_all();
	return 0;
}

#endif
