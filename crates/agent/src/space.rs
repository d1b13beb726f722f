//! Idle kept in space: side work on whole cores, by the side root's cpuset.
//!
//! A thread beside the loop, ten looks a second: what the law allows now goes to the planner ([`tidegate_knobs::space`]), and what that
//! changes goes to the books and then to the cpuset. The loop has no part in it, for a cpuset takes longer to write than a step lasts; its
//! quota holds whatever the cpuset is.
//!
//! While side work is confined it yields by the least weight in place of the idle class: the kernel's wakeups take a CPU that runs
//! only idle-class work for idle and stay there, beside a busy sibling, where a whole core is free. Only the side root is confined:
//! targets that stay in their place have their quota alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_knobs::cpus::format_list;
use tidegate_knobs::group::{Gathered, GroupPath, GroupResult, Groups, WEIGHT_DEFAULT, WEIGHT_MIN};
use tidegate_knobs::ledger::{Change, Entry, Fallback};
use tidegate_knobs::space::{LOOK_NS, Space, SpaceConfig};
use tidegate_knobs::topology::Topology;
use tidegate_terms as terms;
use tracing::warn;

use crate::books::{Books, BooksError};
use crate::lease::monotonic_ns;
use crate::looper::lock;
use crate::owner::Owner;

/// `space = auto` is on from here, where CPUs share cores. On fewer (16 simulated CPUs) the few free cores are often all busy, and main's
/// 99th percentile was better under `cpu.idle` alone; with 32 it is even, with 64 and 256 whole cores win throughout.
const AUTO_CPUS_MIN: usize = 32;

/// Each so many looks the CPUs, the members and the weight are looked at, too.
const LOOKS_A_SECOND: u64 = 10;

/// What keeps idle in space.
pub struct Whole {
    planner: Space,
    topology: Topology,
    /// Wanted on this machine, and why or why not.
    wanted: bool,
    why: String,
    /// A cpuset of ours stands.
    stands: bool,
    gathered: Gathered,
    changes: u64,
    looks: u64,
    left_alone: bool,
    ended: bool,
    light: Arc<AtomicBool>,
    trouble: Option<String>,
}

impl Whole {
    /// On a machine like this.
    pub fn new(setting: terms::Space, topology: Topology, groups: &Groups) -> Self {
        let cpus = topology.cpus().len();
        let refused = groups.cpuset_refusal();
        let (wanted, why) = match (setting, refused) {
            (terms::Space::Off, _) => (false, "space = off".to_owned()),
            (_, Some(refused)) => (false, refused),
            (terms::Space::On, None) => (true, "space = on".to_owned()),
            (terms::Space::Auto, None) if cpus < AUTO_CPUS_MIN => (
                false,
                format!("{cpus} CPUs; space = auto is from {AUTO_CPUS_MIN}"),
            ),
            (terms::Space::Auto, None) if !topology.shares_cores() => {
                (false, "no two CPUs share a core".to_owned())
            }
            (terms::Space::Auto, None) => (true, "space = auto".to_owned()),
        };
        Self {
            planner: Space::new(SpaceConfig::default()),
            topology,
            wanted,
            why,
            stands: false,
            gathered: Gathered::default(),
            changes: 0,
            looks: 0,
            left_alone: false,
            ended: false,
            light: Arc::default(),
            trouble: None,
        }
    }

    /// Set while side work yields by the least weight.
    pub fn light(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.light)
    }

    /// Somebody else insists on the cpuset.
    pub fn leave_alone(&mut self) {
        self.left_alone = true;
    }

    /// For people.
    pub fn sentence(&self) -> String {
        if !self.wanted {
            return format!("in time only ({})", self.why);
        }
        if let Some(trouble) = &self.trouble {
            return format!("in time only: {trouble}");
        }
        if self.left_alone {
            return "in time only: somebody else writes the cpuset".to_owned();
        }
        if !self.stands {
            return format!("in space as soon as side work runs ({})", self.why);
        }
        let cpus = self.planner.standing();
        let count = self
            .topology
            .cores()
            .iter()
            .filter(|core| core.cpus.iter().any(|cpu| cpus.contains(cpu)))
            .count();
        let cores = match count {
            1 => "one whole core".to_owned(),
            count => format!("{count} whole cores"),
        };
        let others = match self.gathered.others {
            0 => String::new(),
            others => format!("; {others} processes keep a cpuset that somebody gave them"),
        };
        format!(
            "in space: side work on {cores}, CPUs {}, weight 1 ({}); {} changes in all{others}",
            format_list(&cpus),
            self.why,
            self.changes
        )
    }
}

