//! Run queues, hierarchical weights and side CPUs, broken.

use super::Mutant;

/// As they are read.
pub const TABLE: &[Mutant] = &[
    Mutant {
        header: "hweight.h",
        what: "the parent keeps what a group was counted by",
        from: "*change = (tg_s64)now - before;",
        to: "*change = now;",
    },
    Mutant {
        header: "hweight.h",
        what: "an idle group still counts in its parent",
        from: "g->entities > 0 ? own : 0;",
        to: "own;",
    },
    Mutant {
        header: "hweight.h",
        what: "a sum that lacks the entity itself counts",
        from: "tg_max(tg_max(active < 0 ? 0 : (tg_u64)active, own), 1)",
        to: "tg_max(active < 0 ? 0 : (tg_u64)active, 1)",
    },
    Mutant {
        header: "hweight.h",
        what: "virtual time rounds down",
        from: "* TG_HWEIGHT_ONE + hweight - 1) / hweight",
        to: "* TG_HWEIGHT_ONE) / hweight",
    },
    Mutant {
        header: "runqueue.h",
        what: "a distance of any length",
        from: "\t\t\t  TG_RUNQUEUE_DISTANCE_MAX);",
        to: "TG_RUNQUEUE_DISTANCE_MAX << 20);",
    },
    Mutant {
        header: "runqueue.h",
        what: "what runs uncharged does not count",
        from: "rq->moment + (tg_s64)(tg_runqueue_uncharged_ns(rq, now_ns) << 16)",
        to: "rq->moment + (tg_s64)(0 * now_ns)",
    },
    Mutant {
        header: "runqueue.h",
        what: "a cache pulls a task that is pulled back at once",
        from: "(own_weights + weight) * cpus <= rest * own_cpus",
        to: "own_weights * cpus <= rest * own_cpus",
    },
    Mutant {
        header: "runqueue.h",
        what: "virtual time goes back",
        from: "if (tg_latency_before(tg_runqueue_v(rq), rq->base))",
        to: "",
    },
    Mutant {
        header: "runqueue.h",
        what: "a member leaves its part of the moment",
        from: "rq->moment -= tg_runqueue_distance",
        to: "rq->moment -= 0 * tg_runqueue_distance",
    },
    Mutant {
        header: "runqueue.h",
        what: "a task that left ahead of V stays ahead however long it sleeps",
        from: "if (lag < 0 && left_here && tg_latency_before(left_at, v))",
        to: "if (0)",
    },
    Mutant {
        header: "runqueue.h",
        what: "lag beyond a slice is kept",
        from: "return v - (tg_u64)tg_clamp_s(lag, -most, most);",
        to: "return v - (tg_u64)lag;",
    },
    Mutant {
        header: "runqueue.h",
        what: "a hint brings one forward that is ahead of its share",
        from: "if (t->hint < 0 && !tg_runqueue_eligible(v, t->vruntime, t->slice_v))",
        to: "if (0)",
    },
    Mutant {
        header: "runqueue.h",
        what: "a member's own weight counts among the others",
        from: "rq->weights - tg_min(own, rq->weights)",
        to: "rq->weights",
    },
    Mutant {
        header: "runqueue.h",
        what: "members no more than CPUs are cut to nothing",
        from: "if (cpus < 2 || tg_runqueue_members(rq) + (counted ? 0 : 1) < cpus)",
        to: "if (cpus < 2)",
    },
    Mutant {
        header: "runqueue.h",
        what: "a lag keeps its virtual time when a weight changes",
        from: "return v - tg_virtual_ns(tg_min(behind, most) * was / TG_HWEIGHT_ONE, now);",
        to: "return vruntime;",
    },
    Mutant {
        header: "runqueue.h",
        what: "a lighter task displaces a heavier one",
        from: "tg_latency_before(runs_from + runs->slice_v, waits->vruntime + waits->slice_v))",
        to: "0)",
    },
    Mutant {
        header: "runqueue.h",
        what: "a task that is ahead of its share displaces an equal",
        from: "|| tg_latency_before(v, waits->vruntime) ||",
        to: "||",
    },
    Mutant {
        header: "runqueue.h",
        what: "a task whose waker is about to sleep displaces an equal",
        from: "if (waits->sync || ",
        to: "if (",
    },
    Mutant {
        header: "runqueue.h",
        what: "what the running task is owed protects it",
        from: "tg_latency_before(runs->vruntime, v) ? v : runs->vruntime;",
        to: "runs->vruntime;",
    },
    Mutant {
        header: "runqueue.h",
        what: "a task that has just begun is displaced by an equal",
        from: "return ran_ns < tg_runqueue_undisturbed_ns(slice_ns) ? TG_DISPLACES_SOON",
        to: "return 0 ? TG_DISPLACES_SOON",
    },
    Mutant {
        header: "runqueue.h",
        what: "a hint is worth less in a group",
        from: "scaled_ns * t->weight / 1024",
        to: "period_ns",
    },
    Mutant {
        header: "side_cpus.h",
        what: "a late timer makes credit of all its time",
        from: "dt_ns = tg_min(dt_ns, TG_SIDE_DT_MAX_NS);",
        to: "",
    },
    Mutant {
        header: "side_cpus.h",
        what: "credit outlives a step of main",
        from: "c->credit_ns = tg_min_s(c->credit_ns, 0);",
        to: "",
    },
    Mutant {
        header: "side_cpus.h",
        what: "the watchdog's part is no floor",
        from: "return tg_max(d->floor_ucpu, tg_side_watchdog_ucpu(members));",
        to: "return d->floor_ucpu + 0 * members;",
    },
    Mutant {
        header: "side_cpus.h",
        what: "the fraction opens no CPU",
        from: "tg_sub0(whole, less) + c->open",
        to: "tg_sub0(whole, less)",
    },
    Mutant {
        header: "side_cpus.h",
        what: "more CPUs than there are",
        from: "tg_min(whole + tg_max(whole / 4, 1) + 1, tg_max(online, 1))",
        to: "whole + tg_max(whole / 4, 1) + 1",
    },
];
