"""The fields of a spec are few enough to be known: a new one needs one that goes."""

from privplan.spec.spec import Spec

MOST = 91


def fields(schema):
    """Every named field of a JSON schema by its path, with nested ones and those of variants."""
    found = set()

    def walk(node, path):
        if "$ref" in node:
            walk(schema["$defs"][node["$ref"].rsplit("/", 1)[-1]], path)
        for word in ("anyOf", "oneOf", "allOf", "prefixItems"):
            for one in node.get(word, ()):
                walk(one, path)
        if isinstance(node.get("items"), dict):
            walk(node["items"], path)
        for name, inner in node.get("properties", {}).items():
            found.add(path + name)
            walk(inner, f"{path}{name}.")

    walk(schema, "")
    return found


def test_a_spec_has_no_more_fields():
    found = fields(Spec.model_json_schema())
    assert "planning.constants.smoothness" in found
    assert len(found) <= MOST, sorted(found)
