//! The files of a configuration.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::bounds::FILES_MAX;
use super::domain::Domain;
use super::limits_file;
use super::report::Remark;
use crate::reading::bytes_of;

/// All domains.
#[derive(Debug)]
pub struct Configuration {
    domains: BTreeMap<String, Domain>,
    /// Remarks on words that are valid but probably not meant.
    pub warnings: Vec<Remark>,
}

/// The texts of a configuration's files, or why they cannot be read.
#[derive(Debug, Hash)]
pub(crate) struct Texts {
    path: PathBuf,
    files: Result<Vec<Text>, String>,
}

/// A file and its text, or why it cannot be read.
type Text = (PathBuf, Result<String, String>);

impl Texts {
    /// Reads a file, or the files of a folder.
    pub(crate) fn read(path: &Path) -> Self {
        let read = |path: PathBuf| {
            let text = text_of(&path);
            (path, text)
        };
        let files = files(path).map(|files| files.into_iter().map(read).collect());
        Self { path: path.to_owned(), files }
    }
}

impl Configuration {
    /// Reads a file, or the files of a folder that end in `.yaml` or `.yml`. Files whose names
    /// begin with a dot, such as those of a Kubernetes ConfigMap, are left out.
    ///
    /// # Errors
    /// All mistakes, in the order of the files.
    pub fn load(path: &Path) -> Result<Self, Vec<Remark>> {
        Self::of(&Texts::read(path))
    }

    /// Builds the configuration of some texts.
    ///
    /// # Errors
    /// All mistakes, in the order of the files.
    pub(crate) fn of(texts: &Texts) -> Result<Self, Vec<Remark>> {
        let nothing = |text: &String| vec![of_file(&texts.path, text.clone())];
        let files = texts.files.as_ref().map_err(nothing)?;
        let mut loaded = Self { domains: BTreeMap::new(), warnings: Vec::new() };
        let mut mistakes = Vec::new();
        for (path, text) in files {
            let text = text.as_ref().map_err(|text| vec![of_file(path, text.clone())]);
            match text.and_then(|text| limits_file::read(&path.display().to_string(), text)) {
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

    /// Returns the number of limits.
    #[must_use]
    pub fn limits(&self) -> usize {
        self.domains().map(|domain| domain.limits.len()).sum()
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

/// Returns the file `path`, or the files of the folder `path` that are read.
///
/// # Errors
/// The reason that there are none, without the name of `path`.
pub(crate) fn files(path: &Path) -> Result<Vec<PathBuf>, String> {
    let unreadable = |error: io::Error| format!("cannot be read: {error}");
    if !fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
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
    String::from_utf8(bytes_of(path)?).map_err(|_| "expected text in UTF-8".to_owned())
}
