//! Contract files that `iofair serve` refuses.

use super::*;

/// Back ends and volumes.
pub(super) const BACKS: &[Case] = &[
    (
        "a-pipe",
        &[DIRECTORY, LISTEN, VOLUME],
        |s| {
            s.directory("pool", 0o777);
            let made = Command::new("mkfifo").args(["-m", "666"]).arg(s.at("pool/v.img")).status();
            assert!(made.unwrap().success());
        },
        "neither a regular file nor a block device",
    ),
    (
        "no-directory",
        &["[drive]\nback = 'file:DIR/no/pool.img'\n", LISTEN, VOLUME],
        NOTHING,
        "No such file",
    ),
    (
        "no-parent",
        &["[drive]\nback = 'directory:DIR/no/pool'\n", LISTEN, VOLUME],
        NOTHING,
        "No such file",
    ),
    ("no-pool", &[POOL, LISTEN, VOLUME], |s| s.write("pool.img", "text"), "there is no pool on it"),
    (
        "not-a-file",
        &[POOL, LISTEN, VOLUME],
        |s| s.directory("pool.img", 0o777),
        "neither a regular file nor a block device; a directory is served with `back = \"directory:",
    ),
    (
        "other-pool",
        &[POOL, "pool = '5b0e5a0c-6f0e-4a4e-9d57-4c3f9a0c1d2e'\n", LISTEN, VOLUME],
        NOTHING,
        "is not there: is its file system mounted?",
    ),
    (
        "read-only-pool",
        &[POOL, LISTEN, VOLUME],
        |s| {
            s.write("pool.img", "");
            fs::set_permissions(s.at("pool.img"), Permissions::from_mode(0o444)).unwrap();
        },
        "Permission denied",
    ),
    (
        "shorter",
        &[DIRECTORY, LISTEN, VOLUME],
        |s| {
            s.directory("pool", 0o777);
            s.write("pool/v.img", "");
            File::options().write(true).open(s.at("pool/v.img")).unwrap().set_len(2 << 20).unwrap();
        },
        "would cut data off",
    ),
    (
        "locked",
        &[DIRECTORY, LISTEN, VOLUME],
        |s| {
            s.directory("pool", 0o777);
            s.write("pool/v.img", "");
            // Until the scene goes, and with it the command's standard input.
            let mut flock = Command::new("flock");
            flock.arg(s.at("pool/v.img")).args(["sh", "-c", "echo; exec cat"]);
            let mut child = flock.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            s.held.push(Box::new(child));
        },
        "another server uses it",
    ),
    (
        "read-only-image",
        &[DIRECTORY, LISTEN, VOLUME],
        |s| {
            s.directory("pool", 0o777);
            s.write("pool/v.img", "");
            fs::set_permissions(s.at("pool/v.img"), Permissions::from_mode(0o444)).unwrap();
        },
        "Permission denied",
    ),
    (
        "read-only-directory",
        &[DIRECTORY, LISTEN, VOLUME],
        |s| s.directory("pool", 0o555),
        "Permission denied",
    ),
    (
        "closed-directory",
        &["[drive]\nback = 'directory:DIR/in/pool'\n", LISTEN, VOLUME],
        |s| s.directory("in", 0o555),
        "Permission denied",
    ),
    (
        "owners",
        &[DIRECTORY, LISTEN, VOLUME],
        |s| {
            s.directory("pool", 0o777);
            s.write("pool/.iofair.json", "{");
        },
        "it cannot be understood",
    ),
    (
        "too-large",
        &[
            DIRECTORY,
            LISTEN,
            "[[group]]\nname = 'g'\n[[volume]]\nname = 'v'\ngroup = 'g'\nsize = '65TiB'\n",
        ],
        NOTHING,
        "a volume has at most",
    ),
    (
        "unknown-drive",
        &["[drive]\nback = 'emulated:no-such-drive'\n", LISTEN, VOLUME],
        NOTHING,
        "no-such-drive",
    ),
    (
        "emulated-nowhere",
        &["[drive]\nback = 'emulated:plextor-px256m5s@DIR/no/store'\n", LISTEN, VOLUME],
        NOTHING,
        "No such file",
    ),
    (
        "emulated-layout",
        &[EMULATED, LISTEN, VOLUME],
        |s| s.write("store.volumes", "0 0\n"),
        "not \"first-byte",
    ),
    (
        "emulated-small",
        &[
            "[drive]\nback = 'emulated:plextor-px256m5s'\n",
            LISTEN,
            "[[group]]\nname = 'g'\n[[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1TiB'\n",
        ],
        NOTHING,
        "but the drive has",
    ),
    ("memory", &["[drive]\nback = 'memory:200TiB'\n", LISTEN, VOLUME], NOTHING, "bytes of memory"),
    (
        "path",
        &[
            DIRECTORY,
            "paths = ['DIR']\n",
            LISTEN,
            "[[group]]\nname = 'g'\n[[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1MiB'\npath = 'DIR/no/v.img'\n",
        ],
        NOTHING,
        "No such file",
    ),
    (
        "path-outside",
        &[
            DIRECTORY,
            "paths = ['DIR/pool']\n",
            LISTEN,
            "[[group]]\nname = 'g'\n[[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1MiB'\npath = 'DIR/v.img'\n",
        ],
        NOTHING,
        "is below no directory in",
    ),
    (
        "minimum",
        &[
            "[drive]\nback = 'emulated:plextor-px256m5s'\n",
            LISTEN,
            "[[group]]\nname = 'g'\nmin = '30MB/s'\n",
        ],
        NOTHING,
        "cannot be kept",
    ),
    (
        "twins",
        &[
            DIRECTORY,
            "paths = ['DIR']\n",
            LISTEN,
            "[[group]]\nname = 'g'\n[[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1MiB'\npath = 'DIR/one'\n[[volume]]\nname = 'w'\ngroup = 'g'\nsize = '1MiB'\npath = 'DIR/two'\n",
        ],
        |s| {
            s.write("one", "");
            symlink(s.at("one"), s.at("two")).unwrap();
        },
        "is volume \"v\" already",
    ),
];

