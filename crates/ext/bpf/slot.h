/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Slots: the buckets of law/cap.h in a table, and who draws on them.
 *
 * A capped gate has a slot, its family's. In scope group that is the bucket of all its tasks; in
 * the others it keeps the debts and the terms, and each process or task has a slot of its own in
 * the family. One lock, the family slot's, serves all buckets of a family, for they pay its debts
 * together; BPF holds one lock at a time. A slot goes with its last user: a gate, a task, or (of a
 * family's) a member.
 */
#ifndef TIDEGATE_EXT_SLOT_H
#define TIDEGATE_EXT_SLOT_H

#include "cap.h"
#include "ext.h"

/* A timer ends a run at the very moment (alarm.h); this is the least run. */
#define SLOT_LEAST_NS 10000ULL
/* Who had to wait gets at least so much at once, if the bucket can hold four times that. */
#define SLOT_WANT_NS 500000ULL

struct slot {
	struct bpf_spin_lock lock; /* of all buckets of the family, in the family's own slot */
	u32 family;		   /* the slot whose lock, debts and terms count */
	u32 users;		   /* 0: free */
	u32 runners;		   /* tasks that draw on it now */
	u64 owner;		   /* guards against reuse: what slot_owner says */
	u32 above;		   /* a gate's: that of the next capped group up */
	u32 version;		   /* of the terms; a member's: those that it has */
	struct tg_cap cap;
	struct tg_cap_family debts;
	struct tg_cap_terms terms;
	u64 booked_ns; /* what those that wait for this bucket, or have not run since, will use */
	u64 used_ns;   /* a family's, from here on: all use */
	u64 background_ns;
	u64 parks;
	u64 parked_ns; /* how long its tasks were parked, added up */
	u64 visits;    /* runs that the watchdog asked for, or of who was inside the kernel */
	u64 spared_ns; /* somebody was let go before his time then (slot_spare_ns) */
	u64 graced_ns; /* somebody inside the kernel had a visit then (grace.h) */
	u32 is_gate;   /* a family's: of a group, and not of a task */
	u32 unused;
};
_Static_assert(sizeof(struct slot) == 216, "src/caps.rs");

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, EXT_SLOTS_MAX);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct slot);
} slots SEC(".maps");

struct {
	MAP_UINT(type, MAP_QUEUE);
	MAP_UINT(max_entries, EXT_SLOTS_MAX);
	MAP_TYPE(value, u32);
} free_slots SEC(".maps");

/* A gate's slot, by its cgroup's id. */
struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, EXT_GATES_MAX);
	MAP_UINT(map_flags, MAP_FLAG_NO_PREALLOC);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, u32);
} cap_gates SEC(".maps");

/* A process' slot in a family of scope process: process number << 32 | family. */
struct {
	MAP_UINT(type, MAP_HASH);
	MAP_UINT(max_entries, EXT_SLOTS_MAX);
	MAP_UINT(map_flags, MAP_FLAG_NO_PREALLOC);
	MAP_TYPE(key, u64);
	MAP_TYPE(value, u32);
} cap_processes SEC(".maps");

u32 slots_used;
/* Whether anything was ever capped: without, nothing of this costs more than this test. */
u32 caps_on;

INLINE struct slot *slot_at(u32 index)
{
	return index ? bpf_map_lookup_elem(&slots, &index) : NULL;
}

/* A free slot; 0: there is none left. */
INLINE u32 slot_take(void)
{
	u32 index = 0;

	if (!bpf_map_pop_elem(&free_slots, &index) && index)
		return index;
	index = __sync_fetch_and_add(&slots_used, 1) + 1;
	if (index < EXT_SLOTS_MAX)
		return index;
	__sync_fetch_and_sub(&slots_used, 1);
	return 0;
}

/* Its first user; nobody else knows it yet. */
INLINE void slot_begin(struct slot *s, u32 family, u64 owner)
{
	s->family = family;
	s->runners = 0;
	s->owner = owner;
	s->above = 0;
	s->version = 0;
	s->cap = (struct tg_cap){0};
	s->debts = (struct tg_cap_family){0};
	s->booked_ns = 0;
	s->used_ns = 0;
	s->background_ns = 0;
	s->parks = 0;
	s->parked_ns = 0;
	s->visits = 0;
	s->spared_ns = 0;
	s->graced_ns = 0;
	s->is_gate = 0;
	s->users = 1;
}

