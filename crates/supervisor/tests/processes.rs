//! The supervisor with real processes: programs of the shell in the place of workers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clock::SystemClock;
use supervisor::{Job, Options, Report, Share, State, Submission, Supervisor};

/// A supervisor whose workers are `script`, which runs one topology.
fn supervisor(script: &str) -> Supervisor {
    let options = Options {
        program: "/bin/sh".into(),
        arguments: vec!["-c".to_owned(), script.to_owned()],
        mark: format!("{}-{:?}", std::process::id(), std::thread::current().id()),
        dir: "/".into(),
        topologies_max: 4,
        tasks_max: 4,
        workers_max: 4,
        http_hosts: Vec::new(),
        transport: topology::definition::Transport::Tcp,
        has_zeromq: false,
        limits: supervisor::Limits::default(),
        clock: Arc::new(SystemClock),
    };
    let supervisor = Supervisor::new(options).expect("a descriptor");
    supervisor.submit(Submission { job: job(), plan: None, workers: 1 }, Duration::ZERO);
    supervisor.start(Some("h:1".to_owned())).expect("a thread");
    supervisor
}

fn job() -> Job {
    Job {
        name: "x".to_owned(),
        definition: "text".to_owned(),
        properties: [("a".to_owned(), "1".to_owned())].into(),
        dir: "/".into(),
        folder: None,
        http_hosts: Vec::new(),
        transport: "tcp".to_owned(),
        is_active: true,
        bounds: supervisor::Bounds::default(),
        trial: None,
        share: Share::default(),
    }
}

/// Waits until the topology's report fits.
#[expect(clippy::disallowed_methods, reason = "a test has a patience")]
fn eventually(supervisor: &Supervisor, what: &str, fits: impl Fn(&Report) -> bool) -> Report {
    let start = Instant::now();
    loop {
        let report = supervisor.report("x");
        if let Some(report) = report.filter(&fits) {
            return report;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{what}: {:?}", supervisor.report("x"));
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

#[test]
fn worker_gets_its_job_as_a_line_and_its_status_is_told() {
    let script = r#"read -r job; case "$job" in *'"definition":"text"'*'"a":"1"'*) ;; *) exit 7;; esac
        echo '{"is_idle":true,"components":[]}'; read -r order; exec sleep 1000"#;
    let supervisor = supervisor(script);
    let report = eventually(&supervisor, "it runs", |it| it.status.is_idle);
    assert_eq!((report.state, report.restarts, report.last_error), (State::Active, 0, None));
    supervisor.set_active("x", false);
    eventually(&supervisor, "it is inactive", |it| it.state == State::Inactive);
}

#[test]
fn token_of_a_worker_ends_with_it() {
    let script = r#"echo '{"is_idle":true,"components":[]}'; read -r job; token=${job#*redis://topology:}; echo "${token%%\"*} $EVENKEEL_URL" >&2; read -r order; exit 5"#;
    let supervisor = supervisor(script);
    eventually(&supervisor, "it runs", |it| it.status.is_idle);
    let hold = supervisor.admits(|token| token.len() == 64).and_then(|it| it.lease.hold(7)).expect("it runs");
    let (ended, connections) = std::sync::mpsc::channel();
    supervisor.on_end(move |all| ended.send(all.to_vec()).expect("the test waits"));
    assert!(supervisor.admits(|token| token == b"x").is_none());
    supervisor.set_active("x", false);
    let report = eventually(&supervisor, "it has ended", |it| it.last_error.is_some());
    let text = report.last_error.expect("it is there");
    let (token, address) =
        text.trim_start_matches("it exited with status 5: ").split_once('@').expect("a URL");
    // The environment has the address alone: others of the same user can read it.
    assert_eq!((token.len(), address), (64, "h:1 redis://h:1"));
    assert!(supervisor.admits(|one| one == token.as_bytes()).is_none());
    assert_eq!(connections.recv(), Ok(vec![7]), "what has logged in with it");
    assert!(hold.is_over());
}

#[test]
fn worker_that_dies_at_once_is_started_after_longer_and_longer_pauses() {
    let supervisor = supervisor("echo it cannot work >&2; exit 3");
    let report = eventually(&supervisor, "it was started again", |it| it.restarts == 3);
    assert_eq!(report.last_error.as_deref(), Some("it exited with status 3: it cannot work"));
    assert_eq!(report.pid, None);
}

#[test]
fn worker_that_says_what_it_may_not_is_killed_and_started_again() {
    for (script, why) in [
        ("echo garbage; exec sleep 1000", "it said what is no status"),
        ("tr '\\0' x < /dev/zero", "its status has more than 4194304 B"),
    ] {
        let supervisor = supervisor(script);
        let report = eventually(&supervisor, "it was started again", |it| it.restarts > 1);
        assert!(report.last_error.as_deref().is_some_and(|text| text.starts_with(why)), "{report:?}");
    }
}

#[test]
fn worker_that_ends_for_no_order_is_killed_when_the_server_stops() {
    let script =
        "trap '' TERM HUP; echo '{\"is_idle\":true,\"components\":[]}'; while :; do sleep 1000; done";
    let supervisor = supervisor(script);
    let pid = eventually(&supervisor, "it runs", |it| it.status.is_idle).pid.expect("a process");
    supervisor.stop(Duration::ZERO);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(supervisor.reports().is_empty());
}

/// A topology that was submitted while the server stopped was started, and the stop waited for its worker for ever.
#[test]
fn submission_while_the_server_stops_does_not_keep_it_from_stopping() {
    let script = r#"echo '{"is_idle":true,"components":[]}'; read -r job; read -r order; sleep 0.3"#;
    let supervisor = supervisor(script);
    eventually(&supervisor, "it runs", |it| it.status.is_idle);
    let job = supervisor.job("x").expect("it is there");
    std::thread::scope(|scope| {
        let stop = scope.spawn(|| supervisor.stop(Duration::ZERO));
        while !supervisor.is_stopping() {
            std::thread::yield_now();
        }
        for name in ["x", "y"] {
            let job = Job { name: name.to_owned(), ..Job::clone(&job) };
            supervisor.submit(Submission { job, plan: None, workers: 1 }, Duration::ZERO);
        }
        stop.join().expect("it stops");
    });
    assert!(supervisor.reports().is_empty());
}