/// Volumes that are one file, or none.
pub(super) const PATHS: &[Case] = &[
    (
        "same-path",
        &[
            DIRECTORY,
            "paths = ['DIR']\n",
            LISTEN,
            "[[group]]\nname = 'g'\n[[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1MiB'\npath = 'DIR/one'\n[[volume]]\nname = 'w'\ngroup = 'g'\nsize = '1MiB'\npath = 'DIR/.//one'\n",
        ],
        NOTHING,
        "another volume has this path",
    ),
    (
        "same-path-over-a-link",
        &[
            DIRECTORY,
            "paths = ['DIR']\n",
            LISTEN,
            "[[group]]\nname = 'g'\n[[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1MiB'\npath = 'DIR/in/one'\n[[volume]]\nname = 'w'\ngroup = 'g'\nsize = '1MiB'\npath = 'DIR/link/one'\n",
        ],
        |s| {
            s.directory("in", 0o777);
            symlink(s.at("in"), s.at("link")).unwrap();
        },
        "is volume \"v\" already",
    ),
    (
        "path-of-a-directory",
        &[
            DIRECTORY,
            "paths = ['DIR']\n",
            LISTEN,
            "[[group]]\nname = 'g'\n[[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1MiB'\npath = 'DIR/one/'\n",
        ],
        NOTHING,
        "the path of a directory",
    ),
    (
        "mount-over-the-pool",
        &[DIRECTORY, LISTEN, "[fuse]\nmount = 'DIR/pool'\n", VOLUME],
        NOTHING,
        "it would hide",
    ),
];