/* One more user; false: it is free by now, or somebody else's. */
bool slot_use(u32 index, u32 family, u64 owner)
{
	struct slot *s = slot_at(index), *f = slot_at(family);
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
INLINE void slot_forget(u64 owner, u32 index)
{
	u32 *known = bpf_map_lookup_elem(&cap_processes, &owner);

	if (known && *known == index)
		bpf_map_delete_elem(&cap_processes, &owner);
}

/* One user less. What the bucket owes goes to the family with the last. Returns the family if it
 * has lost a user by that. */
u32 slot_drop(u32 index, u64 now)
{
	struct slot *s = slot_at(index), *f = s ? slot_at(s->family) : NULL;
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
		slot_forget(owner, index);
	owner = s->family;
	bpf_map_push_elem(&free_slots, &index, 0);
	return owner == index ? 0 : (u32)owner;
}

int slot_leave(u32 index, u64 now)
{
	u32 family = slot_drop(index, now);

	if (family)
		slot_drop(family, now);
	return 0;
}

/* A member takes over what its family's terms have become. */
int slot_sync(u32 index, u64 now)
{
	struct slot *s = slot_at(index), *f = s ? slot_at(s->family) : NULL;
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
u32 slot_state(u32 index, u64 now)
{
	struct slot *s = slot_at(index), *f = s ? slot_at(s->family) : NULL;
	u32 state;

	if (!s || !f || !s->cap.on)
		return TG_CAP_RUN;
	bpf_spin_lock(&f->lock);
	state = tg_cap_state(&s->cap, &f->debts, now, 0);
	bpf_spin_unlock(&f->lock);
	return state;
}

/* How long a task may run on it. */
u64 slot_left_ns(u32 index, u64 most_ns)
{
	struct slot *s = slot_at(index);

	return s ? tg_cap_slice_ns(&s->cap, s->runners, SLOT_LEAST_NS, most_ns) : most_ns;
}

int slot_charge(u32 index, u64 ran_ns, u64 now, bool background)
{
	struct slot *s = slot_at(index), *f = s ? slot_at(s->family) : NULL;

	if (!s || !f)
		return 0;
	bpf_spin_lock(&f->lock);
	tg_cap_charge(&s->cap, ran_ns, now, background, 0);
	f->used_ns += ran_ns;
	f->background_ns += background ? ran_ns : 0;
	bpf_spin_unlock(&f->lock);
	return 0;
}

/* One more (1) or less (-1) of its tasks runs. */
INLINE void slot_runs(u32 index, s32 by)
{
	struct slot *s = slot_at(index);

	if (s)
		__sync_fetch_and_add(&s->runners, by);
}

/* A quarter of a bucket at most: what several have booked should fit, or what comes in is lost. */
INLINE u64 slot_want_ns(struct tg_cap_bucket *b)
{
	return tg_max(tg_min(SLOT_WANT_NS, b->depth_ns / 4), 1);
}

/*
 * When a task that is held by this bucket may come back; 0: at once, ~0: not by itself. One that is
 * parked books what it will use (book_ns; 0: it is in the background), so that of a thousand each
 * comes back when there is something for it, and not all at each drop.
 */
u64 slot_ready_ns(u32 index, u64 book_ns)
{
	struct slot *s = slot_at(index), *f = s ? slot_at(s->family) : NULL;
	struct tg_cap_bucket *b;
	u64 at_ns, want_ns, before_ns;

	if (!s || !f)
		return 0;
	b = book_ns ? &s->cap.hard : &s->cap.soft;
	want_ns = book_ns ? book_ns : slot_want_ns(b);
	bpf_spin_lock(&f->lock);
	before_ns = s->booked_ns;
	s->booked_ns += book_ns;
	at_ns = tg_cap_ready_at_ns(&s->cap, &f->debts, want_ns);
	bpf_spin_unlock(&f->lock);
	if (book_ns && at_ns != TG_CAP_NEVER && b->rate_ppt)
		at_ns += tg_min(before_ns, 1ULL << 40) * 1000 / b->rate_ppt;
	return at_ns;
}

/*
 * When a bucket will hold half of what it can: by then whoever is first of those that wait for it
 * is let go, though his time has not come, for what comes in to a full bucket is lost. What is
 * booked may be wanted by nobody who comes before: who finds the bucket empty when his time has
 * come books anew, behind all others. One in a quarter of what fills it. ~0: not by itself.
 */
u64 slot_spare_ns(u32 index, u64 now)
{
	struct slot *s = slot_at(index), *f = s ? slot_at(s->family) : NULL;
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

/* What was booked is used, or not wanted any more. */
int slot_unbook(u32 index, u64 want_ns)
{
	struct slot *s = slot_at(index), *f = s ? slot_at(s->family) : NULL;

	if (!s || !f)
		return 0;
	bpf_spin_lock(&f->lock);
	s->booked_ns -= tg_min(want_ns, s->booked_ns);
	bpf_spin_unlock(&f->lock);
	return 0;
}

/* A bucket for a task or process that comes into a family, at zero. 0: the table is full. */
u32 slot_enter(u32 family, u64 owner, u64 now)
{
	struct slot *f = slot_at(family), *s;
	u32 index;

	if (!f || !slot_use(family, family, f->owner))
		return 0;
	index = slot_take();
	s = slot_at(index);
	if (!s) {
		slot_leave(family, now);
		return 0;
	}
	slot_begin(s, family, owner);
	slot_sync(index, now);
	return index;
}

/* A bucket of its own for a forked child: half of what its parent's has. 0: it shares its parent's.
 */
u32 slot_fork(u32 parent, u64 owner, u64 now)
{
	struct slot *from = slot_at(parent), *f = from ? slot_at(from->family) : NULL, *s;
	u32 index;

	if (!from || !f || from == f)
		return 0;
	index = slot_enter(from->family, owner, now);
	s = slot_at(index);
	if (!s)
		return 0;
	bpf_spin_lock(&f->lock);
	tg_cap_fork(&from->cap, &s->cap, now, TG_CAP_IS_NEW_PROCESS);
	s->version = from->version;
	bpf_spin_unlock(&f->lock);
	return index;
}

#endif
