//! The control channel of long-running agents: which operators may command which agents.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use outpour_net::Error;
use outpour_net::trust::{
    Agent, Caller, Certified, Directory, Grant, Kind, Lifetime, Operator, Subject, shown,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::loopback;

/// Whether a word gets from the operator to the agent and back.
async fn talk(operator: &Operator, agent: &Agent, host: &str) -> std::io::Result<()> {
    meet(operator, agent, host).await.map(drop)
}

/// The same; returns how each has proved to be.
async fn meet(
    operator: &Operator,
    agent: &Agent,
    host: &str,
) -> std::io::Result<(Certified, Caller)> {
    let listener = TcpListener::bind(loopback()).await?;
    let addr = listener.local_addr()?;
    let agent = agent.clone();
    let serve = tokio::spawn(async move {
        let (stream, _) = listener.accept().await?;
        let (mut stream, caller) = agent.accept(stream).await?;
        let mut word = [0; 4];
        stream.read_exact(&mut word).await?;
        stream.write_all(&word).await?;
        stream.shutdown().await?;
        Ok::<_, std::io::Error>(caller)
    });
    let stream = TcpStream::connect(addr).await?;
    let (mut stream, certified) = operator.connect(host, stream).await?;
    stream.write_all(b"work").await?;
    let mut word = [0; 4];
    stream.read_exact(&mut word).await?;
    assert_eq!(&word, b"work");
    Ok((certified, serve.await??))
}

fn init(at: &Path) -> Result<(), Error> {
    Directory::at(at).init()
}

fn issue(at: &Path, host: &str, out: &Path) -> Result<(), Error> {
    Directory::at(at).issue(host, Lifetime::default(), out)
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
async fn an_operator_proves_its_name_and_what_it_may() {
    let dir = tempfile::tempdir().unwrap();
    let trust = dir.path().join("trust");
    let first = directory(&trust);
    let host = "node7.example.org";
    let agent = agent(&trust, host, &dir.path().join("a.pem"));
    let (shows, caller) = meet(&first, &agent, host).await.unwrap();
    assert_eq!(shows.subject, Subject::Agent(host.to_owned()));
    assert_eq!(
        (caller.name.as_str(), &caller.grant),
        ("operator", &Grant::default())
    );
    let grant = Grant::new(
        vec!["/srv/a b".into(), "/srv/ü".into()],
        vec!["gpu*".to_owned()],
    );
    let grant = grant.unwrap();
    let ana = dir.path().join("ana");
    let at = Directory::at(&trust);
    let usual = Lifetime::default();
    at.issue_operator("ana", &grant, usual, &ana).unwrap();
    let operator = Operator::load(&ana).unwrap();
    assert!(first.renews() && !operator.renews());
    let (_, caller) = meet(&operator, &agent, host).await.unwrap();
    assert_eq!((caller.name.as_str(), &caller.grant), ("ana", &grant));
    // The same command renews it; another operator's identity stays where it is.
    at.issue_operator("ana", &Grant::default(), usual, &ana)
        .unwrap();
    let again = at.issue_operator("bob", &grant, usual, &ana);
    assert!(matches!(again, Err(Error::Exists { .. })));
    let (_, renewed) = meet(&Operator::load(&ana).unwrap(), &agent, host)
        .await
        .unwrap();
    assert_eq!(renewed.grant, Grant::default());
    assert_ne!(renewed.serial, caller.serial);
    let issued = at.issued().unwrap();
    let names: Vec<_> = issued
        .iter()
        .map(|(it, revoked)| (it.kind, &*it.name, *revoked))
        .collect();
    let operators = ["ana", "ana", "operator"].map(|name| (Kind::Operator, name, false));
    assert_eq!(names[..3], operators);
    assert_eq!(names[3..], [(Kind::Agent, host, false)]);
}

/// A certificate of a day, and what is left of it.
#[tokio::test]
async fn a_certificate_is_renewed_when_a_third_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let trust = dir.path().join("trust");
    let operator = directory(&trust);
    let (host, file) = ("node7.example.org", dir.path().join("a.pem"));
    let day = Lifetime::days(1).unwrap();
    Directory::at(&trust).issue(host, day, &file).unwrap();
    let agent = Agent::load(&file).unwrap();
    let (old, _) = meet(&operator, &agent, host).await.unwrap();
    assert_eq!(old.lifetime(), day);
    let hours = |hours: u64| std::time::SystemTime::now() + Duration::from_secs(hours * 3600);
    let due = [0, 15, 17, 25, 48].map(|at| old.is_due(hours(at)));
    assert_eq!(due, [false, false, true, true, true]);
    assert!(shown(old.until()) > shown(hours(23)) && shown(old.until()) < shown(hours(25)));

    let renewal = agent.request().unwrap();
    let certificate = operator.renew(&old, renewal.request()).unwrap();
    // What is of another key or another host, or comes from somebody else, is not used.
    let other = agent.request().unwrap();
    assert!(agent.renew(&other, &certificate).is_err());
    let theirs = dir.path().join("theirs");
    let foreign = directory(&theirs).renew(&old, renewal.request()).unwrap();
    assert!(agent.renew(&renewal, &foreign).is_err());
    let elsewhere = dir.path().join("b.pem");
    Directory::at(&trust)
        .issue("node8.example.org", day, &elsewhere)
        .unwrap();
    let (neighbour, _) = meet(
        &operator,
        &Agent::load(&elsewhere).unwrap(),
        "node8.example.org",
    )
    .await
    .unwrap();
    let misnamed = operator.renew(&neighbour, renewal.request()).unwrap();
    assert!(agent.renew(&renewal, &misnamed).is_err());
    let before = fs::read(&file).unwrap();
    assert!(agent.renew(&renewal, &certificate[1..]).is_err());
    assert_eq!(fs::read(&file).unwrap(), before);
    // Nothing is asked for that could not be kept.
    let place = dir.path().join("agent");
    fs::create_dir(&place).unwrap();
    issue(&trust, host, &place.join("b.pem")).unwrap();
    let homeless = Agent::load(&place.join("b.pem")).unwrap();
    homeless.request().unwrap();
    assert_eq!(
        fs::read_dir(&place).unwrap().count(),
        1,
        "to check changes nothing"
    );
    fs::remove_dir_all(&place).unwrap();
    assert!(matches!(homeless.request(), Err(Error::File { .. })));
    // A request is signed with its key.
    let mut forged = renewal.request().to_vec();
    *forged.last_mut().unwrap() ^= 1;
    assert!(operator.renew(&old, &forged).is_err());

    agent.renew(&renewal, &certificate).unwrap();
    let (new, _) = meet(&operator, &agent, host).await.unwrap();
    assert!(new.serial != old.serial && new.subject == old.subject);
    assert_eq!(new.lifetime(), day);
    // So it is after a restart, and for those who read the file again.
    let (restarted, _) = meet(&operator, &Agent::load(&file).unwrap(), host)
        .await
        .unwrap();
    assert_eq!(restarted, new);
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    fs::write(&file, &before).unwrap();
    agent.refresh().unwrap();
    let (replaced, _) = meet(&operator, &agent, host).await.unwrap();
    assert_eq!(replaced, old);
}

#[tokio::test]
async fn an_identity_that_was_replaced_meanwhile_is_not_renewed_over() {
    let dir = tempfile::tempdir().unwrap();
    let trust = dir.path().join("trust");
    let operator = directory(&trust);
    let (host, file) = ("node7.example.org", dir.path().join("a.pem"));
    let agent = agent(&trust, host, &file);
    let (old, _) = meet(&operator, &agent, host).await.unwrap();
    for noticed in [false, true] {
        let renewal = agent.request().unwrap();
        let certificate = operator.renew(&old, renewal.request()).unwrap();
        let by_hand = dir.path().join(format!("by-hand-{noticed}.pem"));
        issue(&trust, host, &by_hand).unwrap();
        let kept = fs::read(&by_hand).unwrap();
        fs::rename(&by_hand, &file).unwrap();
        if noticed {
            agent.refresh().unwrap();
        }
        agent.renew(&renewal, &certificate).unwrap();
        assert_eq!(fs::read(&file).unwrap(), kept);
        let (shown, _) = meet(&operator, &agent, host).await.unwrap();
        let loaded = Agent::load(&file).unwrap();
        let (expected, _) = meet(&operator, &loaded, host).await.unwrap();
        assert_eq!(shown, expected);
    }
    // One that is old itself is no new one.
    let renewal = agent.request().unwrap();
    let certificate = operator.renew(&old, renewal.request()).unwrap();
    let aged = Directory::at(&trust).aged(Duration::from_secs(25 * 24 * 3600));
    let by_hand = dir.path().join("aged.pem");
    aged.issue(host, Lifetime::default(), &by_hand).unwrap();
    let kept = fs::read(&by_hand).unwrap();
    fs::rename(&by_hand, &file).unwrap();
    let error = agent.renew(&renewal, &certificate).unwrap_err().to_string();
    assert!(error.contains("replaced meanwhile"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), kept);
    // Nor is one written where somebody has begun to write another, or has taken it away.
    let renewal = agent.request().unwrap();
    let certificate = operator.renew(&old, renewal.request()).unwrap();
    let half = &kept[..kept.len() / 2];
    fs::write(&file, half).unwrap();
    assert!(agent.renew(&renewal, &certificate).is_err());
    assert_eq!(fs::read(&file).unwrap(), half);
    fs::remove_file(&file).unwrap();
    assert!(agent.renew(&renewal, &certificate).is_err());
    assert!(!file.exists());
    fs::write(&file, &kept).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    agent.renew(&renewal, &certificate).unwrap();
}

#[tokio::test]
async fn the_operator_of_a_whole_directory_renews_itself() {
    let dir = tempfile::tempdir().unwrap();
    let trust = dir.path().join("trust");
    let host = "node7.example.org";
    directory(&trust);
    let agent = agent(&trust, host, &dir.path().join("a.pem"));
    let at = Directory::at(&trust);
    let serial = async || {
        let operator = Operator::load(&trust).unwrap();
        meet(&operator, &agent, host).await.unwrap().1.serial
    };
    let first = serial().await;
    assert_eq!(serial().await, first, "it is not due");
    assert!(at.renew_operator(|_| true).unwrap());
    let second = serial().await;
    assert_ne!(second, first);
    // One that was revoked is not.
    let revocation = at.revoke("operator").unwrap();
    assert_eq!(revocation.certificates.len(), 2);
    let error = at.renew_operator(|_| true).unwrap_err().to_string();
    assert!(error.contains("was revoked"), "{error}");
}

#[tokio::test]
async fn revoked_operators_are_on_a_numbered_list() {
    let dir = tempfile::tempdir().unwrap();
    let trust = dir.path().join("trust");
    let (host, file) = ("node7.example.org", dir.path().join("a.pem"));
    let operator = directory(&trust);
    let at = Directory::at(&trust);
    let everything = Grant::default();
    for name in ["ana", "bob"] {
        let out = dir.path().join(name);
        at.issue_operator(name, &everything, Lifetime::default(), &out)
            .unwrap();
    }
    let agent = agent(&trust, host, &file);
    let serial = async |name: &str| {
        let operator = Operator::load(&dir.path().join(name)).unwrap();
        meet(&operator, &agent, host).await.unwrap().1.serial
    };
    let (ana, bob) = (serial("ana").await, serial("bob").await);
    assert!(at.revoke("nobody").is_err());
    let first = revoke(&at, "ana");
    let second = revoke(&at, "bob");
    assert_eq!(revoke(&at, "ana"), second, "no new number");
    let revoked = agent.revoked();
    let held = |agent: &Agent| {
        let list = agent.revoked();
        let list = list.borrow();
        (list.number(), list.has(&ana), list.has(&bob))
    };
    assert_eq!(held(&agent), (0, false, false));
    assert_eq!(agent.adopt(&first).unwrap(), 1);
    assert_eq!(held(&agent), (1, true, false));
    assert!(revoked.has_changed().unwrap());
    assert_eq!(agent.adopt(&second).unwrap(), 2);
    assert_eq!(held(&agent), (2, true, true));
    // An older one does not bring anybody back, nor does it replace the file.
    assert_eq!(agent.adopt(&first).unwrap(), 2);
    assert_eq!(held(&Agent::load(&file).unwrap()), (2, true, true));
    let list = file.with_extension("pem.crl");
    fs::write(&list, &first).unwrap();
    agent.refresh().unwrap();
    assert_eq!(held(&agent), (2, true, true));
    assert_eq!(fs::read(&list).unwrap(), second, "a restart forgets nobody");
    // One that was copied there counts.
    let fresh = dir.path().join("b.pem");
    issue(&trust, "127.0.0.1", &fresh).unwrap();
    let other = Agent::load(&fresh).unwrap();
    fs::write(fresh.with_extension("pem.crl"), &second).unwrap();
    other.refresh().unwrap();
    assert_eq!(held(&other), (2, true, true));
    // A list that could not be kept is kept when it is told again.
    fs::remove_file(&list).unwrap();
    assert_eq!(agent.adopt(&second).unwrap(), 2);
    assert_eq!(fs::read(&list).unwrap(), second);
    // A list counts in all its bits, but for those that say how it is signed.
    let signature = second.len() - 64;
    let how = signature - 10..signature;
    for byte in 0..second.len() {
        let mut changed = second.clone();
        changed[byte] ^= 1 << (byte % 8);
        let adopted = other.adopt(&changed).is_ok();
        assert!(!adopted || how.contains(&byte), "byte {byte}");
        assert!(other.adopt(&second[..byte]).is_err(), "cut at {byte}");
    }
    let kept = fs::read(fresh.with_extension("pem.crl")).unwrap();
    assert_eq!((held(&other), kept), ((2, true, true), second.clone()));
    // Neither strangers nor the agents' authority can revoke operators, nor can anybody a part of a list.
    let theirs = dir.path().join("theirs");
    directory(&theirs);
    let stranger = revoke(&Directory::at(&theirs), "operator");
    let mut bad = vec![stranger, Vec::new(), second[1..].to_vec()];
    let mut changed = second.clone();
    *changed.last_mut().unwrap() ^= 1;
    bad.push(changed);
    assert!(at.revoke("node7.example.org").unwrap().for_agents.is_none());
    bad.push(fs::read(trust.join("agent-ca.crl")).unwrap());
    for list in bad {
        assert!(agent.adopt(&list).is_err());
    }
    assert_eq!(held(&agent), (2, true, true));
    // A revoked agent is refused by the operators of the directory.
    let error = talk(&Operator::load(&trust).unwrap(), &agent, host)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("was revoked"), "{error}");
    talk(&operator, &agent, host).await.unwrap();
    // Not an agent's list, but a broken one: it is no reason to start without.
    fs::write(&list, b"broken").unwrap();
    assert!(matches!(Agent::load(&file), Err(Error::Credentials { .. })));
}

