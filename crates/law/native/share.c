/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A callable copy of share.h; crates/law/src/share.rs mirrors the type. */
#include "share.h"

void tg_native_share(tg_u64 allowance_ucpu, const struct tg_demand *d, tg_u32 n, tg_u64 *out)
{
	tg_share(allowance_ucpu, d, n, out);
}

/* The size as the C compiler sees it, so that a drifted mirror fails a test. */
tg_u64 tg_native_share_size(void)
{
	return sizeof(struct tg_demand);
}
