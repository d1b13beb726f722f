//! Headroom and sharing, broken.

use super::Mutant;

/// Ordered by header, as they are read.
pub const TABLE: &[Mutant] = &[
    Mutant {
        header: "headroom.h",
        what: "hold on stale samples",
        from: "\t\ttg_headroom_forget(h);\n\t\th->out_ucpu = floor_ucpu;",
        to: "\t\th->out_ucpu = tg_max(h->out_ucpu, floor_ucpu);",
    },
    Mutant {
        header: "headroom.h",
        what: "believe what nobody vouches for",
        from: "\tif (!s->valid || s->dt_ns",
        to: "\tif (s->dt_ns",
    },
    Mutant {
        header: "headroom.h",
        what: "believe more use than there is",
        from: "\tif (s->busy_ns > s->capacity_ns + slack)\n\t\treturn 0;\n",
        to: "\n",
    },
    Mutant {
        header: "headroom.h",
        what: "believe more side work than work",
        from: "\treturn s->side_ns <= s->busy_ns + slack;",
        to: "\treturn 1;",
    },
    Mutant {
        header: "headroom.h",
        what: "drop the trim",
        from: "\th->trim_ncpu = tg_clamp_s(next, -most, most);",
        to: "\th->trim_ncpu = 0;",
    },
    Mutant {
        header: "headroom.h",
        what: "a trim without bound",
        from: "\th->trim_ncpu = tg_clamp_s(next, -most, most);",
        to: "\th->trim_ncpu = next;",
    },
    Mutant {
        header: "headroom.h",
        what: "the trim winds up while side work is not hungry",
        from: "(!hungry && next > h->trim_ncpu && next > 0)",
        to: "0",
    },
    Mutant {
        header: "headroom.h",
        what: "the trim learns from a step",
        from: "\tif (h->calm_us < h->cfg.calm_us)\n\t\treturn;\n",
        to: "\n",
    },
    Mutant {
        header: "headroom.h",
        what: "no tolerance",
        from: "\tif (want <= floor_ucpu) {",
        to: "\tif (0) {",
    },
    Mutant {
        header: "headroom.h",
        what: "rise at once",
        from: "\tif (want > tg_max(h->out_ucpu, floor_ucpu) + rise) {",
        to: "\tif (0) {",
    },
    Mutant {
        header: "headroom.h",
        what: "give without history",
        from: "\tif (h->history_us < h->cfg.warm_us) {",
        to: "\tif (0) {",
    },
    Mutant {
        header: "headroom.h",
        what: "headroom counts for nothing",
        from: "\ttg_u64 used = asked_ucpu + main_ucpu +",
        to: "\ttg_u64 used = main_ucpu +",
    },
    Mutant {
        header: "headroom.h",
        what: "wrong clamp: more than there is",
        from: "\ttg_u64 want = tg_min(tg_sub0(have, used), cap_ucpu);",
        to: "\ttg_u64 want = tg_sub0(have, used);",
    },
    Mutant {
        header: "headroom.h",
        what: "a refuted cut is not taken back",
        from: "\t\th->out_ucpu = tg_max(h->out_ucpu, h->probation.out_ucpu);",
        to: "\t\t;",
    },
    Mutant {
        header: "estimate.h",
        what: "deaf detectors",
        from: "\treturn d->sum_ns > threshold_ns;",
        to: "\treturn 0;",
    },
    Mutant {
        header: "estimate.h",
        what: "no coarse detector",
        from: "\tif (!fine_fired && !coarse_fired)",
        to: "\tif (!fine_fired)",
    },
    Mutant {
        header: "estimate.h",
        what: "no alarm is ever refuted",
        from: "\tif (mean_ucpu > most_ucpu)\n\t\treturn 0;",
        to: "\tif (1)\n\t\treturn 0;",
    },
    Mutant {
        header: "estimate.h",
        what: "every alarm is refuted",
        from: "\tif (mean_ucpu > most_ucpu)\n\t\treturn 0;",
        to: "\n",
    },
    Mutant {
        header: "estimate.h",
        what: "a climb is not led",
        from: "\treturn tg_min(now + lead, cap_ucpu);",
        to: "\treturn now;",
    },
    Mutant {
        header: "estimate.h",
        what: "the mean of main stands still",
        from: "\th->main_ncpu = tg_mean(h->main_ncpu, main_now, weight_16);",
        to: "\t;",
    },
    Mutant {
        header: "estimate.h",
        what: "thresholds do not follow the noise",
        from: "\ttg_u64 num = (tg_u64)h->cfg.alarm * h->noise_us * 500;",
        to: "\ttg_u64 num = 0;",
    },
    Mutant {
        header: "noise.h",
        what: "noise is not learnt",
        from: "\t\th->noise_us = tg_mean(h->noise_us, rate, weight_16);",
        to: "\t\t;",
    },
    Mutant {
        header: "noise.h",
        what: "the root is one too large",
        from: "\treturn root * root > x ? root - 1 : root;",
        to: "\treturn root + 1;",
    },
    Mutant {
        header: "share.h",
        what: "floors count for nothing",
        from: "\treturn tg_max(tg_min(d->floor_ucpu, TG_UCPU_MAX), tg_min(most, part));",
        to: "\treturn tg_min(most, part);",
    },
    Mutant {
        header: "share.h",
        what: "demand counts for nothing",
        from: "\treturn tg_max(tg_min(d->floor_ucpu, TG_UCPU_MAX), tg_min(most, part));",
        to: "\treturn tg_max(tg_min(d->floor_ucpu, TG_UCPU_MAX), part);",
    },
    Mutant {
        header: "share.h",
        what: "weights count for nothing",
        from: "\treturn tg_clamp(d->weight, 1, TG_WEIGHT_MAX);",
        to: "\treturn 1;",
    },
    Mutant {
        header: "share.h",
        what: "what is left over is kept",
        from: "\t\ttg_share_rest(allowance - sum, d, n, out);",
        to: "\t\t;",
    },
    Mutant {
        header: "share.h",
        what: "the last ucpu is handed to nobody",
        from: "\t\tif (i >= rest - given)",
        to: "\t\tif (1)",
    },
    Mutant {
        header: "share.h",
        what: "the level is too high",
        from: "\t\tint fits = tg_share_sum(d, n, mid) <= allowance;",
        to: "\t\tint fits = tg_share_sum(d, n, mid) <= allowance + 100;",
    },
];
