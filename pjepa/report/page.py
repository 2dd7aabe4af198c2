"""One self-contained HTML file from sections of text and widgets: no internet, opens from disk.

Text is Markdown, escaped on its way to HTML. Widgets are empty boxes that the page's own script
fills from one block of JSON; the script writes names with `textContent`, never as HTML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

from pjepa.core.text import escaped
from pjepa.report.tables import span

SCRIPTS = ("base.js", "charts.js", "timelines.js", "maps.js")
HEADING, NEXT_HEADING = re.compile("### .*"), re.compile("##?# ")
SCROLL = '<div class="scroll" tabindex="0" role="region" aria-label="Table">'  # on narrow screens


@dataclass(frozen=True)
class Widget:
    """A box that the script fills: which kind, and the key of its data."""

    kind: str
    key: str


@dataclass(frozen=True)
class Collapsible:
    """Markdown that is shown on demand, or text as it is."""

    title: str
    text: str
    markdown: bool = True


@dataclass(frozen=True)
class Columns:
    """Parts next to each other where the screen is wide, one below the other elsewhere."""

    parts: Sequence[str | Widget | Collapsible]


Part = str | Widget | Collapsible | Columns  # a str is Markdown


@dataclass(frozen=True)
class PageSection:
    """Markdown and widgets in order; `name` is the address inside the page."""

    name: str
    title: str
    parts: Sequence[Part]


@dataclass
class Page:
    """A page while it is put together: sections, the widgets' data, the finding on top."""

    title: str
    subtitle: str = ""
    headline: str = ""  # Markdown
    sections: list[PageSection] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def widget(self, kind: str, key: str, value: Any) -> Widget:
        """Return a widget whose data is kept under `key`."""
        self.data[key] = value
        return Widget(kind, key)

    def add(self, name: str, title: str, parts: Sequence[Part]) -> None:
        """Add a section, unless it is empty."""
        if parts:
            self.sections.append(PageSection(name, title, parts))

    def html(self) -> str:
        """Return the whole page."""
        template = templates().get_template("page.html")
        return template.render(page=self, data=script_json(self.data), scripts=SCRIPTS)

    def markdown(self, title: str, without: Collection[str] = ()) -> str:
        """Return the text of the page without widgets, text as it is, and the named sections."""
        texts = [f"# {title}", *filter(None, [self.headline])]
        for section in self.sections:
            if section.name not in without:
                texts += [f"## {section.title}", *_texts(section.parts)]
        below = [*texts[1:], "## "]  # a heading of widgets alone has no text below it
        pairs = zip(texts, below, strict=True)
        written = [a for a, b in pairs if not (HEADING.fullmatch(a) and NEXT_HEADING.match(b))]
        return "\n\n".join(written) + "\n"


def _texts(parts: Sequence[Part]) -> list[str]:
    texts = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Columns):
            texts += _texts(part.parts)
        elif isinstance(part, Collapsible) and part.markdown:
            texts += [f"#### {part.title}", part.text]
    return texts


def script_json(value: Any) -> str:
    """Return JSON that is safe inside a script element: no `<`, so nothing can end it."""
    text = json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False)  # ASCII
    return text.replace("<", "\\u003c")


def markdown_html(text: str) -> str:
    """Return Markdown as HTML; HTML inside it stays text, and pictures are left out."""
    return str(_parser().render(text))


@cache
def templates() -> Environment:
    """Return the folder of templates: HTML with names escaped, and the sentences of texts.md."""
    loader = PackageLoader("pjepa.report", "assets")
    found = Environment(loader=loader, autoescape=select_autoescape(), undefined=StrictUndefined)
    found.trim_blocks = found.lstrip_blocks = True
    found.filters |= {"markdown": markdown_html, "escaped": escaped, "span": span}
    found.globals["asset"] = lambda name: loader.get_source(found, name)[0]
    return found


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("autolink")
    parser.core.ruler.push("row headings", _row_headings)
    parser.add_render_rule("table_open", lambda *_: f"{SCROLL}<table>\n")
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    parser.add_render_rule("image", lambda *_: "")
    return parser


def _row_headings(state: StateCore) -> None:
    """Make the first cell of every row a heading; alone in its row, it heads a group of rows."""
    tokens: list[Token] = []
    for token in state.tokens:
        tokens.append(token)
        if token.type == "th_open":
            token.attrSet("scope", "col")
        if token.type == "tr_close":
            start = max(place for place, each in enumerate(tokens) if each.type == "tr_open")
            tokens[start:] = _with_heading(tokens[start:])
    state.tokens = tokens


def _with_heading(row: list[Token]) -> list[Token]:
    opening, first, text, closing, *rest, end = row
    if first.type == "td_open":
        first.tag = closing.tag = "th"
        first.attrSet("scope", "row")
        others = [token.content for token in rest if token.type == "inline"]
        if text.content and others and not any(others):
            opening.attrSet("class", "group")
            first.attrs = {"scope": "rowgroup", "colspan": 1 + len(others)}
            rest = []
    return [opening, first, text, closing, *rest, end]
