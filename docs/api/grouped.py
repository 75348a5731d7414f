"""Names that share a line of a docstring, `chains, seed`: each with its own type and default in the reference.

Griffe gives all of them those of the first one, and does not split attributes at all.
"""

from typing import Any

import griffe


class Grouped(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is None or not (obj.is_function or obj.is_class):
            return
        sections = obj.docstring.parse("numpy")
        for section in sections:
            if section.kind is griffe.DocstringSectionKind.parameters:
                _own_types(section.value, obj)
            elif section.kind is griffe.DocstringSectionKind.attributes:
                section.value[:] = [one for item in section.value for one in _split(item, obj)]
        obj.docstring.__dict__["parsed"] = sections


def _own_types(described: list, obj: griffe.Object) -> None:
    first = None
    for item in described:
        if item.name in obj.parameters:
            own = obj.parameters[item.name]
            item.annotation, item.value = own.annotation, own.default
        if first is not None and item.description == first.description:
            item.description = f"See `{first.name}`."
        else:
            first = item


def _split(item: griffe.DocstringAttribute, obj: griffe.Object) -> list[griffe.DocstringAttribute]:
    names = item.name.split(", ")
    if len(names) == 1:
        return [item]
    texts = [item.description, *[f"See `{names[0]}`."] * (len(names) - 1)]
    return [
        griffe.DocstringAttribute(
            name, description=text, annotation=obj.members[name].annotation if name in obj.members else None
        )
        for name, text in zip(names, texts, strict=True)
    ]
