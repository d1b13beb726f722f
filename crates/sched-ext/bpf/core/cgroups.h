/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The group of a cgroup, by the cgroup's id.
 */
#ifndef TIDEGATE_EXT_CGROUPS_H
#define TIDEGATE_EXT_CGROUPS_H

#include "core/ext.h"

/*
 * By cgroup id. Not the kernel's storage for cgroups: up to 6.18 that is not to be had on a CPU on
 * which a task was preempted in the middle of making some, from 7.0 not while another CPU makes
 * some: loading failed for it (-12), and probably a mkdir. Beyond its length groups count as the
 * one above.
 */
struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, 4 * EXT_GROUPS_MAX);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, u32);
} cgroups SEC(".maps");

INLINE u32 *cgroup_index(struct cgroup *cgroup)
{
	u64 id = cgroup->kn->id;

	return bpf_map_lookup_elem(&cgroups, &id);
}

/* That of the nearest group above that is known, the root at last. */
static __attribute__((noinline)) u32 cgroup_parent_index(struct cgroup *cgroup)
{
	u32 at = GROUP_ROOT, *index, up;
	struct cgroup *above;

	EXT_FOR(up, cgroup->level)
	{
		above = bpf_cgroup_ancestor(cgroup, cgroup->level - 1 - (s32)up);
		if (!above)
			break;
		index = cgroup_index(above);
		if (index)
			at = *index;
		bpf_cgroup_release(above);
		if (index)
			break;
	}
	return at;
}

/* The group of one that is not known. */
u32 cgroup_ancestor_index(u64 id)
{
	struct cgroup *cgroup = bpf_cgroup_from_id(id);
	u32 at = GROUP_ROOT;

	if (cgroup) {
		at = cgroup_parent_index(cgroup);
		bpf_cgroup_release(cgroup);
	}
	return at;
}

/* The group of a cgroup: its own or, where there was no room for it, that above it. */
INLINE u32 group_of(struct cgroup *cgroup)
{
	u32 *index = cgroup ? cgroup_index(cgroup) : NULL;

	if (index)
		return *index;
	return cgroup && cgroup->level > 0 ? cgroup_ancestor_index(cgroup->kn->id) : GROUP_ROOT;
}

#endif