/// Looks until the owner leaves.
pub(crate) fn run(owner: &Owner) {
    while !owner.leaving.load(Ordering::Acquire) {
        let wanted = lock(&owner.space).wanted;
        std::thread::sleep(Duration::from_nanos(if wanted {
            LOOK_NS
        } else {
            LOOK_NS * LOOKS_A_SECOND
        }));
        owner.look_at_space();
    }
}

impl Owner {
    /// One look.
    pub(crate) fn look_at_space(&self) {
        let root = self.side_root();
        let used = lock(&self.gates)
            .iter()
            .any(|gate| self.limited_group(gate).as_ref() == Some(&root));
        let mut whole = lock(&self.space);
        if whole.ended {
            return;
        }
        whole.looks += 1;
        let slow = whole.looks % LOOKS_A_SECOND == 1;
        if !whole.wanted || whole.left_alone || !used {
            // One that an owner before us left, or nobody needs any more.
            let stood = whole.stands || (slow && lock(&self.books).confined(&root).is_some());
            if stood && !whole.left_alone {
                self.relax(&mut whole, &root);
            }
            return;
        }
        // What was refused is tried again each second.
        if whole.trouble.is_some() && !slow {
            return;
        }
        let slow = slow || !whole.stands;
        let done = self
            .confine(&mut whole, &root, slow)
            .map_err(|error| error.to_string());
        if let Err(why) = &done
            && whole.trouble.as_ref() != Some(why)
        {
            warn!("whole cores: {why}");
        }
        if done.is_err() {
            whole.planner.forget();
        }
        whole.trouble = done.err();
    }

    fn confine(&self, whole: &mut Whole, root: &GroupPath, slow: bool) -> Result<(), String> {
        let wrong = |error: &dyn std::fmt::Display| error.to_string();
        if slow {
            // A machine whose CPUs cannot be read is as it was.
            whole.topology = Topology::read(&*self.fs).unwrap_or(whole.topology.clone());
            let parent = root.parent().unwrap_or_else(GroupPath::root);
            let allowed = self
                .groups
                .cpuset_allowed(&parent)
                .map_err(|error| wrong(&error))?;
            let topology = whole.topology.clone();
            whole.planner.set_cpus(&topology, &allowed);
        }
        let (allowance_ucpu, relieved) = {
            let control = lock(&self.control);
            let relieved = control.quotas.is_relieved(root);
            (control.decision().allowance_ucpu, relieved)
        };
        if let Some(cpus) = whole.planner.step(monotonic_ns(), allowance_ucpu) {
            self.write_cpuset(root, &cpus)
                .map_err(|error| wrong(&error))?;
            whole.changes += 1;
            whole.light.store(true, Ordering::Release);
            lighten(&self.groups, &mut lock(&self.books), root, !relieved)?;
            if !whole.stands {
                whole.stands = true;
                whole.gathered = self
                    .groups
                    .gather_cpuset(root)
                    .map_err(|error| wrong(&error))?;
            }
        } else if slow && whole.stands {
            // A guardian that stood in for us puts side work back into the idle class.
            lighten(&self.groups, &mut lock(&self.books), root, !relieved)?;
            whole.gathered = self
                .groups
                .gather_cpuset(root)
                .map_err(|error| wrong(&error))?;
        }
        Ok(())
    }

    /// Under the books' lock, so that nobody takes our write for somebody else's.
    fn write_cpuset(&self, root: &GroupPath, cpus: &[u32]) -> Result<(), String> {
        let mut books = lock(&self.books);
        let was = if self.groups.has_cpuset(root) {
            self.groups
                .cpuset(root)
                .map_err(|error| error.to_string())?
        } else {
            Vec::new()
        };
        books
            .will_confine(root, &was, cpus)
            .map_err(|error| error.to_string())?;
        let written = self
            .groups
            .open_cpuset(root)
            .and_then(|()| self.groups.set_cpuset(root, cpus));
        written.map_err(|error| error.to_string())
    }