/// Revokes an operator; returns the list as agents are told it.
fn revoke(at: &Directory, name: &str) -> Vec<u8> {
    let list = at.revoke(name).unwrap().for_agents.unwrap();
    list.der().to_vec()
}

/// Two copies of an authority, and one that has lost its list, give out lists that leave somebody out.
/// An agent holds none of them and says so: who tells it must not believe that it was told.
#[test]
fn a_list_that_leaves_somebody_out_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (trust, copy) = (dir.path().join("trust"), dir.path().join("copy"));
    init(&trust).unwrap();
    let at = Directory::at(&trust);
    for name in ["ana", "bob", "eve"] {
        let out = dir.path().join(name);
        at.issue_operator(name, &Grant::default(), Lifetime::default(), &out)
            .unwrap();
    }
    let file = dir.path().join("a.pem");
    let agent = agent(&trust, "node7.example.org", &file);
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(&trust).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
    }
    let ours = revoke(&at, "ana");
    let theirs = Directory::at(&copy);
    let same_number = revoke(&theirs, "bob");
    let higher = revoke(&theirs, "eve");
    assert_eq!(agent.adopt(&ours).unwrap(), 1);
    let list = file.with_extension("pem.crl");
    for refused in [&same_number, &higher] {
        let error = agent.adopt(refused).unwrap_err().to_string();
        assert!(error.contains("does not continue list 1"), "{error}");
        assert!(error.contains("a.pem.crl"), "{error}");
        fs::write(&list, refused).unwrap();
        assert!(agent.refresh().is_err());
        fs::write(&list, &ours).unwrap();
        assert_eq!(agent.revoked().borrow().der(), ours);
    }
    // An older list that leaves out nobody who is on it is no contradiction.
    let both = revoke(&at, "bob");
    assert_eq!(agent.adopt(&both).unwrap(), 2);
    assert_eq!(agent.adopt(&ours).unwrap(), 2);
    // The way out: the authority goes on from what the agent has.
    fs::copy(&list, copy.join("operator-ca.crl")).unwrap();
    assert_eq!(agent.adopt(&revoke(&theirs, "eve")).unwrap(), 3);
}

