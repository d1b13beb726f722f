/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Caps: which buckets a task draws on, and what they let it do.
 *
 *	gate set, group, fork, death	caps_refresh, caps_inherit, caps_release
 *	enqueue, pick			caps_throttles, caps_throttle_first
 *	start				caps_bound: borrows from each bucket; until that is used (slice_timer.h)
 *	stop				caps_charge: each bucket, which has the rest of its loan back
 *
 * A task is under the caps of its group and of the groups above; the strictest state counts:
 *
 *	TG_CAP_RUN		runs
 *	TG_CAP_BACKGROUND	out of a soft cap: kind EXT_BACKGROUND until the bucket has some
 *	TG_CAP_PARKED		out of a hard cap: throttled (cap_throttle.h)
 *
 * Side work stays side: it comes last anyway, and as background it would escape the allowance.
 */
#ifndef TIDEGATE_EXT_CAPS_H
#define TIDEGATE_EXT_CAPS_H

#include "limits/cap_timer.h"

/* Tasks that a CPU takes out of a queue in one look because they may not run. */
#define CAPS_BATCH 32

/* The task's bucket in a family of scope process: its process' own, made for its first thread. */
u32 caps_process(u32 tgid, u32 family, u64 now)
{
	u64 owner = (u64)tgid << 32 | family;
	u32 *known = bpf_map_lookup_elem(&cap_processes, &owner);
	u32 index = known ? *known : 0, other;

	if (index && bucket_get(index, family, owner))
		return index;
	index = bucket_create(family, owner, now);
	if (!index || !bpf_map_update_elem(&cap_processes, &owner, &index, MAP_NOEXIST))
		return index;
	/* Another of its threads was faster; or what is there is about to go. */
	known = bpf_map_lookup_elem(&cap_processes, &owner);
	other = known ? *known : 0;
	if (other && bucket_get(other, family, owner)) {
		bucket_put(index, now);
		return other;
	}
	bpf_map_update_elem(&cap_processes, &owner, &index, 0);
	return index;
}

/* The task's bucket in a family, which it enters if it is not in it yet. With a full table it
 * shares the family's own, which is the stricter. */
u32 caps_bucket(struct task_ctx *t NONNULL, u32 tgid, u32 family, u64 now)
{
	struct bucket *f = bucket_at(family), *s;
	u32 index = 0;

	if (!f)
		return 0;
	for (int i = 0; i < EXT_CAPS_EACH; i++) {
		s = bucket_at(t->caps[i]);
		if (s && s->family == family && s->cap.scope == f->terms.scope) {
			bucket_sync_terms(t->caps[i], now);
			return t->caps[i];
		}
	}
	if (f->terms.scope == TG_CAP_TASK)
		index = bucket_create(family, 0, now);
	else if (f->terms.scope == TG_CAP_PROCESS)
		index = caps_process(tgid, family, now);
	if (index)
		return index;
	return bucket_get(family, family, f->owner) ? family : 0;
}

/* Puts a task's buckets in order after a change of its group or of caps. */
int caps_refresh(struct task_ctx *t NONNULL, u32 tgid, u32 chain, u64 generation, u64 now)
{
	u32 next[EXT_CAPS_EACH] = {};

	for (int i = 0; i < EXT_CAPS_EACH; i++) {
		struct bucket *f = bucket_at(chain);

		if (!f)
			break;
		next[i] = caps_bucket(t, tgid, chain, now);
		if (!next[i])
			break;
		chain = f->above;
	}
	cap_unreserve(t);
	for (int i = 0; i < EXT_CAPS_EACH; i++) {
		u32 old = t->caps[i];

		if (old && old != next[0] && old != next[1] && old != next[2] && old != next[3])
			bucket_put(old, now);
	}
	for (int i = 0; i < EXT_CAPS_EACH; i++)
		t->caps[i] = next[i];
	t->caps_generation = generation;
	return 0;
}

