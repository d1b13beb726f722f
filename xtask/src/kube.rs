//! `cargo xtask kube`: `tidegate-kube` against a real control plane.
//!
//! The control plane is built from tests/kube/controlplane, with Go's own cache (the first time
//! about ten minutes of two CPUs); the tests are those of crates/kube that a plain `cargo test`
//! leaves out. `up` starts one and stays, for a person with kubectl. `node` runs those of a real
//! node: kubelet, containerd and the DaemonSet in an emulated machine (tests/kube/node). `scale`
//! has 1,000 nodes and 5,000 pods, and an API server that fails in several ways meanwhile; `cost`
//! measures what a node pays.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};

const SOURCE: &str = "tests/kube/controlplane";
const KUBERNETES: &str = "v1.36.3";
/// No machine that lacks these can run it.
const NEEDED: &[&str] = &["go", "kubectl"];
const NEEDED_BY_NODE: &[&str] = &[
    "qemu-system-x86_64",
    "busybox",
    "mke2fs",
    "dpkg-deb",
    "apt-get",
];
const SKIPPED: u8 = 77;

const USAGE: &str = "\
usage: cargo xtask kube [TEST...]
       cargo xtask kube node [TEST]
       cargo xtask kube scale [NODES [PODS]]
       cargo xtask kube cost [PODS]
       cargo xtask kube up [NODES]

  Runs the tests of crates/kube that need a control plane; words choose among them.
  `node` runs those that need a real node, which it boots in an emulator.
  `scale` publishes for so many nodes (1000) while so many side pods (5000) are placed, in about ten minutes.
  `cost` measures the processes of a node with so many pods (110) on this machine, as root, in eight minutes.
  `up` starts a control plane with so many nodes (3) and stays until its input ends.";

