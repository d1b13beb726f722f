//! The fake's directories and what is common to v1 and v2: making, removing, listing, membership.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::group::{Group, Mount};
use super::process::{FakeProcess, Process};
use super::procfs::Procfs;
use super::sched::Sched;
use crate::{DirEntry, FileStat};

#[derive(Debug, Default)]
pub(super) struct State {
    pub mounts: Vec<Mount>,
    pub groups: BTreeMap<PathBuf, Group>,
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    pub procs: BTreeMap<i32, Process>,
    pub next_ino: u64,
    pub read_only: bool,
    pub hidden: BTreeSet<String>,
    pub rt_group_sched: bool,
    pub sched: Sched,
}

impl State {
    pub fn add_mount(&mut self, mount: Mount) {
        let ino = self.take_ino();
        self.groups.insert(mount.path.clone(), Group::new(ino));
        self.mounts.push(mount);
    }

    pub fn add_process(&mut self, facts: FakeProcess) {
        let at = self.mounts.iter().map(|mount| mount.path.clone()).collect();
        self.procs.insert(
            facts.pid,
            Process {
                facts,
                at,
                held: Vec::new(),
                apart: BTreeMap::new(),
            },
        );
    }

    pub fn end_process(&mut self, pid: i32) {
        if let Some(process) = self.procs.remove(&pid) {
            self.sched.forget(&process);
        }
    }

    pub fn hold(&mut self, pid: i32) -> Result<OwnedFd, i32> {
        let process = self.procs.get_mut(&pid).ok_or(libc::ESRCH)?;
        let (ours, its) =
            std::io::pipe().map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
        process.held.push(its.into());
        Ok(ours.into())
    }

