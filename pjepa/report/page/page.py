"""One self-contained HTML file from sections of text and widgets: no internet, opens from disk.

Text is Markdown, escaped on its way to HTML. Widgets are empty boxes that the page's own script
fills from one block of JSON; the script writes names with `textContent`, never as HTML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

from pjepa.report.page.html import markdown_html

SCRIPTS = ("base.js", "charts.js", "timelines.js", "maps.js")


@dataclass(frozen=True)
class Widget:
    """A box that the script fills: which kind, and the key of its data."""

    kind: str
    key: str


@dataclass(frozen=True)
class Folded:
    """Text as it is, or Markdown, shown on demand."""

    title: str
    text: str
    markdown: bool = False


@dataclass(frozen=True)
class Beside:
    """Parts next to each other where the screen is wide, one below the other elsewhere."""

    parts: Sequence[str | Widget | Folded]


Part = str | Widget | Folded | Beside  # a str is Markdown


@dataclass(frozen=True)
class PageSection:
    """One part of the page: Markdown and widgets in order."""

    name: str  # its address inside the page
    title: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Page:
    """What the page says: title, a line below it, sections, the widgets' data, the finding."""

    title: str
    subtitle: str
    sections: Sequence[PageSection]
    data: Mapping[str, Any]
    headline: str = ""  # Markdown


def page_html(page: Page) -> str:
    """Return the whole page as text."""
    values = {
        "title": escape(page.title),
        "subtitle": escape(page.subtitle),
        "headline": f'<div id="headline">{markdown_html(page.headline)}</div>'
        * bool(page.headline),
        "style": _asset("page.css"),
        "links": "".join(
            f'<li><a href="#{escape(s.name)}">{escape(s.title)}</a></li>' for s in page.sections
        ),
        "body": "\n".join(_section_html(section) for section in page.sections),
        "data": script_json(page.data),
        "script": "\n".join(_asset(name) for name in SCRIPTS),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], _asset("page.html"))


def script_json(value: Any) -> str:
    """Return JSON that is safe inside a script element: no `<`, so nothing can end it."""
    text = json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False)  # ASCII
    return text.replace("<", "\\u003c")


def _section_html(section: PageSection) -> str:
    parts = [_part_html(part) for part in section.parts]
    name = escape(section.name)
    head = f'<h2 id="{name}-title">{escape(section.title)}</h2>'
    body = "\n".join([head, *parts])
    return f'<section id="{name}" aria-labelledby="{name}-title">\n{body}\n</section>'


def _part_html(part: Part) -> str:
    if isinstance(part, Widget):
        kind, key = escape(part.kind), escape(part.key)
        return f'<div class="widget" data-widget="{kind}" data-key="{key}"></div>'
    if isinstance(part, Folded):
        text = f'<pre tabindex="0">{escape(part.text)}</pre>'
        inside = markdown_html(part.text) if part.markdown else text
        return f"<details><summary>{escape(part.title)}</summary>{inside}</details>"
    if isinstance(part, Beside):
        columns = "".join(f"<div>{_part_html(each)}</div>" for each in part.parts)
        return f'<div class="beside">{columns}</div>'
    return markdown_html(part)


def _asset(name: str) -> str:
    return files("pjepa.report.page").joinpath("assets", name).read_text(encoding="utf-8")
