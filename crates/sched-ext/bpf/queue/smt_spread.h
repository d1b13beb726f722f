/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Main spreads onto whole cores.
 *
 * A wakeup finds an idle core by itself. A task that computes without a sleep does not: it comes to
 * share a core though others are idle, for each time that it is displaced any idle thread takes it.
 * So at the end of a slice, with no task waiting, a task that shares its core with another of
 * main's goes to a core that is idle as a whole, in its own cache if there is one among the next
 * TG_SMT_SPREAD_SCAN_MAX CPUs there.
 */
#ifndef TIDEGATE_EXT_SMT_SPREAD_H
#define TIDEGATE_EXT_SMT_SPREAD_H

#include "queue/enqueue.h"

/* Threads of a core that are looked at. */
#define SMT_SPREAD_THREADS_MAX 8

/*
 * Whether a running task may be sent to another CPU. One that cannot migrate shows that by its CPUs
 * only after it is switched out; 6.12 ejects a scheduler that sends it (by its sources), 6.18 puts
 * it back, and it would have left its CPU for nothing. BPF itself keeps the current task from
 * migrating, where readers of RCU can be preempted (up to 6.17 elsewhere, too: there no task
 * spreads).
 */
INLINE bool smt_spread_may(struct task_struct *p, struct task_ctx *t)
{
	u32 held = 0, own = 0;

	if (t->kind != EXT_MAIN || p->nr_cpus_allowed < 2 || group_exempt(p))
		return false;
	if (__builtin_preserve_field_info(p->migration_disabled, 2))
		held = p->migration_disabled;
	if (held && __builtin_preserve_field_info(p->rcu_read_unlock_special, 2))
		own = bpf_get_current_task_btf() == p;
	return held <= own;
}

/* A CPU whose whole core is idle; -1: there is none. */
s32 smt_spread_find_core(struct task_struct *p TRUSTED, u32 cpu)
{
	const struct cpumask *idle = scx_bpf_get_idle_smtmask();
	struct ext_cpu *c = cpu_at(cpu);
	u32 at = c ? c->next_in_llc : cpu;
	s32 found = -1;

	for (int look = 0; look < TG_SMT_SPREAD_SCAN_MAX && at != cpu; look++) {
		if (bpf_cpumask_test_cpu(at, idle) && bpf_cpumask_test_cpu(at, p->cpus_ptr)) {
			found = at;
			break;
		}
		c = cpu_at(at);
		if (!c)
			break;
		at = c->next_in_llc;
	}
	/* Its own cache comes first as far as was looked. */
	if (found < 0)
		found = (s32)bpf_cpumask_any_and_distribute(idle, p->cpus_ptr);
	scx_bpf_put_idle_cpumask(idle);
	/* The kernel says "none" by the number of CPUs. */
	return found >= 0 && found < (s32)config.cpus && !cpu_is_offline(found) ? found : -1;
}

/* Whether another of main's tasks has been on this CPU's core for a while. */
u32 smt_spread_core_shared(u32 cpu, u64 now)
{
	struct ext_cpu *c = cpu_at(cpu);
	u32 at = c ? c->next_in_core : cpu;

	for (int look = 0; look < SMT_SPREAD_THREADS_MAX && at != cpu; look++) {
		c = cpu_at(at);
		if (!c)
			break;
		if ((c->state & EXT_CPU_RUNS) && c->kind == EXT_MAIN &&
		    tg_sub0(now, c->began_ns) >= tg_runqueue_undisturbed_ns(c->slice_ns))
			return true;
		at = c->next_in_core;
	}
	return false;
}

/*
 * Whether the running task is to go to another core: smt_spread_move does it. Both are global, so
 * that they are walked once, and the callbacks stay as short as they are where a core has one
 * thread.
 */
u32 smt_spread_wants(struct task_struct *p TRUSTED, struct task_ctx *t NONNULL, u32 cpu, u64 now)
{
	if (!smt_spread_may(p, t) || !smt_spread_core_shared(cpu, now) ||
	    smt_spread_find_core(p, cpu) < 0)
		return false;
	t->flags |= TASK_SHARES_CORE;
	return true;
}

/* True: it is on its way to another core. Whether it may is asked again: it may have
 * other terms by now, and the core another task. */
u32 smt_spread_move(struct task_struct *p TRUSTED, struct task_ctx *t NONNULL, s32 cpu)
{
	s32 core = smt_spread_may(p, t) ? smt_spread_find_core(p, cpu) : -1;

	if (core < 0 || !scx_bpf_test_and_clear_cpu_idle(core))
		return false;
	dsq_insert(p, SCX_DSQ_LOCAL_ON | core, task_run_ns(t), 0);
	/* If another change of the task keeps it from arriving, this kick ends the core's claim. */
	scx_bpf_kick_cpu(core, CONST(scx_kick_flags, SCX_KICK_IDLE));
	/*
	 * A CPU that begins to go offline takes no task (the scheduler learns it later): the task
	 * is then in the kernel's own queue, where this CPU, which idles from now on, looks.
	 */
	scx_bpf_kick_cpu(cpu, 0);
	return true;
}

#endif
