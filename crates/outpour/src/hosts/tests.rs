//! Destinations as they are typed, well and badly.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn one(text: &str) -> Destination {
    let mut all = destination(OsStr::new(text), true).unwrap();
    assert_eq!(all.len(), 1, "{text}");
    all.remove(0)
}

fn names(pattern: &str) -> Vec<String> {
    pattern.parse::<HostRange>().unwrap().names().to_vec()
}

fn collect(all: &[&str]) -> Result<Vec<Destination>, HostsError> {
    let mut found = Destinations::default();
    all.iter()
        .try_for_each(|text| found.add(OsStr::new(text)))?;
    found.finish()
}

fn fault(text: &str) -> String {
    destination(OsStr::new(text), true).unwrap_err().to_string()
}

#[test]
fn a_destination_has_user_host_port_and_path() {
    let plain = one("node07:/srv/model");
    assert_eq!(
        (plain.name.as_str(), plain.path.to_str().unwrap()),
        ("node07", "/srv/model")
    );
    let full = one("ops@node07.example:2222:/srv/a:/b");
    assert_eq!(full.name, "ops@node07.example:2222");
    assert_eq!((full.user.as_deref(), full.port), (Some("ops"), Some(2222)));
    assert_eq!(full.path, Path::new("/srv/a:/b"));
    let six = one("ops@[fe80::1%eth0]:/x");
    assert_eq!(
        (six.host.as_str(), six.name.as_str()),
        ("fe80::1%eth0", "ops@[fe80::1%eth0]")
    );
    assert_eq!(one("[::1]:2022:/x").port, Some(2022));
    assert_eq!(one("a@corp@node:/x").user.as_deref(), Some("a@corp"));
}

#[test]
fn a_path_need_not_be_text() {
    let raw = OsStr::from_bytes(b"node:/srv/\xff\xfe");
    let found = destination(raw, true).unwrap();
    assert_eq!(found[0].path.as_os_str().as_bytes(), b"/srv/\xff\xfe");
}

#[test]
fn ranges_keep_their_zeros_and_multiply() {
    assert_eq!(
        names("node[08-11]"),
        ["node08", "node09", "node10", "node11"]
    );
    assert_eq!(names("node[8-11]"), ["node8", "node9", "node10", "node11"]);
    assert_eq!(names("n[1,3,5-7]"), ["n1", "n3", "n5", "n6", "n7"]);
    assert_eq!(
        names("r[1-2]n[0-1].lan"),
        ["r1n0.lan", "r1n1.lan", "r2n0.lan", "r2n1.lan"]
    );
    assert_eq!(
        names("10.0.0.[9-11]"),
        ["10.0.0.9", "10.0.0.10", "10.0.0.11"]
    );
    assert_eq!(names("[1-2]u"), ["1u", "2u"]);
    assert_eq!(names("n[0]"), ["n0"]);
}

#[test]
fn what_is_wrong_is_said() {
    assert_eq!(
        fault("node07"),
        "expected [user@]host:/path, with an absolute path"
    );
    assert_eq!(
        fault("node07:srv"),
        "expected [user@]host:/path, with an absolute path"
    );
    assert_eq!(fault(":/srv"), "the host name is missing");
    assert_eq!(fault("@h:/srv"), "the host name is missing");
    assert_eq!(
        fault("-oProxyCommand=x:/srv"),
        "`-oProxyCommand=x` cannot begin with `-`"
    );
    assert_eq!(fault("-l@h:/srv"), "`-l` cannot begin with `-`");
    assert!(fault("a;reboot:/x").starts_with("`a;reboot` has `;` in it;"));
    assert!(fault("a b:/x").starts_with("`a b` has white space in it;"));
    assert!(fault("a$(id):/x").contains("`$`"));
    assert!(!fault("a\u{1b}[2J:/x").contains('\u{1b}'));
    assert!(fault("fe80::1:/x").ends_with("write an IPv6 address in brackets, as [::1]"));
    assert_eq!(fault("[fe80::x]:/x"), "`fe80::x` is not an IPv6 address");
    assert_eq!(fault("h:0:/x"), "`0` is not a port (1 to 65535)");
    assert_eq!(fault("h:+22:/x"), "`+22` is not a port (1 to 65535)");
    assert_eq!(fault("n[1-3:/x"), "a bracket is not closed");
    assert_eq!(fault("n[3-1]:/x"), "`[3-1]` runs backwards");
    assert!(fault("n[01-1]:/x").starts_with("`[01-1]` mixes widths"));
    assert!(fault("n[]:/x").starts_with("`[]` is not a range"));
    assert!(fault("n[a-c]:/x").starts_with("`[a-c]` is not a range"));
    assert!(fault(&format!("{}:/x", "n".repeat(256))).starts_with("a host name is at most"));
}

