//! A power loss on a real kernel: ext4 in a loop file that stops without writing anything back.
//!
//! `EXT4_IOC_SHUTDOWN` with NOLOGFLUSH makes the file system forget its page cache and its open journal
//! transaction; what `fdatasync` covered stays. Then unmount and mount, which replays the journal.
//! Needs root, `mkfs.ext4`, `losetup` and `mount`; without them the test fails and names what is missing.
#![allow(clippy::disallowed_methods, reason = "the test prepares a disk outside of the server's view")]
#![allow(unsafe_code, reason = "the ioctl has no wrapper")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clock::{Clock, SystemClock};

/// `_IOR('X', 125, __u32)`.
const EXT4_IOC_SHUTDOWN: libc::Ioctl = 0x8004_587D_u32 as libc::Ioctl;
const NO_LOG_FLUSH: u32 = 2;
const UNMOUNT_TIME_MAX: Duration = Duration::from_secs(10);

/// A mounted ext4 of its own.
pub struct LoopDisk {
    device: String,
    mount_point: PathBuf,
    mounted: bool,
}

impl LoopDisk {
    pub fn new(folder: &Path, size_bytes: u64) -> Self {
        let (image, mount_point) = (folder.join("disk.img"), folder.join("disk"));
        File::create(&image).and_then(|file| file.set_len(size_bytes)).expect("the image file is made");
        std::fs::create_dir(&mount_point).expect("the mount point is made");
        run("mkfs.ext4", &["-q", "-F", &text(&image)]);
        let device = run("losetup", &["--find", "--show", &text(&image)]);
        let mut disk = Self { device, mount_point, mounted: false };
        disk.mount();
        disk
    }

    pub fn path(&self) -> &Path {
        &self.mount_point
    }

    /// Switches the power off: from now on every operation fails, and what was not synced is lost.
    pub fn cut(&self) {
        let root = File::open(&self.mount_point).expect("the mount point opens");
        let how = NO_LOG_FLUSH;
        // SAFETY: the descriptor is open, and the argument points to the u32 that the call reads.
        let result = unsafe { libc::ioctl(root.as_raw_fd(), EXT4_IOC_SHUTDOWN, &raw const how) };
        let error = std::io::Error::last_os_error();
        assert_eq!(result, 0, "EXT4_IOC_SHUTDOWN needs root and ext4: {error}");
    }

    /// Power is back: the file system recovers from its own journal.
    pub fn restore(&mut self) {
        let start = SystemClock.now();
        while let Err(error) = try_run("umount", &[&text(&self.mount_point)]) {
            assert!(SystemClock.now() - start < UNMOUNT_TIME_MAX, "{error}");
            std::thread::sleep(Duration::from_millis(5)); // until the kernel has closed the dead's files
        }
        self.mounted = false;
        self.mount();
    }

    fn mount(&mut self) {
        run("mount", &["-t", "ext4", &self.device, &text(&self.mount_point)]);
        self.mounted = true;
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        if self.mounted {
            let _ = try_run("umount", &["--lazy", &text(&self.mount_point)]);
        }
        let _ = try_run("losetup", &["--detach", &self.device]);
    }
}

fn run(program: &str, arguments: &[&str]) -> String {
    try_run(program, arguments).unwrap_or_else(|error| panic!("power-loss tests cannot run here: {error}"))
}

fn try_run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output =
        Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
