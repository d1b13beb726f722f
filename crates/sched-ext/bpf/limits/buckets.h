/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The table of buckets of law/cap.h, and the tasks that draw on them.
 *
 *	scope		buckets
 *	group		the family's: one for all tasks of the gate
 *	process, task	one for each, and the family's, which keeps debts and terms
 *
 * A capped gate is a family; the lock of the family's bucket serves all of its buckets, for they
 * pay its debts together (BPF holds one lock at a time). A bucket is free with its last user: a
 * gate, a task, or (a family's) a member.
 */
#ifndef TIDEGATE_EXT_BUCKETS_H
#define TIDEGATE_EXT_BUCKETS_H

#include "cap.h"
#include "core/ext.h"

struct bucket {
	struct bpf_spin_lock lock; /* of all buckets of the family, in the family's own */
	u32 family;		   /* the bucket whose lock, debts and terms count */
	u32 users;		   /* 0: free */
	u64 owner;		   /* guards against reuse: a gate's cgroup, or a process' number */
	u32 above;		   /* a gate's: that of the next capped group up */
	u32 version;		   /* of the terms; a member's: those that it has */
	struct tg_cap cap;
	struct tg_cap_family debts;
	struct tg_cap_terms terms;
	u64 reserved_ns; /* reserved by tasks that wait for this bucket, or have not run since */
	u64 used_ns;	 /* a family's, from here on: all use */
	u64 background_ns;
	u64 throttles;
	u64 throttled_ns;    /* how long its tasks were throttled, added up */
	u64 min_runs;	     /* least runs: for the watchdog, or of tasks inside the kernel */
	u64 spared_ns;	     /* a task was let go before its time then (bucket_spare_ns) */
	u64 in_kernel_at_ns; /* a task inside the kernel had a run then (in_kernel.h) */
	u64 recall_ns;	     /* no background task is let go before (cap_recall) */
};

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, EXT_BUCKETS_MAX);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct bucket);
} buckets SEC(".maps");

struct {
	MAP_UINT(type, MAP_QUEUE);
	MAP_UINT(max_entries, EXT_BUCKETS_MAX);
	MAP_TYPE(value, u32);
} free_buckets SEC(".maps");

/* A gate's bucket, by its cgroup's id. */
struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, EXT_GATES_MAX);
	MAP_UINT(map_flags, MAP_FLAG_NO_PREALLOC);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, u32);
} cap_gates SEC(".maps");

/* A process' bucket in a family of scope process: process number << 32 | family. */
struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, EXT_BUCKETS_MAX);
	MAP_UINT(map_flags, MAP_FLAG_NO_PREALLOC);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, u32);
} cap_processes SEC(".maps");

u32 buckets_used;
/* Whether anything was ever capped: without, nothing of this costs more than this test. */
u32 caps_on;

INLINE struct bucket *bucket_at(u32 index)
{
	return index ? bpf_map_lookup_elem(&buckets, &index) : NULL;
}

/* A free bucket; 0: there is none left. */
INLINE u32 bucket_alloc(void)
{
	u32 index = 0;

	if (!bpf_map_pop_elem(&free_buckets, &index) && index)
		return index;
	index = __sync_fetch_and_add(&buckets_used, 1) + 1;
	if (index < EXT_BUCKETS_MAX)
		return index;
	__sync_fetch_and_sub(&buckets_used, 1);
	return 0;
}

/* Its first user; no other knows it yet. */
INLINE void bucket_init(struct bucket *s, u32 family, u64 owner)
{
	s->family = family;
	s->owner = owner;
	s->above = 0;
	s->version = 0;
	s->cap = (struct tg_cap){0};
	s->debts = (struct tg_cap_family){0};
	s->reserved_ns = 0;
	s->used_ns = 0;
	s->background_ns = 0;
	s->throttles = 0;
	s->throttled_ns = 0;
	s->min_runs = 0;
	s->spared_ns = 0;
	s->in_kernel_at_ns = 0;
	s->recall_ns = 0;
	s->users = 1;
}

