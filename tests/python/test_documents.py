"""help() says what the stubs say: for every name, with its arguments, and nothing of how the module is made."""

import ast
import inspect
import pathlib
import pydoc
import re

import pytest

import talweg
import talweg.torch

COLLECTIVES = ("all_reduce", "reduce", "broadcast", "reduce_scatter", "all_gather", "all_to_all", "gather", "scatter")
# Words without which a docstring leaves its reader in the dark: units, shapes, errors.
WORDS = {
    **{f"Group.{name}": ["elements", "seconds", "errors", "help(talweg.Group)"] for name in (*COLLECTIVES, "send", "recv")},
    "Group": ["C-contiguous", "seconds", "elements", "0 to 7", "async_op", "mismatch", "timeout", "peer_failed", "aborted"],
    "Group.barrier": ["seconds", "errors"],
    "Group.split": ["None", "invalid_argument", "mismatch"],
    "Group.bounded_sums": ["0 to 0.5", '"zero"', '"rescale"', "8 KiB", "Raises Error", "invalid_argument", "mismatch"],
    "Group.set_timeout": ["seconds", "invalid_argument"],
    "Group.statistics": ["in bytes", "bytes_sent", "bytes_received", "peak_buffer_bytes", "shared_memory_bytes",
                         "bounded_lost_bytes", "bounded_packets_again"],
    "Group.explain": ["f32", "elements", "invalid_argument"],
    "BoundedSums.all_reduce": ["float32", "residual", "layers"],
    "BoundedSums.explain": ["elements"],
    "LossReport.lost_of_layer": ["Bytes"],
    "Work": ["async_op"],
    "Work.wait": ["seconds", "Raises Error"],
    "Work.exception": ["None"],
    "Error": ["code"],
    "ReduceOp": [*talweg.ReduceOp.__members__],
    "init": ["rank, size:", "seconds", "30 s", "file:/path", "Raises Error", "invalid_argument", "timeout"],
    "Backend.explain": ["f32", "elements", "ValueError"],
    "Backend.statistics": ["in bytes", "bytes_sent"],
    "plan": ["GB/s", "microseconds", "Raises Error", "\n    bytes="],
    "predict": ["microseconds", "Raises Error", "\n    job: "],
    "simulate": ["microseconds", "Raises Error", "\n    bytes="],
}


def stub_of(module):
    folder = pathlib.Path(talweg.__file__).parent
    return ast.parse((folder / f"{module.__name__.split('.')[-1]}.pyi").read_text(encoding="utf-8"))


def named_in(module):
    """(what Python has, its name, what the stub says) of every class, function and property."""
    found = []
    for node in stub_of(module).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found.append((getattr(module, node.name), node.name, node))
        if isinstance(node, ast.ClassDef):
            found += [(inspect.getattr_static(getattr(module, node.name), method.name), f"{node.name}.{method.name}", method)
                      for method in node.body if isinstance(method, ast.FunctionDef)]  # fmt: skip
    return found


NAMED = [*named_in(talweg._core), *named_in(talweg.torch._c10d)]


@pytest.mark.parametrize("thing, name, stub", NAMED, ids=[name for _, name, _ in NAMED])
def test_help_says_what_the_stub_says(thing, name, stub):
    said = inspect.getdoc(thing)
    assert ast.get_docstring(stub) and ast.get_docstring(stub) in said
    for word in WORDS.get(name, []):
        assert word in said, (name, word)
    if isinstance(stub, ast.ClassDef):  # whose help has what it inherits, too
        assert name == "Backend" or "Overloaded" not in pydoc.render_doc(thing)
        return
    shown = pydoc.plain(pydoc.render_doc(thing))
    assert "Overloaded" not in shown and "*args" not in shown and "talweg::" not in shown
    if not stub.decorator_list:
        assert said.startswith(f"{stub.name}(")
        signature = said.split("\n\n")[0]
        for argument in stub.args.args:
            assert re.search(rf"\b{argument.arg}\b", signature)


def test_every_word_is_asked_of_a_name_that_there_is():
    assert set(WORDS) <= {name for _, name, _ in NAMED}


def test_every_public_name_is_in_the_stub():
    names = {name for _, name, _ in NAMED}
    constants = {"ANY_RANK", "__version__", *talweg.ReduceOp.__members__}
    assert set(talweg.__all__) - constants <= names
    for type in (talweg.Group, talweg.Work, talweg.BoundedSums, talweg.LossReport):
        assert {f"{type.__name__}.{name}" for name in vars(type) if not name.startswith("_")} <= names
    for module in (talweg, talweg.torch, talweg.torch.backend, talweg.torch.compress_bfloat16):
        assert module.__doc__


def test_the_stub_has_the_arguments_that_there_are():
    with talweg.init(rank=0, size=1) as group:
        sums = group.bounded_sums()
        work = group.barrier(async_op=True)
        for thing, name, stub in named_in(talweg._core):
            if not isinstance(stub, ast.FunctionDef) or stub.decorator_list or stub.args.kwarg or name.endswith("__"):
                continue
            owner = {"Group": group, "Work": work, "BoundedSums": sums}.get(name.split(".")[0], talweg)
            arguments = [argument.arg for argument in stub.args.args if argument.arg != "self"]
            with pytest.raises(TypeError) as refused:
                getattr(owner, stub.name)(no_such_argument=0)
            assert str(refused.value) == f"{stub.name}({', '.join(arguments)}): no argument is called no_such_argument"
        work.wait()
