//! Terms that stand on groups themselves, as extended attributes `user.tidegate.TERM` (cgroup v2).
//! They count as far as the group's owner may go: each is what `tidegate set` by that user would
//! be.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{getxattr, listxattr};
use tidegate_api::{SetRequest, UnsetRequest};
use tidegate_cgroup::group::GroupPath;
use tidegate_engine::sync::lock;
use tracing::info;

use crate::agent::Agent;
use crate::peer::Peer;
use crate::policy::reconcile::alert_once;

const PREFIX: &str = "user.tidegate.";
/// A longer list of names, or value, is none of ours.
const BYTES_MAX: usize = 64 * 1024;

type Terms = BTreeMap<String, String>;

fn terms_of(dir: &Path) -> Terms {
    let mut names = vec![0_u8; 4096];
    let length = loop {
        match listxattr(dir, &mut names[..]) {
            Ok(length) => break length,
            Err(rustix::io::Errno::RANGE) if names.len() < BYTES_MAX => {
                names.resize(names.len() * 4, 0);
            }
            // Gone, or a kernel without them.
            Err(_) => return Terms::new(),
        }
    };
    let mut terms = Terms::new();
    let names = names[..length].split_inclusive(|byte| *byte == 0);
    for name in names.filter_map(|name| CStr::from_bytes_with_nul(name).ok()) {
        let Some(term) = name
            .to_str()
            .ok()
            .and_then(|name| name.strip_prefix(PREFIX))
        else {
            continue;
        };
        let mut value = vec![0_u8; 512];
        if let Ok(length) = getxattr(dir, CString::from(name), &mut value[..]) {
            let text = String::from_utf8_lossy(&value[..length]);
            terms.insert(term.to_owned(), text.trim().to_owned());
        }
    }
    terms
}

pub(super) struct Xattrs {
    inotify: OwnedFd,
    watched: HashMap<i32, GroupPath>,
    /// What was asked for by attributes, by group, with which group that was.
    asked: HashMap<GroupPath, (u64, Terms)>,
}

impl Xattrs {
    pub fn new() -> rustix::io::Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Self {
            inotify,
            watched: HashMap::new(),
            asked: HashMap::new(),
        })
    }

    /// Forgets groups that are gone: not every kernel tells of their end.
    pub fn forget_gone(&mut self, agent: &Agent) {
        let groups = &agent.runtime.kernel.groups;
        self.watched.retain(|number, group| {
            let is_there = groups.exists(group);
            if !is_there {
                let _ = inotify::remove_watch(&self.inotify, *number);
            }
            is_there
        });
        self.asked.retain(|group, _| groups.exists(group));
    }

    pub fn watch_below(&mut self, agent: &Agent, group: &GroupPath) {
        let groups = &agent.runtime.kernel.groups;
        for child in groups.children(group).unwrap_or_default() {
            self.watch_below(agent, &child);
        }
        if !group.is_root() {
            self.watch(agent, group);
        }
    }

    fn watch(&mut self, agent: &Agent, group: &GroupPath) {
        let kernel = &agent.runtime.kernel;
        if kernel.is_ours(group) {
            return;
        }
        let flags = WatchFlags::ATTRIB | WatchFlags::ONLYDIR;
        match inotify::add_watch(&self.inotify, kernel.groups.dir(group), flags) {
            Ok(number) => {
                self.watched.insert(number, group.clone());
            }
            Err(rustix::io::Errno::NOENT) => return,
            Err(error) => {
                let what = format!("{group}: {error}; its attributes are not followed");
                alert_once(&agent.runtime, "xattrs: watch: ", &what);
            }
        }
        self.look(agent, group);
    }

    pub fn follow(&mut self, agent: &Agent) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut changed = Vec::new();
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                changed = self.watched.values().cloned().collect();
            } else if event.events().contains(ReadFlags::IGNORED) {
                if let Some(group) = self.watched.remove(&event.wd()) {
                    self.asked.remove(&group);
                }
            // Of files in the directory only a name tells.
            } else if event.file_name().is_none() {
                changed.extend(self.watched.get(&event.wd()).cloned());
            }
        }
        changed.sort();
        changed.dedup();
        for group in changed {
            self.look(agent, &group);
        }
    }

    fn look(&mut self, agent: &Agent, group: &GroupPath) {
        let dir = agent.runtime.kernel.groups.dir(group);
        let Ok(id) = agent.runtime.kernel.groups.id(group) else {
            return;
        };
        let now = terms_of(&dir);
        // One that was made again has asked for nothing yet.
        let known = self.asked.get(group).filter(|(known, _)| *known == id);
        let before = known.map(|(_, terms)| terms.clone()).unwrap_or_default();
        if now == before {
            return;
        }
        let Ok(stat) = agent.runtime.kernel.groups.stat(group) else {
            return;
        };
        let owner = Peer {
            uid: stat.uid,
            ..Peer::default()
        };
        let target = format!("cgroup:{group}");
        let gone: Vec<String> = before
            .keys()
            .filter(|term| !now.contains_key(*term))
            .cloned()
            .collect();
        let done = if now.is_empty() {
            let terms = Vec::new();
            agent
                .unset(&owner, &UnsetRequest { target, terms })
                .map(drop)
        } else {
            let taken_back = match gone.is_empty() {
                true => Ok(()),
                false => {
                    let target = target.clone();
                    let request = UnsetRequest {
                        target,
                        terms: gone,
                    };
                    agent.unset(&owner, &request).map(drop)
                }
            };
            let terms = now.clone();
            taken_back.and_then(|()| {
                agent
                    .set(
                        &owner,
                        &SetRequest {
                            target,
                            terms,
                            only: false,
                        },
                    )
                    .map(drop)
            })
        };
        // A refusal is told once, until the attributes change again.
        self.asked.insert(group.clone(), (id, now));
        match done {
            Ok(()) => info!("xattrs: {group}: done as its owner, uid {}, asks", stat.uid),
            Err(error) => {
                let start = format!("xattrs: of uid {}: ", stat.uid);
                lock(&agent.runtime.alerts).retain(|known| !known.starts_with(&start));
                let error = error.to_string();
                // The group is named once.
                let named = format!("cgroup:{group}: ");
                let why = error.strip_prefix(&named).unwrap_or(&error);
                alert_once(&agent.runtime, &start, &format!("{group}: {why}"));
            }
        }
    }
}
