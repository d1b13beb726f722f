/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A line: the tasks of one kind that wait in one cache, and those of them that run, in virtual
 * time.
 *
 * Order is the virtual deadline, vruntime + slice / weight, moved by the hint (law/latency.h). V,
 * the mean of the members' vruntime by weight, is what a fair scheduler would have given each; lag
 * is how far a task is behind it, and is bounded by one slice. A hint that brings a deadline
 * forward is used only by a task that is not ahead of V by more than a quarter of its slice: it
 * says when CPU time comes, not how much. (EEVDF asks at each pick whether a task is eligible; a
 * queue of the kernel's orders once, when a task is put in, and a wakeup that found itself ahead by
 * a microsecond would wait a whole round.) crates/sim/src/sched/ext/line.rs is the same in Rust,
 * but for two things that a real machine asks for: what members have run since they were last
 * charged counts in V at once (there a tick is 4 ms, and a wakeup that met an old V would stand
 * behind whoever runs), and a task that left ahead of its share pays by sleeping until V has come
 * to it, and no longer (as EEVDF's delayed dequeue).
 *
 * The mean is kept as a whole number and a remainder, settled at each change, so that products stay
 * small: a weight in a line is a flat one without its last 14 bits, below 2^23; a distance is cut
 * to 2^39 (nine minutes at nice 0): 2^62. CPU time moves the moment by ran * FLAT_ONE / flat *
 * (flat >> 14) = ran << 16, whoever runs: 2^46 << 16 = 2^62.
 */
#ifndef TIDEGATE_EXT_LINE_H
#define TIDEGATE_EXT_LINE_H

#include "tide.h"

#define LINE_BITS 14
#define LINE_FAR ((s64)1 << 39)
/* Virtual time starts here, so that a lag or an offset before the start has room. */
#define LINE_START (1ULL << 50)

INLINE u64 line_weight(u64 flat)
{
	return flat >> LINE_BITS ? flat >> LINE_BITS : 1;
}

/* Virtual time. Read without the lock it may be a change old. */
INLINE u64 line_v(struct line *l)
{
	return tg_max(*(volatile u64 *)&l->reached, LINE_START);
}

INLINE s64 line_distance(struct line *l, u64 vruntime)
{
	return tg_clamp_s((s64)(vruntime - l->base), -LINE_FAR, LINE_FAR);
}

/* CPU time that running members have had and were not charged for. CPUs' clocks may differ by a
 * hair. */
INLINE u64 line_open_ns(struct line *l, u64 now)
{
	s64 open_ns = (s64)(l->open * now - l->open_since_ns);

	return open_ns < 0 ? 0 : tg_min((u64)open_ns, 1ULL << 46);
}

/*
 * Brings the mean up to now; V never goes back: who had done nothing would be ahead of it all at
 * once. The moment keeps what the mean has not: a remainder, less what the open runs will be
 * charged for.
 */
INLINE void line_settle(struct line *l, u64 now)
{
	if (l->weights) {
		s64 moment = l->moment + (s64)(line_open_ns(l, now) << 16);
		u64 whole = tg_abs(moment) / l->weights;

		if (moment < 0)
			whole = -(whole + 1);
		l->base += whole;
		l->moment -= (s64)(whole * l->weights);
	} else {
		l->moment = 0;
		l->base = line_v(l);
	}
	if (tg_latency_before(line_v(l), l->base))
		l->reached = l->base;
}

INLINE void line_weigh_in(struct line *l, u64 vruntime, u64 flat)
{
	if (!l->weights)
		l->base = vruntime;
	l->members++;
	l->weights += line_weight(flat);
	l->moment += line_distance(l, vruntime) * (s64)line_weight(flat);
}

INLINE void line_weigh_out(struct line *l, u64 vruntime, u64 flat)
{
	l->members--;
	l->weights -= tg_min(line_weight(flat), l->weights);
	l->moment -= line_distance(l, vruntime) * (s64)line_weight(flat);
}

/* The line is told what a member has run, and that it runs no longer. */
INLINE void line_tell(struct line *l, struct task_ctx *t)
{
	l->moment += (s64)(t->uncounted * line_weight(t->flat));
	t->uncounted = 0;
	if (t->open_ns) {
		l->open--;
		l->open_since_ns -= t->open_ns;
		t->open_ns = 0;
	}
}

INLINE void line_reopen(struct line *l, struct task_ctx *t, u64 now)
{
	l->open++;
	l->open_since_ns += now;
	t->open_ns = now;
}

/* Whether it is in this line: another CPU that came across it while it still waited may have taken
 * it out. Under the line's lock. */
INLINE bool line_has(struct task_ctx *t, u32 line)
{
	return t->place == PLACE_MEMBER && t->line == line;
}

/* A member begins to run. */
INLINE void line_open(struct line *l, struct task_ctx *t, u32 line, u64 now)
{
	bpf_spin_lock(&l->lock);
	if (line_has(t, line)) {
		line_tell(l, t);
		line_reopen(l, t, now);
	}
	bpf_spin_unlock(&l->lock);
}

INLINE u64 task_slice_v(struct task_ctx *t)
{
	return virtual_ns(t->slice_ns, t->flat);
}

/* Not ahead of its share by more than a quarter of its slice. */
INLINE bool line_eligible(u64 v, u64 vruntime, u64 slice_v)
{
	return !tg_latency_before(v + slice_v / 4, vruntime);
}

/*
 * The place in the order: the end of the slice, moved by the hint; by its own weight a hint is
 * worth as much in a group as in the root. 2^40 * 2^17 = 2^57.
 */
INLINE u64 line_deadline(u64 v, struct task_ctx *t, u64 slice_v)
{
	s32 hint = t->hint;
	u64 scaled_ns;

	if (!hint)
		return t->end;
	if (hint < 0 && !line_eligible(v, t->vruntime, slice_v))
		return t->end;
	scaled_ns = tg_min(virtual_ns(config.period_ns, t->flat), TG_LATENCY_PERIOD_MAX_NS);
	return tg_latency_deadline(t->end, 0, hint, scaled_ns * t->weight / 1024);
}

/*
 * Where one that comes back stands: as far behind V as it was, or ahead, within a slice; but one
 * that was ahead is so only until V has come to where it left.
 */
INLINE u64 line_place(struct line *l, struct task_ctx *t, u64 slice_v)
{
	s64 most = (s64)tg_min(slice_v, (u64)LINE_FAR);
	u64 v = line_v(l);

	if (t->lag < 0 && t->left_line == t->line && tg_latency_before(t->vruntime, v))
		return v;
	if (t->lag < 0 && t->left_line == t->line)
		return v + (u64)tg_min_s((s64)(t->vruntime - v), most);
	return v - (u64)tg_clamp_s(t->lag, -most, most);
}

/*
 * A task comes to compete, with a new slice. Lag beyond a slice either way is forgotten. False: it
 * is not (any more) where it was to come from.
 */
INLINE bool line_join(struct line *l, struct task_ctx *t, u64 flat, bool from_park, u64 now)
{
	u64 slice_v = virtual_ns(t->slice_ns, flat);
	u32 line = t->line;

	bpf_spin_lock(&l->lock);
	if (from_park ? t->place != PLACE_PARKED : t->place == PLACE_MEMBER) {
		bpf_spin_unlock(&l->lock);
		return false;
	}
	t->place = PLACE_MEMBER;
	t->flat = flat;
	t->uncounted = 0;
	line_settle(l, now);
	t->vruntime = line_place(l, t, slice_v);
	line_weigh_in(l, t->vruntime, flat);
	line_settle(l, now);
	bpf_spin_unlock(&l->lock);
	tide_joins(line);
	t->end = t->vruntime + slice_v;
	t->deadline = line_deadline(line_v(l), t, slice_v);
	return true;
}

/* A member goes; its lag goes with it. False: it is none, or of another line by now. */
INLINE bool line_leave(struct line *l, struct task_ctx *t, u32 line, u32 to, u64 now)
{
	bpf_spin_lock(&l->lock);
	if (!line_has(t, line)) {
		if (to == PLACE_AWAY)
			t->place = PLACE_AWAY;
		bpf_spin_unlock(&l->lock);
		return false;
	}
	t->place = to;
	t->left_line = line;
	line_tell(l, t);
	line_settle(l, now);
	t->lag = (s64)(line_v(l) - t->vruntime);
	line_weigh_out(l, t->vruntime, t->flat);
	line_settle(l, now);
	bpf_spin_unlock(&l->lock);
	tide_leaves(line);
	return true;
}

/* What is left of its slice, in time; the product is the slice times FLAT_ONE at most: 2^57 at 100
 * ms. */
INLINE u64 line_left_ns(struct task_ctx *t)
{
	if (!tg_latency_before(t->vruntime, t->end))
		return 0;
	return (t->end - t->vruntime) * t->flat / FLAT_ONE;
}

/*
 * A member is put back in order: with the rest of its slice or, when that is over, a new one. It
 * never left the competition, so its vruntime stands; what it weighs may have changed, and the rest
 * of a slice is as long as before.
 */
INLINE void line_again(struct line *l, struct task_ctx *t, u32 line, u64 flat, u64 now,
		       bool runs_on)
{
	u64 left_ns = tg_min(line_left_ns(t), t->slice_ns), slice_v;

	bpf_spin_lock(&l->lock);
	if (!line_has(t, line)) {
		bpf_spin_unlock(&l->lock);
		return;
	}
	line_tell(l, t);
	if (runs_on)
		line_reopen(l, t, now);
	if (flat != t->flat) {
		line_weigh_out(l, t->vruntime, t->flat);
		line_weigh_in(l, t->vruntime, flat);
	}
	line_settle(l, now);
	bpf_spin_unlock(&l->lock);
	t->flat = flat;
	slice_v = virtual_ns(t->slice_ns, flat);
	t->end = t->vruntime + (left_ns ? virtual_ns(left_ns, flat) : slice_v);
	t->deadline = line_deadline(line_v(l), t, slice_v);
}

/* A member ran; the line is told at its next change. */
INLINE void line_charge(struct task_ctx *t, u64 ran_ns)
{
	u64 ran_v = virtual_ns(ran_ns, t->flat);

	t->vruntime += ran_v;
	t->uncounted += ran_v;
}

#endif
