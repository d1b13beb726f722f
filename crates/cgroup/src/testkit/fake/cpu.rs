//! v1's files, and the rules of the cpu controller that v1 and v2 share.

use std::path::Path;

use super::tree::State;

const PERIOD_MAX_US: u64 = 1_000_000;
const QUOTA_MIN_US: u64 = 1_000;
const QUOTA_MAX_US: u64 = 1 << 44;
const IDLE_SHARES: u64 = 3;

impl State {
    pub(super) fn v1_files(&self, mount: usize) -> Vec<&'static str> {
        let mut names = vec![
            "cgroup.procs",
            "tasks",
            "notify_on_release",
            "cgroup.clone_children",
        ];
        let has = |controller: &str| self.mounts[mount].has(controller);
        if has("cpu") {
            names.extend([
                "cpu.cfs_quota_us",
                "cpu.cfs_period_us",
                "cpu.cfs_burst_us",
                "cpu.shares",
                "cpu.idle",
            ]);
            names.push("cpu.stat");
            if self.rt_group_sched {
                names.push("cpu.rt_runtime_us");
            }
        }
        if has("cpuacct") {
            names.push("cpuacct.usage");
        }
        if has("cpuset") {
            names.extend(super::cpuset::V1_FILES);
        }
        names
    }

    pub(super) fn v1_read(&self, mount: usize, dir: &Path, name: &str) -> Result<String, i32> {
        let group = self.groups.get(dir).ok_or(libc::ENOENT)?;
        Ok(match name {
            "cgroup.procs" => Self::lines(self.pids_in(mount, dir)),
            "tasks" => Self::lines(self.tids_in(mount, dir)),
            "cpu.cfs_quota_us" => match group.quota_us {
                Some(quota_us) => format!("{quota_us}\n"),
                None => "-1\n".to_owned(),
            },
            "cpu.cfs_period_us" => format!("{}\n", group.period_us),
            "cpu.cfs_burst_us" => format!("{}\n", group.burst_us),
            "cpu.shares" => format!("{}\n", group.shares),
            "cpu.idle" => format!("{}\n", u8::from(group.idle)),
            "cpuacct.usage" => "0\n".to_owned(),
            "cpu.stat" => {
                "nr_periods 0\nnr_throttled 0\nthrottled_time 0\nnr_bursts 0\nburst_time 0\n"
                    .to_owned()
            }
            name if name.starts_with("cpuset.") => self.cpuset_read(dir, name, 1)?,
            _ => "0\n".to_owned(),
        })
    }

    pub(super) fn v1_write(
        &mut self,
        mount: usize,
        dir: &Path,
        name: &str,
        value: &str,
    ) -> Result<(), i32> {
        let group = self.groups.get(dir).ok_or(libc::ENOENT)?;
        let (quota, period, burst) = (group.quota_us, group.period_us, group.burst_us);
        match name {
            "cgroup.procs" => self.v1_enter(mount, dir, value),
            "tasks" => self.v1_enter_alone(mount, dir, value),
            "cpu.cfs_quota_us" => {
                let quota: i64 = value.parse().map_err(|_| libc::EINVAL)?;
                self.set_limit(mount, dir, (u64::try_from(quota).ok(), period, burst))
            }
            "cpu.cfs_period_us" => self.set_limit(mount, dir, (quota, number(value)?, burst)),
            "cpu.cfs_burst_us" => self.set_limit(mount, dir, (quota, period, number(value)?)),
            "cpu.shares" => self.set_shares(dir, number(value)?),
            "cpu.idle" => self.set_idle(dir, value),
            "notify_on_release" | "cgroup.clone_children" => Ok(()),
            name if name.starts_with("cpuset.") => self.cpuset_write(mount, dir, name, value),
            _ => Err(libc::EINVAL),
        }
    }

    /// `cpu_cgroup_can_attach`: with RT_GROUP_SCHED a group without RT runtime takes no real-time
    /// thread, and the whole process stays.
    fn refuses_real_time(&self, mount: usize, dir: &Path) -> bool {
        self.mounts[mount].has("cpu") && self.rt_group_sched && !self.is_root(dir)
    }

    fn v1_enter(&mut self, mount: usize, dir: &Path, value: &str) -> Result<(), i32> {
        let pid: i32 = value.parse().map_err(|_| libc::EINVAL)?;
        let real_time = self.procs.get(&pid).is_some_and(|process| {
            process
                .tids()
                .any(|tid| process.is_real_time(tid) == Some(true))
        });
        if real_time && self.refuses_real_time(mount, dir) {
            return Err(libc::EINVAL);
        }
        self.cpuset_takes(mount, dir)?;
        self.enter(mount, dir, value)
    }

    fn v1_enter_alone(&mut self, mount: usize, dir: &Path, value: &str) -> Result<(), i32> {
        let tid: i32 = value.parse().map_err(|_| libc::EINVAL)?;
        let mut procs = self.procs.values();
        let real_time = procs.any(|process| process.is_real_time(tid) == Some(true));
        if real_time && self.refuses_real_time(mount, dir) {
            return Err(libc::EINVAL);
        }
        self.enter_alone(mount, dir, value)
    }

    /// `tg_set_cfs_bandwidth`.
    pub(super) fn set_limit(
        &mut self,
        mount: usize,
        dir: &Path,
        (quota, period, burst): (Option<u64>, u64, u64),
    ) -> Result<(), i32> {
        if self.is_root(dir) {
            return Err(libc::EINVAL);
        }
        if quota.is_some_and(|quota| !(QUOTA_MIN_US..=QUOTA_MAX_US).contains(&quota)) {
            return Err(libc::EINVAL);
        }
        if !(QUOTA_MIN_US..=PERIOD_MAX_US).contains(&period) {
            return Err(libc::EINVAL);
        }
        if quota.is_some_and(|quota| burst > quota) {
            return Err(libc::EINVAL);
        }
        let group = self.groups.get_mut(dir).ok_or(libc::ENOENT)?;
        let old = (group.quota_us, group.period_us, group.burst_us);
        (group.quota_us, group.period_us, group.burst_us) = (quota, period, burst);
        if self.mounts[mount].version == 1 && !self.schedulable(mount) {
            let group = self.groups.get_mut(dir).ok_or(libc::ENOENT)?;
            (group.quota_us, group.period_us, group.burst_us) = old;
            return Err(libc::EINVAL);
        }
        Ok(())
    }

    /// `tg_cfs_schedulable_down`, v1: no ratio above that of the nearest limited ancestor.
    fn schedulable(&self, mount: usize) -> bool {
        let root = &self.mounts[mount].path;
        let ratio = |dir: &Path| {
            let group = self.groups.get(dir)?;
            // `to_ratio`: 20 bits of fraction.
            Some((u128::from(group.quota_us?) << 20) / u128::from(group.period_us))
        };
        let within = self
            .groups
            .keys()
            .filter(|dir| dir.starts_with(root) && dir.as_path() != root);
        within
            .filter_map(|dir| Some((dir, ratio(dir)?)))
            .all(|(dir, own)| {
                let limit = dir
                    .ancestors()
                    .skip(1)
                    .take_while(|up| up.starts_with(root))
                    .find_map(ratio);
                limit.is_none_or(|limit| own <= limit)
            })
    }

    /// `sched_group_set_shares`.
    fn set_shares(&mut self, dir: &Path, shares: u64) -> Result<(), i32> {
        let root = self.is_root(dir);
        let group = self.groups.get_mut(dir).ok_or(libc::ENOENT)?;
        if root || group.idle {
            return Err(libc::EINVAL);
        }
        group.shares = shares.clamp(2, 262_144);
        Ok(())
    }

    /// `sched_group_set_idle`.
    pub(super) fn set_idle(&mut self, dir: &Path, value: &str) -> Result<(), i32> {
        let root = self.is_root(dir);
        let group = self.groups.get_mut(dir).ok_or(libc::ENOENT)?;
        let idle = match value {
            _ if root => return Err(libc::EINVAL),
            "0" => false,
            "1" => true,
            _ => return Err(libc::EINVAL),
        };
        if idle != group.idle {
            group.idle = idle;
            group.shares = if idle { IDLE_SHARES } else { 1_024 };
            // 3 shares on v2's scale, rounded to 0; since 6.12 clamped to the least weight.
            group.weight = if idle { 1 } else { 100 };
        }
        Ok(())
    }
}

pub(super) fn number(value: &str) -> Result<u64, i32> {
    value.parse().map_err(|_| libc::EINVAL)
}
