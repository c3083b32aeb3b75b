"""Chinese pages have every block of the English ones as they are today, with the same names, values and links."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.translations import PAGES, PATH, ROOT, TO_DO, Pair, blocks, pairs, problem, renewed, taken

RECORD = json.loads(PATH.read_text())
each_page = pytest.mark.parametrize("page", PAGES)


def text(page: str) -> str:
    return (ROOT / page).read_text()


def pairs_of(page: str) -> Iterator[Pair]:
    return pairs(text(PAGES[page]), text(page), RECORD.get(page, []))


@each_page
def test_a_page_translates_the_english_one_of_today(page: str) -> None:
    found = [problem(page, pair) for pair in pairs_of(page) if pair.state != "current"]
    assert not found, "\n".join(["CONTRIBUTING.md, a page in English, says more", *found])


@each_page
def test_names_values_and_messages_are_those_of_the_english_page(page: str) -> None:
    """What is between backticks."""
    for pair in pairs_of(page):
        if pair.english and pair.chinese and pair.english.kind != "code":
            english, chinese = (set(re.findall(r"`([^`]+)`", " ".join(one.text.split()))) for one in pair[:2] if one)
            assert english == chinese, f"{page}:{pair.line}"


def test_links_lead_to_the_chinese_page_where_there_is_one() -> None:
    translated = {english: page for page, english in PAGES.items()}
    titles = {
        (english, anchor(original.text)): anchor(title.text)
        for page, english in PAGES.items()
        for original, title, *_ in pairs_of(page)
        if original and title and original.kind == "heading"
    }
    for page, english in PAGES.items():
        for pair in pairs_of(page):
            if pair.english and pair.chinese and pair.english.kind != "code":
                wanted = [
                    (translated.get(target, target), titles.get((target, title), title))
                    for target, title in links(english, pair.english.text)
                ]
                assert sorted(links(page, pair.chinese.text)) == sorted(wanted), f"{page}:{pair.line}"


def links(page: str, text: str) -> list[tuple[str, str]]:
    """Files, from the root, and headings."""
    targets = (target.partition("#") for target in re.findall(r"\]\(([^)]+)\)", text))
    folder = Path(page).parent
    return [(os.path.normpath(folder / path) if path else page, title) for path, _, title in targets]


def anchor(heading: str) -> str:
    """What GitHub makes of it."""
    title = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading.lstrip("# ").rstrip("\n"))
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@each_page
def test_a_page_begins_with_a_link_to_the_english_one(page: str) -> None:
    link = f"[English]({os.path.relpath(PAGES[page], Path(page).parent)})"
    assert text(page).splitlines()[2] == link
    assert page.removeprefix("docs/") in text("docs/README.md")


PAGE = "docs/zh/journeys.md"
ENGLISH = "# Runs\n\nOne at a time\nhas the cluster.\n\n    a4-agent run\n\n- It ends.\n- It waits.\n\n| 65 | wrong |\n"
CHINESE = "# 运行\n\n同一时刻只有一个。\n\n    a4-agent run\n\n- 会结束。\n- 会等待。\n\n| 65 | 结果错误 |\n"
PROSE = [pair for pair in zip(blocks(ENGLISH), blocks(CHINESE), strict=True) if pair[0].kind != "code"]
RECORDED = [f"{english.digest} {chinese.digest}" for english, chinese in PROSE]


def said(english: str, chinese: str) -> list[str]:
    return [problem(PAGE, pair) for pair in pairs(english, chinese, RECORDED) if pair.state != "current"]


def test_lines_that_are_wrapped_in_another_way_are_no_change() -> None:
    assert said(ENGLISH.replace("time\nhas", "time has"), CHINESE) == []


def test_a_changed_paragraph_is_named_with_its_translation() -> None:
    assert said(ENGLISH.replace("One at", "Two at"), CHINESE) == [
        f"{PAGE}:3: {TO_DO['stale']}\n    docs/journeys.md:3: Two at a time\nhas the cluster."
    ]


@pytest.mark.parametrize(
    "block", ["同一时刻只有一个。\n\n", "    a4-agent run\n\n", "- 会结束。\n", "| 65 | 结果错误 |\n"]
)
def test_a_block_that_is_missing_is_named_where_it_belongs(block: str) -> None:
    (found,) = said(ENGLISH, CHINESE.replace(block, ""))
    line = CHINESE[: CHINESE.index(block)].count("\n") + 1
    assert found.startswith(f"{PAGE}:{line}: a block is missing here: translate it\n    docs/journeys.md:")


def test_a_new_english_block_is_the_only_one_that_is_missing() -> None:
    assert said(ENGLISH.replace("- It waits", "- It is named.\n- It waits"), CHINESE) == [
        f"{PAGE}:8: a block is missing here: translate it\n    docs/journeys.md:9: - It is named."
    ]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "    a4-agent run\n",
            "    a4-agent  run\n",
            "5: the English page has another kind of block here, or other code",
        ),
        ("- 会等待。", "会等待。", "8: the English page has another kind of block here, or other code"),
        ("- 会等待。", "- 会等待。\n- 会取名。", "9: the English page has no such block: take it out"),
        ("会等待", "会排队", "8: the translation has changed: run"),
    ],
)
def test_what_is_not_as_in_english_is_named(old: str, new: str, told: str) -> None:
    (found,) = said(ENGLISH, CHINESE.replace(old, new))
    assert found.startswith(f"{PAGE}:{told}")


ENGLISH_NOW = ENGLISH.replace("It ends", "It ends at once").replace("It waits", "It waits for ever")
CHINESE_NOW = CHINESE.replace("会等待", "会一直等待")


@pytest.mark.parametrize(("unchanged", "left"), [([], [7]), ([f"{PAGE}:7"], [])])
def test_a_translation_that_stays_as_it_is_has_to_be_named(unchanged: list[str], left: list[int]) -> None:
    found = list(pairs(ENGLISH_NOW, CHINESE_NOW, RECORDED))
    record = renewed(found, taken(PAGE, found, unchanged))
    after = pairs(ENGLISH_NOW, CHINESE_NOW, record)
    assert [pair.line for pair in after if pair.state != "current"] == left


def test_nothing_is_recorded_while_a_block_is_missing() -> None:
    found = list(pairs(ENGLISH_NOW, CHINESE_NOW.replace("# 运行\n", ""), RECORDED))
    assert taken(PAGE, found, [f"{PAGE}:7"]) == []
