//! One control plane for all tests of a run, and the commands that are tried on it.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::agent::FakeAgent;

/// The control plane: `make kube` says where it is.
const CONTROL_PLANE: &str = "TIDEGATE_CONTROL_PLANE";
/// How many nodes without a machine it has.
pub const NODES: &str = "TIDEGATE_NODES";

/// An emulated machine takes its time.
fn patience() -> Duration {
    let seconds = match std::env::var_os(crate::machine::FOLDER) {
        Some(_) => 240,
        None => 60,
    };
    Duration::from_secs(seconds)
}

pub struct Bed {
    kubeconfig: PathBuf,
    /// The control plane ends with this process, when this end of the pipe goes.
    stdin: ChildStdin,
    stdout: Mutex<BufReader<ChildStdout>>,
    child: Child,
    folder: tempfile::TempDir,
}

/// The control plane; the first test starts it, with the product's manifests applied.
pub fn bed() -> &'static Bed {
    static BED: OnceLock<Bed> = OnceLock::new();
    BED.get_or_init(|| {
        let nodes = std::env::var(NODES).unwrap_or_else(|_| "8".into());
        let bed = Bed::start(&["-machine", crate::machine::NAME, "-nodes", &nodes]);
        bed.install(&["tidegate.yaml", "side-cpu.yaml"]);
        bed.until(
            || {
                let mutated = bed.try_create(&side_pod("700m"));
                mutated.text.contains("tidegate.dev/side-cpu: \"700\"")
            },
            "a policy mutates",
        );
        bed
    })
}

/// Where the manifests put us.
pub const NAMESPACE: &str = "tidegate";

fn side_pod(side_cpu: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: p, namespace: {NAMESPACE}, annotations: {{tidegate.dev/side-cpu: {side_cpu}}}}}\n\
         spec: {{containers: [{{name: c, image: x}}]}}\n"
    )
}

pub struct Printed {
    pub is_ok: bool,
    pub text: String,
}

impl Printed {
    /// It failed, and said so.
    pub fn must_refuse(&self, says: &str, what: &str) {
        let is_refused = !self.is_ok && self.text.contains(says);
        assert!(is_refused, "{what}: not {says}: {}", self.text);
    }
}

impl Bed {
    pub fn start(options: &[&str]) -> Self {
        let program = std::env::var(CONTROL_PLANE)
            .unwrap_or_else(|_| panic!("{CONTROL_PLANE} is not set: run these by `make kube`"));
        let folder = tempfile::tempdir().expect("a folder");
        let mut child = Command::new(program)
            .arg("up")
            .args(options)
            .arg(folder.path().join("plane"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the control plane starts");
        let stdin = child.stdin.take().expect("it is piped");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        Bed {
            kubeconfig: until_ready(&mut stdout),
            stdin,
            stdout: Mutex::new(stdout),
            child,
            folder,
        }
    }

    /// The product's manifests in a new cluster, until its policies act.
    pub fn install(&self, files: &[&str]) {
        self.apply(&format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n"
        ));
        for file in files {
            self.apply_manifests(file);
        }
        let definition = "crd/tidegatepolicies.tidegate.dev";
        self.kubectl(&format!("wait --for=condition=Established {definition}"));
        // The API server takes a moment from a policy that is stored to one that acts.
        self.until(
            || !self.try_create(&side_pod("lots")).is_ok,
            "a policy refuses",
        );
    }

    /// One of the product's files, also over what a test has changed.
    pub fn apply_manifests(&self, file: &str) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/kubernetes");
        let applied = self.try_file("apply --server-side --force-conflicts", &folder.join(file));
        assert!(applied.is_ok, "{file}: {}", applied.text);
    }

    /// What the API server makes of a new object, which it does not store.
    pub fn try_create(&self, manifest: &str) -> Printed {
        self.try_with("create --dry-run=server -o yaml", manifest)
    }

    /// kubectl as the cluster's administrator; it must succeed. No word of the command has a space.
    pub fn kubectl(&self, command: &str) -> String {
        let printed = self.try_kubectl(command);
        assert!(printed.is_ok, "kubectl {command}: {}", printed.text);
        printed.text
    }

    /// kubectl, whatever comes of it.
    pub fn try_kubectl(&self, command: &str) -> Printed {
        self.run(command, &[])
    }

