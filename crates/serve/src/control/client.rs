//! A client of the control socket, for the command line and for tests. One connection a call.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use serde_json::Value as Json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// A call may take so long: a drain takes half a minute.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a server is controlled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// Path of a Unix socket.
    Unix(PathBuf),
    /// Address and port.
    Tcp(SocketAddr),
}

/// A call.
#[derive(Clone, Default, Debug)]
pub struct Ask {
    /// GET, PUT, ...
    pub method: String,
    /// Escaped.
    pub path: String,
    /// JSON.
    pub body: Option<Json>,
    /// Only if this is still the revision.
    pub if_match: Option<String>,
    /// Only if there is none yet.
    pub only_new: bool,
}

/// What came back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The revision that it speaks of.
    pub revision: Option<String>,
    /// Its kind.
    pub content_type: String,
    /// All of it.
    pub body: Vec<u8>,
}

impl Ask {
    /// A call without anything else.
    pub fn new(method: &str, path: &str) -> Self {
        Self { method: method.into(), path: path.into(), ..Self::default() }
    }
    /// With a body.
    #[must_use]
    pub fn body(mut self, body: Json) -> Self {
        self.body = Some(body);
        self
    }
}

impl Reply {
    /// Is it what was asked?
    pub fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }
    /// The body as JSON.
    pub fn json(&self) -> io::Result<Json> {
        serde_json::from_slice(&self.body).map_err(io::Error::other)
    }
}

/// Makes one call and waits for its answer.
pub fn call(address: &Address, ask: &Ask) -> io::Result<Reply> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let work = async {
        match address {
            Address::Unix(path) => exchange(UnixStream::connect(path).await?, ask).await,
            Address::Tcp(address) => exchange(TcpStream::connect(address).await?, ask).await,
        }
    };
    let timed = async { tokio::time::timeout(PATIENCE, work).await };
    runtime.block_on(timed).map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

async fn exchange<S>(stream: S, ask: &Ask) -> io::Result<Reply>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    let mut request = Request::builder()
        .method(ask.method.as_str())
        .uri(&ask.path)
        .header(header::HOST, "iofair");
    if let Some(revision) = &ask.if_match {
        request = request.header(header::IF_MATCH, format!("\"{revision}\""));
    }
    if ask.only_new {
        request = request.header(header::IF_NONE_MATCH, "*");
    }
    let mut body = Bytes::new();
    if let Some(json) = &ask.body {
        request = request.header(header::CONTENT_TYPE, "application/json");
        body = Bytes::from(json.to_string());
    }
    let request = request.body(Full::new(body)).map_err(io::Error::other)?;
    let (head, body) = sender.send_request(request).await.map_err(io::Error::other)?.into_parts();
    let word = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
    Ok(Reply {
        status: head.status.as_u16(),
        revision: word(header::ETAG).map(|tag| tag.trim_matches('"').to_string()),
        content_type: word(header::CONTENT_TYPE).unwrap_or_default().to_string(),
        body: body.collect().await.map_err(io::Error::other)?.to_bytes().to_vec(),
    })
}
