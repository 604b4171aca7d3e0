//! TLS and who may open what: every refusal that there should be, and none other; and clients that we did
//! not write.
#![allow(clippy::unwrap_used)]

mod rig;

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use iofair_serve::{ServeError, Server};
use rig::pki::{self, Authority, GOOD, Pki, Secured, config, secure};
use rig::wire::{OPTION_EXPORT_NAME, OPTION_STARTTLS, Options, REPLY_ACK, Stream, Wire, Workload};
use rig::{Directory, begin, parse, run};

/// Refusals as the protocol numbers them.
const ERR_UNSUP: u32 = 0x8000_0001;
const ERR_POLICY: u32 = 0x8000_0002;
const ERR_INVALID: u32 = 0x8000_0003;
const ERR_TLS_REQD: u32 = 0x8000_0005;
const ERR_UNKNOWN: u32 = 0x8000_0006;

/// A server with TLS, two tenants, and a volume for the user who runs the test.
struct Scene {
    server: Server,
    directory: Directory,
    pki: Pki,
}

fn contracts(directory: &Directory, required: &str) -> String {
    let path = |name: &str| directory.path(name);
    // SAFETY: only reads a number of the process.
    #[allow(unsafe_code)]
    let user = unsafe { libc::getuid() };
    let group =
        |name: &str, clients: &str| format!("[[group]]\nname = '{name}'\nclients = [{clients}]\n");
    let volume = |name: &str, group: &str, more: &str| {
        format!("[[volume]]\nname = '{name}'\ngroup = '{group}'\nsize = '64MiB'\n{more}\n")
    };
    let head = format!(
        "[drive]\nback = 'memory:512MiB'\nstack = 'none-none'\n\
         [listen]\nunix = '{}'\ntcp = '127.0.0.1:0'\ninsecure = {}\n\
         [listen.tls]\ncertificate = '{}'\nkey = '{}'\nclients = '{}'\nrequired = {required}\n",
        path("socket"),
        required == "false",
        path("server.pem"),
        path("server-key.pem"),
        path("ca.pem"),
    );
    head + &group("tenants/alice", "'alice.example'")
        + &group("tenants/alice/photos", "")
        + &group("tenants/bob", "'bob'")
        + &group("local", &format!("'uid:{user}'"))
        + &volume("v", "tenants/alice", "")
        + &volume("photos", "tenants/alice/photos", "listen = 'tcp'\nconnections = 1")
        + &volume("bobs", "tenants/bob", "")
        + &volume("locals", "local", "")
        + &volume("hidden", "tenants/bob", "listen = 'none'")
}

impl Scene {
    fn start(required: &str) -> Self {
        let directory = Directory::new();
        let pki = Pki::write(&directory);
        let server = Server::start(parse(&contracts(&directory, required)));
        let server = server.unwrap_or_else(|error| panic!("{error}"));
        Self { server, directory, pki }
    }
    fn unix(&self) -> Box<dyn Stream> {
        pki::unix(&self.directory.path("socket"))
    }
    fn tcp(&self) -> Box<dyn Stream> {
        pki::tcp(self.server.tcp().unwrap())
    }
    fn secure(&self, stream: Box<dyn Stream>, client: &str) -> io::Result<Secured> {
        secure(stream, config(&self.directory, client))
    }
    /// What the server says to a client whose certificate it does not take.
    fn refusal(&self, client: &str) -> String {
        let tried = self.secure(self.tcp(), client).and_then(|mut options| options.list());
        tried.expect_err(client).to_string()
    }
}

