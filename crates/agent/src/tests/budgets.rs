//! What one user can take of the agent, and what the others still have.

use std::time::Duration;

use tidegate_api::{ApiResult, ErrorKind, RunRequest};
use tidegate_cgroup::testkit::FakeProcess;
use tidegate_engine::clock::Clock;

use super::sim_clock::in_time;
use super::{Bed, KINDS, Kind, PIDS, begun, path, root, run, run_limited, terms, user};
use crate::agent::Agent;
use crate::api::reads::{explain_for, status_for};
use crate::peer::Peer;
use crate::runtime::mechanisms::subgroups::poll;
use crate::view::Detail;

const FIRST_PID: i32 = 10_000;
const USER: u32 = 1000;

fn run_as(agent: &Agent, peer: &Peer, command: Vec<String>) -> ApiResult<()> {
    let request = RunRequest {
        pid: peer.pid,
        name: None,
        command,
        terms: terms(&[("class", "side")]),
        join: false,
    };
    agent.run(peer, &request).map(drop)
}

#[test]
fn a_thousand_gates_of_one_user_come_to_64_and_root_goes_on() {
    // In simulated time, so that nothing waits for the rate limit.
    let (bed, clock) = in_time(Bed::new(Kind::V2));
    let agent = bed.agent().unwrap();
    let mut refused = Vec::new();
    for pid in FIRST_PID..FIRST_PID + 1000 {
        bed.add_users_process(pid);
        clock.sleep(Duration::from_secs(1));
        if let Err(error) = run_as(&agent, &user(pid), vec!["x".repeat(100_000)]) {
            refused.push(error);
        }
    }
    assert_eq!(agent.gates.lock().len(), 64);
    assert!(refused.iter().all(|error| error.kind == ErrorKind::Busy));
    let said = refused[0].to_string();
    assert!(said.contains("uid 1000 has 64 gates"), "{said}");
    assert!(said.contains("gates_per_user"), "{said}");
    // A gate of root's, and another user's.
    bed.fake.add_process(FakeProcess::new(5));
    run_limited(&agent, 5).unwrap();
    let written = bed.fake.text(&bed.run_dir().gates().display().to_string());
    assert!(written.len() < 64 * 6_000, "{} bytes", written.len());
}

#[test]
fn readers_without_privilege_share_a_status_and_see_their_own_commands_only() {
    let (bed, clock) = in_time(Bed::new(Kind::V2));
    let agent = bed.agent().unwrap();
    for (pid, uid) in [(600, USER), (601, 1001)] {
        bed.fake.add_process(FakeProcess {
            uid,
            ..FakeProcess::new(pid)
        });
        let peer = Peer { uid, ..user(pid) };
        run_as(&agent, &peer, vec![format!("secret-of-{uid}")]).unwrap();
    }
    let commands = |peer: Option<&Peer>| -> Vec<Option<String>> {
        let gates = status_for(&agent, peer, Detail::Whole).unwrap().gates;
        gates.into_iter().map(|gate| gate.command).collect()
    };
    let (first, second) = ("secret-of-1000".to_owned(), "secret-of-1001".to_owned());
    assert_eq!(
        commands(Some(&root(1))),
        [Some(first.clone()), Some(second)]
    );
    assert_eq!(commands(Some(&user(600))), [Some(first), None]);
    assert_eq!(commands(None), [None, None]);
    let name = agent.status().gates[1].name.clone();
    let explained = explain_for(&agent, Some(&user(600)), &name).unwrap();
    assert_eq!(explained.gate.command, None);
    assert!(
        explain_for(&agent, Some(&root(1)), &name)
            .unwrap()
            .gate
            .command
            .is_some()
    );

    // Kernel files are read once a second for all of them, and each may ask so often.
    clock.sleep(Duration::from_secs(10));
    let reads = || bed.fs.log().len();
    let before = reads();
    commands(Some(&user(600)));
    let once = reads() - before;
    for _ in 0..30 {
        commands(Some(&user(600)));
    }
    assert_eq!(reads() - before, once);
    let refused = (0..100).filter(|_| status_for(&agent, Some(&user(600)), Detail::Whole).is_err());
    assert!(refused.count() >= 90);
    assert!(
        status_for(
            &agent,
            Some(&Peer {
                uid: 1001,
                ..user(601)
            }),
            Detail::Whole
        )
        .is_ok()
    );
    assert!((0..100).all(|_| status_for(&agent, Some(&root(1)), Detail::Whole).is_ok()));
}

#[test]
fn groups_for_single_tasks_of_one_user_come_to_256_and_root_goes_on() {
    for kind in KINDS {
        let (bed, agent) = begun(kind);
        let each = [
            ("class", "side"),
            ("cap_hard", "200‰"),
            ("cap_scope", "task"),
        ];
        let ask = |pid: i32, pairs| super::run_as(&agent, &user(pid), pairs);
        for pid in [FIRST_PID, FIRST_PID + 1] {
            bed.add_users_process(pid);
        }
        for tid in 20_000..20_300 {
            bed.fake.add_thread(FIRST_PID, tid);
        }
        let group = path(&ask(FIRST_PID, &each).unwrap().cgroup);
        for _ in 0..10 {
            poll(&agent.runtime);
        }
        let there = agent.groups().children(&group).unwrap().len();
        assert_eq!(there, 256, "{kind:?}");
        let free = agent.groups().tids(&group).unwrap();
        assert!(free.is_empty(), "{kind:?}: each shares a cap at least");
        let notes = agent.status().gates[0].notes.join("; ");
        assert!(
            notes.contains("uid 1000 may have 256") && notes.contains("some share one"),
            "{notes}"
        );

        let refused = ask(FIRST_PID + 1, &each).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Busy);
        let said = refused.to_string();
        assert!(
            said.contains("budget: uid 1000 may have 256 groups"),
            "{said}"
        );
        assert!(said.contains("cap_scope=group"), "{said}");
        assert_eq!(agent.gates.lock().len(), 1, "{kind:?}");
        ask(FIRST_PID + 1, &each[..2]).unwrap();
        run(&agent, PIDS[0], &each).unwrap();

        bed.fake.end_process(FIRST_PID);
        poll(&agent.runtime);
        bed.add_users_process(FIRST_PID + 2);
        ask(FIRST_PID + 2, &each).unwrap();
    }
}
