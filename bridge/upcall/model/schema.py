"""JSON Schema of the session protocol, generated from the frames themselves.

`python -m upcall.model.schema > config/schema/frames.schema.json` writes it anew; a test
compares the file with what this makes.
"""

import json
import sys
from typing import Any, Final, get_args

import msgspec

from upcall.model import control, frames
from upcall.model.limits import PROTOCOL_VERSION

_REF: Final = "#/$defs/{name}"
# Any here: a JSON Schema is whatever JSON it is.
Schema = dict[str, Any]


def frames_schema() -> Schema:
    """Return the schema of every frame, by who sends it.

    `$defs` has one entry for each frame, and `SessionFrame` and `ClientFrame` for all that
    either side sends.
    """
    session = (*get_args(frames.SessionFrame), *get_args(control.ControlSessionFrame))
    client = (*get_args(frames.ClientFrame), *get_args(control.ControlClientFrame))
    every = tuple(dict.fromkeys((*session, *client)))
    _, parts = msgspec.json.schema_components(every, ref_template=_REF)
    definitions = {name: parts[name] for name in sorted(parts)}
    definitions["SessionFrame"] = _union(session)
    definitions["ClientFrame"] = _union(client)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Frames of the session protocol, version {PROTOCOL_VERSION}",
        "description": (
            "One JSON object each. Absent fields are left out; unknown fields and types are"
            " ignored by either side, except in closed objects."
        ),
        "anyOf": [{"$ref": "#/$defs/SessionFrame"}, {"$ref": "#/$defs/ClientFrame"}],
        "$defs": definitions,
    }


def schema_text() -> str:
    """Return the schema as the text of its file."""
    return json.dumps(frames_schema(), indent=2, ensure_ascii=False) + "\n"


def _union(classes: tuple[type[msgspec.Struct], ...]) -> Schema:
    mapping = {str(cls.__struct_config__.tag): f"#/$defs/{cls.__name__}" for cls in classes}
    return {
        "anyOf": [{"$ref": ref} for ref in mapping.values()],
        "discriminator": {"propertyName": "type", "mapping": mapping},
    }


if __name__ == "__main__":
    sys.stdout.write(schema_text())
