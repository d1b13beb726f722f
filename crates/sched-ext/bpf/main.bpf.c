// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The scheduler's callbacks; each is thin. How they hang together: docs/sched-ext.md.
 *
 * A new kind of limit goes into four places: `activate` (which limits a task is under),
 * `enqueue_task` and `dispatch_kind` (what may start), `charge` (a task ran), and caps_bound or
 * limit_bound (until when it may run).
 *
 *	core/	state, ids, groups, CPU time	limits/	quotas and caps
 *	queue/	order, placement, picking	side/	headroom, side CPUs
 *	ops/	other callbacks, the dump	timers/	ends of runs, starvation, late timers
 */
#include "ops/audit.h"
#include "ops/cap_ops.h"
#include "ops/dump.h"
#include "ops/life_ops.h"
#include "ops/task_ops.h"
#include "queue/dispatch.h"
#include "timers/dl_server.h"
#include "timers/resched_timer.h"

/* Arguments: struct task_struct *p, s32 prev_cpu, u64 wake_flags */
OPS(select_cpu)
s32 select_cpu(u64 *ctx)
{
	struct task_struct *p = (struct task_struct *)ctx[0];
	s32 prev = (s32)ctx[1];
	u64 sync = CONST(scx_wake_flags, SCX_WAKE_SYNC);
	struct task_ctx *t;
	bool idle = false;
	s32 cpu;

	if (task_is_side(p))
		return prev;
	/* With the flag the search may choose the waker's CPU though others idle, and the waker may
	 * go on. */
	cpu = scx_bpf_select_cpu_dfl(p, prev, ctx[2] & ~sync, &idle);
	if (!idle)
		return ctx[2] & sync && in_task() ? place_beside(p, cpu) : cpu;
	t = task_of(p);
	/* `enqueue` makes its context. */
	if (!t)
		return cpu;
	/* Whether it may start is decided when it is put in. */
	if ((limits_used || caps_on) && (t->limit || t->caps[0])) {
		t->flags |= TASK_IDLE_CPU;
		return cpu;
	}
	/* It comes to compete when it begins to run. */
	account_woken(t, now_ns());
	dsq_insert(p, SCX_DSQ_LOCAL, config.slice_ns, 0);
	return cpu;
}

/*
 * A woken or new task, when no idle CPU was found for it, or it may run on one only; or one that
 * was put back.
 */
INLINE void enqueue_task(struct task_struct *p, struct task_ctx *t, s32 cpu, u64 flags)
{
	u32 was = t->flags, again = was & TASK_PREEMPTED;
	/* Put back by its CPU, or picked there when a higher class took the CPU (cpu_release): not
	 * woken. */
	bool is_back = again || (flags & CONST(scx_enq_flags, SCX_ENQ_REENQ) && !t->woken_ns);
	bool soon;
	s32 other;
	u64 now;

	t->flags = was & ~(TASK_PREEMPTED | TASK_IDLE_CPU | TASK_SHARES_CORE | TASK_SYNC);
	if (limits_used && limit_throttles(p, t, cpu))
		return;
	if (caps_on && t->caps[0] && caps_throttles(p, t))
		return;
	if (t->kind == EXT_SIDE) {
		side_wait(p, t, cpu, flags);
		return;
	}
	if (config.smt > 1 && again && was & TASK_SHARES_CORE && smt_spread_move(p, t, cpu))
		return;
	if (flags & CONST(scx_enq_flags, SCX_ENQ_LAST)) {
		dsq_insert(p, SCX_DSQ_LOCAL, task_run_ns(t), 0);
		/* The CPU has already decided to idle. */
		scx_bpf_kick_cpu(cpu, 0);
		return;
	}
	if (!again && (was & TASK_IDLE_CPU || scx_bpf_test_and_clear_cpu_idle(cpu))) {
		dsq_insert(p, SCX_DSQ_LOCAL, task_run_ns(t), 0);
		return;
	}
	now = now_ns();
	other = is_back ? PLACE_NONE : place_victim(p, t, cpu, was & TASK_SYNC, now);
	if (other >= 0) {
		dsq_insert(p, SCX_DSQ_LOCAL_ON | other, task_run_ns(t),
			   CONST(scx_enq_flags, SCX_ENQ_PREEMPT));
		/*
		 * Before 7.1 the flag does not reach another CPU (enqueue_task_scx took its flags
		 * as an int), and the task there went on until its slice or the tick.
		 */
		if (other != cpu && !HAS_CONST(scx_enq_flags, SCX_ENQ_IMMED))
			scx_bpf_kick_cpu(other, CONST(scx_kick_flags, SCX_KICK_PREEMPT));
		return;
	}
	if (!again && enqueue_kthread(p, t)) {
		starvation_watch(now);
		dsq_insert(p, SCX_DSQ_LOCAL, task_run_ns(t), 0);
		return;
	}
	soon = other <= PLACE_SOON && other > PLACE_LATER;
	enqueue_wait(p, t, cpu, flags, soon, now);
	if (other <= PLACE_SOON)
		resched_timer_set(t->runqueue, place_cpu(other),
				  soon ? RESCHED_SOON : RESCHED_AT_END, now);
	if (config.cpus > 1) {
		other = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
		if (other >= 0)
			scx_bpf_kick_cpu(other, CONST(scx_kick_flags, SCX_KICK_IDLE));
		else if (is_back)
			place_again(p, t);
	}
}

