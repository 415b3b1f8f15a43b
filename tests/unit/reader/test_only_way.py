"""Nothing parses JSON or YAML of somebody else but ``rte.reader``, where the budget is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

#: The parsers, by module: what of them takes a text.
PARSERS = {
    "json": {"load", "loads", "JSONDecoder", "decoder", "scanner"},
    "orjson": {"loads"},
    "msgspec": {"yaml", "msgpack", "toml"},
    "msgspec.json": {"decode", "Decoder"},
    "msgspec.yaml": {"decode"},
    "yaml": {
        *("load", "load_all", "safe_load", "safe_load_all", "full_load", "full_load_all"),
        *("unsafe_load", "unsafe_load_all", "parse", "scan", "compose", "compose_all"),
        *("Loader", "BaseLoader", "FullLoader", "SafeLoader", "CLoader", "CSafeLoader"),
    },
}
#: Files of the package itself, and what this process has written before: nobody else's.
OWN = {
    "rte/sim/apiserver/schema/typed.py": "a file of the package",
    "rte/sim/apiserver/schema/protobuf.py": "a file of the package",
    "rte/sim/apiserver/schema/openapi.py": "a file of the package",
    "rte/sim/apiserver/schema/defaults.py": "a file of the package",
    "rte/sim/apiserver/kinds/builtin.py": "a file of the package",
    "rte/sim/apiserver/schema/generate_api.py": "run by hand, on Kubernetes' own source",
    "rte/sim/apiserver/schema/generate_types.py": "run by hand, on Kubernetes' own source",
    "rte/sim/demo/cluster.py": "a file of the package",
    "rte/sim/apiserver/schema/fieldsets.py": "keys that the process has made itself",
    "rte/view/history.py": "what the process keeps, as text because that is smaller",
}


def parses(source: str) -> list[str]:
    """Uses of a parser, but for copies: ``loads(dumps(value))``."""
    tree = ast.parse(source)
    modules: dict[str, str] = {}
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                modules[(name.asname or name.name).partition(".")[0]] = (
                    name.name if name.asname else name.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                if f"{node.module}.{name.name}" in PARSERS:
                    modules[name.asname or name.name] = f"{node.module}.{name.name}"
                elif name.name in PARSERS.get(node.module, ()):
                    found.append(f"{node.lineno}: {node.module}.{name.name}")
    copies = {
        node.func
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(".loads")
        and node.args
        and isinstance(node.args[0], ast.Call)
        and ast.unparse(node.args[0].func).endswith(".dumps")
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node not in copies:
            head, _, rest = ast.unparse(node.value).partition(".")
            module = ".".join(part for part in (modules.get(head), rest) if part)
            if node.attr in PARSERS.get(module, ()):
                found.append(f"{node.lineno}: {module}.{node.attr}")
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "getattr"
            and len(node.args) > 1
        ):
            module = modules.get(ast.unparse(node.args[0]), "")
            name = node.args[1]
            if isinstance(name, ast.Constant) and name.value in PARSERS.get(module, ()):
                found.append(f"{node.lineno}: {module}.{name.value}")
    return found


@pytest.mark.parametrize(
    "source",
    [
        "import json\njson.loads(x)",
        "import orjson as o\no.loads(x)",
        "from json import loads",
        "import msgspec\nmsgspec.json.decode(x)",
        "import msgspec\nD = msgspec.json.Decoder(int)",
        "from msgspec import json\njson.decode(x)",
        "def f():\n    import yaml\n    return yaml.safe_load(x)",
        "import yaml\ngetattr(yaml, 'CSafeLoader', None)",
        "import json\njson.loads(read(json.dumps(x)))",
    ],
)
def test_each_way_to_parse_is_seen(source: str) -> None:
    assert parses(source)


def test_a_copy_is_no_parsing() -> None:
    assert not parses("import orjson\norjson.loads(orjson.dumps(x))\norjson.dumps(x)")


def test_only_the_reader_parses() -> None:
    files = [path for path in (ROOT / "rte").rglob("*.py") if path.parent.name != "reader"]
    assert len(files) > 400
    found = {
        str(path.relative_to(ROOT)): uses
        for path in files
        if (uses := parses(path.read_text(encoding="utf-8")))
    }
    assert set(found) == set(OWN), {name: found[name] for name in set(found) - set(OWN)}
