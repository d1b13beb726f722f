/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel's functions that BPF may call, by one name whatever the kernel calls them.
 *
 * Each wrapper names the versions that need it: 6.13 renamed dispatch to insert and consume to
 * move; from 6.19 on some return a value, or take their arguments in a structure (five are the most
 * that BPF passes). libbpf takes the names after three underscores for flavours, weak symbols that
 * a kernel lacks are zero, and the verifier drops what is dead.
 */
#ifndef TIDEGATE_EXT_KFUNC_H
#define TIDEGATE_EXT_KFUNC_H

#include "core/kernel.h"

s32 scx_bpf_create_dsq(u64 dsq, s32 node) KSYM;
s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev, u64 wake_flags, bool *is_idle) KSYM;
void scx_bpf_kick_cpu(s32 cpu, u64 flags) KSYM;
s32 scx_bpf_dsq_nr_queued(u64 dsq) KSYM;
bool scx_bpf_test_and_clear_cpu_idle(s32 cpu) KSYM;
s32 scx_bpf_pick_idle_cpu(const struct cpumask *allowed, u64 flags) KSYM;
s32 scx_bpf_task_cpu(const struct task_struct *p) KSYM;
struct cgroup *scx_bpf_task_cgroup(struct task_struct *p) WEAK;
u32 scx_bpf_reenqueue_local(void) KSYM;

/* Text for the dump of an ejection (of up to 12 values, newline included), and an ejection. */
void scx_bpf_dump_bstr(char *format, unsigned long long *values, u32 size) KSYM;
void scx_bpf_error_bstr(char *format, unsigned long long *values, u32 size) KSYM;

#define EXT_SAY(function, text, ...)                                                               \
	({                                                                                         \
		static char say_format[] = text;                                                   \
		u64 say_values[] = {__VA_ARGS__};                                                  \
		function(say_format, say_values, sizeof(say_values));                              \
	})
#define DUMP(text, ...) EXT_SAY(scx_bpf_dump_bstr, text "\n", __VA_ARGS__)
#define EJECT(text, ...) EXT_SAY(scx_bpf_error_bstr, text, __VA_ARGS__)

const struct cpumask *scx_bpf_get_idle_smtmask(void) KSYM;
void scx_bpf_put_idle_cpumask(const struct cpumask *mask) KSYM;
const struct cpumask *scx_bpf_get_online_cpumask(void) KSYM;
void scx_bpf_put_cpumask(const struct cpumask *mask) KSYM;
void bpf_rcu_read_lock(void) KSYM;
void bpf_rcu_read_unlock(void) KSYM;

/* 6.18; before, by the run queue. */
struct task_struct *scx_bpf_cpu_curr(s32 cpu) WEAK;
struct rq *scx_bpf_cpu_rq(s32 cpu) WEAK;
/* 6.18: that whose lock is held around this callback. */
struct rq *scx_bpf_locked_rq(void) WEAK;

/* From 6.15 on, on x86. */
extern const int __preempt_count WEAK;
/* HARDIRQ_MASK and SOFTIRQ_OFFSET of include/linux/preempt.h. */
#define PREEMPT_COUNT_INTERRUPTS 0xf0100

/* No interrupt and no softirq is being served: what happens is the current task's doing. False
 * where the kernel does not tell. */
INLINE bool in_task(void)
{
	return &__preempt_count &&
	       !(*(int *)bpf_this_cpu_ptr(&__preempt_count) & PREEMPT_COUNT_INTERRUPTS);
}

INLINE void rcu_release(int *unused __attribute__((unused)))
{
	bpf_rcu_read_unlock();
}

/* Until the end of the block. A timer's callback that `init` sets is, to the verifier, a part of a
 * program that may sleep. */
#define EXT_RCU                                                                                    \
	int rcu_held __attribute__((cleanup(rcu_release), unused)) = (bpf_rcu_read_lock(), 0)

struct cgroup *bpf_cgroup_ancestor(struct cgroup *cgroup, int level) KSYM;
struct cgroup *bpf_cgroup_from_id(u64 id) KSYM;
void bpf_cgroup_release(struct cgroup *cgroup) KSYM;
bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) KSYM;
u32 bpf_cpumask_any_and_distribute(const struct cpumask *one, const struct cpumask *other) KSYM;

int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq, u64 flags) KSYM;
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) KSYM;
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) KSYM;

/* 6.19: the first of a queue without its lock. */
struct task_struct *scx_bpf_dsq_peek(u64 dsq) WEAK;

int bpf_iter_task_new(struct bpf_iter_task *it, struct task_struct *of, u32 flags) KSYM;
struct task_struct *bpf_iter_task_next(struct bpf_iter_task *it) KSYM;
void bpf_iter_task_destroy(struct bpf_iter_task *it) KSYM;

int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) KSYM;
int *bpf_iter_num_next(struct bpf_iter_num *it) KSYM;
void bpf_iter_num_destroy(struct bpf_iter_num *it) KSYM;

/*
 * i = 0, 1, .. below n, by the kernel's iterator: the verifier walks the body once, not n times.
 * What a body adds up must not tell one round from the next in the verifier's eyes, so it belongs
 * into memory. After bpf_for of libbpf's bpf_helpers.h (BSD-2-Clause, Copyright (c) 2015 The Libbpf
 * Authors).
 */
