/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Doors to cap.h; crates/law/src/cap.rs mirrors the types. */
#include "cap.h"

void tg_native_cap_set(struct tg_cap *c, const struct tg_cap_terms *t, tg_u64 now_ns)
{
	tg_cap_set(c, t, now_ns);
}

void tg_native_cap_charge(struct tg_cap *c, struct tg_cap_loan *loan, tg_u64 used_ns, tg_u64 now_ns,
			  int background, tg_u32 is)
{
	tg_cap_charge(c, loan, used_ns, now_ns, background, is);
}

void tg_native_cap_return(struct tg_cap *c, struct tg_cap_loan *loan)
{
	tg_cap_return(c, loan);
}

tg_u64 tg_native_cap_lend(struct tg_cap *c, struct tg_cap_loan *loan, tg_u64 now_ns, int background,
			  tg_u64 least_ns, tg_u64 lend_ns)
{
	return tg_cap_lend(c, loan, now_ns, background, least_ns, lend_ns);
}

tg_u32 tg_native_cap_state(struct tg_cap *c, struct tg_cap_family *f, tg_u64 now_ns, tg_u32 is)
{
	return tg_cap_state(c, f, now_ns, is);
}

tg_u64 tg_native_cap_ready_at_ns(const struct tg_cap *c, const struct tg_cap_family *f,
				 tg_u64 want_ns)
{
	return tg_cap_ready_at_ns(c, f, want_ns);
}

int tg_native_cap_fork(struct tg_cap *parent, struct tg_cap *child, tg_u64 now_ns, tg_u32 is)
{
	return tg_cap_fork(parent, child, now_ns, is);
}

void tg_native_cap_leave(struct tg_cap *c, struct tg_cap_family *f, tg_u64 now_ns)
{
	tg_cap_leave(c, f, now_ns);
}

/* Sizes as the C compiler sees them, so that a drifted mirror fails a test. */
tg_u64 tg_native_cap_size(tg_u32 which)
{
	switch (which) {
	case 0:
		return sizeof(struct tg_cap_terms);
	case 1:
		return sizeof(struct tg_cap_bucket);
	case 2:
		return sizeof(struct tg_cap);
	case 3:
		return sizeof(struct tg_cap_family);
	case 4:
		return sizeof(struct tg_cap_loan);
	default:
		return 0;
	}
}
