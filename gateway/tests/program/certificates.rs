//! Authorities and certificates, created by openssl.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

/// A folder of certificates.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Creates the files `NAME.pem` and `NAME.key` of an authority.
    pub fn authority(&self, name: &str) {
        let line = format!("req -x509 {KEY} -keyout {name}.key -out {name}.pem -days 2");
        self.openssl(&format!("{line} -subj /CN={name}"));
    }

    /// Creates the files `NAME.pem` and `NAME.key` of a certificate for 127.0.0.1.
    pub fn certificate(&self, name: &str, authority: &str) {
        let alternative = "-addext subjectAltName=IP:127.0.0.1";
        let line = format!("req {KEY} -keyout {name}.key -out {name}.csr -subj /CN={name}");
        self.openssl(&format!("{line} {alternative}"));
        let signer = format!("-CA {authority}.pem -CAkey {authority}.key -CAcreateserial");
        let line = format!("x509 -req -in {name}.csr {signer} -out {name}.pem -days 2");
        self.openssl(&format!("{line} -copy_extensions copy"));
    }

    fn openssl(&self, line: &str) {
        let mut command = Command::new("openssl");
        let output = command.args(line.split(' ')).current_dir(self.0.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Replaces a certificate and its key by those of another name.
    pub fn replace(&self, name: &str, by: &str) {
        for ending in ["key", "pem"] {
            let [from, to] = [by, name].map(|name| self.path(&format!("{name}.{ending}")));
            std::fs::rename(from, to).unwrap();
        }
    }

    /// Connects as a client that trusts `authority`. It may have a certificate.
    pub async fn connect(
        &self,
        address: &str,
        alpn: &str,
        authority: &str,
        client: Option<&str>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&self.path(&format!("{authority}.pem")))).unwrap();
        let builder = ClientConfig::builder().with_root_certificates(roots);
        let mut config = match client {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let chain = vec![certificate(&self.path(&format!("{name}.pem")))];
                let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key"))).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols.push(alpn.as_bytes().to_vec());
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }
}

pub fn certificate(file: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(file).unwrap()
}
