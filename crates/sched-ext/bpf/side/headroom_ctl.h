/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Headroom: how many CPUs side work may use at this moment.
 *
 *	timer, 1 ms while there is side work (2 s longer):
 *	  headroom_read		CPU time since the last step (cpu_time.h)
 *	  headroom_law		law/headroom.h: the allowance
 *	  tg_side_step		law/side_cpus.h: whole CPUs, and credits for the fraction
 *	  side_cpus_adjust	CPUs agree with that (side_cpus.h)
 */
#ifndef TIDEGATE_EXT_HEADROOM_CTL_H
#define TIDEGATE_EXT_HEADROOM_CTL_H

#include "core/cpu_time.h"
#include "headroom.h"

const volatile struct tg_headroom_config headroom_tuning SEC(".rodata.headroom");

/* A timer this late is lost (timer_guard.h). */
#define HEADROOM_LATE_NS 2000000000ULL

struct headroom {
	struct tg_headroom law;
	struct tg_headroom_sample sample;
	struct tg_headroom_decision decision;
	u64 last_ns; /* of the step before; 0: there was none */
	u64 quiet_ns;
	u64 fired_ns; /* when the timer last fired, or was set again */
	u64 idle_ns;  /* in this window, as is side_ns */
	u64 side_ns;
	struct tg_side_credit credit;
	u32 online;
	u32 runs; /* CPUs that run side work */
	u32 turn; /* the CPU where the search begins */
};

struct headroom headroom;
s32 side_members;      /* tasks of side work that run or want to */
s32 nr_side_cpus;      /* CPUs that may run it */
u32 side_cpus_allowed; /* as many of them as it may use now */

struct headroom_timer {
	struct bpf_timer timer;
};

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct headroom_timer);
} headroom_timers SEC(".maps");

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_UINT(map_flags, MAP_FLAG_MMAPABLE);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct ext_headroom);
} headroom_reports SEC(".maps");

/* It comes more rarely on machines of more than 250 CPUs. */
INLINE u64 headroom_step_ns(void)
{
	return tg_max(TG_HEADROOM_STEP_NS, config.cpus * TG_HEADROOM_STEP_CPU_NS);
}

INLINE void headroom_start(void)
{
	u32 zero = 0;
	struct headroom_timer *slice_timer = bpf_map_lookup_elem(&headroom_timers, &zero);

	if (!slice_timer)
		return;
	/* First: timer_guard.h looks at it once headroom_on is set. */
	headroom.fired_ns = now_ns();
	if (__sync_val_compare_and_swap(&headroom_on, 0, 1))
		return;
	headroom.last_ns = 0;
	/* The next one that joins tries again. */
	if (bpf_timer_start(&slice_timer->timer, 0, 0))
		__sync_lock_test_and_set(&headroom_on, 0);
}

/* A late timer is set again. */
INLINE void headroom_restart(u64 now)
{
	u32 zero = 0;
	struct headroom_timer *slice_timer = bpf_map_lookup_elem(&headroom_timers, &zero);

	if (!slice_timer)
		return;
	headroom.fired_ns = now;
	bpf_timer_start(&slice_timer->timer, 0, 0);
}

/*
 * A task enters or leaves a run queue. By the run queue and not by the task: its kind of work may
 * have changed by the time it leaves.
 */
INLINE void headroom_side_activated(u32 runqueue)
{
	if (runqueue % EXT_KINDS != EXT_SIDE)
		return;
	__sync_fetch_and_add(&side_members, 1);
	if (!headroom_on)
		headroom_start();
}

INLINE void headroom_side_deactivated(u32 runqueue)
{
	if (runqueue % EXT_KINDS == EXT_SIDE)
		__sync_fetch_and_add(&side_members, -1);
}

/* Reads CPU time. */
int headroom_read(u64 now)
{
	bool fresh = !headroom.last_ns;
	u32 cpu;

	EXT_RCU;
	headroom.idle_ns = 0;
	headroom.side_ns = 0;
	headroom.online = 0;
	headroom.runs = 0;
	EXT_FOR(cpu, config.cpus)
	{
		struct cpu_time *s = cpu_time_at(cpu);
		u64 idle_ns, side_ns;

		if (!s)
			break;
		cpu_time_check(s, cpu, now, fresh);
		idle_ns = stopwatch_delta(s->idle, &s->idle_read, now);
		side_ns = stopwatch_delta(s->side, &s->side_read, now);
		if (s->offline)
			continue;
		headroom.idle_ns += idle_ns;
		headroom.side_ns += side_ns;
		headroom.runs += s->side & STOPWATCH_RUNS;
		headroom.online++;
	}
	return 0;
}