/* One more user; false: it is free by now, or has another owner. */
bool bucket_get(u32 index, u32 family, u64 owner)
{
	struct bucket *s = bucket_at(index), *f = bucket_at(family);
	bool is;

	if (!s || !f)
		return false;
	bpf_spin_lock(&f->lock);
	is = s->users && s->family == family && s->owner == owner;
	s->users += is;
	bpf_spin_unlock(&f->lock);
	return is;
}

/* The process has this bucket no more; it may have another by now. */
INLINE void bucket_forget_process(u64 owner, u32 index)
{
	u32 *known = bpf_map_lookup_elem(&cap_processes, &owner);

	if (known && *known == index)
		bpf_map_delete_elem(&cap_processes, &owner);
}

/* One user less. What the bucket owes goes to the family with the last. Returns the family if it
 * has lost a user by that. */
u32 bucket_drop(u32 index, u64 now)
{
	struct bucket *s = bucket_at(index), *f = s ? bucket_at(s->family) : NULL;
	u64 owner;
	bool last;

	if (!s || !f || !s->users)
		return 0;
	owner = s->owner;
	bpf_spin_lock(&f->lock);
	last = --s->users == 0;
	if (last && s != f)
		tg_cap_leave(&s->cap, &f->debts, now);
	bpf_spin_unlock(&f->lock);
	if (!last)
		return 0;
	if (s->family != index && owner >> 32)
		bucket_forget_process(owner, index);
	owner = s->family;
	bpf_map_push_elem(&free_buckets, &index, 0);
	return owner == index ? 0 : (u32)owner;
}

int bucket_put(u32 index, u64 now)
{
	u32 family = bucket_drop(index, now);

	if (family)
		bucket_drop(family, now);
	return 0;
}

/* A member takes over what its family's terms have become. */
int bucket_sync_terms(u32 index, u64 now)
{
	struct bucket *s = bucket_at(index), *f = s ? bucket_at(s->family) : NULL;
	struct tg_cap_terms terms;

	if (!s || !f || s == f || s->version == f->version)
		return 0;
	terms = f->terms;
	bpf_spin_lock(&f->lock);
	tg_cap_set(&s->cap, &terms, now);
	s->version = f->version;
	bpf_spin_unlock(&f->lock);
	return 0;
}

/* What a task on this bucket may do now: enum tg_cap_state. */
u32 bucket_state(u32 index, u64 now)
{
	struct bucket *s = bucket_at(index), *f = s ? bucket_at(s->family) : NULL;
	u32 state;

	if (!s || !f || !s->cap.on)
		return TG_CAP_RUN;
	bpf_spin_lock(&f->lock);
	state = tg_cap_state(&s->cap, &f->debts, now, 0);
	bpf_spin_unlock(&f->lock);
	return state;
}

/* A run borrows of it. How long it may run; 0: it may not. */
u64 bucket_lend(u32 index, struct tg_cap_loan *loan NONNULL, u64 now, bool background)
{
	struct bucket *s = bucket_at(index), *f = s ? bucket_at(s->family) : NULL;
	u64 run_ns;

	if (!s || !f)
		return TG_CAP_NEVER;
	bpf_spin_lock(&f->lock);
	run_ns = tg_cap_lend(&s->cap, loan, now, background, TG_CAP_RUN_MIN_NS, TG_CAP_LEND_NS);
	bpf_spin_unlock(&f->lock);
	return run_ns;
}

/* What it used of its loan, and the rest of that, which goes back. */
int bucket_charge(u32 index, struct tg_cap_loan *loan NONNULL, u64 ran_ns, u64 now, bool background)
{
	struct bucket *s = bucket_at(index), *f = s ? bucket_at(s->family) : NULL;

	if (!s || !f)
		return 0;
	bpf_spin_lock(&f->lock);
	tg_cap_charge(&s->cap, loan, ran_ns, now, background, 0);
	tg_cap_return(&s->cap, loan);
	f->used_ns += ran_ns;
	f->background_ns += background ? ran_ns : 0;
	bpf_spin_unlock(&f->lock);
	return 0;
}

/* A quarter of a bucket at most: several reservations should fit, or what comes in is lost. */
INLINE u64 bucket_want_ns(struct tg_cap_bucket *b)
{
	return tg_max(tg_min(TG_CAP_RESERVE_NS, b->depth_ns / 4), 1);
}

