//! `cargo xtask support`: the table in docs/support.md of what each kind of machine can enforce,
//! taken from `tidegate doctor` there.
//!
//! `--write` asks on this machine, in the VM on each kernel, and as a user without rights beside an
//! agent; it writes the table and the VM's test that holds `doctor` to it
//! (`tests/vm/cases/engine-support.sh`). Without it, what can be asked here is compared with the
//! table, and every test that stands behind a cell is looked for ([`proofs`]).

mod proofs;
mod table;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use table::{Column, Words};
use tidegate_vm::{Job, Mode};

use crate::vm;

const HELP: &str = "\
usage: cargo xtask support [--write]

Compares docs/support.md with what `tidegate doctor` says on this machine, as root and as a user, and looks
for the tests that it names. --write makes the table again, and asks in the virtual machine, too.

Exit code 0 as it says, 1 not so, 2 usage, 77 skipped for a stated reason.";

const KERNELS: [&str; 2] = ["6.18", "7.3"];
const TITLES: [&str; 4] = [
    "cgroup v1, 6.18, root",
    "cgroup v2, 6.18, root (VM)",
    "cgroup v2, 7.3, root (VM)",
    "no root, beside an agent",
];
const PAGE: &str = "docs/support.md";
const CASE: &str = "tests/vm/cases/engine-support.sh";
const NOBODY: &str = "65534";
const PATIENCE: Duration = Duration::from_secs(20);

/// `cargo xtask support ARGUMENTS`.
pub fn main(arguments: &[String]) -> ExitCode {
    let write = match arguments {
        [] => false,
        [one] if one == "--write" => true,
        [one] if one == "--help" => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    };
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let done = match write {
        true => write_table(&repository),
        false => check(&repository),
    };
    match done {
        Ok(code) => code,
        Err(why) => {
            eprintln!("tidegate: support: {why:#}");
            ExitCode::FAILURE
        }
    }
}

fn write_table(repository: &Path) -> anyhow::Result<ExitCode> {
    let missing = proofs::missing(repository, &KERNELS);
    ensure!(missing.is_empty(), "{}", missing.join("; "));
    let binary = vm::tidegate_binary(&repository.canonicalize()?, "dev")?;
    let host = words(&run(Command::new(&binary).args(["doctor", "--json"]))?)?;
    let mut all = vec![host];
    for series in KERNELS {
        all.push(in_vm(repository, &binary, series)?);
    }
    all.push(as_user(&binary)?);
    let columns: Vec<Column> = TITLES
        .into_iter()
        .zip(all)
        .map(|(title, words)| Column { title, words })
        .collect();
    let page_path = repository.join(PAGE);
    let page = std::fs::read_to_string(&page_path)?;
    let page = table::put(&page, &table::markdown(&columns))
        .with_context(|| format!("{PAGE}: no markers for the table"))?;
    std::fs::write(&page_path, page)?;
    let vm: Vec<(&str, Words)> = KERNELS
        .into_iter()
        .zip(&columns[1..])
        .map(|(series, column)| (series, column.words.clone()))
        .collect();
    std::fs::write(repository.join(CASE), table::vm_case(&vm))?;
    println!("wrote {PAGE} and {CASE}");
    Ok(ExitCode::SUCCESS)
}

fn check(repository: &Path) -> anyhow::Result<ExitCode> {
    let missing = proofs::missing(repository, &KERNELS);
    ensure!(missing.is_empty(), "{}", missing.join("; "));
    let page = std::fs::read_to_string(repository.join(PAGE))?;
    let binary = vm::tidegate_binary(&repository.canonicalize()?, "dev")?;
    let said = run(Command::new(&binary).args(["doctor", "--json"]))?;
    if !is_the_tables_host(&said) {
        println!(
            "skipped: support: this machine is not the table's first (root, cgroup v1, kernel 6.18)"
        );
        println!("0 passed, 0 failed, 1 skipped");
        return Ok(ExitCode::from(77));
    }
    compare(&page, 0, &words(&said)?)?;
    compare(&page, 3, &as_user(&binary)?)?;
    println!("2 passed, 0 failed, 0 skipped");
    Ok(ExitCode::SUCCESS)
}

