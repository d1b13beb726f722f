//! Where mutants live: a copy of the law and its tests, with the C part as a shared object that is built again for each.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Mutant, tests_of};

/// Where no test ends for so long, one hangs: the sound law's take a few seconds each.
const HANGS_AFTER: Duration = Duration::from_secs(120);
/// The test program of the toolchain, not of the law; and what only it needs.
const LEFT_OUT: &str = "bpf_target";
const DEPENDENCIES_LEFT_OUT: [&str; 2] = ["libbpf-rs", "rustix"];

/// Replaces the crate's build script: the C part comes from outside.
const BUILD_SCRIPT: &str = r#"//! Links the shared object that `cargo xtask mutants` makes.
fn main() {
    let folder = std::env::var("TIDEGATE_LAW_OBJECT").unwrap_or_default();
    println!("cargo::rustc-link-search=native={folder}");
    println!("cargo::rustc-link-lib=dylib=tidegate_law_native");
    println!("cargo::rerun-if-changed=build.rs");
}
"#;

/// What became of a mutant.
pub enum Verdict {
    /// The first test that failed.
    Caught(String),
    Survived,
    Error(String),
}

/// Is this one of the tests that are to notice this mutant?
fn concerns(test: &str, mutant: &Mutant) -> bool {
    tests_of(mutant.header)
        .iter()
        .any(|start| test.starts_with(start))
}

/// When a test runs: quick ones first, those that search for a violation only for what the rest lets pass.
fn turn(test: &str) -> usize {
    match (test.contains("walk"), test.contains("bounds")) {
        (true, _) => 2,
        (_, true) => 1,
        _ => 0,
    }
}

/// The copy, its tests built.
pub struct Bed {
    root: PathBuf,
    /// The test program.
    binary: PathBuf,
    /// Its tests: module, `::`, function.
    tests: Vec<String>,
}

/// The header's text with the mutant in it.
pub fn broken(text: &str, mutant: &Mutant) -> Result<String, String> {
    match text.matches(mutant.from).count() {
        1 => Ok(text.replacen(mutant.from, mutant.to, 1)),
        found => Err(format!(
            "its text is there {found} times, not once; bring xtask/src/mutants/table_*.rs up to date"
        )),
    }
}

fn trouble(what: &Path, why: &std::io::Error) -> String {
    format!("{}: {why}", what.display())
}

/// Writes only what differs, so that cargo builds only that.
fn place(file: &Path, text: &[u8]) -> Result<(), String> {
    if fs::read(file).is_ok_and(|there| there == text) {
        return Ok(());
    }
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).map_err(|why| trouble(folder, &why))?;
    }
    fs::write(file, text).map_err(|why| trouble(file, &why))
}

/// Copies a folder's files and folders, less those named.
fn copy(from: &Path, to: &Path, leave_out: &[&str]) -> Result<(), String> {
    let entries = fs::read_dir(from).map_err(|why| trouble(from, &why))?;
    for entry in entries {
        let entry = entry.map_err(|why| trouble(from, &why))?;
        let name = entry.file_name();
        if leave_out.iter().any(|left| name == *left) {
            continue;
        }
        if entry.path().is_dir() {
            copy(&entry.path(), &to.join(&name), leave_out)?;
        } else {
            let text = fs::read(entry.path()).map_err(|why| trouble(&entry.path(), &why))?;
            place(&to.join(&name), &text)?;
        }
    }
    Ok(())
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file)
        .map_err(|why| format!("{}; run it at the top of the checkout", trouble(file, &why)))
}

