/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Held: tasks that a bucket keeps from running, or in the background, and the timer that lets go.
 *
 * A cache has one queue of parked tasks, in the order of the time at which their buckets will hold
 * something for them, and one timer, set for the first. It also looks after those in the background
 * that wait for a CPU, by going through their line's queues when the first of them is due. What it
 * finds decides, not what was expected: it is looked at again every HOLD_LOOK_NS, as terms change,
 * debts are paid by others, and tasks are killed.
 */
#ifndef TIDEGATE_EXT_HOLD_H
#define TIDEGATE_EXT_HOLD_H

#include "limit.h"

/* Nobody is held for longer without a look. */
#define HOLD_LOOK_NS 500000000ULL
/* A task that was just parked is in its queue by then. */
#define HOLD_SOON_NS 5000ULL
/* Parked tasks and background ones that are looked at at once, and when it goes on. */
#define HOLD_BATCH 64
#define HOLD_BACK_BATCH 256
/* Of those whose time has not come so many are looked at. */
#define HOLD_LATER 32
#define HOLD_AGAIN_NS 100000ULL
/* After this many looks in vain, this far apart, nobody is held. */
#define HOLD_CALM 10
#define HOLD_CALM_NS 10000000ULL
#define HOLD_LOST_NS 2000000000ULL

struct hold {
	struct bpf_timer timer;
	u64 armed_ns; /* when it is due; 0: it is not set */
	u64 back_ns;  /* when the first of those in the background is due */
	u32 calm;
	u32 asks; /* how often it was asked for a look, .. */
	u32 seen; /* .. and when it last rang */
	u32 unused;
};

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1); /* the loader: the number of caches */
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct hold);
} holds SEC(".maps");

INLINE struct hold *hold_at(u32 llc)
{
	return bpf_map_lookup_elem(&holds, &llc);
}

int hold_arm(u32 llc, u64 at_ns, u64 now)
{
	struct hold *h = hold_at(llc);

	if (!h)
		return 0;
	patience_asked(now);
	h->calm = 0;
	__sync_fetch_and_add(&h->asks, 1);
	alarm_soonest(&h->timer, &h->armed_ns, tg_max(at_ns, now + HOLD_SOON_NS), now,
		      HOLD_LOST_NS);
	return 0;
}

u32 hold_worst(struct task_ctx *t NONNULL, u64 now)
{
	u32 worst = TG_CAP_RUN, state;

	for (int i = 0; i < EXT_CAPS_EACH; i++) {
		if (!t->caps[i])
			break;
		state = slot_state(t->caps[i], now);
		if (state > worst) {
			worst = state;
			t->holder = t->caps[i];
		}
	}
	return worst;
}

/* One that was preempted as a reader of RCU goes on, a little at a time, or the machine's grace
 * periods stand. */
INLINE bool hold_exempt(struct task_struct *p)
{
	return park_exempt(p) || park_reads(p);
}

/* What a task's buckets let it do: the strictest, and whose it is. */
INLINE u32 hold_state(struct task_struct *p, struct task_ctx *t, u64 now)
{
	return t->floor || hold_exempt(p) ? TG_CAP_RUN : hold_worst(t, now);
}

/* When to look at a held task next. */
INLINE u64 hold_look_ns(struct task_ctx *t, u64 now)
{
	return tg_max(tg_min(t->ready_ns, now + HOLD_LOOK_NS), 1);
}

/*
 * A task's booking changes hands as one word: two CPUs may look at the same waiting task at once,
 * and each takes out of the slot what it has found here. Else what both had put in would stay there
 * for good, and those that wait for the slot be let go later each time.
 */
INLINE void hold_books(struct task_ctx *t, u64 booking)
{
	u64 before = __sync_lock_test_and_set(&t->booked, booking);

	if (before)
		slot_unbook((u32)(before >> 32), (u32)before);
}

/* What it has booked is used, or not wanted any more. */
INLINE void hold_unbook(struct task_ctx *t)
{
	if (t->booked)
		hold_books(t, 0);
}

/* It is parked by its holder: when will that have something for it? */
int hold_book(struct task_ctx *t NONNULL)
{
	u32 holder = t->holder;
	struct slot *s = slot_at(holder), *f = s ? slot_at(s->family) : NULL;
	u64 want_ns;

	if (!s || !f)
		return 0;
	if (t->booked)
		hold_books(t, 0);
	else
		__sync_fetch_and_add(&f->parks, 1);
	want_ns = slot_want_ns(&s->cap.hard);
	t->ready_ns = slot_ready_ns(holder, want_ns);
	hold_books(t, (u64)holder << 32 | want_ns);
	return 0;
}

