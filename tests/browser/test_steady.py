"""The page under the keyboard, a screen reader, and eyes of any kind."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest

from tests.unit.scheduler.groups.rack import Rack, asking
from tests.unit.view.clusters import World, add_node, filled, gang, idle, place, wait

POD = "kind: Pod\nspec: {containers: [{name: c, resources: {limits: {cpu: '4', memory: 1Gi}}}]}"


@pytest.fixture
def world() -> World:
    """Two nodes, pods on them, one that waits and a gang that waits."""
    world = World()
    for name in ("a1", "a2"):
        add_node(world, name, idle(), pool="alpha")
    assert place(world, "a1", "train", 4, gpus=1)
    assert place(world, "a2", "serve", 10)
    wait(world, "huge", 17, "0/2 nodes are available: 2 TopologyAffinityError.")
    for number in range(3):
        gang(world, f"member-{number}", 12, "ring")
    return world


@pytest.fixture
def served(world, serve_world):
    return serve_world(world)


@pytest.fixture
def page(served, open_page):
    page = open_page(served.url)
    page.wait_for_selector("#state.live")
    return page


def opened(page, url: str, fragment: str):
    page.goto("about:blank")
    page.goto(f"{url}#{fragment}")
    page.wait_for_selector("#state.live")
    return page


def violations(page) -> list[str]:
    """What axe-core finds, each with the element that it is about."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation_anywhere(scheme, served, open_page) -> None:
    page = open_page(served.url, color_scheme=scheme)
    fragments = ("", "as=rows", "as=tiles", "as=pods", "node=a1", "pod=default/huge")
    for fragment in (*fragments, "gang=default/ring", f"try={quote(POD)}", "q=nothing-has-this"):
        opened(page, served.url, fragment)
        if "pod=" in fragment:
            page.wait_for_selector("#detail li")
        if "node=" in fragment:
            page.wait_for_selector("#detail img")
        if "try=" in fragment:
            page.wait_for_selector("#answer li")
        for part in ("waiting", "try", "curves", "decisions"):
            page.evaluate("id => { document.getElementById(id).open = true; }", part)
        assert violations(page) == [], fragment
    page.focus("#nodes")
    page.keyboard.press("?")
    assert violations(page) == []


