// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The law as programs for BPF_PROG_TEST_RUN; tests/bpf_target/run.rs maps the globals and compares.
 */
#define KERNEL_FUNCTION extern __attribute__((weak, section(".ksyms")))

/* The numeric iterator of kernel/bpf/bpf_iter.c. */
struct bpf_iter_num {
	unsigned long long opaque[1];
} __attribute__((aligned(8)));

KERNEL_FUNCTION int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end);
KERNEL_FUNCTION int *bpf_iter_num_next(struct bpf_iter_num *it);
KERNEL_FUNCTION void bpf_iter_num_destroy(struct bpf_iter_num *it);

#define TG_FOR(i, n, max)                                                                          \
	for (struct bpf_iter_num it_##i __attribute__((cleanup(bpf_iter_num_destroy))),            \
	     *once_##i __attribute__((unused)) = (bpf_iter_num_new(&it_##i, 0, (n)), &it_##i);     \
	     once_##i; once_##i = 0)                                                               \
		for (tg_u32 i, *at_##i;                                                            \
		     (at_##i = (tg_u32 *)bpf_iter_num_next(&it_##i)) && (i = *at_##i, i < (max));)

#include "ops.h"

#define SEC(name) __attribute__((section(name), used))

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("syscall") int law_cap(void *ctx)
{
	(void)ctx;
	return tg_op_cap();
}

SEC("syscall") int law_latency(void *ctx)
{
	(void)ctx;
	tg_op_latency_slice();
	tg_op_latency_hint();
	return tg_op_latency();
}

SEC("syscall") int law_headroom(void *ctx)
{
	(void)ctx;
	return tg_op_headroom();
}

SEC("syscall") int law_share(void *ctx)
{
	(void)ctx;
	return tg_op_share();
}

SEC("syscall") int law_bandwidth(void *ctx)
{
	(void)ctx;
	return tg_op_bw();
}

SEC("syscall") int law_delay(void *ctx)
{
	(void)ctx;
	return tg_op_delay();
}
