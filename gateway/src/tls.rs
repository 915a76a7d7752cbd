//! TLS of the listeners: certificates that are read again when their files change.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
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
        let current = Arc::new(RwLock::new(Settings::load(&files)?));
        Ok(Self { files: Arc::new(files), current })
    }

    /// Reads the files again. If one of them has a mistake, the old certificate stays in force.
    ///
    /// # Errors
    /// The file, and what is wrong with it.
    pub fn reload(&self) -> Result<(), String> {
        let loaded = Settings::load(&self.files)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        Ok(())
    }

    /// Returns the files.
    #[must_use]
    pub fn files(&self) -> Vec<&Path> {
        let Files { certificate, key, client_ca } = &*self.files;
        [Some(certificate), Some(key), client_ca.as_ref()]
            .into_iter()
            .flatten()
            .map(PathBuf::as_path)
            .collect()
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
    /// Makes the handshake with the certificate in force.
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

impl Settings {
    fn load(files: &Files) -> Result<Self, String> {
        let chain = certificates(&files.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&files.key)
            .map_err(|error| unreadable(&files.key, "a private key", &error))?;
        let builder = ServerConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match &files.client_ca {
            Some(file) => builder.with_client_cert_verifier(verifier(file)?),
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

fn verifier(file: &Path) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let wrong = |error: &dyn Display| format!("{}: {error}", file.display());
    let mut authorities = RootCertStore::empty();
    for authority in certificates(file)? {
        authorities.add(authority).map_err(|error| wrong(&error))?;
    }
    let provider = ring::default_provider().into();
    let builder = WebPkiClientVerifier::builder_with_provider(authorities.into(), provider);
    builder.build().map_err(|error| wrong(&error))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let refused = |error: Unreadable| unreadable(file, "a certificate", &error);
    let all = CertificateDer::pem_file_iter(file).map_err(refused)?;
    let all = all.collect::<Result<Vec<_>, _>>().map_err(refused)?;
    if all.is_empty() { Err(refused(Unreadable::NoItemsFound)) } else { Ok(all) }
}

/// Returns the reason. Those of the library may have bytes of the file, which may be a key.
fn unreadable(file: &Path, expected: &str, error: &Unreadable) -> String {
    let file = file.display();
    match error {
        Unreadable::Io(error) => format!("{file}: {error}"),
        Unreadable::NoItemsFound => format!("{file}: expected {expected} as PEM, found none"),
        _ => format!("{file}: expected {expected} as PEM"),
    }
}
