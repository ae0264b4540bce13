"""Prompts from words, files and standard input."""

import base64
from pathlib import Path

import pytest

from branchwork.errors import UserError
from branchwork.host.attachments import MAX_TEXT_BYTES, build_prompt

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def test_piped_text_comes_after_the_words(tmp_path: Path) -> None:
    assert build_prompt(["explain", "this"], "a diff\n", tmp_path).text == "explain\n\nthis\n\na diff"


def test_a_file_becomes_a_block_and_an_image_is_attached(tmp_path: Path) -> None:
    (tmp_path / "a b.py").write_text("x = 1\n")
    (tmp_path / "dot.png").write_bytes(PNG)
    prompt = build_prompt(["look", "@a b.py", "@dot.png"], None, tmp_path)
    assert f'<file path="{tmp_path}/a b.py">\nx = 1\n</file>' in prompt.text
    assert [image.mime_type for image in prompt.images] == ["image/png"]
    assert base64.b64decode(prompt.images[0].data) == PNG


@pytest.mark.parametrize("words", [[], ["  "], [""]])
def test_nothing_to_ask_is_a_usage_error(words: list[str], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no prompt") as caught:
        build_prompt(words, " \n", tmp_path)
    assert caught.value.exit_code == 2


def test_a_file_that_cannot_be_used_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_bytes(b"x" * (MAX_TEXT_BYTES + 1))
    (tmp_path / "blob").write_bytes(b"\x00\x01\x02")
    for name, why in (("@none", "not a file"), ("@.", "not a file"), ("@big.txt", "too large"), ("@blob", "binary")):
        with pytest.raises(UserError, match=why):
            build_prompt([name], None, tmp_path)
