//! Harm, broken.

use super::Mutant;

/// As they are read.
pub const TABLE: &[Mutant] = &[
    Mutant {
        header: "harm.h",
        what: "the coin is not fair",
        from: "tg_harm_set_arm(h, (tg_u32)(tg_harm_random(h) >> 63));",
        to: "tg_harm_set_arm(h, tg_harm_random(h) >> 62 != 0);",
    },
    Mutant {
        header: "harm_pairs.h",
        what: "a new pair is weighed by its own level",
        from: "tg_max(level, (total",
        to: "tg_max(total, (total",
    },
    Mutant {
        header: "harm_pairs.h",
        what: "a burst counts in full",
        from: "tg_max(level, (total + TG_HARM_WEIGHT_MAX - 1) / TG_HARM_WEIGHT_MAX), 1);",
        to: "level, 1);",
    },
    Mutant {
        header: "harm_pairs.h",
        what: "nothing is forgotten",
        from: "\ttg_harm_forget(s, forget_16);\n",
        to: "\t(void)forget_16;\n",
    },
    Mutant {
        header: "harm_pairs.h",
        what: "bounds of half the width",
        from: "c->z_pct / 100, s->sum);",
        to: "c->z_pct / 200, s->sum);",
    },
    Mutant {
        header: "harm.h",
        what: "harm is looked for at every pair",
        from: "\t\th->look *= 2;\n",
        to: "\t\th->look++;\n",
    },
    Mutant {
        header: "harm_evidence.h",
        what: "the share of late turns is not divided by its level's turns",
        from: "less = (lo->late << 20) / lo->turns;",
        to: "less = (lo->late << 20) / hi->turns;",
    },
    Mutant {
        header: "harm.h",
        what: "the tail is not watched",
        from: "\t\toff |= tg_harm_watch(h, 1, high, low);\n",
        to: "\t\t(void)high;\n",
    },
    Mutant {
        header: "harm.h",
        what: "nothing is left to the guard",
        from: "h->in_guard = arm != h->answer.arm;",
        to: "h->in_guard = 0;",
    },
    Mutant {
        header: "harm.h",
        what: "the guard is one window long",
        from: "h->in_guard = h->age_us < h->cfg.guard_us;",
        to: "h->in_guard = 0;",
    },
    Mutant {
        header: "harm.h",
        what: "a window at the other level counts",
        from: "w->valid && w->arm == h->answer.arm",
        to: "w->valid",
    },
    Mutant {
        header: "harm.h",
        what: "a window that is not vouched for counts",
        from: "return w->valid && ",
        to: "return ",
    },
    Mutant {
        header: "harm_evidence.h",
        what: "a closed main is taken for an open one",
        from: "closed = cpu.upper_ppm < TG_HARM_NO_HARM &&",
        to: "closed = 0 && cpu.upper_ppm < TG_HARM_NO_HARM &&",
    },
    Mutant {
        header: "harm_evidence.h",
        what: "a main that is faster is taken for a closed one",
        from: "delay.lower_ppm > TG_HARM_NO_HARM &&",
        to: "1 &&",
    },
    Mutant {
        header: "harm_evidence.h",
        what: "signals that disagree are no reason",
        from: "stretch.upper_ppm < accepted_ppm;",
        to: "1;",
    },
    Mutant {
        header: "harm.h",
        what: "none is said of a main that never sleeps",
        from: "within && h->turns >= h->cfg.turns_min)",
        to: "within)",
    },
    Mutant {
        header: "harm_evidence.h",
        what: "more headroom for any harm",
        from: "e.above = e.time.lower_ppm > accepted_ppm;",
        to: "e.above = e.found;",
    },
    Mutant {
        header: "harm.h",
        what: "the level that harms is held",
        from: "tg_harm_settle(h, TG_HARM_LOW);\n\t}\n}",
        to: "tg_harm_settle(h, TG_HARM_HIGH);\n\t}\n}",
    },
    Mutant {
        header: "harm.h",
        what: "probes are never off",
        from: "h->watch[tail] += off;",
        to: "h->watch[tail] += 0 * off;",
    },
    Mutant {
        header: "harm.h",
        what: "one probe is enough to be off",
        from: "off = tg_clamp_s(off, -(tg_s64)most, (tg_s64)most);",
        to: "(void)most;",
    },
    Mutant {
        header: "harm.h",
        what: "probes come twice as often",
        from: "h->gap_us = h->cfg.probe_us / 2 +",
        to: "h->gap_us =",
    },
    Mutant {
        header: "harm.h",
        what: "learning has no end",
        from: "if (h->phase_us >= h->cfg.learn_us)",
        to: "if (0)",
    },
    Mutant {
        header: "harm_evidence.h",
        what: "harm that would not have been found is none",
        from: "reach_ppm * 100 <= (tg_u64)h->cfg.aim_ppm * h->cfg.z_pct",
        to: "reach_ppm * 0 <= (tg_u64)h->cfg.aim_ppm * h->cfg.z_pct",
    },
    Mutant {
        header: "harm.h",
        what: "what is held unproven is not watched",
        from: "if (h->answer.verdict == TG_HARM_UNKNOWN && h->held == TG_HARM_LOW)",
        to: "if (h->answer.verdict == TG_HARM_UNKNOWN)",
    },
    Mutant {
        header: "harm.h",
        what: "what is known never ages",
        from: "else if (knows && h->since_pair_us",
        to: "else if (0 && h->since_pair_us",
    },
    Mutant {
        header: "harm_evidence.h",
        what: "a trend is no drift",
        from: "tg_abs(h->trend) > reach ? TG_HARM_DRIFT : h->why",
        to: "reach ? h->why : h->why",
    },
];
