//! Checks that the manifests fit each other. tests/monitoring compares them with their schemas, the
//! gateway's own tests start it with their arguments and their file of limits, and tests/dist
//! starts a server with its configuration.

use super::{VERSION, text};
use saphyr::{LoadableYamlNode as _, Yaml};

/// Returns the documents of a file of deploy.
fn documents(name: &str) -> Vec<Yaml<'static>> {
    Yaml::load_from_str(text(&format!("deploy/{name}")).leak()).expect("YAML")
}

fn of_kind<'yaml>(all: &'yaml [Yaml<'static>], kind: &str) -> &'yaml Yaml<'static> {
    let mut found = all.iter().filter(|document| document["kind"].as_str() == Some(kind));
    found.next().unwrap_or_else(|| panic!("no {kind}"))
}

fn string<'yaml>(yaml: &'yaml Yaml<'_>) -> &'yaml str {
    yaml.as_str().expect("a text")
}

fn number(yaml: &Yaml<'_>) -> i64 {
    yaml.as_integer().expect("a number")
}

fn list<'yaml>(yaml: &'yaml Yaml<'static>) -> &'yaml [Yaml<'static>] {
    yaml.as_sequence().expect("a list")
}

/// Returns the ports of a container or a service, by `field`, with their names.
fn ports<'yaml>(yaml: &'yaml Yaml<'static>, field: &str) -> Vec<(&'yaml str, i64)> {
    list(&yaml["ports"]).iter().map(|port| (string(&port["name"]), number(&port[field]))).collect()
}

#[test]
fn kubernetes_objects_select_and_mount_each_other() {
    let all = documents("gateway/kubernetes.yaml");
    let pod = &of_kind(&all, "Deployment")["spec"]["template"];
    let selects = |kind: &str| &of_kind(&all, kind)["spec"]["selector"];
    for labels in [
        &selects("Deployment")["matchLabels"],
        &selects("PodDisruptionBudget")["matchLabels"],
        selects("Service"),
    ] {
        assert_eq!(labels, &pod["metadata"]["labels"]);
    }
    let service = of_kind(&all, "Service");
    let monitored = &selects("ServiceMonitor")["matchLabels"];
    assert_eq!(monitored, &service["metadata"]["labels"]);
    let container = &pod["spec"]["containers"][0];
    let exposed = ports(container, "containerPort");
    assert_eq!(ports(&service["spec"], "port"), exposed);
    let scraped = &of_kind(&all, "ServiceMonitor")["spec"]["endpoints"][0];
    assert!(exposed.iter().any(|(name, _)| *name == string(&scraped["port"])));
    let mount = &container["volumeMounts"][0];
    let volume = &pod["spec"]["volumes"][0];
    assert_eq!(mount["name"], volume["name"]);
    let limits = of_kind(&all, "ConfigMap");
    assert_eq!(volume["configMap"]["name"], limits["metadata"]["name"]);
    let folder = format!("--config={}", string(&mount["mountPath"]));
    assert_eq!(string(&container["args"][0]), folder);
}

#[test]
fn kubernetes_pod_listens_on_its_ports_drains_and_has_no_rights() {
    let all = documents("gateway/kubernetes.yaml");
    let pod = &of_kind(&all, "Deployment")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert!(string(&container["image"]).ends_with(&format!(":{VERSION}")));
    let arguments: Vec<_> = list(&container["args"]).iter().map(string).collect();
    for (name, port) in ports(container, "containerPort") {
        assert!(arguments.contains(&format!("--{name}=0.0.0.0:{port}").as_str()), "{name}");
    }
    assert_eq!(string(&container["readinessProbe"]["httpGet"]["port"]), "http");
    assert_eq!(string(&container["readinessProbe"]["httpGet"]["path"]), "/healthcheck");
    let probed = number(&container["livenessProbe"]["grpc"]["port"]);
    assert!(ports(container, "containerPort").contains(&("grpc", probed)));
    let pause = string(&container["lifecycle"]["preStop"]["exec"]["command"][1]);
    let drained = pause.parse::<i64>().expect("seconds") + 10;
    assert!(number(&pod["terminationGracePeriodSeconds"]) > drained);
    let rights = &container["securityContext"];
    assert_eq!(rights["allowPrivilegeEscalation"].as_bool(), Some(false));
    for required in ["readOnlyRootFilesystem", "runAsNonRoot"] {
        assert_eq!(rights[required].as_bool(), Some(true), "{required}");
    }
    assert_eq!(string(&container["env"][0]["name"]), "REDIS_THROTTLE_SERVERS");
    assert!(container["env"][0]["valueFrom"].contains_mapping_key("secretKeyRef"));
}

