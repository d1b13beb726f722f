/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Callable copies of runqueue.h; crates/law/src/runqueue.rs mirrors the types. */
#include "runqueue.h"

tg_u64 tg_native_runqueue_weight(tg_u64 hweight)
{
	return tg_runqueue_weight(hweight);
}

tg_u64 tg_native_runqueue_v(const struct tg_runqueue *rq)
{
	return tg_runqueue_v(rq);
}

void tg_native_runqueue_settle(struct tg_runqueue *rq, tg_u64 now_ns)
{
	tg_runqueue_settle(rq, now_ns);
}

void tg_native_runqueue_add(struct tg_runqueue *rq, tg_u64 vruntime, tg_u64 hweight)
{
	tg_runqueue_add(rq, vruntime, hweight);
}

void tg_native_runqueue_sub(struct tg_runqueue *rq, tg_u64 vruntime, tg_u64 hweight)
{
	tg_runqueue_sub(rq, vruntime, hweight);
}

void tg_native_runqueue_ran(struct tg_runqueue *rq, tg_u64 ran_v, tg_u64 hweight)
{
	tg_runqueue_ran(rq, ran_v, hweight);
}

void tg_native_runqueue_starts(struct tg_runqueue *rq, tg_u64 now_ns)
{
	tg_runqueue_starts(rq, now_ns);
}

void tg_native_runqueue_stops(struct tg_runqueue *rq, tg_u64 since_ns)
{
	tg_runqueue_stops(rq, since_ns);
}

tg_u64 tg_native_runqueue_load(tg_u64 weights, tg_u64 cpus)
{
	return tg_runqueue_load(weights, cpus);
}

int tg_native_runqueue_pulls(tg_u64 own_weights, tg_u64 own_cpus, tg_u64 weights, tg_u64 cpus,
			     tg_u64 weight)
{
	return tg_runqueue_pulls(own_weights, own_cpus, weights, cpus, weight);
}

int tg_native_runqueue_is_near(tg_u64 first, tg_u64 deadline, tg_u64 first_slice_v, tg_u64 slice_v)
{
	return tg_runqueue_is_near(first, deadline, first_slice_v, slice_v);
}

int tg_native_runqueue_eligible(tg_u64 v, tg_u64 vruntime, tg_u64 slice_v)
{
	return tg_runqueue_eligible(v, vruntime, slice_v);
}

tg_u64 tg_native_runqueue_place(tg_u64 v, tg_s64 lag, int left_here, tg_u64 left_at, tg_u64 slice_v)
{
	return tg_runqueue_place(v, lag, left_here, left_at, slice_v);
}

tg_u64 tg_native_runqueue_deadline(tg_u64 v, const struct tg_runqueue_task *t, tg_u64 period_ns)
{
	return tg_runqueue_deadline(v, t, period_ns);
}

tg_u64 tg_native_runqueue_feasible(const struct tg_runqueue *rq, tg_u64 hweight, tg_u64 counted,
				   tg_u64 cpus)
{
	return tg_runqueue_feasible(rq, hweight, counted, cpus);
}

tg_u64 tg_native_runqueue_reweighed(tg_u64 v, tg_u64 vruntime, tg_u64 was, tg_u64 now)
{
	return tg_runqueue_reweighed(v, vruntime, was, now);
}

int tg_native_runqueue_displaces(tg_u64 v, const struct tg_runqueue_task *waits,
				 const struct tg_runqueue_task *runs, tg_u64 ran_ns,
				 tg_u64 slice_ns)
{
	return tg_runqueue_displaces(v, waits, runs, ran_ns, slice_ns);
}

tg_u64 tg_native_runqueue_undisturbed_ns(tg_u64 slice_ns)
{
	return tg_runqueue_undisturbed_ns(slice_ns);
}

int tg_native_runqueue_is_light(const struct tg_runqueue *rq, tg_u64 hweight)
{
	return tg_runqueue_is_light(rq, hweight);
}

int tg_native_runqueue_reweighs(tg_u64 hweight, tg_u64 now)
{
	return tg_runqueue_reweighs(hweight, now);
}

/* As the C compiler sees them, so that a drifted mirror fails a test. */
tg_u64 tg_native_runqueue_value(tg_u32 which)
{
	switch (which) {
	case 0:
		return sizeof(struct tg_runqueue);
	case 1:
		return sizeof(struct tg_runqueue_task);
	case 2:
		return TG_RUNQUEUE_V_START;
	default:
		return 0;
	}
}