/* The law's step: global, so that the verifier walks it once and for any state. */
int headroom_law(void)
{
	tg_headroom_step(&headroom.law, &headroom.sample, &headroom.decision);
	return 0;
}

/* The tuning is copied member by member: a plain copy the compiler would make of zeros. */
INLINE void headroom_init(u32 headroom_ppm, u32 tolerance_ppm)
{
	struct tg_headroom_config *to = &headroom.law.cfg;
	const volatile u32 *from = (const volatile u32 *)&headroom_tuning;

	for (u32 at = 0; at < sizeof(*to) / sizeof(u32); at++)
		((u32 *)to)[at] = from[at];
	tg_headroom_init(&headroom.law, to, headroom_ppm, tolerance_ppm);
}

/* Takes in what the loader asks. */
INLINE void headroom_terms(void)
{
	struct ext_control *asked = ext_shared();

	if (!asked)
		return;
	if (!headroom.last_ns)
		headroom_init(asked->headroom_ppm, asked->tolerance_ppm);
	else if (headroom.law.headroom_ppm != asked->headroom_ppm ||
		 headroom.law.tolerance_ppm != asked->tolerance_ppm)
		tg_headroom_terms(&headroom.law, asked->headroom_ppm, asked->tolerance_ppm);
}

INLINE u64 side_waiting(void)
{
	s32 members = *(volatile s32 *)&side_members;

	return members > (s32)headroom.runs ? members - headroom.runs : 0;
}

/* Tasks of side work that run or want to. */
INLINE u64 side_members_now(void)
{
	s32 members = *(volatile s32 *)&side_members;

	return members > 0 ? members : 0;
}

/* From the decision to CPUs; `before_ucpu` is what was allowed until now. Global, as headroom_law.
 */
__attribute__((noinline)) int headroom_allow(u64 dt_ns, u64 before_ucpu)
{
	tg_side_step(&headroom.credit, &headroom.decision, before_ucpu, dt_ns, headroom.side_ns,
		     side_members_now(), headroom.online);
	side_cpus_allowed = headroom.credit.cpus;
	return 0;
}

INLINE void headroom_report(void)
{
	u32 zero = 0;
	struct ext_headroom *to = bpf_map_lookup_elem(&headroom_reports, &zero);
	struct tg_headroom_decision *d = &headroom.decision;

	if (!to)
		return;
	to->steps++;
	to->allowance_ucpu = d->allowance_ucpu;
	to->floor_ucpu = tg_side_floor_ucpu(d, side_members_now());
	to->capacity_ucpu = d->capacity_ucpu;
	to->asked_ucpu = d->asked_ucpu;
	to->main_ucpu = d->main_est_ucpu;
	to->side_ucpu = d->side_ucpu;
	to->idle_ucpu = d->idle_ucpu;
	to->reason = d->reason;
	to->alarms = d->alarms;
}

INLINE void headroom_step(u64 now)
{
	u64 before_ucpu = headroom.decision.allowance_ucpu, dt_ns;
	bool fresh = !headroom.last_ns;

	headroom_terms();
	headroom_read(now);
	dt_ns = tg_sub0(now, headroom.last_ns);
	headroom.last_ns = now;
	if (fresh) {
		headroom.decision.allowance_ucpu = 0;
		headroom.credit.credit_ns = 0;
		headroom.credit.owed_ns = 0;
		headroom.credit.open = 0;
		headroom.quiet_ns = 0;
		side_cpus_allowed = 0;
		return;
	}
	headroom.sample.dt_ns = dt_ns;
	headroom.sample.capacity_ns = dt_ns * headroom.online;
	headroom.sample.busy_ns = tg_sub0(headroom.sample.capacity_ns, headroom.idle_ns);
	headroom.sample.side_ns = headroom.side_ns;
	headroom.sample.granularity_ns = 0;
	headroom.sample.valid = 1;
	headroom_law();
	headroom_allow(dt_ns, before_ucpu);
	headroom_report();
}

/* Whether there is side work, or was a moment ago; if not, the timer is off. */
INLINE bool headroom_goes_on(u64 now)
{
	if (*(volatile s32 *)&side_members > 0) {
		headroom.quiet_ns = 0;
		return true;
	}
	if (!headroom.quiet_ns)
		headroom.quiet_ns = now;
	if (now - headroom.quiet_ns < TG_HEADROOM_QUIET_NS)
		return true;
	headroom.last_ns = 0;
	side_cpus_allowed = 0;
	__sync_lock_test_and_set(&headroom_on, 0);
	/* A task that came meanwhile has seen the timer on, and not started it. */
	return *(volatile s32 *)&side_members > 0 &&
	       !__sync_val_compare_and_swap(&headroom_on, 0, 1);
}

#endif
