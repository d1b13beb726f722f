/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Callable copies of hweight.h; crates/law/src/hweight.rs mirrors type and constants. */
#include "hweight.h"

tg_u32 tg_native_nice_weight(tg_u32 level)
{
	return tg_nice_weight(level);
}

tg_u32 tg_native_group_weight(tg_u32 cgroup_weight)
{
	return tg_group_weight(cgroup_weight);
}

int tg_native_hweight_update(struct tg_hweight_group *g, tg_u32 own, tg_s64 *change, tg_s32 *by)
{
	tg_u32 before, now;

	tg_hweight_update(g, own, *change, *by, &before, &now);
	return tg_hweight_above(before, now, change, by);
}

tg_u64 tg_native_hweight_up(tg_u64 hweight, tg_u32 group_weight, tg_s64 active, tg_u64 own)
{
	return tg_hweight_up(hweight, group_weight, active, own);
}

tg_u64 tg_native_virtual_ns(tg_u64 ran_ns, tg_u64 hweight)
{
	return tg_virtual_ns(ran_ns, hweight);
}

tg_u64 tg_native_slice_left_ns(tg_u64 vruntime, tg_u64 end, tg_u64 hweight)
{
	return tg_slice_left_ns(vruntime, end, hweight);
}

/* As the C compiler sees them, so that a drifted mirror fails a test. */
tg_u64 tg_native_hweight_value(tg_u32 which)
{
	switch (which) {
	case 0:
		return sizeof(struct tg_hweight_group);
	case 1:
		return TG_HWEIGHT_SHIFT;
	case 2:
		return TG_HWEIGHT_ONE;
	case 3:
		return TG_HWEIGHT_MIN;
	case 4:
		return TG_WEIGHT_IDLE;
	default:
		return 0;
	}
}