/// Goal: a certificate opens what its groups say and shows nothing else, over both kinds of sockets, and
/// bytes are right under load. Method: two tenants list and open; a workload that knows what must be
/// stored runs over TLS.
#[test]
fn certificates_open_what_their_groups_say() {
    let scene = Scene::start("true");
    let mut alice = scene.secure(scene.tcp(), "alice").unwrap();
    assert_eq!(alice.list().unwrap(), ["v", "photos"]);
    for unseen in ["bobs", "locals", "hidden", "nothing", ""] {
        assert_eq!(alice.go(unseen).unwrap(), ERR_UNKNOWN, "{unseen}");
    }
    assert_eq!(alice.ask(OPTION_STARTTLS, &[]).unwrap(), ERR_INVALID, "it runs already");
    assert_eq!(alice.go("photos").unwrap(), REPLY_ACK);
    let mut second = scene.secure(scene.tcp(), "alice").unwrap();
    assert_eq!(second.go("photos").unwrap(), ERR_POLICY, "one connection, and it is taken");
    drop(alice);
    while scene.server.stats(false).unwrap().connections > 1 {
        std::thread::yield_now();
    }
    assert_eq!(second.go("photos").unwrap(), REPLY_ACK, "and free again");

    let mut alice = scene.secure(scene.unix(), "alice").unwrap();
    assert_eq!(alice.list().unwrap(), ["v", "locals"], "and the user's own, over this socket");
    let mut bob = scene.secure(scene.tcp(), "bob").unwrap();
    assert_eq!(bob.list().unwrap(), ["bobs"]);
    assert_eq!(bob.go("").unwrap(), REPLY_ACK, "the only one that he sees");
    for stream in [scene.unix(), scene.tcp()] {
        let mut options = scene.secure(stream, "alice").unwrap();
        options.send(OPTION_EXPORT_NAME, b"v").unwrap();
        let wire = Wire::chosen(Box::new(options.stream)).unwrap();
        let mut workload = Workload::over(wire, 0, 512);
        workload.run(3_000, 16);
        let data: Vec<u8> = (0..3_000_001u32).map(|i| ((i * 7) >> 3) as u8).collect();
        assert_eq!(workload.wire.write(0, 4 << 20, &data), 0);
        assert!(workload.wire.read(4 << 20, data.len() as u32).data == data);
        // Zeroes for the next one.
        assert_eq!(workload.wire.write(0, 0, &vec![0; 2 << 20]), 0);
    }
    scene.server.stop().unwrap();
}

/// Goal: certificates that should not be taken are not, and the client is told why. Method: one of each
/// kind; then a good one still comes in.
#[test]
fn bad_certificates_are_refused() {
    let scene = Scene::start("true");
    for (client, alert) in [
        ("nobody", "CertificateRequired"),
        ("expired", "CertificateExpired"),
        ("early", "CertificateExpired"),
        ("foreign", "UnknownCA"),
    ] {
        let told = scene.refusal(client);
        assert!(told.contains(alert), "{client}: {told}");
    }
    // Names that mean something else in the contracts are no names.
    for client in ["uid:0", "*"] {
        assert!(scene.secure(scene.tcp(), client).unwrap().list().unwrap().is_empty(), "{client}");
    }
    assert_eq!(scene.secure(scene.tcp(), "alice").unwrap().list().unwrap().len(), 2);
}

/// Goal: without TLS nothing is open where TLS is required, and only what it opens where it is not.
/// Method: plain clients on all kinds of servers and sockets.
#[test]
fn plain_clients_get_what_they_may() {
    let scene = Scene::start("true");
    for stream in [scene.unix(), scene.tcp()] {
        let mut plain = Options::greet(stream).unwrap();
        for name in ["v", "locals", "nothing", ""] {
            assert_eq!(plain.go(name).unwrap(), ERR_TLS_REQD);
        }
        plain.send(OPTION_EXPORT_NAME, b"v").unwrap();
        assert_eq!(plain.stream.read(&mut [0]).unwrap(), 0, "closed");
    }
    // What came before the answer could be anybody's: nobody knows who wrote it.
    let mut injected = Options::greet(scene.tcp()).unwrap();
    let both = [b"IHAVEOPT", &[0, 0, 0, 5, 0, 0, 0, 0][..], b"IHAVEOPT"].concat();
    injected.stream.write_all(&both).unwrap();
    let mut rest = Vec::new();
    // The server may have hung up with our bytes unread.
    let _ = injected.stream.read_to_end(&mut rest);
    assert!(rest.len() <= 20, "nothing follows: {rest:?}");

    let scene = Scene::start("'tcp'");
    let mut plain = Options::greet(scene.unix()).unwrap();
    assert_eq!(plain.list().unwrap(), ["locals"], "by the user's id");
    assert_eq!(plain.go("v").unwrap(), ERR_TLS_REQD, "with a certificate perhaps");
    assert_eq!(plain.go("locals").unwrap(), REPLY_ACK);
    assert_eq!(Options::greet(scene.tcp()).unwrap().go("v").unwrap(), ERR_TLS_REQD);
    assert_eq!(scene.secure(scene.unix(), "bob").unwrap().list().unwrap(), ["bobs", "locals"]);

    let scene = Scene::start("false");
    let mut plain = Options::greet(scene.tcp()).unwrap();
    assert!(plain.list().unwrap().is_empty());
    assert_eq!(plain.go("v").unwrap(), ERR_TLS_REQD);
    let rig = rig::Rig::start("memory:64MiB");
    let mut plain = Options::greet(pki::tcp(rig.server.tcp().unwrap())).unwrap();
    assert_eq!(plain.ask(OPTION_STARTTLS, &[]).unwrap(), ERR_UNSUP, "no TLS here");
    assert_eq!(plain.go("v").unwrap(), REPLY_ACK);
}

