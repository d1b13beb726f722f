//! On v2 a user's command stays below its own group, or leaves one that restricts nothing: whatever
//! controller or program it is.

use std::path::Path;

use tidegate_api::{ApiResult, RunReply};
use tidegate_cgroup::{KernelFs, Op};

use super::{Bed, Kind, gate_names, root, run_as, user};
use crate::agent::Agent;
use crate::lifecycle::housekeeping::Housekeeping;
use crate::peer::Peer;

const PID: i32 = 600;
const HOME: &str = "/sys/fs/cgroup/user";

/// A user's process in a group of another manager's; `handed_down`: which has the cpu controller.
fn bed(handed_down: bool) -> Bed {
    let bed = Bed::new(Kind::V2);
    if !handed_down {
        let file = Path::new("/sys/fs/cgroup/cgroup.subtree_control");
        bed.fake.write(file, "-cpu").unwrap();
    }
    bed.fake.mkdir(Path::new(HOME)).unwrap();
    bed.add_users_process(PID);
    let procs = format!("{HOME}/cgroup.procs");
    bed.fake.write(Path::new(&procs), &PID.to_string()).unwrap();
    bed
}

fn run_side_as(agent: &Agent, peer: &Peer) -> ApiResult<RunReply> {
    run_as(agent, peer, &[("class", "side")])
}

#[test]
fn a_users_command_stays_below_its_group_limited_from_before_it_enters() {
    let bed = bed(true);
    let agent = bed.agent().unwrap();
    bed.fake.set_file(&format!("{HOME}/pids.max"), "100\n");
    let since = bed.fs.log().len();
    let ask = || {
        let terms = [("class", "side"), ("quota", "50ms")];
        run_as(&agent, &user(PID), &terms)
    };
    let reply = ask().unwrap();
    assert_eq!(reply.cgroup, "/user/tg-job=");
    assert!(
        bed.place(PID).contains("/user/tg-job="),
        "{}",
        bed.place(PID)
    );
    assert!(bed.is_limited("/user/tg-job="));
    assert_eq!(bed.fake.text(&format!("{HOME}/tg-job=/cpu.idle")), "1");
    assert_eq!(
        bed.fake.text(&format!("{HOME}/tg-job=/cgroup.type")),
        "threaded"
    );
    assert!(!bed.exists("/tg-side"));
    let log = bed.fs.log().split_off(since);
    let at = |end: &str| {
        let is = |(op, path): &(Op, std::path::PathBuf)| *op == Op::Write && path.ends_with(end);
        log.iter().position(is).expect(end)
    };
    assert!(at("tg-job=/cpu.max") < at("tg-job=/cgroup.procs"));
    assert!(at("tg-job=/cpu.idle") < at("tg-job=/cgroup.procs"));

    // Another one of the same shell lies beside it.
    let again = ask().unwrap();
    assert_eq!(again.gate, "job", "asked again");

    // The next agent has it, by its record or by its group's name alone.
    for lost in [false, true] {
        if lost {
            bed.fake.unlink(&bed.run_dir().gates()).unwrap();
        }
        let agent = bed.agent().unwrap();
        assert_eq!(gate_names(&agent), ["job"], "lost: {lost}");
        assert!(bed.is_limited("/user/tg-job="), "lost: {lost}");
    }
    // It goes on when the agent leaves, and then its group goes.
    let agent = bed.agent().unwrap();
    assert_eq!(agent.leave(), 1);
    assert!(bed.is_limited("/user/tg-job="));
    let agent = bed.agent().unwrap();
    bed.fake.end_process(PID);
    let mut housekeeping = Housekeeping::new(None);
    for _ in 0..3 {
        housekeeping.poll_gates(&agent.gates, &agent.runtime);
    }
    assert!(!bed.exists("/user/tg-job="));
    assert_eq!(bed.fake.text(&format!("{HOME}/cgroup.type")), "domain");
    assert_eq!(bed.fake.text(&format!("{HOME}/cgroup.subtree_control")), "");
}

/// A build reads the quota once, for the number of its jobs.
#[test]
fn a_users_command_without_limits_has_no_quota_and_yields() {
    let bed = bed(true);
    let agent = bed.agent().unwrap();
    run_side_as(&agent, &user(PID)).unwrap();
    let of = |name: &str| bed.file("/user/tg-job=", name);
    assert!(of("cpu.max").starts_with("max"), "{}", of("cpu.max"));
    assert_eq!(of("cpu.idle"), "1");
}

#[test]
fn where_it_cannot_stay_nothing_that_restricts_it_is_left() {
    for (file, text, what) in [
        ("pids.max", "100\n", "pids.max = 100"),
        ("io.max", "8:0 rbps=1000 wbps=max\n", "io.max"),
        ("memory.swap.max", "0\n", "memory.swap.max"),
        ("cpuset.cpus", "0-1\n", "cpuset.cpus"),
        ("hugetlb.2MB.max", "0\n", "hugetlb.2MB.max"),
        ("", "", "BPF program"),
    ] {
        let bed = bed(false);
        match file {
            "" => bed.fake.attach_program(HOME),
            file => bed.fake.set_file(&format!("{HOME}/{file}"), text),
        }
        let agent = bed.agent().unwrap();
        let refused = run_side_as(&agent, &user(PID)).unwrap_err();
        assert!(refused.to_string().contains(what), "{refused}");
        assert!(refused.to_string().contains("/user"), "{refused}");
        assert!(bed.place(PID).contains("/user"), "{what}");
        assert!(
            !bed.exists("/user/tg-job=") && !bed.exists("/tg-side/job"),
            "{what}"
        );
        assert_eq!(gate_names(&agent), [] as [&str; 0]);
        // Root may.
        run_side_as(&agent, &root(PID)).unwrap();
        assert!(bed.place(PID).contains("/tg-side/job"));
    }
}

#[test]
fn a_group_that_restricts_nothing_may_be_left() {
    let bed = bed(false);
    let agent = bed.agent().unwrap();
    run_side_as(&agent, &user(PID)).unwrap();
    assert!(
        bed.place(PID).contains("/tg-side/job"),
        "{}",
        bed.place(PID)
    );
}