impl Bed {
    /// Copies the law and builds its tests, without the network.
    pub fn new(top: &Path, root: &Path) -> Result<Self, String> {
        fs::create_dir_all(root).map_err(|why| trouble(root, &why))?;
        let root = root.canonicalize().map_err(|why| trouble(root, &why))?;
        // A test that is gone must not live on in the copy.
        let _ = fs::remove_dir_all(root.join("crates/law/tests"));
        copy(&top.join("law"), &root.join("law"), &[])?;
        copy(
            &top.join("crates/law"),
            &root.join("crates/law"),
            &[LEFT_OUT, "build.rs", "Cargo.toml"],
        )?;
        place(&root.join("crates/law/build.rs"), BUILD_SCRIPT.as_bytes())?;
        let crate_manifest = read(&top.join("crates/law/Cargo.toml"))?;
        let kept: Vec<&str> = crate_manifest
            .lines()
            .filter(|line| {
                !DEPENDENCIES_LEFT_OUT
                    .iter()
                    .any(|name| line.starts_with(name))
            })
            .collect();
        place(
            &root.join("crates/law/Cargo.toml"),
            (kept.join("\n") + "\n").as_bytes(),
        )?;
        let manifest = read(&top.join("Cargo.toml"))?;
        let members = manifest.replace(
            r#"members = ["crates/*", "xtask"]"#,
            r#"members = ["crates/law"]"#,
        );
        place(&root.join("Cargo.toml"), members.as_bytes())?;
        // Cargo takes out of it what the copy does not need: it is compared with the one it was made from.
        let lock = read(&top.join("Cargo.lock"))?;
        let lock_was = root.join("Cargo.lock.checkout");
        if fs::read_to_string(&lock_was).ok().as_ref() != Some(&lock) {
            place(&root.join("Cargo.lock"), lock.as_bytes())?;
            place(&lock_was, lock.as_bytes())?;
        }
        let mut bed = Self {
            root,
            binary: PathBuf::new(),
            tests: Vec::new(),
        };
        bed.compile(&bed.root.join("law"), &bed.root.join("sound"))?;
        bed.binary = bed.build()?;
        bed.tests = bed.list()?;
        Ok(bed)
    }

    /// The C part with the headers of `law`, as a shared object in `folder`.
    fn compile(&self, law: &Path, folder: &Path) -> Result<(), String> {
        fs::create_dir_all(folder).map_err(|why| trouble(folder, &why))?;
        let crate_folder = self.root.join("crates/law");
        let native = fs::read_dir(crate_folder.join("native"))
            .map_err(|why| trouble(&crate_folder, &why))?;
        let sources = native.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        let out = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
            .args(["-shared", "-fPIC", "-O2", "-std=gnu11", "-w", "-I"])
            .arg(law)
            .arg("-o")
            .arg(folder.join("libtidegate_law_native.so"))
            .args(sources)
            .output()
            .map_err(|why| format!("cc: {why}; install a C compiler"))?;
        if out.status.success() {
            Ok(())
        } else {
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            Err(format!(
                "does not compile: {}",
                said.lines().next().unwrap_or("")
            ))
        }
    }

    /// The test program, built. In a target folder of its own: in the checkout's, cargo takes this law for the checkout's, and links it
    /// into what it builds there.
    fn build(&self) -> Result<PathBuf, String> {
        let out = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args([
                "test",
                "--no-run",
                "--offline",
                "--test",
                "all",
                "--message-format=json",
                "--manifest-path",
            ])
            .arg(self.root.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(self.root.join("target"))
            .env("TIDEGATE_LAW_OBJECT", self.root.join("sound"))
            .current_dir(&self.root)
            .output()
            .map_err(|why| format!("cargo: {why}"))?;
        if !out.status.success() {
            return Err(format!(
                "the copy does not build:\n{}",
                String::from_utf8_lossy(&out.stderr)
            ));
        }
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        let messages = said
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let mut programs = messages
            .filter(|message| message["target"]["kind"][0] == "test")
            .filter_map(|message| message["executable"].as_str().map(PathBuf::from));
        programs
            .next()
            .ok_or_else(|| "crates/law has no test program".to_owned())
    }

    fn command(&self, object: &Path) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .current_dir(self.root.join("crates/law"))
            .env("LD_LIBRARY_PATH", object)
            // The same inputs each time, and no time spent on finding the least one.
            .env("PROPTEST_RNG_SEED", "1")
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    fn list(&self) -> Result<Vec<String>, String> {
        let out = self
            .command(&self.root.join("sound"))
            .arg("--list")
            .output()
            .map_err(|why| trouble(&self.binary, &why))?;
        let said = String::from_utf8_lossy(&out.stdout);
        let names = said.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(str::to_owned).collect())
    }