/// Goal: garbage instead of a handshake ends the connection and nothing else. Method: noise, a handshake
/// cut at every few bytes, records without end.
#[test]
fn broken_handshakes_do_not_affect_others() {
    let scene = Scene::start("true");
    let noise: Vec<u8> = (0..200_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    let endless = [22, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff].repeat(20_000);
    for bytes in [&noise[..], &endless, &[22, 3, 1, 0, 5][..]] {
        let mut options = Options::greet(scene.tcp()).unwrap();
        assert_eq!(options.ask(OPTION_STARTTLS, &[]).unwrap(), REPLY_ACK);
        // It may hang up in the middle of it.
        let _ = options.stream.write_all(bytes);
        if bytes.len() > 5 {
            let _ = options.stream.read_to_end(&mut Vec::new());
        }
    }
    while scene.server.stats(false).unwrap().connections > 0 {
        std::thread::yield_now();
    }
    assert_eq!(scene.secure(scene.tcp(), "bob").unwrap().list().unwrap(), ["bobs"]);
    scene.server.stop().unwrap();
}

/// Goal: new certificates count from a reload on, bad ones are refused with the file and the reason and
/// change nothing, and nobody is cut off. Method: exchange the authority under an open connection.
#[test]
fn certificates_are_read_again() {
    let mut scene = Scene::start("true");
    let mut before = scene.secure(scene.tcp(), "bob").unwrap();
    assert_eq!(before.go("bobs").unwrap(), REPLY_ACK);
    let text = contracts(&scene.directory, "true");
    let key = fs::read(scene.directory.path("server-key.pem")).unwrap();
    let other = Authority::new("new");
    let [certificate, new_key] = other.sign("server", &["localhost"], GOOD);
    let write = |name: &str, text: &str| fs::write(scene.directory.path(name), text).unwrap();
    let mut refused = |name: &str, told: &str| {
        let error = scene.server.reload(parse(&text)).expect_err(told);
        assert!(matches!(error, ServeError::Tls { .. }));
        let error = error.to_string();
        assert!(error.contains(name) && error.contains(told), "{error}");
    };
    write("server-key.pem", &new_key);
    refused("server-key.pem", "not the key of the certificate");
    write("server-key.pem", "nothing");
    refused("server-key.pem", "no private key in it");
    fs::remove_file(scene.directory.path("server-key.pem")).unwrap();
    refused("server-key.pem", "No such file");
    fs::write(scene.directory.path("server-key.pem"), key).unwrap();
    write("ca.pem", "");
    refused("ca.pem", "no certificate in it");
    write("ca.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    refused("ca.pem", "");
    scene.secure(scene.tcp(), "bob").unwrap().list().unwrap();

    write("ca.pem", &other.pem());
    write("server.pem", &certificate);
    write("server-key.pem", &new_key);
    scene.server.reload(parse(&text)).unwrap();
    assert!(scene.secure(scene.tcp(), "bob").is_err(), "he does not know this server");
    let [certificate, key] = other.sign("bob", &[], GOOD);
    write("bob/ca-cert.pem", &other.pem());
    write("bob/client-cert.pem", &certificate);
    write("bob/client-key.pem", &key);
    assert_eq!(scene.secure(scene.tcp(), "bob").unwrap().list().unwrap(), ["bobs"]);
    let mut wire = Wire::after_go(Box::new(before.stream));
    assert_eq!(wire.write(0, 0, &[7; 4096]), 0, "open connections stay");
    assert!(!scene.pki.authority.pem().is_empty());
}

/// A client that has opened a volume.
fn opened(scene: &Scene, stream: Box<dyn Stream>, client: &str, volume: &str) -> Wire {
    let mut options = scene.secure(stream, client).unwrap();
    assert_eq!(options.go(volume).unwrap(), REPLY_ACK);
    Wire::after_go(Box::new(options.stream))
}

/// Goal: revoking a client closes its connections, and no others. Method: a name taken out of `clients`, a volume
/// taken off TCP, and TLS that becomes compulsory, each under open connections that it concerns and others.
#[test]
fn revoked_clients_are_cut_off() {
    let mut scene = Scene::start("false");
    let text = contracts(&scene.directory, "false");
    let mut alice = opened(&scene, scene.tcp(), "alice", "v");
    let mut bob = opened(&scene, scene.tcp(), "bob", "bobs");
    let mut plain = Wire::connect_to(&scene.directory.path("socket"), "locals").unwrap();
    let mut local = opened(&scene, scene.unix(), "alice", "v");
    let mut half_open = Options::greet(scene.unix()).unwrap();
    let good = |wire: &mut Wire| assert_eq!(wire.write(0, 0, &[7; 4096]), 0);
    let ended = |wire: &mut Wire| {
        // What the server says last may be that it is gone.
        let _ = wire.send_read(0, 4096);
        assert!(wire.receive().is_err());
    };
    [&mut alice, &mut bob, &mut plain, &mut local].into_iter().for_each(good);

    let without_bob = text.replace("'bob'", "'robert'");
    scene.server.reload(parse(&without_bob)).unwrap();
    ended(&mut bob);
    [&mut alice, &mut plain, &mut local].into_iter().for_each(good);
    let volume = "name = 'v'\ngroup = 'tenants/alice'\nsize = '64MiB'\n";
    let off_tcp = without_bob.replace(volume, &format!("{volume}listen = 'unix'\n"));
    assert_ne!(off_tcp, without_bob);
    scene.server.reload(parse(&off_tcp)).unwrap();
    ended(&mut alice);
    [&mut plain, &mut local].into_iter().for_each(good);
    scene.server.reload(parse(&off_tcp.replace("required = false", "required = true"))).unwrap();
    ended(&mut plain);
    assert!(half_open.list().is_err(), "it was told that it needs no TLS");
    good(&mut local);
    while scene.server.stats(false).unwrap().connections > 1 {
        std::thread::yield_now();
    }
    scene.server.stop().unwrap();
}

/// Goal: a socket's file is for its owner alone unless the contracts say else, and each kind has its own mode and
/// group; a group that is not there is refused and leaves no socket. Method: the files of both kinds.
#[test]
fn sockets_have_tight_modes() {
    let directory = Directory::new();
    let (socket, disk) = (directory.path("socket"), directory.path("disk"));
    let us = fs::metadata(directory.path(".")).unwrap();
    // Who is not root can only give a file to a group of its own.
    let group = if us.uid() == 0 { 4711 } else { us.gid() };
    let text = |listen: &str, vhost: &str| {
        format!(
            "[drive]\nback = 'memory:1MiB'\nstack = 'none-none'\n[listen]\nunix = '{socket}'\n{listen}\n\
             [vhost]\n{vhost}\n[[group]]\nname = 'g'\n\
             [[volume]]\nname = 'v'\ngroup = 'g'\nsize = '1MiB'\nvhost = '{disk}'\n"
        )
    };
    let given = format!("group = '{group}'");
    let (tight, ours) = ((0o600, us.gid()), (0o660, us.gid()));
    for (listen, vhost, expected) in [
        ("", "", [tight, tight]),
        ("mode = '0660'", "", [ours, tight]),
        ("", "mode = '0660'", [tight, ours]),
        ("mode = '0620'", given.as_str(), [(0o620, us.gid()), (0o660, group)]),
        (given.as_str(), "", [(0o660, group), tight]),
    ] {
        let mut server = Server::start(parse(&text(listen, vhost))).unwrap();
        let found = [&socket, &disk].map(|path| {
            let found = fs::metadata(path).unwrap();
            (found.permissions().mode() & 0o777, found.gid())
        });
        assert_eq!(found, expected, "{listen}, {vhost}");
        let other = server.reload(parse(&text("mode = '0640'", vhost))).unwrap_err().to_string();
        assert!(other.contains("cannot change while the server runs"), "{other}");
        server.stop().unwrap();
    }
    let error = Server::start(parse(&text("", "group = 'no-such-group'"))).unwrap_err();
    assert!(error.to_string().contains("no group \"no-such-group\""), "{error}");
    assert!(!fs::exists(&socket).unwrap() && !fs::exists(&disk).unwrap());
}

fn uri(scene: &Scene, unix: bool, client: &str, volume: &str) -> String {
    let certificates = format!("tls-certificates={}", scene.directory.path(client));
    if unix {
        let socket = scene.directory.path("socket");
        format!("nbds+unix:///{volume}?socket={socket}&{certificates}")
    } else {
        let port = scene.server.tcp().unwrap().port();
        format!("nbds://localhost:{port}/{volume}?{certificates}")
    }
}

fn fails(program: &str, arguments: &[&str]) -> String {
    let output = begin(program, arguments).wait_with_output().unwrap();
    assert!(!output.status.success(), "{program} {arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Goal: libnbd over TLS lists, copies and is refused as our own client is. Method: nbdinfo and nbdcopy over
/// both kinds of sockets, with every kind of certificate.
#[test]
#[ignore = "needs clients: nbdinfo, nbdcopy"]
fn needs_clients_libnbd_over_tls() {
    let scene = Scene::start("true");
    let image = rig::image(&scene.directory);
    for unix in [false, true] {
        let listed = run("nbdinfo", &["--list", "--json", &uri(&scene, unix, "bob", "")]);
        assert!(listed.contains("\"bobs\"") && !listed.contains("\"v\""), "{listed}");
        assert!(listed.contains("TLS"), "{listed}");
        let (to, copy) = (uri(&scene, unix, "alice", "v"), scene.directory.path("copy"));
        run("nbdcopy", &["--flush", &image, &to]);
        run("nbdcopy", &[&to, &copy]);
        run("cmp", &[&image, &copy]);
        for client in ["nobody", "expired", "early", "foreign"] {
            fails("nbdinfo", &[&uri(&scene, unix, client, "v")]);
        }
        fails("nbdinfo", &[&uri(&scene, unix, "bob", "v")]);
    }
    let plain = format!("nbd://localhost:{}/v", scene.server.tcp().unwrap().port());
    fails("nbdinfo", &[&plain]);
    // A server of another name is none of ours.
    let [certificate, key] = scene.pki.authority.sign("server", &["elsewhere.example"], GOOD);
    fs::write(scene.directory.path("server.pem"), certificate).unwrap();
    fs::write(scene.directory.path("server-key.pem"), key).unwrap();
    let mut scene = scene;
    scene.server.reload(parse(&contracts(&scene.directory, "true"))).unwrap();
    let told = fails("nbdinfo", &[&uri(&scene, false, "alice", "v")]);
    assert!(told.contains("certificate"), "{told}");
    scene.server.stop().unwrap();
}

/// Goal: qemu's client over TLS agrees. Method: convert in, compare out, with credentials and without.
#[test]
#[ignore = "needs clients: qemu-img"]
fn needs_clients_qemu_over_tls() {
    let scene = Scene::start("true");
    let image = rig::image(&scene.directory);
    let port = scene.server.tcp().unwrap().port();
    let to = format!("driver=nbd,host=localhost,port={port},export=v,tls-creds=tls0");
    let credentials = |client: &str| {
        let directory = scene.directory.path(client);
        format!("tls-creds-x509,id=tls0,endpoint=client,dir={directory}")
    };
    let good = credentials("alice");
    let convert = ["convert", "--object", &good, "-n", "-f", "raw", "--target-image-opts"];
    run("qemu-img", &[&convert[..], &[&image, &to]].concat());
    let source = format!("driver=raw,file.filename={image}");
    run("qemu-img", &["compare", "--object", &good, "--image-opts", &source, &to]);
    for client in ["nobody", "expired", "foreign", "bob"] {
        let bad = credentials(client);
        fails("qemu-img", &["info", "--object", &bad, "--image-opts", &to]);
    }
}
