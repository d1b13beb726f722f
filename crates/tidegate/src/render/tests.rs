//! The pages over made-up views, word for word.

use tidegate_api::{
    CapCounts, CapView, Decision, ExplainView, GateView, GroupDecision, HeldView, Limit, LoopView,
    PolicyView, RuleView, StatusView, TermView, UserView, WriteView,
};

use super::{WIDTH, explain, gates, policy, status};

fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

fn gate() -> GateView {
    let term = |name: &str, value: &str, source: &str, overrode: &[&str]| TermView {
        name: name.into(),
        value: value.into(),
        source: source.into(),
        overrode: overrode.iter().map(|text| (*text).to_owned()).collect(),
    };
    GateView {
        name: "ffmpeg".into(),
        target: "run".into(),
        class: "side".into(),
        command: Some("ffmpeg -i holiday.mkv -c:v libx265 \u{1b}[31mred.mp4".into()),
        cgroup: "/tidegate-side/ffmpeg".into(),
        uid: 1000,
        processes: 1,
        usage_cpus: Some(0.782),
        allowance_cpus: Some(0.79),
        nr_throttled: 12,
        throttled_seconds: 1.25,
        held: HeldView {
            limit: Limit::Headroom,
            ..HeldView::default()
        },
        terms: vec![
            term("class", "side", "run flag", &["neutral (default)"]),
            term(
                "tolerance",
                "2%",
                "run flag",
                &["1% (default)", "3% (/etc/tidegate/tidegate.toml:4:13)"],
            ),
        ],
        age_seconds: 75.0,
        notes: vec!["weight acts among side gates only".into()],
        engine: "cgroup".into(),
        ..GateView::default()
    }
}

fn machine() -> StatusView {
    StatusView {
        version: "0.1.0".into(),
        pid: 4711,
        mode: "on-demand".into(),
        engine: "cgroup".into(),
        sensing: "bpf".into(),
        uptime_seconds: 192.0,
        cpus: 2,
        capacity_cpus: 1.99,
        steal_ratio: 0.005,
        headroom_ratio: 0.2,
        tolerance_ratio: 0.02,
        headroom_from: "default_headroom (default)".into(),
        cpuset: "by quota only (2 CPUs; cpuset = auto is from 32)".into(),
        main_cpus: 0.81,
        side_cpus: 0.78,
        idle_cpus: 0.4,
        decision: Decision {
            sentence: "track: main 0.81 of 2.00 CPUs".into(),
            limit: Limit::Headroom,
            allowance_cpus: 0.79,
            groups: vec![GroupDecision {
                group: "/tidegate-side".into(),
                allowance_cpus: Some(0.79),
                quota_us: Some(39_500),
                period_us: Some(50_000),
                limit: Limit::Headroom,
            }],
            ..Decision::default()
        },
        idle_kept_ratio: 0.201,
        reclaim_ratio: Some(0.974),
        writes_total: 42,
        quota_writes_per_second: 1.2,
        control: LoopView {
            period_us: 5_000.0,
            steps: 38_400,
            late_p50_us: 12.0,
            late_p99_us: 80.0,
            late_max_us: 400.0,
            step_cost_us: 9.0,
            agent_cpus: 0.003,
            agent_window_seconds: 60.0,
            ..LoopView::default()
        },
        guardian_pid: Some(4712),
        lease_seconds: 2.0,
        gates: vec![gate()],
        alerts: vec![
            "cpu.max of /tidegate-side was written by somebody else; reasserted once".into(),
        ],
        ..StatusView::default()
    }
}

#[test]
fn a_list_of_gates() {
    assert_eq!(gates::list(&[]), "no gates\n");
    assert_eq!(
        plain(&gates::list(&[gate()])),
        "\
GATE                 CLASS      CPUS ALLOWED PROCS  WHAT
ffmpeg               side       0.78    0.79     1  ffmpeg -i holiday.mkv -c:v …
"
    );
}

