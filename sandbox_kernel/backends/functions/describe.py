"""The text that tells a model which host functions its program may call, in the language of the program. Pure."""

from __future__ import annotations

import collections.abc as abc
import enum
import inspect
import json
import types
import typing
from collections.abc import Iterator

from sandbox_kernel.backends.functions.host_function import HostFunction, HostFunctions, plain_signature
from sandbox_kernel.backends.functions.type_checks import hint_text, required_keys
from sandbox_kernel.model import Language

_PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", bytes: "Uint8Array", type(None): "null"}
_LISTS = (list, set, frozenset, abc.Sequence, abc.Collection, abc.Set, abc.MutableSequence)
_STREAMS = (abc.Iterator, abc.Iterable, abc.Generator, abc.AsyncIterator, abc.AsyncIterable, abc.AsyncGenerator)

#: Words that are names in Python and no names of parameters in TypeScript.
_RESERVED = frozenset(
    {
        "case", "catch", "const", "debugger", "default", "delete", "do", "enum", "export", "extends", "false",
        "function", "implements", "instanceof", "interface", "let", "new", "null", "package", "private", "protected",
        "public", "static", "super", "switch", "this", "throw", "true", "typeof", "var", "void",
    }
)  # fmt: skip


def describe_functions(functions: HostFunctions | None, language: Language) -> str:
    """Return the functions as declarations with their documentation; empty when there are none.

    Python and all languages without a form of their own get Python signatures, JavaScript and TypeScript get types,
    the shell gets command lines.
    """
    if functions is None:
        return ""
    each = functions.functions.values()
    if language in (Language.JAVASCRIPT, Language.TYPESCRIPT):
        body = "\n".join(f"{_comment(function)}  {function.name}{typescript_signature(function)};" for function in each)
        return f"declare const host: {{\n{body}\n}};\n"
    if language is Language.COMMAND:
        return "\n".join(_command(function) for function in each) + "\n"
    head = f"from host import {', '.join(functions.functions)}\n"
    hints = [hint for function in each for hint in function.hints.values()]
    known = {name: text for hint in hints for name, text in _classes(hint, frozenset())}
    return (
        head
        + "".join(f"\n{text}" for text in known.values())
        + "".join(f"\ndef {each.name}{plain_signature(each)}:{_docstring(each)}\n" for each in each)
    )


def _classes(hint: object, within: frozenset[object]) -> Iterator[tuple[str, str]]:
    """Yield the classes of dictionaries and choices that a type hint names, as Python writes them.

    ``within`` has the dictionaries around this one: one that holds itself is told once.
    """
    for arg in typing.get_args(hint):
        yield from _classes(arg, within)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        members = "".join(f"    {member.name} = {member.value!r}\n" for member in hint)
        yield hint.__name__, f"class {hint.__name__}(Enum):  # send the value\n{members}"
    elif typing.is_typeddict(hint) and hint not in within:
        hints, keys = typing.get_type_hints(hint), required_keys(hint)
        for each in hints.values():
            yield from _classes(each, within | {hint})
        lines = [
            f"    {name}: {hint_text(its) if name in keys else f'NotRequired[{hint_text(its)}]'}\n"
            for name, its in hints.items()
        ]
        yield hint_text(hint), f"class {hint_text(hint)}(TypedDict):\n" + ("".join(lines) or "    pass\n")


def _docstring(function: HostFunction) -> str:
    if not function.doc:
        return " ..."
    text = function.doc.replace('"""', "'''")
    raw = "r" if "\\" in text else ""
    # Quotation marks cannot follow one, or a backslash.
    end = "\n    " if "\n" in text or text.endswith(('"', "\\")) else ""
    lines = text.splitlines()
    return "\n".join([f'\n    {raw}"""{lines[0]}', *(f"    {line}".rstrip() for line in lines[1:])]) + f'{end}"""'


