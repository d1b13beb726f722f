/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The scheduler's state: tasks, groups, lines (queues in virtual time) and CPUs.
 *
 * Who writes what: a task's context is written under its run queue's lock, which the kernel holds
 * around every callback for it; a CPU's by that CPU; a group and a line under the lock in it. Locks
 * are never nested.
 */
#ifndef TIDEGATE_EXT_EXT_H
#define TIDEGATE_EXT_EXT_H

#include "base.h"
#include "intf.h"
#include "kernel.h"
#include "kfunc.h"
#include "latency.h"

const volatile struct ext_config config SEC(".rodata.config");

/* A flat weight (tree.h) has 20 fractional bits; a task of nice 0 in the root is FLAT_ONE. */
#define FLAT_BITS 20
#define FLAT_ONE (1024ULL << FLAT_BITS)

/* ---- tasks ---- */

#define TASK_YIELDS 2	 /* it or a group above it is of the idle class */
#define TASK_PREEMPTED 4 /* put back by its CPU, as opposed to woken */
#define TASK_CHOSEN 8	 /* its CPU was idle, and is kept for it */
#define TASK_NEW 32	 /* forked, and not yet seen to be runnable */
#define TASK_DENIED 16	 /* its CPU has seen that a cap keeps it from going on */
#define TASK_CROWDED 64	 /* it is to leave the core that it shares */

/*
 * Where a task is. Away <-> member of a line <-> parked (park.h): runnable, but kept from
 * competing. A waiting task may be parked by any CPU and released by a timer, so this changes under
 * its line's lock only.
 */
enum place { PLACE_AWAY = 0, PLACE_MEMBER = 1, PLACE_PARKED = 2 };

struct task_ctx {
	/* Where it stands in its line (line.h). */
	u64 vruntime;
	u64 end; /* its vruntime at the end of its slice */
	u64 deadline;
	u64 flat;
	s64 lag;       /* what it was behind by when it last left */
	u64 uncounted; /* virtual time that it ran and the line has not been told */
	/* Charged up to here while it runs; else, since when it has not run though it could; 0: it
	 * could not. */
	u64 since_ns;
	u64 open_ns; /* its line counts it as running since then; 0: it does not */
	u64 slice_ns;
	u64 generation; /* of the gates, when it was last described */
	u64 group_id;	/* guards against another group under the same index */
	u32 group;
	u32 place;   /* enum place */
	u64 counted; /* group << 32 | weight by which it is active in the tree; 0: it is not */
	u32 limit;   /* the nearest limited group (pool.h); as of its last start */
	u32 floor;   /* its next run is a visit of so many ns (patience.h); 0: it is none */
	/* Caps (caps.h): the slots that it draws on, its own first. */
	u32 caps[EXT_CAPS_EACH];
	u32 caps_own;	  /* family of its own cap, or of that of whom forked it */
	u32 caps_own_ref; /* it was given the cap itself, and keeps the family */
	u32 holder;	  /* the slot that parked it, or put it into the background */
	u64 booked;	  /* slot << 32 | what it has booked there (hold.h); 0: nothing */
	u64 ready_ns;	  /* when the holder may let it go */
	u64 caps_generation;
	u32 forked_by; /* until it has inherited */
	u32 weight;
	u32 line;
	u32 left_line; /* which line `vruntime` and `lag` are of while it is no member */
	u32 llc;
	u32 kind;
	s32 hint;
	s32 own_hint;	  /* what its own slice stands for .. */
	u32 own_slice_ns; /* .. which was this long when that was looked at */
	u32 flags;
	u32 account;  /* account.h; 0: that of its kind */
	u64 woken_ns; /* it waits since then for its first run; 0: it has had it */
};

struct {
	MAP_UINT(type, MAP_TASK_STORAGE);
	MAP_UINT(map_flags, MAP_FLAG_NO_PREALLOC);
	MAP_TYPE(key, int);
	MAP_TYPE(value, struct task_ctx);
} tasks SEC(".maps");

INLINE struct task_ctx *task_of(struct task_struct *p)
{
	return bpf_task_storage_get(&tasks, p, NULL, 0);
}

/* ---- groups: an array, so that climbing is look-ups; cgroups find their index by their id
 * ---- */