def test_a_phone_has_no_violation_either(served, open_page) -> None:
    page = open_page(f"{served.url}#node=a1", width=400, height=800)
    page.wait_for_selector("#detail img")
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def luminance(colour: str) -> float:
    """Relative luminance of ``#rrggbb`` or ``#rgb`` (WCAG 2.2)."""
    digits = colour.removeprefix("#")
    digits = "".join(each * 2 for each in digits) if len(digits) == 3 else digits
    parts = (int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4))
    linear = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return sum(c * share for c, share in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_fill_and_outline_keeps_three_to_one_to_what_is_around(
    scheme, served, open_page
) -> None:
    page = open_page(served.url, color_scheme=scheme)
    names = ["card", "edge", "reserved", "bar", "accent", *(f"pod{n}" for n in range(7))]
    card, *fills = page.evaluate(
        "names => names.map(n => getComputedStyle(document.documentElement)"
        ".getPropertyValue('--' + n).trim())",
        names,
    )
    for name, fill in zip(names[1:], fills, strict=True):
        low, high = sorted((luminance(card), luminance(fill)))
        assert (high + 0.05) / (low + 0.05) >= 3, name


def test_focus_stays_where_it_is_while_the_cluster_changes(page, served) -> None:
    page.focus("#waiting .link")
    page.evaluate("() => { window.kept = document.activeElement; }")
    served.change(lambda w: wait(w, "another", 18, "why"))
    page.wait_for_function("() => document.querySelector('#waits').textContent === '5'")
    served.change(lambda w: place(w, "a1", "fresh", 2))
    page.wait_for_function(
        "() => document.querySelector('article[data-node=\"a1\"]').innerText.includes('25 free')"
    )
    assert page.evaluate("window.kept === document.activeElement")
    page.keyboard.press("Enter")
    page.wait_for_selector("#detail li")
    page.keyboard.press("Escape")
    assert page.evaluate("window.kept === document.activeElement")


def test_a_node_keeps_the_focus_when_it_changes_or_others_come(page, served) -> None:
    page.keyboard.press("ArrowRight")
    page.evaluate("() => { window.kept = document.activeElement; }")
    served.change(lambda w: place(w, "a1", "fresh", 2))
    served.change(lambda w: add_node(w, "a0", idle(), pool="alpha"))
    page.wait_for_selector('article[data-node="a0"]')
    assert page.evaluate("window.kept === document.activeElement")


def test_one_node_is_a_stop_of_the_tab_key(page) -> None:
    assert page.locator('#nodes [tabindex="0"]').count() == 1
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.locator('#nodes [tabindex="0"]').inner_text() == "a2"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#side') !== null")


def test_keys_of_one_letter_can_be_switched_off(page) -> None:
    page.keyboard.press("?")
    page.uncheck("#single")
    page.keyboard.press("Escape")
    page.keyboard.press("d")
    assert "theme" not in page.url


def test_the_list_of_pods_sorts_by_every_column(page, picture) -> None:
    page.select_option("#as", "pods")

    def column(place: int) -> list[str]:
        cells = f"#nodes tbody td:nth-child({place})"
        return page.eval_on_selector_all(cells, "all => all.map(each => each.innerText)")

    names = column(1)
    assert names == sorted(names)
    assert len(names) == 6
    page.click("#nodes th >> text=own CPUs")
    assert column(4)[0] == "1-2,17-18"
    assert page.get_attribute("#nodes th:nth-child(4)", "aria-sort") == "ascending"
    page.click("#nodes th >> text=own CPUs")
    assert column(4)[0] == "17 wanted"
    assert "sort=cpus-" in page.url
    assert page.evaluate("document.activeElement.innerText").startswith("own CPUs")
    picture(page, "view-pods")
    page.fill("#q", "ring")
    assert column(5) == ["default/ring"] * 3


def test_a_gang_is_one_unit(page, served) -> None:
    assert page.locator("#waiting ol > li").count() == 2
    page.click("#waiting .link:has-text('ring')")
    assert "3 pods, 0 on nodes, 3 waiting." in page.inner_text("#detail")
    served.change(lambda w: place(w, "a1", "member-0", 12))
    page.wait_for_function("() => document.querySelector('#waits').textContent === '3'")


def test_search_finds_pods_that_wait(page) -> None:
    page.fill("#q", "huge")
    assert page.inner_text("#waiting ol").startswith("default/huge")
    assert "ring" not in page.inner_text("#waiting ol")


def test_a_pod_that_is_open_is_followed(page, served) -> None:
    served.change(lambda w: wait(w, "late", 4, "later"))
    page.click("#waiting .link:has-text('default/late')")
    page.wait_for_selector("#detail li")
    served.change(lambda w: place(w, "a2", "late", 4))
    page.wait_for_function(
        "() => document.querySelector('#detail').innerText.includes('On a2, zone')"
    )
    assert "A pod like it, elsewhere" in page.inner_text("#detail")


def test_a_pod_with_groups_says_what_it_would_get_or_what_is_free(serve_world, open_page) -> None:
    rack = Rack()
    rack.server("n")
    for uid in (rack.asks(asking({"workers": 300})), rack.asks(asking({"workers": 3}))):
        page = open_page(f"{serve_world(rack.machine).url}#pod={uid}")
        page.wait_for_selector("#detail li")
        told = page.inner_text("#detail")
        assert ("free in zone 0: " in told) == (rack.where(uid) == "")
        assert ("group g0 in zone " in told) == (rack.where(uid) != "")


def test_a_node_shows_its_hardware_and_who_holds_it(page, served, picture) -> None:
    page.click('article[data-node="a1"] h3')
    page.wait_for_selector("#detail img")
    assert page.evaluate("document.querySelector('#detail img').decode().then(() => true)")
    drawn = page.get_attribute("#detail img", "src")
    assert "Socket%201" in drawn
    assert "default%2Ftrain" in drawn
    assert re.search(r"gpu gpu0\s+0\s+default/train main", page.inner_text("#detail"))
    served.change(lambda w: place(w, "a1", "fresh", 2))
    page.wait_for_function(
        "() => document.querySelector('#detail img').src.includes('default%2Ffresh')"
    )
    picture(page, "view-node")
    page.click("#enlarge")
    assert page.is_visible("#large img")
    page.keyboard.press("Escape")
    assert page.is_visible("#detail")


def test_a_what_if_is_painted_into_the_cells_and_kept_in_the_link(page, picture) -> None:
    page.keyboard.press("w")
    page.fill("#manifest", POD)
    page.click("#try button >> nth=0")
    page.wait_for_selector("#answer li")
    node = page.get_attribute("article.tried", "data-node")
    cpus = page.inner_text("article.tried .badge")
    assert re.fullmatch(r"what if: CPUs [\d,-]+", cpus)
    picture(page, "view-what-if")
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector("article.tried")
    assert page.get_attribute("article.tried", "data-node") == node
    assert page.inner_text("article.tried .badge") == cpus
    assert page.input_value("#manifest") == POD
    page.select_option("#show", "tried")
    assert page.locator("article").count() == 1
    page.click("#clear")
    assert page.locator("article").count() == 2
    assert page.locator("article.tried").count() == 0
    assert "try=" not in page.url


def test_the_chart_has_axes_and_says_what_the_header_says(page, served) -> None:
    assert served.change(lambda w: place(w, "a2", "fresh", 2))
    page.wait_for_function("() => document.querySelector('#stats').innerText.includes('46 of 62')")
    assert "free CPUs 46" in page.inner_text("#curves figcaption")
    ticks = page.eval_on_selector_all("#curves text", "all => all.map(each => each.textContent)")
    assert ticks[:4] == ["CPUs", "0", "25", "50"]
    assert sum(bool(re.fullmatch(r"\d\d:\d\d:\d\d", each)) for each in ticks) == 3
    assert "free CPUs 46" in page.get_attribute("#curves svg", "aria-label")


def test_the_past_has_no_empty_parts(page, served, picture) -> None:
    assert served.change(lambda w: place(w, "a2", "fresh", 2))
    page.wait_for_function("() => document.querySelector('#stats').innerText.includes('46 of 62')")
    page.focus("#time")
    page.keyboard.press("Home")
    page.wait_for_selector("body.past")
    assert "48 of 62" in page.inner_text("#stats")
    assert "4 waiting" in page.inner_text("#stats")
    assert page.get_attribute("#time", "aria-valuetext") == page.inner_text("#moment")
    page.click("#waiting .link:has-text('huge')")
    assert "This is known of the present only." in page.inner_text("#detail")
    picture(page, "view-past")
    page.click("#detail >> text=Back to now")
    page.wait_for_selector("#detail li")
    assert "46 of 62" in page.inner_text("#stats")


@pytest.mark.parametrize("form", ["cards", "rows"])
def test_nothing_moves_when_cells_are_painted(form, serve_world, open_page) -> None:
    page = open_page(f"{serve_world(filled(120)).url}#as={form}")
    page.wait_for_selector("#state.live")
    before = page.evaluate("document.documentElement.scrollHeight")
    last = page.locator("article.node").last
    last.scroll_into_view_if_needed()
    name = last.get_attribute("data-node")
    page.wait_for_function(
        "name => document.querySelector(`article[data-node='${name}'] canvas`).cpuAt", arg=name
    )
    assert page.evaluate("document.documentElement.scrollHeight") == before


def test_five_hundred_nodes_are_on_two_screens_at_most(serve_world, open_page, picture) -> None:
    page = open_page(serve_world(filled(500)).url)
    page.wait_for_selector("#state.live")
    assert page.locator(".tile").count() == 500
    assert page.evaluate("document.documentElement.scrollHeight") <= 2 * 900
    picture(page, "view-500")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector("#detail img")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.classList.contains('tile')")
