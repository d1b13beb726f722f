//! An instance of Tidegate of a test's own: its run directory, its cgroup prefix, its copy of the
//! command.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::support_kill::processes::kill9;

/// What a test needs, or the end of the test where this machine has it not: the reason was printed.
macro_rules! or_skip {
    ($needed:expr) => {
        match $needed {
            Some(needed) => needed,
            None => return,
        }
    };
}
pub(crate) use or_skip;

/// Runs the command behind it as a user without rights.
pub const AS_NOBODY: [&str; 6] = [
    "setpriv",
    "--reuid",
    "65534",
    "--regid",
    "65534",
    "--clear-groups",
];

/// Longer than anything here takes on a loud machine.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// One instance. Dropping it stops its agent and looks for what it left.
pub struct Instance {
    dir: tempfile::TempDir,
    prefix: String,
    binary: PathBuf,
}

impl Instance {
    /// A new instance, or `None` with the reason printed where headroom cannot be enforced.
    pub fn new(name: &str) -> Option<Instance> {
        // In memory, as /run is: the agent's shared pages must not wait for a disk's journal.
        let memory = Path::new("/dev/shm");
        let dir = match memory.is_dir() {
            true => tempfile::tempdir_in(memory).unwrap(),
            false => tempfile::tempdir().unwrap(),
        };
        // Other users' commands must get at the socket and the copy of the command.
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let binary = dir.path().join("tidegate");
        // By another process: a test beside this one may fork while we hold the copy open for
        // writing, and then it could not be executed (ETXTBSY) until that child has its own
        // program.
        let copied = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_tidegate"))
            .arg(&binary)
            .status()
            .unwrap();
        assert!(copied.success(), "cp to {}", binary.display());
        let prefix = format!("tgtest-{name}-{}", std::process::id());
        let instance = Instance {
            dir,
            prefix,
            binary,
        };
        match why_not(&instance) {
            None => Some(instance),
            Some(why) => {
                eprintln!("skipped: {name}: {why}");
                None
            }
        }
    }

    /// Another instance with the same copy of the command.
    pub fn beside(&self, name: &str) -> Instance {
        let parent = self.dir.path().parent().unwrap_or(Path::new("/tmp"));
        let dir = tempfile::tempdir_in(parent).unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        Instance {
            dir,
            prefix: format!("{}-{name}", self.prefix),
            binary: self.binary.clone(),
        }
    }

    pub fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// The instance's environment on another program.
    pub fn on(&self, mut command: Command) -> Command {
        command
            .env("TIDEGATE_RUN_DIR", self.run_dir())
            .env("TIDEGATE_PREFIX", &self.prefix);
        for name in ["SUDO_UID", "SUDO_GID", "SUDO_USER"] {
            command.env_remove(name);
        }
        command
    }

    pub fn tidegate(&self, words: &[&str]) -> Command {
        let mut command = self.on(Command::new(&self.binary));
        command.args(words);
        command
    }

