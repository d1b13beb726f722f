/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The little of the kernel that the scheduler needs to know, declared by hand.
 *
 * Each structure lists only the members that are used; `preserve_access_index` makes libbpf look up
 * their real offsets in the running kernel's BTF when the object is loaded, and values of enums
 * that moved between kernels come the same way. So one object serves every kernel with sched_ext
 * (6.12 and later), and building it needs nothing but clang.
 */
#ifndef TIDEGATE_EXT_KERNEL_H
#define TIDEGATE_EXT_KERNEL_H

typedef signed int s32;
typedef signed long long s64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef _Bool bool;

#define true 1
#define false 0
#define NULL ((void *)0)
#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define WEAK __attribute__((section(".ksyms"), weak))
#define KSYM __attribute__((section(".ksyms")))
/* An argument of a global function, which the verifier walks once and for itself. */
#define NONNULL __attribute__((btf_decl_tag("arg:nonnull")))
/* The same of one of the kernel's structures. */
#define TRUSTED __attribute__((btf_decl_tag("arg:trusted")))
#define NULLABLE __attribute__((btf_decl_tag("arg:nullable")))
#define KERNEL_TYPE __attribute__((preserve_access_index))

#define ENOENT 2
#define ENOMEM 12
#define CLOCK_MONOTONIC 1

/* Members of a map definition: libbpf reads the values out of these declarations' types. */
#define MAP_UINT(name, value) int(*name)[value]
#define MAP_TYPE(name, value) typeof(value) *name

enum {
	MAP_HASH = 1,
	MAP_ARRAY = 2,
	MAP_PERCPU_ARRAY = 6,
	MAP_QUEUE = 22,
	MAP_TASK_STORAGE = 29,
	MAP_FLAG_NO_PREALLOC = 1,
	MAP_FLAG_MMAPABLE = 1024,
	MAP_NOEXIST = 1, /* of an update: there is none yet */
	STORAGE_CREATE = 1,
};

/* include/linux/sched.h */
#define PF_IDLE 0x00000002
#define PF_EXITING 0x00000004
#define PF_IO_WORKER 0x00000010
#define PF_USER_WORKER 0x00004000
#define PF_KTHREAD 0x00200000
#define TASK_DEAD 0x80
#define SCHED_FIFO 1
#define SCHED_RR 2
#define SCHED_IDLE 5
#define SCHED_DEADLINE 6
#define SIGKILL_BIT (1UL << 8)

/* Only passed on; but a function's arguments must be of the kernel's kinds, and a forward
 * declaration is none. */
struct cpumask {
	unsigned long bits[1];
};

struct kernfs_node {
	u64 id;
} KERNEL_TYPE;

struct cgroup {
	struct kernfs_node *kn;
	int level;
} KERNEL_TYPE;

/* include/linux/sched/ext.h */
struct sched_ext_entity {
	u32 flags;
	u32 weight;
	u64 slice;
	u64 dsq_vtime;
} KERNEL_TYPE;

/* The fair class's own; the slice that a task was given (sched_setattr, 6.12 and later). */
struct sched_entity {
	u64 exec_start;
	unsigned char custom_slice;
	u64 slice;
} KERNEL_TYPE;

struct sigpending {
	struct {
		unsigned long sig[1];
	} signal;
} KERNEL_TYPE;

union rcu_special {
	struct {
		u8 blocked; /* it was preempted inside rcu_read_lock */
	} b;
} KERNEL_TYPE;

/* arch/x86/include/asm/processor.h */
struct thread_struct {
	unsigned long sp; /* of one that is switched out */
} KERNEL_TYPE;

struct task_struct {
	unsigned int __state;
	void *stack;
	int pid;
	int tgid;
	unsigned int flags;
	unsigned int policy;
	int static_prio;
	int nr_cpus_allowed;
	unsigned short migration_disabled;
	const struct cpumask *cpus_ptr;
	struct sched_entity se;
	struct sigpending pending;
	union rcu_special rcu_read_unlock_special; /* CONFIG_PREEMPT_RCU */
	unsigned long nvcsw, nivcsw;
	struct sched_ext_entity scx;
	struct thread_struct thread;
} KERNEL_TYPE;

struct sched_dl_entity {
	u64 dl_runtime;
} KERNEL_TYPE;

struct dl_rq {
	unsigned int dl_nr_running; /* tasks and servers that are due */
} KERNEL_TYPE;

struct rt_rq {
	unsigned int rt_nr_running;
} KERNEL_TYPE;

struct scx_rq {
	u32 nr_running; /* runnable tasks of this class, throttled ones among them */
} KERNEL_TYPE;

struct rq {
	struct task_struct *curr;
	struct rt_rq rt;
	struct dl_rq dl;
	struct scx_rq scx;
	struct sched_dl_entity ext_server; /* 7.0 */
} KERNEL_TYPE;

struct scx_init_task_args {
	bool fork;
	struct cgroup *cgroup;
} KERNEL_TYPE;

struct scx_cgroup_init_args {
	u32 weight;
	u64 bw_period_us; /* 6.17 */
	u64 bw_quota_us;
	u64 bw_burst_us;
	bool sched_idle; /* 6.19 */
} KERNEL_TYPE;

struct scx_exit_task_args;
struct scx_cpu_release_args;

