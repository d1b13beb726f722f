/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The door: tasks come to compete, wait, run, stop and go.
 *
 *	away --join--> member: waiting <--> running --leave--> away
 *
 * Between runnable and quiescent a task is a member of one line, the one of its kind in the cache
 *where it was last put. Where it waits is the kernel's queue for that line, by deadline: `wide` for
 *tasks that may run anywhere, `narrow` for those that may not (a CPU may have to pass over some),
 *`pinned` for those of one CPU.
 */
#ifndef TIDEGATE_EXT_DOOR_H
#define TIDEGATE_EXT_DOOR_H

#include "account.h"
#include "group.h"
#include "place.h"

/*
 * How many tasks that may not run there a CPU passes over in one look. It sees nobody behind them,
 * so this is more than ever wait for the other CPUs of a cache.
 */
#define DOOR_LOOKS 4096
#define DOOR_LLCS_MAX 64
/* Between two looks at whether another cache has more work waiting. */
#define DOOR_BALANCE_NS 4000000

INLINE u32 line_index(u32 llc, u32 kind)
{
	return llc * EXT_KINDS + kind;
}

/* Begins to compete on a CPU's cache. */
INLINE void door_join(struct task_struct *p, struct task_ctx *t, s32 cpu)
{
	struct ext_cpu *c = cpu_at(cpu);
	struct line *l;
	u64 now = now_ns();

	group_describe(p, t);
	t->slice_ns = config.slice_ns;
	t->llc = c ? c->llc : 0;
	t->line = line_index(t->llc, t->kind);
	l = line_at(t->line);
	tree_activate(t);
	/* One that is only put anew (another CPU, nice level, group) has waited since before, and
	 * by the watchdog's clock, too. */
	if (!t->since_ns)
		t->since_ns = now;
	if (l)
		line_join(l, t, tree_flat(t->group, t->weight), false, now);
}

/* No longer competes. */
INLINE void door_leave(struct task_ctx *t)
{
	struct line *l = line_at(t->line);

	if (l)
		line_leave(l, t, t->line, PLACE_AWAY, now_ns());
	tree_deactivate(t);
	group_reap(t->group);
}

/* What is asked of its group may have changed while it competed: then it comes anew. */
static __attribute__((noinline)) int door_renew(struct task_struct *p, struct task_ctx *t, s32 cpu)
{
	if (t->generation == gates_generation())
		return 0;
	if (group_kind(p, t) == t->kind) {
		group_describe(p, t);
		return 0;
	}
	door_leave(t);
	door_join(p, t, cpu);
	return 0;
}

/* Moves a member to another line; what it is behind by, and the rest of its slice, go along. */
int door_bring(struct task_ctx *t NONNULL, u32 llc, u32 kind)
{
	u64 left_ns = line_left_ns(t), now = now_ns();
	struct line *from = line_at(t->line), *to = line_at(line_index(llc, kind));
	bool runs = t->open_ns;

	if (!from || !to || !line_leave(from, t, t->line, PLACE_AWAY, now))
		return 0;
	t->llc = llc;
	t->kind = kind;
	t->line = line_index(llc, kind);
	line_join(to, t, t->flat, false, now);
	if (left_ns) {
		t->end = t->vruntime + virtual_ns(left_ns, t->flat);
		t->deadline = line_deadline(line_v(to), t, task_slice_v(t));
	}
	if (runs)
		line_open(to, t, line_index(llc, kind), now);
	return 0;
}

/* What it may run for when it starts. */
INLINE u64 door_run_ns(struct task_ctx *t)
{
	u64 left_ns = line_left_ns(t);

	return left_ns ? left_ns : t->slice_ns;
}

/* A task ran until now on this CPU. */
INLINE u64 door_charge(struct task_ctx *t, struct ext_cpu *c, u64 now)
{
	u64 ran_ns = tg_sub0(now, t->since_ns);

	t->since_ns = now;
	line_charge(t, ran_ns);
	if (t->kind < EXT_KINDS)
		c->counts.ran_ns[t->kind] += ran_ns;
	account_charge(t, ran_ns);
	return ran_ns;
}

/* A member has used its turn, or is put back before its end: where it stands now. Global, as
 * door_open, so that the verifier walks it once. */
int door_again(struct task_ctx *t NONNULL, u64 now, u32 runs_on)
{
	u32 line = t->line;
	struct line *l = line_at(line);

	if (l)
		line_again(l, t, line, tree_flat(t->group, t->weight), now, runs_on);
	return 0;
}