pub fn main(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|one| one == "--help" || one == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let is_node = arguments.first().is_some_and(|first| first == "node");
    let needed = NEEDED
        .iter()
        .chain(NEEDED_BY_NODE.iter().filter(|_| is_node));
    if let Some(missing) = needed.into_iter().find(|name| find(name).is_none()) {
        println!("skipped: kube: no {missing}; install it and put it in PATH");
        return ExitCode::from(SKIPPED);
    }
    match act(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate: kube: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn act(arguments: &[String]) -> anyhow::Result<()> {
    let target = std::env::current_dir()
        .context("the folder")?
        .join("target");
    let program = target.join("controlplane");
    go_build(".", &program)?;
    let number =
        |at: usize, default: &str| arguments.get(at).map_or(default, String::as_str).to_owned();
    match arguments.first().map(String::as_str) {
        Some("up") => {
            let folder = tempfile::tempdir().context("a folder")?;
            let nodes = arguments.get(1).map_or("3", String::as_str);
            let mut up = Command::new(program);
            done(up.args(["up", "-nodes", nodes]).arg(folder.path()))
        }
        Some("node") => {
            let folder = target.join("kube-node");
            make_node(&folder, &target)?;
            let mut tests = tests(&program, &[]);
            // The tests share one control plane, and each installs Tidegate on it.
            tests.args(["--nocapture", "--test-threads", "1"]);
            match arguments.get(1) {
                Some(test) => tests.args(["--exact", &format!("node::{test}")]),
                None => tests.arg("node::"),
            };
            skip_without_helm(&mut tests, "node::a_node_with_static_cpus");
            done(tests.env("TIDEGATE_NODE", folder))
        }
        Some("scale") => {
            let mut tests = tests(&program, &["--release"]);
            tests.args(["--nocapture", "scale::"]);
            tests.env("TIDEGATE_NODES", number(1, "1000"));
            done(tests.env("TIDEGATE_PODS", number(2, "5000")))
        }
        Some("cost") => {
            done(cargo().args(["build", "--release", "--locked", "-p", "tidegate"]))?;
            let mut tests = tests(&program, &["--release"]);
            tests.args(["--nocapture", "cost::"]);
            tests.env("TIDEGATE_PODS", number(1, "110"));
            done(tests.env("TIDEGATE_PROGRAM", target.join("release/tidegate")))
        }
        _ => {
            let mut tests = tests(&program, &[]);
            tests.args(["--test-threads", "3"]);
            for apart in ["node::", "scale::", "cost::"] {
                tests.args(["--skip", apart]);
            }
            skip_without_helm(&mut tests, "chart::");
            done(tests.args(arguments))
        }
    }
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// cargo with the tests of crates/kube, those too that need what is built here.
fn tests(control_plane: &Path, options: &[&str]) -> Command {
    let mut tests = cargo();
    tests.args(["test", "--locked", "-p", "tidegate-kube", "--test", "all"]);
    tests.args(options).args(["--", "--include-ignored"]);
    tests.env("TIDEGATE_CONTROL_PLANE", control_plane);
    tests
}

fn skip_without_helm(tests: &mut Command, names: &str) {
    if find("helm").is_none() {
        println!("skipped: kube: {names}: no helm; install it and put it in PATH");
        tests.args(["--skip", names]);
    }
}

/// What a node is made of: Debian's packages, a kubelet, and images of our programs and of the
/// pods.
fn make_node(folder: &Path, target: &Path) -> anyhow::Result<()> {
    let scripts = Path::new("tests/kube/node");
    let images = folder.join("images");
    std::fs::create_dir_all(&images).with_context(|| format!("{}", images.display()))?;
    go_build("k8s.io/kubernetes/cmd/kubelet", &folder.join("kubelet"))?;
    done(Command::new(scripts.join("packages.sh")).arg(folder.join("packages")))?;
    done(cargo().args(["build", "--workspace", "--locked"]))?;
    let programs = target.join("debug");
    let ours = images.join("tidegate.tar");
    done(Command::new("scripts/image.sh").arg(programs).arg(ours))?;
    let vmtool = folder.join("vmtool");
    let sources = std::fs::read_dir("tests/vm")
        .context("tests/vm")?
        .flatten()
        .map(|file| file.path());
    let sources = sources.filter(|path| path.extension() == Some(OsStr::new("c")));
    let mut compile = Command::new("gcc");
    compile
        .args(["-O2", "-static", "-pthread", "-o"])
        .arg(&vmtool);
    compile.args(sources).arg("-lm");
    done(&mut compile)?;
    done(
        Command::new(scripts.join("image.sh"))
            .arg(vmtool)
            .arg(images),
    )
}

/// Builds a Go program of the control plane's module; Go finds out what is to be done.
fn go_build(package: &str, out: &Path) -> anyhow::Result<()> {
    let version = "k8s.io/component-base/version";
    let (major, minor) = KUBERNETES
        .trim_start_matches('v')
        .split_once('.')
        .context("a version")?;
    let minor = minor.split('.').next().unwrap_or_default();
    let link = format!(
        "-s -w -X {version}.gitVersion={KUBERNETES} -X {version}.gitMajor={major} -X {version}.gitMinor={minor} \
         -X k8s.io/client-go/pkg/version.gitVersion={KUBERNETES}"
    );
    let go = find("go").context("no go")?;
    let mut build = Command::new(go);
    build.current_dir(SOURCE).env("CGO_ENABLED", "0");
    build.args(["build", "-trimpath", "-ldflags", &link, "-o"]);
    done(build.arg(out).arg(package))
}

fn done(command: &mut Command) -> anyhow::Result<()> {
    let status = command
        .status()
        .with_context(|| format!("{}", command.get_program().display()))?;
    if !status.success() {
        bail!("{}: {status}", command.get_program().display());
    }
    Ok(())
}

/// A program of PATH, or of where Go's own installer puts it.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/local/go/bin")]);
    folders
        .map(|folder| folder.join(OsStr::new(name)))
        .find(|one: &PathBuf| Path::is_file(one))
}