#[test]
fn istio_filter_names_the_service_and_a_domain_of_its_limits() {
    let all = documents("gateway/kubernetes.yaml");
    let service = of_kind(&all, "Service");
    let name = format!("{}.default.svc.cluster.local", string(&service["metadata"]["name"]));
    let filters = documents("gateway/istio.yaml");
    let patches = list(&of_kind(&filters, "EnvoyFilter")["spec"]["configPatches"]);
    let filter = &patches[0]["patch"]["value"]["typed_config"];
    let target = &filter["rate_limit_service"]["grpc_service"]["envoy_grpc"];
    let (_, port) = ports(&service["spec"], "port")[0];
    assert_eq!(string(&target["cluster_name"]), format!("outbound|{port}||{name}"));
    assert_eq!(string(&target["authority"]), name);
    let limits = string(&of_kind(&all, "ConfigMap")["data"]["api.yaml"]);
    assert!(limits.starts_with(&format!("domain: {}\n", string(&filter["domain"]))));
    let descriptors = list(&patches[1]["patch"]["value"]["rate_limits"]);
    assert_eq!(descriptors.len(), limits.matches("match:").count());
}

#[test]
fn prometheus_rule_holds_the_alerts_of_the_exporter() {
    let manifest = text("deploy/kubernetes/prometheus-rule.yaml");
    let (head, groups) = manifest.split_once("\nspec:\n").expect("a spec");
    assert!(head.ends_with("kind: PrometheusRule\nmetadata:\n  name: redis-throttle"), "{head}");
    let alerts = text("deploy/prometheus/alerts.yml");
    let (_, alerts) = alerts.split_once("\ngroups:\n").expect("groups");
    let indent = |line: &str| if line.is_empty() { "\n".into() } else { format!("  {line}\n") };
    let expected: String = format!("groups:\n{alerts}").lines().map(indent).collect();
    assert_eq!(groups, expected, "copy the groups of alerts.yml, two columns to the right");
}

#[test]
fn kubernetes_server_and_exporter_select_and_mount_each_other() {
    let all = documents("kubernetes/redis-throttle.yaml");
    let set = of_kind(&all, "StatefulSet");
    let pod = &set["spec"]["template"];
    let services: Vec<_> =
        all.iter().filter(|document| document["kind"].as_str() == Some("Service")).collect();
    let [service, headless] = services[..] else { panic!("{services:?}") };
    for labels in [
        &set["spec"]["selector"]["matchLabels"],
        &service["spec"]["selector"],
        &headless["spec"]["selector"],
        &of_kind(&all, "ServiceMonitor")["spec"]["selector"]["matchLabels"],
        &service["metadata"]["labels"],
    ] {
        assert_eq!(labels, &pod["metadata"]["labels"]);
    }
    assert_eq!(set["spec"]["serviceName"], headless["metadata"]["name"]);
    assert_eq!(headless["spec"]["clusterIP"].as_str(), Some("None"));
    let containers = list(&pod["spec"]["containers"]);
    let exposed = containers.iter().flat_map(|container| ports(container, "containerPort"));
    assert_eq!(ports(&service["spec"], "port"), exposed.collect::<Vec<_>>());
    let claims = list(&set["spec"]["volumeClaimTemplates"]).iter();
    let volumes = list(&pod["spec"]["volumes"]).iter();
    let names: Vec<_> =
        claims.map(|it| &it["metadata"]["name"]).chain(volumes.map(|it| &it["name"])).collect();
    let mounted = list(&containers[0]["volumeMounts"]).iter().map(|it| &it["name"]);
    assert_eq!(mounted.collect::<Vec<_>>(), names);
}