#[test]
fn the_number_of_hosts_is_bounded_from_both_sides() {
    assert_eq!(names("n[1-10000]").len(), HOSTS_MAX);
    assert_eq!(names("n[1-100]x[1-100]").len(), HOSTS_MAX);
    for over in [
        "n[1-10001]:/x",
        "n[1-101]x[1-100]:/x",
        "n[0-999999999]:/x",
        "n[1-9999,1-2]:/x",
    ] {
        assert_eq!(
            destination(OsStr::new(over), true).unwrap_err(),
            HostFault::TooMany,
            "{over}"
        );
    }
    let twice = ["a[1-9999]:/x", "b[1-2]:/x"];
    assert!(matches!(collect(&twice), Err(HostsError::TooMany)));
}

#[test]
fn the_same_place_twice_is_refused_and_two_paths_are_told_apart() {
    for twin in [
        ["a:/x", "a:/x/"],
        ["a:/x", "root@A:/x"],
        ["n[1-3]:/x", "n2://x"],
    ] {
        assert!(
            matches!(collect(&twin), Err(HostsError::Twice(_))),
            "{twin:?}"
        );
    }
    let both = collect(&["a:/x", "a:/y", "b:/x"]).unwrap();
    let names: Vec<_> = both.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["a:/x", "a:/y", "b"]);
    assert!(matches!(collect(&[]), Err(HostsError::Nobody)));
}

#[test]
fn a_hosts_file_has_comments_clusters_and_numbered_faults() {
    let text = b"# the cluster\nnode[1-2] cluster=a # first\r\n\n  ops@far:2222\tcluster=b\nlone\n";
    let found = file::parse(text, Path::new("/x")).unwrap();
    let seen: Vec<_> = found
        .iter()
        .map(|one| (one.name.as_str(), one.cluster.as_deref()))
        .collect();
    assert_eq!(
        seen,
        [
            ("node1", Some("a")),
            ("node2", Some("a")),
            ("ops@far:2222", Some("b")),
            ("lone", None)
        ]
    );
    let bad = |text: &[u8]| file::parse(text, Path::new("/x")).unwrap_err();
    assert_eq!(bad(b"a\nb:/srv\n"), (2, HostFault::PathInFile));
    assert_eq!(
        bad(b"a\n\nb cluser=x\n"),
        (3, HostFault::Word("cluser=x".into()))
    );
    assert_eq!(
        bad(b"a cluster=x cluster=y"),
        (1, HostFault::Word("cluster=y".into()))
    );
    assert_eq!(bad(b"a cluster="), (1, HostFault::Word("cluster=".into())));
    assert_eq!(bad(b"a\n\xff\n"), (2, HostFault::NotText));
    assert_eq!(bad(b"-v\n"), (1, HostFault::Dash("-v".into())));
}

#[test]
fn a_hosts_file_is_there_and_names_somebody() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("hosts.txt");
    std::fs::write(&file, "a\nb\n").unwrap();
    let read = |file: &Path, path: &str| {
        let mut all = Destinations::default();
        all.add_file(file, Path::new(path))?;
        all.finish()
    };
    let found = read(&file, "/srv/x").unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].path, Path::new("/srv/x"));
    assert!(
        read(&file, "srv")
            .unwrap_err()
            .to_string()
            .ends_with("with an absolute path")
    );
    let missing = read(Path::new("/nonexistent/hosts"), "/x").unwrap_err();
    assert!(
        missing
            .to_string()
            .starts_with("/nonexistent/hosts: cannot read the hosts file")
    );
    std::fs::write(&file, "# nobody\n").unwrap();
    assert!(matches!(read(&file, "/x"), Err(HostsError::Empty { .. })));
}

