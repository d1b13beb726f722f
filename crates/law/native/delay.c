/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Doors to delay.h; crates/law/src/delay.rs mirrors the types. */
#include "delay.h"

void tg_native_delay_init(struct tg_delay *d, const struct tg_delay_config *cfg, tg_u32 share_ppm,
			  tg_u32 home_ppm)
{
	tg_delay_init(d, cfg, share_ppm, home_ppm);
}

void tg_native_delay_objective(struct tg_delay *d, tg_u32 share_ppm)
{
	tg_delay_objective(d, share_ppm);
}

tg_u32 tg_native_delay_step(struct tg_delay *d, const struct tg_delay_evidence *e)
{
	return tg_delay_step(d, e);
}

tg_u32 tg_native_delay_extra_ppm(const struct tg_delay *d)
{
	return tg_delay_extra_ppm(d);
}

/* Sizes as the C compiler sees them, so that a drifted mirror fails a test. */
tg_u64 tg_native_delay_size(tg_u32 which)
{
	switch (which) {
	case 0:
		return sizeof(struct tg_delay_config);
	case 1:
		return sizeof(struct tg_delay_evidence);
	case 2:
		return sizeof(struct tg_delay);
	default:
		return 0;
	}
}
