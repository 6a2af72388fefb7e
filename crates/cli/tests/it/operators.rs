//! Operators of a service: what each may do, what is written down of it, and what signatures add.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use outpour_agent::control::{
    Admission, AgentSays, CommandSays, Greeting, ManifestOffer, read_frame, write_frame,
};
use outpour_core::blocks::Want;
use outpour_core::{NodeId, Priority};
use outpour_net::trust::{Operator, Signer};
use outpour_protocols::{Member, Role, registry};
use outpour_store::{Attributes, BuildOptions, Survey};
use outpour_terms::Terms;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::service::{Service, trust};
use crate::support::{Ran, call, outpour, run, same, tree};

/// Nothing takes so long.
const DEADLINE: Duration = Duration::from_secs(60);

/// A service with a file of audits, and operators that may use a part of it each.
pub(crate) struct Scene {
    pub(crate) service: Service,
    pub(crate) source: PathBuf,
    pub(crate) trust: PathBuf,
    pub(crate) identity: PathBuf,
    pub(crate) dir: TempDir,
}

impl Scene {
    pub(crate) fn new(more: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let source = tree(dir.path());
        let (trust, identity) = trust(dir.path(), "ours");
        let audit = dir.path().join("audit.jsonl");
        let audit = ["--audit", audit.to_str().unwrap()];
        let more = [&audit[..], more].concat();
        let service = Service::run(&[], &more, 0, &identity, &dir.path().join("root"));
        Self {
            service,
            source,
            trust,
            identity,
            dir,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes an operator with these arguments; returns the directory of its identity.
    pub(crate) fn operator(&self, name: &str, arguments: &[&str]) -> PathBuf {
        let out = self.path(name);
        let trust = self.trust.to_str().unwrap();
        let words = ["trust", "operator", name, "--trust", trust, "--output"];
        run(outpour().args(words).arg(&out).args(arguments)).expect(0);
        out
    }

    /// A cast of the tree by an operator to a place on the service's host.
    pub(crate) fn cast(&self, operator: &Path, to: &Path) -> Command {
        let mut command = outpour();
        command.arg("cast").arg(&self.source).arg(self.at(to));
        command
            .args(["--agents", "--json", "--quiet", "--trust"])
            .arg(operator);
        command
    }

    pub(crate) fn at(&self, place: &Path) -> String {
        format!("127.0.0.1:{}:{}", self.service.port, place.display())
    }

    /// What the file of audits has once it has so many lines; they come a moment after the verdict.
    #[track_caller]
    pub(crate) fn audited(&self, lines: usize) -> Vec<Value> {
        let read = || self.lines();
        wait_until("the lines of the audit", || read().len() >= lines);
        read()
    }

    fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path("audit.jsonl")).unwrap();
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        text[..whole]
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Waits until the verdicts on what an operator asked for are these.
    #[track_caller]
    pub(crate) fn expect_verdicts(&self, operator: &str, expected: &[&str]) {
        wait_until("the verdicts", || {
            self.verdicts(operator).len() >= expected.len()
        });
        assert_eq!(self.verdicts(operator), expected);
    }

    /// The verdicts on what an operator asked for.
    fn verdicts(&self, operator: &str) -> Vec<String> {
        let audited = self.lines().into_iter();
        audited
            .filter(|line| line["operator"] == operator)
            .map(|line| line["verdict"].as_str().unwrap().to_owned())
            .collect()
    }
}

pub(crate) fn error(ran: &Ran) -> String {
    let report = ran.json();
    match report["hosts"][0]["error"].as_str() {
        Some(error) => error.to_owned(),
        None => report["error"].as_str().unwrap_or_default().to_owned(),
    }
}

#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < DEADLINE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn begin(command: &mut Command) -> Child {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

pub(crate) fn end(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn two_operators_cast_at_once_each_beneath_its_own_root() {
    let scene = Scene::new(&[]);
    let roots = ["ana", "bob"].map(|name| scene.path("root").join(name));
    let operators = [0, 1].map(|n| {
        let name = ["ana", "bob"][n];
        scene.operator(name, &["--root", roots[n].to_str().unwrap()])
    });
    // So slow that both are under way when the first ends.
    let casts = [0, 1].map(|n| {
        let to = roots[n].join("model");
        begin(scene.cast(&operators[n], &to).args(["--limit", "2 Mbit/s"]))
    });
    for cast in casts {
        end(cast).expect(0);
    }
    roots
        .iter()
        .for_each(|root| same(&scene.source, &root.join("model")));
    let verdicts: Vec<_> = scene
        .audited(4)
        .iter()
        .map(|it| it["verdict"].clone())
        .collect();
    assert_eq!(
        verdicts,
        ["accepted", "accepted", "verified", "verified"],
        "at once"
    );
    for name in ["ana", "bob"] {
        scene.expect_verdicts(name, &["accepted", "verified"]);
    }

    // Neither reaches what is the other's, nor what is nobody's, whether to write or to read.
    let beside = [
        roots[1].join("model"),
        scene.path("root/new"),
        scene.path("root/ana/../bob/x"),
        scene.path("outside"),
    ];
    for place in &beside {
        let refused = error(&run(&mut scene.cast(&operators[0], place)).expect(1));
        let own = format!(
            "operator ana may read and write only beneath {}",
            roots[0].display()
        );
        let hosts = "this agent reads and writes only beneath";
        assert!(
            refused.contains(&own) || refused.contains(hosts),
            "{refused}"
        );
        let dry = run(scene.cast(&operators[0], place).arg("--dry-run")).expect(1);
        assert!(dry.out.contains("only beneath"), "{dry:?}");
        assert!(!place.exists() || place == &beside[0]);
    }
    let second = Service::start(&scene.identity, &scene.path("second"));
    let stolen = scene.path("second/stolen");
    let mut reading = outpour();
    reading.args(["cast", "--agents", "--json", "--quiet", "--trust"]);
    reading.arg(&operators[0]).arg(scene.at(&beside[0]));
    let to = format!("127.0.0.1:{}:{}", second.port, stolen.display());
    let refused = run(reading.arg(to)).expect(1);
    let why = format!(
        "{}: operator ana may read and write only",
        beside[0].display()
    );
    assert!(refused.out.contains(&why), "{refused:?}");
    assert!(!stolen.exists());
    let refused = ["refused"; 2 * 4 + 1];
    scene.expect_verdicts("ana", &[&["accepted", "verified"][..], &refused].concat());
    // The first operator is bound by the host's roots only.
    run(&mut scene.cast(&scene.trust, &beside[1])).expect(0);
    same(&scene.source, &beside[1]);
}

#[test]
fn an_operator_of_other_hosts_does_nothing_here() {
    let scene = Scene::new(&[]);
    let place = scene.path("root/x");
    let elsewhere = scene.operator("eve", &["--host", "gpu*", "--host", "10.*"]);
    let refused = error(&run(&mut scene.cast(&elsewhere, &place)).expect(1));
    assert_eq!(
        refused,
        "operator eve may use only hosts gpu*, 10.*; this one is 127.0.0.1"
    );
    let dry = run(scene.cast(&elsewhere, &place).arg("--dry-run")).expect(1);
    assert!(
        dry.out.contains("operator eve may use only hosts"),
        "{dry:?}"
    );
    assert!(!place.exists());
    scene.expect_verdicts("eve", &["refused", "refused"]);
    let here = scene.operator("kim", &["--host", "127.0.*"]);
    run(&mut scene.cast(&here, &place)).expect(0);
    same(&scene.source, &place);
}

#[test]
fn what_operators_ask_for_is_in_the_file_and_in_the_log() {
    let scene = Scene::new(&[]);
    let place = scene.path("root/a\u{1b}[2Jb");
    let ana = scene.operator("ana", &[]);
    let done = run(&mut scene.cast(&ana, &place)).expect(0).json();
    let outside = scene.path("outside");
    run(&mut scene.cast(&ana, &outside)).expect(1);
    let lines = scene.audited(3);
    assert_eq!(lines.len(), 3, "{lines:?}");
    for (line, verdict) in lines.iter().zip(["accepted", "verified", "refused"]) {
        assert_eq!(line["verdict"], verdict);
        assert_eq!(line["operator"], "ana");
        assert_eq!(line["address"], "127.0.0.1");
        assert_eq!(line["task"], "receive");
        assert_eq!(line["id"], done["object"]);
        assert!(
            line["object"].as_str().unwrap().starts_with("model ("),
            "{line}"
        );
        let time = line["time"].as_str().unwrap();
        assert!(time.len() == 20 && time.ends_with('Z'), "{time}");
    }
    let shown = scene.path(r"root/a\u{1b}[2Jb").display().to_string();
    assert_eq!(lines[0]["path"], shown.as_str());
    assert!(lines[0]["why"].is_null() && lines[1]["why"].is_null());
    let why = lines[2]["why"].as_str().unwrap();
    assert!(why.contains("reads and writes only beneath"), "{why}");
    let mode = fs::metadata(scene.path("audit.jsonl"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let said = scene.service.stop_all();
    let said: Vec<_> = said.lines().collect();
    let begins = "outpour: audit: operator ana from 127.0.0.1: receive \"model (";
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said.iter().all(|line| line.starts_with(begins)), "{said:?}");
    assert!(
        said[0].ends_with(": accepted") && said[0].contains("[2Jb"),
        "{said:?}"
    );
    assert!(!said[0].contains('\u{1b}'), "{said:?}");
}

#[test]
fn a_file_of_audits_that_is_full_is_said_and_stops_no_cast() {
    let dir = tempfile::tempdir().unwrap();
    let source = tree(dir.path());
    let (trust, identity) = trust(dir.path(), "ours");
    let root = dir.path().join("root");
    let service = Service::run(&[], &["--audit", "/dev/full"], 0, &identity, &root);
    let to = format!("127.0.0.1:{}:{}", service.port, root.join("x").display());
    let words = ["--agents", "--json", "--quiet", "--trust"];
    run(outpour()
        .arg("cast")
        .arg(&source)
        .arg(to)
        .args(words)
        .arg(trust))
    .expect(0);
    same(&source, &root.join("x"));
    let said = service.stop();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("cannot write the audit: No space left"),
        "{said}"
    );
}

/// Makes a signer; returns the file of its secret key, and its public key.
fn signer(dir: &Path, name: &str) -> (PathBuf, String) {
    let file = dir.join(name);
    let made = call(["trust", "signer", "--output", file.to_str().unwrap()]).expect(0);
    let key = fs::read_to_string(dir.join(format!("{name}.pub"))).unwrap();
    assert_eq!(made.out, key);
    (file, key.trim().to_owned())
}

#[test]
fn a_service_takes_only_what_its_signers_have_signed() {
    let keys = tempfile::tempdir().unwrap();
    let (release, public) = signer(keys.path(), "release.key");
    let (spare, spare_public) = signer(keys.path(), "spare.key");
    let (other, _) = signer(keys.path(), "other.key");
    let accepted = [
        "--accept-signed-by",
        &public,
        "--accept-signed-by",
        &spare_public,
    ];
    let scene = Scene::new(&accepted);
    let place = scene.path("root/x");
    for (sign, why) in [
        (None, "and this one is not signed"),
        (
            Some(&other),
            "this signature is another's, or of another object",
        ),
    ] {
        for dry in [false, true] {
            let mut cast = scene.cast(&scene.trust, &place);
            cast.args(
                sign.into_iter()
                    .flat_map(|key| ["--sign", key.to_str().unwrap()]),
            );
            cast.args(dry.then_some("--dry-run"));
            let refused = error(&run(&mut cast).expect(1));
            assert!(
                refused.contains(why) && refused.starts_with("this host takes only"),
                "{refused}"
            );
        }
    }
    assert!(!place.exists());
    for key in [&release, &spare] {
        run(scene.cast(&scene.trust, &place).arg("--sign").arg(key)).expect(0);
        same(&scene.source, &place);
    }
    // To look is no harm; each of the others looked once and was refused once.
    let [refused, looked] = [&["refused"][..], &["accepted", "ended"]];
    let done = &["accepted", "verified"][..];
    let expected = [refused, looked, refused, looked, done, done].concat();
    scene.expect_verdicts("operator", &expected);
    // What another host has is not signed by anybody who has not seen it.
    let mut blind = outpour();
    blind
        .args(["cast", "--agents", "--json", "--quiet", "--trust"])
        .arg(&scene.trust);
    blind.args([scene.at(&place), "127.0.0.1:9:/x".to_owned()]);
    let refused = run(blind.arg("--sign").arg(&release)).expect(1);
    assert!(
        refused
            .out
            .contains("only an object of this host is signed"),
        "{refused:?}"
    );
    for (arguments, code) in [
        (vec!["cast", "x", "a:/x", "--sign", "/nonexistent"], 1),
        (vec!["agent", "--stdio", "--accept-signed-by", "00"], 2),
        (
            vec!["trust", "signer", "--output", release.to_str().unwrap()],
            1,
        ),
    ] {
        let ran = call(&arguments).expect(code);
        assert!(
            ran.err.contains("outpour: ") || ran.err.contains("error: "),
            "{ran:?}"
        );
    }
}

/// The admission of a node to a cast of this manifest, offered as that of this id.
fn admission(
    scene: &Scene,
    node: NodeId,
    id: [u8; 32],
    manifest: &[u8],
    signature: Option<Vec<u8>>,
) -> Admission {
    let member = |role| Member { cluster: 0, role };
    let members = vec![member(Role::Source), member(Role::Receiver)];
    let protocol = registry::by_name("direct").unwrap().by_default();
    Admission {
        cast: [1; 16],
        transfer: [1; 16],
        epoch: 1,
        node,
        priority: Priority::default(),
        path: scene.path("root/x").to_str().unwrap().as_bytes().to_vec(),
        file_name: None,
        label: "it".to_owned(),
        verify_after: false,
        want: Want::All,
        terms: Terms::new(protocol, members, 1),
        manifest: ManifestOffer {
            len: manifest.len() as u32,
            block_bytes: manifest.len() as u32,
            hashes: vec![*blake3::hash(manifest).as_bytes()],
            id,
            inline: Some(manifest.to_vec()),
        },
        signature,
    }
}

/// What an agent answers that is admitted to a cast of this manifest, offered as that of this id.
async fn admitted(
    scene: &Scene,
    id: [u8; 32],
    manifest: &[u8],
    signature: Option<Vec<u8>>,
) -> Option<AgentSays> {
    let operator = Operator::load(&scene.trust).unwrap();
    let stream = TcpStream::connect(("127.0.0.1", scene.service.port))
        .await
        .unwrap();
    let (mut stream, _) = operator.connect("127.0.0.1", stream).await.unwrap();
    let greeting: Greeting = read_frame(&mut stream).await.unwrap();
    greeting.check().unwrap();
    let admission = admission(scene, NodeId(1), id, manifest, signature);
    let says = CommandSays::Admit(Box::new(admission));
    write_frame(&mut stream, &says).await.unwrap();
    match read_frame(&mut stream).await.unwrap() {
        // What it says after that it has joined, if it goes on at all.
        AgentSays::Joined { .. } => read_frame(&mut stream).await.ok(),
        said => Some(said),
    }
}

/// A controller that has a signed manifest and an operator's key gets no other bytes through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manifest_that_is_swapped_after_it_was_signed_is_refused() {
    let keys = tempfile::tempdir().unwrap();
    let (release, public) = signer(keys.path(), "release.key");
    let scene = Scene::new(&["--accept-signed-by", &public]);
    let signer = Signer::load(&release).unwrap();
    let manifest = |path: &Path| {
        let survey = Survey::of(path, Attributes::Left).unwrap();
        let (manifest, _) = survey.hash(&BuildOptions::default(), &|_| {}).unwrap();
        manifest.encode()
    };
    let signed = manifest(&scene.source);
    fs::write(scene.source.join("a name with spaces; and $(more)"), "y").unwrap();
    let swapped = manifest(&scene.source);
    assert_ne!(signed, swapped);
    let [id, swapped_id] = [&signed, &swapped].map(|bytes| *blake3::hash(bytes).as_bytes());
    let signature = signer.sign(&id);
    // By its own id it is not signed ...
    for signature in [
        None,
        Some(signature.clone()),
        Some(vec![0; 64]),
        Some(Vec::new()),
    ] {
        let Some(AgentSays::Unable { error }) =
            admitted(&scene, swapped_id, &swapped, signature).await
        else {
            panic!("it is not signed");
        };
        assert!(error.starts_with("this host takes only objects"), "{error}");
    }
    // ... and by the other's it is not what was signed.
    let said = admitted(&scene, id, &swapped, Some(signature.clone())).await;
    let Some(AgentSays::Unable { error }) = said else {
        panic!("{said:?}");
    };
    assert!(
        error.ends_with("the object differs from its description"),
        "{error}"
    );
    scene.expect_verdicts("operator", &["refused"; 5]);
    assert!(!scene.path("root/x").exists());
    // The real one is taken part in.
    let said = admitted(&scene, id, &signed, Some(signature)).await;
    assert!(matches!(said, Some(AgentSays::Report(_))), "{said:?}");
}

/// A source that asks for signatures gives no other object than the signed one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_gives_only_what_was_signed() {
    let keys = tempfile::tempdir().unwrap();
    let (release, public) = signer(keys.path(), "release.key");
    let scene = Scene::new(&["--accept-signed-by", &public]);
    let file = scene.path("root/secret");
    fs::write(&file, "secret").unwrap();
    let survey = Survey::of(&scene.source, Attributes::Left).unwrap();
    let (signed, _) = survey.hash(&BuildOptions::default(), &|_| {}).unwrap();
    let survey = Survey::of(&file, Attributes::Left).unwrap();
    let own = BuildOptions {
        block: outpour_core::manifest::BlockSize::Given(64 << 10),
        ..BuildOptions::default()
    };
    let (own, _) = survey.hash(&own, &|_| {}).unwrap();
    let signer = Signer::load(&release).unwrap();
    for (manifest, given) in [(&signed, false), (&own, true)] {
        let id = manifest.id().0;
        let said = offered(&scene, &file, id, &manifest.encode(), signer.sign(&id)).await;
        match said {
            AgentSays::Joined { .. } => assert!(given),
            AgentSays::Unable { error } => {
                assert!(!given, "{error}");
                assert_eq!(error, "what is here is not the object that was signed");
            }
            said => panic!("{said:?}"),
        }
    }
}

