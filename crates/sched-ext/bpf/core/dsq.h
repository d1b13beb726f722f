/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Ids of the dispatch queues that this scheduler makes, all of them in `init`.
 *
 *	 63  62      32 31     28 27     24 23                       0
 *	+---+----------+---------+---------+--------------------------+
 *	| 0 |    0     |  type   |  kind   |          index           |
 *	+---+----------+---------+---------+--------------------------+
 *	  |
 *	  the kernel's: its own queues (global, local, local of a CPU)
 *
 *	type            index          kind   order          holds
 *	1 wide          run queue      0      deadline       tasks that may run on as many CPUs as are on line
 *	2 narrow        run queue      0      deadline       tasks that may run on some CPUs
 *	3 pinned        CPU            kind   deadline       tasks of that one CPU; some of narrow (pick_sort)
 *	4 throttled     limit          0      last run       out of that limit's quota
 *	5 cap           cache          0      ready time     out of a hard cap
 *	6 recall        cache          0      deadline       background that its soft cap lets go again
 *
 * A run queue's index has its kind in it. Background work waits in `recall` whatever CPUs it may
 * run on; in `wide` and `narrow` where its soft cap is 0, so that the timer of the others does not
 * come across it.
 */
#ifndef TIDEGATE_EXT_DSQ_H
#define TIDEGATE_EXT_DSQ_H

#include "core/intf.h"

#define DSQ_INDEX_BITS 24
#define DSQ_KIND_BITS 4
#define DSQ_TYPE_BITS 4
#define DSQ_KIND_SHIFT DSQ_INDEX_BITS
#define DSQ_TYPE_SHIFT (DSQ_KIND_SHIFT + DSQ_KIND_BITS)
#define DSQ_BITS (DSQ_TYPE_SHIFT + DSQ_TYPE_BITS)

enum dsq_type {
	DSQ_WIDE = 1, /* from 1: no id is 0 */
	DSQ_NARROW = 2,
	DSQ_PINNED = 3,
	DSQ_THROTTLED = 4,
	DSQ_CAP = 5,
	DSQ_RECALL = 6,
	DSQ_TYPES,
};

#define DSQ_ID(type, kind, index)                                                                  \
	((u64)(type) << DSQ_TYPE_SHIFT | (u64)(kind) << DSQ_KIND_SHIFT | (index))
#define DSQ_FITS(count, bits) ((count) <= 1ULL << (bits))

/* Each field holds its values, so that fields, and with them types, do not meet. */
_Static_assert(DSQ_FITS(DSQ_TYPES, DSQ_TYPE_BITS), "a type would reach beyond its bits");
_Static_assert(DSQ_FITS(EXT_KINDS, DSQ_KIND_BITS), "a kind would reach into the type");
_Static_assert(DSQ_FITS(EXT_LLCS_MAX *EXT_KINDS, DSQ_INDEX_BITS), "a run queue, into the kind");
_Static_assert(DSQ_FITS(EXT_CPUS_MAX, DSQ_INDEX_BITS), "a CPU, into the kind");
_Static_assert(DSQ_FITS(EXT_LIMITS_MAX, DSQ_INDEX_BITS), "a limit, into the kind");
_Static_assert(DSQ_FITS(EXT_LLCS_MAX, DSQ_INDEX_BITS), "a cache, into the kind");
/* The kernel takes ids with its bit for its own queues; none of ours reaches it. */
_Static_assert(DSQ_BITS <= 32, "ids stay in the low word");
_Static_assert((SCX_DSQ_FLAG_BUILTIN & ((1ULL << DSQ_BITS) - 1)) == 0, "the kernel's bit is above");

INLINE u32 dsq_index(u64 dsq)
{
	return dsq & ((1ULL << DSQ_INDEX_BITS) - 1);
}

/* One run queue a cache and kind of work. */
INLINE u32 runqueue_index(u32 llc, u32 kind)
{
	return llc * EXT_KINDS + kind;
}

INLINE u64 dsq_wide(u32 runqueue)
{
	return DSQ_ID(DSQ_WIDE, 0, runqueue);
}

INLINE u64 dsq_narrow(u32 runqueue)
{
	return DSQ_ID(DSQ_NARROW, 0, runqueue);
}

INLINE u64 dsq_pinned(u32 cpu, u32 kind)
{
	return DSQ_ID(DSQ_PINNED, kind, cpu);
}

INLINE u64 dsq_throttled(u32 limit)
{
	return DSQ_ID(DSQ_THROTTLED, 0, limit);
}

INLINE u64 dsq_cap_throttled(u32 llc)
{
	return DSQ_ID(DSQ_CAP, 0, llc);
}

INLINE u64 dsq_recall(u32 llc)
{
	return DSQ_ID(DSQ_RECALL, 0, llc);
}

#endif
