//! The files of a configuration.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::bounds::{FILE_BYTES_MAX, FILES_MAX};
use super::domain::Domain;
use super::file;
use super::report::Remark;

/// All domains.
#[derive(Debug)]
pub struct Configuration {
    domains: BTreeMap<String, Domain>,
    /// What is read but probably not meant.
    pub warnings: Vec<Remark>,
}

impl Configuration {
    /// Reads a file, or the files of a folder that end in `.yaml` or `.yml`. Files whose names
    /// begin with a dot, such as those of a Kubernetes ConfigMap, are left out.
    ///
    /// # Errors
    /// All mistakes, in the order of the files.
    pub fn load(path: &Path) -> Result<Self, Vec<Remark>> {
        let files = files(path).map_err(|text| vec![of_file(path, text)])?;
        let mut loaded = Self { domains: BTreeMap::new(), warnings: Vec::new() };
        let mut mistakes = Vec::new();
        for path in files {
            let name = path.display().to_string();
            let text = text_of(&path).map_err(|text| vec![of_file(&path, text)]);
            match text.and_then(|text| file::read(&name, &text)) {
                Ok((domain, warnings)) => {
                    loaded.warnings.extend(warnings);
                    mistakes.extend(loaded.insert(domain));
                }
                Err(found) => mistakes.extend(found),
            }
        }
        if mistakes.is_empty() { Ok(loaded) } else { Err(mistakes) }
    }

    /// Returns a domain by its name.
    #[must_use]
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.get(name)
    }

    /// Returns all domains, by name.
    pub fn domains(&self) -> impl Iterator<Item = &Domain> {
        self.domains.values()
    }

    fn insert(&mut self, domain: Domain) -> Option<Remark> {
        let Some(first) = self.domains.get(&*domain.name) else {
            self.domains.insert(domain.name.to_string(), domain);
            return None;
        };
        let Domain { name, file, at, .. } = domain;
        let text = format!("the domain {name:?} is also in {}: keep one", first.file);
        Some(Remark { file, at: Some(at), text })
    }
}

fn of_file(path: &Path, text: String) -> Remark {
    Remark { file: path.display().to_string(), at: None, text }
}

fn files(path: &Path) -> Result<Vec<PathBuf>, String> {
    let said = |error: io::Error| format!("cannot be read: {error}");
    if !fs::metadata(path).map_err(said)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(said)? {
        let path = entry.map_err(said)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_yaml = name.ends_with(".yaml") || name.ends_with(".yml");
        if is_yaml && !name.starts_with('.') {
            files.push(path);
        }
    }
    files.sort();
    match files.len() {
        0 => Err("no file here ends in .yaml: write one for each domain".to_owned()),
        1..=FILES_MAX => Ok(files),
        _ => Err(format!("too many files: expected at most {FILES_MAX}")),
    }
}

fn text_of(path: &Path) -> Result<String, String> {
    let said = |error: io::Error| format!("cannot be read: {error}");
    if !fs::metadata(path).map_err(said)?.is_file() {
        return Err("expected a file".to_owned());
    }
    let mut bytes = Vec::new();
    // One byte more than allowed, so that a file that is too large is told from one that fits.
    let file = File::open(path).map_err(said)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(said)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("the file is too large: expected at most {FILE_BYTES_MAX} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "expected text in UTF-8".to_owned())
}