#define EXT_FOR(i, n)                                                                              \
	for (struct bpf_iter_num i##_it                                                            \
	     __attribute__((aligned(8), cleanup(bpf_iter_num_destroy))),                           \
	     *i##_begun __attribute__((unused)) =                                                  \
		 (bpf_iter_num_new(&i##_it, 0, (n)), (void)bpf_iter_num_destroy, (void *)0);       \
	     ({                                                                                    \
		     int *i##_at = bpf_iter_num_next(&i##_it);                                     \
		     i##_at && ((i) = *i##_at, (i) < (n));                                         \
	     });)

/*
 * The time. Not scx_bpf_now: that returns what this CPU's run queue last knew, as long as it is
 * marked valid, and a task that another CPU takes out of this one's run queue leaves it so. The
 * timer of an idle CPU then read times of up to a second ago.
 */
INLINE u64 now_ns(void)
{
	return bpf_ktime_get_ns();
}

void scx_bpf_dispatch___first(struct task_struct *p, u64 dsq, u64 slice, u64 flags) WEAK;
void scx_bpf_dsq_insert___first(struct task_struct *p, u64 dsq, u64 slice, u64 flags) WEAK;
bool scx_bpf_dsq_insert___v2___later(struct task_struct *p, u64 dsq, u64 slice, u64 flags) WEAK;

/* Puts a task at the end of a CPU's own queue (or as the flags say). */
INLINE void dsq_insert(struct task_struct *p, u64 dsq, u64 slice_ns, u64 flags)
{
	if (scx_bpf_dsq_insert___v2___later)
		scx_bpf_dsq_insert___v2___later(p, dsq, slice_ns, flags);
	else if (scx_bpf_dsq_insert___first)
		scx_bpf_dsq_insert___first(p, dsq, slice_ns, flags);
	else
		scx_bpf_dispatch___first(p, dsq, slice_ns, flags);
}

struct scx_bpf_dsq_insert_vtime_args {
	u64 dsq_id;
	u64 slice;
	u64 vtime;
	u64 enq_flags;
} KERNEL_TYPE;

void scx_bpf_dispatch_vtime___first(struct task_struct *p, u64 dsq, u64 slice, u64 vtime,
				    u64 flags) WEAK;
void scx_bpf_dsq_insert_vtime___first(struct task_struct *p, u64 dsq, u64 slice, u64 vtime,
				      u64 flags) WEAK;
bool __scx_bpf_dsq_insert_vtime(struct task_struct *p,
				struct scx_bpf_dsq_insert_vtime_args *args) WEAK;

/* Puts a task into a queue in the order of `vtime`. */
INLINE void dsq_insert_vtime(struct task_struct *p, u64 dsq, u64 slice_ns, u64 vtime, u64 flags)
{
	if (__scx_bpf_dsq_insert_vtime) {
		struct scx_bpf_dsq_insert_vtime_args args = {
		    .dsq_id = dsq,
		    .slice = slice_ns,
		    .vtime = vtime,
		    .enq_flags = flags,
		};

		__scx_bpf_dsq_insert_vtime(p, &args);
	} else if (scx_bpf_dsq_insert_vtime___first) {
		scx_bpf_dsq_insert_vtime___first(p, dsq, slice_ns, vtime, flags);
	} else {
		scx_bpf_dispatch_vtime___first(p, dsq, slice_ns, vtime, flags);
	}
}

bool scx_bpf_consume(u64 dsq) WEAK;
bool scx_bpf_dsq_move_to_local___first(u64 dsq) WEAK;
bool scx_bpf_dsq_move_to_local___v2___later(u64 dsq, u64 flags) WEAK;

/* The first task of a queue that may run here goes into this CPU's own queue; false: there is none.
 */
INLINE bool dsq_move_to_local(u64 dsq)
{
	if (scx_bpf_dsq_move_to_local___v2___later)
		return scx_bpf_dsq_move_to_local___v2___later(dsq, 0);
	if (scx_bpf_dsq_move_to_local___first)
		return scx_bpf_dsq_move_to_local___first(dsq);
	return scx_bpf_consume(dsq);
}

bool scx_bpf_dispatch_vtime_from_dsq(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq,
				     u64 flags) WEAK;
void scx_bpf_dispatch_from_dsq_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime) WEAK;
bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq,
			    u64 flags) WEAK;
void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime) WEAK;

/*
 * Moves a task out of the queue that `it` goes through into another that is in order of `vtime`;
 * from `dispatch` or a timer. False: it has left that queue meanwhile.
 */
INLINE bool dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq, u64 vtime)
{
	if (scx_bpf_dsq_move_set_vtime && scx_bpf_dsq_move_vtime) {
		scx_bpf_dsq_move_set_vtime(it, vtime);
		return scx_bpf_dsq_move_vtime(it, p, dsq, 0);
	}
	if (!scx_bpf_dispatch_from_dsq_set_vtime || !scx_bpf_dispatch_vtime_from_dsq)
		return false;
	scx_bpf_dispatch_from_dsq_set_vtime(it, vtime);
	return scx_bpf_dispatch_vtime_from_dsq(it, p, dsq, 0);
}

bool scx_bpf_dispatch_from_dsq(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq,
			       u64 flags) WEAK;
bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq, u64 flags) WEAK;

/* The same to a CPU's own queue. */
INLINE bool dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq)
{
	if (scx_bpf_dsq_move)
		return scx_bpf_dsq_move(it, p, dsq, 0);
	return scx_bpf_dispatch_from_dsq && scx_bpf_dispatch_from_dsq(it, p, dsq, 0);
}

bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice_ns) WEAK;

/* 6.19 has a function for it. */
INLINE void set_slice(struct task_struct *p, u64 slice_ns)
{
	if (scx_bpf_task_set_slice)
		scx_bpf_task_set_slice(p, slice_ns);
	else
		p->scx.slice = slice_ns;
}

#endif
