//! What clients are offered and allowed: TLS, from certificates and keys in files that are read at the start and at
//! every reload; and limits.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use iofair_config::contracts::{Group, Limits, Listen, Required, Tls, client_names};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, ServerConfig, WebPkiClientVerifier};
use rustls::{InconsistentKeys, RootCertStore};

use crate::error::ServeError;
use crate::front::nbd::session;
use crate::front::tls::names;
use crate::layout::read_text;
use crate::request::export::{Export, Peer};

/// What clients are offered and allowed.
#[derive(Clone, Debug)]
pub(crate) struct Security {
    pub(crate) limits: Limits,
    offer: Option<(Arc<ServerConfig>, Required)>,
    /// The names of clients, by group.
    clients: HashMap<String, Vec<String>>,
}

impl Security {
    /// Reads the files.
    pub(crate) fn load(listen: &Listen, groups: &[Group]) -> Result<Self, ServeError> {
        let offer =
            listen.tls.as_ref().map(|tls| Ok::<_, ServeError>((server_config(tls)?, tls.required)));
        let clients = |group: &Group| (group.name.clone(), group.clients.clone());
        let clients = groups.iter().map(clients).collect();
        Ok(Self { limits: listen.limits, offer: offer.transpose()?, clients })
    }
    /// Whether connected clients may stay with the one exactly if they may with the other, as far as volumes do not decide that.
    pub(crate) fn admits_as(&self, other: &Self) -> bool {
        let same = |peer| self.offer(peer) == other.offer(peer);
        same(Peer::Tcp) && same(Peer::Unix(0)) && self.clients == other.clients
    }
    /// A removed volume with the clients whom its group admits now. A group that is gone names nobody.
    pub(crate) fn admit(&self, mut export: Export, group: &str) -> Export {
        let names = &mut export.entry.names;
        if self.clients.values().any(|clients| !clients.is_empty()) {
            *names = client_names(group, |group| self.clients.get(group).map(Vec::as_slice));
        } else {
            // Without any names everybody is admitted, but not to a group that had some and is gone.
            *names = names.take().filter(|_| !self.clients.contains_key(group)).map(|_| Vec::new());
        }
        export
    }
    /// What a client with this kind of connection is offered.
    pub(crate) fn offer(&self, peer: Peer) -> session::Tls {
        match (&self.offer, peer) {
            (None, _) => session::Tls::Absent,
            (Some((_, Required::Always)), _) | (Some((_, Required::Tcp)), Peer::Tcp) => {
                session::Tls::Required
            }
            _ => session::Tls::Offered,
        }
    }
    /// Certificates, keys and rules for a new channel.
    pub(crate) fn config(&self) -> Option<Arc<ServerConfig>> {
        self.offer.as_ref().map(|(config, _)| config.clone())
    }
}

/// Reads the files of one TLS.
pub(crate) fn server_config(tls: &Tls) -> Result<Arc<ServerConfig>, ServeError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::from_pem_slice(text(&tls.key)?.as_bytes());
    let key = key.map_err(|error| unread(&tls.key, "private key", &error))?;
    let chain = certificates(&tls.certificate)?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the provider has the suites of its own versions");
    let builder = match &tls.clients {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| refused(path, error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = verifier.build().map_err(|error| refused(path, error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            let certificate = tls.certificate.display();
            refused(&tls.key, format!("not the key of the certificate in {certificate}"))
        }
        rustls::Error::InvalidCertificate(_) => refused(&tls.certificate, error.to_string()),
        error => refused(&tls.key, error.to_string()),
    })?;
    // Every connection shows its certificate anew: a reload must not be outlived by old sessions.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The names in the first certificate of a file.
pub(crate) fn names_of(path: &Path) -> Result<Vec<String>, ServeError> {
    let names = certificates(path)?.first().map(names).unwrap_or_default();
    Ok(names.into_iter().map(|name| name.to_ascii_lowercase()).collect())
}

/// All certificates of a file.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ServeError> {
    let read = CertificateDer::pem_slice_iter(text(path)?.as_bytes()).collect::<Result<_, _>>();
    let read: Vec<_> = read.map_err(|error| unread(path, "certificate", &error))?;
    if read.is_empty() {
        return Err(refused(path, "no certificate in it".into()));
    }
    Ok(read)
}

fn text(path: &Path) -> Result<String, ServeError> {
    read_text(path).map_err(|error| refused(path, error.to_string()))
}

fn unread(path: &Path, what: &str, error: &pem::Error) -> ServeError {
    refused(
        path,
        match error {
            pem::Error::NoItemsFound => format!("no {what} in it"),
            error => format!("not PEM: {error}"),
        },
    )
}

fn refused(path: &Path, message: String) -> ServeError {
    ServeError::Tls { path: path.to_path_buf(), message }
}
