use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;

use super::*;

fn text(domain: &str) -> String {
    format!("domain: {domain}\nlimits:\n  - {{match: {{user: '*'}}, rule: FIXED 1 1h}}\n")
}

/// A configuration that is followed, and the results of its readings.
struct Followed {
    live: Live,
    requested: Arc<Notify>,
    read: UnboundedReceiver<Result<(), String>>,
    task: JoinHandle<()>,
}

impl Followed {
    /// Follows what `live` has read before.
    fn new(live: Live) -> Self {
        let (done, read) = unbounded_channel();
        let requested = Arc::new(Notify::new());
        let report = move |loaded: Result<_, Vec<Remark>>| {
            let _ = done.send(loaded.map(drop).map_err(|all| all[0].to_string()));
        };
        let task = tokio::spawn(live.clone().follow(requested.clone(), report));
        Self { live, requested, read, task }
    }

    async fn next(&mut self) -> Result<(), String> {
        let next = timeout(Duration::from_secs(20), self.read.recv()).await;
        next.expect("a reading").expect("a reading")
    }

    /// Waits for one reading, after which a domain is there.
    async fn reads(&mut self, domain: &str) {
        assert_eq!(self.next().await, Ok(()), "{domain}");
        assert!(self.live.current().domain(domain).is_some(), "{domain}");
    }

    /// Waits for the time of several looks, in which nothing is read.
    async fn reads_nothing(&mut self) {
        assert!(timeout(3 * EVERY, self.read.recv()).await.is_err());
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test]
async fn follows_changes_and_keeps_the_old_configuration_after_an_invalid_one() {
    let folder = folder();
    let file = folder.path().join("api.yaml");
    fs::write(&file, text("one")).unwrap();
    let live = Live::load(folder.path().to_owned()).unwrap();
    // Nothing follows the file yet.
    fs::write(&file, text("two")).unwrap();
    let mut followed = Followed::new(live);
    followed.reads("two").await;
    fs::write(&file, "domain: three\nlimits: 1\n").unwrap();
    let mistake = followed.next().await.unwrap_err();
    assert!(mistake.starts_with(&format!("{}:2:9: ", file.display())), "{mistake}");
    assert!(followed.live.current().domain("two").is_some());
    fs::write(folder.path().join("web.yaml"), text("web")).unwrap();
    fs::write(&file, text("four")).unwrap();
    followed.reads("four").await;
    assert!(followed.live.current().domain("web").is_some());
    followed.reads_nothing().await;
}

#[tokio::test]
async fn reads_only_changed_files_without_a_request() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("api.yaml"), text("one")).unwrap();
    for path in [folder.path().to_owned(), at("api.yaml")] {
        let mut followed = Followed::new(Live::load(path).unwrap());
        followed.reads_nothing().await;
        fs::write(at("log"), "a line").unwrap();
        fs::write(at("next"), text("one")).unwrap();
        fs::rename(at("next"), at("api.yaml")).unwrap();
        followed.reads_nothing().await;
        followed.requested.notify_one();
        followed.reads("one").await;
    }
}

#[tokio::test]
async fn follows_the_links_of_a_config_map() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    for (version, domain) in [("..1", "one"), ("..2", "two")] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("api.yaml"), text(domain)).unwrap();
    }
    symlink("..1", at("..data")).unwrap();
    symlink("..data/api.yaml", at("api.yaml")).unwrap();
    let mut followed = Followed::new(Live::load(folder.path().to_owned()).unwrap());
    followed.reads_nothing().await;
    symlink("..2", at("..next")).unwrap();
    fs::rename(at("..next"), at("..data")).unwrap();
    followed.reads("two").await;
}

#[tokio::test]
async fn follows_folders_that_are_replaced_and_targets_of_links() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let release = |name: &str| {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("api.yaml"), text(name)).unwrap();
    };
    ["one", "two", "limits"].into_iter().for_each(release);
    symlink("one", at("current")).unwrap();
    symlink("two/api.yaml", at("link.yaml")).unwrap();
    let [mut linked, mut file, mut replaced] =
        ["current", "link.yaml", "limits"].map(|name| Followed::new(Live::load(at(name)).unwrap()));
    // All are looked at by then.
    linked.reads_nothing().await;
    // A link is switched.
    symlink("two", at("next")).unwrap();
    fs::rename(at("next"), at("current")).unwrap();
    linked.reads("two").await;
    // The target of a link is edited.
    fs::write(at("two/api.yaml"), text("edited")).unwrap();
    file.reads("edited").await;
    linked.reads("edited").await;
    // A folder is missing for a while, and then replaced.
    for number in 0..2 {
        fs::rename(at("limits"), at(&format!("old{number}"))).unwrap();
        let mistake = replaced.next().await.unwrap_err();
        assert!(mistake.contains("cannot be read"), "{mistake}");
        release("limits");
        replaced.reads("limits").await;
        fs::write(at("limits/api.yaml"), text("later")).unwrap();
        replaced.reads("later").await;
    }
}
