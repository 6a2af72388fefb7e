//! Groups over real sockets on loopback.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use outpour_collective::{Group, GroupError, JoinConfig, Rendezvous};
use tokio::task::JoinSet;

/// Eight members in three clusters of different sizes.
const CLUSTERS: [&str; 8] = ["a", "b", "a", "c", "b", "a", "b", "b"];

async fn join(clusters: &[&str], patience: Duration) -> Vec<Group> {
    let place = ([127, 0, 0, 1], 0).into();
    let rendezvous = Rendezvous::bind(place, clusters.len() as u32)
        .await
        .unwrap();
    let ticket = rendezvous.ticket().to_string();
    let served = tokio::spawn(rendezvous.serve());
    let mut joining = JoinSet::new();
    for (rank, cluster) in clusters.iter().enumerate() {
        let mut config = JoinConfig::new(ticket.parse().unwrap(), rank as u32, *cluster);
        config.patience = patience;
        joining.spawn(Group::join(config));
    }
    let mut groups: Vec<Group> = joining
        .join_all()
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    served.await.unwrap().unwrap();
    groups.sort_by_key(Group::rank);
    groups
}

/// What a member gives in a round: different lengths, among them none and many blocks.
fn gift(rank: u32, round: u32) -> Vec<u8> {
    let lengths = [0, 1, 1000, 16 << 10, 70_000, 300_001, 700_000];
    let length = lengths[((rank * 3 + round) % 7) as usize];
    (0..length)
        .map(|i| (i as u32 ^ rank << 4 ^ round).to_le_bytes()[0])
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_members_in_three_clusters_exchange_again_and_again() {
    const ROUNDS: u32 = 12;
    let groups = join(&CLUSTERS, Duration::from_secs(10)).await;
    let mut members = JoinSet::new();
    for mut group in groups {
        members.spawn(async move {
            for round in 0..ROUNDS {
                let all = group.all_gather(&gift(group.rank(), round)).await.unwrap();
                assert_eq!(all.len(), CLUSTERS.len());
                for (rank, given) in all.iter().enumerate() {
                    assert!(
                        *given == gift(rank as u32, round),
                        "round {round}, from {rank}"
                    );
                }
            }
            group.leave().await.unwrap();
        });
    }
    members.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_member_multicasts_between_exchanges() {
    let groups = join(&CLUSTERS, Duration::from_secs(10)).await;
    let mut members = JoinSet::new();
    for mut group in groups {
        members.spawn(async move {
            for round in 0..8 {
                let data = gift(round, 6);
                let mine = (group.rank() == round).then_some(data.as_slice());
                assert!(group.multicast(round, mine).await.unwrap() == data);
                if round % 4 == 3 {
                    let all = group.all_gather(&[round as u8]).await.unwrap();
                    assert_eq!(all, vec![vec![round as u8]; 8]);
                }
            }
            group.leave().await.unwrap();
        });
    }
    members.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_member_alone_and_one_cluster_alone_are_groups_too() {
    for clusters in [&["x"][..], &["x", "x", "x"]] {
        let groups = join(clusters, Duration::from_secs(10)).await;
        let mut members = JoinSet::new();
        for mut group in groups {
            members.spawn(async move {
                let all = group.all_gather(&[7; 100_000]).await.unwrap();
                assert_eq!(all, vec![vec![7; 100_000]; group.size() as usize]);
                group.leave().await.unwrap();
            });
        }
        members.join_all().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_vanishes_is_named_to_all_others() {
    let mut groups = join(&CLUSTERS, Duration::from_secs(1)).await;
    let vanished = groups.remove(5);
    let mut members = JoinSet::new();
    for mut group in groups {
        members.spawn(async move {
            let error = group.all_gather(&[1; 1000]).await.unwrap_err();
            assert!(matches!(error, GroupError::Lost { rank: 5, .. }), "{error}");
            let again = group
                .multicast(0, (group.rank() == 0).then_some(&[1]))
                .await;
            assert!(matches!(again, Err(GroupError::Lost { rank: 5, .. })));
        });
    }
    drop(vanished);
    members.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_left_is_missed_by_the_next_operation() {
    let mut groups = join(&["a", "b"], Duration::from_secs(10)).await;
    let (leaver, mut stays) = (groups.remove(0), groups.remove(0));
    let left = tokio::spawn(leaver.leave());
    let error = stays.all_gather(b"?").await.unwrap_err();
    assert!(matches!(error, GroupError::Lost { rank: 0, .. }), "{error}");
    drop(stays);
    left.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_and_double_ranks_are_kept_out() {
    let rendezvous = Rendezvous::bind(([127, 0, 0, 1], 0).into(), 2)
        .await
        .unwrap();
    let ticket = rendezvous.ticket().to_string();
    let other = Rendezvous::bind(([127, 0, 0, 1], 0).into(), 2)
        .await
        .unwrap();
    let served = tokio::spawn(rendezvous.serve());

    // The right address with another group's secret.
    let address = ticket.split('#').next().unwrap();
    let secret = other.ticket().to_string();
    let forged = format!("{address}#{}", secret.split('#').nth(1).unwrap());
    let stranger = Group::join(JoinConfig::new(forged.parse().unwrap(), 0, "a")).await;
    assert!(
        matches!(stranger, Err(GroupError::Network(_))),
        "{stranger:?}"
    );

    let config = |rank| JoinConfig::new(ticket.parse().unwrap(), rank, "a");
    let outside = Group::join(config(2)).await;
    assert!(
        matches!(outside, Err(GroupError::Refused { rank: 2, .. })),
        "{outside:?}"
    );
    let first = tokio::spawn(Group::join(config(0)));
    let second = tokio::spawn(Group::join(config(0)));
    // One of the two is refused, whichever comes later; the other waits for rank 1.
    let (refused, waiting) = tokio::select! {
        first = first => (first.unwrap(), None),
        second = second => (second.unwrap(), None::<()>),
    };
    assert!(
        matches!(refused, Err(GroupError::Refused { rank: 0, .. })),
        "{refused:?}"
    );
    let last = Group::join(config(1)).await.unwrap();
    assert_eq!((last.size(), waiting), (2, None));
    served.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_makes_no_sense_is_refused_at_once() {
    let mut group = join(&["a"], Duration::from_secs(10)).await.remove(0);
    for (root, data) in [(1, None), (0, None), (1, Some(&[1][..]))] {
        let refused = group.multicast(root, data).await;
        assert!(matches!(refused, Err(GroupError::Misuse(_))), "{refused:?}");
    }
    assert_eq!(group.multicast(0, Some(b"me")).await.unwrap(), b"me");
    let none = Rendezvous::bind(([127, 0, 0, 1], 0).into(), 0).await;
    assert!(matches!(none, Err(GroupError::Misuse(_))));
}