    /// Runs `tidegate WORDS` to its end.
    pub fn output(&self, words: &[&str]) -> Output {
        self.tidegate(words).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs it and insists on success; gives back standard output.
    pub fn ok(&self, words: &[&str]) -> String {
        let output = self.output(words);
        assert!(
            output.status.success(),
            "tidegate {words:?}: {}",
            describe(&output)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs it and insists on this exit code; gives back standard error.
    #[track_caller]
    pub fn fails(&self, words: &[&str], code: i32) -> String {
        ends_with(&self.output(words), code)
    }

    /// `tidegate WORDS` by a user without rights.
    pub fn by_nobody(&self, words: &[&str]) -> Command {
        let mut command = self.on(Command::new(AS_NOBODY[0]));
        command.args(&AS_NOBODY[1..]);
        command.arg(&self.binary).args(words).current_dir("/");
        command.stdin(Stdio::null());
        command
    }

    /// The agent's process, where one answers.
    pub fn agent(&self) -> Option<u64> {
        let output = self.output(&["status", "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        status["pid"].as_u64()
    }

    /// Kills the agent and waits for the one that its guardian starts.
    pub fn kill_agent(&self) {
        let dead = self.agent();
        kill9(dead.unwrap() as i32);
        wait_for("another agent", || {
            let next = self.agent();
            next.is_some() && next != dead
        });
    }

    pub fn json(&self, words: &[&str]) -> serde_json::Value {
        let mut words = words.to_vec();
        words.push("--json");
        serde_json::from_str(&self.ok(&words)).unwrap()
    }

    /// A command that runs in a gate until it is dropped.
    pub fn background(&self, flags: &[&str], command: &[&str]) -> Background {
        let mut words = vec!["run", "--quiet"];
        words.extend(flags);
        words.push("--");
        words.extend(command);
        let mut running = self.tidegate(&words);
        running
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0);
        Background(running.spawn().unwrap())
    }

    /// A sleeper in a gate of side work, once the gate is there.
    pub fn sleeper(&self, name: &str) -> Background {
        let running = self.background(&["--side", "--name", name], &["sleep", "1000"]);
        self.gate(name);
        running
    }

    /// Waits until a gate of this name is there, and gives it back as `show` has it.
    pub fn gate(&self, name: &str) -> serde_json::Value {
        let mut found = serde_json::Value::Null;
        wait_for(&format!("gate {name}"), || {
            let output = self.output(&["status", name, "--json"]);
            if output.status.success() {
                found = serde_json::from_slice(&output.stdout).unwrap();
            }
            output.status.success()
        });
        found
    }

    /// Directories of this instance anywhere in the cgroup trees.
    pub fn groups_left(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut todo = vec![(PathBuf::from("/sys/fs/cgroup"), 0)];
        while let Some((dir, depth)) = todo.pop() {
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                if entry
                    .file_name()
                    .to_string_lossy()
                    .starts_with(&self.prefix)
                {
                    found.push(entry.path());
                } else if depth < 4 {
                    todo.push((entry.path(), depth + 1));
                }
            }
        }
        found
    }

    /// Waits until the agent has left by itself, and everything with it.
    pub fn gone(&self) {
        wait_for("the agent to leave", || {
            !self.run_dir().join("tidegate.sock").exists()
        });
        wait_for("the groups to go", || self.groups_left().is_empty());
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let socket = self.run_dir().join("tidegate.sock");
        if socket.exists() || !self.groups_left().is_empty() {
            self.output(&["agent", "stop"]);
            self.output(&["agent", "repair"]);
        }
        let left = self.groups_left();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.run_dir().join("agent.log")).unwrap_or_default();
            eprintln!("--- the agent's log ---\n{log}---");
        } else {
            assert!(left.is_empty(), "groups left behind: {left:?}");
        }
    }
}

/// Killed and waited for when dropped, so that no test leaves a process.
pub struct Background(pub Child);

impl Background {
    /// A command outside Tidegate.
    pub fn start(words: &[&str]) -> Background {
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .stdin(Stdio::null())
            .process_group(0);
        Background(command.spawn().unwrap())
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // The whole process group: a shell's child would go on without it.
        let _ = Command::new("kill")
            .args(["-KILL", "--", &format!("-{}", self.0.id())])
            .stderr(Stdio::null())
            .status();
        let _ = self.0.wait();
    }
}

fn why_not(instance: &Instance) -> Option<String> {
    static ASKED: OnceLock<Option<String>> = OnceLock::new();
    ASKED
        .get_or_init(|| {
            let output = instance.output(&["doctor", "--json"]);
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            match report["enforceable"].as_bool() {
                Some(true) => None,
                _ => Some(report["verdict"].as_str().unwrap_or_default().to_owned()),
            }
        })
        .clone()
}

pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(
            started.elapsed() < PATIENCE,
            "waited {PATIENCE:?} for {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Insists on this exit code; gives back standard error.
#[track_caller]
pub fn ends_with(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{}", describe(output));
    stderr(output)
}

pub fn describe(output: &Output) -> String {
    format!(
        "{}\nstdout: {}\nstderr: {}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The lines of `/proc/PID/cgroup`, or nothing when the process is gone.
pub fn cgroups_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default()
}

/// The processes that the first thread of `pid` has forked.
pub fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let text = text.unwrap_or_default();
    text.split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// Where the cpu controller's groups are, and whether it is v1's.
pub fn cpu_mount() -> (PathBuf, bool) {
    let v1 = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"];
    match v1
        .iter()
        .map(Path::new)
        .find(|path| path.join("cpu.shares").exists())
    {
        Some(path) => (path.to_owned(), true),
        None => (PathBuf::from("/sys/fs/cgroup"), false),
    }
}

/// The file of a group's quota, and what it holds with this quota in periods of 100 ms.
pub fn quota_file(group: &Path, quota_us: Option<u32>) -> (PathBuf, String) {
    let (file, none, period) = match cpu_mount().1 {
        true => ("cpu.cfs_quota_us", "-1", ""),
        false => ("cpu.max", "max", " 100000"),
    };
    let text = quota_us.map_or(none.to_owned(), |us| format!("{us}{period}"));
    (group.join(file), text)
}

/// Another program's group, and that program.
pub struct OtherGroup {
    pub path: PathBuf,
    pub name: String,
}

impl OtherGroup {
    pub fn new(instance: &Instance) -> OtherGroup {
        OtherGroup::named(instance, "other")
    }

    pub fn named(instance: &Instance, name: &str) -> OtherGroup {
        // Not the instance's prefix: what is left is not looked for there.
        let name = format!("{name}-{}", instance.prefix());
        let path = cpu_mount().0.join(&name);
        std::fs::create_dir(&path).unwrap();
        OtherGroup { path, name }
    }

    /// One that `set` made side work.
    pub fn of_side(instance: &Instance) -> OtherGroup {
        let group = OtherGroup::new(instance);
        instance.ok(&["set", &group.target(), "class=side"]);
        group
    }

    pub fn target(&self) -> String {
        format!("cgroup:/{}", self.name)
    }

    /// Everything that a gate may change.
    pub fn values(&self) -> Vec<String> {
        let files = [
            "cpu.cfs_quota_us",
            "cpu.cfs_period_us",
            "cpu.cfs_burst_us",
            "cpu.shares",
            "cpu.idle",
            "cpu.max",
            "cpu.max.burst",
            "cpu.weight",
        ];
        let read = |file: &str| std::fs::read_to_string(self.path.join(file)).ok();
        files.into_iter().filter_map(read).collect()
    }

    pub fn enter(&self, pid: u32) {
        std::fs::write(self.path.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// The program gives its group a weight.
    pub fn write_weight(&self) {
        let (file, weight) = match cpu_mount().1 {
            true => ("cpu.shares", "512"),
            false => ("cpu.weight", "70"),
        };
        std::fs::write(self.path.join(file), weight).unwrap();
    }

    /// The program sets a quota of its own over Tidegate's.
    pub fn write_quota(&self) {
        let (file, quota) = quota_file(&self.path, Some(70_000));
        std::fs::write(file, quota).unwrap();
    }
}

impl Drop for OtherGroup {
    fn drop(&mut self) {
        // A process that was killed leaves its group a moment later.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.path).is_ok() || !self.path.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
