"""Validates manifests for Kubernetes against their schemas, without a cluster.

    manifests.py FILE...

Objects of Kubernetes are checked with the schemas of every version of Kubernetes in the package
`kubernetes-validate`. The schemas of the Prometheus Operator are in the folder `schemas`. Fields
that a schema lacks are errors. Prints a line for each valid object.
"""

import json
import pathlib
import sys

import jsonschema
import kubernetes_validate
import yaml
from kubernetes_validate.utils import all_versions

SCHEMAS = pathlib.Path(__file__).parent / "schemas"


def strict(schema: object) -> object:
    """Returns a schema in which an object has no fields except its properties."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: strict(part) for name, part in schema.items()}
    if isinstance(closed.get("properties"), dict) and closed.get("type") == "object":
        closed.setdefault("additionalProperties", False)
    return closed


def validate(document: dict) -> str:
    """Checks one object, and returns the versions of its schemas."""
    if document["apiVersion"].startswith("monitoring.coreos.com/"):
        path = SCHEMAS / f"{document['kind'].lower()}.json"
        jsonschema.Draft202012Validator(strict(json.loads(path.read_text()))).validate(document)
        return path.name
    versions = all_versions()
    checked = {kubernetes_validate.validate(document, it, strict=True) for it in versions}
    return f"{versions[0]} to {versions[-1]}, {len(checked)} versions"


def main() -> None:
    """Validates all documents of the files."""
    for name in sys.argv[1:]:
        for document in yaml.safe_load_all(pathlib.Path(name).read_text()):
            label = f"{name}: {document['kind']} {document['metadata']['name']}"
            try:
                print(f"{label}: {validate(document)}")
            except Exception as error:
                sys.exit(f"{label}: {error}")


main()
