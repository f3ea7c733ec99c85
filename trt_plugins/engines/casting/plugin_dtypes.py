"""Which dtypes the plugins of a library take, from the manifest beside it: the library is not loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ....errors import UsageError

__all__ = ["PluginDtypes", "plugin_dtypes"]

OperatorKey = tuple[str, str]  # domain and type of a node


@dataclass(frozen=True, slots=True)
class PluginDtypes:
    """What a plugin takes.

    Attributes:
        inputs: names in order. variadic: the place of the list among them, where there is one.
        outputs: names in order.
        rows: dtypes by input and by output, `float16`; one for each kernel.
        data_sizes: the data decides how large some output is.
    """

    inputs: tuple[str, ...]
    variadic: int | None
    outputs: tuple[str, ...]
    rows: tuple[tuple[Mapping[str, str], Mapping[str, str]], ...]
    data_sizes: bool = False

    def name_of(self, place: int, count: int) -> str:
        """The input that a node's value at `place` is of; empty where it is none. `count`: of the node's inputs."""
        if self.variadic is None or place < self.variadic:
            return self.inputs[place] if place < len(self.inputs) else ""
        listed = count - (len(self.inputs) - 1)
        if place < self.variadic + listed:
            return self.inputs[self.variadic]
        after = place - listed + 1
        return self.inputs[after] if after < len(self.inputs) else ""


def plugin_dtypes(manifests: Iterable[Mapping[str, Any]]) -> dict[OperatorKey, PluginDtypes]:
    """By domain and type of the node, from manifests as `trt_plugins.manifest` writes them.

    Operators with two lists of tensors are left out: which value belongs to which list depends on the node.

    Raises UsageError for a manifest of another form.
    """
    found: dict[OperatorKey, PluginDtypes] = {}
    for manifest in manifests:
        try:
            for entry in manifest["plugins"]:
                forms = [str(i["form"]) for i in entry["inputs"]]
                if forms.count("variadic") > 1:
                    continue
                found[str(entry["plugin_namespace"]), str(entry["plugin_name"])] = PluginDtypes(
                    inputs=tuple(str(i["name"]) for i in entry["inputs"]),
                    variadic=forms.index("variadic") if "variadic" in forms else None,
                    outputs=tuple(str(o) for o in entry["outputs"]),
                    rows=tuple((_texts(r["inputs"]), _texts(r["outputs"])) for r in entry["signatures"]),
                    data_sizes=bool(entry.get("data_sizes")),
                )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise UsageError(
                f"the manifest of a plugin library is not as `deployops compile --target tensorrt` writes it ({error!r}): "
                "compile the library again"
            ) from None
    return found


def _texts(given: Mapping[str, Any]) -> dict[str, str]:
    return {str(k): str(v) for k, v in given.items()}
