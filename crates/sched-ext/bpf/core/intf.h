/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the scheduler and its loader share; build.rs generates the structs for src/intf.rs from BTF.
 */
#ifndef TIDEGATE_EXT_INTF_H
#define TIDEGATE_EXT_INTF_H

#include "core/kernel.h"

/* Groups with a place of their own in the tree; those beyond share their parent's. */
#define EXT_GROUPS_MAX 16384
/* Depth of the tree of groups; deeper ones share their ancestor's place. */
#define EXT_LEVELS_MAX 32
#define EXT_GATES_MAX 8192
#define EXT_LLCS_MAX 64
/* The kernel numbers CPUs below this. */
#define EXT_CPUS_MAX 8192
/* Groups with a quota; the loader makes the table smaller on machines with many CPUs. */
#define EXT_LIMITS_MAX 4096

/* Buckets of caps, and how many one task may be under: those of its group and of groups above. */
#define EXT_BUCKETS_MAX 16384
#define EXT_CAPS_EACH 4

/* Kinds of work, in the order in which a CPU looks for it. */
enum ext_kind {
	EXT_MAIN = 0,	    /* main and neutral work */
	EXT_SIDE = 1,	    /* below a gate of class side */
	EXT_BACKGROUND = 2, /* out of its soft cap: where nothing else wants the CPU */
	EXT_KINDS = 3,
};
#define EXT_KINDS_MASK 3

#define EXT_HINTS 40

/* Set by the loader before the programs are loaded; the verifier knows the values. */
struct ext_config {
	u64 slice_ns;
	u64 period_ns;	    /* a hint of -20 brings a deadline forward by this */
	u64 quota_slice_ns; /* what a CPU takes of a quota at once */
	u32 cpus;	    /* possible ones */
	u32 llcs;
	u32 smt;    /* threads of a core */
	u32 limits; /* length of the table of limited groups; the first is none */
	/* What slice stands for a hint, from -20 on; all 0: tasks have no slices of their own. */
	u32 hint_slice_ns[EXT_HINTS];
	/* The least slice that stands for a hint or one after it; the first is 0. */
	u32 hint_from_ns[EXT_HINTS];
};

#define EXT_HAS_HINT 1
#define EXT_HAS_CLASS 2
#define EXT_HAS_ACCOUNT 4
/* Its cpu.idle stands for the time without us, and means nothing to us. */
#define EXT_IDLE_IS_MIRROR 8

/* What is asked of a group and all below it, by its cgroup's id. Later terms go at the end. */
struct ext_gate {
	u32 has;
	s32 hint;
	u32 kind;
	u32 account; /* where its tasks count (account.h) */
};

/* Of which group `mirrors` has changed. */
struct ext_mirror_ask {
	u64 cgroup_id;
};

/* What counts where no gate says, from the loader. */
struct ext_terms_ask {
	u32 side_gates;
	u32 headroom_ppm;
	u32 tolerance_ppm;
};

/*
 * Shared memory, one element. Only programs write it, and the loader asks them to: it could write
 * the whole only, over what they have counted since it read.
 */
struct ext_control {
	u64 gates_generation; /* raised after each change of a gate */
	u32 limits_used;      /* length in use of the table of limited groups */
	u32 limits_refused;   /* times that it was full: those quotas are not enforced */
	u32 side_gates;	      /* 0: no gate is of class side */
	u32 headroom_ppm;     /* idle to keep, of the machine */
	u32 tolerance_ppm;    /* what side work gets though main takes all */
	u32 unused;
};

/* Shared memory, one element: the headroom controller's state, written at each step. */
struct ext_headroom {
	u64 steps;
	u64 allowance_ucpu;
	u64 floor_ucpu; /* the tolerance, or what the watchdog makes necessary */
	u64 capacity_ucpu;
	u64 asked_ucpu;
	u64 main_ucpu;
	u64 side_ucpu;
	u64 idle_ucpu;
	u32 reason; /* enum tg_reason */
	u32 alarms;
};

/* What the program set_cap is asked: the cap of a gate. */
struct ext_cap_ask {
	u64 cgroup_id;
	u32 hard_ppt; /* TG_CAP_NONE: none */
	u32 soft_ppt;
	u32 scope;  /* enum tg_cap_scope */
	u32 bucket; /* the answer: where its counts are; 0: it has none (any more) */
};

/* Account 0 is none, the next that of the kernel's threads; the rest are gates'. */
#define EXT_ACCOUNT_KERNEL 1
#define EXT_ACCOUNTS_LEAST 64
/* The shortest is below 1,024 ns, each of the others below twice the one before, the last for all
 * from 69 s on. */
#define EXT_DELAYS 28

/* One CPU's part of an account. */
struct ext_account {
	u64 ran_ns[EXT_KINDS];
	u64 delay_ns;	/* from wakeup to run, added up */
	u64 longest_ns; /* of those */
	u64 delays[EXT_DELAYS];
};

#define EXT_CACHE_LINE 64

/*
 * One CPU: its place in the machine, what it runs, and its counts. Written by itself. Others that
 * look for one to preempt read the first cache line.
 */
struct ext_cpu {
	u32 llc;
	u32 next_in_llc; /* CPUs of a cache form a ring */
	u32 next_in_core;
	u32 need_resched; /* a waking task has displaced the one that runs; written by others */
	u32 state;	  /* EXT_CPU_* */
	u32 kind;	  /* of the task that runs, as are those below */
	s32 hint;
	u32 limit; /* the nearest limit of the task that ran last: its silos here may hold something */
	u64 deadline;
	u64 vruntime;
	u64 hweight;
	u64 slice_ns;
	u64 since_ns;	/* charged up to here */
	u64 began_ns;	/* was switched to */
	u64 switch_ns;	/* the switch to the next task began then, */
	u32 switch_pid; /* and away from this one */
	u16 served;	/* the next task that starts has a least run (dl_server.h) */
	u16 asked;	/* the kernel's server asked, when last no task could run */
	u32 group;	/* of the task that runs, and its own weight */
	u32 weight;
	u64 reweigh_ns; /* it looks next then at the weights of those that come first */
	u64 clock_ns;	/* charged up to here by the kernel's clock; 0: not counted */
	u64 hidden_dsq; /* more wait there than a pick passes over (pick_sort); 0: nowhere */
	u64 runs;
	u64 no_context; /* tasks without a context, which are run as they come */
	u64 min_runs;	/* least runs: for the watchdog, or of tasks inside the kernel */
} __attribute__((aligned(EXT_CACHE_LINE)));
_Static_assert(sizeof(struct ext_cpu) == 3 * EXT_CACHE_LINE, "three cache lines");

/* A cache, as seen from another. */
struct ext_near {
	u32 llc;
	u32 first_cpu; /* where its ring begins */
};

#define EXT_CPU_RUNS 1	  /* a task of this class */
#define EXT_CPU_YIELDS 2  /* one of the idle class */
#define EXT_CPU_KTHREAD 4 /* a kernel thread */

#define EXT_REASON_MAX 128
#define EXT_MESSAGE_MAX 1024
#define EXT_DUMP_MAX 32768

#define EXT_CODE_REAL_TIME 1 /* our own `code`: it left for real-time tasks (realtime.h) */

/* Why the scheduler ended. */
struct ext_exit {
	u32 kind; /* 0: it has not */
	u32 unused;
	s64 code;
	char reason[EXT_REASON_MAX];
	char message[EXT_MESSAGE_MAX];
	char dump[EXT_DUMP_MAX];
};

#endif
