//! The ledger's two files as a dead agent, or a disk, may have left them.

use std::cell::Cell;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use tidegate_cgroup::KernelFs;
use tidegate_cgroup::discover::{Machine, discover};
use tidegate_cgroup::group::{GroupPath, Groups};
use tidegate_cgroup::testkit::{FakeFs, FakeProcess};
use tidegate_engine::apply::Journal;
use tidegate_engine::ledger::{FILE, MOVING_FILE};

use crate::agent::scratch;
use crate::text;

/// Groups that entries may be about.
const GROUPS: [&str; 4] = ["/other", "/tg-side", "/tg-side/a", "/tg-main"];
/// Processes that they may be about.
const PIDS: [i32; 2] = [501, 502];

/// The first byte says how many bytes of `ledger.moving` follow, in eights; the rest is
/// `ledger.json`.
///
/// Whatever is in them, the next agent starts, or says which of the two it cannot use; the guardian
/// writes the fallback, and all is restored; then a change is recorded under a number of its own.
pub fn ledger(data: &[u8]) {
    let Some((words, rest)) = data.split_first() else {
        return;
    };
    let (page, text_of) = rest.split_at(rest.len().min(usize::from(*words % 32) * 8));
    let bed = BED.take().unwrap_or_else(Bed::new);
    let dir = scratch("");
    let path = dir.join(FILE);
    bed.fs.set_file(&path.display().to_string(), &text(text_of));
    write_page(page, *words >= 128);
    let Ok((mut journal, report)) = Journal::open(&dir, Arc::clone(&bed.groups)) else {
        return;
    };
    let group = GroupPath::parse(GROUPS[0]).expect("a path");
    let before: Vec<u64> = journal.entries().map(|entry| entry.id).collect();
    if journal.made(&group, "job").is_ok() {
        let kept = |id: &u64| journal.entries().any(|entry| entry.id == *id);
        assert!(before.iter().all(kept), "a new entry replaced one");
    }
    if before.is_empty() {
        // Nothing of the machine was changed but these, so it serves again.
        journal.forget(&group);
        journal.close();
        if let Some(aside) = &report.set_aside {
            let _ = bed.fs.unlink(aside);
        }
        BED.set(Some(bed));
        return;
    }
    journal.fall_back(u64::from(*words));
    journal.yield_again();
    let _ = journal.outside_writes(0..journal.entries().len());
    journal.restore_where(|_| true);
    journal.close();
}

/// A machine in memory: most of what an input takes is to make one.
struct Bed {
    fs: Arc<FakeFs>,
    groups: Arc<Groups>,
}

thread_local! {
    static BED: Cell<Option<Bed>> = const { Cell::new(None) };
    /// The page is as it was made, without slots.
    static IS_EMPTY: Cell<bool> = const { Cell::new(false) };
}

impl Bed {
    fn new() -> Bed {
        static MACHINE: LazyLock<Machine> =
            LazyLock::new(|| discover(&machine(), None).expect("the fake is a machine"));
        let fs = Arc::new(machine());
        let groups = Groups::new(Arc::clone(&fs) as Arc<dyn KernelFs>, &MACHINE);
        Bed {
            fs,
            groups: Arc::new(groups),
        }
    }
}

fn machine() -> FakeFs {
    let fs = FakeFs::v2();
    for pid in PIDS {
        fs.add_process(FakeProcess::new(pid));
    }
    let root = Path::new("/sys/fs/cgroup");
    let _ = fs.write(&root.join("cgroup.subtree_control"), "+cpu +cpuset");
    for group in GROUPS {
        let _ = fs.mkdir(&root.join(&group[1..]));
    }
    fs
}

/// Writes `ledger.moving`: these bytes as its slots, or as all that it has.
fn write_page(page: &[u8], is_all: bool) {
    const MAGIC: &[u8; 8] = b"tidemov1";
    const HEADER_BYTES: usize = 64;
    const BYTES: usize = HEADER_BYTES + 128 * 64;
    // Without slots nothing is changed in it: the file of the input before serves again.
    let is_empty = page.is_empty() && !is_all;
    if IS_EMPTY.replace(is_empty) && is_empty {
        return;
    }
    let mut bytes = vec![0; BYTES];
    let at = if is_all { 0 } else { HEADER_BYTES };
    if !is_all {
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    }
    bytes[at..at + page.len()].copy_from_slice(page);
    // In place: the file of the input before is not mapped any more.
    std::fs::write(scratch(MOVING_FILE), bytes).expect("the folder has room");
}
