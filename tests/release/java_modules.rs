//! Compares the modules in Java with project.toml and with each other.

use super::{files, manifests::project, root, text};
use std::collections::BTreeSet;

/// The group of all modules, and the package of their classes.
const GROUP: &str = "redisthrottle";

/// Returns the text of the first element of this name in XML without attributes.
fn element<'text>(xml: &'text str, name: &str) -> &'text str {
    let (_, rest) = xml.split_once(&format!("<{name}>")).unwrap_or_else(|| panic!("no {name}"));
    rest.split_once(&format!("</{name}>")).expect("an end").0.trim()
}

/// Returns the folder and the text of each pom below the parent, without the `parent` element.
fn modules() -> Vec<(String, String)> {
    let parent = text("clients/java/pom.xml");
    let folders = element(&parent, "modules").split("<module>").skip(1);
    let folders = folders.map(|rest| rest.split_once("</module>").expect("an end").0);
    let read = |folder: &str| (folder.to_owned(), text(&format!("clients/java/{folder}/pom.xml")));
    let modules: Vec<_> = folders.map(read).collect();
    assert!(modules.len() > 2, "only {} modules", modules.len());
    modules
}

#[test]
fn every_pom_has_the_group_and_the_version_of_the_project() {
    let parent = text("clients/java/pom.xml");
    let name = project("name");
    assert_eq!(element(&parent, "groupId"), GROUP);
    assert_eq!(element(&parent, "artifactId"), format!("{name}-parent"));
    assert_eq!(element(&parent, "version"), project("version"));
    assert_eq!(element(&parent, "url"), project("url"));
    assert_eq!(element(element(&parent, "license"), "name"), project("license"));
    let listed: BTreeSet<_> = modules().into_iter().map(|(folder, _)| folder).collect();
    for (folder, pom) in modules().into_iter().filter(|(folder, _)| folder != "bom") {
        let (of_parent, own) = pom.split_once("</parent>").expect("a parent");
        assert_eq!(element(of_parent, "groupId"), GROUP, "{folder}");
        assert_eq!(element(of_parent, "artifactId"), format!("{name}-parent"), "{folder}");
        assert_eq!(element(of_parent, "version"), project("version"), "{folder}");
        let artifact = element(own, "artifactId");
        let is_released = folder.starts_with(&name);
        let expected = if is_released { folder.clone() } else { format!("{name}-{folder}") };
        assert_eq!(artifact, expected, "{folder}");
        // A version that is not the project's is a property, of the parent or of the module.
        let all = own.matches("<version>").count();
        assert_eq!(all, own.matches("<version>${").count(), "{folder} names a version");
        assert!(!element(own, "description").is_empty(), "{folder}");
    }
    for pom in files("clients/java", &["/pom.xml"]) {
        let folder = pom.parent().and_then(|folder| folder.file_name()).expect("a folder");
        let folder = folder.to_str().expect("UTF-8");
        assert!(folder == "java" || listed.contains(folder), "{folder} is not built");
    }
}

/// Programs of this repository that use the modules as a user does, without the parent.
#[test]
fn programs_in_java_use_the_modules_of_the_project() {
    let name = project("name");
    for folder in ["examples/spring-boot", "benches/clients/java"] {
        let pom = text(&format!("{folder}/pom.xml"));
        let uses: Vec<_> = pom
            .split("<dependency>")
            .filter(|one| one.contains(&format!("<artifactId>{name}")))
            .map(|one| (element(one, "groupId"), element(one, "version")))
            .collect();
        assert_eq!(uses, [(GROUP, project("version").as_str())], "{folder}");
    }
    let parent = text("clients/java/pom.xml");
    let starter = text(&format!("clients/java/{name}-spring-boot-starter/pom.xml"));
    let example = text("examples/spring-boot/pom.xml");
    let bench = text("benches/clients/java/pom.xml");
    let release = element(&parent, "maven.compiler.release");
    assert_eq!(element(&example, "java.version"), release);
    assert_eq!(element(&bench, "maven.compiler.release"), release);
    assert_eq!(element(&bench, "lettuce.version"), element(&parent, "lettuce.version"));
    let boot = element(&starter, "spring-boot.version");
    assert_eq!(element(element(&example, "parent"), "version"), boot);
}

#[test]
fn bom_has_every_module_in_java_and_nothing_else() {
    let bom = text("clients/java/bom/pom.xml");
    assert!(
        !bom.contains("<parent>"),
        "a parent's managed versions would reach a project that imports the BOM"
    );
    let managed = element(&bom, "dependencyManagement");
    let ours = format!("<groupId>{GROUP}</groupId>");
    assert_eq!(managed.matches("<groupId>").count(), managed.matches(&ours).count());
    let (own, _) = bom.split_once("<dependencyManagement>").expect("modules");
    assert_eq!(element(own, "groupId"), GROUP);
    assert_eq!(element(own, "artifactId"), format!("{}-bom", project("name")));
    assert_eq!(element(own, "version"), project("version"));
    assert_eq!(element(own, "url"), project("url"));
    assert_eq!(element(element(own, "license"), "name"), project("license"));
    for (folder, pom) in modules() {
        let is_released = folder != "bom" && !pom.contains("<maven.deploy.skip>true<");
        let row = format!("<artifactId>{folder}</artifactId>");
        assert_eq!(managed.contains(&row), is_released, "{folder}");
    }
}

#[test]
fn every_module_in_java_needs_the_same_java() {
    let parent = text("clients/java/pom.xml");
    let release = element(&parent, "maven.compiler.release");
    assert_eq!(element(element(&parent, "requireJavaVersion"), "version"), format!("[{release},)"));
    for (folder, pom) in modules() {
        for other in ["<maven.compiler.", "<java.version>", "<release>", "<source>", "<target>"] {
            assert!(!pom.contains(other), "{folder} states {other} itself");
        }
    }
    assert!(text("scripts/clients.sh").contains(&format!("JDK {release} or newer")));
    let prerequisites = text("scripts/install-prerequisites.sh");
    assert!(prerequisites.contains(&format!("a JDK of version {release} or newer")));
    for page in ["clients/java/README.md", "docs/clients/java.md"] {
        let words = text(page).replace('\n', " ");
        assert!(words.contains(&format!("Java {release} or newer")), "{page}");
        assert_eq!(element(&words, "version"), project("version"), "{page}");
        assert_eq!(element(&words, "groupId"), GROUP, "{page}");
    }
}

#[test]
fn sources_in_java_are_in_packages_of_the_group() {
    for (folder, _) in modules() {
        let sources = root().join("clients/java").join(&folder).join("src/main/java");
        if folder == "bom" || !sources.exists() {
            continue;
        }
        let packages = std::fs::read_dir(sources).expect("a folder of the repository");
        let names: Vec<_> = packages.map(|entry| entry.expect("an entry").file_name()).collect();
        assert_eq!(names, [GROUP], "{folder}");
    }
}