/* Arguments: struct task_struct *p, u64 enq_flags */
OPS(enqueue)
int enqueue(u64 *ctx)
{
	struct task_struct *p = (struct task_struct *)ctx[0];
	struct task_ctx *t = task_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	struct ext_cpu *c = cpu_at(cpu);

	if (cpu_is_offline(bpf_get_smp_processor_id())) {
		dsq_insert(p, SCX_DSQ_LOCAL, config.slice_ns, ctx[1]);
		return 0;
	}
	if (!t)
		t = task_make(p);
	if (!t || !c) {
		if (c)
			c->no_context++;
		else
			ext_missing(TABLE_CPUS, cpu);
		dsq_insert(p, SCX_DSQ_GLOBAL, config.slice_ns, ctx[1]);
		return 0;
	}
	if (!task_on_rq(t))
		activate(p, t, cpu, 0);
	else
		task_refresh(p, t, cpu);
	if (ctx[1] & CONST(scx_enq_flags, SCX_ENQ_WAKEUP) || t->flags & TASK_NEW)
		account_woken(t, t->since_ns);
	if (t->llc != c->llc)
		task_migrate(t, c->llc, t->kind);
	enqueue_task(p, t, cpu, ctx[1]);
	return 0;
}

/* Arguments: s32 cpu, struct task_struct *prev */
OPS(dispatch)
int dispatch(u64 *ctx)
{
	s32 cpu = (s32)ctx[0];
	struct task_struct *prev = (struct task_struct *)ctx[1];
	struct ext_cpu *c = cpu_at(cpu);
	struct task_ctx *t = NULL;
	u64 now = now_ns();

	if (!c)
		return ext_missing(TABLE_CPUS, cpu);
	c->served = 0; /* what the server was given last has not begun to run */
	if (prev && (prev->scx.flags & CONST(scx_ent_flags, SCX_TASK_QUEUED)))
		t = task_of(prev);
	if (t && task_on_rq(t)) {
		charge(prev, t, cpu, c, now, true);
		min_runtime_stop(t, cpu);
		task_requeue(t, now, true);
		task_refresh(prev, t, cpu);
		if (t->caps[0])
			caps_apply(t, cap_exempt(prev), now);
		side_cpu_runs(cpu, t->kind, now);
	} else {
		t = NULL;
		prev = NULL;
	}
	/* A stretch that side work has at main's cost comes before main. */
	if (!(side_comes_first(cpu) && dispatch_kind(cpu, prev, t, EXT_SIDE, now)) &&
	    !dispatch_kind(cpu, prev, t, EXT_MAIN, now) &&
	    !(side_cpu_take(cpu) && dispatch_kind(cpu, prev, t, EXT_SIDE, now)) &&
	    !dispatch_kind(cpu, prev, t, EXT_BACKGROUND, now) &&
	    !dl_server_serve(prev, t, cpu, c, now))
		side_cpu_release(cpu);
	return 0;
}

/* Arguments: struct task_struct *p */
OPS(running)
int running(u64 *ctx)
{
	struct task_struct *p = (struct task_struct *)ctx[0];
	struct task_ctx *t = task_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	struct ext_cpu *c = cpu_at(cpu);
	u64 now;

	if (!t || !c)
		return 0;
	/* An idle CPU took it at once, or it was throttled in the moment in which another CPU took
	 * it. */
	if (!task_on_rq(t))
		activate(p, t, cpu, ACTIVATE_RUNS);
	if (t->llc != c->llc)
		task_migrate(t, c->llc, t->kind);
	t->flags &= ~(TASK_PREEMPTED | TASK_SHARES_CORE | TASK_NEW | TASK_IDLE_CPU | TASK_SYNC);
	now = now_ns();
	t->since_ns = limits_used || caps_on ? cpu_charge_from(c, now) : now;
	in_kernel_learn(p, t, now);
	account_starts(t, now);
	c->began_ns = now;
	c->clock_ns = limits_used ? p->se.exec_start : 0;
	c->runs++;
	cpu_publish(t, c, now);
	resched_timer_run(t, cpu, now);
	side_cpu_runs(cpu, t->kind, now);
	dl_server_start(t, c);
	min_runtime_start(t, cpu, now);
	if (limits_used)
		limit_start(p, t, cpu, now);
	if (t->caps[0])
		caps_start(p, t, cpu, now);
	if (t->kind != EXT_MAIN)
		pick_main_again(cpu, now);
	return 0;
}

