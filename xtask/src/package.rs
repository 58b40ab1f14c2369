//! `cargo xtask package`: what users install, in `target/package`; and `cargo xtask release`, which checks first and says what to push.
//!
//! ```text
//!  evenkeel_0.1.0-1_amd64.deb            program, unit, user, settings, man pages, completions
//!  evenkeel-0.1.0-linux-x86_64.tar.gz    the same files for other systems
//!  Containerfile                         builds an image from the archive, with this folder as its context
//!  SHA256SUMS                            of the three
//! ```
//!
//! The same tree and compiler give the same bytes: times are that of the commit, names are in order, owners are root. `dpkg-deb` makes the Debian package: it
//! is on each Debian, and `cargo-deb` would build the program itself, has no place for generated pages, and knows nothing of the archive.
//!
//! Out of scope: signatures, package repositories, other systems than Debian's family.

mod check;
mod files;
mod licences;
mod release;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::Failure;
use crate::packages;
use crate::process::Run;
pub(crate) use check::check;
use files::{File, gzip, install, wrong};
pub(crate) use release::run as release;

/// What is packaged, as which version, and to where.
struct Job<'a> {
    root: &'a Path,
    /// The program with its symbols.
    binary: &'a Path,
    version: &'a str,
    /// The folder with the results; it is emptied first.
    out: &'a Path,
    /// A test has no time for the best compression.
    fast: bool,
}

/// Makes the packages, of a program that is built first unless the arguments name one.
///
/// # Errors
/// A flag is unknown, a tool cannot be installed, or a step failed.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    let (mut binary, mut checks, mut boots) = (None, false, false);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--binary" => binary = words.next().map(PathBuf::from),
            "--check" => checks = true,
            "--systemd" => (checks, boots) = (true, true),
            other => {
                return Err(format!("package takes --binary PATH, --check and --systemd, not `{other}`"));
            }
        }
    }
    let binary = match binary {
        Some(path) => path.canonicalize().map_err(wrong(&path))?,
        None => build(root)?,
    };
    if checks {
        return check(root, &binary, boots);
    }
    let out = root.join("target/package");
    make(&Job { root, binary: &binary, version: &version(root)?, out: &out, fast: false })?;
    println!("packages are in {}", out.display());
    Ok(())
}

/// The program in the profile for packages.
fn build(root: &Path) -> Result<PathBuf, Failure> {
    let cargo = Run::cargo(root).args(["build", "--locked", "--profile", "dist", "-p", "evenkeel"]);
    cargo.time_max(Duration::from_secs(3_600)).show(&mut |_| {})?;
    Ok(root.join("target/dist/evenkeel"))
}

/// The version of the workspace.
fn version(root: &Path) -> Result<String, Failure> {
    let metadata = crate::tidy::metadata(root)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let own = packages.into_iter().find(|package| package["name"] == "evenkeel");
    own.and_then(|package| package["version"].as_str())
        .map(str::to_owned)
        .ok_or_else(|| "no crate evenkeel".to_owned())
}

/// Makes all that the folder is to have.
fn make(job: &Job<'_>) -> Result<(), Failure> {
    packages::ensure(job.root, &[packages::STRIP, packages::DPKG_SHLIBDEPS])?;
    let work = job.out.join("work");
    std::fs::remove_dir_all(job.out).ok();
    std::fs::create_dir_all(&work).map_err(wrong(&work))?;
    let time = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(time) => time,
        Err(_) => Run::new(job.root, "git").args(["log", "-1", "--format=%ct"]).read()?.trim().to_owned(),
    };
    let made = prepare(job, &work)?;
    let names =
        [debian(job, &work, &made, &time)?, archive(job, &work, &made, &time)?, "Containerfile".to_owned()];
    install(&job.root.join("contrib/container/Containerfile"), &job.out.join("Containerfile"), 0o644)?;
    std::fs::remove_dir_all(&work).map_err(wrong(&work))?;
    let sums = Run::new(job.out, "sha256sum").args(names).read()?;
    files::write(&job.out.join("SHA256SUMS"), &sums)
}