    /// The same on a manifest.
    pub fn try_with(&self, command: &str, manifest: &str) -> Printed {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), manifest).expect("it can be written");
        self.try_file(command, file.path())
    }

    fn try_file(&self, command: &str, file: &Path) -> Printed {
        self.run(command, &["-f".as_ref(), file.as_os_str()])
    }

    fn run(&self, command: &str, more: &[&OsStr]) -> Printed {
        let output = Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(command.split_whitespace())
            .args(more)
            .output()
            .expect("kubectl is installed");
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        Printed {
            is_ok: output.status.success(),
            text,
        }
    }

    /// Applies a manifest, which must be accepted.
    pub fn apply(&self, manifest: &str) {
        let printed = self.try_with("apply", manifest);
        assert!(printed.is_ok, "{manifest}: {}", printed.text);
    }

    /// A namespace of a test's own.
    pub fn namespace(&self, name: &str, labels: &str) {
        self.apply(&format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {{{labels}}}}}\n"
        ));
        let account = format!("-n {name} get serviceaccount default");
        self.until(|| self.try_kubectl(&account).is_ok, "its account");
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The API server's log of what `tidegate-kube` asked.
    pub fn audit(&self) -> PathBuf {
        self.kubeconfig.with_file_name("audit")
    }

    /// The API server is killed, and started again after a while.
    pub fn outage(&self, away: Duration) {
        writeln!(&self.stdin, "{}s", away.as_secs()).expect("the control plane reads");
        until_ready(&mut self.stdout.lock().expect("no test panics with it"));
    }

    /// What a kubelet in an emulated machine finds the API server by.
    pub fn kubeconfig_of_machine(&self, name: &str) -> PathBuf {
        let file = format!("system:node:{name}.kubeconfig");
        self.kubeconfig.with_file_name(file)
    }

    /// A field of an object, empty where there is none.
    pub fn field(&self, object: &str, path: &str) -> String {
        self.try_kubectl(&format!("get {object} -o jsonpath={{{path}}}"))
            .text
    }

    /// The API server stands still meanwhile.
    pub fn during_an_outage(&self, act: impl FnOnce()) {
        let parent = self.child.id().to_string();
        let found = Command::new("pgrep")
            .args(["-P", &parent, "-f", "kube-apiserver"])
            .output();
        let pid = String::from_utf8_lossy(&found.expect("pgrep is there").stdout)
            .trim()
            .to_owned();
        let signal = |name: &str| {
            let sent = Command::new("kill")
                .args([name, &pid])
                .status()
                .expect("kill is there");
            assert!(sent.success(), "{name} {pid}");
        };
        signal("-STOP");
        act();
        signal("-CONT");
    }

    /// The token that the DaemonSet's pod on a node has.
    pub fn token(&self, node: &str) -> String {
        let uid = self.field(&format!("node {node}"), ".metadata.uid");
        let bound =
            format!("--bound-object-kind Node --bound-object-name {node} --bound-object-uid {uid}");
        self.token_of(NAMESPACE, &format!("tidegate-kube {bound}"))
    }

    /// A new token of an account.
    pub fn token_of(&self, namespace: &str, account: &str) -> String {
        let token = self.kubectl(&format!("-n {namespace} create token {account}"));
        token.trim().to_owned()
    }

    pub fn published(&self, node: &str) -> String {
        self.field(
            &format!("node {node}"),
            r".status.capacity.tidegate\.dev/side-cpu",
        )
    }

    /// Waits for something to be so.
    pub fn until(&self, is_so: impl Fn() -> bool, what: &str) {
        let started = Instant::now();
        while !is_so() {
            let elapsed = started.elapsed();
            assert!(elapsed < patience(), "after {elapsed:?} not: {what}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// `tidegate-kube` of a node, with the numbers of the rule made short.
    pub fn keeper(&self, node: &str, agent: &FakeAgent, more: &[&str]) -> Keeper {
        let command = self.tidegate_kube(&["run", "--node", node]);
        started(command, agent, more)
    }

    /// The same with the rights that the manifests give it.
    pub fn keeper_of_node(&self, node: &str, agent: &FakeAgent, more: &[&str]) -> Keeper {
        let mut command = self.tidegate_kube(&["run", "--node", node]);
        command.env("KUBECONFIG", self.kubeconfig_with(&self.token(node)));
        started(command, agent, more)
    }

    /// `tidegate-kube` as the cluster's controller, with the rights that the manifests give it.
    pub fn controller(&self, arguments: &[&str]) -> Command {
        let token = self.token_of(NAMESPACE, "tidegate-control");
        let mut command = self.tidegate_kube(arguments);
        command.env("KUBECONFIG", self.kubeconfig_with(&token));
        command
    }

    /// The administrator's kubeconfig with another token. The audit has the calls of
    /// `tidegate-kube`'s own alone.
    pub fn kubeconfig_with(&self, token: &str) -> PathBuf {
        let admin = std::fs::read_to_string(&self.kubeconfig).expect("a kubeconfig");
        let file = tempfile::NamedTempFile::new_in(self.folder.path()).expect("a file");
        let (_, path) = file.keep().expect("it can be kept");
        std::fs::write(&path, admin.replace("admin-token", token)).expect("it can be written");
        path
    }

    pub fn tidegate_kube(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-kube"));
        command.env("KUBECONFIG", &self.kubeconfig).args(arguments);
        command
    }
}

fn started(mut command: Command, agent: &FakeAgent, more: &[&str]) -> Keeper {
    command.arg("--socket").arg(agent.socket());
    command.arg("--cgroups").arg(agent.cgroups());
    for number in [
        "warm_up_s=2",
        "mean_s=2",
        "window_s=4",
        "write_gap_s=1",
        "settle_s=1",
        "short_gap_s=1",
        "rise_gap_s=1",
    ] {
        command.args(["--with", number]);
    }
    Keeper::start(command.args(more))
}

/// The kubeconfig of a control plane that says that it is ready.
fn until_ready(stdout: &mut BufReader<ChildStdout>) -> PathBuf {
    let mut line = String::new();
    stdout.read_line(&mut line).expect("it speaks");
    let kubeconfig = line.trim().strip_prefix("ready ").expect("it is ready");
    kubeconfig.into()
}

/// A running `tidegate-kube` or other process, killed when it is dropped.
pub struct Keeper(pub Child);

impl Keeper {
    pub fn start(command: &mut Command) -> Self {
        Keeper(command.spawn().expect("it starts"))
    }

    /// Ends it as kubelet does.
    pub fn terminate(mut self) {
        let pid = self.0.id().to_string();
        let sent = Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .expect("kill is there");
        assert!(sent.success());
        let ended = self.0.wait().expect("it can be waited for");
        assert!(ended.success(), "{ended}");
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // After `terminate` there is nothing left to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
