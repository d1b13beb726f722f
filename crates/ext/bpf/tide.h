/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Headroom: how many CPUs side work may use at this moment. crates/sim/src/sched/ext/tide.rs is the
 * same in Rust.
 *
 * A timer of a millisecond, which runs while there is side work, reads the ledger and steps the law
 * (law/headroom.h). The allowance is kept in space first: side work may hold as many whole CPUs as
 * fit in it. The fraction is kept in time: what was allowed and not used gathers as credit, which
 * opens one CPU more until it is spent. A second credit, of the floor alone, tells when side work
 * has to run though main wants every CPU.
 *
 * The floor is the tolerance, or what the watchdog makes necessary, if that is more: each waiting
 * task has to run TIDE_VISIT_NS within TIDE_ROUND_NS, half of the watchdog's time. That is 67
 * millionths of a CPU for each task of side work: 1 % of a CPU for 150 of them.
 */
#ifndef TIDEGATE_EXT_TIDE_H
#define TIDEGATE_EXT_TIDE_H

#include "headroom.h"
#include "ledger.h"

const volatile struct tg_headroom_config tide_tuning SEC(".rodata.tide");

#define TIDE_STEP_NS 1000000ULL
/* So much credit opens a CPU; so much owed displaces main. */
#define TIDE_OPEN_NS 1000000LL
/* Unused allowance is kept for so long. */
#define TIDE_KEEP_NS 10000000ULL
/* Each so much of credit opens another CPU, to catch up. */
#define TIDE_CATCH_UP_NS 5000000ULL
/* A fall by more than this part of the machine in one step is a cut. */
#define TIDE_CUT_PART 50
#define TIDE_VISIT_NS 1000000ULL
#define TIDE_ROUND_NS 15000000000ULL
/* After so long without side work the timer stops, and what the law has learnt is forgotten. */
#define TIDE_QUIET_NS 2000000000ULL
/* A timer this late is lost (lost.h). */
#define TIDE_LOST_NS 2000000000ULL

struct tide {
	struct tg_headroom law;
	struct tg_headroom_sample sample;
	struct tg_headroom_decision decision;
	u64 now_ns;
	u64 last_ns; /* of the step before; 0: there was none */
	u64 quiet_ns;
	u64 rang_ns; /* when the timer last rang, or was set anew */
	u64 idle_ns; /* in this window, as is side_ns */
	u64 side_ns;
	s64 credit_ns;
	s64 owed_ns;
	u32 online;
	u32 runs; /* CPUs that run side work */
	u32 open;
	u32 turn; /* the CPU where the search begins */
};

struct tide tide;
s32 side_members; /* tasks of side work that run or want to */
s32 side_seats;	  /* CPUs that may run it */
u32 side_forces;  /* stretches that it had at main's cost */
u32 tide_cpus;	  /* as many of them as it may use now */

struct tide_alarm {
	struct bpf_timer timer;
};

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct tide_alarm);
} tide_alarms SEC(".maps");

struct {
	MAP_UINT(type, MAP_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_UINT(map_flags, MAP_FLAG_MMAPABLE);
	MAP_TYPE(key, u32);
	MAP_TYPE(value, struct ext_tide);
} tides SEC(".maps");

/* A step takes some tens of ns a CPU: it comes more rarely on machines of more than 256. */
INLINE u64 tide_step_ns(void)
{
	return tg_max(TIDE_STEP_NS, config.cpus * 4000ULL);
}

INLINE void tide_start(void)
{
	u32 zero = 0;
	struct tide_alarm *alarm = bpf_map_lookup_elem(&tide_alarms, &zero);

	if (!alarm)
		return;
	/* First: lost.h sees the tide on with it. */
	tide.rang_ns = now_ns();
	if (__sync_val_compare_and_swap(&tide_on, 0, 1))
		return;
	tide.last_ns = 0;
	/* The next one that joins tries again. */
	if (bpf_timer_start(&alarm->timer, 0, 0))
		__sync_lock_test_and_set(&tide_on, 0);
}

/* It is set anew. */
INLINE void tide_again(u64 now)
{
	u32 zero = 0;
	struct tide_alarm *alarm = bpf_map_lookup_elem(&tide_alarms, &zero);

	if (!alarm)
		return;
	tide.rang_ns = now;
	bpf_timer_start(&alarm->timer, 0, 0);
}

/*
 * A task begins to compete in a line, or ceases to. By the line and not by the task: what kind of
 * work that is may have changed by the time it leaves.
 */
INLINE void tide_joins(u32 line)
{
	if (line % EXT_KINDS != EXT_SIDE)
		return;
	__sync_fetch_and_add(&side_members, 1);
	if (!tide_on)
		tide_start();
}

INLINE void tide_leaves(u32 line)
{
	if (line % EXT_KINDS == EXT_SIDE)
		__sync_fetch_and_add(&side_members, -1);
}

/* Reads the ledger. */
int tide_read(u64 now)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	bool fresh = !tide.last_ns;
	u32 cpu;

