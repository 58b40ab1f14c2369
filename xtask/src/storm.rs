//! Do the definitions of this tree mean the same to Apache Storm? Flux's own parser reads each (`--dry-run`), and builds its topology.
//!
//! Maven brings Storm (about 60 MB, once). The POM of Flux has a parent that is not served, so its two jars come without what they depend on.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::Failure;
use crate::process::Run;

/// Has Flux read all definitions.
///
/// # Errors
/// Java or Maven are not there, or Flux refuses a definition.
pub(crate) fn run(root: &Path) -> Result<(), Failure> {
    let folder = root.join("target/storm");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let classes = classes(&folder)?;
    let properties = folder.join("x.properties");
    fs::write(&properties, PROPERTIES).map_err(|error| format!("{}: {error}", properties.display()))?;
    for name in DEFINITIONS {
        let definition = root.join(name).display().to_string();
        let words = ["-cp", &classes, FLUX, "--dry-run", "--no-splash", "--env-filter", "--filter"];
        let java = Run::new(&folder, "java").time_max(Duration::from_secs(60)).args(words);
        let said =
            java.args([properties.display().to_string(), definition]).env("PYTHON", "python3").read()?;
        if !said.contains("TOPOLOGY DETAILS") {
            return Err(format!("{name}: Flux has built nothing of it"));
        }
        println!("storm: {name} is a topology to Flux {VERSION}");
    }
    Ok(())
}

/// The class path of Flux and of Storm's local cluster, with all that they need; `folder` keeps what Maven is told.
///
/// # Errors
/// Maven is not there, or cannot fetch a part.
pub(crate) fn classes(folder: &Path) -> Result<String, Failure> {
    let wrong = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::write(folder.join("pom.xml"), POM).map_err(wrong)?;
    let maven =
        |words: &[&str]| Run::new(folder, "mvn").args(["-q", "-B"]).args(words.iter().copied()).read();
    maven(&["dependency:build-classpath", "-Dmdep.outputFile=classes.txt"])?;
    let mut classes = fs::read_to_string(folder.join("classes.txt")).map_err(wrong)?;
    let home = std::env::var("HOME").map_err(|error| format!("HOME: {error}"))?;
    for part in ["flux-core", "flux-wrappers"] {
        let jar = format!(".m2/repository/org/apache/storm/{part}/{VERSION}/{part}-{VERSION}.jar");
        let jar = PathBuf::from(&home).join(jar);
        if !jar.exists() {
            let artifact = format!("-Dartifact=org.apache.storm:{part}:{VERSION}");
            maven(&["dependency:get", &artifact, "-Dtransitive=false"])?;
        }
        classes = format!("{classes}:{}", jar.display());
    }
    Ok(classes)
}

pub(crate) const FLUX: &str = "org.apache.storm.flux.Flux";
pub(crate) const VERSION: &str = "2.8.3";
const DEFINITIONS: &[&str] = &[
    "crates/flux/tests/word-count.yaml",
    "crates/evenkeel/tests/topologies/words.yaml",
    "examples/topologies/orders.yaml",
];
/// What these definitions leave open.
const PROPERTIES: &str = "counters=3\npython=python3\nout=out\nsentences=10\nserializer=json\n";
const POM: &str = "\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>evenkeel</groupId>
  <artifactId>storm</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.storm</groupId><artifactId>storm-server</artifactId><version>2.8.3</version></dependency>
    <dependency><groupId>org.yaml</groupId><artifactId>snakeyaml</artifactId><version>2.2</version></dependency>
    <dependency><groupId>commons-cli</groupId><artifactId>commons-cli</artifactId><version>1.9.0</version></dependency>
  </dependencies>
</project>
";