fn compare(page: &str, number: usize, said: &Words) -> anyhow::Result<()> {
    let (shown, found) = (table::column(page, number), table::as_shown(number, said));
    let title = TITLES[number];
    ensure!(
        shown == found,
        "{PAGE}: column {title:?} has {shown:?}, doctor says {found:?}; run: cargo xtask support --write"
    );
    Ok(())
}

fn is_the_tables_host(said: &str) -> bool {
    let has = |text: &str| said.contains(text);
    has("\"kernel 6.18") && has("cpu controller on v1") && has("\"root\"")
}

/// Standard output of a command that says something, whatever its exit code.
fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    let text = String::from_utf8(output.stdout)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(!text.is_empty(), "{command:?} said nothing: {errors}");
    Ok(text)
}

fn words(json: &str) -> anyhow::Result<Words> {
    let report: serde_json::Value = serde_json::from_str(json)?;
    let rows = report["mechanisms"].as_array().context("no mechanisms")?;
    let word =
        |row: &serde_json::Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let said: Words = rows
        .iter()
        .map(|row| (word(row, "name"), word(row, "now")))
        .collect();
    let known = proofs::PROOFS.iter().map(|proof| proof.mechanism);
    ensure!(
        said.iter().map(|(name, _)| name.as_str()).eq(known),
        "doctor's mechanisms are not those of xtask/src/support/proofs.rs"
    );
    Ok(said)
}

fn in_vm(repository: &Path, binary: &Path, series: &str) -> anyhow::Result<Words> {
    let mut setup = vm::setup(repository, &format!("support/{series}"), series);
    setup.scripts = None;
    setup.binaries = vec![("bin/tidegate".into(), binary.to_owned())];
    let job = Job {
        setup,
        mode: Mode::Precise,
        idle_polls: false,
        cpus: 1,
        command: ["tidegate", "doctor", "--json"].map(str::to_owned).to_vec(),
        environment: Vec::new(),
        files: Vec::new(),
        limit_s: 60,
        wall_limit: Duration::from_secs(400),
    };
    match job.run(&mut |line| eprintln!("vm {series}: {line}")) {
        Ok(done) => words(&done.stdout),
        Err(trouble) => bail!("{trouble}"),
    }
}

/// An agent of its own, in a directory that every user may read; ended when dropped.
struct Agent {
    dir: tempfile::TempDir,
    child: Child,
}

impl Agent {
    fn on(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("TIDEGATE_RUN_DIR", self.dir.path().join("run"));
        command.env(
            "TIDEGATE_PREFIX",
            format!("tgsupport-{}", std::process::id()),
        );
        command.current_dir("/");
        command
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a user without rights hears beside an agent that runs as a service.
fn as_user(binary: &Path) -> anyhow::Result<Words> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "the user's column needs root, to become another user"
    );
    let dir = tempfile::tempdir_in("/dev/shm")?;
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))?;
    let copy = dir.path().join("tidegate");
    std::fs::copy(binary, &copy)?;
    let copy = copy.display().to_string();
    let mut agent = Agent {
        dir,
        child: Command::new("true").spawn()?,
    };
    agent.child.wait()?;
    agent.child = agent
        .on(&copy)
        .args(["agent", "run"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let began = Instant::now();
    while !agent.on(&copy).arg("status").output()?.status.success() {
        ensure!(began.elapsed() < PATIENCE, "the agent did not start");
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut command = agent.on("setpriv");
    command.args([
        "--reuid",
        NOBODY,
        "--regid",
        NOBODY,
        "--clear-groups",
        &copy,
    ]);
    let said = run(command.args(["doctor", "--json"]));
    agent
        .on(&copy)
        .args(["agent", "stop"])
        .stdout(Stdio::null())
        .status()?;
    words(&said?)
}
