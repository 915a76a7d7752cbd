use std::fs;
use std::os::unix::fs::symlink;

use super::*;

fn text(domain: &str) -> String {
    format!("domain: {domain}\nlimits:\n  - {{match: {{user: '*'}}, rule: FIXED 1 1h}}\n")
}

async fn until(live: &Live, domain: &str) {
    let found = async {
        while live.current().domain(domain).is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), found).await.expect(domain);
}

#[tokio::test]
async fn follows_changes_and_keeps_the_old_configuration_after_a_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("api.yaml");
    fs::write(&file, text("one")).unwrap();
    let live = Live::load(folder.path().to_owned()).unwrap();
    let (mistakes, mut said) = tokio::sync::mpsc::unbounded_channel();
    let done = move |loaded: Result<_, Vec<Remark>>| {
        let _ = loaded.map_err(|all| mistakes.send(all[0].to_string()));
    };
    let following = tokio::spawn(live.clone().follow(Arc::new(Notify::new()), done));
    // The watch may begin after the first change, so change the file until it is seen.
    for number in 0.. {
        let domain = format!("two{number}");
        fs::write(&file, text(&domain)).unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        if live.current().domain(&domain).is_some() {
            break;
        }
        assert!(number < 100, "no change is seen");
    }
    fs::write(&file, "domain: three\nlimits: 1\n").unwrap();
    let mistake = said.recv().await.unwrap();
    assert!(mistake.starts_with(&format!("{}:2:9: ", file.display())), "{mistake}");
    assert!(live.current().domain("three").is_none());
    fs::write(&file, text("four")).unwrap();
    until(&live, "four").await;
    following.abort();
}

#[tokio::test]
async fn follows_the_links_of_a_config_map() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (version, domain) in [("..1", "one"), ("..2", "two")] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("api.yaml"), text(domain)).unwrap();
    }
    symlink("..1", at("..data")).unwrap();
    symlink("..data/api.yaml", at("api.yaml")).unwrap();
    let live = Live::load(folder.path().to_owned()).unwrap();
    let asked = Arc::new(Notify::new());
    let following = tokio::spawn(live.clone().follow(asked.clone(), |_| ()));
    asked.notify_one();
    until(&live, "one").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    symlink("..2", at("..next")).unwrap();
    fs::rename(at("..next"), at("..data")).unwrap();
    until(&live, "two").await;
    following.abort();
}

#[tokio::test]
async fn other_files_of_the_folder_are_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("api.yaml"), text("one")).unwrap();
    for path in [folder.path().to_owned(), at("api.yaml")] {
        let log = at("log");
        let live = Live::load(path).unwrap();
        let (read, mut times) = tokio::sync::mpsc::unbounded_channel();
        let done = move |_: Result<_, Vec<Remark>>| {
            // As a log in the same folder does.
            fs::write(&log, "a line").unwrap();
            let _ = read.send(());
        };
        let asked = Arc::new(Notify::new());
        let following = tokio::spawn(live.follow(asked.clone(), done));
        asked.notify_one();
        times.recv().await.unwrap();
        let again = tokio::time::timeout(Duration::from_secs(1), times.recv()).await;
        assert!(again.is_err());
        following.abort();
    }
}