/// What both packages have, below one folder: the program without debug information, what it writes of itself, and licences.
fn prepare(job: &Job<'_>, work: &Path) -> Result<PathBuf, Failure> {
    let made = work.join("made");
    std::fs::create_dir_all(&made).map_err(wrong(&made))?;
    let (program, stripped) = (job.binary.display().to_string(), made.join("evenkeel").display().to_string());
    Run::new(job.root, "strip").args(["-R", ".comment", "-o", &stripped, &program]).read()?;
    Run::new(&made, &program).args(["generate", "."]).read()?;
    let settings = Run::new(&made, &program).args(["serve", "--print-config"]).read()?;
    files::write(&made.join("settings.toml"), &settings)?;
    files::write(&made.join("THIRD-PARTY-LICENSES"), &licences::all(job.root)?)?;
    Ok(made)
}

/// Makes the Debian package; returns its name.
fn debian(job: &Job<'_>, work: &Path, made: &Path, time: &str) -> Result<String, Failure> {
    let tree = work.join("deb");
    for file in debian_files(job.root, made)? {
        install(&file.from, &tree.join(&file.to), file.mode)?;
    }
    let documents = tree.join("usr/share/doc/evenkeel");
    let version = format!("{}-1", job.version);
    files::write(&documents.join("changelog.Debian"), &debian_changelog(&version, time)?)?;
    for name in ["changelog", "changelog.Debian", "THIRD-PARTY-LICENSES"] {
        gzip(&documents, name)?;
    }
    for page in files::names(&tree.join("usr/share/man/man1"))? {
        gzip(&tree.join("usr/share/man/man1"), &page)?;
    }
    let architecture = Run::new(&tree, "dpkg").args(["--print-architecture"]).read()?.trim().to_owned();
    let size = Run::new(&tree, "du").args(["-sk", "--apparent-size", "."]).read()?;
    let control = files::read(&job.root.join("contrib/debian/control"))?
        .replace("@VERSION@", &version)
        .replace("@ARCHITECTURE@", &architecture)
        .replace("@SIZE_KIB@", size.split_whitespace().next().unwrap_or("0"))
        .replace("@DEPENDS@", &depends(work, made)?);
    let sums = "find * -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum";
    let sums = Run::new(&tree, "sh").args(["-c", sums]).read()?;
    files::write(&tree.join("DEBIAN/control"), &control)?;
    files::write(&tree.join("DEBIAN/md5sums"), &sums)?;
    files::write(&tree.join("DEBIAN/conffiles"), "/etc/evenkeel/evenkeel.toml\n")?;
    for script in ["postinst", "prerm", "postrm"] {
        install(&job.root.join("contrib/debian").join(script), &tree.join("DEBIAN").join(script), 0o755)?;
    }
    let name = format!("evenkeel_{version}_{architecture}.deb");
    let how: &[&str] = if job.fast { &["-Zgzip", "-z1"] } else { &["-Zxz"] };
    let (from, to) = (tree.display().to_string(), job.out.join(&name).display().to_string());
    let build = Run::new(work, "dpkg-deb").args(how.iter().copied()).args([
        "--root-owner-group",
        "--build",
        &from,
        &to,
    ]);
    build.env("SOURCE_DATE_EPOCH", time).read()?;
    Ok(name)
}