    fn procfs(&self) -> Procfs<'_> {
        Procfs {
            mounts: &self.mounts,
            procs: &self.procs,
            read_only: self.read_only,
        }
    }

    fn take_ino(&mut self) -> u64 {
        self.next_ino += 1;
        self.next_ino
    }

    /// The mount that a path is on: the longest that it begins with.
    pub fn mount_of(&self, path: &Path) -> Option<usize> {
        let fits = |at: &usize| path.starts_with(&self.mounts[*at].path);
        (0..self.mounts.len())
            .filter(fits)
            .max_by_key(|at| self.mounts[*at].path.as_os_str().len())
    }

    pub fn is_root(&self, dir: &Path) -> bool {
        self.mounts.iter().any(|mount| mount.path == dir)
    }

    pub fn children<'a>(&'a self, dir: &'a Path) -> impl Iterator<Item = &'a PathBuf> + 'a {
        self.groups
            .keys()
            .filter(move |path| path.parent() == Some(dir) && !self.is_root(path))
    }

    pub fn pids_in(&self, mount: usize, dir: &Path) -> Vec<i32> {
        let here = |(pid, process): (&i32, &Process)| process.is_in(mount, dir).then_some(*pid);
        self.procs.iter().filter_map(here).collect()
    }

    pub fn populated(&self, mount: usize, dir: &Path) -> bool {
        self.procs.values().any(|process| {
            process
                .tids()
                .any(|tid| process.place(tid, mount).starts_with(dir))
        })
    }

    pub fn file_names(&self, mount: usize, dir: &Path) -> Vec<&'static str> {
        let names = match self.mounts[mount].version {
            1 => self.v1_files(mount),
            _ => self.v2_files(mount, dir),
        };
        names
            .into_iter()
            .filter(|name| !self.hidden.contains(*name))
            .collect()
    }

    /// The group and the file's name that a path means, if the group has such a file.
    fn split(&self, path: &Path) -> Option<(usize, PathBuf, &'static str)> {
        let mount = self.mount_of(path)?;
        let dir = path.parent()?;
        let name = path.file_name()?.to_str()?;
        self.groups.get(dir)?;
        let known = self
            .file_names(mount, dir)
            .into_iter()
            .find(|one| *one == name)?;
        Some((mount, dir.to_path_buf(), known))
    }

    pub fn read(&mut self, path: &Path) -> Result<Vec<u8>, i32> {
        if self.groups.contains_key(path) {
            return Err(libc::EISDIR);
        }
        if let Some((mount, dir, name)) = self.split(path) {
            let text = match self.mounts[mount].version {
                1 => self.v1_read(mount, &dir, name),
                _ => self.v2_read(mount, &dir, name),
            };
            return match (text, self.files.get(path)) {
                (Err(libc::ENOENT), Some(plain)) => Ok(plain.clone()),
                (text, _) => text.map(String::into_bytes),
            };
        }
        if let Some(contents) = self.files.get(path) {
            return Ok(contents.clone());
        }
        self.procfs()
            .read(path)
            .map(String::into_bytes)
            .ok_or(libc::ENOENT)
    }

    pub fn write(&mut self, path: &Path, value: &str) -> Result<(), i32> {
        let Some((mount, dir, name)) = self.split(path) else {
            let file = self.files.get_mut(path).ok_or(libc::ENOENT)?;
            *file = value.as_bytes().to_vec();
            return Ok(());
        };
        if self.read_only {
            return Err(libc::EROFS);
        }
        match self.mounts[mount].version {
            1 => self.v1_write(mount, &dir, name, value.trim()),
            _ => self.v2_write(mount, &dir, name, value.trim()),
        }
    }

    pub fn mkdir(&mut self, path: &Path) -> Result<(), i32> {
        self.mount_of(path).ok_or(libc::EPERM)?;
        let parent = path.parent().ok_or(libc::EINVAL)?;
        if !self.groups.contains_key(parent) {
            return Err(libc::ENOENT);
        }
        if self.groups.contains_key(path) || self.split(path).is_some() {
            return Err(libc::EEXIST);
        }
        if self.read_only {
            return Err(libc::EROFS);
        }
        let ino = self.take_ino();
        self.groups.insert(path.to_path_buf(), Group::new(ino));
        Ok(())
    }

    pub fn rmdir(&mut self, path: &Path) -> Result<(), i32> {
        if !self.groups.contains_key(path) {
            return Err(libc::ENOENT);
        }
        let mount = self.mount_of(path).ok_or(libc::ENOENT)?;
        if self.read_only {
            return Err(libc::EROFS);
        }
        if self.is_root(path) || self.children(path).next().is_some() || self.populated(mount, path)
        {
            return Err(libc::EBUSY);
        }
        self.groups.remove(path);
        Ok(())
    }

    pub fn list(&self, path: &Path) -> Result<Vec<DirEntry>, i32> {
        let entry = |name: &str, is_dir| DirEntry {
            name: name.to_owned(),
            is_dir,
        };
        let plain = self.files.keys().filter(|file| file.parent() == Some(path));
        let plain = plain.filter_map(|file| Some(entry(file.file_name()?.to_str()?, false)));
        let mut entries: Vec<DirEntry>;
        if self.groups.contains_key(path) {
            let mount = self.mount_of(path).ok_or(libc::ENOENT)?;
            let files = self.file_names(mount, path).into_iter();
            let children = self
                .children(path)
                .filter_map(|child| Some(entry(child.file_name()?.to_str()?, true)));
            let files = files.map(|name| entry(name, false));
            entries = files.chain(plain).chain(children).collect();
        } else if let Some(names) = self.procfs().list(path) {
            entries = names.iter().map(|name| entry(name, true)).collect();
        } else {
            entries = plain.collect();
            if entries.is_empty() {
                return Err(libc::ENOENT);
            }
        }
        entries.sort();
        Ok(entries)
    }

    pub fn stat(&self, path: &Path) -> Result<FileStat, i32> {
        // Devices are told apart by mount; files' inodes are of no interest to anybody.
        let dev = self.mount_of(path).map_or(1, |mount| 2 + mount as u64);
        let (ino, is_dir) = if let Some(group) = self.groups.get(path) {
            (group.ino, true)
        } else if self.split(path).is_some()
            || self.files.contains_key(path)
            || self.procfs().read(path).is_some()
        {
            (0, false)
        } else if self.procfs().list(path).is_some()
            || self.files.keys().any(|file| file.starts_with(path))
        {
            (0, true)
        } else {
            return Err(libc::ENOENT);
        };
        Ok(FileStat {
            dev,
            ino,
            uid: 0,
            is_dir,
        })
    }

    /// Moves a process; the version's own checks come before.
    pub fn enter(&mut self, mount: usize, dir: &Path, value: &str) -> Result<(), i32> {
        let pid: i32 = value.parse().map_err(|_| libc::EINVAL)?;
        let pid = if pid == 0 { super::SELF_PID } else { pid };
        let process = self.procs.get_mut(&pid).ok_or(libc::ESRCH)?;
        process.at[mount] = dir.to_path_buf();
        for at in process.apart.values_mut() {
            at[mount] = dir.to_path_buf();
        }
        Ok(())
    }

    pub fn enter_alone(&mut self, mount: usize, dir: &Path, value: &str) -> Result<(), i32> {
        let tid: i32 = value.parse().map_err(|_| libc::EINVAL)?;
        let mut processes = self.procs.values_mut();
        let process = processes
            .find(|process| process.tids().any(|one| one == tid))
            .ok_or(libc::ESRCH)?;
        if process.facts.threads.is_empty() {
            process.at[mount] = dir.to_path_buf();
            return Ok(());
        }
        let at = process.at.clone();
        process.apart.entry(tid).or_insert(at)[mount] = dir.to_path_buf();
        Ok(())
    }

    /// "1\n2\n" as `cgroup.procs` shows it.
    pub fn lines<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
        items
            .into_iter()
            .map(|item| item.to_string() + "\n")
            .collect()
    }
}
