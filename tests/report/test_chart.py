"""The chart is a picture of the figures it is given."""

from __future__ import annotations

from xml.etree import ElementTree

from metaschedule.report.band_chart import band_chart
from metaschedule.report.chart import bar_chart

SVG = "{http://www.w3.org/2000/svg}"


def bars(svg: ElementTree.Element) -> dict[str, tuple[float, float]]:
    """Left and right end of each bar, by what it says when pointed at."""
    found: dict[str, tuple[float, float]] = {}
    for shape in svg.iter(f"{SVG}rect"):
        if (tip := shape.findtext(f"{SVG}title")) and ":" in tip:
            left = float(shape.attrib["x"])
            found[tip] = (left, left + float(shape.attrib["width"]))
    return found


def test_bars_start_at_one_and_are_logarithmic() -> None:
    svg = ElementTree.fromstring(
        bar_chart("<title> & more", {"GMM": {"torch": 2.0, "tvm": 4.0}, "C2D": {"torch": 0.5}})
    )
    found = bars(svg)
    (one, two), (start, four), (half, end) = (
        found[tip] for tip in ("GMM, torch: 2.00x", "GMM, tvm: 4.00x", "C2D, torch: 0.50x")
    )
    assert one == start == end
    assert abs((four - one) - 2 * (two - one)) < 0.5
    assert abs((one - half) - (two - one)) < 0.5
    assert "<title> & more" in [text.text for text in svg.iter(f"{SVG}text")]


def test_a_chart_without_bars_is_a_chart() -> None:
    assert not bars(ElementTree.fromstring(bar_chart("nothing", {})))


def test_bands_contain_their_lines() -> None:
    courses = {"loops": [(float("inf"),) * 3, (2e-6, 3e-6, 5e-6)], "ansor": [(1e-6, 2e-6, 4e-6)] * 2}
    svg = ElementTree.fromstring(band_chart("a < b", {"GMM": courses, "C2D": {}}))
    bands, lines = (
        [one.attrib["points"] for one in svg.iter(f"{SVG}{kind}")] for kind in ("polygon", "polyline")
    )
    assert len(bands) == len(lines) == 2
    low, high, line = (
        [float(point.split(",")[1]) for point in points]
        for points in (bands[1].split()[:2], bands[1].split()[2:], lines[1].split())
    )
    assert all(a > b > c for a, b, c in zip(low, line, high[::-1]))  # downwards
    assert {"GMM, us over trials", "a < b"} < {text.text for text in svg.iter(f"{SVG}text")}