/* A member begins to run. */
int door_open(struct task_ctx *t NONNULL, u64 now)
{
	u32 line = t->line;
	struct line *l = line_at(line);

	if (l)
		line_open(l, t, line, now);
	return 0;
}

/* A switch that has taken longer than this is none: what came between is nobody's. */
#define DOOR_SWITCH_NS 100000ULL

/* The CPU turns away from the task that the kernel still has as its current one. */
INLINE void door_turns(struct ext_cpu *c, u64 now)
{
	c->turns_ns = now;
	c->turns_pid = bpf_get_current_task_btf()->pid;
}

/*
 * Since when a task is charged that begins to run: the switch from the one before is its own, as it
 * is with the kernel's schedulers, or a group whose tasks fork and exit gets 2 us more than it is
 * charged for at each. After a task of another class, or idle, the current one is not the one that
 * stopped. Only where there are caps or quotas: it takes 80 ns. In crates/sim a switch takes no
 * time.
 */
INLINE u64 door_since(struct ext_cpu *c, u64 now)
{
	u64 took_ns = tg_sub0(now, c->turns_ns);

	if (!c->turns_pid || (u32)bpf_get_current_task_btf()->pid != c->turns_pid)
		return now;
	return took_ns > DOOR_SWITCH_NS ? now : now - took_ns;
}

/* So far may the kernel's clock stay behind: at the end of a run it is read a little before ours.
 */
#define DOOR_BEHIND_NS 1000ULL

/*
 * What quotas are charged for what ran: what the kernel counts for cpu.stat, from when the switch
 * to the task begins, out of idle as well, to when the next one does (without, a group that wakes
 * 2,800 times a second had 10.9 of 10 %). Where its clock stands still it is our own count: 7.3's
 * does for whole runs (it saw 1.7 of 20 %; believed, a cap beside a quota of 10 % made it one of
 * 20).
 */
INLINE u64 door_by_kernel(struct task_struct *p, struct ext_cpu *c, u64 ran_ns)
{
	u64 clock = p->se.exec_start, by_kernel_ns = tg_sub0(clock, c->clock_ns);

	if (!c->clock_ns || by_kernel_ns > ran_ns + DOOR_SWITCH_NS) {
		c->clock_ns = clock;
		return ran_ns;
	}
	if (by_kernel_ns + DOOR_BEHIND_NS < ran_ns)
		by_kernel_ns = ran_ns;
	/* Ahead of a clock that stands: what it then shows at once is not charged again. */
	c->clock_ns += by_kernel_ns;
	return by_kernel_ns;
}

/* The CPU tells others what it runs. */
INLINE void door_show(struct task_ctx *t, struct ext_cpu *c, u64 now)
{
	c->kind = t->kind;
	c->hint = t->hint;
	c->deadline = t->deadline;
	c->vruntime = t->vruntime;
	c->flat = t->flat;
	c->slice_ns = t->slice_ns;
	c->since_ns = now;
	c->called = 0;
	c->state = EXT_CPU_RUNS | (t->flags & TASK_YIELDS ? EXT_CPU_YIELDS : 0);
}

/* The queue of a member. */
INLINE u64 door_queue(struct task_struct *p, struct task_ctx *t, s32 cpu)
{
	if (config.cpus > 1 && p->nr_cpus_allowed == 1 && t->kind != EXT_BACKGROUND)
		return dsq_pinned(cpu, t->kind);
	return (u32)p->nr_cpus_allowed < config.cpus ? dsq_narrow(t->line) : dsq_wide(t->line);
}

/* Brings a place in the order before all that have not won yet; such places keep their own order.
 */
#define DOOR_FRONT (1ULL << 44)

/* ---- the timer that sees to those who wait for long (patience.h), and to other timers (lost.h):
 * on while there are any ---- */

struct patience {
	struct bpf_timer timer;
	u32 looks;
	u32 calm; /* looks in a row at which nobody waited, and no timer was set */
};

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct patience);
} patiences SEC(".maps");

u32 patience_on;
u64 patience_due_ns; /* its next look */

#define PATIENCE_LOOK_NS 500000000ULL
/* A timer this late is lost. */
#define PATIENCE_LOST_NS 2000000000ULL

INLINE bool patience_stands(u64 now)
{
	return patience_on && patience_due_ns + PATIENCE_LOST_NS > now;
}

