# Engines and findings as people see them, over a sentinel that makes its answers up.
import re
import time
from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect

from otel_llmprism.model.findings import Subject
from otel_llmprism.testing.sentinel_fake import FakeSentinel
from otel_llmprism.testing.sentinel_fake_findings import OPEN_FINDING, FakeIncident
from otel_llmprism.testing.sentinel_fake_fleet import ALARMED, LEARNING, QUIET
from otel_llmprism.testing.sentinel_page import FINDING_TRACE, SLOW_STEP

MARKUP = "<img src=x onerror=window.hacked=1>"

pytestmark = pytest.mark.browser


def test_engines_say_what_is_awaited_and_lead_to_their_view(sentinel_page: Page) -> None:
    sentinel_page.goto("/engines")
    rows = sentinel_page.locator("#engines tbody tr")
    expect(rows).to_have_count(3)
    expect(sentinel_page.locator("#engines")).to_contain_text("learning: 412 of about 1,000 steps")
    sentinel_page.get_by_role("link", name=QUIET).click()
    sentinel_page.wait_for_url(re.compile("/engine\\?id=chat-1%2Fdp0"))
    expect(sentinel_page.locator("#heading")).to_have_text(QUIET)
    expect(sentinel_page.locator("#summary")).to_contain_text("watching")


def test_an_engine_shows_cycles_with_their_limit_the_work_and_the_finding(sentinel_page: Page) -> None:
    sentinel_page.goto(f"/engine?id={ALARMED}")
    for name in ("Cycle of decode steps", "Cycle of prefill steps", "KV tokens in use", "Requests", "Gaps"):
        chart = sentinel_page.locator("figure", has_text=name)
        expect(chart.locator("svg.main-svg").first).to_be_visible()
        expect(chart.locator(".shapelayer path, .layer-below path").first).to_be_attached()
    decode = sentinel_page.locator("figure", has_text="Cycle of decode steps")
    for line in ("observed", "expected", "upper limit"):
        expect(decode.locator(".legend")).to_contain_text(line)
    expect(sentinel_page.locator("#now")).to_contain_text("above the limit")
    expect(sentinel_page.locator("#incidents")).to_contain_text("CPU contention on host node-1")


def test_an_engine_that_learns_shows_no_limit_and_says_why(sentinel_page: Page) -> None:
    sentinel_page.goto(f"/engine?id={LEARNING}&seconds=60")
    expect(sentinel_page.locator("#summary")).to_contain_text("nothing alarms before")
    expect(sentinel_page.locator("#now")).to_contain_text("not yet")
    expect(sentinel_page.locator("#incidents")).to_contain_text("Nothing was found")


def test_the_time_shown_is_chosen_and_kept_in_the_address(sentinel_page: Page) -> None:
    sentinel_page.goto(f"/engine?id={ALARMED}&seconds=60")
    expect(sentinel_page.locator("#range")).to_contain_text("following the present")
    for _ in range(8):
        sentinel_page.get_by_role("button", name="Earlier").click()
    expect(sentinel_page.locator("#now")).to_contain_text("within the limit")
    expect(sentinel_page.locator("#now")).not_to_contain_text("above the limit")
    expect(sentinel_page.locator("#range")).not_to_contain_text("following the present")
    sentinel_page.reload()
    expect(sentinel_page.locator("#now")).to_contain_text("within the limit")
    expect(sentinel_page.locator("#incidents")).to_contain_text("Nothing was found")
    sentinel_page.get_by_label("Length").select_option("3600")
    sentinel_page.get_by_role("button", name="Now").click()
    expect(sentinel_page.locator("#range")).to_contain_text("following the present")
    expect(sentinel_page.locator("#incidents")).to_contain_text("CPU contention")


def test_dragging_over_a_chart_looks_closer(sentinel_page: Page) -> None:
    sentinel_page.goto(f"/engine?id={ALARMED}&seconds=600")
    plot = sentinel_page.locator("figure .plot").first
    expect(plot.locator("svg.main-svg").first).to_be_visible()
    box = plot.bounding_box()
    assert box
    left, middle = box["x"] + box["width"] / 3, box["y"] + box["height"] / 2
    sentinel_page.mouse.move(left, middle)
    sentinel_page.mouse.down()
    sentinel_page.mouse.move(left + box["width"] / 4, middle, steps=5)
    sentinel_page.mouse.up()
    expect(sentinel_page.locator("#range")).not_to_contain_text("following the present")
    seconds, end_us = re.findall(r"seconds=([0-9]+)&end=([0-9]+)", sentinel_page.url)[0]
    assert 100 < int(seconds) < 220
    assert int(end_us) / 1e6 < time.time() - 60


