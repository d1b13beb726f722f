//! The ledger's two files as a dead agent, or a disk, may have left them.

use std::path::Path;
use std::sync::Arc;

use tidegate_knobs::apply::Journal;
use tidegate_knobs::discover::discover;
use tidegate_knobs::group::{GroupPath, Groups};
use tidegate_knobs::kfs::{FakeFs, FakeProcess, KernelFs};
use tidegate_knobs::ledger::{Entry, FILE, MOVING_FILE};

use crate::agent::FOLDER;
use crate::text;

/// Groups that entries may be about.
const GROUPS: [&str; 4] = ["/other", "/tg-side", "/tg-side/a", "/tg-main"];
/// Processes that they may be about.
const PIDS: [i32; 2] = [501, 502];

/// The first byte says how many bytes of `ledger.moving` follow, in eights; the rest is `ledger.json`.
///
/// Whatever is in them, the next agent starts, or says which of the two it cannot use; the guardian writes the fallback, and all
/// is restored; then a change is recorded under a number of its own.
pub fn ledger(data: &[u8]) {
    let Some((words, rest)) = data.split_first() else {
        return;
    };
    let (page, text_of) = rest.split_at(rest.len().min(usize::from(*words % 32) * 8));
    let fs: Arc<dyn KernelFs> = Arc::new(machine(&text(text_of)));
    let Ok(machine) = discover(&*fs, None) else {
        return;
    };
    let groups = Arc::new(Groups::new(fs, &machine));
    write_page(page, *words >= 128);
    let Ok((mut journal, _)) = Journal::open(FOLDER.path(), Arc::clone(&groups)) else {
        return;
    };
    check(journal.entries());
    let group = GroupPath::parse(GROUPS[0]).expect("a path");
    let before: Vec<u64> = journal.entries().iter().map(|entry| entry.id).collect();
    if journal.made(&group, "job").is_ok() {
        check(journal.entries());
        let kept = |id: &u64| journal.entries().iter().any(|entry| entry.id == *id);
        assert!(before.iter().all(kept), "a new entry replaced one");
    }
    journal.fall_back(u64::from(*words));
    journal.yield_again();
    let _ = journal.outside_writes(0..journal.entries().len());
    journal.restore_where(|_| true);
    journal.close();
}

fn machine(ledger: &str) -> FakeFs {
    let fs = FakeFs::v2();
    for pid in PIDS {
        fs.add_process(FakeProcess::new(pid));
    }
    let root = Path::new("/sys/fs/cgroup");
    let _ = fs.write(&root.join("cgroup.subtree_control"), "+cpu +cpuset");
    for group in GROUPS {
        let _ = fs.mkdir(&root.join(&group[1..]));
    }
    let path = FOLDER.path().join(FILE);
    fs.set_file(&path.display().to_string(), ledger);
    fs
}

/// Each number once, in order.
fn check(entries: &[Entry]) {
    assert!(entries.windows(2).all(|pair| pair[0].id < pair[1].id));
}

/// Writes `ledger.moving`: these bytes as its slots, or as all that it has.
fn write_page(page: &[u8], is_all: bool) {
    const MAGIC: &[u8; 8] = b"tidemov1";
    const HEADER_BYTES: usize = 64;
    const BYTES: usize = HEADER_BYTES + 128 * 64;
    let mut bytes = vec![0; BYTES];
    let at = if is_all { 0 } else { HEADER_BYTES };
    if !is_all {
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    }
    bytes[at..at + page.len()].copy_from_slice(page);
    // In place: the file of the input before is not mapped any more.
    std::fs::write(FOLDER.path().join(MOVING_FILE), bytes).expect("the folder has room");
}
