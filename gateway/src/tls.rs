//! TLS of the listeners: certificates that are read again when their files change.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::ring;
use rustls::pki_types::pem::{Error as Unreadable, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::reading::{bytes_of, digest};

/// The files of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The certificate of the gateway, then those between it and its authority, as PEM.
    pub certificate: PathBuf,
    /// Its private key, as PEM.
    pub key: PathBuf,
    /// The authorities of clients, as PEM. Without them, clients need no certificate.
    pub client_ca: Option<PathBuf>,
}

/// The protocol of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/2 only.
    Grpc,
    /// HTTP/1.1 only.
    Http,
}

/// The certificate in force. Its clones share it.
#[derive(Debug, Clone)]
pub struct Certificate {
    files: Arc<Files>,
    current: Arc<RwLock<Settings>>,
    /// The digest of the contents that were read last.
    read: Arc<AtomicU64>,
}

/// The settings of each protocol. They share no sessions with those of another reading, so that no
/// client gets around a new authority.
#[derive(Debug)]
struct Settings {
    grpc: Arc<ServerConfig>,
    http: Arc<ServerConfig>,
}

impl Certificate {
    /// Reads the files.
    ///
    /// # Errors
    /// The file, and what is wrong with it.
    pub fn load(files: Files) -> Result<Self, String> {
        let contents = Contents::read(&files);
        let current = Arc::new(RwLock::new(Settings::of(&contents, &files)?));
        Ok(Self { files: Arc::new(files), current, read: Arc::new(digest(&contents).into()) })
    }

    /// Reads the files again. If one of them has a mistake, the old certificate stays in force.
    /// Returns `None` if the contents are those that were read last, unless the operator requests
    /// it.
    ///
    /// # Errors
    /// The file, and what is wrong with it.
    pub fn reload(&self, is_requested: bool) -> Option<Result<(), String>> {
        let contents = Contents::read(&self.files);
        let read = digest(&contents);
        if self.read.swap(read, Ordering::Relaxed) == read && !is_requested {
            return None;
        }
        Some(Settings::of(&contents, &self.files).map(|loaded| {
            *self.current.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        }))
    }

    /// Returns the files.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let Files { certificate, key, client_ca } = &*self.files;
        [Some(certificate), Some(key), client_ca.as_ref()].into_iter().flatten().cloned().collect()
    }

    /// Returns the certificate for a listener.
    #[must_use]
    pub fn of(&self, protocol: Protocol) -> Tls {
        Tls { certificate: self.clone(), protocol }
    }
}

/// The certificate of a listener.
#[derive(Debug, Clone)]
pub struct Tls {
    certificate: Certificate,
    protocol: Protocol,
}

impl Tls {
    /// Performs the handshake with the certificate in force.
    ///
    /// # Errors
    /// The reason that the client or its certificate is refused.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        TlsAcceptor::from(self.settings()).accept(stream).await
    }

    fn settings(&self) -> Arc<ServerConfig> {
        let current = self.certificate.current.read().unwrap_or_else(PoisonError::into_inner);
        match self.protocol {
            Protocol::Grpc => current.grpc.clone(),
            Protocol::Http => current.http.clone(),
        }
    }
}

/// The contents of the files, or why they cannot be read.
#[derive(Hash)]
struct Contents {
    certificate: Result<Vec<u8>, String>,
    key: Result<Vec<u8>, String>,
    client_ca: Option<Result<Vec<u8>, String>>,
}

impl Contents {
    fn read(files: &Files) -> Self {
        let Files { certificate, key, client_ca } = files;
        let client_ca = client_ca.as_deref().map(bytes_of);
        Self { certificate: bytes_of(certificate), key: bytes_of(key), client_ca }
    }
}

impl Settings {
    fn of(contents: &Contents, files: &Files) -> Result<Self, String> {
        let chain = certificates(&files.certificate, &contents.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(read(&files.key, &contents.key)?)
            .map_err(|error| unreadable(&files.key, "a private key", &error))?;
        let builder = ServerConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match files.client_ca.as_ref().zip(contents.client_ca.as_ref()) {
            Some((file, bytes)) => builder.with_client_cert_verifier(verifier(file, bytes)?),
            None => builder.with_no_client_auth(),
        };
        let settings = builder.with_single_cert(chain, key).map_err(|error| {
            let (certificate, key) = (files.certificate.display(), files.key.display());
            format!("{certificate} with the key {key}: {error}")
        })?;
        let of = |protocol: &[u8]| {
            let mut settings = settings.clone();
            settings.alpn_protocols.push(protocol.to_vec());
            Arc::new(settings)
        };
        Ok(Self { grpc: of(b"h2"), http: of(b"http/1.1") })
    }
}

/// Returns the bytes of a file.
fn read<'a>(file: &Path, bytes: &'a Result<Vec<u8>, String>) -> Result<&'a [u8], String> {
    bytes.as_deref().map_err(|text| format!("{}: {text}", file.display()))
}

fn verifier(
    file: &Path,
    bytes: &Result<Vec<u8>, String>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let wrong = |error: &dyn Display| format!("{}: {error}", file.display());
    let mut authorities = RootCertStore::empty();
    for authority in certificates(file, bytes)? {
        authorities.add(authority).map_err(|error| wrong(&error))?;
    }
    let provider = ring::default_provider().into();
    let builder = WebPkiClientVerifier::builder_with_provider(authorities.into(), provider);
    builder.build().map_err(|error| wrong(&error))
}

fn certificates(
    file: &Path,
    bytes: &Result<Vec<u8>, String>,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let refused = |error: Unreadable| unreadable(file, "a certificate", &error);
    let all = CertificateDer::pem_slice_iter(read(file, bytes)?);
    let all = all.collect::<Result<Vec<_>, _>>().map_err(refused)?;
    if all.is_empty() { Err(refused(Unreadable::NoItemsFound)) } else { Ok(all) }
}

/// Returns the reason. Those of the library may have bytes of the file, which may be a key.
fn unreadable(file: &Path, expected: &str, error: &Unreadable) -> String {
    let file = file.display();
    match error {
        Unreadable::NoItemsFound => format!("{file}: expected {expected} as PEM, found none"),
        _ => format!("{file}: expected {expected} as PEM"),
    }
}