int patience_start(u64 now)
{
	u32 zero = 0;
	struct patience *w = bpf_map_lookup_elem(&patiences, &zero);

	if (!w || (__sync_val_compare_and_swap(&patience_on, 0, 1) && patience_stands(now)))
		return 0;
	patience_due_ns = now + PATIENCE_LOOK_NS;
	if (bpf_timer_start(&w->timer, PATIENCE_LOOK_NS, 0))
		patience_on = 0;
	return 0;
}

/* Somebody waits, or a timer is set that somebody waits for (lost.h). */
INLINE void patience_asked(u64 now)
{
	if (!patience_stands(now))
		patience_start(now);
}

/*
 * Puts a member into its queue; at the front, if it has won against who runs and only waits for
 * him to have his quarter.
 */
INLINE void door_wait(struct task_struct *p, struct task_ctx *t, s32 cpu, u64 flags, bool front,
		      u64 now)
{
	dsq_insert_vtime(p, door_queue(p, t, cpu), door_run_ns(t),
			 front ? t->deadline - DOOR_FRONT : t->deadline, flags);
	patience_asked(now);
}

/* The deadline of the first in a queue that may run on a CPU; 0: there is none. Global, as
 * door_steal, so that the verifier walks it once and not for every way that leads there. */
u64 door_first(u64 dsq, s32 cpu)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	u64 deadline = 0;
	u32 look;

	EXT_RCU;
	if (scx_bpf_dsq_peek) {
		p = scx_bpf_dsq_peek(dsq);
		if (!p)
			return 0;
		if (bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			return p->scx.dsq_vtime;
	} else if (!scx_bpf_dsq_nr_queued(dsq)) {
		return 0;
	}
	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		EXT_FOR(look, DOOR_LOOKS)
		{
			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			if (bpf_cpumask_test_cpu(cpu, p->cpus_ptr)) {
				deadline = p->scx.dsq_vtime;
				break;
			}
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return deadline;
}

struct first {
	u64 dsq;
	u64 deadline; /* 0: nobody waits */
};

INLINE void door_earlier(struct first *first, u64 dsq, s32 cpu)
{
	u64 deadline = door_first(dsq, cpu);

	if (deadline && (!first->deadline || tg_latency_before(deadline, first->deadline))) {
		first->deadline = deadline;
		first->dsq = dsq;
	}
}

/* Of those that wait for a CPU in its own cache, who is first? */
INLINE struct first door_head(s32 cpu, struct ext_cpu *c, u32 kind)
{
	struct first first = {};
	u32 line = line_index(c->llc, kind);

	if (config.cpus > 1) {
		door_earlier(&first, dsq_pinned(cpu, kind), cpu);
		door_earlier(&first, dsq_narrow(line), cpu);
	}
	door_earlier(&first, dsq_wide(line), cpu);
	return first;
}

/* Now and then a CPU pulls a waiting task of main's from the cache that has most to do, if that
 * evens the weights out. */
int door_balance(u32 home, u64 now)
{
	struct line *own = line_at(line_index(home, EXT_MAIN)), *busiest;
	u64 most = 0;
	u32 step, from = 0, line;

	if (!own || now < own->balance_ns)
		return 0;
	own->balance_ns = now + DOOR_BALANCE_NS;
	EXT_FOR(step, config.llcs)
	{
		struct line *l = line_at(line_index(step, EXT_MAIN));
		u64 weights = l ? l->weights : 0;

		from = tg_if_less(most, weights, step, from);
		most = tg_max(most, weights);
	}
	line = line_index(from, EXT_MAIN);
	busiest = line_at(line);
	if (!busiest || from == home || !busiest->members)
		return 0;
	if (own->weights + 2 * (busiest->weights / busiest->members) > busiest->weights)
		return 0;
	/* Those that may not run anywhere may yet run here. */
	return dsq_move_to_local(dsq_wide(line)) || dsq_move_to_local(dsq_narrow(line));
}

/* Takes a task of a kind out of another cache's queues. */
u32 door_steal(u32 home, u32 kind)
{
	u32 step;

	EXT_FOR(step, config.llcs - 1)
	{
		u32 line = line_index((home + 1 + step) % config.llcs, kind);

		if (scx_bpf_dsq_nr_queued(dsq_wide(line)) && dsq_move_to_local(dsq_wide(line)))
			return true;
		if (scx_bpf_dsq_nr_queued(dsq_narrow(line)) && dsq_move_to_local(dsq_narrow(line)))
			return true;
	}
	return false;
}

#endif
