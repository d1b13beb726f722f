/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * headroom_types.h - what goes into the headroom law, what comes out, and what
 * it remembers.
 */
#ifndef TG_LAW_HEADROOM_TYPES_H
#define TG_LAW_HEADROOM_TYPES_H

#include "base.h"

enum tg_reason {
	TG_REASON_WARMUP = 0,  /* no history yet: the tolerance */
	TG_REASON_RAMP = 1,    /* rising, held by the slope */
	TG_REASON_TRACK = 2,   /* the formula */
	TG_REASON_CUT = 3,     /* a detector fired in this window */
	TG_REASON_FLOOR = 4,   /* main leaves less than the tolerance */
	TG_REASON_STALE = 5,   /* no usable sample for TG_FRESH_US: the tolerance */
	TG_REASON_RESTORE = 6, /* the last cut was a false alarm: back at once */
	TG_REASON_SKIP = 7,    /* this sample is not usable: the last decision stands */
};

/* Tuning; law/headroom.md gives the reason for each default. */
struct tg_headroom_config {
	tg_u32 mean_min_us;	/* span of the mean of a quiet main, >= 1000 */
	tg_u32 mean_max_us;	/* span of the mean of a noisy main */
	tg_u32 mean_error_ppm;	/* error of the mean to aim at, of the domain */
	tg_u32 lead_us;		/* a climb of main is led by this long */
	tg_u32 warm_us;		/* history wanted before anything is given */
	tg_u32 trim_us;		/* integration time of the trim */
	tg_u32 trim_max_ppm;	/* bound of the trim, of the domain */
	tg_u32 raise_ppm_per_s; /* slope of rises, of the domain */
	tg_u32 fine_min_ppm;	/* margin of the fine detector, least and most */
	tg_u32 fine_max_ppm;
	tg_u32 coarse_ppm;	  /* margin of the coarse detector */
	tg_u32 alarm;		  /* exponent of the false alarm interval, <= 64 */
	tg_u32 fine_threshold_us; /* least threshold of the fine one, CPU time per CPU */
	tg_u32 coarse_min_us;	  /* least and most threshold of the coarse one, per CPU */
	tg_u32 coarse_max_us;
	tg_u32 proof_us;       /* main back at its old level for this long: false alarm */
	tg_u32 doubt_us;       /* after this long an alarm counts as true */
	tg_u32 noise_block_us; /* time over which main's noise is judged */
	tg_u32 fall_us;	       /* main low for this long before the mean restarts lower */
	tg_u32 calm_us;	       /* this long after a step or ramp the trim stands still */
	tg_u32 dt_max_us;      /* a longer window is stale, <= 10 s */
	tg_u32 contend_ppm;    /* main slowed by side work on all CPUs; 0: it is not */
	tg_u32 displaced;      /* main displaces side work at once: its pulses need no cut */
};

struct tg_headroom_sample {
	tg_u64 dt_ns;	       /* wall time of the window */
	tg_u64 capacity_ns;    /* CPU time there was: CPUs * dt less steal */
	tg_u64 busy_ns;	       /* used by anybody */
	tg_u64 side_ns;	       /* used by side work */
	tg_u64 granularity_ns; /* how far off busy or side may be, per CPU */
	tg_u32 valid;	       /* 0: the sensor does not vouch for it */
	tg_u32 pad;
};

struct tg_headroom_decision {
	tg_u64 allowance_ucpu; /* what side work may use from here on */
	tg_u64 floor_ucpu;     /* the tolerance */
	tg_u64 capacity_ucpu;  /* the domain, mean */
	tg_u64 asked_ucpu;     /* idle asked for */
	tg_u64 main_est_ucpu;  /* estimate of main */
	tg_u64 main_now_ucpu;  /* main in this window */
	tg_u64 side_ucpu;      /* side work's use, mean */
	tg_u64 idle_ucpu;      /* idle kept, mean of about one second */
	tg_u64 noise_ucpu;     /* expected error of main_est */
	tg_s64 trim_ucpu;
	enum tg_reason reason;
	tg_u32 alarms; /* detectors fired since the start, wraps */
};

struct tg_detector {
	tg_u64 sum_ns; /* main beyond estimate + margin, <= 1 s of the domain */
	tg_u64 age_us; /* time since the sum was zero */
};

/* Windows of main that are judged together, for its noise. */
struct tg_block {
	tg_u64 used_ns, expected_ns, age_us;
	tg_u64 last_ucpu; /* the block before, and whether there was one */
	tg_u64 filled;
};

/*
 * What an alarm put aside, until it is proved or refuted. Legal transitions:
 * open_us 0 (none) -> alarm -> counting up -> refuted or doubt_us passed -> 0.
 * An alarm while one is open keeps what the first put aside.
 */
struct tg_probation {
	tg_u64 open_us;		  /* time since the alarm + 1; 0: none open */
	tg_u64 block_us, used_ns; /* time and main since the last judgement */
	tg_u64 main_ncpu;	  /* the estimate before it */
	tg_u64 beside_ncpu;	  /* beside which side work */
	tg_u64 noise_us;	  /* the noise before it */
	tg_u64 out_ucpu;	  /* the allowance before it */
	tg_u64 margin_ucpu;	  /* of the detector that fired */
};

struct tg_headroom {
	struct tg_headroom_config cfg;
	tg_u32 headroom_ppm, tolerance_ppm;
	tg_u64 history_us;  /* since the start, or since everything was forgotten */
	tg_u64 unseen_us;   /* since the last usable sample */
	tg_u64 ahead_ns;    /* side work that was counted before the busy time it is part of */
	tg_u64 mean_age_us; /* since the mean was restarted */
	tg_u64 capacity_ncpu, main_ncpu, side_ncpu, idle_ncpu;
	tg_u64 given_ncpu;	/* the allowance, mean of about one second */
	tg_u64 noise_us;	/* variance rate of main: us^2 per us */
	tg_u64 noise_main_ncpu; /* the level of main at which it was learnt */
	tg_s64 trim_ncpu;
	tg_u64 out_ucpu; /* the last allowance */
	struct tg_detector fine, coarse, fall;
	struct tg_probation probation;
	struct tg_block block;
	tg_u64 calm_us;	       /* since a step, a ramp or the start */
	tg_u64 steady_us;      /* since main was seen to drift */
	tg_u64 trail_ncpu;     /* mean of the mean: how main moves */
	tg_u64 tail_ncpu;      /* mean of that: how it moves, without hiccups */
	tg_u64 beside_ncpu;    /* side work, a mean over the same span as main's */
	tg_u64 side_last_ucpu; /* side work in the window before */
	tg_u32 alarms, pad;
};

#endif /* TG_LAW_HEADROOM_TYPES_H */