/* It waits in the background: the timer is to look no later than its holder lets it go. */
int hold_call_back(struct task_ctx *t NONNULL, u64 now)
{
	struct hold *h = hold_at(t->llc);
	u64 at_ns;

	t->ready_ns = slot_ready_ns(t->holder, 0);
	at_ns = hold_look_ns(t, now);
	if (!h)
		return 0;
	if (!h->back_ns || at_ns < h->back_ns)
		h->back_ns = at_ns;
	return hold_arm(t->llc, at_ns, now);
}

/* From `dispatch`: parks one that waits in the queue that `it` goes through. One that waits there
 * no more has begun to run, or is gone: what it was to use is booked for nobody. */
INLINE void hold_waiting(struct bpf_iter_scx_dsq *it, struct task_struct *p, struct task_ctx *t,
			 u64 now)
{
	u64 at_ns;

	hold_book(t);
	at_ns = hold_look_ns(t, now);
	if (park_leave(t) && dsq_move_vtime(it, p, dsq_held(t->llc), at_ns))
		hold_arm(t->llc, at_ns, now);
	else
		hold_unbook(t);
}

/* One that waits becomes another kind of work. Global, so that the verifier walks it once. False:
 * it does not wait any more. */
u32 hold_turn(struct task_ctx *t NONNULL, u32 kind, u64 now)
{
	u32 line = t->line, next = line_index(t->llc, kind);
	struct line *from = line_at(line), *to = line_at(next);

	if (!from || !to || !line_leave(from, t, line, PLACE_PARKED, now))
		return false;
	t->kind = kind;
	t->line = next;
	if (!line_join(to, t, t->flat, true, now))
		return false;
	if (kind == EXT_BACKGROUND)
		hold_call_back(t, now);
	return true;
}

/* From `dispatch` or the timer: moves one that waits into the line of another kind of work. */
INLINE bool hold_shift(struct bpf_iter_scx_dsq *it, struct task_struct *p, struct task_ctx *t,
		       u32 kind, u64 now)
{
	return hold_turn(t, kind, now) &&
	       dsq_move_vtime(it, p, door_queue(p, t, scx_bpf_task_cpu(p)), t->deadline);
}

INLINE void hold_counts_parked(struct task_ctx *t, u64 now)
{
	struct slot *s = slot_at(t->holder), *f = s ? slot_at(s->family) : NULL;

	if (f)
		__sync_fetch_and_add(&f->parked_ns, tg_sub0(now, t->since_ns));
}

INLINE void hold_let_go(struct bpf_iter_scx_dsq *it, struct task_struct *p, struct task_ctx *t,
			u64 now)
{
	hold_counts_parked(t, now);
	park_let_go(it, p, t, now);
}

/* Whether a bucket's rate pays for one more visit. Global, so that the verifier walks it once. */
u32 hold_graces(u32 holder, u64 now)
{
	struct slot *s = slot_at(holder);

	return s && grace_paid(&s->graced_ns, s->cap.hard.rate_ppt, now);
}

INLINE void hold_counts_visit(struct task_ctx *t)
{
	struct slot *s = slot_at(t->holder), *f = s ? slot_at(s->family) : NULL;

	if (f)
		__sync_fetch_and_add(&f->visits, 1);
}

/* Whoever has not run for so long that the kernel's watchdog would end it all is visited. */
INLINE bool hold_visit(struct task_ctx *t, u64 now)
{
	if (!park_due(t, now))
		return false;
	t->floor = PARK_VISIT_NS;
	hold_counts_visit(t);
	return true;
}

