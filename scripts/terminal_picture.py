# SPDX-License-Identifier: MIT
"""docs/pictures/terminal.svg, the README's picture of a terminal: two outputs that simulate_gpus/README.md shows."""
import html
import re
import textwrap
from pathlib import Path

PICTURE = Path("docs/pictures/terminal.svg")
MANUAL = Path("simulate_gpus/README.md")
SHOWN = ("simulate_gpus --check 1", "simulate_gpus --dry-run --summary --gpu h100 8")  # how their commands begin
COLUMNS, LINE, CHARACTER = 126, 20, 8.4  # of a line, in pixels
WORDS = re.compile(r"^(\$ .*)|(race:|OutOfMemoryError)")  # a command; what the tool found


def outputs():
    """The lines of both, as wide as the picture."""
    texts = re.findall(r"^```text\n(.*?)^```$", MANUAL.read_text(), re.DOTALL | re.MULTILINE)
    for begin in SHOWN:
        (text,) = [text for text in texts if text.startswith(f"$ {begin}")]
        for line in text.splitlines():
            yield from textwrap.wrap(line, COLUMNS, subsequent_indent="    ", break_long_words=False) or [""]
        yield ""


def colored(line):
    def span(match):
        color = "#7ee787" if match[1] else "#ff9492"
        return f'<tspan fill="{color}">{match[0]}</tspan>'
    return WORDS.sub(span, html.escape(line, quote=False))


def picture():
    lines = list(outputs())[:-1]
    width, height = round(COLUMNS * CHARACTER) + 40, len(lines) * LINE + 56
    text = "\n".join(f'  <text x="20" y="{56 + i * LINE}">{colored(line)}</text>' for i, line in enumerate(lines) if line)
    dots = "".join(f'<circle cx="{22 + 18 * i}" cy="18" r="6" fill="{color}"/>'
                   for i, color in enumerate(("#ff5f57", "#febc2e", "#28c840")))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="14" xml:space="preserve"
     font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" fill="#e6edf3">
  <title>A race that --check reports, and a model that does not fit into eight cards</title>
  <rect width="{width}" height="{height}" rx="10" fill="#161b22"/>
  {dots}
{text}
</svg>
"""
