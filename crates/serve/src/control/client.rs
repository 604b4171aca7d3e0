//! A client of the control socket, for the command line and for tests. Each call uses its own connection.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
pub use iofair_config::name::is_volume_name;
use iofair_config::shell;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value as Json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

/// A server that works responds to a question within this time.
const QUESTION_MAX: Duration = Duration::from_secs(10);
/// A change may take this long: a drain takes half a minute.
const CHANGE_MAX: Duration = Duration::from_secs(180);
/// Longest response: ten thousand groups take some ten MiB.
const BODY_BYTES_MAX: usize = 256 << 20;

/// The address of a server's control or metrics socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// Path of a Unix socket.
    Unix(PathBuf),
    /// TCP without TLS, which only metrics support: HOST:PORT.
    Tcp(String),
    /// TCP with TLS.
    Tls(Secured),
}

/// A server that is called over TLS, and the caller's credentials. Files are in PEM format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Secured {
    /// Where it is.
    pub host: String,
    /// The name in its certificate; `None`: the host's.
    pub name: Option<String>,
    /// Its port.
    pub port: u16,
    /// The CA that signed the server.
    pub authority: PathBuf,
    /// The caller's certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(f),
            Self::Tcp(address) => f.write_str(address),
            Self::Tls(secured) => write!(f, "https://{}", secured.place()),
        }
    }
}

impl Secured {
    /// HOST:PORT, as in a URL.
    fn place(&self) -> String {
        let Self { host, port, .. } = self;
        let lacks_brackets = host.contains(':') && !host.starts_with('[');
        if lacks_brackets { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// Reads HOST:PORT.
///
/// # Errors
/// The text says what is wrong, and what is allowed.
pub fn host_and_port(text: &str) -> Result<(String, u16), String> {
    if let Some(right) = shell::with_brackets(text) {
        return Err(format!("\"{text}\": an IPv6 address needs brackets, {right}"));
    }
    let split = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    match split {
        Some((host, port)) if !host.is_empty() => Ok((host.to_string(), port)),
        _ => Err(format!("\"{text}\" is not HOST:PORT, such as pool1:9720 or [::1]:9720")),
    }
}

/// A call.
#[derive(Clone, Default, Debug)]
pub struct Call {
    /// GET, PUT, ...
    pub method: String,
    /// The path, percent-encoded.
    pub path: String,
    /// JSON.
    pub body: Option<Json>,
    /// Refused unless the contract file still has this revision.
    pub if_match: Option<String>,
    /// Refused if the resource exists.
    pub only_new: bool,
}

/// A response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The revision of the contract file.
    pub revision: Option<String>,
    /// Its content type.
    pub content_type: String,
    /// Its body.
    pub body: Vec<u8>,
}

impl Call {
    /// A call without body and conditions.
    pub fn new(method: &str, path: &str) -> Self {
        Self { method: method.into(), path: path.into(), ..Self::default() }
    }
    /// How long the response may take.
    fn patience(&self) -> Duration {
        if self.method == "GET" { QUESTION_MAX } else { CHANGE_MAX }
    }
    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: Json) -> Self {
        self.body = Some(body);
        self
    }
}

impl Reply {
    /// Whether the call succeeded.
    pub fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }
    /// The body as JSON.
    pub fn json(&self) -> io::Result<Json> {
        serde_json::from_slice(&self.body).map_err(io::Error::other)
    }
    /// The JSON object with which iofair responds: it has this field, or an error with a text.
    ///
    /// # Errors
    /// Something else than iofair responded: [`io::ErrorKind::InvalidData`].
    pub fn object(&self, field: &str) -> io::Result<Json> {
        let field = if self.is_good() { field } else { "error/text" };
        let has_field = |json: &Json| json.pointer(&format!("/{field}")).is_some();
        self.json().ok().filter(has_field).ok_or_else(|| {
            let status = self.status;
            let message =
                format!("a response of status {status}; expected a JSON object with `{field}`");
            io::Error::new(io::ErrorKind::InvalidData, message)
        })
    }
}

