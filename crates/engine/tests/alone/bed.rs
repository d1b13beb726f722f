//! What the sensor is measured on: groups and hogs that go away with their guards, panic or not.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use tidegate_cgroup::RealFs;
use tidegate_cgroup::discover::{Machine, discover};
use tidegate_cgroup::group::{GroupPath, Groups};
use tidegate_engine::sense::Group;

/// A cgroup of this test's own, removed with whatever is left in it moved to the root.
pub struct TestGroup {
    groups: Groups,
    path: GroupPath,
    group: Group,
}

impl TestGroup {
    pub fn top(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let unique = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tgsense-{}-{unique}-{name}", std::process::id());
        Self::make(GroupPath::root().join(&name).unwrap())
    }

    pub fn below(&self, name: &str) -> Self {
        Self::make(self.path.join(name).unwrap())
    }

    fn make(path: GroupPath) -> Self {
        let (machine, groups) = machine().unwrap();
        groups.create(&path).unwrap();
        let cpu = groups.dir(&path);
        let usage = machine.cpuacct.map(|other| other.dir(&path));
        let group = Group::new(&cpu, usage.as_ref().unwrap_or(&cpu)).unwrap();
        Self {
            groups,
            path,
            group,
        }
    }

    pub fn take(&self, pid: u32) {
        self.groups.place(&self.path, pid as i32).unwrap();
    }

    pub fn group(&self) -> Group {
        self.group.clone()
    }
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        for pid in self.groups.procs(&self.path).unwrap_or_default() {
            let _ = self.groups.place(&GroupPath::root(), pid);
        }
        // A killed task leaves its group a moment after it was reaped.
        for _ in 0..100 {
            if self.groups.remove(&self.path).is_ok() {
                break;
            }
            sleep(Duration::from_millis(10));
        }
    }
}

/// None where no groups can be made.
fn machine() -> Option<(Machine, Groups)> {
    let machine = discover(&RealFs::new(), None).ok()?;
    let groups = Groups::new(Arc::new(RealFs::new()), &machine);
    machine.refusal().is_none().then_some((machine, groups))
}

/// Held by each test: hogs of two tests on one CPU would make a noise of switches that hides what
/// the sensor must notice by itself.
pub static QUIET: Mutex<()> = Mutex::new(());

/// None, with a line that says why, where these tests cannot run.
pub fn able() -> Option<MutexGuard<'static, ()>> {
    let why = if !rustix::process::geteuid().is_root() {
        "not root"
    } else if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        "no BTF in this kernel"
    } else if machine().is_none() {
        "no cpu controller that may be written"
    } else {
        return Some(QUIET.lock().unwrap_or_else(PoisonError::into_inner));
    };
    eprintln!("skipped: {why}");
    None
}

/// Binds the calling thread to the CPUs that `wanted` names.
pub fn bind(wanted: impl Fn(usize) -> bool) {
    // SAFETY: the set is plain bits on the stack; CPU_SET stays inside it (CPUs below its size),
    // and the kernel reads it. A set without CPUs is refused and changes nothing.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        (0..64)
            .filter(|cpu| wanted(*cpu))
            .for_each(|cpu| libc::CPU_SET(cpu, &mut set));
        libc::sched_setaffinity(0, size_of_val(&set), &set);
    }
}

/// A shell in an endless loop on one CPU.
pub struct Hog(Child);

impl Hog {
    /// The test itself leaves that CPU, if there is another: a hog that waits shows nothing new.
    pub fn on(cpu: usize) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        // SAFETY: between fork and exec; one system call on a local value.
        unsafe {
            command.pre_exec(move || {
                bind(|one| one == cpu);
                Ok(())
            });
        }
        let hog = Self(command.spawn().unwrap());
        bind(|one| one != cpu);
        hog
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Its CPU time by the kernel's own account, up to this moment.
    pub fn cpu_ns(&self) -> u64 {
        // SAFETY: both calls write only the locals passed.
        unsafe {
            let (mut clock, mut time) = (0, std::mem::zeroed::<libc::timespec>());
            assert_eq!(libc::clock_getcpuclockid(self.pid() as i32, &mut clock), 0);
            assert_eq!(libc::clock_gettime(clock, &mut time), 0);
            time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
        }
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
