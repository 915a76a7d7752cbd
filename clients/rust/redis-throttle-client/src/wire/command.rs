//! A command for the server, and the record that it was sent.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::Cmd;
use tokio::sync::SetOnce;

/// A command for the server, and the key that routes it in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Command<'a> {
    words: Vec<Cow<'a, str>>,
    /// The key that routes the command, if it is not the second word.
    key: Option<Cow<'a, str>>,
    /// The words for a server without the module, if they differ by more than their form.
    without_module: Option<Vec<Cow<'a, str>>>,
    sent: Option<Sent>,
}

/// A record that a command was sent, and may have run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sent(Arc<Record>);

#[derive(Debug, Default)]
struct Record {
    may_have_run: AtomicBool,
    /// Whether the reply is read although the caller has gone.
    drains: AtomicBool,
    /// Set when that reply is read, or its connection has ended.
    drained: SetOnce<()>,
}

impl<'a> Command<'a> {
    pub(crate) fn new(words: impl IntoIterator<Item = Cow<'a, str>>) -> Self {
        let words = words.into_iter().collect();
        Self { words, key: None, without_module: None, sent: None }
    }

    /// Builds a command for the node that has `key`, which need not be one of the words.
    pub(crate) fn at(key: &'a str, words: impl IntoIterator<Item = Cow<'a, str>>) -> Self {
        Self { key: Some(key.into()), ..Self::new(words) }
    }

    /// Sets the words for a server without the module.
    pub(crate) fn or_without_module(self, words: Option<Vec<Cow<'a, str>>>) -> Self {
        Self { without_module: words, ..self }
    }

    /// Returns the words of the module's command that a server without the module can run.
    pub(crate) fn words_without_module(&self) -> &[Cow<'a, str>] {
        self.without_module.as_ref().unwrap_or(&self.words)
    }

    /// Returns all words, the name first.
    #[must_use]
    pub fn words(&self) -> &[Cow<'a, str>] {
        &self.words
    }

    /// Returns the key that routes the command. It is the command's first key; all keys of a
    /// command are in one slot. For a command without keys, it is a key of the node that the
    /// command is for.
    #[must_use]
    pub fn key(&self) -> &str {
        self.key.as_deref().unwrap_or_else(|| &self.words[1])
    }

    /// Returns the command as the driver sends it.
    #[must_use]
    pub fn to_cmd(&self) -> Cmd {
        let bytes = self.words.iter().map(|word| word.len()).sum();
        let mut cmd = Cmd::with_capacity(self.words.len(), bytes);
        for word in &self.words {
            cmd.arg(word.as_bytes());
        }
        cmd
    }

    /// Returns a copy that can outlive the call.
    pub(crate) fn to_owned_words(&self) -> Command<'static> {
        let owned = |word: &Cow<'_, str>| Cow::Owned(word.to_string());
        let words = self.words.iter().map(owned).collect();
        Command { words, key: self.key.as_ref().map(owned), without_module: None, sent: None }
    }

    /// Records in the returned value whether the command was sent.
    pub(crate) fn record(&mut self) -> Sent {
        self.sent.get_or_insert_default().clone()
    }

    /// Records the sending of this command in the same place as that of another form of it.
    pub(crate) fn record_with(self, other: &Command<'_>) -> Self {
        Self { sent: other.sent.clone(), ..self }
    }

    pub(crate) fn set_sent(&self, sent: bool) {
        if let Some(record) = &self.sent {
            record.set(sent);
        }
    }

    /// Returns the record of the sending, if one is kept.
    pub(crate) fn sent(&self) -> Option<&Sent> {
        self.sent.as_ref()
    }
}

impl Sent {
    /// Returns true if the command was sent, and no reply proves that it did not run or took
    /// nothing.
    pub fn may_have_run(&self) -> bool {
        self.0.may_have_run.load(Ordering::Acquire)
    }

    pub fn set(&self, may_have_run: bool) {
        self.0.may_have_run.store(may_have_run, Ordering::Release);
    }

    /// Records that the caller has gone, and that the reply is still read.
    pub fn begin_draining(&self) {
        self.0.drains.store(true, Ordering::Release);
    }

    pub fn end_draining(&self) {
        // A command is left by its caller once.
        let _ = self.0.drained.set(());
    }

    /// Waits until the reply is read, or cannot come any more.
    pub async fn drained(&self) {
        if self.0.drains.load(Ordering::Acquire) {
            self.0.drained.wait().await;
        }
    }
}

/// Commands are compared by their words, whether they were sent or not.
impl PartialEq for Sent {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Sent {}

impl Hash for Sent {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
