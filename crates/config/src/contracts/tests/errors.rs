//! All errors of a file: which are told together, which follow from others and are not, and how much is told of many.

use super::*;

/// Goal: one look at a file shows what is wrong with all of its groups, or volumes. Method: files with several errors of each.
#[test]
fn all_groups_and_volumes_are_checked() {
    let drive = "[drive]\nback = \"memory:1GiB\"\n[listen]\nunix = \"s\"\n";
    let groups = "[[group]]\nname = \"a\"\nmin = \"0B/s\"\n[[group]]\nname = \"a b\"\n[[group]]\nname = \"c\"\n[[group]]\nname = \"c\"\n";
    let volume = |name: &str, more: &str| {
        format!("[[volume]]\nname = \"{name}\"\nsize = \"1MiB\"\n{more}\n")
    };
    let volumes = volume("v", "group = \"g\"\nublk = 7")
        + &volume("w", "group = \"h\"")
        + &volume("x", "group = \"g\"\nublk = 7")
        + &volume("v", "group = \"g\"");
    for (text, parts) in [
        (
            groups.to_owned(),
            ["a guarantee of nothing", "\"a b\" is not a valid", "\"c\" exists already"],
        ),
        (
            format!("[[group]]\nname = \"g\"\n{volumes}"),
            ["no group \"h\"", "\"v\" is this block device", "volume \"v\" exists already"],
        ),
    ] {
        let error =
            parse("c.toml", &format!("{drive}{text}")).expect_err("three errors").to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        assert_eq!(error.matches("c.toml:").count(), 3, "{error}");
    }
}

/// Goal: one look at a file shows all that is wrong with it, in the order of its lines, and nothing that follows from something else.
/// Method: wrong keys in every kind of table; then wrong values; a certificate where the table that would ask for it is wrong.
#[test]
fn all_errors_of_a_file_are_told() {
    let keys = "[drive]\nback = 'memory:1GiB'\nstak = 'promise'\ntimeout = 5\n[listen]\nunix = 's'\n\
        [[group]]\nname = 'g'\nweigth = 3\nmin = '10MB'\n[[group]]\nname = 4\nmax = { reed = '1MB/s' }\n\
        [[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1MX'\n[[volume]]\ngroup = 'g'\nsize = '1MiB'\n";
    let values = "[drive]\nback = 'nope:1GiB'\nstack = 'promiss'\ntimeout = '0s'\ndrain = '0s'\n\
        [listen]\nunix = ''\ntcp = '1'\nconnections = 0\n[control]\nunix = ''\naudit = ''\n\
        [[group]]\nname = 'g'\nmin = '0B/s'\nconnections = 0\nclients = ['alice', 'uid:x']\n[[group]]\nname = 'h h'\n\
        [[volume]]\nname = 'v/'\ngroup = 'x'\nsize = '7B'\nublk = -1\n[fuse]\nmount = ''\n";
    for (text, lines) in [
        (keys, &[3, 4, 9, 10, 12, 13, 17, 18][..]),
        (values, &[2, 3, 4, 5, 7, 8, 9, 11, 12, 15, 16, 17, 19, 21, 22, 23, 24, 26]),
        ("[drive]\nback =", &[2]),
        ("x = 1\n", &[1]),
    ] {
        let error = parse("c.toml", text).expect_err("errors").to_string();
        let told = error.split("c.toml:").skip(1);
        let told: Vec<u32> =
            told.map(|one| one.split(':').next().unwrap().parse().unwrap()).collect();
        assert_eq!(told, lines, "{error}");
    }
    let many: String = (0..100).map(|n| format!("[[group]]\nname = ' {n}'\n")).collect();
    let error = parse("c.toml", &format!("[drive]\nback = 'memory:1GiB'\n{many}"));
    let error = error.expect_err("errors").to_string();
    assert!(error.ends_with("\nc.toml: and more errors"), "{error}");
    assert_eq!(error.matches("is not a valid group name").count(), 32);
}

/// Goal: what is wrong in a large file is found in one pass over it, and errors name some of many names. Method: more groups than
/// anybody has, with the longest names, which are right, wrong and paths of their own; volumes of groups that are not there. What
/// compares all of them with all others takes hours.
#[test]
fn large_files_are_checked_in_one_pass() {
    let group = |name: &str| format!("[[group]]\nname = '{name}'\n");
    let long = |at: usize| format!("{at:0255}");
    let right: String = (0..4_000).map(|at| group(&long(at))).collect();
    let volume = |at: usize| {
        format!("[[volume]]\nname = 'v{at}'\nsize = '1MiB'\ngroup = 'x{}'\n", &long(at)[1..])
    };
    let volumes: String = (0..1000).map(volume).collect();
    let drive = "[drive]\nback = 'memory:1GiB'\n";
    let error = parse("c.toml", &format!("{drive}{right}{volumes}")).expect_err("no such groups");
    let allowed = error.allowed.as_deref().unwrap_or_default();
    assert!(allowed.ends_with("and 3984 more"), "{allowed}");
    assert_eq!(error.nearest, Some(long(0)));
    let deep = group(&"a/".repeat(200_000));
    let error = parse("c.toml", &format!("{drive}{deep}")).expect_err("too long");
    assert!(error.message.ends_with("is not a valid group name"));
}