#[test]
fn a_new_authority_begins_with_a_list_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let file = dir.path().join("a.pem");
    init(&old).unwrap();
    let agent = agent(&old, "node7.example.org", &file);
    agent
        .adopt(&revoke(&Directory::at(&old), "operator"))
        .unwrap();
    init(&new).unwrap();
    fs::remove_file(&file).unwrap();
    issue(&new, "node7.example.org", &file).unwrap();
    // The list beside it is the old authority's still, which is said, and keeps out no new identity.
    let error = agent.refresh().unwrap_err().to_string();
    assert!(error.contains("another authority has signed it"), "{error}");
    assert_eq!(agent.revoked().borrow().number(), 0);
    let list = revoke(&Directory::at(&new), "operator");
    assert_eq!(agent.adopt(&list).unwrap(), 1);
    assert_eq!(agent.revoked().borrow().der(), list);
    agent.refresh().unwrap();
    assert!(Agent::load(&file).is_ok());
}

#[test]
fn no_two_identities_share_a_list() {
    let dir = tempfile::tempdir().unwrap();
    let trust = dir.path().join("trust");
    init(&trust).unwrap();
    let [one, two] = ["gpu1.example.com", "gpu1.example.org"].map(|name| dir.path().join(name));
    let agents = [&one, &two].map(|file| agent(&trust, "node7.example.org", file));
    agents[0]
        .adopt(&revoke(&Directory::at(&trust), "operator"))
        .unwrap();
    assert!(dir.path().join("gpu1.example.com.crl").exists());
    agents[1].refresh().unwrap();
    assert_eq!(agents[1].revoked().borrow().number(), 0);
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
    assert_eq!(files.len(), 6, "{files:?}");
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
