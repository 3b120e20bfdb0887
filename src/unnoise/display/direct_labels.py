"""Labels next to the lines of a plot, inside the axes, without covering lines or other text."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONGEST = 28  # characters of a label; a longer one is only in the legend
DENSE = 2.0  # pixels between points of a line, at most
EVERY = 8.0  # pixels between the positions that are tried
AWAY = 5.0  # pixels between a name and any line, at least
FAR = 60.0  # pixels; larger distances from other lines are not better
NEARER = 1.4  # smallest ratio of the distances to any other line and to its own
COINCIDE = 0.2  # share of a line on another, beyond which the lines coincide there
SIZE = 7.5


class Line(NamedTuple):
    """A line in pixels.

    name: its label, or an empty string.
    color: colour of the line and its name.
    points: [n, 2], dense.
    """

    name: str
    color: Any
    points: np.ndarray


def label_lines(axes: "Axes", renderer: Any) -> None:
    """Label each line that has room for it, if there are several lines. Call this when the axes have their final position.

    A label is placed where it is farthest from other lines.
    """
    lines = _lines(axes)
    named = [line for line in lines if line.name and len(line.name) <= LONGEST and len(line.points)]
    if len(named) < 2:
        return
    frame = axes.get_window_extent(renderer)
    taken = [np.array(text.get_window_extent(renderer).extents) for text in axes.texts]
    everything = np.concatenate([line.points for line in lines])
    for line in named:
        text = axes.text(0, 0, line.name, fontsize=SIZE, color=line.color, ha="center", va="center")
        text.set_in_layout(False)
        box = text.get_window_extent(renderer)
        half = np.array([box.width, box.height]) / 2
        others = np.concatenate([_apart(other.points, line.points) for other in lines if other is not line])
        place = _best_place(line.points, half, others, everything, np.array(taken).reshape(-1, 4), np.array(frame.extents))
        if place is None:
            text.remove()
            continue
        x, y = axes.transData.inverted().transform(place)
        text.set_position((x, y))
        taken.append(np.concatenate([place - half, place + half]))


def _best_place(
    own: np.ndarray, half: np.ndarray, others: np.ndarray, everything: np.ndarray, taken: np.ndarray, frame: np.ndarray
) -> np.ndarray | None:
    """Return the centre of a label, [2], or None if there is no room next to its line."""
    spots = own[:: max(1, round(EVERY / DENSE))]
    aside = [(0, half[1] + AWAY), (0, -half[1] - AWAY), (half[0] + AWAY, 0), (-half[0] - AWAY, 0)]
    aside += [(x * (half[0] + AWAY), y * (half[1] + AWAY)) for x in (-1, 1) for y in (-1, 1)]
    centres = (spots[:, None] + np.array(aside)).reshape(-1, 2)
    inside = np.all((centres - half >= frame[:2]) & (centres + half <= frame[2:]), axis=1)
    apart = (centres[:, None] + half <= taken[:, :2] - 2) | (centres[:, None] - half >= taken[:, 2:] + 2)
    centres = centres[inside & np.all(np.any(apart, axis=2), axis=1)]
    if not len(centres):
        return None
    clear = np.any(np.abs(centres[:, None] - everything) >= half + AWAY - 1.5, axis=2)
    centres = centres[np.all(clear, axis=1)]
    if not len(centres):
        return None
    if not len(others):
        return centres[len(centres) // 2]
    distance = _distance(centres, half, others).clip(max=FAR)
    plain = distance >= NEARER * _distance(centres, half, own)
    return centres[plain][int(distance[plain].argmax())] if plain.any() else None


def _distance(centres: np.ndarray, half: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the distance from the edge of each label to a line: [n]."""
    outside = (np.abs(centres[:, None] - points) - half).clip(0)
    return np.sqrt((outside**2).sum(2)).min(1)


def _apart(points: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return the points of another line, [n, 2], without the part where both lines coincide. Crossings are kept."""
    if not len(points):
        return points
    near = np.array([np.abs(own - point).max(1).min() <= DENSE for point in points], dtype=bool)
    return points[~near] if near.mean() > COINCIDE else points


def _lines(axes: "Axes") -> list[Line]:
    """Return all lines of axes: plots, error bars and stairs."""
    from matplotlib.container import ErrorbarContainer
    from matplotlib.patches import StepPatch

    labels = {one.lines[0]: str(one.get_label()) for one in axes.containers if isinstance(one, ErrorbarContainer)}
    found = []
    for line in axes.lines:
        if line.get_linestyle() in ("None", "") and not labels.get(line):
            continue
        points = line.get_transform().transform(np.asarray(line.get_xydata(), dtype=float))
        found.append(Line(_shown(labels.get(line) or str(line.get_label())), line.get_color(), _dense(points)))
    for patch in axes.patches:
        if isinstance(patch, StepPatch):
            points = patch.get_transform().transform(patch.get_path().vertices)
            found.append(Line(_shown(str(patch.get_label())), patch.get_edgecolor(), _dense(points)))
    low, high = np.reshape(axes.get_window_extent().extents, (2, 2))
    return [line._replace(points=line.points[((line.points >= low - 1) & (line.points <= high + 1)).all(1)]) for line in found]


def _shown(label: str) -> str:
    return "" if label.startswith("_") else label


def _dense(points: np.ndarray) -> np.ndarray:
    """Return the finite points [n, 2] with interpolated points in between."""
    points = points[np.isfinite(points).all(1)].clip(-1e4, 1e4)
    if len(points) < 2:
        return points
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(points, axis=0), axis=1))])
    at = np.linspace(0, along[-1], max(2, int(along[-1] / DENSE) + 1))
    return np.stack([np.interp(at, along, points[:, i]) for i in range(2)], 1)