	EXT_RCU;
	tide.idle_ns = 0;
	tide.side_ns = 0;
	tide.online = 0;
	tide.runs = 0;
	EXT_FOR(cpu, config.cpus)
	{
		struct ledger_cpu *s = ledger_at(cpu);
		u64 idle_ns, side_ns;

		if (!s)
			break;
		ledger_check(s, cpu, now, fresh);
		idle_ns = ledger_added(s->idle, &s->idle_read, now);
		side_ns = ledger_added(s->side, &s->side_read, now);
		/* What it was while it was away is read, and counts for nothing. */
		if (!bpf_cpumask_test_cpu(cpu, online))
			continue;
		tide.idle_ns += idle_ns;
		tide.side_ns += side_ns;
		tide.runs += s->side & LEDGER_RUNS;
		tide.online++;
	}
	scx_bpf_put_cpumask(online);
	return 0;
}

/* The law's step: global, so that the verifier walks it once and for any state. */
int tide_law(void)
{
	tg_headroom_step(&tide.law, &tide.sample, &tide.decision);
	return 0;
}

/* The tuning is copied member by member: a plain copy the compiler would make of zeros. */
INLINE void tide_init(u32 headroom_ppm, u32 tolerance_ppm)
{
	struct tg_headroom_config *to = &tide.law.cfg;
	const volatile u32 *from = (const volatile u32 *)&tide_tuning;

	for (u32 at = 0; at < sizeof(*to) / sizeof(u32); at++)
		((u32 *)to)[at] = from[at];
	tg_headroom_init(&tide.law, to, headroom_ppm, tolerance_ppm);
}

/* Takes in what the loader asks. */
INLINE void tide_terms(void)
{
	u32 zero = 0;
	struct ext_control *asked = bpf_map_lookup_elem(&control, &zero);

	if (!asked)
		return;
	if (!tide.last_ns)
		tide_init(asked->headroom_ppm, asked->tolerance_ppm);
	else if (tide.law.headroom_ppm != asked->headroom_ppm ||
		 tide.law.tolerance_ppm != asked->tolerance_ppm)
		tg_headroom_terms(&tide.law, asked->headroom_ppm, asked->tolerance_ppm);
}

INLINE u64 tide_waiting(void)
{
	s32 members = *(volatile s32 *)&side_members;

	return members > (s32)tide.runs ? members - tide.runs : 0;
}

/* What the watchdog makes necessary, in millionths of a CPU. */
INLINE u64 tide_visits_ucpu(void)
{
	s32 members = *(volatile s32 *)&side_members;

	return (members > 0 ? members : 0) * (TIDE_VISIT_NS * 1000000 / TIDE_ROUND_NS);
}

/* How many CPUs side work may use until the next step. */
INLINE u32 tide_count(u64 allowance_ucpu)
{
	u64 whole = allowance_ucpu / 1000000;
	/* A debt of more than a CPU's step is worked off by a CPU less. */
	u64 less = tide.credit_ns < -TIDE_OPEN_NS;
	u64 credit_ns = tide.credit_ns > 0 ? tide.credit_ns : 0;

	/* Where main pulses on all CPUs at the same moments, one CPU in between is not enough for
	 * what is less than one, or a few. */
	return tg_min(tg_sub0(whole, less) + tide.open + credit_ns / TIDE_CATCH_UP_NS,
		      tg_min(whole + tg_max(whole / 4, 1) + 1, tg_max(tide.online, 1)));
}

