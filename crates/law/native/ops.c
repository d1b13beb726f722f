/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The native side of tests/bpf_target.rs; nothing else refers to it, so no program carries it.
 */
#include "../bpf/ops.h"

/* The globals of one header, and their size. */
void *tg_native_ops_io(tg_u32 which, tg_u64 *size)
{
	switch (which) {
	case 0:
		*size = sizeof(tg_cap_io);
		return &tg_cap_io;
	case 1:
		*size = sizeof(tg_headroom_io);
		return &tg_headroom_io;
	case 2:
		*size = sizeof(tg_bw_io);
		return &tg_bw_io;
	default:
		*size = 0;
		return 0;
	}
}

/* One call of what the BPF program of the same number does. */
void tg_native_ops_run(tg_u32 which)
{
	switch (which) {
	case 0:
		tg_op_cap();
		break;
	case 1:
		tg_op_headroom();
		break;
	case 2:
		tg_op_bw();
		break;
	default:
		break;
	}
}