/// Goal: a group whose name is wrong is offered to no volume, and its own volumes have no error. Method: one of each.
#[test]
fn wrong_names_are_not_offered() {
    let text = "[drive]\nback = 'memory:1GiB'\n[[group]]\nname = 'a b'\n[[group]]\nname = 'c'\n\
        [[volume]]\nname = 'v'\nsize = '1MiB'\ngroup = 'a b'\n\
        [[volume]]\nname = 'w'\nsize = '1MiB'\ngroup = 'd'\n";
    let error = parse("c.toml", text).expect_err("two errors");
    let next = error.next.as_deref().expect("the second one");
    assert_eq!((error.line(), next.line(), &next.next), (4, 14, &None), "{error}");
    assert_eq!(next.allowed.as_deref(), Some("c"));
}

/// Goal: of several errors of one kind, all are told. Method: two or more of each kind in one list, one table, or one key.
#[test]
fn all_errors_of_a_list_are_told() {
    let drive = "[drive]\nback = 'memory:1GiB'\n";
    let pool = "[drive]\nback = 'directory:p'\n";
    let group = "[[group]]\nname = 'g'\n";
    let volume = |name: &str, more: &str| {
        format!("[[volume]]\nname = '{name}'\ngroup = 'g'\nsize = '1MiB'\n{more}\n")
    };
    let volumes = |more: [&str; 3]| {
        ["u", "v", "w"].iter().zip(more).map(|(name, more)| volume(name, more)).collect::<String>()
    };
    for (text, count) in [
        ("[drive]\n[[group]]\n[[volume]]\n".to_owned(), 5),
        ("[[group]]\nname = 'g'\nmin = 4\n".to_owned(), 2),
        (format!("{drive}[listen.tls]\n[control.tls]\n"), 5),
        (
            format!(
                "{drive}policy.promise.a = 1\npolicy.promise.b = 2\npolicy.x.c = 3\npolicy.y.d = 4\n"
            ),
            4,
        ),
        (format!("{pool}paths = ['/', 'a', '/b/../c']\n"), 3),
        (
            format!(
                "{pool}paths = ['/a']\n{group}{}",
                volumes(["path = '/b'", "path = ''", "path = '/a/b/'"])
            ),
            3,
        ),
        (
            format!(
                "{pool}paths = ['/a']\n{group}{}",
                volumes(["path = '/a/b'", "path = '/a//b'", "path = '/a/./b'"])
            ),
            2,
        ),
        (format!("{drive}{group}{}", volumes(["vhost = 's'", "vhost = './s'", "vhost = 's'"])), 2),
        (
            format!(
                "{drive}reaches = {{ read = '0B/s', write = '0B/s', iops = 0, latency = '0s' }}\n"
            ),
            5,
        ),
        (format!("{drive}reaches = {{ iops = 7 }}\n"), 3),
        (
            format!(
                "{drive}{group}min = '9MB/s'\nmin_iops = 9\nmax = {{ read = '1MB/s', read_iops = 1 }}\n"
            ),
            2,
        ),
        (format!("{drive}{group}clients = ['', 'uid:x', 'a']\n"), 3),
        (format!("{drive}[control]\nadmins = ['a', 'uid:x']\n"), 2),
    ] {
        let error = parse("c.toml", &text).expect_err("errors").to_string();
        assert_eq!(error.matches("c.toml:").count(), count, "{text}{error}");
    }
}

/// Goal: nothing is told that follows from another error. Method: lists in place of tables, with and without what a table would have; an
/// address that is none, where one would need encryption.
#[test]
fn no_error_follows_from_another() {
    let drive = "[drive]\nback = 'memory:1GiB'\n";
    let group = "[[group]]\nname = 'g'\n";
    for text in [
        "[[drive]]\nback = 'memory:1GiB'\nstack = 'promise'\n".to_owned(),
        "[[drive]]\n[[drive]]\n".to_owned(),
        "drive = ['memory:1GiB']\n".to_owned(),
        "drive = 'memory:1GiB'\n".to_owned(),
        format!("{drive}[[listen]]\nunix = 's'\n"),
        format!("{drive}[fuse]\nmount = ['mnt']\n"),
        format!("fuse = ['mnt']\n{drive}"),
        format!("fuse = []\n{drive}"),
        format!("{drive}reaches = ['1MB/s']\n"),
        format!("{drive}{group}[[group.max]]\nread = '1MB/s'\n"),
        format!("{drive}{group}max = []\n"),
        format!("{drive}group = [['g']]\n"),
        format!("volume = [['v', 'g', '1MiB']]\n{drive}{group}"),
        format!("{drive}[listen]\ntcp = 'nowhere'\n"),
        format!("{drive}[control]\ntcp = 'nowhere'\n"),
        format!("{drive}[listen]\ntls = ['c', 'k']\n"),
    ] {
        let error = parse("c.toml", &text).expect_err(&text).to_string();
        assert_eq!(error.matches("c.toml:").count(), 1, "{text}{error}");
    }
}
