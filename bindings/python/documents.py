"""Makes a C++ header of a stub's docstrings, so that help() says what editors show:   documents.py STUB.pyi HEADER"""

import ast
import pathlib
import sys
import textwrap


def signature(node):
    """With its types, as the stub has it, an argument never on two lines; none of a class or a property."""
    if isinstance(node, ast.ClassDef) or node.decorator_list:
        return ""
    given = node.args
    defaults = [None] * (len(given.args) - len(given.defaults)) + given.defaults
    arguments = [ast.unparse(one) + (f" = {ast.unparse(default)}" if default else "")
                 for one, default in zip(given.args, defaults)]
    arguments += [f"**{ast.unparse(given.kwarg)}"] if given.kwarg else []
    arguments[-1:] = [f"{''.join(arguments[-1:])}) -> {ast.unparse(node.returns)}"]
    text = f"{node.name}({', '.join(one.replace(' ', chr(0)) for one in arguments)}"
    lines = textwrap.wrap(text, 100, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace(chr(0), " ") + "\n\n"


def documents(scope, prefix=""):
    """Yields (qualified name, text) of every class, function and property that has a docstring."""
    for node in scope.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            yield prefix + node.name, signature(node) + ast.get_docstring(node)
        if isinstance(node, ast.ClassDef):
            yield from documents(node, node.name + ".")


def header(stub):
    rows = "".join(f'    {{"{name}", R"document({text})document"}},\n' for name, text in documents(ast.parse(stub)))
    return ("#pragma once\n#include <string_view>\nnamespace talweg::python {\n"
            "struct Document {\n  std::string_view name;\n  const char* text;\n};\n"
            f"inline constexpr Document kDocuments[] = {{\n{rows}}};\n}}  // namespace talweg::python\n")


if __name__ == "__main__":
    source, made = map(pathlib.Path, sys.argv[1:])
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_text(header(source.read_text(encoding="utf-8")), encoding="utf-8")
