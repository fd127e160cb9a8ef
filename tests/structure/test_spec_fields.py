"""The fields of a spec are few enough to be known: a new one needs one that goes."""

from privplan.spec.spec import Spec

MAX_FIELDS = 92


def fields(schema):
    """Every named field of a JSON schema by its path, nested ones and variants too."""
    paths = set()

    def walk(node, path):
        if "$ref" in node:
            walk(schema["$defs"][node["$ref"].rsplit("/", 1)[-1]], path)
        for word in ("anyOf", "oneOf", "allOf", "prefixItems"):
            for variant in node.get(word, ()):
                walk(variant, path)
        if isinstance(node.get("items"), dict):
            walk(node["items"], path)
        for name, inner in node.get("properties", {}).items():
            paths.add(path + name)
            walk(inner, f"{path}{name}.")

    walk(schema, "")
    return paths


def test_a_spec_has_no_more_fields():
    paths = fields(Spec.model_json_schema())
    assert "planning.constants.smoothness" in paths
    assert len(paths) <= MAX_FIELDS, sorted(paths)