/// What an agent answers that has read a file and is admitted as the source of this manifest.
async fn offered(
    scene: &Scene,
    file: &Path,
    id: [u8; 32],
    manifest: &[u8],
    signature: Vec<u8>,
) -> AgentSays {
    let operator = Operator::load(&scene.trust).unwrap();
    let stream = TcpStream::connect(("127.0.0.1", scene.service.port));
    let stream = stream.await.unwrap();
    let (mut stream, _) = operator.connect("127.0.0.1", stream).await.unwrap();
    read_frame::<Greeting>(&mut stream).await.unwrap();
    let path = file.to_str().unwrap().as_bytes().to_vec();
    let survey = CommandSays::Survey {
        path,
        archive: false,
    };
    let hash = CommandSays::Hash {
        block_bytes: 64 << 10,
        receivers: 1,
        manifest: false,
    };
    write_frame(&mut stream, &survey).await.unwrap();
    let mut admission = Some(admission(scene, NodeId(0), id, manifest, Some(signature)));
    loop {
        let next = match read_frame(&mut stream).await.unwrap() {
            AgentSays::Surveyed { .. } => hash.clone(),
            AgentSays::Hashed(_) => CommandSays::Admit(Box::new(admission.take().unwrap())),
            AgentSays::Hashing { .. } => continue,
            said => return said,
        };
        write_frame(&mut stream, &next).await.unwrap();
    }
}
