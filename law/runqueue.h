/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * runqueue.h - the order of a run queue, in virtual time.
 *
 *     deadline = vruntime + slice / weight, moved by the latency hint (latency.h)
 *     V        = mean of the members' vruntime by weight: what a fair scheduler would
 *                have given each
 *     lag      = V - vruntime, kept while a task is away; at most one slice either way
 *
 * The members are the tasks that wait and those that run. V never goes back: a task that
 * comes back owed something lowers the mean, and one that has done nothing would be ahead
 * of it all at once. What members ran since they were last charged counts in V at once,
 * else a wakeup meets a V up to a tick (4 ms) old. A task that left ahead of its share pays
 * by sleeping until V has reached it, and no longer (as EEVDF's delayed dequeue).
 *
 * A hint that brings a deadline forward counts only for a task that is not ahead of V by
 * more than a quarter of its slice: it says when CPU time comes, not how much. (EEVDF asks
 * at each pick whether a task is eligible; a kernel's dispatch queue is ordered once, when
 * a task is put in, and a wakeup that found itself ahead by a microsecond would wait a whole
 * round.)
 *
 * Between two picks a waking task displaces the running one by tg_runqueue_displaces. A slice
 * ends at a tick (4 ms), so a task that is much lighter than the rest (tg_runqueue_is_light)
 * is stopped at its end by a timer: a tick is 270 ms of virtual time at nice 19.
 *
 * The mean is a whole number and a remainder, settled at each change, so that products
 * stay small:
 *
 *   a weight here is an hweight (hweight.h) without its last 14 bits    < 2^23
 *   a distance from the mean is cut to nine minutes at nice 0           < 2^39
 *   their product                                                       < 2^62
 *   CPU time moves the moment by ran << 16, whatever runs               2^46 << 16 = 2^62
 */
#ifndef TG_LAW_RUNQUEUE_H
#define TG_LAW_RUNQUEUE_H

#include "hweight.h"
#include "latency.h"
#include "tuning.h"

#define TG_RUNQUEUE_WEIGHT_SHIFT 14
#define TG_RUNQUEUE_DISTANCE_MAX ((tg_s64)1 << 39)
/* Virtual time starts here, so that a lag or an offset before the start has room. */
#define TG_RUNQUEUE_V_START (1ULL << 50)

/* All members of a run queue. Writers hold its lock. */
struct tg_runqueue {
	tg_u64 base;	/* the mean of the members' vruntime, in whole ns .. */
	tg_s64 moment;	/* .. and the rest of it: sum of (vruntime - base) * weight */
	tg_u64 weights; /* of the members */
	tg_u64 reached; /* virtual time: the furthest that the mean has come */
	/* Members that run, and the sum of the times since when; what they ran since is in no
	 * vruntime yet. */
	tg_u64 nr_running;
	tg_u64 running_since_sum_ns;
	tg_u64 nr_waiting; /* members that do not; one read of it, without the lock, is true */
};

/* What orders a task in its run queue. */
struct tg_runqueue_task {
	tg_u64 vruntime;
	tg_u64 end;	/* its vruntime at the end of its slice */
	tg_u64 slice_v; /* its slice in virtual time */
	tg_u64 hweight;
	tg_u32 weight; /* its own: by it a hint is worth as much in a group as in the root */
	int hint;
	tg_u64 sync; /* it was woken by a task that is about to sleep */
};

TG_FN tg_u64 tg_runqueue_weight(tg_u64 hweight)
{
	tg_u64 weight = hweight >> TG_RUNQUEUE_WEIGHT_SHIFT;

	return weight ? weight : 1;
}

TG_FN tg_u64 tg_runqueue_members(const struct tg_runqueue *rq)
{
	return rq->nr_waiting + rq->nr_running;
}

/* Virtual time. Read without the lock it may be a change old. */
TG_FN tg_u64 tg_runqueue_v(const struct tg_runqueue *rq)
{
	return tg_max(*(const volatile tg_u64 *)&rq->reached, TG_RUNQUEUE_V_START);
}

TG_FN tg_s64 tg_runqueue_distance(const struct tg_runqueue *rq, tg_u64 vruntime)
{
	return tg_clamp_s((tg_s64)(vruntime - rq->base), -TG_RUNQUEUE_DISTANCE_MAX,
			  TG_RUNQUEUE_DISTANCE_MAX);
}

/*
 * CPU time that running members have had and were not charged for. CPUs' clocks may differ by
 * a hair.
 */
TG_FN tg_u64 tg_runqueue_uncharged_ns(const struct tg_runqueue *rq, tg_u64 now_ns)
{
	tg_s64 since_ns = (tg_s64)(rq->nr_running * now_ns - rq->running_since_sum_ns);

	return since_ns < 0 ? 0 : tg_min((tg_u64)since_ns, 1ULL << 46);
}

/*
 * Brings the mean up to now. The moment keeps what the mean has not: a remainder in
 * 0 .. weights, less what running members will be charged for.
 */
TG_FN void tg_runqueue_settle(struct tg_runqueue *rq, tg_u64 now_ns)
{
	if (rq->weights) {
		tg_s64 moment = rq->moment + (tg_s64)(tg_runqueue_uncharged_ns(rq, now_ns) << 16);
		tg_u64 whole = tg_abs(moment) / rq->weights;

		if (moment < 0)
			whole = 0 - (whole + 1);
		rq->base += whole;
		rq->moment -= (tg_s64)(whole * rq->weights);
	} else {
		rq->moment = 0;
		rq->base = tg_runqueue_v(rq);
	}
	if (tg_latency_before(tg_runqueue_v(rq), rq->base))
		rq->reached = rq->base;
}

/* What a member weighs is in the mean from now on. */
TG_FN void tg_runqueue_weigh(struct tg_runqueue *rq, tg_u64 vruntime, tg_u64 hweight)
{
	if (!rq->weights)
		rq->base = vruntime;
	rq->weights += tg_runqueue_weight(hweight);
	rq->moment += tg_runqueue_distance(rq, vruntime) * (tg_s64)tg_runqueue_weight(hweight);
}

TG_FN void tg_runqueue_unweigh(struct tg_runqueue *rq, tg_u64 vruntime, tg_u64 hweight)
{
	rq->weights -= tg_min(tg_runqueue_weight(hweight), rq->weights);
	rq->moment -= tg_runqueue_distance(rq, vruntime) * (tg_s64)tg_runqueue_weight(hweight);
}

/* A member more. */
TG_FN void tg_runqueue_add(struct tg_runqueue *rq, tg_u64 vruntime, tg_u64 hweight)
{
	rq->nr_waiting++;
	tg_runqueue_weigh(rq, vruntime, hweight);
}

/* A member less, which does not run. */
TG_FN void tg_runqueue_sub(struct tg_runqueue *rq, tg_u64 vruntime, tg_u64 hweight)
{
	rq->nr_waiting--;
	tg_runqueue_unweigh(rq, vruntime, hweight);
}

/* A member was charged this much virtual time. */
TG_FN void tg_runqueue_ran(struct tg_runqueue *rq, tg_u64 ran_v, tg_u64 hweight)
{
	rq->moment += (tg_s64)(ran_v * tg_runqueue_weight(hweight));
}

/* A member begins to run, or was charged up to now and runs on. */
TG_FN void tg_runqueue_starts(struct tg_runqueue *rq, tg_u64 now_ns)
{
	rq->nr_waiting--;
	rq->nr_running++;
	rq->running_since_sum_ns += now_ns;
}

/* One that ran since then was charged, and is counted no longer. */
TG_FN void tg_runqueue_stops(struct tg_runqueue *rq, tg_u64 since_ns)
{
	rq->nr_waiting++;
	rq->nr_running--;
	rq->running_since_sum_ns -= since_ns;
}

/*
 * What each of the CPUs that run a run queue's members has to do. Members that no CPU runs come
 * before all that one does. 2^23 * 2^22 members * 2^16 = 2^61.
 */
TG_FN tg_u64 tg_runqueue_load(tg_u64 weights, tg_u64 cpus)
{
	return cpus ? weights / cpus : weights << 16;
}

/*
 * Whether a CPU of one run queue takes a waiting member of another, of this weight: both then have
 * as much to do for each of their CPUs, or this one less still. `own_cpus` counts the CPU that
 * asks, so it is not 0. 2^23 * 2^22 members * 2^11 CPUs = 2^56.
 */
TG_FN int tg_runqueue_pulls(tg_u64 own_weights, tg_u64 own_cpus, tg_u64 weights, tg_u64 cpus,
			    tg_u64 weight)
{
	tg_u64 rest = weights - tg_min(weight, weights);

	own_cpus = tg_max(own_cpus, 1);
	return weight && (!cpus || (own_weights + weight) * cpus <= rest * own_cpus);
}

/* Not ahead of its share by more than a quarter of its slice. */
TG_FN int tg_runqueue_eligible(tg_u64 v, tg_u64 vruntime, tg_u64 slice_v)
{
	return !tg_latency_before(v + slice_v / 4, vruntime);
}

/*
 * Whether a CPU may take a task that ran there last before the first in order: it comes no later
 * than half of a slice after it, of the first's or its own, whichever is shorter (a light task's is
 * long in virtual time, and those behind it would wait as long). A task that runs elsewhere each
 * time brings some 150 cache lines along. The deadline of one that has been passed over stays,
 * those of others move on.
 */
TG_FN int tg_runqueue_is_near(tg_u64 first, tg_u64 deadline, tg_u64 first_slice_v, tg_u64 slice_v)
{
	return deadline - first <= tg_min(first_slice_v, slice_v) / 2;
}

/*
 * The vruntime of a task that comes back: V minus its saved lag, within a slice. One that left
 * this run queue (`left_here`) ahead of V, at `left_at`, is ahead only until V has come to
 * where it left.
 */
TG_FN tg_u64 tg_runqueue_place(tg_u64 v, tg_s64 lag, int left_here, tg_u64 left_at, tg_u64 slice_v)
{
	tg_s64 most = (tg_s64)tg_min(slice_v, (tg_u64)TG_RUNQUEUE_DISTANCE_MAX);

	if (lag < 0 && left_here && tg_latency_before(left_at, v))
		return v;
	if (lag < 0 && left_here)
		return v + (tg_u64)tg_min_s((tg_s64)(left_at - v), most);
	return v - (tg_u64)tg_clamp_s(lag, -most, most);
}

/* The place in the order: the end of the slice, moved by the hint. 2^40 * 2^17 = 2^57. */
TG_FN tg_u64 tg_runqueue_deadline(tg_u64 v, const struct tg_runqueue_task *t, tg_u64 period_ns)
{
	tg_u64 scaled_ns;

	if (!t->hint)
		return t->end;
	if (t->hint < 0 && !tg_runqueue_eligible(v, t->vruntime, t->slice_v))
		return t->end;
	scaled_ns = tg_min(tg_virtual_ns(period_ns, t->hweight), TG_LATENCY_PERIOD_MAX_NS);
	return tg_latency_deadline(t->end, 0, t->hint, scaled_ns * t->weight / 1024);
}

/*
 * What a member's hweight counts for on `cpus` CPUs: no more than one CPU of them, which is
 * 1/cpus of all weights (w <= W / cpus is w <= (W - w) / (cpus - 1)). A task beyond that falls
 * behind V without end and takes V along; the others are then ahead of it for ever, no hint
 * counts and no wakeup displaces. Source: surplus fair scheduling (Chandra et al., OSDI 2000).
 * Each member is looked at in its turn with the others as they count by now: that settles at
 * the largest weights that are feasible. `counted` is what the member counts for now; 0: it is
 * none yet. With fewer members than CPUs each has one.
 */
TG_FN tg_u64 tg_runqueue_feasible(const struct tg_runqueue *rq, tg_u64 hweight, tg_u64 counted,
				  tg_u64 cpus)
{
	tg_u64 own = counted ? tg_runqueue_weight(counted) : 0;
	tg_u64 others = rq->weights - tg_min(own, rq->weights);

	if (cpus < 2 || tg_runqueue_members(rq) + (counted ? 0 : 1) < cpus)
		return hweight;
	return tg_min(hweight,
		      tg_max((others << TG_RUNQUEUE_WEIGHT_SHIFT) / (cpus - 1), TG_HWEIGHT_MIN));
}

/*
 * The vruntime of a member whose hweight changes from `was` to `now`: what it is owed, or has had
 * ahead of its share, stays the same CPU time, and V with it. (Were the vruntime kept, a task that
 * lags while its group is crowded would catch up at the weight of a group that is not.) A lag of
 * more than 2^32 ns counts as that: 2^32 * 2^30 = 2^62.
 */
TG_FN tg_u64 tg_runqueue_reweighed(tg_u64 v, tg_u64 vruntime, tg_u64 was, tg_u64 now)
{
	tg_u64 most = (1ULL << 62) / tg_max(was, 1), behind = v - vruntime, ahead = vruntime - v;

	if (tg_latency_before(vruntime, v))
		return v - tg_virtual_ns(tg_min(behind, most) * was / TG_HWEIGHT_ONE, now);
	return v + tg_virtual_ns(tg_min(ahead, most) * was / TG_HWEIGHT_ONE, now);
}

/*
 * How long a task that has just begun to run is safe from one with an equal hint: half of its
 * slice, 0.7 ms at most. With a slice of 0.7 ms on one CPU, a quarter made schbench's p99 longer,
 * and the whole slice made cyclictest's beside hackbench 2.5 times as long. On four CPUs, less than
 * 0.7 ms slowed everything that switches often.
 */
TG_FN tg_u64 tg_runqueue_undisturbed_ns(tg_u64 slice_ns)
{
	return tg_min(slice_ns / 2, TG_UNDISTURBED_MAX_NS);
}

enum tg_runqueue_displaces {
	TG_DISPLACES_NOT = 0,
	TG_DISPLACES_LATER, /* when the running task's slice ends, the first in order runs */
	TG_DISPLACES_SOON, /* when the running task's safe time is over; this task then goes first */
	TG_DISPLACES_NOW,
};

/*
 * Whether a task that waits displaces one that runs, whose vruntime is as of now, and which has
 * been on its CPU for `ran_ns` in one turn. An eligible task with the more urgent hint does.
 * With equal hints one that is ahead of V waits in order: else those that sleep often go first
 * again and again, and of eight that take turns one waits for five slices. So does one whose waker
 * is about to sleep (a synchronous wakeup): that CPU is about to be free. Others rank by the end of
 * a whole slice, the running one's from V at the earliest: it is asked to leave, and what it is
 * owed it has kept in the order. So equals displace each other, a heavier task displaces a lighter
 * one, and a lighter one a heavier only when it is owed more than their slices differ by.
 */
TG_FN enum tg_runqueue_displaces tg_runqueue_displaces(tg_u64 v,
						       const struct tg_runqueue_task *waits,
						       const struct tg_runqueue_task *runs,
						       tg_u64 ran_ns, tg_u64 slice_ns)
{
	tg_u64 runs_from = tg_latency_before(runs->vruntime, v) ? v : runs->vruntime;

	if (waits->hint > runs->hint || !tg_runqueue_eligible(v, waits->vruntime, waits->slice_v))
		return TG_DISPLACES_NOT;
	if (waits->hint < runs->hint)
		return TG_DISPLACES_NOW;
	if (waits->sync || tg_latency_before(v, waits->vruntime) ||
	    tg_latency_before(runs_from + runs->slice_v, waits->vruntime + waits->slice_v))
		return TG_DISPLACES_LATER;
	return ran_ns < tg_runqueue_undisturbed_ns(slice_ns) ? TG_DISPLACES_SOON : TG_DISPLACES_NOW;
}

/* Lighter than half the mean member. 2^24 * 2^32 = 2^56. */
TG_FN int tg_runqueue_is_light(const struct tg_runqueue *rq, tg_u64 hweight)
{
	return 2 * tg_runqueue_weight(hweight) * tg_min(tg_runqueue_members(rq), 1ULL << 32) <
	       rq->weights;
}

/*
 * A waiting task is put in order again when it comes first and its hweight is by now half of
 * what it was, or twice: in a group one that wakes can make it a seventieth (nice 0 among
 * nice 19), and it would go before that one and be charged as if that one still slept.
 */
TG_FN int tg_runqueue_reweighs(tg_u64 hweight, tg_u64 now)
{
	return now > 2 * hweight || hweight > 2 * now;
}

#endif /* TG_LAW_RUNQUEUE_H */