    /// Runs these tests on an object, up to the first that fails; its name, or how they ended otherwise.
    fn failure(&self, tests: &[&String], object: &Path) -> Result<Option<String>, String> {
        let log_path = object.join("tests.log");
        let log = fs::File::create(&log_path).map_err(|why| trouble(&log_path, &why))?;
        let mut child = self
            .command(object)
            .arg("--exact")
            .args(tests)
            .stdout(log)
            .spawn()
            .map_err(|why| trouble(&self.binary, &why))?;
        let (mut ended_at, mut told_bytes) = (Instant::now(), 0);
        loop {
            let status = child
                .try_wait()
                .map_err(|why| trouble(&self.binary, &why))?;
            let said = fs::read(&log_path).map_err(|why| trouble(&log_path, &why))?;
            let failed = first_failed(&String::from_utf8_lossy(&said));
            if said.len() > told_bytes {
                (ended_at, told_bytes) = (Instant::now(), said.len());
            }
            let hangs = ended_at.elapsed() > HANGS_AFTER;
            if failed.is_some() || hangs {
                let _ = child.kill();
                let _ = child.wait();
                return Ok(failed.or_else(|| Some("a test that hangs".to_owned())));
            }
            match status {
                Some(status) if status.success() => return Ok(None),
                Some(status) => return Ok(Some(format!("a crash ({status})"))),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// The law as it is must pass the tests of these mutants, or nothing below means anything; how many tests those are.
    pub fn sound(&self, mutants: &[&Mutant]) -> Result<usize, String> {
        let wanted = |test: &&String| mutants.iter().any(|mutant| concerns(test, mutant));
        let tests: Vec<&String> = self.tests.iter().filter(wanted).collect();
        match self.failure(&tests, &self.root.join("sound"))? {
            Some(first) => Err(format!(
                "{first} fails on the law as it is; mend that first"
            )),
            None => Ok(tests.len()),
        }
    }

    /// Breaks a copy of the law and runs its header's tests, up to the first that fails.
    pub fn judge(&self, mutant: &Mutant, worker: usize) -> Verdict {
        self.try_judge(mutant, worker)
            .unwrap_or_else(Verdict::Error)
    }

    fn try_judge(&self, mutant: &Mutant, worker: usize) -> Result<Verdict, String> {
        let folder = self.root.join(format!("broken-{worker}"));
        let law = folder.join("law");
        copy(&self.root.join("law"), &law, &[])?;
        let text = read(&law.join(mutant.header))?;
        place(&law.join(mutant.header), broken(&text, mutant)?.as_bytes())?;
        self.compile(&law, &folder)?;
        for nth in 0..=2 {
            let due = |test: &&String| concerns(test, mutant) && turn(test) == nth;
            let tests: Vec<&String> = self.tests.iter().filter(due).collect();
            if tests.is_empty() {
                continue;
            }
            if let Some(by) = self.failure(&tests, &folder)? {
                return Ok(Verdict::Caught(by));
            }
        }
        Ok(Verdict::Survived)
    }
}

/// The first test that such an output tells of as failed.
fn first_failed(said: &str) -> Option<String> {
    let mut lines = said.lines();
    lines.find_map(|line| {
        Some(
            line.strip_prefix("test ")?
                .strip_suffix(" ... FAILED")?
                .to_owned(),
        )
    })
}