def test_a_time_without_steps_says_when_the_engine_was_last_seen(sentinel_page: Page) -> None:
    sentinel_page.goto(f"/engine?id={ALARMED}&seconds=60&end=1000000000000")
    expect(sentinel_page.locator("#awaited")).to_contain_text("No steps in this time. Last seen")


def test_blocks_can_be_read_as_a_table(sentinel_page: Page) -> None:
    sentinel_page.route("**/static/vendor/chart.js", lambda route: route.abort())
    sentinel_page.goto(f"/engine?id={ALARMED}&seconds=60")
    expect(sentinel_page.locator("#now")).to_contain_text("above the limit")
    sentinel_page.get_by_text("Newest blocks as a table").click()
    expect(sentinel_page.locator("#block-rows tbody tr").first).to_be_visible()
    expect(sentinel_page.get_by_role("alert")).to_be_hidden()


def test_an_unknown_engine_is_said(sentinel_page: Page) -> None:
    sentinel_page.goto("/engine?id=nobody")
    expect(sentinel_page.get_by_role("alert")).to_contain_text("engine not found")


def test_findings_come_by_what_they_cost_and_are_filtered(sentinel_page: Page) -> None:
    sentinel_page.goto("/findings")
    rows = sentinel_page.locator("#findings tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text("CPU contention on host node-1")
    expect(sentinel_page.locator("#active-findings")).to_have_text("1 running")
    sentinel_page.get_by_label("State").select_option("closed")
    expect(rows).to_have_count(2)
    sentinel_page.get_by_label("Kind").select_option("kv_pressure")
    expect(rows).to_have_count(1)
    assert "kind=kv_pressure" in sentinel_page.url
    sentinel_page.reload()
    expect(rows).to_have_count(1)
    sentinel_page.get_by_label("Engine").select_option(ALARMED)
    expect(sentinel_page.locator("#summary")).to_contain_text("No finding answers to this filter")


def test_a_new_finding_appears_by_itself_and_the_focus_stays(
    sentinel_page: Page, sentinel: FakeSentinel
) -> None:
    sentinel_page.goto("/findings")
    rows = sentinel_page.locator("#findings tbody tr")
    expect(rows).to_have_count(3)
    focused = sentinel_page.get_by_role("link", name="Slow worker on rank 1")
    focused.focus()
    finding = sentinel.list_findings()[0].finding
    sentinel.incidents.append(
        FakeIncident((replace(finding, id="f-new", kind="hang", subject=Subject("rank", "3")),))
    )
    expect(rows).to_have_count(4)
    expect(focused).to_be_focused()
    expect(sentinel_page.locator("#active-findings")).to_have_text("2 running")


def test_a_finding_says_what_was_measured_and_leads_on(sentinel_page: Page) -> None:
    sentinel_page.goto(f"/finding/{OPEN_FINDING}")
    expect(sentinel_page.locator("#heading")).to_have_text("CPU contention on host node-1")
    expect(sentinel_page.locator("#summary")).to_contain_text("wait for CPU")
    evidence = sentinel_page.locator("#evidence table").first.locator("tbody tr")
    expect(evidence).to_have_count(4)
    expect(evidence.first).to_contain_text("61.7 ms")
    expect(evidence.nth(1)).to_contain_text("52 %")
    expect(sentinel_page.locator("#evidence table").nth(1)).to_contain_text("memory_pressure host node-1")
    expect(sentinel_page.locator("#meaning")).to_contain_text("What to do:")
    expect(sentinel_page.locator("#timeline tbody tr")).to_have_count(4)
    expect(sentinel_page.locator("#affected")).to_contain_text("Not kept as traces: 60991 to 61101")
    expect(sentinel_page.get_by_role("link", name="req-71")).to_be_visible()
    sentinel_page.get_by_role("link", name=f"step {SLOW_STEP}, onset").click()
    expect(sentinel_page.locator("#details")).to_contain_text("Slower than its work explains")


def test_a_finding_leads_to_its_engine_and_to_the_meaning_of_its_kind(sentinel_page: Page) -> None:
    sentinel_page.goto("/finding/f-rank-1")
    sentinel_page.get_by_role("link", name=f"{QUIET} at that time").click()
    expect(sentinel_page.locator("#incidents")).to_contain_text("Slow worker on rank 1")
    sentinel_page.goto("/finding/f-rank-1")
    sentinel_page.get_by_role("link", name="slow_worker among all kinds").click()
    expect(sentinel_page.locator("#slow_worker")).to_be_focused()


def test_a_person_answers_by_keyboard_alone(sentinel_page: Page, sentinel: FakeSentinel) -> None:
    sentinel_page.goto(f"/finding/{OPEN_FINDING}")
    sentinel_page.get_by_role("button", name="Acknowledge").focus()
    sentinel_page.keyboard.press("Enter")
    expect(sentinel_page.locator("#facts")).to_contain_text("acknowledged")
    sentinel_page.get_by_role("button", name="Silence", exact=True).focus()
    sentinel_page.keyboard.press("Enter")
    expect(sentinel_page.locator("#facts")).to_contain_text("silenced until")
    sentinel_page.get_by_role("button", name="End the silence").click()
    expect(sentinel_page.locator("#facts")).not_to_contain_text("silenced until")
    sentinel_page.on("dialog", lambda dialog: dialog.accept())
    sentinel_page.get_by_role("button", name="Not an incident").focus()
    sentinel_page.keyboard.press("Enter")
    expect(sentinel_page.locator("#facts")).to_contain_text("no incident")
    expect(sentinel_page.locator("#timeline tbody tr")).to_have_count(5)
    (view,) = (view for view in sentinel.list_findings() if view.finding.id == OPEN_FINDING)
    assert (view.is_acknowledged, view.is_dismissed) == (True, True)


def test_a_step_slower_than_expected_says_so_in_the_waterfall_and_a_finding_span_leads_to_it(
    sentinel_page: Page,
) -> None:
    sentinel_page.goto(f"/trace/{FINDING_TRACE}")
    sentinel_page.locator("#details").get_by_role("link", name="llmprism.step").click()
    row = sentinel_page.get_by_role("treeitem")
    expect(row).to_contain_text(re.compile("▲ 1.83. expected"))
    expect(row.locator(".beyond")).to_be_attached()
    sentinel_page.go_back()
    sentinel_page.get_by_role("link", name="The finding").click()
    expect(sentinel_page.locator("#heading")).to_have_text("CPU contention on host node-1")


def test_steps_slower_than_expected_can_be_searched_for(sentinel_page: Page) -> None:
    sentinel_page.goto("/?show=slow")
    rows = sentinel_page.locator("#results tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("llmprism.step")


def test_markup_in_a_finding_is_shown_as_text(sentinel_page: Page, sentinel: FakeSentinel) -> None:
    finding = sentinel.list_findings()[0].finding
    odd = replace(finding, id="odd/..?#", kind=MARKUP, summary=MARKUP, subject=Subject(MARKUP, MARKUP))
    sentinel.incidents.append(FakeIncident((odd,)))
    sentinel_page.goto("/findings")
    expect(sentinel_page.locator("#findings tbody tr")).to_have_count(4)
    sentinel_page.goto(f"/engine?id={ALARMED}")
    expect(sentinel_page.locator("#incidents")).to_contain_text("<img src=x")
    expect(sentinel_page.locator("figure svg.main-svg").first).to_be_visible()
    assert sentinel_page.evaluate("window.hacked") is None
    assert sentinel_page.locator("main img").count() == 0


@pytest.mark.parametrize(
    "path", ["/engines", f"/engine?id={ALARMED}", "/findings", f"/finding/{OPEN_FINDING}", "/kinds"]
)
def test_narrow_window_needs_no_scrolling_sideways(sentinel_page: Page, path: str) -> None:
    sentinel_page.set_viewport_size({"width": 380, "height": 800})
    sentinel_page.goto(path)
    expect(sentinel_page.locator("table, section p").first).to_be_visible()
    sentinel_page.wait_for_load_state("networkidle")
    assert sentinel_page.evaluate("document.documentElement.scrollWidth") <= 380


@pytest.mark.parametrize(("path", "said"), [("/engines", "No engine"), ("/findings", "Nothing was found")])
def test_a_service_that_watches_nothing_says_what_is_awaited(page: Page, path: str, said: str) -> None:
    page.goto(path)
    expect(page.locator("#summary")).to_contain_text(said)
    expect(page.locator("#active-findings")).to_be_hidden()
