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
        let mut emulator = Command::new("qemu-system-x86_64");
        emulator
            .args(["-accel", "tcg,thread=single", "-smp", "2", "-cpu", "max"])
            .args([
                "-m",
                "2048",
                "-nodefaults",
                "-no-user-config",
                "-display",
                "none",
                "-no-reboot",
            ])
            .args(["-serial", "stdio", "-kernel"])
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
            emulator.pre_exec(|| {
                Ok(rustix::process::set_parent_process_death_signal(Some(
                    Signal::KILL,
                ))?)
            });
        }
        let emulator = emulator.spawn().expect("qemu-system-x86_64 is installed");
        let machine = Machine {
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

    /// Whether a group is held as side work: in the idle class, or by its quota where it starves at
    /// the tolerance (1 % of two CPUs).
    pub fn is_side(&self, group: &str) -> bool {
        self.succeeds(&format!(
            "read quota period <{group}/cpu.max; \
             [ $(cat {group}/cpu.idle) = 1 ] || {{ [ $quota != max ] && [ $((quota * 25)) -le $period ]; }}"
        ))
    }

    /// Whether a group is as kubelet made it.
    pub fn is_plain(&self, group: &str) -> bool {
        self.succeeds(&format!(
            "[ $(cat {group}/cpu.idle) = 0 ] && grep -q ^max {group}/cpu.max"
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
        // It may have ended by itself.
        let _ = self.emulator.kill();
        let _ = self.emulator.wait();
    }
}
