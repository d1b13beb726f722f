use std::process::Command;

use super::*;
use crate::load;
use crate::record::WorkSecond;

const HOUR: Limits = Limits {
    bytes_max: 1 << 20,
    keep_ms: FILE_MS,
};

fn second(unix_s: u64) -> Second {
    Second {
        unix_ms: unix_s * 1_000,
        works: vec![WorkSecond {
            id: 7,
            used_cpus: 1.5,
            ..WorkSecond::default()
        }],
        ..Second::default()
    }
}

fn works() -> BTreeMap<u32, Work> {
    let work = Work {
        id: 7,
        name: "encode".to_owned(),
        ..Work::default()
    };
    BTreeMap::from([(7, work)])
}

fn open(dir: &Path, limits: Limits) -> Store {
    Store::open(dir, limits, Machine::default()).unwrap()
}

fn seconds_in(dir: &Path) -> Vec<u64> {
    let all = load(dir, 0, u64::MAX).unwrap();
    assert!(all.seconds.iter().all(|one| one.works.len() == 1));
    assert_eq!(all.works.len(), 1, "one work in all files");
    all.seconds.iter().map(|one| one.unix_ms / 1_000).collect()
}

fn bytes_on_disk(dir: &Path) -> u64 {
    let sizes = fs::read_dir(dir).unwrap();
    sizes
        .map(|one| one.unwrap().metadata().unwrap().len())
        .sum()
}

#[test]
fn the_limits_hold_after_every_write() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits {
        bytes_max: 16 << 10,
        keep_ms: 2 * FILE_MS,
    };
    let mut store = open(dir.path(), limits);
    for unix_s in 1_000..9_000 {
        store.add(&second(unix_s), &works()).unwrap();
        assert!(store.bytes() <= limits.bytes_max);
        if unix_s % 100 == 0 {
            assert_eq!(store.bytes(), bytes_on_disk(dir.path()));
        }
    }
    let kept = seconds_in(dir.path());
    assert_eq!(kept.last(), Some(&8_999), "the newest are kept");
    assert!(
        kept.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "without a hole"
    );
    assert!(bytes_on_disk(dir.path()) > limits.bytes_max / 2);
}

#[test]
fn what_is_too_old_goes() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path(), HOUR);
    for hour in 0..5 {
        store.add(&second(hour * 3_600), &works()).unwrap();
    }
    assert_eq!(seconds_in(dir.path()), [2 * 3_600, 3 * 3_600, 4 * 3_600]);
}

#[test]
fn a_clock_that_is_set_back_or_far_ahead_loses_nothing_of_its_hour() {
    let dir = tempfile::tempdir().unwrap();
    let week = Limits {
        keep_ms: 168 * FILE_MS,
        ..HOUR
    };
    let mut store = open(dir.path(), week);
    for unix_s in [
        10_000, 10_001, 5_000, 5_001, 5_001, 200_000, 200_001, 10_002,
    ] {
        store.add(&second(unix_s), &works()).unwrap();
    }
    let expected = [
        5_000, 5_001, 5_001, 10_000, 10_001, 10_002, 200_000, 200_001,
    ];
    assert_eq!(seconds_in(dir.path()), expected);
}

#[test]
fn the_next_agent_leaves_a_torn_file_as_it_is_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path(), HOUR);
    for unix_s in 100..103 {
        store.add(&second(unix_s), &works()).unwrap();
    }
    drop(store);
    let path = dir.path().join("100.tgr");
    let len = fs::metadata(&path).unwrap().len();
    OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(len - 5)
        .unwrap();
    let mut store = open(dir.path(), HOUR);
    store.add(&second(102), &works()).unwrap();
    store
        .add_event(&Event {
            unix_ms: 103_000,
            ..Event::default()
        })
        .unwrap();
    assert_eq!(seconds_in(dir.path()), [100, 101, 102]);
    assert!(load(dir.path(), 0, u64::MAX).unwrap().damaged_bytes > 0);
    assert_eq!(load(dir.path(), 0, u64::MAX).unwrap().events.len(), 1);
}

#[test]
fn an_event_stands_in_the_file_of_its_second() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path(), HOUR);
    store.add(&second(100), &works()).unwrap();
    let event = Event {
        unix_ms: 99_300,
        ..Event::default()
    };
    store.add_event(&event).unwrap();
    store.add(&second(101), &works()).unwrap();
    assert_eq!(files(dir.path()).unwrap().len(), 1);
}

#[test]
fn terms_that_change_are_told_once_more() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path(), HOUR);
    store.add(&second(100), &works()).unwrap();
    let mut changed = works();
    changed.get_mut(&7).unwrap().class = "side".to_owned();
    store.forget(7);
    store.add(&second(101), &changed).unwrap();
    let all = load(dir.path(), 0, u64::MAX).unwrap();
    assert_eq!(all.works.len(), 1);
    assert_eq!(all.works[&0].class, "side");
}

/// A file system of its own of 64 kB. It needs the right to mount.
#[test]
fn a_full_disk_costs_the_oldest() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "none"])
        .arg(path)
        .output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        println!("skipped: tmpfs cannot be mounted here");
        return;
    }
    let mut store = open(path, HOUR);
    for unix_s in 0..1_200 {
        // Its limit is larger than the disk; files of some minutes, as after restarts.
        if unix_s % 100 == 0 {
            drop(store);
            store = open(path, HOUR);
        }
        store.add(&second(unix_s), &works()).unwrap();
    }
    let before = seconds_in(path);
    assert_eq!(before.last(), Some(&1_199));
    assert!(
        before.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "without a hole"
    );
    // Another program takes whatever is freed: one file is given, and no more.
    let count = files(path).unwrap().len();
    drop(store);
    let mut store = open(path, HOUR);
    let _ = fs::write(path.join("other"), vec![0; 1 << 20]);
    for unix_s in 1_300..1_310 {
        let _ = store.add(&second(unix_s), &works());
        let _ = fs::write(path.join(format!("other-{unix_s}")), vec![0; 1 << 20]);
    }
    assert!(files(path).unwrap().len() + 2 >= count, "at most one goes");
    assert!(
        files(path)
            .unwrap()
            .iter()
            .all(|file| fs::metadata(file).unwrap().len() > 0)
    );
    for entry in fs::read_dir(path).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("other") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    // Another fills it, and there is no older file to give: the second is lost, and told.
    drop(store);
    for file in files(path).unwrap() {
        fs::remove_file(file).unwrap();
    }
    let mut store = open(path, HOUR);
    let _ = fs::write(path.join("other"), vec![0; 1 << 20]);
    assert!(store.add(&second(2_000), &works()).is_err());
    assert_eq!(store.lost(), 1);
    fs::remove_file(path.join("other")).unwrap();
    store.add(&second(2_001), &works()).unwrap();
    assert_eq!(seconds_in(path), [2_001]);
    drop(store);
    let unmounted = Command::new("umount").arg("-l").arg(path).status().unwrap();
    assert!(unmounted.success());
}
