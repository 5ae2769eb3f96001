"""A page taken apart, to look at its structure."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

VOID = frozenset({"br", "hr", "img", "input", "meta"})


class Element:
    def __init__(self, name: str, attributes: dict[str, str | None]) -> None:
        self.name = name
        self.attributes = attributes
        self.children: list[Element | str] = []

    @property
    def text(self) -> str:
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    def all(self, *names: str, **attributes: str) -> list[Element]:
        """Every element below, of these names (any if none), with these attributes."""
        wanted = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
        found = []
        for child in self.children:
            if isinstance(child, str):
                continue
            named = not names or child.name in names
            if named and all(child.attributes.get(k) == v for k, v in wanted.items()):
                found.append(child)
            found += child.all(*names, **attributes)
        return found

    def one(self, *names: str, **attributes: str) -> Element:
        (found,) = self.all(*names, **attributes)
        return found


class Builder(HTMLParser):
    """Builds the tree, and insists that every element is closed where it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].name == tag, f"</{tag}> closes <{self.open[-1].name}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parsed(text: str) -> Element:
    builder = Builder()
    builder.feed(text)
    builder.close()
    assert len(builder.open) == 1, f"<{builder.open[-1].name}> is not closed"
    return builder.root


def read_page(path: Path) -> Element:
    return parsed(path.read_text(encoding="utf-8"))
