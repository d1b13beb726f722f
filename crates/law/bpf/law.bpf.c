// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The law as programs for BPF_PROG_TEST_RUN; tests/bpf_target.rs maps the globals and compares.
 */
#include "ops.h"

#define SEC(name) __attribute__((section(name), used))

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("syscall") int law_cap(void *ctx)
{
	(void)ctx;
	return tg_op_cap();
}

SEC("syscall") int law_headroom(void *ctx)
{
	(void)ctx;
	return tg_op_headroom();
}

SEC("syscall") int law_bandwidth(void *ctx)
{
	(void)ctx;
	return tg_op_bw();
}