/// A name as it may stand in the path or the query of a call, percent-encoded.
pub fn escaped(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => text.push(byte.into()),
            byte => text += &format!("%{byte:02X}"),
        }
    }
    text
}

/// Makes one call and waits for the response, but not for ever.
///
/// # Errors
/// There is no response. With [`io::ErrorKind::TimedOut`], a change may be made nevertheless.
pub fn call(address: &Address, call: &Call) -> io::Result<Reply> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let work = async {
        match address {
            Address::Unix(path) => exchange(UnixStream::connect(path).await?, "iofair", call).await,
            Address::Tcp(address) => {
                exchange(TcpStream::connect(address).await?, address, call).await
            }
            Address::Tls(secured) => {
                let host = secured.host.trim_matches(['[', ']']);
                let name = secured.name.as_deref().unwrap_or(host).to_string();
                let name = ServerName::try_from(name).map_err(io::Error::other)?;
                let connector = TlsConnector::from(Arc::new(config(secured)?));
                let stream = TcpStream::connect((host, secured.port)).await?;
                let stream = connector.connect(name, stream).await?;
                exchange(stream, &secured.place(), call).await
            }
        }
    };
    let patience = call.patience();
    let timed = async { tokio::time::timeout(patience, work).await };
    let ended = runtime.block_on(timed);
    // Looking up a name may still block a thread.
    runtime.shutdown_background();
    ended.unwrap_or_else(|_| {
        let mut message = format!("no response within {} s", patience.as_secs());
        if call.method != "GET" {
            message += "; the change may still be made";
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, message))
    })
}

/// What a caller over TLS trusts and shows.
fn config(secured: &Secured) -> io::Result<ClientConfig> {
    let unread = |path: &Path| {
        let path = path.display().to_string();
        move |error: &dyn std::fmt::Display| io::Error::other(format!("{path}: {error}"))
    };
    let certificates = |path: &Path| {
        let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<_, _>>);
        read.map_err(|error| unread(path)(&error))
    };
    let authority: Vec<CertificateDer<'static>> = certificates(&secured.authority)?;
    let mut roots = RootCertStore::empty();
    for certificate in authority {
        roots.add(certificate).map_err(|error| unread(&secured.authority)(&error))?;
    }
    let key = PrivateKeyDer::from_pem_file(&secured.key);
    let key = key.map_err(|error| unread(&secured.key)(&error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the suites of its own versions")
        .with_root_certificates(roots)
        .with_client_auth_cert(certificates(&secured.certificate)?, key)
        .map_err(|error| unread(&secured.key)(&error))
}

/// No response, or one that is not HTTP.
fn broken(error: hyper::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

async fn exchange<S>(stream: S, host: &str, call: &Call) -> io::Result<Reply>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    tokio::spawn(connection);
    let mut request =
        Request::builder().method(call.method.as_str()).uri(&call.path).header(header::HOST, host);
    if let Some(revision) = &call.if_match {
        request = request.header(header::IF_MATCH, format!("\"{revision}\""));
    }
    if call.only_new {
        request = request.header(header::IF_NONE_MATCH, "*");
    }
    let mut body = Bytes::new();
    if call.method != "GET" {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    if let Some(json) = &call.body {
        body = Bytes::from(json.to_string());
    }
    let request = request.body(Full::new(body)).map_err(io::Error::other)?;
    let (head, body) = sender.send_request(request).await.map_err(broken)?.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(io::Error::other)?;
    let word = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
    Ok(Reply {
        status: head.status.as_u16(),
        revision: word(header::ETAG).map(|tag| tag.trim_matches('"').to_string()),
        content_type: word(header::CONTENT_TYPE).unwrap_or_default().to_string(),
        body: body.to_bytes().to_vec(),
    })
}