/// What the Debian package has, and where; the paths are relative to the root.
fn debian_files(root: &Path, made: &Path) -> Result<Vec<File>, Failure> {
    let mut files = vec![
        File::new(made.join("evenkeel"), "usr/bin/evenkeel", 0o755),
        File::new(
            root.join("contrib/systemd/evenkeel.service"),
            "usr/lib/systemd/system/evenkeel.service",
            0o644,
        ),
        File::new(root.join("contrib/systemd/evenkeel.toml"), "etc/evenkeel/evenkeel.toml", 0o644),
        File::new(root.join("contrib/debian/copyright"), "usr/share/doc/evenkeel/copyright", 0o644),
        File::new(root.join("CHANGELOG.md"), "usr/share/doc/evenkeel/changelog", 0o644),
        File::new(made.join("settings.toml"), "usr/share/doc/evenkeel/examples/evenkeel.toml", 0o644),
        File::new(made.join("THIRD-PARTY-LICENSES"), "usr/share/doc/evenkeel/THIRD-PARTY-LICENSES", 0o644),
    ];
    for (name, to) in COMPLETIONS {
        files.push(File::new(made.join("completions").join(name), to, 0o644));
    }
    for page in files::names(&made.join("man"))? {
        files.push(File::new(made.join("man").join(&page), &format!("usr/share/man/man1/{page}"), 0o644));
    }
    Ok(files)
}

/// The libraries that the program needs, with their least versions, as Debian's packages.
fn depends(work: &Path, made: &Path) -> Result<String, Failure> {
    // The tool wants the description of a source package in its folder.
    let folder = work.join("shlibs");
    files::write(
        &folder.join("debian/control"),
        "Source: evenkeel\n\nPackage: evenkeel\nArchitecture: any\n",
    )?;
    let program = made.join("evenkeel").display().to_string();
    let said = Run::new(&folder, "dpkg-shlibdeps").args(["-O", &program]).read()?;
    let depends = said.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    depends.map(str::to_owned).ok_or_else(|| format!("dpkg-shlibdeps names no libraries: {said}"))
}

/// The changelog of the packaging, which Debian wants beside that of the program.
fn debian_changelog(version: &str, time: &str) -> Result<String, Failure> {
    let date = Run::new(Path::new("/"), "date").args(["-u", "-R", "-d", &format!("@{time}")]).read()?;
    Ok(format!(
        "evenkeel ({version}) stable; urgency=medium\n\n  * What is new is in changelog.gz.\n\n \
         -- Evenkeel maintainers <maintainers@evenkeel.invalid>  {date}"
    ))
}

/// Makes the archive for other systems; returns its name.
fn archive(job: &Job<'_>, work: &Path, made: &Path, time: &str) -> Result<String, Failure> {
    let folder = format!("evenkeel-{}-linux-{}", job.version, std::env::consts::ARCH);
    let tree = work.join(&folder);
    for name in ["README.md", "LICENSE", "CHANGELOG.md"] {
        install(&job.root.join(name), &tree.join(name), 0o644)?;
    }
    for name in ["evenkeel.service", "evenkeel.toml"] {
        install(&job.root.join("contrib/systemd").join(name), &tree.join("systemd").join(name), 0o644)?;
    }
    install(&made.join("evenkeel"), &tree.join("evenkeel"), 0o755)?;
    install(&made.join("THIRD-PARTY-LICENSES"), &tree.join("THIRD-PARTY-LICENSES"), 0o644)?;
    for kind in ["man", "completions"] {
        for name in files::names(&made.join(kind))? {
            install(&made.join(kind).join(&name), &tree.join(kind).join(&name), 0o644)?;
        }
    }
    let name = format!("{folder}.tar.gz");
    let (to, time) = (job.out.join(&name).display().to_string(), format!("--mtime=@{time}"));
    let program = if job.fast { "gzip -n1" } else { "gzip -n9" };
    let fixed = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu", &time];
    let tar =
        Run::new(work, "tar").args(fixed).args(["--use-compress-program", program, "-cf", &to, &folder]);
    tar.read()?;
    Ok(name)
}

/// The completions that the program writes, and where Debian's shells look for them.
const COMPLETIONS: [(&str, &str); 3] = [
    ("evenkeel.bash", "usr/share/bash-completion/completions/evenkeel"),
    ("_evenkeel", "usr/share/zsh/vendor-completions/_evenkeel"),
    ("evenkeel.fish", "usr/share/fish/vendor_completions.d/evenkeel.fish"),
];
