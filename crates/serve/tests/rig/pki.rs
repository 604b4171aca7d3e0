//! Certificates for tests: two authorities, servers and clients, good and bad ones, in the files that
//! libnbd and qemu look for.

use std::fs;
use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::Directory;
use super::wire::{OPTION_STARTTLS, Options, REPLY_ACK, Stream, TIMEOUT};

/// Who signs.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        Self { issuer: CertifiedIssuer::self_signed(params, key).unwrap() }
    }
    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }
    /// A certificate and its key, with this common name, these other names and these years.
    pub(crate) fn sign(&self, name: &str, others: &[&str], years: (i32, i32)) -> [String; 2] {
        let others: Vec<String> = others.iter().map(|name| (*name).to_string()).collect();
        let mut params = CertificateParams::new(others).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        (params.not_before, params.not_after) =
            (date_time_ymd(years.0, 1, 1), date_time_ymd(years.1, 1, 1));
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        [certificate.pem(), key.serialize_pem()]
    }
}

/// Years in which a good certificate is good.
pub(crate) const GOOD: (i32, i32) = (2020, 2090);

/// A directory with `ca.pem`, `server.pem`, `server-key.pem`, and one directory a client.
pub(crate) struct Pki {
    pub(crate) authority: Authority,
}

impl Pki {
    pub(crate) fn write(directory: &Directory) -> Self {
        let this = Self { authority: Authority::new("ours") };
        let stranger = Authority::new("theirs");
        let write = |name: &str, text: &str| fs::write(directory.path(name), text).unwrap();
        write("ca.pem", &this.authority.pem());
        let [certificate, key] = this.authority.sign("server", &["localhost", "127.0.0.1"], GOOD);
        write("server.pem", &certificate);
        write("server-key.pem", &key);
        for (name, by, others, years) in [
            ("alice", &this.authority, &["alice.example"][..], GOOD),
            ("bob", &this.authority, &[], GOOD),
            ("uid:0", &this.authority, &[], GOOD),
            ("*", &this.authority, &[], GOOD),
            ("expired", &this.authority, &["alice.example"], (2020, 2021)),
            ("early", &this.authority, &["alice.example"], (2089, 2090)),
            ("foreign", &stranger, &["alice.example"], GOOD),
        ] {
            fs::create_dir_all(directory.path(name)).unwrap();
            write(&format!("{name}/ca-cert.pem"), &this.authority.pem());
            let [certificate, key] = by.sign(name, others, years);
            write(&format!("{name}/client-cert.pem"), &certificate);
            write(&format!("{name}/client-key.pem"), &key);
        }
        fs::create_dir_all(directory.path("nobody")).unwrap();
        write("nobody/ca-cert.pem", &this.authority.pem());
        this
    }
}

/// What a client with this directory trusts and shows.
pub(crate) fn config(directory: &Directory, client: &str) -> Arc<ClientConfig> {
    let path = |name: &str| directory.path(&format!("{client}/{name}"));
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(path("ca-cert.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let Ok(certificate) = CertificateDer::from_pem_file(path("client-cert.pem")) else {
        return Arc::new(builder.with_no_client_auth());
    };
    let key = PrivateKeyDer::from_pem_file(path("client-key.pem")).unwrap();
    Arc::new(builder.with_client_auth_cert(vec![certificate], key).unwrap())
}

pub(crate) type Secured = Options<StreamOwned<ClientConnection, Box<dyn Stream>>>;

pub(crate) fn unix(socket: &str) -> Box<dyn Stream> {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    Box::new(stream)
}
pub(crate) fn tcp(address: std::net::SocketAddr) -> Box<dyn Stream> {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    Box::new(stream)
}

/// Asks for TLS and shakes hands.
pub(crate) fn secure(stream: Box<dyn Stream>, config: Arc<ClientConfig>) -> io::Result<Secured> {
    let mut options = Options::greet(stream)?;
    assert_eq!(options.ask(OPTION_STARTTLS, &[])?, REPLY_ACK);
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(config, name).unwrap();
    let mut stream = StreamOwned::new(connection, options.stream);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(Options { stream })
}
