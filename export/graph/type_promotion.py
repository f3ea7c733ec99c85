"""Does a program leave any type promotion (int + float) implicit?

torch's exporter makes promotions explicit by running every operator of the program once more on fake
tensors, which on a deep model is a sixth of the export. Where all types agree already, that changes nothing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .onnx_functions import overload

if TYPE_CHECKING:
    import torch

__all__ = ["promotes_nothing", "without_promotion"]

# The exporter walks `graph_module.modules()` in two passes, both of which `without_promotion` makes void.
# With another torch there may be a third, so there the passes run.
_TWO_PASSES = ("2.13.",)


def without_promotion(program: torch.export.ExportedProgram) -> None:
    """Let the exporter's promotion pass find nothing, if there is nothing for it to do.

    Assertions must have been removed from `program`; the other pass that walks the modules does only that.
    """
    import torch

    if torch.__version__.startswith(_TWO_PASSES) and promotes_nothing(program.graph):
        vars(program.graph_module)["modules"] = lambda: iter(())


def promotes_nothing(graph: torch.fx.Graph) -> bool:
    """Whether torch's promotion rules leave the types of all arguments as they are."""
    return not any(_promotes(node) for node in graph.nodes)


def _promotes(node: torch.fx.Node) -> bool:
    import torch

    op = overload(node)
    rule = _rules().get_rule(op.overloadpacket) if op is not None else None
    if rule is None:
        return False
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda argument: argument.meta["val"])
    preview = rule.preview_type_promotion(args, kwargs)
    named = [(kwargs[name], dtype) for name, dtype in preview.kwargs_dtypes.items()]
    return any(_differs(args[index], dtype) for index, dtype in preview.args_dtypes.items()) or any(
        _differs(value, dtype) for value, dtype in named
    )


def _differs(value: Any, dtype: torch.dtype | None) -> bool:
    import torch

    if isinstance(value, (tuple, list)):
        return any(_differs(item, dtype) for item in value)
    if isinstance(value, torch.Tensor) or dtype is None:
        return dtype is not None and value.dtype != dtype
    from torch.onnx._internal.fx.type_utils import from_scalar_type_to_torch_dtype

    return from_scalar_type_to_torch_dtype(type(value)) != dtype


@lru_cache(maxsize=1)
def _rules() -> Any:
    from torch.onnx._internal.fx.passes.type_promotion import TypePromotionTable

    return TypePromotionTable()
