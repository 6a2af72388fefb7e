//! Control channels at whose other end something is wrong: each costs its own host and no other.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use outpour_agent::cast::run;
use outpour_agent::control::{
    AgentSays, CONTROL_VERSION, CommandSays, Greeting, RELEASE, read_frame, write_frame,
};
use outpour_agent::view::{CastReport, HostState, Phase};
use outpour_net::EndpointKey;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::watch;

use crate::support::{Agent, DEADLINE, InProcess, LOOPBACK, Scene, first_view};

const ODD: usize = 1;

/// A cast to three hosts, one of which answers oddly; the others must not care.
async fn odd_one_out(odd: Agent) -> CastReport {
    let scene = Scene::with_tree(3);
    let mut request = scene.request("swarm");
    request.patience = Duration::from_secs(3);
    let report = scene
        .cast_as(request, InProcess::new().with(ODD, odd))
        .await;
    for host in [0, 2] {
        assert!(report.hosts[host].verified, "{report:#?}");
        scene.assert_copy(host);
    }
    assert!(!report.hosts[ODD].verified, "{report:#?}");
    assert!(!scene.destination(ODD).exists());
    report
}

/// What the report says about the odd host.
async fn error(odd: Agent) -> String {
    let report = odd_one_out(odd).await;
    report.hosts[ODD].error.clone().unwrap()
}

