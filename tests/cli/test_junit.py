"""Reports as test runners write them, and as somebody writes them who means harm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.runner import junit
from app.runner.junit import Counts, Unreadable, count_tests

OF_PYTEST = """<?xml version="1.0" encoding="utf-8"?>
<testsuites name="pytest tests"><testsuite name="pytest" errors="1" failures="1" skipped="1" tests="5" time="0.04">
  <testcase classname="test_x" name="test_ok" time="0.0"/>
  <testcase classname="test_x" name="test_bad"><failure message="assert 0">&lt;error/&gt;</failure></testcase>
  <testcase classname="test_x" name="test_skip"><skipped type="pytest.skip" message="m">here</skipped></testcase>
  <testcase classname="test_x" name="test_setup"><error message="boom">trace</error></testcase>
  <testcase classname="test_x" name="test_both"><failure message="a"/><error message="b"/></testcase>
</testsuite></testsuites>"""


def _counts(folder: Path, content: str | bytes) -> Counts | None:
    report = folder / "report.xml"
    report.write_bytes(content if isinstance(content, bytes) else content.encode())
    return count_tests(report)


def test_each_test_counts_once_as_the_gravest_of_what_happened(tmp_path: Path) -> None:
    assert _counts(tmp_path, OF_PYTEST) == Counts(tests=5, failures=1, errors=2, skipped=1)


def test_nested_suites_and_wrong_sums_do_not_matter(tmp_path: Path) -> None:
    nested = '<testsuite tests="99"><testsuite tests="1"><testcase/></testsuite><testcase/><error/></testsuite>'
    assert _counts(tmp_path, nested) == Counts(tests=2, failures=0, errors=0, skipped=0)


def test_no_report_is_none(tmp_path: Path) -> None:
    assert count_tests(tmp_path / "none.xml") is None
    assert count_tests(tmp_path / "none" / "none.xml") is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "no XML"),
        ("<a>", "no XML"),
        ("{}", "no XML"),
        (b"<a>\xff</a>", "no XML"),
        ('<?xml version="1.0" encoding="no-such"?><a/>', "no XML"),
        ('<?xml version="1.0" encoding="euc-jp"?><a/>', "no XML"),
        ("<!DOCTYPE a><a/>", "document type"),
        ('<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>', "document type"),
        ('<!DOCTYPE a [<!ENTITY b "bb"><!ENTITY c "&b;&b;&b;&b;">]><a>&c;&c;</a>', "document type"),
        ("<a>&undeclared;</a>", "no XML"),
    ],
)
def test_what_is_no_plain_report_is_refused(tmp_path: Path, content: str | bytes, why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        _counts(tmp_path, content)


def test_depth_costs_no_stack(tmp_path: Path) -> None:
    depth = 100_000
    assert _counts(tmp_path, "<a>" * depth + "<testcase/>" + "</a>" * depth) == Counts(
        tests=1, failures=0, errors=0, skipped=0
    )


def test_size_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(junit, "MOST_BYTES", 1024 * 1024)
    with pytest.raises(Unreadable, match="larger than 1 MiB"):
        _counts(tmp_path, "<a>" + " " * 1024 * 1024 + "</a>")


def test_only_a_plain_file_is_read_and_nothing_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(Unreadable, match="plain file"):
            count_tests(path)
