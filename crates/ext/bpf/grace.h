/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Grace: who is kept waiting inside the kernel goes on, a little at a time.
 *
 * It may hold what all wait for: the cgroups' mutex, a page's lock, a CPU that is to go. Since 6.18
 * the fair class throttles a task on its way out to user space only. Nobody tells a BPF scheduler
 * where a task was when it was put back; but once it is switched out, the kernel keeps its stack
 * pointer. Whoever was on the way out to user space left at the same small distance from where its
 * stack begins; anywhere else in the kernel it is farther in (by 360 bytes and more on 6.18, 736 on
 * 7.3: 145 waiting tasks looked at). The distance is the kernel's build's, so it is learnt: it is
 * the least that is seen. Where there is no such pointer (not x86) nobody is known to be inside.
 *
 * One that slept and is woken is inside as well, whether it holds anything or not: so it must have
 * waited for long, and visits are few: of those that wait in line a twentieth of the machine, of
 * those that a quota or cap keeps no more than its own rate, for which they are charged.
 */
#ifndef TIDEGATE_EXT_GRACE_H
#define TIDEGATE_EXT_GRACE_H

#include "door.h"

/* A visit; many a way out of the kernel is shorter. */
#define GRACE_NS 1000000U
#define GRACE_AFTER_NS 1000000000ULL
/* Of a small cap many tasks have a few us each: one that has waited for this long until it was let
 * go has a whole visit, which its bucket owes. */
#define GRACE_OWED_NS 100000000ULL
/* Visits in line between two looks, for each CPU: together a fortieth of the machine to those that
 * may run anywhere, and as much to those of one CPU. */
#define GRACE_VISITS (u32)(PATIENCE_LOOK_NS / 40 / GRACE_NS)
/* Two ways out to user space may differ by so much. */
#define GRACE_SLACK 128
/* The most that was left of anybody's stack: of one on the way out to user space. */
u64 grace_outside;
u32 grace_left; /* visits until the next look */

/* A new look at what so many CPUs take from: all visits may be made again. */
INLINE void grace_begin(u32 cpus)
{
	grace_left = cpus * GRACE_VISITS;
}

/* Whether the next visit on account of a limit may be made, which has `rate_ppt`: they are made no
 * faster than that pays for them. */
INLINE bool grace_paid(u64 *last_ns, u64 rate_ppt, u64 now)
{
	if (!rate_ppt || now < *last_ns + GRACE_NS * 1000ULL / rate_ppt)
		return false;
	*last_ns = now;
	return true;
}

/* Workers of the kernel's never go out to user space. */
#define GRACE_WORKER (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER)

/* What is left of the stack of one that is switched out. */
INLINE u64 grace_room(struct task_struct *p)
{
	u64 base = 0;

	/* Read as memory: 7.3's verifier takes it for a pointer, from which it lets nothing be
	 * subtracted. */
	bpf_probe_read_kernel(&base, sizeof(base), &p->stack);
	return p->thread.sp - base;
}

/* `running`: one that was put back goes on. One that has never been switched away has a stack that
 * was made up for it. A look costs 0.1 us, and one in sixteen is enough. */
INLINE void grace_learn(struct task_struct *p, struct task_ctx *t, u64 now)
{
	u64 room;

	if (now >> 4 & 15)
		return;
	if (!__builtin_preserve_field_info(p->thread.sp, 2) || t->woken_ns || !p->nivcsw ||
	    p->flags & GRACE_WORKER)
		return;
	room = grace_room(p);
	if (room > grace_outside)
		grace_outside = room;
}

/* Whether a task has waited for so long, and inside the kernel. */
INLINE bool grace_inside(struct task_struct *p, struct task_ctx *t, u64 after_ns, u64 now)
{
	if (!__builtin_preserve_field_info(p->thread.sp, 2) ||
	    tg_sub0(now, t->since_ns) < after_ns || !(p->nvcsw + p->nivcsw))
		return false;
	return grace_room(p) + GRACE_SLACK < grace_outside;
}

/* It is given a visit, if there is one left. */
INLINE bool grace_give(struct task_ctx *t)
{
	if (t->floor)
		return true;
	if (!grace_left)
		return false;
	grace_left--;
	t->floor = GRACE_NS;
	return true;
}

#endif
