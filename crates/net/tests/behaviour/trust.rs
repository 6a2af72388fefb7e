//! The control channel of long-running agents: which operators may command which agents.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use outpour_net::Error;
use outpour_net::trust::{Agent, Operator, init, issue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::loopback;

/// Whether a word gets from the operator to the agent and back.
async fn talk(operator: &Operator, agent: &Agent, host: &str) -> std::io::Result<()> {
    let listener = TcpListener::bind(loopback()).await?;
    let addr = listener.local_addr()?;
    let agent = agent.clone();
    let serve = tokio::spawn(async move {
        let (stream, _) = listener.accept().await?;
        let mut stream = agent.accept(stream).await?;
        let mut word = [0; 4];
        stream.read_exact(&mut word).await?;
        stream.write_all(&word).await?;
        stream.shutdown().await
    });
    let stream = TcpStream::connect(addr).await?;
    let mut stream = operator.connect(host, stream).await?;
    stream.write_all(b"work").await?;
    let mut word = [0; 4];
    stream.read_exact(&mut word).await?;
    assert_eq!(&word, b"work");
    serve.await?
}

fn directory(at: &Path) -> Operator {
    init(at).unwrap();
    Operator::load(at).unwrap()
}

fn agent(dir: &Path, host: &str, out: &Path) -> Agent {
    issue(dir, host, out).unwrap();
    Agent::load(out).unwrap()
}

#[tokio::test]
async fn an_operator_commands_the_agents_of_its_directory_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let trust = dir.path().join("trust");
    let operator = directory(&trust);
    let named = agent(&trust, "node7.example.org", &dir.path().join("node7.pem"));
    let numbered = agent(&trust, "127.0.0.1", &dir.path().join("localhost.pem"));
    talk(&operator, &named, "node7.example.org").await.unwrap();
    talk(&operator, &numbered, "127.0.0.1").await.unwrap();
    // One agent cannot pass for another.
    let error = talk(&operator, &named, "node8.example.org")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[tokio::test]
async fn strangers_neither_command_nor_pose_as_agents() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    let operator = directory(&ours);
    let intruder = directory(&theirs);
    let host = "node7.example.org";
    let honest = agent(&ours, host, &dir.path().join("a.pem"));
    let impostor = agent(&theirs, host, &dir.path().join("b.pem"));
    talk(&operator, &honest, host).await.unwrap();
    talk(&intruder, &honest, host).await.unwrap_err();
    talk(&operator, &impostor, host).await.unwrap_err();
}

#[tokio::test]
async fn an_agent_identity_is_no_operator() {
    let dir = tempfile::tempdir().unwrap();
    let trust = dir.path().join("trust");
    directory(&trust);
    let host = "node7.example.org";
    let honest = agent(&trust, host, &dir.path().join("a.pem"));
    agent(&trust, "thief.example.org", &dir.path().join("thief.pem"));
    // A thief who puts its own identity where the operator's should be gets nowhere.
    fs::remove_file(trust.join("operator.pem")).unwrap();
    fs::copy(dir.path().join("thief.pem"), trust.join("operator.pem")).unwrap();
    let thief = Operator::load(&trust).unwrap();
    talk(&thief, &honest, host).await.unwrap_err();
}

#[test]
fn files_are_private_and_never_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let trust = dir.path().join("trust");
    init(&trust).unwrap();
    let out = dir.path().join("node.pem");
    issue(&trust, "node", &out).unwrap();
    let mut files: Vec<_> = fs::read_dir(&trust)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    assert_eq!(files.len(), 5, "{files:?}");
    files.push(out.clone());
    for file in &files {
        assert_eq!(
            fs::metadata(file).unwrap().permissions().mode() & 0o777,
            0o600,
            "{file:?}"
        );
    }
    let before: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    assert!(matches!(init(&trust), Err(Error::Exists { .. })));
    assert!(matches!(
        issue(&trust, "node", &out),
        Err(Error::Exists { .. })
    ));
    let after: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    assert!(before == after);
    let left: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    assert_eq!(left.len(), 2, "temporary files are gone: {left:?}");
}

#[test]
fn bad_names_files_and_permissions_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let trust = dir.path().join("trust");
    let out = dir.path().join("node.pem");
    assert!(matches!(
        issue(&trust, "node", &out),
        Err(Error::File { .. })
    ));
    init(&trust).unwrap();
    for host in ["", "two words", "-", "a/b", "*"] {
        assert!(issue(&trust, host, &out).is_err(), "{host:?}");
    }
    assert!(!out.exists());
    assert!(matches!(Agent::load(&out), Err(Error::File { .. })));
    issue(&trust, "node", &out).unwrap();
    fs::set_permissions(&out, fs::Permissions::from_mode(0o640)).unwrap();
    let error = Agent::load(&out).err().unwrap().to_string();
    assert!(error.contains("chmod 600"), "{error}");
    fs::set_permissions(&out, fs::Permissions::from_mode(0o600)).unwrap();
    let text = fs::read_to_string(&out).unwrap();
    for cut in [0, 10, text.len() / 3, text.len() / 2] {
        fs::write(&out, &text[..cut]).unwrap();
        assert!(
            matches!(Agent::load(&out), Err(Error::Credentials { .. })),
            "cut at {cut}"
        );
    }
}
