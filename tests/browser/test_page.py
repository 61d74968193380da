import re

import pytest
from playwright.sync_api import Page, expect

REQUEST_TRACE, STEP_TRACE = "a1" * 16, "b2" * 16
REQUEST_SPAN, DECODE_SPAN, STEP_SPAN = "01" * 8, "02" * 8, "03" * 8

pytestmark = pytest.mark.browser


def test_search_lists_traces_and_keeps_the_search_in_the_address(page: Page) -> None:
    page.goto("/")
    expect(page.locator("#results tr")).to_have_count(2)
    page.get_by_label("Show").select_option("step")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("#results tr")).to_have_count(1)
    expect(page.locator("#results")).to_contain_text("llmprism.step")
    assert "show=step" in page.url
    page.reload()
    expect(page.locator("#results tr")).to_have_count(1)


def test_search_by_attribute_and_a_mistyped_one_says_the_mend(page: Page) -> None:
    page.goto("/")
    page.get_by_label("Attributes").fill("llmprism.step.kind=decode")
    page.keyboard.press("Enter")
    expect(page.locator("#results tr")).to_have_count(1)
    page.get_by_label("Attributes").fill("nonsense")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("write key=value")


def test_waterfall_is_walked_folded_and_left_by_keyboard_alone(page: Page) -> None:
    page.goto(f"/trace/{REQUEST_TRACE}")
    rows = page.get_by_role("treeitem")
    expect(rows).to_have_count(2)
    rows.first.focus()
    page.keyboard.press("ArrowLeft")
    expect(rows.first).to_have_attribute("aria-expanded", "false")
    expect(rows.nth(1)).to_be_hidden()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(rows.nth(1)).to_be_focused()
    expect(page.locator("#details h2").first).to_have_text("llmprism.request.decode")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(f"/trace/{STEP_TRACE}"))
    expect(page.locator("#heading")).to_have_text("llmprism.step")


def test_details_name_service_and_kind(page: Page) -> None:
    page.goto(f"/trace/{REQUEST_TRACE}?span={REQUEST_SPAN}")
    expect(page.locator("#details")).to_contain_text("mini-engine · server · ")


def test_step_shows_its_request_and_who_links_to_it(page: Page) -> None:
    page.goto(f"/trace/{STEP_TRACE}?span={STEP_SPAN}")
    details = page.locator("#details")
    expect(details).to_contain_text("Links to (1)")
    expect(details).to_contain_text("Linked from (1)")
    details.get_by_role("link", name="llmprism.request.decode").click()
    page.wait_for_url(re.compile(f"/trace/{REQUEST_TRACE}.*span={DECODE_SPAN}"))
    expect(page.locator('[aria-selected="true"]')).to_have_attribute("data-span", DECODE_SPAN)


def test_markup_in_names_and_values_is_shown_as_text(page: Page) -> None:
    page.goto(f"/trace/{STEP_TRACE}")
    expect(page.locator("#waterfall")).to_contain_text("<img src=x")
    page.goto(f"/trace/{REQUEST_TRACE}?span={REQUEST_SPAN}")
    expect(page.locator("#details")).to_contain_text("<img src=x")
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img").count() == 0


def test_slash_goes_to_a_trace_by_its_id_from_anywhere(page: Page) -> None:
    page.goto("/live")
    page.keyboard.press("/")
    page.keyboard.type("nonsense\n")
    expect(page.get_by_role("alert")).to_contain_text("32 hex digits")
    for _ in range(2):  # the view reads anew; the second answer follows what the first one changed
        page.wait_for_event("response", lambda answer: answer.url.endswith("/live"))
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("Trace id").fill(STEP_TRACE)
    expect(page.get_by_role("alert")).to_be_hidden()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(f"/trace/{STEP_TRACE}"))


def test_unknown_trace_says_why_it_may_be_missing(page: Page) -> None:
    page.goto("/trace/" + "0f" * 16)
    expect(page.get_by_role("alert")).to_contain_text("trace not found")


@pytest.mark.parametrize("address_path", ["/", "/live", f"/trace/{STEP_TRACE}"])
def test_narrow_window_needs_no_scrolling_sideways(page: Page, address_path: str) -> None:
    page.set_viewport_size({"width": 380, "height": 800})
    page.goto(address_path)
    expect(page.locator("#results tr, #tables tr, [role=treeitem]").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 380


def test_live_view_counts_and_charts_what_came(page: Page) -> None:
    page.goto("/live")
    expect(page.get_by_role("status")).to_contain_text("4 spans stored")
    expect(page.locator("#tables")).to_contain_text("llmprism.store.spans")
    expect(page.locator("#chart svg.main-svg").first).to_be_visible()


def test_tables_say_everything_when_the_chart_library_does_not_load(page: Page) -> None:
    page.route("**/static/vendor/chart.js", lambda route: route.abort())
    page.goto("/")
    expect(page.locator("#results tr")).to_have_count(2)
    expect(page.locator("#chart")).to_be_hidden()
    expect(page.get_by_role("alert")).to_be_hidden()
