/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* harm_types.h - what the measurement of harm is told, keeps and answers. */
#ifndef TG_LAW_HARM_TYPES_H
#define TG_LAW_HARM_TYPES_H

#include "base.h"

/* Runnable tasks of main; more is no measurement. 2^17. */
#define TG_HARM_TASKS_MAX 131072ULL
/* A ratio above counts as this: a thousandfold. */
#define TG_HARM_RATIO_MAX 1000000000ULL
/* A block is at most so long. */
#define TG_HARM_BLOCK_MAX_US 10000000ULL

/* The two levels that are compared: of side work's allowance, the lower and the higher. */
enum tg_harm_arm {
	TG_HARM_LOW = 0,
	TG_HARM_HIGH = 1,
};

enum tg_harm_verdict {
	TG_HARM_UNKNOWN = 0, /* the reason tells why */
	TG_HARM_NONE = 1,    /* the upper bound is below the aim, the lower one at no harm */
	TG_HARM_FOUND = 2,   /* the lower bound is above no harm */
};

enum tg_harm_reason {
	TG_HARM_KNOWN = 0,
	TG_HARM_TOO_LITTLE = 1,	   /* the interval is too wide */
	TG_HARM_CONTRADICTING = 2, /* the signals of an open and of a closed main disagree */
	TG_HARM_DRIFT = 3,	   /* main, or the effect, changes faster than it is compared */
	TG_HARM_VOID = 4,	   /* more time was void than was of use */
};

enum tg_harm_wish {
	TG_HARM_HOLD = 0,
	TG_HARM_RAISE = 1, /* more headroom: the lower bound is above the aim */
	TG_HARM_LOWER = 2, /* less headroom: the upper bound is below the aim */
};

enum tg_harm_phase {
	TG_HARM_LEARN = 0, /* even switching */
	TG_HARM_PROBE = 1, /* one level, and rare probes of the other */
};

/* What is compared. */
enum tg_harm_signal {
	TG_HARM_RUNNABLE = 0, /* mean number of runnable tasks */
	TG_HARM_CPU = 1,      /* of those, running */
	TG_HARM_DELAY = 2,    /* of those, waiting */
	TG_HARM_STRETCH = 3,  /* runnable time per CPU time */
	TG_HARM_TAIL = 4,     /* share of turns that begin late */
	TG_HARM_SIGNALS = 5,
};

struct tg_harm_config {
	tg_u32 aim_ppm;	      /* harm that is accepted, 1..10^6 */
	tg_u32 z_pct;	      /* bounds, hundredths of a standard error, 100..1000 */
	tg_u32 block_us;      /* a level is held for this long in a pair, 1 ms..10 s */
	tg_u32 guard_us;      /* after a switch nothing counts for this long, <= block / 2 */
	tg_u32 pairs_min;     /* before a verdict, 4..1000; checks for harm: at 1, 2, 4, .. of it */
	tg_u32 turns_min;     /* with fewer in all, "none" is not said */
	tg_u32 half_us;	      /* half-life of evidence while it learns, >= 1 s */
	tg_u32 learn_us;      /* learning ends, whatever is known */
	tg_u32 probe_us;      /* mean time between probes, >= 10 blocks */
	tg_u32 suspect_pct;   /* probes that are off by this: hundredths of a standard error */
	tg_u32 retry_us;      /* from giving up until it learns again */
	tg_u32 window_max_us; /* a longer window is void, <= 10 s */
	tg_u32 tail_ppm; /* share of turns that may be late by side work, <= 10^6; 0: no tail */
};

struct tg_harm_window {
	tg_u64 length_ns;
	tg_u64 turns;	 /* times that a task of main began to run */
	tg_u64 delay_ns; /* sum of what they had waited */
	tg_u64 cpu_ns;	 /* main's CPU time */
	tg_u64 late;	 /* of the turns, those that had waited for longer than is asked for */
	tg_u32 arm;	 /* enum tg_harm_arm that was in force for all of it */
	tg_u32 valid;	 /* 0: the sensor does not vouch for it */
};

struct tg_harm_answer {
	tg_u32 arm;	/* enum tg_harm_arm, for the next window */
	tg_u32 verdict; /* enum tg_harm_verdict */
	tg_u32 reason;	/* enum tg_harm_reason, of UNKNOWN */
	tg_u32 wish;	/* enum tg_harm_wish */
	/* main at HIGH over main at LOW: 10^6 is no harm */
	tg_u32 ratio_ppm, lower_ppm, upper_ppm;
	tg_u32 closed; /* 1: the ratio is of the stretch, for a closed set of callers */
	/* share of late turns at HIGH less that at LOW, within 10^6 */
	tg_s32 tail_ppm, tail_lower_ppm, tail_upper_ppm;
	tg_u32 by_tail; /* 1: that harm is found, or none is, hangs on the tail alone */
};

/*
 * One signal of the pairs so far, in 2^-17 of its level, with what is old forgotten.
 * |diff| <= sum < 2^30; diff_square < 2^48.
 */
struct tg_harm_sums {
	tg_s64 diff;	    /* HIGH less LOW */
	tg_u64 sum;	    /* HIGH and LOW */
	tg_u64 diff_square; /* each pair's, squared */
	tg_u64 level;	    /* mean of HIGH and LOW together, < 2^39 */
	tg_u64 noise;	    /* mean of what a pair is off by, squared, < 2^39 */
};

/* What main did in one block, without guard and void windows. */
struct tg_harm_block {
	tg_u64 used_us, cpu_ns, delay_ns, turns, late;
};

struct tg_harm {
	struct tg_harm_config cfg;
	struct tg_harm_answer answer;
	tg_u64 random;
	tg_u32 phase;		 /* enum tg_harm_phase */
	tg_u32 held;		 /* enum tg_harm_arm, outside of pairs */
	tg_u32 place;		 /* 0: no pair is under way; 1, 2: in its first, second block */
	tg_u32 in_guard;	 /* 1: what main does now may still be the other level's */
	tg_u32 pairs;		 /* since learning began, stops at 2^20 */
	tg_u32 learns;		 /* times that learning began, wraps */
	tg_u64 phase_us;	 /* since the phase began */
	tg_u64 gap_us;		 /* until the next pair */
	tg_u64 age_us;		 /* of this block */
	tg_u64 void_us, used_us; /* since learning began */
	tg_u64 turns;		 /* of its pairs */
	tg_u64 since_pair_us;
	struct tg_harm_block block[2]; /* by arm */
	struct tg_harm_sums sums[TG_HARM_SIGNALS];
	tg_s64 trend; /* second block less first, of RUNNABLE; else as its diff */
	/* Of the time that work takes, and of the tail: */
	tg_s64 known_20[2]; /* what was learnt: diff / sum, in 2^-20 */
	tg_s64 watch[2];    /* sum of what probes are off from it by, what is old forgotten */
	tg_u32 why;	    /* enum tg_harm_reason for which it learns */
	tg_u32 look;	    /* pairs at the next check for harm; doubles, <= 2^21 */
};

#endif /* TG_LAW_HARM_TYPES_H */
