//! The guest's file system: busybox, the bed's own scripts and helper, the asked tests, and
//! `tidegate` with the libraries it needs (or whatever programs a job brings), in one uncompressed
//! archive that the kernel unpacks into memory.

use crate::catalog::Case;
use crate::cpio::Archive;
use crate::userland::Userland;
use crate::{Setup, VmError, command, tool};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The bare guest's first process, and the loop over the tests.
const INIT: &str = include_str!("../guest/init");
const RUNNER: &str = include_str!("../guest/runner.sh");
/// Under systemd: the service that runs the tests, and what the machine is to come up to.
const SYSTEMD: [(&str, &str); 3] = [
    ("vm/systemd.sh", include_str!("../guest/systemd.sh")),
    (
        "etc/systemd/system/tests.service",
        include_str!("../guest/tests.service"),
    ),
    (
        "etc/systemd/system/tests.target",
        include_str!("../guest/tests.target"),
    ),
];
/// Units that have nothing to do in a guest of a minute's life.
const MASKED: [&str; 10] = [
    // They would fail: nothing here is installed by its scripts, and there are no modules.
    "ldconfig.service",
    "systemd-modules-load.service",
    "systemd-hwdb-update.service",
    "systemd-journal-catalog-update.service",
    "systemd-journal-flush.service",
    "systemd-update-done.service",
    "systemd-update-utmp.service",
    "systemd-machine-id-commit.service",
    "systemd-firstboot.service",
    "systemd-sysusers.service",
];

/// Programs that come from this machine: Debian's stress test, and what a build takes.
const FROM_HERE: [&str; 3] = ["stress-ng", "make", "cc1"];

/// The kernel's own test of cgroups' CPU files, built from a kernel's source.
const TEST_CPU: &str = "test_cpu";
/// What names that source; Debian has it in its package linux-source-*.
const KERNEL_SOURCE: &str = "TIDEGATE_KERNEL_SOURCE";

/// What says how long a test that soaks goes on, and its default.
const SOAK: &str = "TIDEGATE_SOAK_S";
const SOAK_S: u32 = 60;

/// What goes into an image besides the tests.
pub struct Parts {
    busybox: PathBuf,
    applets: Vec<String>,
    /// `lib.sh`, beside which the other scripts are, and the compiled `vmtool`, where the suite's
    /// tests run.
    scripts: Option<(PathBuf, PathBuf)>,
    /// Programs, stripped: where they go in the guest, and where they lie here.
    binaries: Vec<(String, PathBuf)>,
    /// Further files: where they go in the guest, and where they lie here.
    pub extras: Vec<(String, PathBuf)>,
    /// The same, in guests with a test that needs the program named first.
    pub for_some: Vec<(String, String, PathBuf)>,
}

impl Parts {
    /// Finds or builds every part; the work folder takes what is built.
    pub fn gather(setup: &Setup) -> Result<Parts, VmError> {
        let busybox = tool("busybox")?;
        if !libraries(&busybox)?.is_empty() {
            let place = busybox.display().to_string();
            return Err(VmError::new(
                "make the guest",
                &place,
                "it is not linked statically",
                "apt-get install busybox-static",
            )
            .lacking());
        }
        let listed = output(
            Command::new(&busybox).arg("--list"),
            "list busybox's applets",
        )?;
        let compiled = |folder: &PathBuf| {
            let helper = compiled(folder, &setup.work)?;
            Ok((folder.join("lib.sh"), helper))
        };
        let binaries = setup
            .binaries
            .iter()
            .map(|(place, binary)| Ok((place.clone(), stripped(binary, place, &setup.work)?)));
        Ok(Parts {
            busybox,
            applets: listed.lines().map(str::to_string).collect(),
            scripts: setup.scripts.as_ref().map(compiled).transpose()?,
            binaries: binaries.collect::<Result<_, VmError>>()?,
            extras: Vec::new(),
            for_some: Vec::new(),
        })
    }

