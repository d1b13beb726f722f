//! Run delay, broken.

use super::Mutant;

/// As they are read.
pub const TABLE: &[Mutant] = &[
    Mutant {
        header: "delay.h",
        what: "above the bound",
        from: "tg_min(d->extra_ppb + step_ppb, most_ppb)",
        to: "d->extra_ppb + step_ppb",
    },
    Mutant {
        header: "delay.h",
        what: "raises stay small",
        from: "step_ppb = tg_max(step_ppb, d->extra_ppb / 2)",
        to: "step_ppb = step_ppb",
    },
    Mutant {
        header: "delay.h",
        what: "what main does to itself counts",
        from: "cause = d->side_ppm >= tg_min(e->floor_ppm, TG_PPM) + d->cfg.side_ppm;",
        to: "cause = 1;",
    },
    Mutant {
        header: "delay.h",
        what: "the tolerance counts as a cause",
        from: "tg_min(e->floor_ppm, TG_PPM) + d->cfg.side_ppm",
        to: "d->cfg.side_ppm",
    },
    Mutant {
        header: "delay.h",
        what: "runs that are not late weigh nothing",
        from: "runs * d->share_ppm)",
        to: "0)",
    },
    Mutant {
        header: "delay.h",
        what: "a raise is judged before it can act",
        from: "if (d->quiet_us > d->cfg.settle_us) {",
        to: "if (1) {",
    },
    Mutant {
        header: "delay.h",
        what: "never in vain",
        from: "return 2 * (top_late >> down)",
        to: "return 0 && 2 * (top_late >> down)",
    },
    Mutant {
        header: "delay.h",
        what: "always in vain",
        from: "return 2 * (top_late >> down)",
        to: "return 1 || 2 * (top_late >> down)",
    },
    Mutant {
        header: "delay.h",
        what: "no rest after a raise in vain",
        from: "\t\td->rest_us = d->cfg.rest_us;\n",
        to: "",
    },
    Mutant {
        header: "delay.h",
        what: "in vain before it was tried",
        from: "d->top_us >= d->cfg.vain_us && tg_delay_in_vain(d)",
        to: "tg_delay_in_vain(d)",
    },
    Mutant {
        header: "delay.h",
        what: "nothing is held",
        from: "d->quiet_us >= d->cfg.hold_us",
        to: "1",
    },
    Mutant {
        header: "delay.h",
        what: "nothing is released",
        from: "tg_max(tg_sub0(d->extra_ppb, by_ppb), least_ppb)",
        to: "d->extra_ppb",
    },
    Mutant {
        header: "delay.h",
        what: "rounded down below what was found",
        from: "(d->extra_ppb + grain_ppb - 1) / grain_ppb",
        to: "d->extra_ppb / grain_ppb",
    },
    Mutant {
        header: "delay.h",
        what: "bad evidence is believed",
        from: "if (!tg_delay_sane(&d->cfg, e)) {",
        to: "if (e->dt_ns < 1000 || e->capacity_ns < 1000) {",
    },
    Mutant {
        header: "delay.h",
        what: "bad evidence leaves a score",
        from: "\tif (!tg_delay_sane(&d->cfg, e)) {\n\t\ttg_delay_clear(d);\n",
        to: "\tif (!tg_delay_sane(&d->cfg, e)) {\n",
    },
    Mutant {
        header: "delay.h",
        what: "more late runs than runs",
        from: "\treturn e->late <= e->runs;",
        to: "\treturn 1;",
    },
    Mutant {
        header: "delay.h",
        what: "a new objective keeps the old score",
        from: "\td->quiet = (struct tg_delay_count){0};\n\ttg_delay_clear(d);\n}\n\nTG_FN void tg_delay_init",
        to: "\td->quiet = (struct tg_delay_count){0};\n}\n\nTG_FN void tg_delay_init",
    },
    Mutant {
        header: "delay.h",
        what: "the level before is forgotten",
        from: "\tif (d->before.runs == 0)\n\t\td->before = d->open;\n",
        to: "\td->before = d->open;\n",
    },
    Mutant {
        header: "delay.h",
        what: "below home without knowing",
        from: "tg_delay_met(d) ? 0 : tg_min(d->home_ppb, d->extra_ppb)",
        to: "0",
    },
    Mutant {
        header: "delay.h",
        what: "below home is never",
        from: "tg_delay_met(d) ? 0 : tg_min",
        to: "0 ? 0 : tg_min",
    },
    Mutant {
        header: "delay.h",
        what: "a handful of runs is knowledge",
        from: "may_ppm >= 2 * d->cfg.alarm * TG_PPM && ",
        to: "",
    },
    Mutant {
        header: "delay.h",
        what: "in vain goes to nothing",
        from: "\t\td->extra_ppb = d->home_ppb;\n\t\td->rest_us",
        to: "\t\td->extra_ppb = 0;\n\t\td->rest_us",
    },
    Mutant {
        header: "delay.h",
        what: "every raise is a big one",
        from: "int again = d->quiet_us < 4ULL * d->cfg.settle_us;",
        to: "int again = 1;",
    },
    Mutant {
        header: "delay.h",
        what: "without a cause as high as with one",
        from: "cause ? d->cfg.most_ppm * 1000ULL : d->home_ppb",
        to: "d->cfg.most_ppm * 1000ULL",
    },
    Mutant {
        header: "delay.h",
        what: "below home nothing is weighed",
        from: "if (cause || d->extra_ppb < d->home_ppb)",
        to: "if (cause)",
    },
];
