//! Installs what a stage needs and the machine lacks: Debian packages, and a Python environment for clients.
//!
//! Nothing is installed when the program that is needed is there already. Debian's packages of servers start a
//! service: they are told not to, and it is stopped if they did.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use crate::failure::Failure;
use crate::process::Run;

/// A program, and the Debian package that has it.
pub(crate) struct Need {
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
}

pub(crate) const REDIS_SERVER: Need = Need { program: "redis-server", package: "redis-server" };
pub(crate) const REDIS_CLI: Need = Need { program: "redis-cli", package: "redis-tools" };
pub(crate) const REDIS_BENCHMARK: Need = Need { program: "redis-benchmark", package: "redis-tools" };
pub(crate) const MEMCACHED: Need = Need { program: "memcached", package: "memcached" };
pub(crate) const MAVEN: Need = Need { program: "mvn", package: "maven" };
pub(crate) const JAVA: Need = Need { program: "javac", package: "default-jdk-headless" };
pub(crate) const GO: Need = Need { program: "go", package: "golang-go" };
pub(crate) const POSTGRES: Need = Need { program: "postgres", package: "postgresql" };
pub(crate) const MARIADB: Need = Need { program: "mariadbd", package: "mariadb-server" };
pub(crate) const GDB: Need = Need { program: "gdb", package: "gdb" };
/// A library: found beside the programs, where Debian has it.
pub(crate) const LIBAIO: Need = Need { program: "../lib/x86_64-linux-gnu/libaio.so.1", package: "libaio1" };
/// A library with its headers: in half a minute less than `zmq-sys` builds its own.
pub(crate) const LIBZMQ: Need = Need { program: "../include/zmq.h", package: "libzmq3-dev" };
pub(crate) const PROMETHEUS: Need = Need { program: "promtool", package: "prometheus" };
pub(crate) const CHROMIUM: Need = Need { program: "chromium", package: "chromium" };
pub(crate) const DPKG_SOURCE: Need = Need { program: "dpkg-source", package: "dpkg-dev" };
pub(crate) const DPKG_SHLIBDEPS: Need = Need { program: "dpkg-shlibdeps", package: "dpkg-dev" };
pub(crate) const STRIP: Need = Need { program: "strip", package: "binutils" };
pub(crate) const ADDUSER: Need = Need { program: "adduser", package: "adduser" };
pub(crate) const IP: Need = Need { program: "ip", package: "iproute2" };
pub(crate) const SYSTEMD: Need = Need { program: "systemd-analyze", package: "systemd" };
pub(crate) const MAKE: Need = Need { program: "make", package: "make" };
pub(crate) const CC: Need = Need { program: "cc", package: "gcc" };
pub(crate) const PYTHON: Need = Need { program: "python3", package: "python3" };
pub(crate) const MKFS: Need = Need { program: "mkfs.ext4", package: "e2fsprogs" };
pub(crate) const LOSETUP: Need = Need { program: "losetup", package: "mount" };

/// Makes sure that every program of `needs` is there, by `apt-get` where it is not.
///
/// # Errors
/// A package could not be installed; the message says which.
pub(crate) fn ensure(root: &Path, needs: &[Need]) -> Result<(), Failure> {
    for need in needs {
        if is_installed(need.program) {
            continue;
        }
        apt_install(root, need.package)?;
        if let Some((_, service)) = SERVICES.iter().find(|(package, _)| *package == need.package) {
            Run::new(root, "service").args([*service, "stop"]).read().ok();
        }
        if !is_installed(need.program) {
            return Err(format!("package {} was installed, but has no {}", need.package, need.program));
        }
    }
    Ok(())
}

/// A Python with redis-py, job queues, drivers of databases and pystorm in it, made below `target/` once; returns its interpreter.
///
/// # Errors
/// The environment could not be made, or pip could not install a client.
pub(crate) fn python_with_clients(root: &Path) -> Result<PathBuf, Failure> {
    ensure(root, &[PYTHON])?;
    let folder = root.join("target/venv");
    let python = folder.join("bin/python");
    let works = |code: &str| Run::new(root, &python.to_string_lossy()).args(["-c", code]).read().is_ok();
    if python.exists()
        && works("import redis, psycopg, pymysql, pytest, pytest_timeout, rq, celery, msgpack, pystorm")
    {
        return Ok(python);
    }
    let make = Run::new(root, "python3").args(["-m", "venv", "--clear", &folder.to_string_lossy()]);
    if make.read().is_err() {
        apt_install(root, "python3-venv")?;
        make.read()?;
    }
    let pip = ["-m", "pip", "install", "--quiet"].into_iter().chain(PYTHON_CLIENTS);
    Run::new(root, &python.to_string_lossy()).args(pip).show(&mut |_| {})?;
    Ok(python)
}

/// redis-py's source with its tests, fetched below `target/` once; returns its folder.
///
/// # Errors
/// pip could not fetch it, or it could not be unpacked.
pub(crate) fn redis_py_source(root: &Path, python: &Path) -> Result<PathBuf, Failure> {
    let (target, name) = (root.join("target"), format!("redis-{REDIS_PY}"));
    let folder = target.join(&name);
    if folder.join("tests/test_commands.py").exists() {
        return Ok(folder);
    }
    let (python, into) = (python.to_string_lossy(), target.to_string_lossy());
    let version = format!("redis=={REDIS_PY}");
    let download = ["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "redis", "--dest", &into];
    Run::new(root, &python).args(download).args([&*version]).show(&mut |_| {})?;
    let archive = target.join(format!("{name}.tar.gz"));
    Run::new(root, &python)
        .args(["-m", "tarfile", "-e", &archive.to_string_lossy(), &into])
        .show(&mut |_| {})?;
    Ok(folder)
}

fn apt_install(root: &Path, package: &str) -> Result<(), Failure> {
    static UPDATED: OnceLock<()> = OnceLock::new();
    let apt = || {
        // At run level 1 invoke-rc.d starts nothing, so that no packaged service takes port 6379.
        let run = Run::new(root, "apt-get").env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
        run.time_max(Duration::from_secs(300))
    };
    if UPDATED.set(()).is_ok() {
        apt().args(["-qq", "update"]).show(&mut |_| {}).ok();
    }
    apt()
        .args(["-qq", "install", "-y", "--no-install-recommends", package])
        .show(&mut |_| {})
        .map_err(|error| format!("cannot install {package}: {error}"))
}

pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    // Debian keeps the programs of PostgreSQL's server out of the path, by version.
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let servers = versions.map(|version| version.path().join("bin"));
    std::env::split_paths(&path).chain(system).chain(servers).any(|folder| folder.join(program).is_file())
}

/// Packages that bring a service, and its name.
const SERVICES: [(&str, &str); 5] = [
    ("mariadb-server", "mariadb"),
    ("memcached", "memcached"),
    ("postgresql", "postgresql"),
    ("prometheus", "prometheus"),
    ("redis-server", "redis-server"),
];
/// Celery goes without its extra `redis`: the client of that name is there.
const PYTHON_CLIENTS: [&str; 9] = [
    "redis==8.1.0",
    "psycopg[binary]==3.3.9",
    "PyMySQL==1.2.4",
    "pytest==9.2.0",
    "pytest-timeout==2.4.0",
    "rq==3.0.0",
    "celery==5.7.0",
    "msgpack==1.2.4",
    "pystorm==3.1.4",
];
/// The tests are those of the client that is installed.
const REDIS_PY: &str = "8.1.0";
