/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Doors to latency.h; crates/law/src/latency.rs mirrors the types. */
#include "latency.h"

tg_s64 tg_native_latency_offset_ns(int hint, tg_u64 period_ns)
{
	return tg_latency_offset_ns(hint, period_ns);
}

tg_u64 tg_native_latency_deadline(tg_u64 vruntime, tg_u64 slice_v, int hint, tg_u64 period_ns)
{
	return tg_latency_deadline(vruntime, slice_v, hint, period_ns);
}

int tg_native_latency_before(tg_u64 a, tg_u64 b)
{
	return tg_latency_before(a, b);
}

int tg_native_latency_first(const struct tg_latency_rank *a, const struct tg_latency_rank *b)
{
	return tg_latency_first(a, b);
}

int tg_native_latency_hint(tg_u64 slice_ns, tg_u64 base_ns)
{
	return tg_latency_hint(slice_ns, base_ns);
}

tg_u64 tg_native_latency_slice_ns(int hint, tg_u64 base_ns)
{
	return tg_latency_slice_ns(hint, base_ns);
}

int tg_native_latency_fork(int parent_hint, int inherit)
{
	return tg_latency_fork(parent_hint, inherit);
}

/* The size as the C compiler sees it, so that a drifted mirror fails a test. */
tg_u64 tg_native_latency_size(void)
{
	return sizeof(struct tg_latency_rank);
}
