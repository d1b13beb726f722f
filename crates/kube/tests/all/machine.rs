//! A node that is a machine: kubelet, containerd and systemd in an emulated guest, on the tests'
//! control plane.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::bed::Bed;

/// The folder with packages, kubelet and images: `make kube-node` says where.
pub const FOLDER: &str = "TIDEGATE_NODE";
/// Its name in the cluster, as tests/kube/node has it.
pub const NAME: &str = "machine";

pub struct Machine {
    /// Boots the disk, which may have been used.
    boots: Command,
    emulator: Child,
    shell: u16,
    _folder: tempfile::TempDir,
}

impl Machine {
    /// Boots it; it is a node of the bed's control plane once it is ready.
    pub fn boot(bed: &Bed) -> Machine {
        let files: PathBuf = std::env::var_os(FOLDER)
            .unwrap_or_else(|| panic!("{FOLDER} is not set: run these by `make kube-node`"))
            .into();
        let folder = tempfile::tempdir().expect("a folder");
        let disk = folder.path().join("disk");
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/kube/node");
        let made = Command::new(scripts.join("disk.sh"))
            .arg(files.join("packages"))
            .arg(files.join("kubelet"))
            .arg(bed.kubeconfig_of_machine(NAME))
            .arg(files.join("images"))
            .arg(&disk)
            .status();
        assert!(made.expect("it starts").success(), "disk.sh");
        let shell = TcpListener::bind("127.0.0.1:0")
            .and_then(|socket| socket.local_addr())
            .expect("a free port")
            .port();
        let log = |name: &str| File::create(files.join(name)).expect("a log");
        let mut boots = Command::new("qemu-system-x86_64");
        boots
            .args("-accel tcg,thread=single -smp 2 -cpu max -m 2048 -nodefaults".split(' '))
            .args("-no-user-config -display none -no-reboot -serial stdio -kernel".split(' '))
            .arg(disk.with_extension("vmlinuz"))
            .args(["-append", "console=ttyS0 loglevel=5 panic=-1 nokaslr mitigations=off tsc=reliable root=/dev/nvme0n1 rw \
                rootwait net.ifnames=0 init=/usr/lib/systemd/systemd"])
            .arg("-drive")
            .arg(format!(
                "file={},if=none,id=d,format=raw,cache=unsafe",
                disk.display()
            ))
            .args(["-device", "nvme,drive=d,serial=bed", "-netdev"])
            .arg(format!("user,id=n,hostfwd=tcp:127.0.0.1:{shell}-:2323"))
            .args(["-device", "virtio-net-pci,netdev=n,romfile="])
            .stdin(Stdio::null())
            .stdout(log("console.log"))
            .stderr(log("emulator.log"));
        // SAFETY: prctl is async-signal-safe and touches no memory.
        unsafe {
            boots.pre_exec(|| {
                Ok(rustix::process::set_parent_process_death_signal(Some(
                    Signal::KILL,
                ))?)
            });
        }
        let emulator = boots.spawn().expect("qemu-system-x86_64 is installed");
        let machine = Machine {
            boots,
            emulator,
            shell,
            _folder: folder,
        };
        let ready = r#".status.conditions[?(@.type=="Ready")].status"#;
        bed.until(
            || bed.field(&format!("node {NAME}"), ready) == "True",
            "the machine is a node",
        );
        machine
    }

    /// Cuts the power, with all files on the disk, and waits for the kubelet of the next boot.
    pub fn reboot(&mut self, bed: &Bed) {
        self.shell("sync");
        self.end();
        let boot = || bed.field(&format!("node {NAME}"), ".status.nodeInfo.bootID");
        let before = boot();
        self.emulator = self.boots.spawn().expect("it has been started before");
        bed.until(|| boot() != before, "its kubelet is there again");
    }

    fn end(&mut self) {
        // It may have ended by itself.
        let _ = self.emulator.kill();
        let _ = self.emulator.wait();
    }

    /// Whether a group is held as side work: in the idle class, or by its quota where it starves at
    /// the tolerance (1 % of two CPUs).
    pub fn is_side(&self, group: &str) -> bool {
        self.succeeds(&is_side(group))
    }

    /// Looks at the group several times a second while `act` runs; counts the looks, and tells of
    /// those that found it not held as side work.
    pub fn looks(&self, group: &str, act: impl FnOnce()) -> (usize, String) {
        let look = is_side(group);
        self.shell(&format!(
            ": >/tmp/looks; (while [ -e /tmp/looks ]; do if {look}; then echo side; else \
             date -u \"+at %T idle $idle quota $quota\"; fi >>/tmp/looks; usleep 200000; done) \
             >/dev/null 2>&1 </dev/null &"
        ));
        act();
        let looks = self.shell("cat /tmp/looks; rm /tmp/looks");
        let free = looks.lines().filter(|look| *look != "side");
        let free: Vec<&str> = free.collect();
        (looks.lines().count(), free.join("\n"))
    }

    /// All that may limit a group.
    pub fn limits(&self, group: &str) -> String {
        self.shell(&format!(
            "cd {group} && grep -s '' cpu.idle cpu.max cpu.max.burst cpu.weight cpu.uclamp.min \
             cpu.uclamp.max cpuset.cpus memory.high; true"
        ))
    }

    /// What a shell command in the guest prints; it must succeed.
    pub fn shell(&self, command: &str) -> String {
        let text = self.try_shell(command);
        let (output, code) = text.rsplit_once("@@").unwrap_or((&text, "none"));
        assert_eq!(code.trim(), "0", "{command}: {output}");
        output.to_owned()
    }

    /// Whether a shell command in the guest succeeds.
    pub fn succeeds(&self, command: &str) -> bool {
        self.try_shell(command).trim_end().ends_with("@@0")
    }

    fn try_shell(&self, command: &str) -> String {
        let mut socket =
            TcpStream::connect(("127.0.0.1", self.shell)).expect("the emulator listens");
        socket
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a socket takes one");
        write!(socket, "({command}) 2>&1\necho @@$?\nexit\n").expect("the guest reads");
        let mut text = Vec::new();
        // The guest's shell ends without a farewell.
        let _ = socket.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end();
    }
}

/// A shell's condition, without a process of its own. The agent may change from one limit to the
/// other between two reads.
fn is_side(group: &str) -> String {
    format!(
        "idle= again= quota=max period=0; read idle <{group}/cpu.idle; \
         read quota period <{group}/cpu.max; read again <{group}/cpu.idle; [ \"$idle\" = 1 ] || [ \"$again\" = 1 ] || \
         {{ [ $quota != max ] && [ $((quota * 25)) -le $period ]; }}"
    )
}
