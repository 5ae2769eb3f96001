"""The page in a real browser: it runs without errors, reacts, and shows something everywhere."""

from __future__ import annotations

import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from longspan import report

from .fakes import look_of, six_runs, write_run
from .pages import Element, parsed

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason=f"needs a browser: one of {', '.join(NAMES)}"),
]

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--allow-file-access-from-files",
    "--force-device-scale-factor=1",
    "--virtual-time-budget=4000",
)


def browse(address: str, home: Path, *flags: str) -> str:
    assert BROWSER is not None
    done = subprocess.run(
        [BROWSER, *FLAGS, f"--user-data-dir={home / 'browser'}", *flags, address],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def opened(path: Path, state: str = "") -> Element:
    """The page as the browser has it after its scripts ran; they must not have failed."""
    page = parsed(browse(f"{path.as_uri()}#{state}", path.parent, "--dump-dom"))
    assert page.one("html").attributes.get("data-ready") == "yes"
    trouble = page.one("p", id="trouble")
    assert trouble.text == ""
    assert "hidden" in trouble.attributes
    return page


@pytest.fixture(scope="module", autouse=True)
def _works(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Some browsers that are installed cannot start, or may not read the folder."""
    folder = tmp_path_factory.mktemp("probe")
    (folder / "page.html").write_text("<p>it opens</p>")
    try:
        shown = browse((folder / "page.html").as_uri(), folder, "--dump-dom")
    except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"{BROWSER} does not start: {str(error)[-300:]}")
    if "it opens" not in shown:
        pytest.skip(f"{BROWSER} cannot open a file in {folder}")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("browser")
    return report.write(six_runs(root), root / "report.html")


def classes(element: Element) -> list[str]:
    return (element.attributes.get("class") or "").split()


def seen_in(page: Element) -> list[int]:
    tokens = page.one(id="tokens").all("span")
    return [place for place, token in enumerate(tokens) if "seen" in classes(token)]


def test_tokens_are_coloured_by_reach(path: Path) -> None:
    page = opened(path)
    tokens = page.one(id="tokens").all("span")
    assert len(tokens) == 120
    assert [token.text.strip() for token in tokens[:4]] == ["Who", "first", "saw", "the"]
    shades = [
        float((token.attributes["style"] or "").split(":")[1].strip(" ;")) for token in tokens
    ]
    assert min(shades) == 0
    assert max(shades) == 100
    assert len(set(shades)) > 20
    assert seen_in(page) == []
    # The learned window differs from token to token: it is shown first.
    assert len(page.one("select", id="view").all("option")) == 2
    assert "answer here: “a watchman” (score 3.5)" in page.one(id="sight").text
    answer = [place for place, token in enumerate(tokens) if "answer" in classes(token)]
    assert answer == [18, 19]
    legend = page.one("p", class_="legend").all("span")
    assert not any("hidden" in sample.attributes for sample in legend)


def test_a_chosen_token_shows_what_it_sees(path: Path) -> None:
    head = look_of()["layers"][1]["heads"][0]
    page = opened(path, "token=61&layer=2&head=1&setup=2")
    assert seen_in(page) == list(range(head["low"][60], head["high"][60] + 1))
    assert "token 61 of 120 (layer 2, head 1)" in page.one(id="sight").text
    assert "and the 7 global tokens" in page.one(id="sight").text
    tokens = page.one(id="tokens")
    assert tokens.attributes["aria-activedescendant"] == "token-60"
    assert [t.attributes["id"] for t in tokens.all("span") if "chosen" in classes(t)] == [
        "token-60"
    ]
    rows = [[c.text for c in row.all("td")] for row in page.one(id="reaches").all("tr")[1:]]
    assert len(rows) == 2
    reaches = [layer["heads"][h]["reach"][60] for layer in look_of()["layers"] for h in range(2)]
    shown = [float(text) for row in rows for text in row[1:]]
    assert shown == pytest.approx(reaches, abs=0.15)


def test_the_mean_over_heads_shows_what_any_head_sees(path: Path) -> None:
    heads = look_of()["layers"][0]["heads"]
    page = opened(path, "token=61&layer=1&setup=2")
    first, last = min(h["low"][60] for h in heads), max(h["high"][60] for h in heads)
    assert seen_in(page) == list(range(first, last + 1))


def test_a_global_token_sees_all(path: Path) -> None:
    page = opened(path, "token=2")
    assert seen_in(page) == list(range(120))
    assert "a global token" in page.one(id="sight").text


def test_a_fixed_window_sees_the_same_everywhere(path: Path) -> None:
    assert seen_in(opened(path, "token=61&setup=1")) == list(range(52, 69))
    assert seen_in(opened(path, "token=120&setup=1")) == list(range(111, 120))


@pytest.mark.parametrize("state", ["token=0", "token=121", "token=x&layer=9&head=-1&setup=7", "="])
def test_an_address_that_makes_no_sense_is_ignored(path: Path, state: str) -> None:
    assert seen_in(opened(path, state)) == []


def test_keys_and_pointers_move_what_is_shown(path: Path, tmp_path: Path) -> None:
    """The same events that a reader makes, sent by a script at the end of the page."""
    script = """
    const list = document.getElementById("tokens"), told = [];
    const tell = () => told.push(document.querySelectorAll(".token.chosen").length
      ? [...list.querySelectorAll(".token")].findIndex((t) => t.matches(".chosen")) : -1);
    for (const key of ["ArrowRight", "ArrowRight", "End", "ArrowLeft", "Home", "ArrowDown",
      "ArrowUp", "Escape"]) {
      list.dispatchEvent(new KeyboardEvent("keydown", { key }));
      tell();
    }
    const token = document.getElementById("token-30");
    const over = { bubbles: true, pointerType: "mouse" };
    token.dispatchEvent(new PointerEvent("pointerover", over)); tell();
    list.dispatchEvent(new PointerEvent("pointerleave", over)); tell();
    token.dispatchEvent(new MouseEvent("click", { bubbles: true })); tell();
    list.dispatchEvent(new PointerEvent("pointerleave", over)); tell();
    const layer = document.getElementById("layer");
    layer.value = "1"; layer.dispatchEvent(new Event("change")); tell();
    const view = document.getElementById("view");
    view.value = "0"; view.dispatchEvent(new Event("change")); tell();
    const chart = document.querySelector("svg.curves"), box = chart.getBoundingClientRect();
    const at = { clientX: box.right, clientY: box.top + 50 };
    chart.dispatchEvent(new PointerEvent("pointermove", at));
    document.getElementById("theme").click();
    document.body.dataset.told = told.join(" ");
    """
    page = tmp_path / "events.html"
    page.write_text(path.read_text().replace("</body>", f"<script>{script}</script></body>"))
    found = opened(page)
    told = [int(place) for place in (found.one("body").attributes["data-told"] or "").split()]
    down = told[5]
    assert down > 5
    assert told == [0, 1, 119, 118, 0, down, 0, -1, 30, -1, 30, 30, 30, 30]
    assert "layer 2" in found.one(id="sight").text
    tip = found.all("div", class_="tip")[0]
    assert "step 600" in tip.text
    assert tip.text.count("seed") == 6
    assert found.one("html").attributes["data-theme"] in ("light", "dark")


def test_a_script_in_a_token_is_text(tmp_path: Path) -> None:
    evil = "<script>document.title='gone'</script>"
    run = write_run(tmp_path / "run", look=look_of(tokens=[evil, "b", "c", "d"]))
    page = opened(report.write([run], tmp_path / "report.html"), "token=1")
    assert page.one("span", id="token-0").text.strip() == evil
    assert "gone" not in page.one("head").one("title").text


def test_the_legend_names_only_what_is_there(tmp_path: Path) -> None:
    look = look_of() | {"question": None, "global": [False] * 120, "answer": None}
    run = write_run(tmp_path / "run", look=look)
    page = opened(report.write([run], tmp_path / "report.html"))
    legend = page.one("p", class_="legend").all("span")
    assert [s.text for s in legend if "hidden" in s.attributes] == ["global", "question", "answer"]


def test_a_page_without_documents_runs(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    opened(report.write([run, tmp_path / "gone"], tmp_path / "report.html"))


def pixels(path: Path) -> tuple[int, int, list[bytes]]:
    """Width, height and rows of a PNG with 8 bits a colour, as browsers write them."""
    data = path.read_bytes()
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    assert depth == 8
    wide = {2: 3, 6: 4}[kind]
    packed, at = b"", 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        if data[at + 4 : at + 8] == b"IDAT":
            packed += data[at + 8 : at + 8 + length]
        at += 12 + length
    raw = zlib.decompress(packed)
    stride, rows, before = width * wide, [], bytes(width * wide)
    for y in range(height):
        start = y * (stride + 1)
        row = unfiltered(raw[start], raw[start + 1 : start + 1 + stride], before, wide)
        before = row
        rows.append(b"".join(row[x : x + 3] for x in range(0, stride, wide)))
    return width, height, rows


def unfiltered(kind: int, row: bytes, above: bytes, wide: int) -> bytes:
    """A row of a PNG, from its difference to what lies left and above."""
    if kind == 0:
        return row
    found = bytearray(row)
    for x in range(len(found)):
        left = found[x - wide] if x >= wide else 0
        up, corner = above[x], above[x - wide] if x >= wide else 0
        guess = left + up - corner
        near = min((left, up, corner), key=lambda value: abs(guess - value))
        found[x] = (found[x] + (0, left, up, (left + up) // 2, near)[kind]) & 255
    return bytes(found)


@pytest.mark.parametrize(
    ("state", "flags", "dark"),
    [
        ("theme=light", (), False),
        ("theme=dark", (), True),
        ("", ("--blink-settings=preferredColorScheme=1",), False),
        ("", ("--blink-settings=preferredColorScheme=0",), True),
    ],
    ids=["light", "dark", "system light", "system dark"],
)
def test_both_colour_schemes(
    path: Path, tmp_path: Path, state: str, flags: tuple[str, ...], dark: bool
) -> None:
    shot = tmp_path / "shot.png"
    size = "--window-size=600,500"
    browse(f"{path.as_uri()}#{state}", tmp_path, f"--screenshot={shot}", size, *flags)
    width, _, rows = pixels(shot)
    assert width == 600
    corner = sum(rows[2][:3])
    assert (corner < 150) == dark
    assert (corner > 600) != dark
    assert len({row[x : x + 3] for row in rows for x in range(0, len(row), 3)}) > 50


def test_a_phone_needs_no_sideways_scrolling(tmp_path: Path) -> None:
    """In a frame of a phone's width, since windows of their own have a least width.

    With names that are long, with and without a place to break them.
    """
    long = ("a name of many words, longer than any line of a phone, and then some", "m" * 90)
    runs = [
        write_run(tmp_path / f"{name[:40]}{wide}", kind=name, settings={"wide": wide}, look=look)
        for name in long
        for wide in (1, 2)
        for look in [look_of(layers=2, heads=12)]
    ]
    (runs[0] / "result.json").write_text('["' + "w" * 200)
    path = report.write([*runs, tmp_path / ("gone" * 30)], tmp_path / "report.html")
    frame = tmp_path / "phone.html"
    frame.write_text(
        f"""<!DOCTYPE html><body><iframe id="f" src="{path.as_uri()}#token=9" width="360"
        height="700"></iframe><script>
        document.getElementById("f").onload = (event) => {{
          const page = event.target.contentDocument, root = page.documentElement;
          document.body.dataset.wide = [root.scrollWidth, root.clientWidth].join(" ");
          // Nothing but what lies in a scrolling box goes over the edge.
          const over = [...page.body.querySelectorAll("*")].filter((element) =>
            !element.closest(".scroll, pre, svg") && element.getBoundingClientRect().right > 361);
          document.body.dataset.over = over.map((element) => element.outerHTML.slice(0, 80)).join();
        }};
        </script></body>"""
    )
    body = parsed(browse(frame.as_uri(), tmp_path, "--dump-dom")).one("body").attributes
    assert body["data-wide"] == "360 360"
    assert body["data-over"] == ""
    shot = tmp_path / "phone.png"
    browse(frame.as_uri(), tmp_path, f"--screenshot={shot}", "--window-size=500,760")
    _, _, rows = pixels(shot)
    assert len({row[x : x + 3] for row in rows for x in range(0, len(row), 3)}) > 50