/* Arguments: struct task_struct *p, bool runnable */
OPS(stopping)
int stopping(u64 *ctx)
{
	struct task_struct *p = (struct task_struct *)ctx[0];
	struct task_ctx *t = task_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	struct ext_cpu *c = cpu_at(cpu);
	u64 now = now_ns();

	if (!t || !c)
		return 0;
	c->state = 0;
	if (limits_used || caps_on)
		cpu_switch_begins(c, now, (bool)ctx[1] && p->scx.slice);
	cpu_time_set_kind(cpu, EXT_MAIN, now);
	charge(p, t, cpu, c, now, false);
	if (t->min_runtime_ns || t->limit || t->caps[0]) {
		t->min_runtime_ns = 0;
		slice_timer_clear(cpu);
	}
	if ((bool)ctx[1]) {
		/* Also one that was throttled while it ran: it may be unable to migrate. */
		t->flags |= TASK_PREEMPTED;
		if (task_on_rq(t))
			task_requeue(t, now, false);
		/*
		 * With a slice left a higher class takes the CPU, and the kernel would leave the
		 * task in the CPU's own queue. 6.18 keeps it there also when `cpu_release` empties
		 * that: the task that a BPF program interrupts may not migrate meanwhile. It would
		 * wait beside an idle CPU, and go on before all others with the kernel's slice of
		 * 20 ms.
		 */
		set_slice(p, 0);
	}
	return 0;
}

/*
 * Arguments: struct task_struct *p. A task that was left alone because it had only begun is looked
 * at again; its slice ends by itself.
 */
OPS(tick)
int tick(u64 *ctx)
{
	struct task_struct *p = (struct task_struct *)ctx[0];
	s32 cpu = scx_bpf_task_cpu(p);
	struct ext_cpu *c = cpu_at(cpu);
	struct first first;

	if (!c || !(c->state & EXT_CPU_RUNS) || side_is_forced(cpu))
		return 0;
	first = pick_head(cpu, c, EXT_MAIN);
	if (!first.deadline)
		return 0;
	if (c->kind != EXT_MAIN ||
	    (tg_latency_before(first.deadline, c->deadline) &&
	     now_ns() - c->began_ns >= tg_runqueue_undisturbed_ns(c->slice_ns)))
		set_slice(p, 0);
	return 0;
}

/*
 * Arguments: s32 cpu, bool idle. A CPU that queued a task before this one was seen to be idle has
 * not woken it: either that CPU sees this one idle, or this one sees the task (marked idle first,
 * from 6.14). Nor does the kernel when it queues without asking us (cpuhp/1 waited for 36 s).
 */
OPS(update_idle)
int update_idle(u64 *ctx)
{
	s32 cpu = (s32)ctx[0];
	struct ext_cpu *c = cpu_at(cpu);

	if ((bool)ctx[1] && scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu) > 0)
		scx_bpf_kick_cpu(cpu, 0);
	cpu_time_set_idle(cpu, (bool)ctx[1]);
	if (!c || !(bool)ctx[1] || cpu_is_offline(cpu))
		return 0;
	side_cpu_release(cpu);
	if (c->limit)
		limit_idle(cpu, c);
	if (caps_on)
		caps_switch_away(c, now_ns());
	if (config.cpus == 1)
		return 0;
	for (u32 kind = 0; kind < EXT_KINDS; kind++) {
		/* What was not within reach is, once those before it are put away. */
		if (kind != EXT_SIDE && (pick_head(cpu, c, kind).deadline || c->hidden_dsq)) {
			scx_bpf_kick_cpu(cpu, 0);
			break;
		}
	}
	return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops tidegate = {
    .select_cpu = select_cpu,
    .enqueue = enqueue,
    .dispatch = dispatch,
    .tick = tick,
    .running = running,
    .stopping = stopping,
    .quiescent = quiescent,
    .update_idle = update_idle,
    .init_task = init_task,
    .exit_task = exit_task,
    .enable = enable,
    .cgroup_init = cgroup_init,
    .cgroup_exit = cgroup_exit,
    .cgroup_move = cgroup_move,
    .cgroup_set_weight = cgroup_set_weight,
    .cgroup_set_bandwidth = cgroup_set_bandwidth,
    .cgroup_set_idle = cgroup_set_idle,
    .cpu_online = cpu_online,
    .cpu_offline = cpu_offline,
    .cpu_release = cpu_release,
    .init = init,
    .exit = ops_exit,
    .dump = dump,
    .dump_cpu = dump_cpu,
    .dump_task = dump_task,
    .flags = SCX_OPS_KEEP_BUILTIN_IDLE | SCX_OPS_ENQ_LAST,
    .timeout_ms = 30000,
    .exit_dump_len = EXT_DUMP_MAX,
    .name = "tidegate",
};

char LICENSE[] SEC("license") = "Dual BSD/GPL";