/* Before it begins to compete, and when its CPU looks again: it has no loans. */
INLINE void caps_update(struct task_struct *p, struct task_ctx *t, u64 now)
{
	struct ext_control *shared = ext_shared();
	struct group *g;
	u64 generation;

	if (!shared || t->caps_generation == shared->gates_generation)
		return;
	generation = shared->gates_generation;
	group_limit(t->group, t->group_id);
	g = group_at(t->group);
	caps_refresh(t, p->tgid, g && !(p->flags & PF_KTHREAD) ? g->capped : 0, generation, now);
}

/* A child: the same families, by law/cap.h's rules of inheritance. */
int caps_fork(struct task_ctx *t NONNULL, struct task_ctx *from NONNULL, u32 tgid, u64 now)
{
	for (int i = 0; i < EXT_CAPS_EACH; i++) {
		u32 index = from->caps[i];
		struct bucket *s = bucket_at(index);
		u64 owner;

		if (!s)
			break;
		owner = s->cap.scope == TG_CAP_PROCESS ? (u64)tgid << 32 | s->family : 0;
		if (index == s->family || (owner && owner == s->owner)) {
			t->caps[i] = bucket_get(index, s->family, s->owner) ? index : 0;
			continue;
		}
		index = bucket_fork(index, owner, now);
		t->caps[i] = index;
		if (index && owner)
			bpf_map_update_elem(&cap_processes, &owner, &index, 0);
	}
	return 0;
}

INLINE void caps_inherit(struct task_struct *p, struct task_ctx *t)
{
	struct task_struct *parent = bpf_get_current_task_btf();
	struct task_ctx *from = task_of(parent);

	/* A child that came into this class later may have buckets of its own by now. */
	if (from && (u32)parent->pid == t->forked_by && !t->caps[0])
		caps_fork(t, from, p->tgid, now_ns());
}

/* It is dead, and leaves what it owes. */
int caps_release(struct task_ctx *t NONNULL)
{
	u64 now = now_ns();

	cap_unreserve(t);
	for (int i = 0; i < EXT_CAPS_EACH; i++) {
		if (t->caps[i])
			bucket_put(t->caps[i], now);
		t->caps[i] = 0;
	}
	return 0;
}

/* `quiescent` */
INLINE void caps_quiescent(struct task_struct *p, struct task_ctx *t)
{
	cap_unreserve(t);
	if (p->__state & TASK_DEAD)
		caps_release(t);
}

/* What a member may do now. Throttled: it is denied; else it enters or leaves the background. */
u32 caps_apply(struct task_ctx *t NONNULL, bool exempt, u64 now)
{
	u32 state = t->min_runtime_ns || exempt ? TG_CAP_RUN : cap_worst(t, now);
	u32 kind = state == TG_CAP_BACKGROUND ? EXT_BACKGROUND : EXT_MAIN;

	if (state == TG_CAP_PARKED)
		t->flags |= TASK_DENIED;
	else if (t->kind != EXT_SIDE && t->kind != kind)
		task_migrate(t, t->llc, kind);
	return state;
}

/*
 * `enqueue_task`: throttles a task that may not run. One that its CPU has just denied is throttled
 * even if its bucket has got a few ns since: the CPU is on its way to others, or to idle. True: it
 * is throttled.
 */
static __attribute__((noinline)) bool caps_throttles(struct task_struct *p, struct task_ctx *t)
{
	u64 now = now_ns(), at_ns;
	u32 state = TG_CAP_PARKED;
	bool exempt = cap_exempt(p);

	if (exempt || !(t->flags & TASK_DENIED))
		state = caps_apply(t, exempt, now);
	t->flags &= ~TASK_DENIED;
	if (state != TG_CAP_PARKED) {
		if (t->kind == EXT_BACKGROUND)
			cap_background_wait(t, now);
		return false;
	}
	cap_reserve(t);
	throttle_deactivate(t);
	at_ns = cap_recheck_ns(t, now);
	dsq_insert_vtime(p, dsq_cap_throttled(t->llc), config.slice_ns, at_ns, 0);
	cap_timer_arm(t->llc, at_ns, now);
	return true;
}

