//! Every header of the law compiles for BPF, alone and warning-free.

use std::path::Path;
use std::process::Command;

const CLANG: &str = "clang-19";

/// A caller of what each header offers.
const CALLERS: &[(&str, &str)] = &[
    (
        "bandwidth.h",
        "int f(struct tg_bw_pool *p, struct tg_bw_silo *s, tg_u64 d, tg_u64 now) \
             { return tg_bw_run(p, s, d, now) || !tg_bw_throttle(p, s, now) || tg_bw_distribute(p, s, now); } \
             void g(struct tg_bw_pool *p, struct tg_bw_silo *s, const struct tg_bw_terms *t, tg_u64 now) \
             { tg_bw_init(p, 0, now); tg_bw_set(p, t, now); tg_bw_return(p, s); } \
             int h(struct tg_bw_pool *p, struct tg_bw_silo *s, const struct tg_bw_terms *t, tg_u64 now) \
             { tg_bw_set_kernel(p, t, now); tg_bw_forgive(p, s, now); return tg_bw_slack_wanted(p, now); } \
             tg_u32 k(struct tg_bw_pool *p, struct tg_bw_silo *s, const tg_u32 *up, tg_u64 now) \
             { return tg_bw_run_up(p, s, up, 64, 3, 1000, now) + tg_bw_may_run(s, up, 64, 3); }",
    ),
    (
        "base.h",
        "tg_u64 f(tg_u64 a, tg_u64 b) { return tg_rate_ucpu(a, b); }",
    ),
    (
        "headroom.h",
        "void f(struct tg_headroom *h, const struct tg_headroom_sample *s, \
             struct tg_headroom_decision *d) { tg_headroom_step(h, s, d); } \
             void g(struct tg_headroom *h, const struct tg_headroom_config *c) \
             { tg_headroom_init(h, c, 300000, 10000); }",
    ),
    (
        "cap.h",
        "tg_u32 f(struct tg_cap *c, struct tg_cap_loan *l, struct tg_cap_family *o, tg_u64 t) \
             { tg_cap_charge(c, l, 1, t, 0, 0); return tg_cap_state(c, o, t, 0); } \
             void g(struct tg_cap *c, const struct tg_cap_terms *t) { tg_cap_set(c, t, 1); } \
             int h(struct tg_cap *p, struct tg_cap *c, struct tg_cap_family *f) \
             { tg_cap_leave(p, f, 2); return tg_cap_fork(p, c, 1, 0); }",
    ),
    (
        "latency.h",
        "tg_u64 f(int hint) { return tg_latency_slice_ns(hint, 3000000); } \
             tg_u64 g(tg_u64 v, int hint) { return tg_latency_deadline(v, 1, hint, 6000000); } \
             int h(const struct tg_latency_rank *a, const struct tg_latency_rank *b) \
             { return tg_latency_first(a, b); }",
    ),
    (
        "delay.h",
        "tg_u32 f(struct tg_delay *d, const struct tg_delay_evidence *e) { return tg_delay_step(d, e); } \
             void g(struct tg_delay *d, const struct tg_delay_config *c) { tg_delay_init(d, c, 10000, 0); }",
    ),
    (
        "tuning.h",
        "unsigned long long f(void) { return TG_ENQUEUE_FRONT + TG_SIDE_ROUND_NS; }",
    ),
    (
        "hweight.h",
        "int f(struct tg_hweight_group *g, tg_s64 *w, tg_s32 *by) \
             { tg_u32 b, n; tg_hweight_update(g, 1024, *w, *by, &b, &n); return tg_hweight_above(b, n, w, by); } \
             tg_u64 g(tg_u64 h, tg_u32 level) { return tg_virtual_ns(tg_hweight_up(h, tg_nice_weight(level), 5, 1), h) \
             + tg_slice_left_ns(h, 5, h) + tg_group_weight(level); }",
    ),
    (
        "runqueue.h",
        "tg_u64 f(struct tg_runqueue *rq, const struct tg_runqueue_task *t, tg_u64 now) \
             { tg_runqueue_settle(rq, now); tg_runqueue_add(rq, t->vruntime, t->hweight); tg_runqueue_sub(rq, 1, 1); \
             tg_runqueue_starts(rq, now); tg_runqueue_stops(rq, now); tg_runqueue_ran(rq, 1, t->hweight); \
             return tg_runqueue_deadline(tg_runqueue_v(rq), t, 6000000) + tg_runqueue_place(now, -1, 1, 1, 1); }",
    ),
    (
        "side_cpus.h",
        "int f(struct tg_side_credit *c, const struct tg_headroom_decision *d, tg_u64 dt) \
             { tg_side_step(c, d, 0, dt, dt, 3, 8); return tg_side_owed(c); }",
    ),
    (
        "share.h",
        "void f(const struct tg_demand *d, tg_u64 *out) { tg_share(1000000, d, 16, out); }",
    ),
];

#[test]
fn each_header_compiles_for_bpf() {
    if Command::new(CLANG).arg("--version").output().is_err() {
        println!("skipped: {CLANG} is not installed (apt-get install {CLANG})");
        return;
    }
    let law = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../law");
    let mut headers: Vec<String> = std::fs::read_dir(&law)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".h"))
        .collect();
    headers.sort();
    let mut listed: Vec<&str> = CALLERS.iter().map(|(header, _)| *header).collect();
    listed.sort_unstable();
    assert_eq!(
        headers, listed,
        "a header without a BPF caller here is not checked"
    );

    let dir = std::env::temp_dir().join(format!("tidegate-law-bpf-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for (header, caller) in CALLERS {
        let source = dir.join(format!("{header}.c"));
        std::fs::write(&source, format!("#include \"{header}\"\n{caller}\n")).unwrap();
        let out = Command::new(CLANG)
            .args([
                "-target", "bpf", "-mcpu=v3", "-O2", "-Wall", "-Wextra", "-Werror", "-g",
            ])
            .arg("-I")
            .arg(&law)
            .arg("-c")
            .arg(&source)
            .arg("-o")
            .arg(dir.join("out.o"))
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "{header}:\n{}",
            String::from_utf8_lossy(&out.stderr)
        );
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
