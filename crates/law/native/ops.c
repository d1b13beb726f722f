/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The native side of tests/bpf_target.rs; nothing else refers to it, so no program carries it.
 */
#include "../bpf/ops.h"

/* Of one header: its globals, their size, and what the BPF program of the same number does. */
struct tg_native_op {
	void *io;
	tg_u64 size;
	int (*run)(void);
};

const struct tg_native_op tg_native_ops[] = {
    {&tg_cap_io, sizeof(tg_cap_io), tg_op_cap},
    {&tg_headroom_io, sizeof(tg_headroom_io), tg_op_headroom},
    {&tg_bw_io, sizeof(tg_bw_io), tg_op_bw},
};