    /// Writes the archive that runs `cases`, in their order: by itself, or over a userland's own.
    pub fn write(
        &self,
        cases: &[&Case],
        mode: &str,
        userland: Option<&Userland>,
        to: &Path,
    ) -> Result<(), VmError> {
        let mut tree = Tree::default();
        for directory in ["proc", "sys", "dev", "run", "tmp", "etc", "vm/cases"] {
            tree.directory(directory);
        }
        tree.archive.character_device("dev/console", 5, 1);
        self.programs(&mut tree, userland.is_some())?;
        for name in FROM_HERE {
            if cases.iter().any(|case| case.needs(name)) {
                from_here(&mut tree, name)?;
            }
        }
        if cases.iter().any(|case| case.needs(TEST_CPU)) {
            test_cpu(&mut tree, to.parent().unwrap_or(Path::new(".")))?;
        }
        for (place, file) in &self.extras {
            tree.copy(place, file)?;
        }
        for (program, place, file) in &self.for_some {
            if cases.iter().any(|case| case.needs(program)) {
                tree.copy(place, file)?;
            }
        }
        tree.text("vm/runner.sh", RUNNER);
        let mut list = String::new();
        for case in cases {
            let text = fs::read_to_string(&case.file)
                .map_err(|e| VmError::io("read a guest test", &case.file, &e))?;
            tree.text(&format!("vm/cases/{}.sh", case.name), &text);
            list.push_str(&format!("{} {}\n", case.name, case.limit_s));
        }
        tree.text("vm/cases/list", &list);
        tree.text("vm/cases/mode", &format!("{mode}\n"));
        tree.text("vm/cases/soak_s", &format!("{}\n", soak_s()?));
        let mut bytes = Vec::new();
        match userland {
            None => tree.bare(),
            Some(userland) => {
                tree.systemd();
                bytes = fs::read(&userland.archive)
                    .map_err(|e| VmError::io("read the userland", &userland.archive, &e))?;
            }
        }
        bytes.extend(tree.archive.finish());
        fs::write(to, bytes).map_err(|e| VmError::io("write the guest's image", to, &e))
    }

    fn programs(&self, tree: &mut Tree, has_userland: bool) -> Result<(), VmError> {
        // A userland's `bin` is a link, and its own libraries serve: they are not to be mixed with
        // this machine's.
        let (tools, bin) = match has_userland {
            true => ("vm/bin", "usr/bin"),
            false => ("bin", "bin"),
        };
        tree.copy(&format!("{tools}/busybox"), &self.busybox)?;
        for applet in self.applets.iter().filter(|name| *name != "busybox") {
            tree.archive
                .symlink(&format!("{tools}/{applet}"), "busybox");
        }
        match &self.scripts {
            None => tree.text("vm/lib.sh", "set -eu\n"),
            Some((library, helper)) => {
                for script in scripts_beside(library)? {
                    let name = script.file_name().unwrap_or_default();
                    tree.copy(&format!("vm/{}", name.to_string_lossy()), &script)?;
                }
                tree.copy(&format!("{bin}/vmtool"), helper)?;
            }
        }
        for (place, binary) in &self.binaries {
            let place = place.trim_start_matches('/');
            match place.strip_prefix("bin/").filter(|_| has_userland) {
                Some(name) => tree.copy(&format!("{bin}/{name}"), binary)?,
                None => tree.copy(place, binary)?,
            }
            for library in libraries(binary)?.iter().filter(|_| !has_userland) {
                tree.copy(&library.to_string_lossy(), library)?;
            }
        }
        Ok(())
    }
}

/// The archive, with each parent directory made once before what lies in it.
#[derive(Default)]
struct Tree {
    archive: Archive,
    made: BTreeSet<String>,
}

impl Tree {
    fn directory(&mut self, path: &str) {
        let path = path.trim_matches('/');
        if !path.is_empty() && self.made.insert(path.to_string()) {
            self.parents(path);
            self.archive.directory(path);
        }
    }

    /// What a guest without a userland needs.
    fn bare(&mut self) {
        self.text("init", INIT);
        self.text(
            "etc/passwd",
            "root:x:0:0:root:/:/bin/sh\nguest:x:1000:1000:guest:/tmp:/bin/sh\n",
        );
        self.text("etc/group", "root:x:0:\nguest:x:1000:\n");
    }