#[test]
fn one_gate() {
    assert_eq!(
        plain(&gates::one(&gate())),
        "\
ffmpeg (side, run)
   Command: ffmpeg -i holiday.mkv -c:v libx265 \\u{1b}[31mred.mp4
     Group: /tidegate-side/ffmpeg
      Life: 1 process, made 75 s ago by user 1000
       CPU: 0.78 CPUs of 0.79 allowed; side work throttled 12 times, 1.2 s in
            all
    Engine: cgroup
     Terms: class = side (run flag), over neutral (default)
            tolerance = 2% (run flag), over 1% (default), 3%
            (/etc/tidegate/tidegate.toml:4:13)
      Note: weight acts among side gates only
"
    );
}

#[test]
fn the_status_page() {
    assert_eq!(
        plain(&status::page(&machine())),
        "\
▲ tidegate 0.1.0, agent 4711 (on-demand), up 3 min 12 s
   Machine: 2 CPUs, 1.99 available (steal 0.5 %, 0.01 CPUs), engine cgroup
  Headroom: 20.0 % (0.40 CPUs) asked (default_headroom (default)), 20.1 % (0.40
            CPUs) idle kept over the last second
      CPUs: main and the rest 0.81, side 0.78 of 0.79 allowed, idle 0.40
     Limit: 39.5 ms in each 50.0 ms for all side work; 1.2 quota writes a
            second, 42 writes in all
    Cpuset: by quota only (2 CPUs; cpuset = auto is from 32)
  Decision: track: main 0.81 of 2.00 CPUs
   Reclaim: 97.4 % of what main left (last minute); 0.0 s at the tolerance of
            2.0 % (0.04 CPUs)
   Sensing: bpf
      Loop: every 5 ms, 38400 steps (0 samples unusable); late 12 us (p99 80,
            max 400); 9 us a step; agent 0.0030 CPUs over 60 s
  Guardian: 4712, acts after 2.0 s without a sign of the agent
     Alert: cpu.max of /tidegate-side was written by somebody else; reasserted
            once

GATE                 CLASS      CPUS ALLOWED PROCS  WHAT
ffmpeg               side       0.78    0.79     1  ffmpeg -i holiday.mkv -c:v …
"
    );
}

#[test]
fn the_explain_page_fits_a_screen() {
    let view = ExplainView {
        gate: gate(),
        summary: "ffmpeg runs at 0.78 CPUs; the idle to keep for main (20 %) binds.".into(),
        arithmetic: vec![
            "  2.00 CPUs".into(),
            "- 0.40 headroom 20 %".into(),
            "- 0.81 main, estimated".into(),
            "= 0.79 for side work".into(),
        ],
        sum: Vec::new(),
        users: (0..9)
            .map(|n| UserView {
                who: format!("gate{n}"),
                class: "side".into(),
                usage_cpus: Some(f64::from(n) / 10.0),
            })
            .collect(),
        writes: (0..9)
            .map(|n| WriteView {
                ago_seconds: f64::from(n),
                path: "/sys/fs/cgroup/cpu/tidegate-side/cpu.cfs_quota_us".into(),
                value: "39500".into(),
                was: Some("41000".into()),
                reason: "cut".into(),
            })
            .collect(),
        status: machine(),
    };
    let page = plain(&explain::page(&view));
    assert!(
        page.lines().all(|line| line.chars().count() <= WIDTH),
        "{page}"
    );
    assert!(page.lines().count() <= 40, "{page}");
    for expected in [
        "            ffmpeg runs at 0.78 CPUs; the idle to keep for main (20 %) binds.\n",
        "     Binds: headroom: main and the headroom leave it no more\n",
        "Arithmetic:   2.00 CPUs\n            - 0.40 headroom 20 %\n",
        " CPU users:    0.80 gate8 (side)\n               0.70 gate7 (side)\n",
        "               0.30 3 more\n",
        "    Writes: 0.0 s ago: /sys/fs/cgroup/cpu/tidegate-side/cpu.cfs_quota_us = 39500\n            (was 41000): cut\n",
        "      Note: cpu.max of /tidegate-side was written by somebody else; reasserted\n",
    ] {
        assert!(page.contains(expected), "{expected}\nnot in\n{page}");
    }
}

#[test]
fn a_cap_under_the_scheduler_is_told_by_what_it_did() {
    let mut cap = CapCounts {
        hard_cpus: Some(0.2),
        scope: "group".into(),
        buckets: 1,
        level_us: Some(-1_250.0),
        used_seconds: 4.0,
        throttles: 1,
        throttled_seconds: 3.2,
        ..CapCounts::default()
    };
    assert_eq!(
        gates::held_line(&cap),
        "at most 0.2 CPUs: held back 1 time, 3.2 s in all, owes 1.2 ms"
    );
    cap.level_us = None;
    cap.hard_cpus = None;
    cap.soft_cpus = Some(0.1);
    (cap.background_cpus, cap.background_seconds) = (0.25, 1.5);
    assert_eq!(
        gates::held_line(&cap),
        "above 0.1 CPUs only what no other task wants: 0.25 CPUs of that now, 1.5 s so far, and 2.5 s within it"
    );
    cap.scope = "task".into();
    cap.buckets = 5;
    cap.min_runs = 2;
    assert_eq!(
        gates::held_line(&cap),
        "above 0.1 CPUs for each task (of 5) only what no other task wants: 0.25 CPUs of that now, 1.5 s so far, and 2.5 s \
         within it; exceeded 2 times for the kernel's watchdog"
    );
}

#[test]
fn a_use_that_is_unknown_is_said() {
    let unknown = GateView {
        usage_cpus: None,
        cap: Some(CapView {
            soft_cpus: 0.2,
            ..CapView::default()
        }),
        ..gate()
    };
    let list = gates::list(std::slice::from_ref(&unknown));
    assert!(list.contains("unknown"), "{list}");
    assert!(
        list.lines().all(|line| line.chars().count() <= WIDTH),
        "{list}"
    );
    let page = gates::one(&unknown);
    assert!(page.contains("unknown CPUs of 0.79 allowed"), "{page}");
    assert!(
        page.contains("rests: the gate's CPU use is unknown"),
        "{page}"
    );
}

#[test]
fn a_rule_without_a_gate_is_not_said_to_match_nothing() {
    let view = PolicyView {
        rules: vec![RuleView::default()],
        ..PolicyView::default()
    };
    let page = policy::page(&view);
    assert!(page.contains("no gate has its terms now"), "{page}");
}