/*
 * When a task that this bucket keeps waiting may come back; 0: at once, ~0: not by itself. A
 * throttled one reserves what it will use (reserve_ns; 0: it is in the background), so that of a
 * thousand tasks each comes back when there is something for it, and not all at each drop.
 */
u64 bucket_ready_ns(u32 index, u64 reserve_ns)
{
	struct bucket *s = bucket_at(index), *f = s ? bucket_at(s->family) : NULL;
	struct tg_cap_bucket *b;
	u64 at_ns, want_ns, before_ns;

	if (!s || !f)
		return 0;
	b = reserve_ns ? &s->cap.hard : &s->cap.soft;
	want_ns = reserve_ns ? reserve_ns : bucket_want_ns(b);
	bpf_spin_lock(&f->lock);
	before_ns = s->reserved_ns;
	s->reserved_ns += reserve_ns;
	at_ns = tg_cap_ready_at_ns(&s->cap, &f->debts, want_ns);
	bpf_spin_unlock(&f->lock);
	if (reserve_ns && at_ns != TG_CAP_NEVER && b->rate_ppt)
		at_ns += tg_min(before_ns, 1ULL << 40) * 1000 / b->rate_ppt;
	return at_ns;
}

/*
 * When a bucket will hold half of what it can, ~0: never by itself. The first task that waits for
 * it is then let go before its time, for what comes in to a full bucket is lost: a reservation may
 * be of a task that does not come, and a task that finds the bucket empty at its time reserves
 * again, behind all others. One task in a quarter of the time that fills the bucket.
 */
u64 bucket_spare_ns(u32 index, u64 now)
{
	struct bucket *s = bucket_at(index), *f = s ? bucket_at(s->family) : NULL;
	struct tg_cap_bucket *b;
	u64 at_ns;

	if (!s || !f || !(s->cap.on & TG_CAP_HARD))
		return TG_CAP_NEVER;
	b = &s->cap.hard;
	if (!b->rate_ppt)
		return TG_CAP_NEVER;
	bpf_spin_lock(&f->lock);
	tg_cap_state(&s->cap, &f->debts, now, 0);
	at_ns = tg_cap_bucket_ready_ns(b, f->debts.hard_debt_ns, b->depth_ns / 2);
	bpf_spin_unlock(&f->lock);
	return tg_max(at_ns, s->spared_ns + b->depth_ns / 4 * 1000 / b->rate_ppt);
}

/* What was reserved is used, or not wanted any more. */
int bucket_unreserve(u32 index, u64 want_ns)
{
	struct bucket *s = bucket_at(index), *f = s ? bucket_at(s->family) : NULL;

	if (!s || !f)
		return 0;
	bpf_spin_lock(&f->lock);
	s->reserved_ns -= tg_min(want_ns, s->reserved_ns);
	bpf_spin_unlock(&f->lock);
	return 0;
}

/* A bucket for a task or process that comes into a family, at zero. 0: the table is full. */
u32 bucket_create(u32 family, u64 owner, u64 now)
{
	struct bucket *f = bucket_at(family), *s;
	u32 index;

	if (!f || !bucket_get(family, family, f->owner))
		return 0;
	index = bucket_alloc();
	s = bucket_at(index);
	if (!s) {
		bucket_put(family, now);
		return 0;
	}
	bucket_init(s, family, owner);
	bucket_sync_terms(index, now);
	return index;
}

/* A bucket of its own for a forked child: half of what its parent's has. 0: it shares its parent's.
 */
u32 bucket_fork(u32 parent, u64 owner, u64 now)
{
	struct bucket *from = bucket_at(parent), *f = from ? bucket_at(from->family) : NULL, *s;
	u32 index;

	if (!from || !f || from == f)
		return 0;
	index = bucket_create(from->family, owner, now);
	s = bucket_at(index);
	if (!s)
		return 0;
	bpf_spin_lock(&f->lock);
	tg_cap_fork(&from->cap, &s->cap, now, TG_CAP_IS_NEW_PROCESS);
	s->version = from->version;
	bpf_spin_unlock(&f->lock);
	return index;
}

#endif
