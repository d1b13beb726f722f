//! v2's files and rules: controllers handed down, no processes inside, threaded groups. The names
//! of the questions are the kernel's (`kernel/cgroup/cgroup.c`).

use std::path::{Path, PathBuf};

use super::cpu::number;
use super::tree::State;

const THREADED_CONTROLLERS: [&str; 4] = ["cpu", "cpuset", "pids", "perf_event"];

impl State {
    /// What a group may hand down: what its parent hands to it; the root has all.
    fn controllers_of(&self, mount: usize, dir: &Path) -> Vec<String> {
        if self.is_root(dir) {
            return self.mounts[mount].controllers.clone();
        }
        let parent = dir.parent().and_then(|parent| self.groups.get(parent));
        parent
            .map(|parent| parent.subtree.iter().cloned().collect())
            .unwrap_or_default()
    }

    pub(super) fn v2_files(&self, mount: usize, dir: &Path) -> Vec<&'static str> {
        let mut names = vec![
            "cgroup.controllers",
            "cgroup.subtree_control",
            "cgroup.procs",
            "cgroup.threads",
            "cpu.stat",
        ];
        let controllers = self.controllers_of(mount, dir);
        let has = |controller: &str| controllers.iter().any(|one| one == controller);
        if has("cpuset") {
            names.extend(super::cpuset::V2_FILES_ALSO_AT_ROOT);
        }
        if !self.is_root(dir) {
            names.extend(["cgroup.type", "cgroup.events"]);
            if has("cpuset") {
                names.extend(super::cpuset::V2_FILES);
            }
            if has("cpu") {
                names.extend(["cpu.max", "cpu.max.burst", "cpu.weight", "cpu.idle"]);
            }
        }
        names
    }

    pub(super) fn v2_read(&self, mount: usize, dir: &Path, name: &str) -> Result<String, i32> {
        let group = self.groups.get(dir).ok_or(libc::ENOENT)?;
        Ok(match name {
            "cgroup.controllers" => self.controllers_of(mount, dir).join(" ") + "\n",
            "cgroup.subtree_control" => {
                group.subtree.iter().cloned().collect::<Vec<_>>().join(" ") + "\n"
            }
            "cgroup.type" => format!("{}\n", self.type_of(mount, dir)),
            "cgroup.events" => format!(
                "populated {}\nfrozen 0\n",
                u8::from(self.populated(mount, dir))
            ),
            "cgroup.procs" => self.v2_procs(mount, dir)?,
            "cgroup.threads" => Self::lines(self.tids_in(mount, dir)),
            "cpu.max" => match group.quota_us {
                Some(quota_us) => format!("{quota_us} {}\n", group.period_us),
                None => format!("max {}\n", group.period_us),
            },
            "cpu.max.burst" => format!("{}\n", group.burst_us),
            "cpu.weight" => format!("{}\n", group.weight),
            "cpu.idle" => format!("{}\n", u8::from(group.idle)),
            "cpu.stat" => {
                let mut text = "usage_usec 0\nuser_usec 0\nsystem_usec 0\n".to_owned();
                if self.file_names(mount, dir).contains(&"cpu.max") {
                    text += "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n";
                    text += "nr_bursts 0\nburst_usec 0\n";
                }
                text
            }
            name if name.starts_with("cpuset.") => self.cpuset_read(dir, name, 2)?,
            _ => return Err(libc::ENOENT),
        })
    }

    /// A threaded group's processes are shown at the root of its thread domain, and nowhere else.
    fn v2_procs(&self, mount: usize, dir: &Path) -> Result<String, i32> {
        if self.is_threaded(dir) {
            return Err(libc::EOPNOTSUPP);
        }
        let here = |at: &Path| self.domain_of(at) == dir;
        let shown = self
            .procs
            .iter()
            .filter(|(_, process)| process.tids().any(|tid| here(process.place(tid, mount))));
        Ok(Self::lines(shown.map(|(pid, _)| *pid)))
    }

    pub(super) fn tids_in(&self, mount: usize, dir: &Path) -> Vec<i32> {
        self.procs
            .values()
            .flat_map(|process| {
                process
                    .tids()
                    .filter(|tid| process.place(*tid, mount) == dir)
            })
            .collect()
    }

    pub(super) fn v2_write(
        &mut self,
        mount: usize,
        dir: &Path,
        name: &str,
        value: &str,
    ) -> Result<(), i32> {
        let group = self.groups.get(dir).ok_or(libc::ENOENT)?;
        let (quota, period, burst) = (group.quota_us, group.period_us, group.burst_us);
        match name {
            "cgroup.procs" => {
                self.vet_destination(mount, dir)?;
                self.enter(mount, dir, value)
            }
            "cgroup.threads" => {
                let tid: i32 = value.parse().map_err(|_| libc::EINVAL)?;
                let from = self.place_of(tid, mount).ok_or(libc::ESRCH)?;
                // Within one domain only (`cgroup_attach_permissions`).
                if self.domain_of(&from) != self.domain_of(dir) {
                    return Err(libc::EOPNOTSUPP);
                }
                self.vet_destination(mount, dir)?;
                self.enter_alone(mount, dir, value)
            }
            "cgroup.subtree_control" => self.control(mount, dir, value),
            "cgroup.type" => match value {
                "threaded" => self.enable_threaded(mount, dir),
                _ => Err(libc::EINVAL),
            },
            "cpu.max" => {
                let mut words = value.split_whitespace();
                let quota = match words.next().ok_or(libc::EINVAL)? {
                    "max" => None,
                    word => Some(number(word)?),
                };
                // The kernel scans "%s %llu" and is content with the first.
                let period = words
                    .next()
                    .and_then(|word| word.parse().ok())
                    .unwrap_or(period);
                self.set_limit(mount, dir, (quota, period, burst))
            }
            "cpu.max.burst" => self.set_limit(mount, dir, (quota, period, number(value)?)),
            "cpu.weight" => {
                let weight = number(value)?;
                let group = self.groups.get_mut(dir).ok_or(libc::ENOENT)?;
                match weight {
                    1..=10_000 if group.idle => Err(libc::EINVAL),
                    1..=10_000 => {
                        group.weight = weight;
                        Ok(())
                    }
                    _ => Err(libc::ERANGE),
                }
            }
            "cpu.idle" => self.set_idle(dir, value),
            name if name.starts_with("cpuset.") => self.cpuset_write(mount, dir, name, value),
            _ => Err(libc::EINVAL),
        }
    }

    fn is_threaded(&self, dir: &Path) -> bool {
        self.groups.get(dir).is_some_and(|group| group.threaded)
    }

    fn has_tasks(&self, mount: usize, dir: &Path) -> bool {
        self.procs.values().any(|process| process.is_in(mount, dir))
    }

    fn place_of(&self, tid: i32, mount: usize) -> Option<PathBuf> {
        let process = self
            .procs
            .values()
            .find(|one| one.tids().any(|own| own == tid))?;
        Some(process.place(tid, mount).to_path_buf())
    }

    /// Of a threaded group, that of the topmost threaded one above: as that becomes threaded, those
    /// below come into its domain (`cgroup_enable_threaded`), also where a group between is none
    /// and cannot be used.
    fn domain_of(&self, dir: &Path) -> PathBuf {
        if !self.is_threaded(dir) {
            return dir.to_path_buf();
        }
        let top = dir.ancestors().filter(|up| self.is_threaded(up)).last();
        let domain = top.and_then(Path::parent);
        domain.unwrap_or(dir).to_path_buf()
    }

    fn hands_down(&self, dir: &Path, threaded: bool) -> bool {
        let wanted = |one: &String| THREADED_CONTROLLERS.contains(&one.as_str()) == threaded;
        self.groups
            .get(dir)
            .is_some_and(|group| group.subtree.iter().any(wanted))
    }

    fn is_thread_root(&self, mount: usize, dir: &Path) -> bool {
        let any_threaded_child = self.children(dir).any(|child| self.is_threaded(child));
        !self.is_threaded(dir)
            && (any_threaded_child || (self.has_tasks(mount, dir) && self.hands_down(dir, true)))
    }

    fn can_be_thread_root(&self, mount: usize, dir: &Path) -> bool {
        let populated_domain =
            |child: &PathBuf| !self.is_threaded(child) && self.populated(mount, child);
        self.is_root(dir)
            || (!self.is_threaded(dir)
                && !self.children(dir).any(populated_domain)
                && !self.hands_down(dir, false))
    }

    fn is_valid_domain(&self, mount: usize, dir: &Path) -> bool {
        let root = &self.mounts[mount].path;
        let ups = dir
            .ancestors()
            .skip(1)
            .take_while(|up| up.starts_with(root));
        let mut spoiled = ups.filter(|up| {
            self.is_threaded(up) || (!self.is_root(up) && self.is_thread_root(mount, up))
        });
        !self.is_threaded(dir) && spoiled.next().is_none()
    }

    fn type_of(&self, mount: usize, dir: &Path) -> &'static str {
        if self.is_threaded(dir) {
            "threaded"
        } else if !self.is_valid_domain(mount, dir) {
            "domain invalid"
        } else if self.is_thread_root(mount, dir) {
            "domain threaded"
        } else {
            "domain"
        }
    }

    fn enable_threaded(&mut self, mount: usize, dir: &Path) -> Result<(), i32> {
        if self.is_threaded(dir) {
            return Ok(());
        }
        let parent = dir.parent().ok_or(libc::EINVAL)?;
        let domain = self.domain_of(parent);
        let busy = self.populated(mount, dir) || self.hands_down(dir, false);
        if busy || !self.is_valid_domain(mount, &domain) || !self.can_be_thread_root(mount, &domain)
        {
            return Err(libc::EOPNOTSUPP);
        }
        self.groups.get_mut(dir).ok_or(libc::ENOENT)?.threaded = true;
        Ok(())
    }

    fn vet_destination(&self, mount: usize, dir: &Path) -> Result<(), i32> {
        if !self.is_valid_domain(mount, &self.domain_of(dir)) {
            return Err(libc::EOPNOTSUPP);
        }
        if self.is_threaded(dir) || self.can_be_thread_root(mount, dir) {
            return Ok(());
        }
        let empty = self
            .groups
            .get(dir)
            .is_some_and(|group| group.subtree.is_empty());
        if empty { Ok(()) } else { Err(libc::EBUSY) }
    }

    /// `cgroup_subtree_control_write`: all words together, or none.
    fn control(&mut self, mount: usize, dir: &Path, value: &str) -> Result<(), i32> {
        let mut enable: Vec<String> = Vec::new();
        let mut disable: Vec<String> = Vec::new();
        let group = self.groups.get(dir).ok_or(libc::ENOENT)?;
        for word in value.split_whitespace() {
            let name = word.get(1..).ok_or(libc::EINVAL)?.to_owned();
            match (&word[..1], group.subtree.contains(&name)) {
                ("+", true) | ("-", false) => {}
                ("+", false) if !self.controllers_of(mount, dir).contains(&name) => {
                    return Err(libc::ENOENT);
                }
                ("+", false) => enable.push(name),
                ("-", true) => disable.push(name),
                _ => return Err(libc::EINVAL),
            }
        }
        let uses = |child: &PathBuf, name: &String| {
            self.groups
                .get(child)
                .is_some_and(|group| group.subtree.contains(name))
        };
        if disable
            .iter()
            .any(|name| self.children(dir).any(|child| uses(child, name)))
        {
            return Err(libc::EBUSY);
        }
        self.vet_enable(mount, dir, &enable)?;
        let group = self.groups.get_mut(dir).ok_or(libc::ENOENT)?;
        group.subtree.extend(enable.iter().cloned());
        group.subtree.retain(|own| !disable.contains(own));
        if enable.iter().chain(&disable).any(|name| name == "cpu") {
            self.reset_children(dir);
        }
        Ok(())
    }

    /// `cgroup_vet_subtree_control_enable`.
    fn vet_enable(&self, mount: usize, dir: &Path, enable: &[String]) -> Result<(), i32> {
        if enable.is_empty() {
            return Ok(());
        }
        if !self.is_valid_domain(mount, &self.domain_of(dir)) {
            return Err(libc::EOPNOTSUPP);
        }
        if self.is_root(dir) {
            return Ok(());
        }
        let threaded_only = enable
            .iter()
            .all(|name| THREADED_CONTROLLERS.contains(&name.as_str()));
        if threaded_only && (self.is_threaded(dir) || self.can_be_thread_root(mount, dir)) {
            return Ok(());
        }
        if !threaded_only && (self.is_threaded(dir) || self.is_thread_root(mount, dir)) {
            return Err(libc::EOPNOTSUPP);
        }
        if self.has_tasks(mount, dir) {
            Err(libc::EBUSY)
        } else {
            Ok(())
        }
    }

    /// A controller that comes or goes starts afresh in the children.
    fn reset_children(&mut self, dir: &Path) {
        let children: Vec<PathBuf> = self.children(dir).cloned().collect();
        for child in children {
            if let Some(group) = self.groups.get_mut(&child) {
                group.reset_cpu();
            }
        }
    }
}
