/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Callable copies of headroom.h; crates/law/src/headroom/ffi.rs mirrors the types. */
#include "headroom.h"

void tg_native_headroom_init(struct tg_headroom *h, const struct tg_headroom_config *cfg,
			     tg_u32 headroom_ppm, tg_u32 tolerance_ppm)
{
	tg_headroom_init(h, cfg, headroom_ppm, tolerance_ppm);
}

void tg_native_headroom_terms(struct tg_headroom *h, tg_u32 headroom_ppm, tg_u32 tolerance_ppm)
{
	tg_headroom_terms(h, headroom_ppm, tolerance_ppm);
}

void tg_native_headroom_contend(struct tg_headroom *h, tg_u32 contend_ppm)
{
	tg_headroom_contend(h, contend_ppm);
}

void tg_native_headroom_step(struct tg_headroom *h, const struct tg_headroom_sample *s,
			     struct tg_headroom_decision *d)
{
	tg_headroom_step(h, s, d);
}

/* Sizes as the C compiler sees them, so that a drifted mirror fails a test. */
tg_u64 tg_native_headroom_size(tg_u32 which)
{
	switch (which) {
	case 0:
		return sizeof(struct tg_headroom_config);
	case 1:
		return sizeof(struct tg_headroom_sample);
	case 2:
		return sizeof(struct tg_headroom_decision);
	case 3:
		return sizeof(struct tg_headroom);
	default:
		return 0;
	}
}