    /// Side work may run everywhere again, in the idle class.
    fn relax(&self, whole: &mut Whole, root: &GroupPath) {
        whole.light.store(false, Ordering::Release);
        whole.stands = false;
        whole.planner.forget();
        // The processes first, without the books, for which the loop waits.
        if let Err(error) = self.groups.close_cpuset(root) {
            warn!("whole cores: {error}");
        }
        let mut books = lock(&self.books);
        let is_cpuset = |change: &Change| matches!(change, Change::Cpuset { .. });
        for line in books.restore_lines(|entry| entry.group == *root && is_cpuset(&entry.change)) {
            warn!("whole cores: {line}");
        }
        if self.groups.exists(root)
            && let Err(why) = darken(&self.groups, &mut books, root)
        {
            warn!("whole cores: {why}");
        }
    }

    /// The owner leaves: nothing of this stays.
    pub(crate) fn end_space(&self) {
        let root = self.side_root();
        let mut whole = lock(&self.space);
        whole.ended = true;
        if whole.stands {
            self.relax(&mut whole, &root);
        }
    }

    /// A new process of the side root's, before it runs its command: v1 wants it in the cpuset's group.
    pub(crate) fn gather_space(&self) {
        let mut whole = lock(&self.space);
        if !whole.stands || whole.ended {
            return;
        }
        match self.groups.gather_cpuset(&self.side_root()) {
            Ok(gathered) => whole.gathered = gathered,
            Err(error) => warn!("whole cores: {error}"),
        }
    }
}

impl Books {
    /// `group` is about to be confined to these CPUs; where it is not in the books yet, it had `was`.
    pub fn will_confine(
        &mut self,
        group: &GroupPath,
        was: &[u32],
        to: &[u32],
    ) -> Result<(), BooksError> {
        let is_cpuset = |change: &Change| matches!(change, Change::Cpuset { .. });
        if let Some(id) = self.entry(group, is_cpuset).map(|entry| entry.id) {
            self.ledger.update(id, |entry| {
                if let Change::Cpuset { previous, ours, .. } = &mut entry.change {
                    *previous = std::mem::replace(ours, to.to_vec());
                }
            })?;
            return Ok(());
        }
        let change = Change::Cpuset {
            was: was.to_vec(),
            previous: was.to_vec(),
            ours: to.to_vec(),
        };
        // Without an owner side work stays where it is: that costs main nothing, and the quota is at the floor.
        let entry = self.new_entry(group, "", change, Fallback::Stay)?;
        self.ledger.record(entry)?;
        Ok(())
    }

    /// The CPUs that `group` was last confined to, where it is.
    pub fn confined(&self, group: &GroupPath) -> Option<Vec<u32>> {
        match self.entry(group, |change| matches!(change, Change::Cpuset { .. })) {
            Some(Entry {
                change: Change::Cpuset { ours, .. },
                ..
            }) => Some(ours.clone()),
            _ => None,
        }
    }
}

/// Out of the idle class and of the least weight (or, while side work starves, of the default one).
pub(crate) fn lighten(
    groups: &Groups,
    books: &mut Books,
    group: &GroupPath,
    yielding: bool,
) -> Result<(), String> {
    let weight = if yielding { WEIGHT_MIN } else { WEIGHT_DEFAULT };
    let class = groups.class(group).map_err(|error| error.to_string())?;
    if class.idle != Some(true) && class.weight_raw == groups.weight_raw(weight) {
        return Ok(());
    }
    // Without an owner it goes back into the idle class.
    let noted = match class.idle {
        Some(_) => books.will_change_yield(group, false),
        None => books.will_change_yield(group, yielding),
    };
    noted.map_err(|error| error.to_string())?;
    let out_of_idle = |groups: &Groups| -> GroupResult<()> {
        if class.idle == Some(true) {
            groups.set_idle(group, false)?;
        }
        groups.set_weight(group, weight)
    };
    out_of_idle(groups).map_err(|error| error.to_string())
}

/// Back into the idle class.
fn darken(groups: &Groups, books: &mut Books, group: &GroupPath) -> Result<(), String> {
    books
        .will_change_yield(group, true)
        .map_err(|error| error.to_string())?;
    crate::limits::set_yielding(groups, group, true).map_err(|error| error.to_string())
}
