//! What a server's settings of the kernel's own scheduler come to under the engine ext.

use std::path::Path;

/// What is set on this machine.
#[derive(Clone, Debug, Default)]
pub struct ServerSettings {
    /// The governor of the first CPU's frequency.
    pub governor: Option<String>,
    /// CPUs that the kernel's scheduler keeps tasks off unless their affinity names them (`isolcpus`).
    pub isolated: Option<String>,
    /// CPUs without a tick while one task runs (`nohz_full`).
    pub nohz_full: Option<String>,
    /// The kernel has utilisation clamping.
    pub uclamp: bool,
}

impl ServerSettings {
    /// Reads them.
    pub fn gather() -> ServerSettings {
        let read = |path: &str| {
            let text = std::fs::read_to_string(path).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty() && text != "(null)")
        };
        let cpu = "/sys/devices/system/cpu";
        ServerSettings {
            governor: read(&format!("{cpu}/cpu0/cpufreq/scaling_governor")),
            isolated: read(&format!("{cpu}/isolated")),
            nohz_full: read(&format!("{cpu}/nohz_full")),
            uclamp: Path::new("/proc/sys/kernel/sched_util_clamp_min").exists(),
        }
    }

    /// A sentence each, of what is set; `ext`: the kernel has sched_ext.
    pub fn notes(&self, ext: bool) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(cpus) = &self.isolated {
            notes.push(format!(
                "CPUs {cpus} are isolated: under every engine only tasks whose affinity names them run there, and their idle time \
                 counts as headroom; ask for that much more"
            ));
        }
        if !ext {
            return notes;
        }
        if let Some(cpus) = &self.nohz_full {
            notes.push(format!(
                "engine ext: CPUs {cpus} (nohz_full) have a tick while a task runs, since its slice ends there; use the engine knobs \
                 where that matters"
            ));
        }
        if self.governor.as_deref() == Some("schedutil") {
            notes.push(
                "engine ext: the frequency governor schedutil runs every CPU at its highest frequency, since the scheduler asks for no \
                 other; use the engine knobs to save power"
                    .to_owned(),
            );
        }
        if self.uclamp {
            notes.push(
                "engine ext: cpu.uclamp.min and cpu.uclamp.max act on the frequency only, not on the choice of a CPU"
                    .to_owned(),
            );
        }
        notes
    }
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
            uclamp: true,
        };
        let notes = all.notes(true);
        for (note, part) in notes.iter().zip([
            "CPUs 2-3 are isolated",
            "CPUs 3 (nohz_full)",
            "schedutil",
            "cpu.uclamp",
        ]) {
            assert!(note.contains(part), "{note}");
        }
        assert_eq!((notes.len(), all.notes(false).len()), (4, 1));
        let performance = ServerSettings {
            governor: Some("performance".to_owned()),
            ..ServerSettings::default()
        };
        assert!(performance.notes(true).is_empty());
    }
}
