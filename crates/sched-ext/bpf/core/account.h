/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * CPU time that a gate's tasks used, and how long they waited from wakeup to run.
 *
 *	woken, or forked	account_woken
 *	starts to run		account_starts: the wait counts by its power of two
 *	ran until now		account_charge
 *
 * A task counts for the nearest gate at or above its group and for no other; kernel threads have an
 * account of their own. Each CPU has its own copy, written with interrupts off: no lock, nothing
 * shared; the loader adds them up. A wait includes the time that a quota or cap throttled the task.
 */
#ifndef TIDEGATE_EXT_ACCOUNT_H
#define TIDEGATE_EXT_ACCOUNT_H

#include "core/ext.h"

struct {
	MAP_UINT(type, MAP_PERCPU_ARRAY);
	MAP_UINT(max_entries, EXT_ACCOUNTS_LEAST); /* the loader: more where there is room */
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct ext_account);
} accounts SEC(".maps");

INLINE void account_charge(struct task_ctx *t, u64 ran_ns)
{
	struct ext_account *a;
	u32 index = t->account;

	if (!index)
		return;
	a = bpf_map_lookup_elem(&accounts, &index);
	if (a && t->kind < EXT_KINDS)
		a->ran_ns[t->kind] += ran_ns;
}

/* It slept, or is new: `enqueue`, or `select_cpu` where that puts it on an idle CPU. */
INLINE void account_woken(struct task_ctx *t, u64 now)
{
	t->flags &= ~TASK_NEW;
	t->woken_ns = now;
}

/* Where what is left has more bits than these, they are counted and go. Clang would make a chain of
 * selections of it, which is twice as long. */
#define ACCOUNT_BITS(bits, rest, by)                                                               \
	__asm__("if %1 < %3 goto +2\n\t%1 >>= %2\n\t%0 += %2"                                      \
		: "+r"(bits), "+r"(rest)                                                           \
		: "i"(by), "i"(1 << (by)))

/* A wait is over. Its place in `delays` is the bits of its length in units of 1,024 ns. Global, so
 * that the verifier walks it once. */
int account_waited(u32 index, u64 delay_ns)
{
	struct ext_account *a = bpf_map_lookup_elem(&accounts, &index);
	u64 rest = delay_ns >> 10, bits = 0;

	if (!a)
		return 0;
	a->delay_ns += delay_ns;
	if (delay_ns > a->longest_ns)
		a->longest_ns = delay_ns;
	if (rest >> (EXT_DELAYS - 1))
		rest = (1ULL << (EXT_DELAYS - 1)) - 1;
	ACCOUNT_BITS(bits, rest, 16);
	ACCOUNT_BITS(bits, rest, 8);
	ACCOUNT_BITS(bits, rest, 4);
	ACCOUNT_BITS(bits, rest, 2);
	ACCOUNT_BITS(bits, rest, 1);
	bits += rest;
	if (bits < EXT_DELAYS)
		a->delays[bits]++;
	return 0;
}

/* `running` */
INLINE void account_starts(struct task_ctx *t, u64 now)
{
	u64 woken_ns = t->woken_ns;

	if (!woken_ns)
		return;
	t->woken_ns = 0;
	/* CPUs' clocks may differ by a hair. */
	if (t->account)
		account_waited(t->account, tg_sub0(now, woken_ns));
}

#endif