proptest! {
    #[test]
    fn a_range_is_what_counting_gives(low in 0_u32..5000, span in 0_u32..300, width in 1_usize..7) {
        let high = low + span;
        let (from, to) = (format!("{low:0width$}"), format!("{high:0width$}"));
        // Unpadded ends may differ in length, padded ones may not.
        prop_assume!(from.len() == to.len() || !from.starts_with('0'));
        let padded = from.len() > 1 && from.starts_with('0');
        let want: Vec<_> = (low..=high)
            .map(|n| if padded { format!("n{n:0width$}x") } else { format!("n{n}x") })
            .collect();
        prop_assert_eq!(range::expand(&format!("n[{from}-{to}]x"), HOSTS_MAX).unwrap(), want);
    }

    #[test]
    fn whatever_is_typed_gives_harmless_names_or_an_error(text in "\\PC{0,40}|[a-c@:/\\[\\]0-9,-]{0,30}") {
        if let Ok(found) = destination(OsStr::new(&text), true) {
            prop_assert!(found.len() <= HOSTS_MAX);
            for one in found {
                prop_assert!(one.path.is_absolute());
                for name in std::iter::once(&one.host).chain(&one.user) {
                    prop_assert!(!name.is_empty() && !name.starts_with('-'));
                    prop_assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "._-:%@+".contains(c)));
                }
            }
        }
    }

    #[test]
    fn hostile_hosts_files_never_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = file::parse(&text, Path::new("/x"));
    }
}

#[test]
fn the_path_may_name_the_host() {
    let found = collect(&["ops@n[1-2].x:/srv/{host}/a-{host}"]).unwrap();
    let paths: Vec<_> = found.iter().map(|one| one.path.to_str().unwrap()).collect();
    assert_eq!(paths, ["/srv/n1.x/a-n1.x", "/srv/n2.x/a-n2.x"]);
}

#[test]
fn other_names_in_braces_are_refused_and_other_braces_are_text() {
    for (path, name) in [
        ("/srv/{foo}", "foo"),
        ("/{host}/{HOST}/x", "HOST"),
        ("/{{{a-b}", "a-b"),
    ] {
        let error = collect(&[&format!("n:{path}")]).unwrap_err().to_string();
        let expected = format!(
            "destination `n:{path}`: `{{{name}}}` is not known; known is `{{host}}`, and \
             `{{{{{name}}}}}` means the text `{{{name}}}`"
        );
        assert_eq!(error, expected);
    }
    for (path, expected) in [
        ("/srv/{{foo}}/{{host}}", "/srv/{foo}/{host}"),
        ("/{}/{a,b}/{ host }/}{/{", "/{}/{a,b}/{ host }/}{/{"),
        ("/{{host}/{host}}", "/{n/n}"),
        ("/{a/{host}", "/{a/n"),
    ] {
        let found = collect(&[&format!("n:{path}")]).unwrap();
        assert_eq!(found[0].path.to_str().unwrap(), expected, "{path}");
    }
}

#[test]
fn hosts_that_are_measured_need_no_path() {
    let mut all = Destinations::default();
    for text in ["a", "b:7:/x", "[::1]:9"] {
        all.add_hosts(OsStr::new(text)).unwrap();
    }
    let found = all.finish().unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|one| (one.host.as_str(), one.port))
        .collect();
    assert_eq!(found, [("a", None), ("b", Some(7)), ("::1", Some(9))]);
}

#[test]
fn a_line_may_say_which_node_a_host_is() {
    let one = file::parse(b"x.site node=b0 cluster=b", Path::new("/x")).unwrap();
    assert_eq!(one[0].node.as_deref(), Some("b0"));
    assert_eq!(one[0].cluster.as_deref(), Some("b"));
    let (line, fault) = file::parse(b"\nx[1-2] node=b0", Path::new("/x")).unwrap_err();
    assert_eq!((line, fault), (2, HostFault::ManyNodes("b0".to_owned())));
}