enum scx_exit_kind { SCX_EXIT_NONE = 0 };

struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	char *msg;
	char *dump;
} KERNEL_TYPE;

/* kernel/sched/ext.c. Numbers are 6.18's; CONST asks the running kernel. */
enum scx_enq_flags {
	SCX_ENQ_WAKEUP = 1ULL,
	SCX_ENQ_PREEMPT = 1ULL << 32,
	SCX_ENQ_IMMED = 1ULL << 33, /* 7.1 */
	SCX_ENQ_REENQ = 1ULL << 40,
	SCX_ENQ_LAST = 1ULL << 41,
};

enum scx_wake_flags { SCX_WAKE_SYNC = 16 };

enum scx_deq_flags { SCX_DEQ_SLEEP = 1 };

enum scx_kick_flags { SCX_KICK_IDLE = 1, SCX_KICK_PREEMPT = 2 };

enum scx_pick_idle_cpu_flags { SCX_PICK_IDLE_CORE = 1 };

enum scx_dsq_iter_flags { SCX_DSQ_ITER_REV = 1 << 16 };

enum scx_ent_flags { SCX_TASK_QUEUED = 1 };

enum scx_dsq_id_flags {
	SCX_DSQ_FLAG_BUILTIN = 1ULL << 63,
	SCX_DSQ_GLOBAL = (1ULL << 63) | 1,
	SCX_DSQ_LOCAL = (1ULL << 63) | 2,
	SCX_DSQ_LOCAL_ON = (1ULL << 63) | (1ULL << 62),
};

enum scx_ops_flags { SCX_OPS_KEEP_BUILTIN_IDLE = 1, SCX_OPS_ENQ_LAST = 2 };

#define CONST(type, name) __builtin_preserve_enum_value(*(enum type *)name, 1)
#define HAS_CONST(type, name) __builtin_preserve_enum_value(*(enum type *)name, 0)

/*
 * What libbpf fills in the kernel's structure by members' names, so the order is ours.
 * src/object.rs takes out callbacks that a kernel lacks.
 */
struct sched_ext_ops {
	int (*cgroup_set_idle)(u64 *arguments);	     /* 6.19 */
	int (*cgroup_set_bandwidth)(u64 *arguments); /* 6.17 */
	u64 flags;				     /* src/object.rs adds to it */
	int (*select_cpu)(u64 *arguments);
	int (*enqueue)(u64 *arguments);
	int (*dispatch)(u64 *arguments);
	int (*tick)(u64 *arguments);
	int (*runnable)(u64 *arguments);
	int (*running)(u64 *arguments);
	int (*stopping)(u64 *arguments);
	int (*quiescent)(u64 *arguments);
	int (*update_idle)(u64 *arguments);
	int (*init_task)(u64 *arguments);
	int (*exit_task)(u64 *arguments);
	int (*enable)(u64 *arguments);
	int (*cgroup_init)(u64 *arguments);
	int (*cgroup_exit)(u64 *arguments);
	int (*cgroup_move)(u64 *arguments);
	int (*cgroup_set_weight)(u64 *arguments);
	int (*cpu_online)(u64 *arguments);
	int (*cpu_offline)(u64 *arguments);
	int (*cpu_release)(u64 *arguments);
	int (*init)(u64 *arguments);
	int (*exit)(u64 *arguments);
	int (*dump)(u64 *arguments);
	int (*dump_cpu)(u64 *arguments);
	int (*dump_task)(u64 *arguments);
	u32 timeout_ms;
	u32 exit_dump_len;
	char name[128];
};

struct bpf_spin_lock {
	u32 val;
};

struct bpf_timer {
	u64 opaque[2];
} __attribute__((aligned(8)));

#define TIMER_CPU_PIN 2 /* 6.7 */

struct bpf_iter_task {
	u64 opaque[3];
} KERNEL_TYPE;

struct bpf_iter_num {
	u64 opaque[1];
} __attribute__((aligned(8)));

struct bpf_iter_scx_dsq {
	u64 opaque[6];
} __attribute__((aligned(8)));

/* Helpers by their numbers in include/uapi/linux/bpf.h, which are ABI. */
static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value,
					 u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
static long (*const bpf_map_push_elem)(void *map, const void *value, u64 flags) = (void *)87;
static long (*const bpf_map_pop_elem)(void *map, void *value) = (void *)88;
static long (*const bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*const bpf_spin_lock)(struct bpf_spin_lock *lock) = (void *)93;
static long (*const bpf_spin_unlock)(struct bpf_spin_lock *lock) = (void *)94;
static long (*const bpf_timer_init)(struct bpf_timer *timer, void *map, u64 flags) = (void *)169;
static long (*const bpf_timer_set_callback)(struct bpf_timer *timer, void *callback) = (void *)170;
static long (*const bpf_timer_start)(struct bpf_timer *timer, u64 after_ns,
				     u64 flags) = (void *)171;
static long (*const bpf_probe_read_kernel_str)(void *to, u32 size, const void *from) = (void *)115;
static void *(*const bpf_task_storage_get)(void *map, struct task_struct *task, void *value,
					   u64 flags) = (void *)156;
static void *(*const bpf_this_cpu_ptr)(const void *per_cpu) = (void *)154;
static struct task_struct *(*const bpf_get_current_task_btf)(void) = (void *)158;

#endif
