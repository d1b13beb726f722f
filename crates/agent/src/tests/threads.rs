//! The agent's threads: what one of them may wait for while another goes on.

use std::os::unix::net::UnixDatagram;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::steps::Knob;
use super::{Bed, Kind, PIDS, run_side};
use crate::process::notify::Watchdog;
use crate::runtime::control_thread;
use crate::threads::{HOUSEKEEPING, SLOW_WORK};

#[test]
fn the_watchdog_is_fed_while_a_call_holds_the_gates_lock() {
    let bed = Bed::new(Kind::V2);
    let agent = std::sync::Arc::new(bed.agent().unwrap());
    run_side(&agent, PIDS[0]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let watchdog = Watchdog::at(path.as_os_str());
    let held = agent.gates.lock();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            control_thread::run(&agent.runtime, &agent.life, Knob::default(), watchdog);
        });
        let mut message = [0; 32];
        let fed: Vec<_> = (0..3).map(|_| manager.recv(&mut message)).collect();
        agent.life.leaving.store(true, Ordering::Release);
        assert!(fed.iter().all(Result::is_ok), "{fed:?}");
        assert!(message.starts_with(b"WATCHDOG=1"));
    });
    drop(held);
}

#[test]
fn each_row_has_a_name_of_its_own() {
    let mut names: Vec<&str> = HOUSEKEEPING.iter().map(|row| row.name).collect();
    names.extend(SLOW_WORK.iter().map(|row| row.name));
    let rows = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), rows);
}