/* Those whose time has come. Returns when the next one's does; 0: nobody is parked. */
u64 hold_release(u32 llc, u64 now)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	struct task_ctx *t;
	u64 next_ns = 0;
	u32 look;

	EXT_RCU;
	if (!scx_bpf_dsq_nr_queued(dsq_held(llc)))
		return 0;
	if (!bpf_iter_scx_dsq_new(&it, dsq_held(llc), 0)) {
		EXT_FOR(look, HOLD_BATCH)
		{
			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			next_ns = p->scx.dsq_vtime;
			if (next_ns > now)
				break;
			next_ns = now;
			t = task_of(p);
			if (!t)
				continue;
			if (hold_visit(t, now) || hold_state(p, t, now) != TG_CAP_PARKED) {
				if (!t->floor && grace_inside(p, t, GRACE_OWED_NS, now) &&
				    hold_graces(t->holder, now))
					t->floor = GRACE_NS;
				hold_let_go(&it, p, t, now);
				continue;
			}
			if (t->ready_ns <= now)
				hold_book(t);
			if (!dsq_move_vtime(&it, p, dsq_held(llc), hold_look_ns(t, now)))
				hold_unbook(t);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return next_ns <= now ? now + HOLD_AGAIN_NS : next_ns;
}

/* Those whose time has not come: the first for whom his bucket has enough to spare is let go.
 * Returns when the next one may be. */
u64 hold_spare(u32 llc, u64 now)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	struct task_ctx *t;
	struct slot *s;
	u64 next_ns = TG_CAP_NEVER, at_ns;
	u32 look, last = 0;

	EXT_RCU;
	if (!bpf_iter_scx_dsq_new(&it, dsq_held(llc), 0)) {
		EXT_FOR(look, HOLD_LATER)
		{
			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			t = task_of(p);
			if (!t || p->scx.dsq_vtime <= now || t->holder == last)
				continue;
			last = t->holder;
			at_ns = slot_spare_ns(t->holder, now);
			if (at_ns > now) {
				next_ns = tg_min(next_ns, at_ns);
				continue;
			}
			s = slot_at(t->holder);
			if (s)
				s->spared_ns = now;
			hold_let_go(&it, p, t, now);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return next_ns;
}

/* Those in a queue of the background whose buckets hold something. Returns when the next one's may.
 */
u64 hold_recall(u64 dsq, u64 now)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	struct task_ctx *t;
	u32 look;
	s32 cpu;
	u64 next_ns = ~0ULL;

	EXT_RCU;
	if (!scx_bpf_dsq_nr_queued(dsq))
		return next_ns;
	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		EXT_FOR(look, HOLD_BACK_BATCH)
		{
			p = bpf_iter_scx_dsq_next(&it);
			if (!p)
				break;
			t = task_of(p);
			if (!t)
				continue;
			next_ns = tg_min(next_ns, now + HOLD_LOOK_NS);
			if (t->ready_ns > now && !park_due(t, now)) {
				next_ns = tg_min(next_ns, t->ready_ns);
				continue;
			}
			if (!hold_visit(t, now) && hold_state(p, t, now) != TG_CAP_RUN) {
				t->ready_ns = slot_ready_ns(t->holder, 0);
				next_ns = tg_min(next_ns, tg_max(t->ready_ns, now + HOLD_AGAIN_NS));
				continue;
			}
			cpu = scx_bpf_task_cpu(p);
			if (hold_shift(&it, p, t, EXT_MAIN, now))
				park_call(p, t, cpu, now);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return next_ns;
}

/* The timer. It stops once it has found nobody for a while. */
static int hold_rings(void *map, u32 *llc, struct hold *h)
{
	u32 at = *llc, line = line_index(at, EXT_BACKGROUND), calm = h->calm, queue;
	u64 now = now_ns(), next_ns, back_ns = h->back_ns;
	bool fresh;

	/* Whoever parks asks first and then sees whether the timer is set: one that finds it still
	 * set is seen here, though its task may not be in the queue yet. */
	__sync_lock_test_and_set(&h->armed_ns, 0ULL);
	fresh = *(volatile u32 *)&h->asks != h->seen;
	h->seen = *(volatile u32 *)&h->asks;
	next_ns = hold_release(at, now);
	if (next_ns)
		next_ns = tg_min(next_ns, hold_spare(at, now));
	if (!back_ns || back_ns <= now) {
		h->back_ns = 0;
		EXT_FOR(queue, 2)
		{
			back_ns = hold_recall(queue ? dsq_narrow(line) : dsq_wide(line), now);
			if (back_ns != ~0ULL && (!h->back_ns || back_ns < h->back_ns))
				h->back_ns = back_ns;
		}
	}
	back_ns = h->back_ns;
	if (!next_ns || (back_ns && back_ns < next_ns))
		next_ns = back_ns;
	if (fresh && next_ns)
		next_ns = tg_min(next_ns, now + HOLD_CALM_NS);
	if (!next_ns && !fresh && calm >= HOLD_CALM)
		return 0;
	hold_arm(at, next_ns ? next_ns : now + HOLD_CALM_NS, now);
	h->seen++;
	h->calm = next_ns ? 0 : calm + 1;
	return 0;
}

/* Terms have changed: whoever is held is looked at now. */
INLINE void hold_look_again(void)
{
	u64 now = now_ns();
	u32 llc;

	EXT_FOR(llc, config.llcs)
	{
		hold_arm(llc, now, now);
	}
}

/* Once, from `init` (as alarm_init). */
INLINE s32 hold_init(u32 llc)
{
	struct hold *h = hold_at(llc);
	s32 failed;

	if (!h)
		return 0;
	failed = scx_bpf_create_dsq(dsq_held(llc), -1);
	if (!failed)
		failed = bpf_timer_init(&h->timer, &holds, CLOCK_MONOTONIC);
	return failed ? failed : bpf_timer_set_callback(&h->timer, hold_rings);
}

#endif
