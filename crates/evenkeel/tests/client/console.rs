//! The page of a real server in a real browser: all is drawn, within its frame, with rates; nothing is asked elsewhere, and no error is logged.
//!
//! Debian's package `chromium` is needed: `cargo xtask test clients` installs it. It is driven over its pipe of the DevTools protocol: messages of
//! JSON that end with a zero byte.
#![allow(clippy::disallowed_methods, reason = "tests start processes and threads")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::common::{PATIENCE, Server, eventually, ok};

/// A browser with one page. Its end is the end of all its processes.
struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Json>,
    last_id: u64,
    session: Option<String>,
    /// What the page has asked for, and errors that it has logged.
    asked: Vec<String>,
    errors: Vec<String>,
}

impl Browser {
    /// Starts one whose profile is in `profile`, and which knows no host but this one.
    fn start(profile: &Path) -> Self {
        let found = Command::new("chromium").arg("--version").stderr(Stdio::null()).output();
        found.expect("chromium is installed (cargo xtask test clients does that)");
        // Its pipe are the descriptors 3 and 4.
        let mut command = Command::new("sh");
        command.args(["-c", "exec chromium \"$@\" 3<&0 4>&1 1>&2", "sh", "--remote-debugging-pipe"]);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-breakpad"]);
        command.args([
            "--disable-background-networking",
            "--disable-component-update",
            "--window-size=1600,1000",
        ]);
        command.arg("--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1");
        command.arg(format!("--user-data-dir={}", profile.display())).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("a shell starts");
        let commands = child.stdin.take().expect("piped");
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|count| count > 0) {
                message.pop();
                let message = std::mem::take(&mut message);
                if sender.send(serde_json::from_slice(&message).expect("JSON")).is_err() {
                    break;
                }
            }
        });
        let (asked, errors) = (Vec::new(), Vec::new());
        Self { child, commands, messages, last_id: 0, session: None, asked, errors }
    }

    /// Opens `url`. All that the page does is noted from the begin.
    fn open(&mut self, url: &str) {
        let target = self.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.call("Target.attachToTarget", &attach);
        self.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Runtime", "Log", "Network", "Page"] {
            self.call(&format!("{domain}.enable"), &json!({}));
        }
        self.call("Page.navigate", &json!({ "url": url }));
    }

    /// What an expression is on the page.
    fn evaluate(&mut self, expression: &str) -> Json {
        let arguments = json!({ "expression": expression, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", &arguments);
        assert!(answer.get("exceptionDetails").is_none(), "{answer}");
        answer["result"]["value"].clone()
    }

    fn call(&mut self, method: &str, arguments: &Json) -> Json {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": arguments });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.commands.write_all(format!("{message}\0").as_bytes()).expect("the browser runs");
        loop {
            let message = self.messages.recv_timeout(PATIENCE);
            let message = message.unwrap_or_else(|error| panic!("{method}: no answer of chromium: {error}"));
            if message["id"] == self.last_id {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
            self.note(&message);
        }
    }

    fn note(&mut self, message: &Json) {
        let it = &message["params"];
        match message["method"].as_str() {
            Some("Network.requestWillBeSent") => {
                self.asked.push(it["request"]["url"].as_str().expect("text").to_owned());
            }
            Some("Runtime.exceptionThrown") => self.errors.push(it.to_string()),
            Some("Runtime.consoleAPICalled") if it["type"] == "error" => self.errors.push(it.to_string()),
            Some("Log.entryAdded") if it["entry"]["level"] == "error" => self.errors.push(it.to_string()),
            _ => {}
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let pid = libc::pid_t::try_from(self.child.id()).expect("a process");
        // SAFETY: a plain system call; the group is that of our child, which is not waited for yet.
        #[expect(unsafe_code, reason = "kill(2) has no safe wrapper in std")]
        let _ = unsafe { libc::kill(-pid, libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

/// A server that runs topologies and shows the page, and where.
fn server(dir: &Path) -> (Server, String) {
    let folder = dir.join("components");
    std::fs::create_dir(&folder).expect("it is made");
    let folder = folder.display().to_string();
    let arguments = ["--topologies-dir", &folder, "--metrics-listen", "127.0.0.1:0"];
    let mut server = Server::start(&dir.join("data"), &arguments);
    let url = format!("http://127.0.0.1:{}", server.metrics_port());
    (server, url)
}

/// A definition of a generator and of bolts: the id of each, its command, and what it reads.
fn definition(name: &str, bolts: &[(String, &str, String)]) -> String {
    let class = "org.apache.storm.flux.wrappers";
    let mut text = format!(
        "name: {name}\nconfig: {{evenkeel.backoff_ms: [0], evenkeel.attempts_max: 1}}\nspouts:\n- id: source\n  className: {class}.spouts.FluxShellSpout\n  constructorArgs: [[evenkeel, component, generator, --rate, \"200\"], [number, text]]\nbolts:\n"
    );
    let mut streams = "streams:\n".to_owned();
    for (id, command, from) in bolts {
        text += &format!(
            "- {{id: {id}, className: {class}.bolts.FluxShellBolt, constructorArgs: [[evenkeel, component, {command}], [number, text]]}}\n"
        );
        streams += &format!("- {{from: {from}, to: {id}, grouping: {{type: SHUFFLE}}}}\n");
    }
    text + &streams
}

/// Three components, of which one fails all its tuples.
fn small() -> String {
    let sink = |id: &str, command| (id.to_owned(), command, "source".to_owned());
    let bolts = [
        sink("good", "key-sink, HSET, numbers, \"{number}\", \"{text}\""),
        sink("bad", "key-sink, HSET, text, \"{number}\", \"{text}\""),
    ];
    definition("small", &bolts)
}

/// A hundred components: eleven columns of up to ten.
fn large() -> String {
    let bolt = |number: usize| {
        let from = if number < 10 { "source".to_owned() } else { format!("bolt-{}", number - 10) };
        (format!("bolt-{number}"), "rate-limit, \"100000\", --burst, \"1000\"", from)
    };
    definition("large", &(0..99).map(bolt).collect::<Vec<_>>())
}

/// What is drawn of each topology. A box is outside if it is not within the drawing, and so a text that is not within its box.
const DRAWN: &str = r"
[...document.querySelectorAll('section')].map(section => {
  const svg = section.querySelector('svg'), box = it => it.getBoundingClientRect();
  const within = (a, b) => a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom;
  const nodes = [...svg.querySelectorAll('rect.node')], boxes = nodes.map(box), labels = [...svg.querySelectorAll(':scope > text')];
  const overlaps = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  const own = text => [...text.childNodes].filter(it => it.nodeType === Node.TEXT_NODE).map(it => it.data).join('');
  return {
    name: section.querySelector('h2').textContent, nodes: nodes.length, ids: new Set([...svg.querySelectorAll('text.id')].map(own)).size,
    edges: svg.querySelectorAll('path.edge').length, labels: labels.map(own), failing: [...svg.querySelectorAll('text.failing')].map(own),
    hints: [...svg.querySelectorAll('path.edge > title')].map(it => it.textContent),
    overlapping: boxes.filter((a, at) => boxes.some((b, other) => other > at && overlaps(a, b))).length,
    outside: boxes.filter(it => !within(it, box(svg))).length + labels.filter(it => !within(box(it), box(svg))).length
      + nodes.filter(node => [...node.parentNode.querySelectorAll('text')].some(it => !within(box(it), box(node)))).length,
    rows: section.querySelectorAll('table tr').length,
  };
})";

/// Whether a label begins with a rate that is there and not zero.
fn has_rate(label: &Json) -> bool {
    let label = label.as_str().unwrap_or_default();
    label.contains("/s")
        && label.starts_with(|first: char| first.is_ascii_digit())
        && !label.starts_with("0/s")
}

/// Looks until both topologies have a rate on each edge; what is drawn then.
fn drawn(browser: &mut Browser) -> Vec<Json> {
    let start = Instant::now();
    loop {
        let drawn = browser.evaluate(DRAWN);
        let sections = drawn.as_array().cloned().unwrap_or_default();
        let labels = |it: &Json| it["labels"].as_array().cloned().unwrap_or_default();
        let is_moving = |it: &Json| labels(it).len() > 1 && labels(it).iter().all(has_rate);
        if sections.len() == 2
            && sections.iter().all(is_moving)
            && sections.iter().any(|it| it["failing"] != json!([]))
        {
            return sections;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "no rate on each edge within {PATIENCE:?}: {drawn}; {:?}",
            browser.errors
        );
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

#[test]
fn page_draws_topologies_of_3_and_of_100_components() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let (server, url) = server(dir.path());
    server.call(&["SET", "text", "no hash"]);
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "small", &small()]), ok());
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "large", &large()]), ok());
    let profile = dir.path().join("profile");
    let mut browser = Browser::start(&profile);
    browser.open(&format!("{url}/console"));
    let drawn = drawn(&mut browser);
    for (name, components, edges) in [("small", 3, 2), ("large", 100, 99)] {
        let title = format!("Topology {name}");
        let it = drawn.iter().find(|it| it["name"] == title).expect("it is drawn");
        let counts = ["nodes", "ids", "edges", "rows"].map(|what| it[what].as_u64().expect("a number"));
        assert_eq!(counts, [components, components, edges, components + 1], "{it}");
        assert_eq!((&it["overlapping"], &it["outside"]), (&json!(0), &json!(0)), "{it}");
        let hints = it["hints"].as_array().expect("a list");
        assert!(hints.iter().all(|hint| hint.as_str().is_some_and(|hint| hint.contains("process "))), "{it}");
        let failing = it["failing"].as_array().expect("a list");
        assert_eq!(failing.len(), usize::from(name == "small"), "{it}");
    }
    assert!(browser.asked.len() > 3, "{:?}", browser.asked);
    assert!(browser.asked.iter().all(|asked| asked.starts_with(&url)), "{:?}", browser.asked);
    assert_eq!(browser.errors, Vec::<String>::new());
    drop(browser);
    eventually("nothing is left of the browser", || !runs(&profile));
}

/// Whether a process names `profile` in its command.
fn runs(profile: &Path) -> bool {
    let name = profile.display().to_string();
    let entries = std::fs::read_dir("/proc").expect("it is there").flatten();
    let mut commands = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    commands.any(|command| String::from_utf8_lossy(&command).contains(&name))
}
