"""An SVG chart of size against speed, written as text. It brings its own background, light or dark as the reader's
system is, so that it can be read on any page."""
import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 960, 470
PANEL_WIDTH, LEFT, TOP, BOTTOM, GAP = 405, 62, 70, 58, 26
FONT = 12
STYLE = """
 .card { fill: #ffffff; stroke: #d0d7de; }
 text { font-family: "Segoe UI", "Helvetica Neue", Helvetica, Arial, "DejaVu Sans Condensed", sans-serif; }
 text { font-size: 12px; fill: #1f2328; }
 .label { paint-order: stroke; stroke: #ffffff; stroke-width: 3px; stroke-linejoin: round; }
 .title { font-size: 15px; font-weight: 600; }
 .axis, .tick { fill: #59636e; }
 .grid { stroke: #d0d7de; stroke-width: 1; }
 .copy { stroke: #8c959f; stroke-width: 1.5; stroke-dasharray: 5 4; }
 .ours { fill: #0969da; } .ours-text { fill: #0550ae; font-weight: 600; }
 .theirs { fill: #bc4c00; }
 .lead { stroke: #8c959f; stroke-width: 0.8; }
 @media (prefers-color-scheme: dark) {
  .card { fill: #0d1117; stroke: #3d444d; }
  text { fill: #e6edf3; }
  .label { stroke: #0d1117; }
  .axis, .tick { fill: #9198a1; }
  .grid { stroke: #2b3139; }
  .copy, .lead { stroke: #6e7681; }
  .ours { fill: #58a6ff; } .ours-text { fill: #79c0ff; }
  .theirs { fill: #f0883e; }
 }
"""


def label_width(text):
    return len(text) * FONT * 0.58


def place_labels(points, box):
    """A place for each label near its point: (x, y of the text's start, whether it needs a line to its point).
    Greedy, over places ever farther away; points and labels placed already are avoided."""
    left, top, right, bottom = box
    taken = [(x - 6, y - 6, x + 6, y + 6) for x, y, _ in points]
    placed = []
    for x, y, text in points:
        width = label_width(text)
        best = None
        for distance in (10, 18, 28, 40, 54, 70, 88, 108, 130, 154):
            for dx, dy in ((1, 0), (-1, 0), (0, -1), (0, 1), (0.7, -0.8), (0.7, 0.8), (-0.7, -0.8), (-0.7, 0.8)):
                cx, cy = x + dx * distance, y + dy * distance
                start = cx if dx > 0 else cx - width if dx < 0 else cx - width / 2
                area = (start - 2, cy - FONT / 2 - 1, start + width + 2, cy + FONT / 2 + 1)
                if area[0] < left or area[2] > right or area[1] < top or area[3] > bottom:
                    continue
                if all(area[2] < t[0] or area[0] > t[2] or area[3] < t[1] or area[1] > t[3] for t in taken):
                    best = (start, cy, distance > 18, area)
                    break
            if best:
                break
        if not best:
            start = min(max(x + 10, left), right - width)
            best = (start, y, False, (start, y - FONT / 2, start + width, y + FONT / 2))
        taken.append(best[3])
        placed.append(best[:3])
    return placed


def ticks(low, high):
    """1, 2, 5 of every decade; fewer where many decades are shown."""
    steps = (1, 2, 5) if high / low < 300 else (1,)
    return [step * 10 ** power for power in range(-3, 3) for step in steps if low <= step * 10 ** power <= high]


def panel(x0, title, points, copy, sizes):
    """points: (label, GB/s, size in percent, ours). Speed on a logarithmic axis; small and fast is below, at the
    right."""
    top, bottom, left, right = TOP, HEIGHT - BOTTOM, x0, x0 + PANEL_WIDTH
    low, high = min(p[1] for p in points) / 1.6, max(copy, max(p[1] for p in points)) * 1.25
    size_low, size_high = sizes

    def at_x(speed):
        return left + (right - left) * math.log(speed / low) / math.log(high / low)

    def at_y(size):
        return bottom - (bottom - top) * (size - size_low) / (size_high - size_low)

    out = [f'<text class="title" x="{left}" y="{top - 14}">{escape(title)}</text>']
    for size in range(math.ceil(size_low / 5) * 5, math.floor(size_high) + 1, 5):
        y = at_y(size)
        out.append(f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        if x0 == LEFT:
            out.append(f'<text class="tick" x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{size} %</text>')
    for speed in ticks(low, high):
        x = at_x(speed)
        out.append(f'<line class="grid" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>')
        out.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{speed:g}</text>')
    x = at_x(copy)
    out.append(f'<line class="copy" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>')
    out.append(f'<text class="axis" x="{x - 5:.1f}" y="{top + 12}" text-anchor="end">memcpy</text>')
    out.append(f'<text class="axis" x="{(left + right) / 2:.1f}" y="{bottom + 40}" text-anchor="middle">'
               'GB of weights a second, one thread (logarithmic)</text>')
    marks = [(at_x(speed), at_y(size), label) for label, speed, size, _ in points]
    # Ours first, so that their labels lie nearest.
    order = sorted(range(len(points)), key=lambda i: not points[i][3])
    places = place_labels([marks[i] for i in order], (left + 2, top + 20, right - 2, bottom - 2))
    for (start, y, line), i in zip(places, order):
        px, py, text = marks[i]
        ours = points[i][3]
        if line:
            to = min(max(px, start), start + label_width(text))
            out.append(f'<line class="lead" x1="{px:.1f}" y1="{py:.1f}" x2="{to:.1f}" '
                       f'y2="{y + (6 if y < py else -6):.1f}"/>')
        out.append(f'<circle class="{"ours" if ours else "theirs"}" cx="{px:.1f}" cy="{py:.1f}" r="5"/>')
        out.append(f'<text class="label{" ours-text" if ours else ""}" x="{start:.1f}" y="{y + 4:.1f}">'
                   f'{escape(text)}</text>')
    return out


def draw(title, note, compress, decompress, copy):
    """Each list: (label, GB/s, percent, ours)."""
    every = [point[2] for point in compress + decompress]
    sizes = (min(every) - 2, max(max(every) + 2, min(every) + 12))
    body = panel(LEFT, "Decompress", decompress, copy, sizes)
    body += panel(LEFT + PANEL_WIDTH + GAP + 44, "Compress", compress, copy, sizes)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>',
        f'<text class="title" x="{LEFT}" y="28">{escape(title)}</text>',
        f'<text class="axis" x="{WIDTH - 16}" y="28" text-anchor="end">{escape(note)}</text>',
        *body, "</svg>", ""])
