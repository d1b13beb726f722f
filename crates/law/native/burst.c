/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Doors to burst.h; crates/law/src/burst.rs mirrors the types. */
#include "burst.h"

void tg_native_burst_init(struct tg_burst *b, const struct tg_burst_config *cfg)
{
	tg_burst_init(b, cfg);
}

tg_u64 tg_native_burst_auto_step(struct tg_burst *b, const struct tg_burst_evidence *e)
{
	return tg_burst_auto_step(b, e);
}

tg_u64 tg_native_burst_room_ns(tg_u64 quota_ns, tg_u64 period_ns, tg_u64 parent_quota_ns,
			       tg_u64 parent_period_ns, tg_u64 parent_burst_ns)
{
	return tg_burst_room_ns(quota_ns, period_ns, parent_quota_ns, parent_period_ns,
				parent_burst_ns);
}

/* Sizes as the C compiler sees them, so that a drifted mirror fails a test. */
tg_u64 tg_native_burst_size(tg_u32 which)
{
	switch (which) {
	case 0:
		return sizeof(struct tg_burst_config);
	case 1:
		return sizeof(struct tg_burst_evidence);
	case 2:
		return sizeof(struct tg_burst);
	default:
		return 0;
	}
}
