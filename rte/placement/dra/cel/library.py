"""The two environments of the CEL library: one checks expressions, one evaluates them.

Every expression is *checked* with Kubernetes' own types (a quantity is no number, a version no
text) and *evaluated* with those that the library can carry (:mod:`~rte.placement.dra.cel.values`).
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any

from rte.placement.dra.cel.functions import internal, table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cel_expr_python import cel

    from rte.placement.dra.cel.functions import CELFunction
    from rte.reader.json import JsonObject

#: Types of Kubernetes' own.
_ABSTRACT = ("Quantity", "Semver", "IP", "CIDR", "URL")
#: What an untyped value can be at run time.
_ANY = ("bool", "int", "uint", "double", "string", "bytes", "list", "map")
#: Of the libraries loaded: functions that Kubernetes does not have.
NOT_IN_KUBERNETES = frozenset({"string_reverse", "reverse_string"})


def _variables(library: Any) -> JsonObject:
    types = library.Type

    def domains(inner: Any) -> Any:
        return types.Map(types.STRING, types.Map(types.STRING, inner))

    return {
        "device.driver": types.STRING,
        "device.allowMultipleAllocations": types.BOOL,
        "device.attributes": domains(types.DYN),
        "device.capacity": domains(types.AbstractType("kubernetes.Quantity")),
    }


#: In place of the maps where a domain is looked up: these have every domain that is asked for.
LOOKED_UP = {"device.attributes": "device@attributes", "device.capacity": "device@capacity"}


@cache
def environments() -> tuple[cel.Env, cel.Env]:
    """The environment that checks and the one that evaluates."""
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

    extensions = [ext_bindings.ExtBindings(), ext_optional.ExtOptional(), ext_strings.ExtStrings()]
    variables = _variables(cel)
    any_map = cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
    running = dict.fromkeys((*LOOKED_UP, *LOOKED_UP.values()), any_map)
    functions = tuple(table())
    check = cel.NewEnv(
        variables=variables, extensions=extensions, functions=_declare(cel, functions)
    )
    run = cel.NewEnv(
        variables=variables | running,
        extensions=extensions,
        functions=_implement(cel, (*functions, *internal())),
    )
    return check, run


def understands(function: str, text: str) -> bool:
    """Whether ``duration``, ``timestamp`` or ``matches`` can do something with a text."""
    _, run = environments()
    literal = json.dumps(text, ensure_ascii=False)
    call = f'"".matches({literal})' if function == "matches" else f"{function}({literal})"
    name: str = run.compile(call).eval(data={}).type().name()
    return name != "ERROR"


def _declare(library: Any, functions: Iterable[CELFunction]) -> list[Any]:
    """The functions with Kubernetes' types, not to be run."""
    types = library.Type
    known = {name: types.AbstractType(f"kubernetes.{name}") for name in _ABSTRACT}
    known |= {"list": types.List(types.DYN), "map": types.Map(types.DYN, types.DYN)}
    known["lists"] = types.List(known["list"])
    by_name: dict[str, list[Any]] = defaultdict(list)
    for function in functions:
        by_name[function.name.removeprefix(".")].append(
            library.Overload(
                function.id,
                return_type=_type(library, known, function.result),
                parameters=[_type(library, known, name) for name in function.parameters],
                is_member=function.name.startswith("."),
            )
        )
    return _collect(library, by_name)


def _implement(library: Any, functions: Iterable[CELFunction]) -> list[Any]:
    """The functions with the library's types: one overload for all that share them."""
    types = library.Type
    known = dict.fromkeys(_ABSTRACT, types.BYTES) | {"list": types.LIST, "map": types.MAP}
    known["lists"] = types.LIST
    by_name: dict[str, list[Any]] = defaultdict(list)
    seen = set()
    for function in functions:
        if function.run is None:
            continue
        options = [_ANY if name == "dyn" else (name,) for name in function.parameters]
        for kinds in itertools.product(*options):
            plain = tuple("bytes" if kind in _ABSTRACT else kind for kind in kinds)
            if (function.name, plain) in seen:
                continue
            seen.add((function.name, plain))
            by_name[function.name.removeprefix(".")].append(
                library.Overload(
                    f"{function.id}_{'_'.join(plain)}"
                    if "dyn" in function.parameters
                    else function.id,
                    return_type=_type(library, known, function.result),
                    parameters=[_type(library, known, kind) for kind in plain],
                    is_member=function.name.startswith("."),
                    impl=function.run,
                )
            )
    return _collect(library, by_name)


def _type(library: Any, known: JsonObject, name: str) -> Any:
    return known[name] if name in known else getattr(library.Type, name.upper())


def _collect(library: Any, by_name: dict[str, list[Any]]) -> list[Any]:
    return [library.FunctionDecl(name, overloads) for name, overloads in by_name.items()]