    /// What the packages' own scripts would have left, as far as it matters here, and the bed's
    /// units.
    fn systemd(&mut self) {
        self.archive.symlink("init", "usr/lib/systemd/systemd");
        self.archive.symlink("usr/bin/sh", "../../vm/bin/busybox");
        self.archive.symlink("var/run", "/run");
        for (place, text) in SYSTEMD {
            self.text(place, text);
        }
        let units = "etc/systemd/system";
        self.archive
            .symlink(&format!("{units}/default.target"), "tests.target");
        for unit in MASKED {
            self.archive
                .symlink(&format!("{units}/{unit}"), "/dev/null");
        }
        self.text(
            "etc/passwd",
            "root:x:0:0:root:/:/bin/sh\nguest:x:1000:1000:guest:/tmp:/bin/sh\n\
             messagebus:x:100:101:bus:/nonexistent:/bin/false\n",
        );
        let groups = "root:x:0:\nadm:x:4:\ntty:x:5:\ndisk:x:6:\nutmp:x:43:\nguest:x:1000:\nmessagebus:x:101:\n\
             systemd-journal:x:102:\n";
        self.text("etc/group", groups);
        self.text(
            "etc/nsswitch.conf",
            "passwd: files\ngroup: files\nhosts: files\n",
        );
        self.text("etc/machine-id", "74696465676174652d766d2d62656421\n");
        self.text("etc/hostname", "tidegate-vm\n");
    }

    fn parents(&mut self, path: &str) {
        if let Some((parent, _)) = path.trim_start_matches('/').rsplit_once('/') {
            self.directory(parent);
        }
    }

    fn text(&mut self, path: &str, content: &str) {
        self.parents(path);
        self.archive.file(path, 0o755, content.as_bytes());
    }

    /// Once: programs share libraries.
    fn copy(&mut self, path: &str, from: &Path) -> Result<(), VmError> {
        if !self.made.insert(path.trim_matches('/').to_string()) {
            return Ok(());
        }
        self.parents(path);
        let io = |e| VmError::io("copy into the guest", from, &e);
        let mode = fs::metadata(from).map_err(io)?.permissions().mode() & 0o777;
        self.archive.file(path, mode, &fs::read(from).map_err(io)?);
        Ok(())
    }
}

/// Where this machine has no such program, the tests that need it skip themselves.
fn from_here(tree: &mut Tree, name: &str) -> Result<(), VmError> {
    let program = match name {
        // The compiler proper is in no PATH.
        "cc1" => {
            let asked = Command::new("gcc").arg("-print-prog-name=cc1").output();
            let said = asked.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned());
            said.ok().map(PathBuf::from).filter(|path| path.is_file())
        }
        _ => tool(name).ok(),
    };
    let Some(program) = program else {
        return Ok(());
    };
    for library in libraries(&program)? {
        tree.copy(&library.to_string_lossy(), &library)?;
    }
    tree.copy(&format!("bin/{name}"), &program)
}

/// Without a kernel's source, the tests that need it skip themselves.
fn test_cpu(tree: &mut Tree, work: &Path) -> Result<(), VmError> {
    let Some(source) = std::env::var_os(KERNEL_SOURCE) else {
        return Ok(());
    };
    let tests = Path::new(&source).join("tools/testing/selftests/cgroup");
    let program = work.join(TEST_CPU);
    let mut compile = Command::new(tool("cc")?);
    compile
        .current_dir(&tests)
        .args(["-O2", "-static", "-w", "-I..", "-Ilib/include", "-o"])
        .arg(std::path::absolute(&program).unwrap_or(program.clone()))
        .args(["test_cpu.c", "lib/cgroup_util.c"]);
    output(
        &mut compile,
        "compile the kernel's test of cgroups' CPU files",
    )?;
    tree.copy(&format!("bin/{TEST_CPU}"), &program)
}

/// How long a test that soaks goes on, in the guest's seconds: `make soak` says.
fn soak_s() -> Result<u32, VmError> {
    match std::env::var(SOAK) {
        Err(_) => Ok(SOAK_S),
        Ok(text) => text.parse().map_err(|_| {
            VmError::new(
                "make the guest",
                SOAK,
                &format!("`{text}` is no number of seconds"),
                "unset it",
            )
        }),
    }
}