def _comment(function: HostFunction) -> str:
    return "".join(f"  /// {line}\n" for line in function.doc.splitlines())


def _command(function: HostFunction) -> str:
    words = []
    for parameter in function.signature.parameters.values():
        name = parameter.name.upper()
        if parameter.kind is parameter.VAR_POSITIONAL:
            words.append(f"[{name} ...]")
        elif parameter.kind is parameter.VAR_KEYWORD:
            words.append("[NAME=VALUE ...]")
        elif parameter.default is not parameter.empty:
            words.append(f"[{parameter.name}={name}]")
        elif parameter.kind is parameter.KEYWORD_ONLY:
            words.append(f"{parameter.name}={name}")
        else:
            words.append(name)
    summary = f"  # {function.doc.splitlines()[0]}" if function.doc else ""
    return " ".join(["host", function.name, *words]) + summary


def typescript_signature(function: HostFunction) -> str:
    """Return parameters and result as TypeScript: those with a default are in a last object, by their names."""
    plain, named, rest, taken, needed = [], [], "", "any", False
    for parameter in function.signature.parameters.values():
        shown = typescript_type(function.hints.get(parameter.name, typing.Any))
        name = f"{parameter.name}_" if parameter.name in _RESERVED else parameter.name
        if parameter.kind is parameter.VAR_KEYWORD:
            named.append(f"[name: string]: {shown}")
        elif parameter.kind is parameter.VAR_POSITIONAL:
            rest = f"...{name}: Array<"
            taken = shown
        elif parameter.default is parameter.empty and parameter.kind is not parameter.KEYWORD_ONLY:
            plain.append(f"{name}: {shown}")
        else:
            needed = needed or parameter.default is parameter.empty
            named.append(f"{parameter.name}{'' if parameter.default is parameter.empty else '?'}: {shown}")
    if rest:
        # Nothing can stand behind it: what is given by name is a last object among the rest.
        plain.append(f"{rest}{'any' if named else taken}>")
    elif named:
        plain.append(f"options{'' if needed else '?'}: {{ {'; '.join(named)} }}")
    call = inspect.unwrap(function.call)
    generates = inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call)
    result = typescript_type(function.hints.get("return", typing.Any))
    return f"({', '.join(plain)}): {result if not generates or 'Iterable' in result else 'Iterable<any>'}"


def typescript_type(hint: object, within: frozenset[object] = frozenset()) -> str:
    """Return a type hint as TypeScript; ``any`` where there is no counterpart, as for a dict that holds itself."""
    if isinstance(hint, type) and hint in _PLAIN:
        return _PLAIN[hint]
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return " | ".join(json.dumps(member.value, default=str) for member in hint)
    if typing.is_typeddict(hint):
        keys = required_keys(hint)
        marks = {name: "" if name in keys else "?" for name in typing.get_type_hints(hint)}
        if hint in within:
            return "any"
        inner = {name: typescript_type(its, within | {hint}) for name, its in typing.get_type_hints(hint).items()}
        return f"{{ {'; '.join(f'{name}{marks[name]}: {its}' for name, its in inner.items())} }}"
    origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    if hint is None:
        return "null"
    if origin in (typing.Union, types.UnionType):
        return " | ".join(dict.fromkeys(typescript_type(arg, within) for arg in args))
    if origin is typing.Literal:
        return " | ".join(json.dumps(arg, default=str) for arg in args)
    if origin in _STREAMS:
        return f"Iterable<{typescript_type(args[0], within) if args else 'any'}>"
    if origin is tuple and args and args[-1] is not ...:
        return f"[{', '.join(typescript_type(arg, within) for arg in args)}]"
    if origin in (*_LISTS, tuple):
        return f"Array<{typescript_type(args[0], within) if args else 'any'}>"
    if origin in (dict, abc.Mapping, abc.MutableMapping):
        return f"Record<string, {typescript_type(args[1], within) if args else 'any'}>"
    return "any"