/*
 * `dispatch_kind`: takes the first tasks of a queue out as long as they may not start as what they
 * are; true: there was one.
 */
u32 caps_throttle_first(u64 dsq, u32 cpu, u32 kind, u64 now)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	struct task_ctx *t;
	bool sifted = false;
	u32 look, state;

	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		EXT_FOR(look, CAPS_BATCH)
		{
			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
				continue;
			t = task_of(p);
			if (!t || !t->caps[0])
				break;
			state = cap_state(p, t, now);
			if (state == TG_CAP_RUN || (state == TG_CAP_BACKGROUND && kind != EXT_MAIN))
				break;
			if (state == TG_CAP_PARKED)
				cap_throttle_queued(&it, p, t, now);
			else
				task_move_kind(&it, p, t, EXT_BACKGROUND, now);
			sifted = true;
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return sifted;
}

/* Borrows from a task's buckets; how long they let it run. */
u64 caps_lend(struct task_ctx *t NONNULL, u64 now)
{
	u64 left_ns = ~0ULL;

	for (int i = 0; i < EXT_CAPS_EACH; i++) {
		if (t->caps[i])
			left_ns = tg_min(left_ns, bucket_lend(t->caps[i], &t->loans[i], now,
							      t->kind != EXT_MAIN));
	}
	return left_ns;
}

/* How long a task may run that starts, or goes on, on this CPU; sets its slice timer. One that
 * reads under RCU goes on a least run at a time. */
u64 caps_bound(struct task_ctx *t NONNULL, bool exempt, bool reads, u32 cpu, u64 now)
{
	u64 left_ns = ~0ULL;

	if (t->flags & TASK_DENIED)
		return 0;
	if (t->min_runtime_ns)
		left_ns = t->min_runtime_ns;
	else if (!exempt)
		left_ns = caps_lend(t, now);
	if (reads)
		left_ns = tg_max(left_ns, MIN_RUNTIME_NS);
	/* Not the slice: that ends at a tick, which may be later than the loan's end. */
	if (left_ns != ~0ULL)
		slice_timer_set(cpu, now + left_ns, now);
	return left_ns;
}

/* `running`: one that may not after all is stopped at once. */
INLINE void caps_start(struct task_struct *p, struct task_ctx *t, u32 cpu, u64 now)
{
	u32 state = cap_state(p, t, now);

	cap_unreserve(t);
	if (state == TG_CAP_PARKED || (state == TG_CAP_BACKGROUND && t->kind == EXT_MAIN))
		slice_timer_set(cpu, now, now);
	else
		caps_bound(t, group_exempt(p), task_reads_rcu(p), cpu, now);
}

/* It ran; whether as something that yields, the CPU knows, for it may have turned since. */
int caps_charge(struct task_ctx *t NONNULL, u64 ran_ns, u64 now, bool background)
{
	for (int i = 0; i < EXT_CAPS_EACH; i++) {
		if (t->caps[i])
			bucket_charge(t->caps[i], &t->loans[i], ran_ns, now, background);
	}
	return 0;
}

/*
 * `update_idle`, `cpu_release`: the switch to idle, or to another class at the end of a slice, is
 * charged to the task that it leads away from, still the current one (charge.h: that to another
 * task, to the other). A group that a cap stops 500 times a second had 1.3 ms more than it was
 * charged for.
 */
INLINE void caps_switch_away(struct ext_cpu *c, u64 now)
{
	struct task_struct *p = bpf_get_current_task_btf();
	u64 took_ns = tg_sub0(now, c->switch_ns);
	struct task_ctx *t;

	if ((u32)p->pid != c->switch_pid || took_ns > SWITCH_MAX_NS)
		return;
	c->switch_pid = 0;
	t = task_of(p);
	if (t && t->caps[0])
		caps_charge(t, took_ns, now, t->kind != EXT_MAIN);
}

#endif
