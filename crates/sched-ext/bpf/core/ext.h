/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The scheduler's state: tasks, groups, run queues (in virtual time) and CPUs.
 *
 *	state			lock that its writer holds
 *	struct task_ctx		the run queue lock of the task's CPU, which the kernel holds
 *				around every callback for it; `on_rq` as said there
 *	struct group		its own
 *	struct runqueue		its own
 *	struct ext_cpu		none: its CPU is the only writer, but for `need_resched`
 *
 * Locks are never nested.
 */
#ifndef TIDEGATE_EXT_EXT_H
#define TIDEGATE_EXT_EXT_H

#include "base.h"
#include "cap.h"
#include "core/dsq.h"
#include "core/intf.h"
#include "core/kernel.h"
#include "core/kfunc.h"
#include "latency.h"
#include "runqueue.h"
#include "side_cpus.h"
#include "tuning.h"

const volatile struct ext_config config SEC(".rodata.config");

/* ---- tasks ---- */

#define TASK_YIELDS 2	    /* it or a group above it is of the idle class */
#define TASK_PREEMPTED 4    /* put back by its CPU, as opposed to woken */
#define TASK_IDLE_CPU 8	    /* its CPU was idle, and is kept for it */
#define TASK_NEW 32	    /* forked, and not yet queued */
#define TASK_DENIED 16	    /* its CPU has seen that a cap keeps it from going on */
#define TASK_SHARES_CORE 64 /* it is to leave the core that it shares */
#define TASK_SYNC 128	    /* woken by a task that is about to sleep */

/*
 * Where a task is: away, throttled (throttle.h), or member of the run queue ON_RQ + index.
 *
 *	OFF_RQ	   --> ON_RQ + i	it wakes up
 *	THROTTLED  --> ON_RQ + i	a timer lets it go, or a CPU had already taken it
 *	ON_RQ + i  --> THROTTLED	a limit keeps it from running; or on its way to ON_RQ + j
 *	ON_RQ + i  --> OFF_RQ		it sleeps; or on its way to ON_RQ + j
 *	THROTTLED  --> OFF_RQ		it is dequeued
 *
 * Any CPU may throttle a waiting task and a timer let it go, while a third runs or dequeues it. So
 * state and run queue are one word, and each change is one compare-and-swap: of several CPUs one
 * makes it. ON_RQ + i begins and ends under the lock of run queue i, together with what that run
 * queue counts. `kind`, `llc` and `runqueue` are written by the CPU that made the task a member.
 */
enum on_rq { OFF_RQ = 0, THROTTLED = 1, ON_RQ = 2 };

struct task_ctx {
	/*
	 * First what each wakeup and run needs: three cache lines. Its place in its run queue
	 * (runqueue.h).
	 */
	u64 vruntime;
	u64 end; /* its vruntime at the end of its slice */
	u64 deadline;
	u64 hweight;
	s64 lag;	 /* what it was behind by when it last left */
	u64 uncommitted; /* virtual time that it ran and that is not in the run queue's mean yet */
	/* Charged up to here while it runs; else, since when it has not run though it could; 0: it
	 * could not. */
	u64 since_ns;
	u64 running_since_ns; /* its run queue counts it as running since then; 0: it does not */
	u64 woken_ns;	      /* it waits since then for its first run; 0: it has had it */
	u64 slice_ns;
	u64 generation; /* of the gates, when it was last described */
	u64 group_id;	/* guards against another group under the same index */
	/* group << 32 | kind << 24 | weight by which it is active in the tree; 0: it is not */
	u64 active_entry;
	u32 group;
	u32 on_rq;	   /* enum on_rq + index */
	u32 runqueue;	   /* where it is a member, or was last */
	u32 left_runqueue; /* the run queue that `vruntime` and `lag` are of while it is away */
	u32 llc;
	u32 kind;
	u32 weight;
	s32 hint;
	u32 flags;
	u32 allowed;	    /* CPUs that it may run on */
	u32 account;	    /* account.h; 0: none */
	u32 limit;	    /* the nearest limited group (pool.h); as of its last start */
	u32 min_runtime_ns; /* its next run is a least run of so many ns (starvation.h); 0: it is none */
	s32 own_hint;	    /* what its own slice stands for .. */
	u32 own_slice_ns; /* .. which was this long when that was looked at */
	/* Caps (caps.h): the buckets that it draws on, the nearest group's first. */
	u32 caps[EXT_CAPS_EACH];
	struct tg_cap_loan loans[EXT_CAPS_EACH]; /* what its run has borrowed of each */
	u32 throttler; /* the bucket that throttled it, or put it into the background */
	u32 forked_by; /* until it has inherited */
	u64 reserved;  /* bucket << 32 | what it has reserved there (cap_throttle.h); 0: nothing */
	u64 ready_ns;  /* when the holder may let it go */
	u64 caps_generation;
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

/* Whether it is a member of a run queue. */
INLINE bool task_on_rq(struct task_ctx *t)
{
	return *(volatile u32 *)&t->on_rq >= ON_RQ;
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
	/* By kind of work, for kinds do not share; as many as the verifier can see by a mask. */
	struct tg_hweight_group competes[EXT_KINDS_MASK + 1];
	u32 weight; /* as an entity of its parent: 1024 for cpu.weight 100 */
	/* What it asks for, by itself or the nearest group above that does; as of `generation`. */
	s32 hint;
	u32 hint_slice_ns; /* what stands for it in a kernel file */
	u32 kind;
	u32 yields;
	u32 capped; /* the family of the nearest capped group at or above it (buckets.h); 0: none */
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

/* What the loader and the scheduler tell each other. */
INLINE struct ext_control *ext_shared(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&control, &zero);
}

/* ---- run queues: one for each cache and kind of work ---- */

struct runqueue {
	/* What each wakeup and sleep of a task writes, in one cache line. */
	struct bpf_spin_lock lock;
	u32 cpus; /* of the cache, online; kept for main alone */
	struct tg_runqueue mean;
	u64 balance_ns; /* when its CPUs look next whether another cache has more to do */
} __attribute__((aligned(EXT_CACHE_LINE)));
_Static_assert(__builtin_offsetof(struct runqueue, balance_ns) == EXT_CACHE_LINE,
	       "the mean is in one line");

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, EXT_KINDS);	/* the loader: times the number of caches */
	MAP_UINT(map_flags, MAP_FLAG_MMAPABLE); /* values begin at a page */
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct runqueue);
} runqueues SEC(".maps");

INLINE struct runqueue *runqueue_at(u32 index)
{
	return bpf_map_lookup_elem(&runqueues, &index);
}

/* Caches in the order of their distance from one, which is the first itself. */
struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1); /* the loader: the square of the number of caches */
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct ext_near);
} nearest SEC(".maps");

INLINE struct ext_near *near_at(u32 llc, u32 step)
{
	u32 index = llc * config.llcs + step;

	return bpf_map_lookup_elem(&nearest, &index);
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

/* ---- what cannot be ---- */

enum ext_table { TABLE_CPUS, TABLE_RUNQUEUES, TABLE_SILOS };

/*
 * A table lacks an element that the loader made it long enough for: a task would be lost, or a
 * quota not kept, and nothing would say so. Ends the scheduler. Global, so that the verifier walks
 * it once.
 */
__attribute__((noinline)) int ext_missing(u32 table, u64 index)
{
	static const char names[][12] = {"cpus", "runqueues", "silos"};

	EJECT("table %s has no element %llu", (u64)(long)names[tg_min(table, TABLE_SILOS)], index);
	return 0;
}

#endif
