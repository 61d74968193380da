# Every link from our pages to a file or a make target leads somewhere.
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_to_files_that_are_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def test_make_targets_that_the_docs_name_exist() -> None:
    said = {target for page in PAGES for target in re.findall(r"`make ([a-z-]+)`", page.read_text("utf-8"))}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert said <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def test_commands_that_the_readme_names_exist() -> None:
    said = set(re.findall(r"`otel-llmprism ([a-z]+)`", (ROOT / "README.md").read_text(encoding="utf-8")))
    asked = subprocess.run(
        [sys.executable, "-m", "otel_llmprism", "--help"], capture_output=True, text=True, check=False
    )
    assert said
    assert all(f"  {command} " in asked.stdout for command in said)
