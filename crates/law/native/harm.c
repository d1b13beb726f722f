/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Doors to harm.h; crates/law/src/harm.rs mirrors the types. */
#include "harm.h"

void tg_native_harm_init(struct tg_harm *h, const struct tg_harm_config *cfg, tg_u64 seed)
{
	tg_harm_init(h, cfg, seed);
}

void tg_native_harm_restart(struct tg_harm *h)
{
	tg_harm_restart(h);
}

tg_u32 tg_native_harm_step(struct tg_harm *h, const struct tg_harm_window *w)
{
	return tg_harm_step(h, w);
}

/* Sizes as the C compiler sees them, so that a drifted mirror fails a test. */
tg_u64 tg_native_harm_size(tg_u32 which)
{
	switch (which) {
	case 0:
		return sizeof(struct tg_harm_config);
	case 1:
		return sizeof(struct tg_harm_window);
	case 2:
		return sizeof(struct tg_harm);
	default:
		return 0;
	}
}
