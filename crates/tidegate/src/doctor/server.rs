//! What a server's settings of the kernel's own scheduler come to under the engine sched_ext.

use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default)]
pub struct ServerSettings {
    pub governor: Option<String>,
    /// CPUs that the kernel's scheduler keeps tasks off unless their affinity names them
    /// (`isolcpus`).
    pub isolated: Option<String>,
    /// CPUs without a tick while one task runs (`nohz_full`).
    pub nohz_full: Option<String>,
    /// A group whose utilisation is clamped (`cpu.uclamp.min`, `cpu.uclamp.max`).
    pub uclamp: Option<String>,
    /// The least and the largest capacity of a CPU, where they differ.
    pub capacities: Option<(u32, u32)>,
}

const GROUPS_MAX: usize = 4_096;

impl ServerSettings {
    pub fn gather() -> ServerSettings {
        ServerSettings::gather_below(Path::new("/"))
    }

    fn gather_below(root: &Path) -> ServerSettings {
        let cpus = root.join("sys/devices/system/cpu");
        ServerSettings {
            governor: read(&cpus.join("cpu0/cpufreq/scaling_governor")),
            isolated: read(&cpus.join("isolated")),
            nohz_full: read(&cpus.join("nohz_full")),
            uclamp: clamped_group(&root.join("sys/fs/cgroup")),
            capacities: capacities(&cpus),
        }
    }

    /// A sentence each, of what is set; `sched_ext`: the kernel has sched_ext.
    pub fn notes(&self, sched_ext: bool) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(cpus) = &self.isolated {
            notes.push(format!(
                "CPUs {cpus} are isolated: under every engine only tasks whose affinity names them run there, and their idle time \
                 counts as headroom; ask for that much more"
            ));
        }
        if !sched_ext {
            return notes;
        }
        if let Some(cpus) = &self.nohz_full {
            notes.push(format!(
                "engine sched_ext: CPUs {cpus} (nohz_full) have a tick while a task runs, since its slice ends there; use the engine cgroup \
                 where that matters"
            ));
        }
        if self.governor.as_deref() == Some("schedutil") {
            notes.push(
                "engine sched_ext: the frequency governor schedutil runs every CPU at its highest frequency, since the scheduler asks for no \
                 other; use the engine cgroup to save power"
                    .to_owned(),
            );
        }
        if let Some(group) = &self.uclamp {
            notes.push(format!(
                "engine sched_ext: cpu.uclamp.min and cpu.uclamp.max of the group {group} act on the frequency only, not on the choice of a \
                 CPU; use the engine cgroup where that matters"
            ));
        }
        if let Some((least, largest)) = self.capacities {
            notes.push(format!(
                "engine sched_ext: CPUs of capacity {least} to {largest} count as equal; use the engine cgroup, or keep main on the larger \
                 ones by a cpuset"
            ));
        }
        notes
    }
}

fn read(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty() && text != "(null)")
}

fn folders(path: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
}

/// The first group found that has a clamp of its own.
fn clamped_group(mount: &Path) -> Option<String> {
    let mut left: Vec<PathBuf> = folders(mount).collect();
    for _ in 0..GROUPS_MAX {
        let group = left.pop()?;
        let differs = |file: &str, default: &str| {
            read(&group.join(file)).is_some_and(|value| value != default)
        };
        if differs("cpu.uclamp.min", "0.00") || differs("cpu.uclamp.max", "max") {
            let inside = group.strip_prefix(mount).unwrap_or(&group);
            return Some(format!("/{}", inside.display()));
        }
        left.extend(folders(&group));
    }
    None
}

fn capacities(cpus: &Path) -> Option<(u32, u32)> {
    let all: Vec<u32> = folders(cpus)
        .filter_map(|cpu| read(&cpu.join("cpu_capacity"))?.parse().ok())
        .collect();
    let (least, largest) = (*all.iter().min()?, *all.iter().max()?);
    (least < largest).then_some((least, largest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_that_means_something_else_is_told() {
        assert!(ServerSettings::default().notes(true).is_empty());
        let all = ServerSettings {
            governor: Some("schedutil".to_owned()),
            isolated: Some("2-3".to_owned()),
            nohz_full: Some("3".to_owned()),
            uclamp: Some("/web".to_owned()),
            capacities: Some((446, 1024)),
        };
        let notes = all.notes(true);
        for (note, part) in notes.iter().zip([
            "CPUs 2-3 are isolated",
            "CPUs 3 (nohz_full)",
            "schedutil",
            "of the group /web",
            "capacity 446 to 1024",
        ]) {
            assert!(note.contains(part), "{note}");
        }
        assert_eq!((notes.len(), all.notes(false).len()), (5, 1));
        let performance = ServerSettings {
            governor: Some("performance".to_owned()),
            ..ServerSettings::default()
        };
        assert!(performance.notes(true).is_empty());
    }

    #[test]
    fn clamps_and_capacities_are_told_only_where_there_are_some() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let put = |file: &str, text: &str| {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for (cpu, capacity) in [(0, "446\n"), (1, "446\n")] {
            put(
                &format!("sys/devices/system/cpu/cpu{cpu}/cpu_capacity"),
                capacity,
            );
        }
        put("sys/fs/cgroup/web/cpu.uclamp.min", "0.00\n");
        put("sys/fs/cgroup/web/cpu.uclamp.max", "max\n");
        put("sys/fs/cgroup/web/inner/cpu.uclamp.min", "0.00\n");
        let plain = ServerSettings::gather_below(root);
        assert!(plain.notes(true).is_empty(), "{:?}", plain.notes(true));
        put("sys/devices/system/cpu/cpu1/cpu_capacity", "1024\n");
        put("sys/fs/cgroup/web/inner/cpu.uclamp.min", "20.00\n");
        let set = ServerSettings::gather_below(root);
        assert_eq!(set.uclamp.as_deref(), Some("/web/inner"));
        assert_eq!(set.capacities, Some((446, 1024)));
    }
}
