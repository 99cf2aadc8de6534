#!/usr/bin/env python3
"""The picture of docs/bounded-loss.md: what a model learns against what is lost of its gradients.

    python3 bench/suite/learned.py measure    runs build/tests/protocol/learning_curves, some minutes, and keeps what it says
    python3 bench/suite/learned.py            draws what is kept

What is measured depends on seeds alone, so it is kept without machine and date, in bench/results/curves/learning.json."""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = ROOT / "build" / "tests" / "protocol" / "learning_curves"
KEPT = ROOT / "bench" / "results" / "curves" / "learning.json"
PICTURE = ROOT / "docs" / "learning.svg"

WIDTH, HEIGHT = 760, 470
LEFT, RIGHT, TOP, BOTTOM = 60, 745, 20, 330  # of what lies within the axes
MOST_LOST = 60  # percent
LEAST, MOST = 80, 93  # percent right
BARE = "nothing lost"
# Name: (what it says, class, mark).
CURVES = {
    "evenly, residual": ("evenly, with a residual", "a", "circle"),
    "evenly, by all": ("evenly, as zeros", "b", "circle"),
    "evenly, by received": ("evenly, divided by what has come", "c", "circle"),
    "smallest, residual": ("the smallest, with a residual", "a", "square"),
    "smallest": ("the smallest", "b", "square"),
    "largest": ("the largest", "d", "square"),
    "last in turn": ("the last of an order that turns", "b", "triangle"),
    "always the same": ("the last of an order that is fixed", "d", "triangle"),
}
# The colours of the pages (src/study/pages/page.css), told apart by marks as well.
STYLE = """
svg { --back: #ffffff; --text: #1d2433; --faint: #5d6776; --rule: #dde2ea; --a: #007f73; --b: #3f8fd2; --c: #9b3fd1; --d: #d7263d; }
@media (prefers-color-scheme: dark) { svg { --back: #14181f; --text: #e6e9ef; --faint: #a3adbb; --rule: #2c3441;
  --a: #2dd4bf; --b: #4aa3ea; --c: #c583f0; --d: #f4485c; } }
.back { fill: var(--back); } text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: var(--text); } .tick { fill: var(--faint); }
.rule { stroke: var(--rule); } .bare { stroke: var(--faint); stroke-dasharray: 5 4; }
.line { fill: none; stroke-width: 1.8; } .square { stroke-dasharray: 7 3; } .triangle { stroke-dasharray: 2 3; }
.a { stroke: var(--a); } .b { stroke: var(--b); } .c { stroke: var(--c); } .d { stroke: var(--d); } .mark { fill: var(--back); stroke-width: 1.8; }
"""


def x_of(lost):
    return LEFT + (RIGHT - LEFT) * 100 * lost / MOST_LOST


def y_of(accuracy):
    return BOTTOM - (BOTTOM - TOP) * (accuracy - LEAST) / (MOST - LEAST)


def mark(kind, colour, x, y, title=""):
    shapes = {"circle": f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.6"', "square": f'<rect x="{x - 3.4:.1f}" y="{y - 3.4:.1f}" width="6.8" height="6.8"',
              "triangle": f'<path d="M{x:.1f} {y - 4.4:.1f}l4.4 7.8h-8.8z"'}
    return f'{shapes[kind]} class="mark {colour}"><title>{title}</title></{shapes[kind][1:].split()[0]}>'


def axes():
    for accuracy in range(LEAST, MOST + 1, 2):
        y = y_of(accuracy)
        yield f'<path class="rule" d="M{LEFT} {y:.1f}H{RIGHT}"/><text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{accuracy}</text>'
    for lost in range(0, MOST_LOST + 1, 10):
        x = x_of(lost / 100)
        yield f'<path class="rule" d="M{x:.1f} {TOP}V{BOTTOM}"/><text class="tick" x="{x:.1f}" y="{BOTTOM + 18}" text-anchor="middle">{lost}</text>'
    yield f'<text x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 36}" text-anchor="middle">lost of what workers send, %</text>'
    yield f'<text transform="translate(18 {(TOP + BOTTOM) / 2}) rotate(-90)" text-anchor="middle">accuracy, % of the test</text>'


def curve(name, points):
    said, colour, kind = CURVES[name]
    places = [(x_of(p["lost"]), y_of(p["accuracy"])) for p in points]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    yield f'<path class="line {kind} {colour}" d="{path}" clip-path="url(#within)"/>'
    for point, (x, y) in zip(points, places):
        if LEAST <= point["accuracy"] <= MOST:
            yield mark(kind, colour, x, y, f"{said}: {100 * point['lost']:.1f} % lost, {point['accuracy']} % right (+-{point['deviation']})")


def legend():
    for i, (said, colour, kind) in enumerate(CURVES.values()):
        x, y = LEFT + 10 + 350 * (i % 2), BOTTOM + 62 + 19 * (i // 2)
        yield f'<path class="line {kind} {colour}" d="M{x} {y}h34"/>{mark(kind, colour, x + 17, y, said)}<text x="{x + 44}" y="{y + 4}">{said}</text>'


def drawn(kept):
    bare = kept["curves"][BARE][0]
    y = y_of(bare["accuracy"])
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
             "<title>Accuracy of a model against what is lost of its gradients, by which of them are lost</title>",
             f"<style>{STYLE}</style>", f'<rect class="back" width="{WIDTH}" height="{HEIGHT}"/>',
             f'<clipPath id="within"><rect x="{LEFT}" y="{TOP}" width="{RIGHT - LEFT}" height="{BOTTOM - TOP}"/></clipPath>', *axes(),
             f'<path class="bare" d="M{LEFT} {y:.1f}H{RIGHT}"/><text class="tick" x="{RIGHT - 4}" y="{TOP + 14}" text-anchor="end">dashed level: {BARE}, {bare["accuracy"]} %</text>']
    for name in CURVES:
        lines += curve(name, [bare | {"lost": 0}] + kept["curves"][name])
    return "\n".join([*lines, *legend(), "</svg>", ""])


def main(words):
    if words == ["measure"]:
        said = subprocess.run([PROGRAM], check=True, capture_output=True, text=True).stdout
        json.loads(said)
        KEPT.write_text(said, encoding="utf-8")
    elif words:
        sys.exit(__doc__)
    PICTURE.write_text(drawn(json.loads(KEPT.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
