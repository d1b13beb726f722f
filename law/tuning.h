/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * tuning.h - the constants of Tidegate's own scheduler (crates/sched-ext).
 */
#ifndef TG_LAW_TUNING_H
#define TG_LAW_TUNING_H

/* ---- enqueue, pick, placement ---- */

/*
 * Brings a deadline before those of all tasks that have not won against a running one; such
 * deadlines keep their own order.
 */
#define TG_ENQUEUE_FRONT (1ULL << 44)
/*
 * Tasks that may not run on a CPU and that it passes over in one pick, with interrupts off: some
 * 50 ns each. It puts them into the queues of their own CPUs, and goes on behind them in the next.
 */
#define TG_PICK_SCAN_MAX 64
/* The same of background work, which a CPU picks that has no other: it stays where it is. */
#define TG_PICK_BACKGROUND_SCAN_MAX 1024
/* Tasks among which a pick looks for one that ran last on the CPU (tg_runqueue_is_near). */
#define TG_PICK_NEAR_SCAN_MAX 4
/* Tasks that one pick puts in order again because their weights have changed. */
#define TG_PICK_REWEIGH_MAX 4
/* Between two looks of a CPU at weights: what one costs is little beside that. */
#define TG_PICK_REWEIGH_NS 250000ULL
/* Between two looks at whether another cache has more work waiting. */
#define TG_PICK_BALANCE_NS 4000000ULL
/* The most of tg_runqueue_undisturbed_ns: the fair class's slice on one CPU. */
#define TG_UNDISTURBED_MAX_NS 700000ULL
/* Running tasks that a waking one is compared with. */
#define TG_PLACE_SCAN_MAX 16
/* CPUs of its cache that are looked at for an idle core. */
#define TG_SMT_SPREAD_SCAN_MAX 16
/*
 * With more tasks than this for each CPU of a cache, a waiting task waits for several others
 * and the tick is soon enough; ending each slice on time would only make them switch more
 * often (hackbench of 160 tasks: 7 % longer than under EEVDF).
 */
#define TG_RESCHED_TASKS_MAX 8

/* ---- side work ---- */

/* The headroom timer's step .. */
#define TG_HEADROOM_STEP_NS 1000000ULL
/* .. or, if that is more, so much a CPU: a step takes some tens of ns for each. */
#define TG_HEADROOM_STEP_CPU_NS 4000ULL
/* After so long without side work the timer stops, and what the law has learnt is dropped. */
#define TG_HEADROOM_QUIET_NS 2000000000ULL
/* So much credit opens a CPU; so much owed displaces main. */
#define TG_SIDE_CREDIT_NS 1000000ULL
/* Unused allowance is kept for so long. */
#define TG_SIDE_CREDIT_KEEP_NS 10000000ULL
/* Each so much of credit opens another CPU, to catch up. */
#define TG_SIDE_CATCH_UP_NS 5000000ULL
/* A fall by more than this part of the machine in one step is a cut. */
#define TG_SIDE_CUT_PART 50
/* What the kernel's watchdog makes necessary: a run of this length .. */
#define TG_SIDE_MIN_RUNTIME_NS 1000000ULL
/* .. in this time, half of the watchdog's, for each task of side work. */
#define TG_SIDE_ROUND_NS 15000000000ULL
/* How long the tolerance is taken from main at a time. */
#define TG_SIDE_FORCED_NS 1000000ULL

/* ---- quotas and caps ---- */

/* A group that is out of quota while its pool is not is looked at again so much later. */
#define TG_LIMIT_SOON_NS 20000ULL
/* The least run that a cap lets begin; a timer ends it at the very moment. */
#define TG_CAP_RUN_MIN_NS 10000ULL
/*
 * What a run borrows of a cap's bucket that has it: a task that joins finds the rest.
 */
#define TG_CAP_LEND_NS 1000000ULL
/*
 * What a task that a cap has throttled gets at once, if the bucket can hold four times that.
 */
#define TG_CAP_RESERVE_NS 500000ULL
/* A task that a cap holds back is looked at no later than after this .. */
#define TG_CAP_RECHECK_NS 500000000ULL
/* .. and after a look in vain no sooner than after this. */
#define TG_CAP_AGAIN_NS 100000ULL

#endif /* TG_LAW_TUNING_H */
