/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Callable copies of side_cpus.h; crates/law/src/side_cpus.rs mirrors the type. */
#include "side_cpus.h"

void tg_native_side_step(struct tg_side_credit *c, const struct tg_headroom_decision *d,
			 tg_u64 before_ucpu, tg_u64 dt_ns, tg_u64 side_ns, tg_u64 members,
			 tg_u32 online)
{
	tg_side_step(c, d, before_ucpu, dt_ns, side_ns, members, online);
}

int tg_native_side_owed(const struct tg_side_credit *c)
{
	return tg_side_owed(c);
}

/* The size as the C compiler sees it, so that a drifted mirror fails a test. */
tg_u64 tg_native_side_credit_size(void)
{
	return sizeof(struct tg_side_credit);
}
