/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Non-inline doors to the bandwidth law for Rust; crates/law/src/bandwidth.rs mirrors the types. */
#include "bandwidth.h"
#include "bandwidth_kernel.h"
#include "bandwidth_tree.h"

void tg_native_bw_init(struct tg_bw_pool *p, tg_u32 flags, tg_u64 phase_ns)
{
	tg_bw_init(p, flags, phase_ns);
}

tg_u32 tg_native_bw_valid(const struct tg_bw_terms *t)
{
	return (tg_u32)tg_bw_valid(t);
}

tg_u64 tg_native_bw_turnover(struct tg_bw_pool *p, tg_u64 now_ns)
{
	return tg_bw_turnover(p, now_ns);
}

tg_u32 tg_native_bw_active(const struct tg_bw_pool *p)
{
	return (tg_u32)tg_bw_active(p);
}

tg_u32 tg_native_bw_charge(const struct tg_bw_pool *p, struct tg_bw_silo *s, tg_u64 delta_ns)
{
	return (tg_u32)tg_bw_charge(p, s, delta_ns);
}

tg_u32 tg_native_bw_take(struct tg_bw_pool *p, struct tg_bw_silo *s, tg_u64 want_ns, tg_u64 now_ns)
{
	return tg_bw_take(p, s, want_ns, now_ns);
}

tg_u32 tg_native_bw_run(struct tg_bw_pool *p, struct tg_bw_silo *s, tg_u64 delta_ns, tg_u64 now_ns)
{
	return tg_bw_run(p, s, delta_ns, now_ns);
}

tg_u32 tg_native_bw_throttle(struct tg_bw_pool *p, struct tg_bw_silo *s, tg_u64 now_ns)
{
	return (tg_u32)tg_bw_throttle(p, s, now_ns);
}

tg_u32 tg_native_bw_distribute(struct tg_bw_pool *p, struct tg_bw_silo *s, tg_u64 now_ns)
{
	return (tg_u32)tg_bw_distribute(p, s, now_ns);
}

tg_u64 tg_native_bw_return(struct tg_bw_pool *p, struct tg_bw_silo *s)
{
	return tg_bw_return(p, s);
}

void tg_native_bw_set(struct tg_bw_pool *p, const struct tg_bw_terms *t, tg_u64 now_ns)
{
	tg_bw_set(p, t, now_ns);
}

void tg_native_bw_set_kernel(struct tg_bw_pool *p, const struct tg_bw_terms *t, tg_u64 now_ns)
{
	tg_bw_set_kernel(p, t, now_ns);
}

void tg_native_bw_forgive(struct tg_bw_pool *p, struct tg_bw_silo *s, tg_u64 now_ns)
{
	tg_bw_forgive(p, s, now_ns);
}

tg_u32 tg_native_bw_slack_wanted(const struct tg_bw_pool *p, tg_u64 now_ns)
{
	return (tg_u32)tg_bw_slack_wanted(p, now_ns);
}

tg_u32 tg_native_bw_slack_due(const struct tg_bw_pool *p, tg_u64 now_ns)
{
	return (tg_u32)tg_bw_slack_due(p, now_ns);
}

tg_u64 tg_native_bw_ratio(const struct tg_bw_terms *t)
{
	return tg_bw_ratio(t);
}

tg_u64 tg_native_bw_effective(tg_u64 own, tg_u64 parent, tg_u32 v1)
{
	return tg_bw_effective(own, parent, (int)v1);
}

tg_u32 tg_native_bw_run_up(struct tg_bw_pool *pools, struct tg_bw_silo *silos,
			   const tg_u32 *parents, tg_u32 groups, tg_u32 group, tg_u64 delta_ns,
			   tg_u64 now_ns)
{
	return tg_bw_run_up(pools, silos, parents, groups, group, delta_ns, now_ns);
}

tg_u32 tg_native_bw_may_run(const struct tg_bw_silo *silos, const tg_u32 *parents, tg_u32 groups,
			    tg_u32 group)
{
	return (tg_u32)tg_bw_may_run(silos, parents, groups, group);
}

/* Sizes as the C compiler sees them, so that a drifted mirror fails a test. */
tg_u64 tg_native_bw_size(tg_u32 which)
{
	switch (which) {
	case 0:
		return sizeof(struct tg_bw_terms);
	case 1:
		return sizeof(struct tg_bw_pool);
	case 2:
		return sizeof(struct tg_bw_silo);
	default:
		return 0;
	}
}