/// A greeting as its shape has been and will be in every release.
#[derive(Serialize)]
struct AnyGreeting {
    magic: [u8; 8],
    version: u32,
    release: String,
    public_key: [u8; 32],
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_another_version_is_told_apart() {
    let odd = Agent::other(|mut stream| async move {
        let greeting = AnyGreeting {
            magic: *b"outpour\n",
            version: CONTROL_VERSION + 1,
            release: "9.8.7".to_owned(),
            public_key: [1; 32],
        };
        write_frame(&mut stream, &greeting).await.unwrap();
        // It hears nothing but the end.
        assert_eq!(stream.read(&mut [0; 64]).await.unwrap(), 0);
    });
    let expected = format!(
        "it runs outpour 9.8.7 (control version {}), this is outpour {RELEASE} (control version \
         {CONTROL_VERSION}); install the same release on both ends",
        CONTROL_VERSION + 1
    );
    assert_eq!(error(odd).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_agent_is_told_apart() {
    let sayings: [&'static [u8]; 4] = [
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        &[0; 64],
        &[
            0, 0, 0, 9, b'o', b'u', b't', b'p', b'o', b'u', b'r', b'\n', 1,
        ],
    ];
    for said in sayings {
        let odd = Agent::other(move |mut stream| async move {
            let _ = stream.write_all(said).await;
            let _ = stream.read(&mut [0; 64]).await;
        });
        assert_eq!(error(odd).await, "what answered is not an outpour agent");
    }
}

/// How far an agent plays its part before it goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Stage {
    Start,
    Greeted,
    Admitted,
    Joined,
    Begun,
}

/// Plays an agent's part as far as `stage`; the data plane it names does not exist.
async fn play(stream: &mut DuplexStream, stage: Stage) {
    if stage >= Stage::Greeted {
        let key = EndpointKey::generate().unwrap();
        let greeting = Greeting::new(key.digest().0);
        write_frame(stream, &greeting).await.unwrap();
    }
    if stage >= Stage::Admitted {
        let said = read_frame(stream).await.unwrap();
        assert!(matches!(said, CommandSays::Admit(_)));
    }
    if stage >= Stage::Joined {
        let addrs = vec![SocketAddr::new(LOOPBACK, 1)];
        write_frame(stream, &AgentSays::Joined { addrs })
            .await
            .unwrap();
    }
    if stage >= Stage::Begun {
        let said = read_frame(stream).await.unwrap();
        assert!(matches!(said, CommandSays::Order { .. }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_another_cast_is_named_and_nobody_receives_before_the_start() {
    const BY: &str = "the cast of model (1f3a9c2b) by ana@build1 is writing there";
    let scene = Scene::with_tree(2);
    // It has something to report before the start.
    fs::create_dir_all(scene.destination(0)).unwrap();
    fs::copy(
        scene.source().join("large"),
        scene.destination(0).join("large"),
    )
    .unwrap();
    let waits = Agent::other(|mut stream| async move {
        play(&mut stream, Stage::Admitted).await;
        let by = BY.to_owned();
        write_frame(&mut stream, &AgentSays::Waiting { by })
            .await
            .unwrap();
        hear_all(&mut stream).await;
    });
    let launcher = Arc::new(InProcess::new().with(1, waits));
    let (view, mut seen) = watch::channel(first_view());
    let (cancel, cancelled) = watch::channel(false);
    let cast = tokio::spawn(run(scene.request("swarm"), launcher, view, cancelled));
    let shown = seen.wait_for(|view| {
        let states: Vec<_> = view.hosts.iter().map(|host| host.state).collect();
        assert!(!states.contains(&HostState::Receiving), "{view:?}");
        view.phase == Phase::Starting
            && states == [HostState::Joined, HostState::Waiting]
            && view.hosts[0].have_bytes > 0
            && view.notices == [format!("host1 waits: {BY}")]
    });
    let shown = tokio::time::timeout(DEADLINE, shown).await;
    drop(shown.expect("it is shown in time").unwrap());
    cancel.send_replace(true);
    assert!(!cast.await.unwrap().unwrap().verified());
}

/// Listens until the command closes the channel.
async fn hear_all(stream: &mut DuplexStream) {
    while stream.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_ends_at_any_stage_costs_only_its_host() {
    use Stage::{Admitted, Begun, Greeted, Joined, Start};
    for stage in [Start, Greeted, Admitted, Joined, Begun] {
        let odd = Agent::other(move |mut stream| async move { play(&mut stream, stage).await });
        let expected = if stage < Joined {
            "its agent ended before it took part; its log on that host may say why"
        } else {
            "its agent ended before the cast did; the same command continues where it stopped"
        };
        assert_eq!(error(odd).await, expected, "{stage:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_talks_nonsense_costs_only_its_host() {
    for stage in [Stage::Admitted, Stage::Begun] {
        let odd = Agent::other(move |mut stream| async move {
            play(&mut stream, stage).await;
            let _ = stream.write_all(&[0xff; 64]).await;
            hear_all(&mut stream).await;
        });
        let error = error(odd).await;
        assert_eq!(
            error, "control channel: invalid frame length of 4294967295 bytes",
            "{stage:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_falls_silent_is_not_waited_for_forever() {
    let silent = |stage| {
        Agent::other(move |mut stream| async move {
            play(&mut stream, stage).await;
            hear_all(&mut stream).await;
        })
    };
    let cast = async |stage| (stage, error(silent(stage)).await);
    let all = tokio::join!(
        cast(Stage::Start),
        cast(Stage::Greeted),
        cast(Stage::Admitted),
        cast(Stage::Joined)
    );
    for (stage, error) in [all.0, all.1, all.2, all.3] {
        let expected = match stage {
            Stage::Start | Stage::Greeted | Stage::Admitted => "its agent did not start in time",
            _ => "nothing heard from it for ",
        };
        assert!(error.starts_with(expected), "{stage:?}: {error}");
    }
}

/// Half of the hosts must join before a cast begins without the rest, so patience alone does not
/// end this one.
#[tokio::test(flavor = "multi_thread")]
async fn a_cast_whose_only_agent_falls_silent_ends_too() {
    let scene = Scene::with_tree(1);
    let odd = Agent::other(|mut stream| async move {
        play(&mut stream, Stage::Admitted).await;
        hear_all(&mut stream).await;
    });
    let report = scene.cast("direct", InProcess::new().with(0, odd)).await;
    assert_eq!(
        report.hosts[0].error.as_deref(),
        Some("no message from its agent for 20 s")
    );
}