/* From the decision to CPUs; `before_ucpu` is what was allowed until now. */
INLINE void tide_allow(u64 dt_ns, u64 before_ucpu)
{
	u64 floor_ucpu = tg_max(tide.decision.floor_ucpu, tide_visits_ucpu());
	u64 allowance_ucpu = tg_max(tide.decision.allowance_ucpu, floor_ucpu);
	s64 most_ns = (s64)tg_max(tg_time_ns(allowance_ucpu, TIDE_KEEP_NS), (u64)TIDE_OPEN_NS);
	s64 side_ns = (s64)tide.side_ns;

	/* Main has stepped: what was saved up under its old level is not to be spent at its new
	 * one. */
	if (before_ucpu > allowance_ucpu + tide.decision.capacity_ucpu / TIDE_CUT_PART) {
		tide.credit_ns = tg_min_s(tide.credit_ns, 0);
		tide.open = 0;
	}
	dt_ns = tg_min(dt_ns, 1000000000);
	tide.credit_ns = tg_clamp_s(
	    tide.credit_ns + (s64)tg_time_ns(allowance_ucpu, dt_ns) - side_ns, -most_ns, most_ns);
	tide.owed_ns = tg_clamp_s(tide.owed_ns + (s64)tg_time_ns(floor_ucpu, dt_ns) - side_ns,
				  -TIDE_OPEN_NS, 2 * TIDE_OPEN_NS);
	if (tide.credit_ns >= TIDE_OPEN_NS)
		tide.open = 1;
	else if (tide.credit_ns <= 0)
		tide.open = 0;
	tide_cpus = tide_count(allowance_ucpu);
}

/* Side work has waited for its floor until it must be given at main's cost. */
INLINE bool tide_owes(void)
{
	return tide.owed_ns >= TIDE_OPEN_NS;
}

INLINE void tide_report(u64 now)
{
	u32 zero = 0;
	struct ext_tide *to = bpf_map_lookup_elem(&tides, &zero);
	struct tg_headroom_decision *d = &tide.decision;

	if (!to)
		return;
	to->steps++;
	to->idle_ns += tide.idle_ns;
	to->side_ns += tide.side_ns;
	to->capacity_ns += tide.sample.capacity_ns;
	to->floor_ns += d->reason == TG_REASON_FLOOR ? tide.sample.dt_ns : 0;
	to->forced = side_forces;
	to->longest_ns = tg_max(to->longest_ns, tide.sample.dt_ns);
	to->allowance_ucpu = d->allowance_ucpu;
	to->floor_ucpu = tg_max(d->floor_ucpu, tide_visits_ucpu());
	to->capacity_ucpu = d->capacity_ucpu;
	to->asked_ucpu = d->asked_ucpu;
	to->main_ucpu = d->main_est_ucpu;
	to->side_ucpu = d->side_ucpu;
	to->idle_ucpu = d->idle_ucpu;
	to->trim_ucpu = d->trim_ucpu;
	to->reason = d->reason;
	to->alarms = d->alarms;
	to->cpus = tide_cpus;
	to->running = tide.runs;
	to->waiting = tide_waiting();
	to->at_ns = now;
}

INLINE void tide_step(u64 now)
{
	u64 before_ucpu = tide.decision.allowance_ucpu, dt_ns;
	bool fresh = !tide.last_ns;

	tide_terms();
	tide_read(now);
	dt_ns = tg_sub0(now, tide.last_ns);
	tide.last_ns = now;
	if (fresh) {
		tide.decision.allowance_ucpu = 0;
		tide.credit_ns = 0;
		tide.owed_ns = 0;
		tide.open = 0;
		tide.quiet_ns = 0;
		tide_cpus = 0;
		return;
	}
	tide.sample.dt_ns = dt_ns;
	tide.sample.capacity_ns = dt_ns * tide.online;
	tide.sample.busy_ns = tg_sub0(tide.sample.capacity_ns, tide.idle_ns);
	tide.sample.side_ns = tide.side_ns;
	tide.sample.granularity_ns = 0;
	tide.sample.valid = 1;
	tide_law();
	tide_allow(dt_ns, before_ucpu);
	tide_report(now);
}

/* Whether there is side work, or was a moment ago; if not, the tide is off. */
INLINE bool tide_goes_on(u64 now)
{
	if (*(volatile s32 *)&side_members > 0) {
		tide.quiet_ns = 0;
		return true;
	}
	if (!tide.quiet_ns)
		tide.quiet_ns = now;
	if (now - tide.quiet_ns < TIDE_QUIET_NS)
		return true;
	tide.last_ns = 0;
	tide_cpus = 0;
	__sync_lock_test_and_set(&tide_on, 0);
	/* One who came meanwhile has seen the timer on, and not started it. */
	return *(volatile s32 *)&side_members > 0 && !__sync_val_compare_and_swap(&tide_on, 0, 1);
}

#endif
