"""An HTML page as a tree, read strictly: every element that is opened is closed, in order."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"br", "col", "input", "link", "meta"}


@dataclass
class Element:
    """`texts` are the text pieces directly inside, `children` the elements."""

    name: str
    attributes: dict[str, str | None]
    children: list["Element"] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def all(self, name: str = "", **attributes: str) -> list["Element"]:
        """This element and those below it, in order, of that name and with those attributes (`class_`: one of them)."""
        wanted = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
        here = (not name or self.name == name) and all(self._has(key, value) for key, value in wanted.items())
        return [self] * here + [found for child in self.children for found in child.all(name, **attributes)]

    def text(self) -> str:
        """All text below, without regard to order between pieces and elements."""
        return " ".join([*self.texts, *(child.text() for child in self.children)])

    def _has(self, key: str, value: str) -> bool:
        own = self.attributes.get(key) or ""
        return value in own.split() if key == "class" else own == value


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Element("", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"<{tag}> has an attribute twice: {names}"
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].name == tag, f"</{tag}> closes <{self.open[-1].name}> at {self.getpos()}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].texts.append(data)


def parse_html(page: str) -> Element:
    """The root. Raises AssertionError where the page is not well-formed."""
    parser = _Parser()
    parser.feed(page)
    parser.close()
    assert len(parser.open) == 1, f"<{parser.open[-1].name}> stays open"
    return parser.open[0]
