//! Run delay, broken.

use super::Mutant;

/// As they are read.
pub const TABLE: &[Mutant] = &[
    Mutant {
        header: "delay.h",
        what: "above the bound",
        from: "tg_min(d->extra_ppb + tg_max(step_ppb, d->extra_ppb / 2), most_ppb)",
        to: "d->extra_ppb + tg_max(step_ppb, d->extra_ppb / 2)",
    },
    Mutant {
        header: "delay.h",
        what: "raises stay small",
        from: "tg_max(step_ppb, d->extra_ppb / 2)",
        to: "step_ppb",
    },
    Mutant {
        header: "delay.h",
        what: "what main does to itself counts",
        from: "\t\tif (d->side_ppm >= tg_min(e->floor_ppm, TG_PPM) + d->cfg.side_ppm)\n",
        to: "\t\tif (1)\n",
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
        from: "runs * d->share_ppm), most)",
        to: "0), most)",
    },
    Mutant {
        header: "delay.h",
        what: "the score knows no bound",
        from: "tg_min(tg_sub0(d->score_ppm + late * TG_PPM, runs * d->share_ppm), most)",
        to: "tg_sub0(d->score_ppm + late * TG_PPM, runs * d->share_ppm)",
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
        from: "tg_sub0(d->extra_ppb, tg_max(by_ppb, 1))",
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
        from: "\td->top = (struct tg_delay_count){0};\n\ttg_delay_clear(d);\n}\n\nTG_FN void tg_delay_init",
        to: "\td->top = (struct tg_delay_count){0};\n}\n\nTG_FN void tg_delay_init",
    },
    Mutant {
        header: "delay.h",
        what: "the level before is forgotten",
        from: "\tif (d->before.runs == 0)\n\t\td->before = d->open;\n",
        to: "\td->before = d->open;\n",
    },
];
