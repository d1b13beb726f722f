/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The little of the kernel that the sensor needs to know, declared by hand.
 *
 * Each structure lists only the members that are read; `preserve_access_index` makes libbpf look
 * up their real offsets in the running kernel's BTF when the object is loaded. So one object
 * serves every kernel that has these members (5.11 and later), and building it needs nothing but
 * clang: no vmlinux.h, no kernel headers, no libbpf headers.
 */
#ifndef TIDEGATE_KERNEL_H
#define TIDEGATE_KERNEL_H

typedef unsigned int u32;
typedef unsigned long long u64;
typedef _Bool bool;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define NULL ((void *)0)

/* Members of a map definition: libbpf reads the values out of these declarations' types. */
#define MAP_UINT(name, value) int(*name)[value]
#define MAP_TYPE(name, value) typeof(value) *name

enum { MAP_HASH = 1, MAP_ARRAY = 2, MAP_FLAG_MMAPABLE = 1024 };

#define KERNEL_TYPE __attribute__((preserve_access_index))

/* include/linux/kernfs.h; the id is what userspace sees as the directory's inode (64 bit). */
struct kernfs_node {
	u64 id;
} KERNEL_TYPE;

struct cgroup {
	struct kernfs_node *kn;
} KERNEL_TYPE;

/* include/linux/cgroup-defs.h; the serial number is given once and never reused. */
struct cgroup_subsys_state {
	struct cgroup *cgroup;
	u64 serial_nr;
	struct cgroup_subsys_state *parent;
} KERNEL_TYPE;

/* kernel/sched/sched.h; the group of the cpu controller, on v1 and on v2 alike. */
struct task_group {
	struct cgroup_subsys_state css;
} KERNEL_TYPE;

/* include/linux/sched.h, with CONFIG_SCHED_INFO (that is, SCHEDSTATS or TASK_DELAY_ACCT). */
struct sched_info {
	unsigned long pcount; /* times that the task began to run */
	u64 run_delay;	      /* ns that it was runnable before it ran, all of them */
	u64 last_arrival;     /* when it began to run, by the clock of its CPU's rq */
} KERNEL_TYPE;

/*
 * kernel/sched/sched.h, with CONFIG_FAIR_GROUP_SCHED: a CPU's queue of one group. From 6.14 on it
 * counts the tasks below it that can run, those of the idle class among all that are queued, and
 * all that are queued: these include tasks that sleep and have not been dequeued yet.
 */
struct cfs_rq {
	unsigned int h_nr_queued;
	unsigned int h_nr_runnable;
	unsigned int h_nr_idle;
	struct rq *rq;
	int idle; /* the group's cpu.idle */
} KERNEL_TYPE;

struct rq {
	struct cfs_rq cfs;
	u64 clock;
} KERNEL_TYPE;

/* include/linux/sched.h; of a task or of a group on one CPU. */
struct sched_entity {
	struct sched_entity *parent;
	struct cfs_rq *cfs_rq;
	struct cfs_rq *my_q; /* of a group */
} KERNEL_TYPE;

struct task_struct {
	int pid;
	struct sched_entity se;
	struct task_group *sched_task_group;
	struct sched_info sched_info;
} KERNEL_TYPE;

/* BPF_FIELD_EXISTS of libbpf's bpf_core_read.h: known when the object is loaded. */
#define KERNEL_HAS(member) __builtin_preserve_field_info(member, 2)

/* Helpers by their numbers in include/uapi/linux/bpf.h, which are ABI. */
static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
static struct task_struct *(*const bpf_get_current_task_btf)(void) = (void *)158;

static long (*const bpf_timer_init)(void *timer, void *map, u64 flags) = (void *)169;
static long (*const bpf_timer_set_callback)(void *timer, void *callback) = (void *)170;
static long (*const bpf_timer_start)(void *timer, u64 ns, u64 flags) = (void *)171;

/* include/uapi/linux/bpf.h */
struct bpf_timer {
	u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_wq {
	u64 opaque[2];
} __attribute__((aligned(8)));

/* kernel/bpf/helpers.c, from 6.10; weak, so that older kernels load what does without them. */
#define KFUNC __attribute__((section(".ksyms"), weak))

extern int bpf_wq_init(struct bpf_wq *wq, void *map, unsigned int flags) KFUNC;
extern int bpf_wq_start(struct bpf_wq *wq, unsigned int flags) KFUNC;
/* From 7.0; before, `_impl`. */
extern int bpf_wq_set_callback(struct bpf_wq *wq, int (*callback)(void *map, int *key, void *value),
			       unsigned int flags) KFUNC;
extern int bpf_wq_set_callback_impl(struct bpf_wq *wq,
				    int (*callback)(void *map, int *key, void *value),
				    unsigned int flags, void *aux) KFUNC;

#endif
