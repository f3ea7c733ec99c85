"""`--arch`: what people write, and what is none."""

from __future__ import annotations

import pytest

from deployops.errors import UsageError
from deployops.native.archs import read_arch, read_archs


@pytest.mark.parametrize("given", [80, "80", "8.0", "sm80", "sm_80", "SM_80", " 80 "])
def test_all_spellings_of_a_capability_are_the_same(given: str | int) -> None:
    assert read_arch(given) == 80


def test_several_have_commas_between_and_each_counts_once() -> None:
    assert read_archs("90, sm_80,12.0,8.0") == (90, 80, 120)


@pytest.mark.parametrize("given", ["", "8", "ampere", "sm_8999", "8.6.1", "08.6", "٨.٩", "90a", "-80", "+80"])
def test_what_is_none_is_refused_with_what_is_expected(given: str) -> None:
    with pytest.raises(UsageError, match=r"is no compute capability; expected such as 89, sm_89 or 8\.9$"):
        read_arch(given)


@pytest.mark.parametrize("text", ["80,", ",80", "80 90", "80;90", ""])
def test_a_list_is_refused_with_the_option(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--arch .*, with commas between$"):
        read_archs(text)
