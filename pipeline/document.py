"""A report's content as a few kinds of blocks, written once and rendered to Markdown and to one HTML file.

Text knows two marks: `code` and **bold**. Everything else is escaped.
"""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

TEMPLATE = Path(__file__).with_name("report_template.html")


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Verdict:
    """The sentence that answers the reader's first question."""

    text: str


@dataclass(frozen=True)
class Tiles:
    """Key figures: (label, value, note) each."""

    items: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Table:
    """`align` has a letter for each column: l(eft), r(ight) or n (left, never wrapped)."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: str


@dataclass(frozen=True)
class Figure:
    """A plot: the file is `figures/<name>.svg`."""

    name: str
    title: str
    caption: str
    svg: str
    table: Table | None = None


@dataclass(frozen=True)
class Figures:
    items: Sequence[Figure]


@dataclass(frozen=True)
class Code:
    text: str


@dataclass(frozen=True)
class Section:
    title: str
    blocks: Sequence["Block"]


@dataclass(frozen=True)
class Fold:
    """Detail that is closed until the reader opens it."""

    title: str
    blocks: Sequence["Block"]


Block = Paragraph | Verdict | Tiles | Table | Figures | Code | Section | Fold


def figures(blocks: Sequence[Block]) -> list[Figure]:
    """Every figure of a document, in order."""
    found: list[Figure] = []
    for block in blocks:
        if isinstance(block, Figures):
            found += block.items
        elif isinstance(block, Section | Fold):
            found += figures(block.blocks)
    return found


def to_markdown(title: str, subtitle: str, blocks: Sequence[Block]) -> str:
    return "\n\n".join([f"# {title}", subtitle, *map(_markdown, blocks)]) + "\n"


def to_html(title: str, subtitle: str, blocks: Sequence[Block]) -> str:
    """One self-contained file: style and pictures inside, no script, nothing to fetch."""
    values = {"title": html.escape(title), "subtitle": _inline(subtitle), "body": "\n".join(map(_html, blocks))}
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(values)


def _markdown(block: Block) -> str:
    match block:
        case Paragraph(text):
            return text
        case Verdict(text):
            return f"**{text}**"
        case Tiles(items):
            return "\n".join(f"- {label}: **{value}**, {note}" for label, value, note in items)
        case Table(header, rows, align):
            rule = ["---:" if letter == "r" else "---" for letter in align]
            cells = [[cell.replace("|", "\\|") for cell in row] for row in (header, *rows)]
            return "\n".join(f"| {' | '.join(row)} |" for row in (cells[0], rule, *cells[1:]))
        case Figures(items):
            return "\n\n".join(map(_markdown_figure, items))
        case Code(text):
            return f"```sh\n{text}\n```"
        case Section(title, blocks):
            return "\n\n".join([f"## {title}", *map(_markdown, blocks)])
        case Fold(title, blocks):
            inside = "\n\n".join(map(_markdown, blocks))
            return f"<details><summary>{html.escape(title)}</summary>\n\n{inside}\n\n</details>"


def _markdown_figure(figure: Figure) -> str:
    parts = [f"**{figure.title}**", f"![{figure.title}](figures/{figure.name}.svg)", figure.caption]
    return "\n\n".join(filter(None, [*parts, _markdown(figure.table) if figure.table else ""]))


def _html(block: Block) -> str:
    match block:
        case Paragraph(text):
            return f"<p>{_inline(text)}</p>"
        case Verdict(text):
            return f'<p class="verdict">{_inline(text)}</p>'
        case Tiles(items):
            tiles = (
                f"<div><dt>{_inline(label)}</dt><dd><b>{_inline(value)}</b><span>{_inline(note)}</span></dd></div>"
                for label, value, note in items
            )
            return f'<dl class="tiles">{"".join(tiles)}</dl>'
        case Table(header, rows, align):
            head = _row("th", header, align)
            body = "\n".join(_row("td", row, align) for row in rows)
            return (
                f'<div class="scroll" tabindex="0"><table><thead>{head}</thead><tbody>\n{body}\n</tbody></table></div>'
            )
        case Figures(items):
            return f'<div class="figures">{"".join(map(_figure, items))}</div>'
        case Code(text):
            return f'<pre class="scroll" tabindex="0">{html.escape(text)}</pre>'
        case Section(title, blocks):
            inside = "\n".join(map(_html, blocks))
            return f"<section>\n<h2>{html.escape(title)}</h2>\n{inside}\n</section>"
        case Fold(title, blocks):
            inside = "\n".join(map(_html, blocks))
            return f"<details>\n<summary>{html.escape(title)}</summary>\n{inside}\n</details>"


def _row(tag: str, cells: Sequence[str], align: str) -> str:
    classes = ("" if letter == "l" else f' class="{letter}"' for letter in align)
    return f"<tr>{''.join(f'<{tag}{c}>{_inline(cell)}</{tag}>' for c, cell in zip(classes, cells, strict=True))}</tr>"


def _figure(figure: Figure) -> str:
    title, name = html.escape(figure.title, quote=True), html.escape(figure.name, quote=True)
    picture = figure.svg.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)
    caption = f"<figcaption>{_inline(figure.caption)}</figcaption>" if figure.caption else ""
    table = _html(figure.table) if figure.table else ""
    return f'<figure id="{name}"><h3>{title}</h3>{picture}{caption}{table}</figure>\n'


def _inline(text: str) -> str:
    escaped = html.escape(text, quote=False)
    return re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", re.sub(r"`(.+?)`", r"<code>\1</code>", escaped))