#define GROUP_ROOT 0
#define GROUP_USED 1
#define GROUP_IDLE 2 /* cpu.idle */
#define GROUP_GONE 4 /* its cgroup is removed; its index goes with its last task */

struct group {
	struct bpf_spin_lock lock;
	u32 parent;
	u64 id;
	u32 flags;
	u32 depth;
	u32 weight; /* as an entity of its parent: 1024 for cpu.weight 100 */
	u32 placed; /* by what it is counted in its parent now */
	s64 active; /* weights of active tasks and groups in it, added up */
	s32 entities;
	/* What it asks for, by itself or the nearest group above that does; as of `generation`. */
	s32 hint;
	u32 hint_slice_ns; /* what stands for it in a kernel file */
	u32 kind;
	u32 yields;
	u32 capped; /* the family of the nearest capped group at or above it (slot.h); 0: none */
	u32 limit;  /* the nearest limited group at or above it (pool.h); 0: none */
	u32 pool;   /* its own limit; 0: it never had one */
	u32 mirror; /* its quota is a copy of ours (pool.h) */
	/* cpu.max and cpu.max.burst, as the kernel told them last. */
	u64 quota_us, period_us, burst_us;
	u32 account; /* of the nearest gate at or above it; 0: there is none */
	u64 generation;
};

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, EXT_GROUPS_MAX);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct group);
} groups SEC(".maps");

INLINE struct group *group_at(u32 index)
{
	return bpf_map_lookup_elem(&groups, &index);
}

struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, EXT_GATES_MAX);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, struct ext_gate);
} gates SEC(".maps");

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_UINT(map_flags, MAP_FLAG_MMAPABLE);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct ext_control);
} control SEC(".maps");

/* ---- lines: one per cache and kind of work ---- */

struct line {
	struct bpf_spin_lock lock;
	u32 members;
	u64 balance_ns; /* when its CPUs look next whether another cache has more to do */
	u64 base;	/* the members' mean vruntime, in whole ns .. */
	s64 moment; /* .. and the rest of it: sum of (vruntime - base) * weight, in 0 .. weights - 1
		     */
	u64 weights; /* of the members */
	u64 reached; /* virtual time: the furthest that the mean has come */
	/* Members that run: their number, and the sum of the times since when; what they ran since
	 * is in no vruntime yet. */
	u64 open;
	u64 open_since_ns;
};

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, EXT_KINDS); /* the loader: times the number of caches */
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct line);
} lines SEC(".maps");

INLINE struct line *line_at(u32 index)
{
	return bpf_map_lookup_elem(&lines, &index);
}

/* ---- CPUs ---- */

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1); /* the loader sets the number of possible CPUs */
	MAP_UINT(map_flags, MAP_FLAG_MMAPABLE);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct ext_cpu);
} cpus SEC(".maps");

INLINE struct ext_cpu *cpu_at(u32 cpu)
{
	return bpf_map_lookup_elem(&cpus, &cpu);
}

#define COUNT(cpu, what)                                                                           \
	do {                                                                                       \
		struct ext_cpu *count_in = (cpu);                                                  \
		if (count_in)                                                                      \
			count_in->counts.what++;                                                   \
	} while (0)

/* ---- queues, as the kernel keeps them ---- */

/* Waiting for any CPU of a cache; for some CPUs of it only; for one CPU. */
INLINE u64 dsq_wide(u32 line)
{
	return 0x10000000ULL | line;
}

INLINE u64 dsq_narrow(u32 line)
{
	return 0x20000000ULL | line;
}

INLINE u64 dsq_pinned(u32 cpu, u32 kind)
{
	return 0x30000000ULL | kind << 24 | cpu;
}

/* Parked by a cap, in the order in which they may come back. */
INLINE u64 dsq_held(u32 llc)
{
	return 0x50000000ULL | llc;
}

/* CPU time as virtual time at a flat weight, rounded up so that nobody runs for nothing; 2^33 *
 * 2^30 fits. */
INLINE u64 virtual_ns(u64 ran_ns, u64 flat)
{
	return (tg_min(ran_ns, 1ULL << 33) * FLAT_ONE + flat - 1) / flat;
}

#endif