/// `lib.sh` and the scripts in its folder, by name.
fn scripts_beside(library: &Path) -> Result<Vec<PathBuf>, VmError> {
    let folder = library.parent().unwrap_or(library);
    let read = |why: std::io::Error| {
        VmError::new(
            "make the guest",
            &folder.display().to_string(),
            &why.to_string(),
            "run it in a whole checkout",
        )
    };
    let entries = fs::read_dir(folder).map_err(read)?;
    let mut scripts: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()).map_err(read))
        .collect::<Result<_, _>>()?;
    scripts.retain(|path| path.extension().is_some_and(|ending| ending == "sh"));
    scripts.sort();
    Ok(scripts)
}

/// The tests' helper, built into `work`.
fn compiled(scripts: &Path, work: &Path) -> Result<PathBuf, VmError> {
    let helper = work.join("vmtool");
    let mut compile = Command::new(tool("cc")?);
    compile
        .args(["-O2", "-static", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&helper)
        .args(
            [
                "vmtool.c",
                "vmwork.c",
                "vmstress.c",
                "vmheart.c",
                "vmworker.c",
                "vmplace.c",
                "vmcores.c",
                "vminside.c",
                "vmbound.c",
            ]
            .map(|source| scripts.join(source)),
        )
        .arg("-lm");
    output(&mut compile, "compile the guest's helper")?;
    Ok(helper)
}

/// Debug information is most of a development build and of no use in the guest.
fn stripped(binary: &Path, place: &str, work: &Path) -> Result<PathBuf, VmError> {
    let name = place.rsplit('/').next().unwrap_or(place);
    let to = work.join(format!("stripped-{name}"));
    output(
        Command::new(tool("strip")?).arg("-o").arg(&to).arg(binary),
        "strip a program for the guest",
    )?;
    Ok(to)
}

/// The shared libraries of `binary` with its loader, where they lie here; none for a static one.
fn libraries(binary: &Path) -> Result<Vec<PathBuf>, VmError> {
    let listing = Command::new("ldd")
        .arg(binary)
        .output()
        .map_err(|e| VmError::io("find its libraries", binary, &e))?;
    Ok(paths_listed(&String::from_utf8_lossy(&listing.stdout)))
}

fn paths_listed(listing: &str) -> Vec<PathBuf> {
    listing
        .lines()
        .filter_map(|line| {
            let place = line
                .split_once("=> ")
                .map_or(line, |(_, place)| place)
                .trim();
            place
                .starts_with('/')
                .then(|| PathBuf::from(place.split(" (").next().unwrap_or(place)))
        })
        .collect()
}

fn output(command: &mut Command, what: &str) -> Result<String, VmError> {
    let remedy = "run that command by hand to see all of it";
    command::output(command, what, |line| line.contains("error"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_taken_from_ldds_listing() {
        let listing = "\tlinux-vdso.so.1 (0x00007ffc)\n\
            \tlibelf.so.1 => /lib/x86_64-linux-gnu/libelf.so.1 (0x00007f)\n\
            \tlibgone.so => not found\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected: Vec<PathBuf> = [
            "/lib/x86_64-linux-gnu/libelf.so.1",
            "/lib64/ld-linux-x86-64.so.2",
        ]
        .map(PathBuf::from)
        .into();
        assert_eq!(paths_listed(listing), expected);
        assert!(paths_listed("\tnot a dynamic executable\n").is_empty());
    }

    #[test]
    fn parents_come_before_what_lies_in_them_and_only_once() {
        let mut tree = Tree::default();
        tree.text("lib/x/a", "a");
        tree.text("lib/x/b", "b");
        let bytes = tree.archive.finish();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let at = |name: &str| text.find(name).unwrap();
        assert!(at("lib\0") < at("lib/x\0") && at("lib/x\0") < at("lib/x/a\0"));
        assert_eq!(text.matches("lib/x\0").count(), 1);
    }
}