/// Sockets, and files of the server.
pub(super) const SOCKETS: &[Case] = &[
    (
        "socket-nowhere",
        &[DRIVE, "[listen]\nunix = 'DIR/no/nbd.sock'\n", VOLUME],
        NOTHING,
        "No such file",
    ),
    (
        "socket-below-a-file",
        &[DRIVE, "[listen]\nunix = 'DIR/file/nbd.sock'\n", VOLUME],
        |s| s.write("file", ""),
        "Not a directory",
    ),
    (
        "socket-is-a-file",
        &[DRIVE, LISTEN, VOLUME],
        |s| s.write("nbd.sock", ""),
        "Address already in use",
    ),
    (
        "socket-served",
        &[DRIVE, LISTEN, VOLUME],
        |s| {
            let listener = UnixListener::bind(s.at("nbd.sock")).unwrap();
            fs::set_permissions(s.at("nbd.sock"), Permissions::from_mode(0o777)).unwrap();
            s.held.push(Box::new(listener));
        },
        "Address already in use",
    ),
    (
        "socket-closed-directory",
        &[DRIVE, "[listen]\nunix = 'DIR/in/nbd.sock'\n", VOLUME],
        |s| s.directory("in", 0o555),
        "Permission denied",
    ),
    (
        "socket-long",
        &[
            DRIVE,
            "[listen]\nunix = 'DIR/0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789'\n",
            VOLUME,
        ],
        NOTHING,
        "at most 107 bytes",
    ),
    (
        "socket-group",
        &[DRIVE, LISTEN, "group = 'no-such-group'\n", VOLUME],
        NOTHING,
        "this host has no group",
    ),
    (
        "socket-foreign-group",
        &[DRIVE, LISTEN, "group = '1'\n", VOLUME],
        NOTHING,
        "is the server's user in it?",
    ),
    (
        "tcp-elsewhere",
        &[DRIVE, LISTEN, "tcp = '192.0.2.1:10809'\ninsecure = true\n", VOLUME],
        NOTHING,
        "Cannot assign requested address",
    ),
    ("no-certificate", &[DRIVE, LISTEN, TLS, VOLUME], NOTHING, "No such file"),
    ("no-key", &[DRIVE, LISTEN, TLS, VOLUME], |s| s.write("key", "text"), "no private key in it"),
    (
        "control-nowhere",
        &[DRIVE, LISTEN, "[control]\nunix = 'DIR/no/control.sock'\n", VOLUME],
        NOTHING,
        "No such file",
    ),
    (
        "control-file",
        &[DRIVE, LISTEN, "[control]\nunix = 'DIR/control.sock'\n", VOLUME],
        |s| s.write("control.sock", ""),
        "Address already in use",
    ),
    (
        "control-admin",
        &[
            DRIVE,
            LISTEN,
            "[control]\nunix = 'DIR/control.sock'\nadmins = ['user:no-such-user']\n",
            VOLUME,
        ],
        NOTHING,
        "no-such-user",
    ),
    (
        "audit-nowhere",
        &[DRIVE, LISTEN, "[control]\nunix = 'DIR/control.sock'\naudit = 'DIR/no/audit'\n", VOLUME],
        NOTHING,
        "no/audit: No such file",
    ),
    (
        "audit-directory",
        &[DRIVE, LISTEN, "[control]\nunix = 'DIR/control.sock'\naudit = 'DIR/audit'\n", VOLUME],
        |s| s.directory("audit", 0o777),
        "the audit log",
    ),
    (
        "audit-link",
        &[DRIVE, LISTEN, "[control]\nunix = 'DIR/control.sock'\naudit = 'DIR/audit'\n", VOLUME],
        |s| symlink("other", s.at("audit")).unwrap(),
        "the audit log",
    ),
    (
        "metrics-elsewhere",
        &[DRIVE, LISTEN, "[metrics]\ntcp = '192.0.2.1:9720'\n", VOLUME],
        NOTHING,
        "Cannot assign requested address",
    ),
    (
        "vhost-nowhere",
        &[DRIVE, LISTEN, VOLUME, "vhost = 'DIR/no/v.sock'\n"],
        NOTHING,
        "No such file",
    ),
    (
        "vhost-file",
        &[DRIVE, LISTEN, VOLUME, "vhost = 'DIR/v.sock'\n"],
        |s| s.write("v.sock", ""),
        "Address already in use, by a file that is not a socket",
    ),
    (
        "vhost-same-socket",
        &[DRIVE, LISTEN, VOLUME, "vhost = 'DIR/./nbd.sock'\n"],
        NOTHING,
        "one path a socket",
    ),
    (
        "vhost-same-socket-by-a-link",
        &[DRIVE, LISTEN, VOLUME, "vhost = 'DIR/link/nbd.sock'\n"],
        |s| symlink(".", s.at("link")).unwrap(),
        "Address already in use",
    ),
    ("ublk", &[DRIVE, LISTEN, VOLUME, "ublk = true\n"], NOTHING, "block devices need"),
    (
        "fuse-file",
        &[DRIVE, LISTEN, "[fuse]\nmount = 'DIR/file/mount'\n", VOLUME],
        |s| s.write("file", ""),
        "mounting",
    ),
    (
        "fuse-closed-directory",
        &[DRIVE, LISTEN, "[fuse]\nmount = 'DIR/in/mount'\n", VOLUME],
        |s| s.directory("in", 0o555),
        "Permission denied",
    ),
    ("no-listener", &[DRIVE, VOLUME], NOTHING, "no client could connect"),
    (
        "unenforced",
        &[
            "[drive]\nback = 'memory:64MiB'\nstack = 'none-none'\n",
            LISTEN,
            "[[group]]\nname = 'g'\nmax = '5MB/s'\n",
        ],
        NOTHING,
        "does not enforce",
    ),
];
