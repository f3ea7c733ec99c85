"""A traced program to change: the graph is a copy, weights are shared."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["copy_program", "drop_constant_outputs"]


def copy_program(program: ExportedProgram) -> ExportedProgram:
    """A program whose graph and signature can be changed without changing `program`'s."""
    import torch

    module = copy.deepcopy(program.graph_module)
    for original, node in zip(program.graph.nodes, module.graph.nodes, strict=True):
        node.name = original.name  # the copy calls `input`, the name of a builtin, `input_1`
    return torch.export.ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=copy.deepcopy(program.graph_signature),
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=copy.deepcopy(program.module_call_graph),
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=program.verifiers,
    )


def drop_constant_outputs(program: ExportedProgram) -> None:
    """Leave out of the results what is no tensor, a number or None, in place: outputs of ONNX are tensors."""
    from torch.export.graph_signature import OutputKind, TensorArgument
    from torch.utils import _pytree as pytree

    signature = program.graph_signature
    kept = [
        k
        for k, s in enumerate(signature.output_specs)
        if s.kind is not OutputKind.USER_OUTPUT or isinstance(s.arg, TensorArgument)
    ]
    if len(kept) == len(signature.output_specs):
        return
    output = program.graph.output_node()
    results = output.args[0]
    assert isinstance(results, (tuple, list))
    output.args = (tuple(results[k] for k in kept),)
    signature.output_specs[:] = [signature.output_specs[k] for k in kept]
    returned = [s for s in signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
    call = program.module_call_graph[0].signature
    if call is not None:
        call.outputs = [s.arg for s in returned]
        call.out_spec = pytree.tree_structure((0,) * len(returned))
    program.graph_module.recompile()
