//! v2: what processes of a group would lose by leaving it: values of any controller, BPF programs.

use super::{GroupError, GroupPath, GroupResult, Groups};

/// Files of controllers with the value that restricts nothing, by the kernel's
/// `Documentation/admin-guide/cgroup-v2.rst`.
const UNRESTRICTED: &[(&str, &str)] = &[
    ("cpu.weight", "100"),
    ("cpu.idle", "0"),
    ("cpu.uclamp.min", "0.00"),
    ("cpu.uclamp.max", "max"),
    ("memory.min", "0"),
    ("memory.low", "0"),
    ("memory.high", "max"),
    ("memory.max", "max"),
    ("memory.swap.high", "max"),
    ("memory.swap.max", "max"),
    ("memory.zswap.max", "max"),
    ("memory.zswap.writeback", "1"),
    ("memory.oom.group", "0"),
    ("pids.max", "max"),
    ("io.weight", "default 100"),
    ("io.bfq.weight", "default 100"),
    ("io.max", ""),
    ("io.latency", ""),
    ("io.prio.class", "no-change"),
    ("cpuset.cpus", ""),
    ("cpuset.mems", ""),
    ("cpuset.cpus.exclusive", ""),
    ("cpuset.cpus.partition", "member"),
];

/// Controllers whose files `….max` have a limit for each kind of thing: `max`, or words that end
/// so.
const OF_KINDS: [&str; 4] = ["hugetlb.", "rdma.", "misc.", "dmem."];

fn is_of_kinds(file: &str) -> bool {
    file.ends_with(".max") && OF_KINDS.iter().any(|kind| file.starts_with(kind))
}

/// Whether this text in a file of a controller restricts nothing; `None` for a file that restricts
/// in no case.
fn is_unrestricted(file: &str, text: &str) -> Option<bool> {
    let text = text.trim();
    if file == "cpu.max" {
        return Some(text.starts_with("max"));
    }
    if is_of_kinds(file) {
        // `max`, or a name with `max` for each kind: `mlx4_0 hca_handle=max hca_object=max`.
        let is_max = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let values = words
                .get(1..)
                .filter(|rest| !rest.is_empty())
                .unwrap_or(&words);
            values.iter().all(|word| word.ends_with("max"))
        };
        return Some(text.lines().all(is_max));
    }
    let known = UNRESTRICTED.iter().find(|(name, _)| *name == file);
    known.map(|(_, value)| text == *value)
}

/// The first thing of `group` alone (not of those above it) that restricts its processes, as a
/// clause; `None` for nothing. What cannot be read, for another reason than that it is not there,
/// counts as one.
pub fn restriction(groups: &Groups, group: &GroupPath) -> GroupResult<Option<String>> {
    let dir = groups.dir(group);
    let fs = groups.fs();
    for entry in fs.list(&dir).map_err(GroupError::kfs(group))? {
        if entry.is_dir || is_unrestricted(&entry.name, "").is_none() {
            continue;
        }
        let text = match fs.read(&dir.join(&entry.name)) {
            Ok(text) => text,
            Err(error) if error.is_gone() => continue,
            Err(error) => return Ok(Some(format!("a file that cannot be read: {error}"))),
        };
        if is_unrestricted(&entry.name, &text) == Some(false) {
            let value: String = text.trim().chars().take(40).collect();
            return Ok(Some(format!("{} = {value}", entry.name)));
        }
    }
    Ok(match fs.has_programs(&dir) {
        Ok(false) => None,
        Ok(true) => Some("a BPF program (an address filter, a device list)".to_owned()),
        Err(error) => Some(format!("perhaps a BPF program: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_controllers_own_values_restrict_nothing_and_others_do() {
        for (file, value) in UNRESTRICTED {
            assert_eq!(
                is_unrestricted(file, &format!("{value}\n")),
                Some(true),
                "{file}"
            );
            assert_eq!(is_unrestricted(file, "7\n"), Some(false), "{file}");
        }
        for (file, text, is_free) in [
            ("cpu.max", "max 100000\n", Some(true)),
            ("cpu.max", "5000 100000\n", Some(false)),
            (
                "io.max",
                "8:0 rbps=1048576 wbps=max riops=max wiops=max\n",
                Some(false),
            ),
            ("hugetlb.2MB.max", "max\n", Some(true)),
            ("hugetlb.2MB.rsvd.max", "2097152\n", Some(false)),
            (
                "rdma.max",
                "mlx4_0 hca_handle=max hca_object=max\n",
                Some(true),
            ),
            (
                "rdma.max",
                "mlx4_0 hca_handle=2 hca_object=max\n",
                Some(false),
            ),
            ("misc.max", "sev max\nsev_es 10\n", Some(false)),
            ("misc.max", "", Some(true)),
            ("memory.current", "123456\n", None),
            ("cgroup.procs", "1\n2\n", None),
        ] {
            assert_eq!(is_unrestricted(file, text), is_free, "{file} {text}");
        }
    }
}
